"""Every rank makes the call, and what rank 0 gets is whole: torchrun --nproc-per-node 2 tabs.py (or tabs.py unsynced)

Each is compared with the weights of the model that went in. On a CPU accelerate never turns FSDP on, so
`saved` sets what it sets on a GPU; FSDP1 by accelerate fails there, for it moves the weights to the CPU.
With the word `bf16-lora` behind it, it is LoRA in bfloat16. The Trainer steps with AdamW and clipping too: its first
gradient is compared with one process's, and what it saves with one process that steps with this gradient.
"""

import os
import sys
import tempfile
import time
from datetime import timedelta

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed
import torch
import torch.distributed as dist
from accelerate import Accelerator, DeepSpeedPlugin
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from deepspeed.utils import safe_get_full_grad
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from peft import get_peft_model_state_dict
from safetensors.torch import load_file
from second import ADAPTED, BOUND, SETTING, adapted, flat, optimizer_of, told
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, MixedPrecision, StateDictType
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.integrations import HfDeepSpeedConfig

SIZES = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
ZERO3 = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {
        "stage": 3,
        "stage3_gather_16bit_weights_on_model_save": True,
        "stage3_param_persistence_threshold": 0,  # else weights as small as these stay whole on each rank
    },
}
ZERO3 |= {"bf16": {"enabled": True}, "gradient_clipping": BOUND} if ADAPTED else {}
BF16 = {"mixed_precision": "bf16"} if ADAPTED else {}
rows = torch.tensor([[2, 3, 5, 7], [11, 13, 17, 19]])


def fresh():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, bos_token_id=0, eos_token_id=1, pad_token_id=2))
    model = adapted(model)
    return model, optimizer_of(model)


def zero3():
    model, optimizer = fresh()
    return deepspeed.initialize(model=model, optimizer=optimizer, config=ZERO3)[0]


def fsdp1_state_dict():
    half = MixedPrecision(torch.bfloat16, torch.bfloat16) if ADAPTED else None
    more = {"mixed_precision": half, "use_orig_params": ADAPTED}  # else it refuses frozen and trained weights together
    model = FullyShardedDataParallel(fresh()[0], device_id=torch.device("cpu"), **more)
    # --8<-- [start:fsdp1]
    whole = FullStateDictConfig(rank0_only=True)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, whole):
        state = model.state_dict()
    # --8<-- [end:fsdp1]
    return state


def save_checkpoint():
    zero3().save_checkpoint(folder)
    dist.barrier()
    return get_fp32_state_dict_from_zero_checkpoint(folder)


def accelerate_fsdp2():
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True, **BF16)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, cpu_ram_efficient_loading=False)
    plugin.set_state_dict_type("FULL_STATE_DICT")
    if ADAPTED:
        plugin.set_mixed_precision("bf16")
    accelerator.state.fsdp_plugin = plugin
    return saved(accelerator, DistributedType.FSDP)


def accelerate_zero3():
    AcceleratorState._reset_state(reset_partial_state=True)
    return saved(Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=ZERO3), **BF16), DistributedType.DEEPSPEED)


def saved(accelerator, strategy):
    accelerator.state.distributed_type = strategy
    model, *_ = accelerator.prepare(*fresh(), DataLoader(torch.zeros(4, 1), batch_size=1))
    accelerator.state.distributed_type = strategy
    accelerator.save_state(f"{folder}/state")
    return accelerator.get_state_dict(model)


def seen_step(engine, *args, **more):
    """DeepSpeed's, and the gradients before it."""
    if ADAPTED:
        seen.append(flat(safe_get_full_grad(p) for p in engine.module.parameters() if p.requires_grad))
    return step(engine, *args, **more)


def save_model():
    more = {"optim": "adamw_torch", "bf16": True, "max_grad_norm": BOUND} if ADAPTED else {}
    args = TrainingArguments(
        folder,
        deepspeed=ZERO3,
        per_device_train_batch_size=1,
        max_steps=1,
        learning_rate=1e-3 if ADAPTED else 0.0,
        save_strategy="no",
        use_cpu=True,
        report_to="none",
        **more,
    )
    trainer = Trainer(fresh()[0], args, train_dataset=[{"input_ids": row, "labels": row} for row in rows])
    deepspeed.DeepSpeedEngine.step = seen_step
    trainer.train()
    deepspeed.DeepSpeedEngine.step = step
    if ADAPTED:
        text, numbers = told(seen[0], fresh, rows)
        say(f"the Trainer with ZeRO-3: {text}\n{numbers}", SETTING)
    trainer.save_model(f"{folder}/model")
    dist.barrier()
    return load_file(f"{folder}/model/{'adapter_' * ADAPTED}model.safetensors")


def generate(**more):
    engine, rank = zero3(), dist.get_rank()
    prompt, length = torch.full((1, 3), 3 + rank), 4 + 8 * rank  # the ranks end at different lengths
    more |= {"max_new_tokens": length, "min_new_tokens": length, "do_sample": False}
    alone = fresh()[0].to(engine.module.dtype).generate(prompt, **(more | {"synced_gpus": False}))
    return engine.module.generate(prompt, **more).tolist() == alone.tolist()


def generate_known():
    # --8<-- [start:known]
    known = HfDeepSpeedConfig(ZERO3)  # keep it: here transformers sees that it is ZeRO-3
    # --8<-- [end:known]
    return known and generate()


def stepped(model, gradient):
    """One process's weights, in bfloat16, after a clipped step with this gradient."""
    held = [p for p in model.parameters() if p.requires_grad]
    for p, part in zip(held, gradient.split([p.numel() for p in held]), strict=True):
        p.grad = part.view_as(p)
    torch.nn.utils.clip_grad_norm_(held, BOUND)
    start = flat(p.detach().bfloat16() for p in held)
    torch.optim.AdamW(held, lr=1e-3, weight_decay=0.0).step()
    assert (flat(p.detach().bfloat16() for p in held) != start).float().mean() > 0.9, "the weights did not move"
    return get_peft_model_state_dict(model.bfloat16())


def say(text, setting=None):
    """Say it, behind what was set. FSDP only saves here: it computes nothing in bfloat16."""
    setting = (("LoRA | " if "FSDP" in text else "LoRA in bf16 | ") if setting is None else setting) if ADAPTED else ""
    if dist.get_rank() == 0:
        print(f"\n=> {setting}{text}", flush=True)


step, seen = deepspeed.DeepSpeedEngine.step, []
CALLS = {
    "FSDP1, state_dict": fsdp1_state_dict,
    "DeepSpeed, save_checkpoint": save_checkpoint,
    "accelerate with FSDP2, save_state and get_state_dict": accelerate_fsdp2,
    "accelerate with ZeRO-3, save_state and get_state_dict": accelerate_zero3,
    "the Trainer with ZeRO-3, save_model": save_model,
    "generate under ZeRO-3, with an HfDeepSpeedConfig": generate_known,
    "generate under ZeRO-3, with synced_gpus=True": lambda: generate(synced_gpus=True),
}
deepspeed.init_distributed("gloo", verbose=False, timeout=timedelta(seconds=20))
if sys.argv[1:] == ["unsynced"]:
    try:
        said = "generates" if generate() else "generates something else"
        time.sleep(40)  # without another call, while the other rank waits
    except RuntimeError as error:
        ended = any(word in str(error) for word in ("Timed out", "timeout", "timed out"))
        said = "waits until the time limit" if ended else str(error)
    print(f"\n=> {'LoRA in bf16 | ' * ADAPTED}generate under ZeRO-3, with neither, rank {dist.get_rank()}: {said}", flush=True)
    os._exit(0)
folders = [tempfile.mkdtemp()]
dist.broadcast_object_list(folders)
(folder,) = folders
for name, call in CALLS.items():
    got = call()
    if dist.get_rank() == 0:
        if isinstance(got, dict):
            model = fresh()[0]
            wanted = stepped(model, seen[0]) if ADAPTED and call == save_model else model.state_dict()
            got = got.keys() == wanted.keys() and all(torch.equal(got[key].float(), wanted[key].float()) for key in wanted)
        with_it = " with this gradient" if ADAPTED and call == save_model else ""
        text = f"{name}: {'equal to one process' if got else 'NOT equal to one process'}{with_it}"
        say(text, SETTING if call == save_model else None)
    dist.barrier()
dist.destroy_process_group()
