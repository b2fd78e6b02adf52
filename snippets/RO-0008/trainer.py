"""The optimizer that transformers' Trainer makes under FSDP, compared with one process: torchrun --nproc-per-node 2 trainer.py

accelerate turns FSDP on for GPUs only. On a CPU `Own` sets what it sets on a GPU; the rest is the Trainer's own. With
the word `bf16-lora` it is LoRA in bfloat16 with AdamW and clipping.
"""

import tempfile

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from second import ADAPTED, BOUND, RATE, SETTING, TRAINED, adapted, compared, gradient, optimizer_of, whole
from torch.utils.data import SequentialSampler
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
STRATEGIES = {"FSDP1": {"use_orig_params": False}, "FSDP2": {"fsdp_version": 2}}
POLICY = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["LlamaDecoderLayer"]}
POLICY |= {"cpu_ram_efficient_loading": False, "sync_module_states": False}
data = torch.randint(32, (12, 8), generator=torch.Generator().manual_seed(1))  # three steps of four rows


def fresh():
    torch.manual_seed(0)
    return adapted(LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.2, use_cache=False)), "all-linear")


def loss(model, rows):
    return model(input_ids=rows, labels=rows).loss


class Own(Trainer):
    settings = None

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        state, self.is_fsdp_enabled = self.accelerator.state, True
        state.fsdp_plugin = FullyShardedDataParallelPlugin(**POLICY, **self.settings)
        if ADAPTED:
            state.fsdp_plugin.set_mixed_precision("bf16")
        for it in (state, PartialState()):
            it.distributed_type, it.device = DistributedType.FSDP, torch.device("cpu")

    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)

    def _clip_grad_norm(self, model):
        seen.append(gradient(model))
        return super()._clip_grad_norm(model)


def made(model, **more):
    AcceleratorState._reset_state(True), PartialState._reset_state(), GradientState._reset_state()
    args = {"optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "constant", "max_steps": 3, "max_grad_norm": 0}
    args |= {"optim": "adamw_torch", "learning_rate": RATE, "max_grad_norm": BOUND, "bf16": True} if ADAPTED else {}
    args |= {"use_cpu": True, "save_strategy": "no", "report_to": "none", "per_device_train_batch_size": 2}
    rows = [{"input_ids": row, "labels": row} for row in data]
    return Own(model, TrainingArguments(tempfile.mkdtemp(), **args), train_dataset=rows, **more)


def said(text, mark="=> "):
    if dist.get_rank() == 0:
        print(f"\n{mark}{SETTING if mark else ''}{text}", flush=True)


for name, Own.settings in STRATEGIES.items():
    trainer, seen = made(fresh()), []
    trainer.train()
    model = trainer.model_wrapped
    held = [p for group in trainer.optimizer.param_groups for p in group["params"]]
    every = "all" if {id(p) for p in held} == {id(p) for p in model.parameters() if p.requires_grad} else "NOT all"
    kind = "flat" if all(hasattr(p, "_is_flat_param") for p in held) else type(held[0]).__name__
    moved, right, distance = compared(fresh, loss, data.split(4), whole(model), seen)
    said(f"{name}: the optimizer holds {every} {len(held)} {TRAINED}parameters ({kind}); {moved}, and {right}")
    said(distance, "")
    model = fresh()
    try:
        made(model, optimizers=(optimizer_of(model.parameters()), None))
        said(f"{name}, optimizers=(…): no error")
    except RuntimeError as error:
        said(f"{name}, optimizers=(…): {error}")
dist.destroy_process_group()
