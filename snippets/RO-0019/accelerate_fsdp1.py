"""accelerate saves under FSDP1 after a step, with the call on every rank: torchrun --nproc-per-node 2 accelerate_fsdp1.py

What it saves is compared with one process. accelerate turns FSDP on for GPUs only, so this sets what it sets on a GPU.
accelerate has FSDP1 move what it saves to the CPU. FSDP1 crashes if it is there already, so `in_place` switches that off.
With the word `bf16-lora` it is LoRA in bfloat16 with AdamW and clipping. One process then steps with the ranks' gradient.
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from peft.utils.other import fsdp_auto_wrap_policy
from second import ADAPTED, BOUND, SETTING, adapted, flat, optimizer_of, told
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
OFF = {"cpu_ram_efficient_loading": False, "sync_module_states": False}
state_dict_type = FullyShardedDataParallel.state_dict_type


def in_place(model, kind, config, *more):
    config.offload_to_cpu = False
    return state_dict_type(model, kind, config, *more)


def fresh():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.2, bos_token_id=0, eos_token_id=1, pad_token_id=2))
    model = adapted(model)
    return model, optimizer_of(model)


def gradients(model):
    """The whole gradients. FSDP gathers only weights, so the gradients stand in their place meanwhile."""
    kept = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.data.zero_() if p.grad is None else p.data.copy_(p.grad)
    with FullyShardedDataParallel.summon_full_params(model):
        found = [p.detach().clone() for p in model.parameters()]
    for p, before in zip(model.parameters(), kept, strict=True):
        p.data.copy_(before)
    return found


def second_setting(name):
    """Compare the gradient, clip it, and have one process step with it."""
    model_alone, optimizer_alone = fresh()
    pairs = [it for it in zip(model_alone.parameters(), gradients(model), strict=True) if it[0].requires_grad]
    text, numbers = told(flat(it for _, it in pairs), fresh, data)
    if dist.get_rank() == 0:
        print(f"\n=> {SETTING}FSDP1, {name}: {text}\n{numbers}", flush=True)
    for p, grad in pairs:
        p.grad = grad
    torch.nn.utils.clip_grad_norm_(model_alone.parameters(), BOUND)
    optimizer_alone.step()
    accelerator.clip_grad_norm_(model.parameters(), BOUND)
    return model_alone


def said(name, got):
    if dist.get_rank() == 0:
        wanted = alone.state_dict()
        apart = max((got[key] - wanted[key]).abs().max().item() for key in wanted) if got.keys() == wanted.keys() else None
        right = "equal to one process" if apart is not None and apart < 1e-6 else "NOT equal to one process"
        right += " with this gradient" if ADAPTED else ""
        print(f"\n=> {SETTING}FSDP1, {name}: {right}\n{apart}", flush=True)


FullyShardedDataParallel.state_dict_type = staticmethod(in_place)
data = torch.randint(64, (2, 8), generator=torch.Generator().manual_seed(1))
alone, optimizer = fresh()
if not ADAPTED:
    alone(input_ids=data, labels=data).loss.backward()
    optimizer.step()
for kind in ("FULL_STATE_DICT", "SHARDED_STATE_DICT"):
    AcceleratorState._reset_state(True), PartialState._reset_state(), GradientState._reset_state()
    accelerator = Accelerator(cpu=True, mixed_precision="bf16" if ADAPTED else "no")
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(state_dict_type=kind, **OFF)
    for it in (accelerator.state, PartialState()):
        it.distributed_type, it.device = DistributedType.FSDP, torch.device("cpu")
    model = fresh()[0]
    if ADAPTED:
        accelerator.state.fsdp_plugin.set_mixed_precision("bf16")
        accelerator.state.fsdp_plugin.auto_wrap_policy = fsdp_auto_wrap_policy(model)
    model = accelerator.prepare(model)
    optimizer = accelerator.prepare(optimizer_of(model))
    row = data[dist.get_rank() :][:1]
    accelerator.backward(model(input_ids=row, labels=row).loss)
    if ADAPTED:
        alone = second_setting(kind)
    optimizer.step()
    folders = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folders)
    folder = Path(folders[0])
    accelerator.save_state(folder)
    if kind == "SHARDED_STATE_DICT" and dist.get_rank() == 0:
        dcp_to_torch_save(folder / "pytorch_model_fsdp_0", folder / "pytorch_model_fsdp.bin")
    dist.barrier()
    saved = torch.load(folder / "pytorch_model_fsdp.bin")
    said(f"{kind}, save_state", saved.get("model", saved))
    said(f"{kind}, get_state_dict", accelerator.get_state_dict(model))
dist.destroy_process_group()
