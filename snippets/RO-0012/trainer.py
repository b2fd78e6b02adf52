"""Accumulation in transformers' Trainer, its short last window too: torchrun --nproc-per-node 2 trainer.py

Two epochs of eight micro-batches, accumulation 3: windows of 3, 3 and 2. One process takes each window whole. The objective is
the mean over a window's tokens for Llama, and for a model without loss arguments the mean over its micro-batches. accelerate
turns FSDP on for GPUs only. On a CPU `Own` sets what it sets on a GPU; the rest is the Trainer's own.
"""

import tempfile

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import SequentialSampler
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

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
            for it in (self.accelerator.state, PartialState()):
                it.distributed_type, it.device = DistributedType.FSDP, torch.device("cpu")

    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)


def fresh(kind):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.2, use_cache=False)) if kind == "Llama" else Plain()


def whole(model):
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return [p.detach().clone() for p in model.parameters()]
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]


LAYERS = {"Llama": "LlamaDecoderLayer", "a model without loss arguments": "Sequential"}
data = torch.randint(32, (16, 8), generator=torch.Generator().manual_seed(1))
labels = data.clone()
for n, row in enumerate(labels):
    row[8 - n % 5 :] = -100  # of unequal lengths
rest = {"optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "constant", "num_train_epochs": 2, "max_grad_norm": 0}
rest |= {"gradient_accumulation_steps": 3, "per_device_train_batch_size": 1}
rest |= {"use_cpu": True, "save_strategy": "no", "report_to": "none"}
for kind in LAYERS:
    alone = fresh(kind)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.5)
    for window in [slice(0, 6), slice(6, 12), slice(12, 16)] * 2:
        if kind == "Llama":
            alone(input_ids=data[window], labels=labels[window]).loss.backward()
        else:
            losses = [alone(data[n : n + 1], labels[n : n + 1])["loss"] for n in range(window.start, window.stop)]
            torch.stack(losses).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, Own.settings in STRATEGIES.items():
        AcceleratorState._reset_state(True), PartialState._reset_state(), GradientState._reset_state()
        rows = [{"input_ids": a, "labels": b} for a, b in zip(data, labels, strict=True)]
        trainer = Own(fresh(kind), TrainingArguments(tempfile.mkdtemp(), **rest), train_dataset=rows)
        trainer.train()
        ended, start = whole(trainer.model_wrapped), whole(fresh(kind))
        apart, far = (sum((a - b).norm() for a, b in zip(whole(alone), it, strict=True)) for it in (ended, start))
        farthest = (apart / far).detach()
        dist.all_reduce(farthest, dist.ReduceOp.MAX)  # of the ranks
        if dist.get_rank() == 0:
            right = "equal one process's" if farthest < 1e-5 else "are not one process's"
            print(f"\n=> {kind}, {name}: after {trainer.state.global_step} steps the weights {right}", flush=True)
            print(f"distance {farthest:.1e}", flush=True)
dist.destroy_process_group()
