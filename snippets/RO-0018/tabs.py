"""Two backwards of accelerate under ZeRO-2 are two steps of the optimizer: torchrun --nproc-per-node 2 tabs.py

With `bf16-lora` it is LoRA in bfloat16, with AdamW and clipping, and the first gradient is compared with one process, which
adds the losses. Then the ranks add them too.
"""

import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import torch
import torch.distributed as dist
from accelerate import Accelerator, DeepSpeedPlugin
from accelerate.state import AcceleratorState
from deepspeed.utils import safe_get_full_grad
from torch import nn
from torch.utils.data import DataLoader

ADAPTED = "bf16-lora" in sys.argv
CLIP, DTYPE = 0.1, torch.bfloat16 if ADAPTED else torch.float32
ZERO2 = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": 2},
}
ZERO2 |= {"bf16": {"enabled": True}, "gradient_clipping": CLIP} if ADAPTED else {}


def fresh():
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    if ADAPTED:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(nn.Sequential(model), LoraConfig(target_modules=["0"], init_lora_weights=False))
        return model, torch.optim.AdamW(trained(model), lr=0.1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def flat(tensors):
    return torch.cat([it.detach().float().flatten() for it in tensors])


def losses(model, batch):
    return [model(batch).square().mean(), model(batch + 1).square().mean()]


def one_process(dtype):
    model = fresh()[0].bfloat16().to(dtype)
    sum(sum(losses(model, batch.to(dtype))) / 2 for batch in every).backward()
    return flat(p.grad for p in trained(model))


def ranks(together):
    """Where the weights move, and the gradient of the first step."""
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=ZERO2))
    (model, optimizer), loader = fresh(), DataLoader(torch.randn(4, 8), batch_size=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step, grads, moved = model.step, [], []

    def before_step(*args, **more):
        grads.append(flat(safe_get_full_grad(p) for p in trained(model)))
        step(*args, **more)

    model.step = before_step
    batch = next(iter(loader)).to(DTYPE)
    before = flat(trained(model))
    for loss in [sum(losses(model, batch))] if together else losses(model, batch):
        accelerator.backward(loss)
        after = flat(trained(model))
        moved.append(not torch.equal(before, after))
        before = after
    optimizer.step()
    moved.append(not torch.equal(before, flat(trained(model))))
    dist.all_gather_object(every, batch)
    return moved, grads[0]


def say(text):
    if dist.get_rank() == 0:
        print(f"\n=> {'LoRA in bf16, AdamW, clipping | ' if ADAPTED else ''}{text}", flush=True)


every = [None, None]
moved, got = ranks(together=False)
names = ("accelerator.backward, first loss", "accelerator.backward, second loss", "optimizer.step()")
for name, it in zip(names, moved, strict=True):
    say(f"{name}: the weights {'move' if it else 'stand still'}")
for name, grad in {"two backwards": got, "the losses added": ranks(together=True)[1]}.items() if ADAPTED else ():
    half, full = one_process(torch.bfloat16), one_process(torch.float32)
    apart, rounding = (((it - half).norm() / half.norm()).item() for it in (grad, full))
    assert grad.norm() > CLIP
    say(f"{name}: the first gradient {'is' if apart <= 3 * rounding else 'is not'} one process's")
    print(f"distance {apart:.1e}, of bfloat16 itself {rounding:.1e}", flush=True)
dist.destroy_process_group()
