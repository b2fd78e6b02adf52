"""Accumulation in transformers' Trainer, its short last window too: torchrun --nproc-per-node 2 trainer.py

Two epochs of eight micro-batches, accumulation 3: windows of 3, 3 and 2. One process takes each window whole. The objective is
the mean over a window's tokens for Llama, and for a model without loss arguments the mean over its micro-batches. accelerate
turns FSDP on for GPUs only. On a CPU `Own` sets what it sets on a GPU; the rest is the Trainer's own. With the word `bf16-lora`
it is LoRA in bfloat16 with AdamW and clipping.
"""

import tempfile
from functools import partial

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn
from torch.utils.data import SequentialSampler
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from windows import ADAPTED, BOUND, RATE, SETTING, adapted, clipped, compared, gradient, whole

SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
STRATEGIES = {"DDP": None, "FSDP1": {"use_orig_params": False}, "FSDP2": {"fsdp_version": 2}}
OFF = {"cpu_ram_efficient_loading": False, "sync_module_states": False}


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Embedding(32, 16), nn.Tanh(), nn.Linear(16, 32))

    def forward(self, input_ids, labels):
        return {"loss": nn.functional.cross_entropy(self.inner(input_ids).flatten(0, 1), labels.flatten())}


class Own(Trainer):
    settings = None

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        if self.settings:
            policy = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": [LAYERS[kind]]}
            plugin, self.is_fsdp_enabled = FullyShardedDataParallelPlugin(**policy, **OFF, **self.settings), True
            self.accelerator.state.fsdp_plugin = plugin
            if ADAPTED:
                plugin.set_mixed_precision("bf16")
            for it in (self.accelerator.state, PartialState()):
                it.distributed_type, it.device = DistributedType.FSDP, torch.device("cpu")

    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)

    def _clip_grad_norm(self, model):
        seen.append(gradient(model))
        return super()._clip_grad_norm(model)


def fresh(kind):
    torch.manual_seed(0)
    config = LlamaConfig(**SIZES, initializer_range=0.2, use_cache=False)
    return adapted(LlamaForCausalLM(config) if kind == "Llama" else Plain(), r".*(_proj|inner\.2)")


def loss_of(kind, window):
    """A function of the model: the loss of a window of this kind's rows."""
    if kind == "Llama":
        return lambda model: model(input_ids=data[window], labels=labels[window]).loss
    each = [slice(n, n + 1) for n in range(window.start, window.stop)]
    return lambda model: torch.stack([model(data[n], labels[n])["loss"] for n in each]).mean()


LAYERS = {"Llama": "LlamaDecoderLayer", "a model without loss arguments": "Sequential"}
data = torch.randint(32, (16, 8), generator=torch.Generator().manual_seed(1))
labels = data.clone()
for n, row in enumerate(labels):
    row[8 - n % 5 :] = -100  # of unequal lengths
rest = {"optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "constant", "num_train_epochs": 2, "max_grad_norm": 0}
rest |= {"gradient_accumulation_steps": 3, "per_device_train_batch_size": 1}
rest |= {"use_cpu": True, "save_strategy": "no", "report_to": "none"}
rest |= {"optim": "adamw_torch", "learning_rate": RATE, "max_grad_norm": BOUND, "bf16": True} if ADAPTED else {}
for kind in LAYERS:
    losses = [loss_of(kind, window) for window in [slice(0, 6), slice(6, 12), slice(12, 16)] * 2]
    for name, Own.settings in STRATEGIES.items():
        AcceleratorState._reset_state(True), PartialState._reset_state(), GradientState._reset_state()
        rows, seen = [{"input_ids": a, "labels": b} for a, b in zip(data, labels, strict=True)], []
        trainer = Own(fresh(kind), TrainingArguments(tempfile.mkdtemp(), **rest), train_dataset=rows)
        trainer.train()
        share, distance = compared(partial(fresh, kind), losses, seen or [whole(trainer.model_wrapped)])
        if dist.get_rank() == 0:
            right = "equal one process's" if share < 1 else "are not one process's"
            told = f"after {trainer.state.global_step} steps the weights {right}"
            if ADAPTED:
                told = f"the gradients of {len(seen)} windows {right}, within rounding; all clipped: {clipped(seen)}"
            print(f"\n=> {SETTING}{kind}, {name}: {told}", flush=True)
            print(f"distance {distance:.1e}, {share:.1e} of what is allowed", flush=True)
dist.destroy_process_group()
