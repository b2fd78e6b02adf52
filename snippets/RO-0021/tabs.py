"""What reads the inner model in other libraries, and what they call in training: torchrun --nproc-per-node 2 tabs.py

With `bf16-lora` it is in bfloat16, with AdamW and clipping, and the first gradient is compared with one process.
"""

import os
import sys
import tempfile

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed
import torch
import torch.distributed as dist
from accelerate import Accelerator
from deepspeed.utils import safe_get_full_grad
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

SIZES = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
BF16, CLIP = "bf16-lora" in sys.argv, 0.01
SETTING = "LoRA in bf16, AdamW, clipping | " if BF16 else ""


def fresh():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.2))
    return get_peft_model(model, LoraConfig(target_modules="all-linear", init_lora_weights=False))


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def flat(grads):
    return torch.cat([it.float().flatten() for it in grads])


def one_process(batches, cast, full):
    """`cast`: the weights are in bfloat16, as DeepSpeed has them."""
    model = fresh().to(torch.bfloat16) if cast else fresh()
    model = model.float() if full else model
    with torch.autocast("cpu", torch.bfloat16, enabled=not cast and not full):
        sum(model(input_ids=it, labels=it).loss / len(batches) for it in batches).backward()
    return flat(p.grad for p in trained(model))


def judge(name, got, tokens, cast=False):
    batches = [None, None]
    dist.all_gather_object(batches, tokens)
    half, full = (one_process(batches, cast, it) for it in (False, True))
    apart, rounding = (((it - half).norm() / half.norm()).item() for it in (got, full))
    assert got.norm() > CLIP
    said[name] = f"the first gradient {'is' if apart <= 3 * rounding else 'is not'} one process's"
    print(f"\ndistance {apart:.1e}, of bfloat16 itself {rounding:.1e}, {name}", flush=True)


def read(of):
    """An attribute that only `__getattr__` of PEFT's model finds, and `config`."""
    try:
        return f"peft_type {of.peft_type.value}, config is a {type(of.config).__name__}"
    except AttributeError as error:
        return str(error)


class Told(Trainer):
    def compute_loss(self, model, inputs, **more):
        said["Trainer, compute_loss is given"] = type(model).__name__
        said["Trainer, self.model"] = f"{type(self.model).__name__}, {read(self.model)}"
        seen.append(inputs["input_ids"])
        return super().compute_loss(model, inputs, **more)


def before_clipping(parameters, *rest):
    seen.append(flat(p.grad for p in trained(trainer.model)))
    return clip(parameters, *rest)


said, seen = {}, []
accelerator = Accelerator(cpu=True, mixed_precision="bf16" if BF16 else "no")
model = accelerator.prepare(fresh())
said["accelerate, model"] = read(model)
# --8<-- [start:accelerate]
inner = accelerator.unwrap_model(model)
# --8<-- [end:accelerate]
said["accelerate, unwrap_model(model)"] = read(inner)
tokens = torch.arange(8)[None] + 8 * accelerator.process_index
for name, it in {"accelerate, model": model, "accelerate, unwrap_model(model)": inner}.items() if BF16 else ():
    model.zero_grad()
    accelerator.backward(it(input_ids=tokens, labels=tokens).loss)
    judge(f"{name}, called to train", flat(p.grad for p in trained(inner)), tokens)
    accelerator.clip_grad_norm_(trained(inner), CLIP)
    torch.optim.AdamW(trained(inner), lr=0.0).step()  # the next one starts from the same weights
rest = {"bf16": True, "optim": "adamw_torch", "max_grad_norm": CLIP} if BF16 else {}
args = TrainingArguments(tempfile.mkdtemp(), max_steps=1, use_cpu=True, save_strategy="no", report_to="none", **rest)
rows = torch.randint(64, (16, 8)).tolist()
trainer = Told(fresh(), args, train_dataset=[{"input_ids": row, "labels": row} for row in rows])
clip, trainer.accelerator.clip_grad_norm_ = trainer.accelerator.clip_grad_norm_, before_clipping
trainer.train()
if BF16:
    judge("Trainer, the model that compute_loss is given, called to train", seen[1], seen[0])
model = fresh()
optimizer = torch.optim.AdamW(trained(model), lr=0.1) if BF16 else torch.optim.SGD(trained(model), lr=0.1)
config = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": 2}}
config |= {"bf16": {"enabled": True}, "gradient_clipping": CLIP} if BF16 else {}
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
said["DeepSpeed, engine"] = read(engine)
said["DeepSpeed, engine.module"] = read(engine.module)
if BF16:
    engine.backward(engine(input_ids=tokens, labels=tokens).loss)
    judge("DeepSpeed, engine, called to train", flat(map(safe_get_full_grad, trained(model))), tokens, cast=True)
    engine.step()
if dist.get_rank() == 0:
    for name, what in said.items():
        print(f"\n=> {SETTING}{name}: {what}", flush=True)
dist.barrier()
dist.destroy_process_group()
