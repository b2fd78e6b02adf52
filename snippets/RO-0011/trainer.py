"""`max_grad_norm` of transformers' Trainer, compared with one process: torchrun --nproc-per-node 2 trainer.py

accelerate turns FSDP on for GPUs only. On a CPU `Own` sets what it sets on a GPU; the rest is the Trainer's own.
"""

import os
import tempfile

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import SequentialSampler
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

BOUND, SIZES = 0.2, {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
STRATEGIES = {"DDP": None, "FSDP1": {"use_orig_params": False}, "FSDP1, use_orig_params": {"use_orig_params": True}}
STRATEGIES["FSDP2"] = {"fsdp_version": 2}


def fresh():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=2, initializer_range=0.2, use_cache=False))


class Own(Trainer):
    settings = None

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        if not self.settings:
            return
        more = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["LlamaDecoderLayer"]}
        more |= {"cpu_ram_efficient_loading": False, "sync_module_states": False}
        self.accelerator.state.fsdp_plugin, self.is_fsdp_enabled = (
            FullyShardedDataParallelPlugin(**more | self.settings),
            True,
        )
        for it in (self.accelerator.state, PartialState()):
            it.distributed_type, it.device = DistributedType.FSDP, torch.device("cpu")

    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)


class Told(TrainerCallback):
    def on_log(self, args, state, control, logs, **more):
        if "grad_norm" in logs:
            norms.append(logs["grad_norm"])


def whole(model):
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return [p.detach().clone() for p in model.parameters()]
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]


data = torch.randint(32, (12, 8), generator=torch.Generator().manual_seed(1))  # three steps of four rows
alone, alone_norms = fresh(), []
optimizer = torch.optim.SGD(alone.parameters(), lr=0.5)
for rows in data.split(4):
    alone(input_ids=rows, labels=rows).loss.backward()
    alone_norms.append(torch.nn.utils.clip_grad_norm_(alone.parameters(), BOUND).item())
    optimizer.step()
    optimizer.zero_grad()
for name, settings in STRATEGIES.items():
    Own.settings = settings
    AcceleratorState._reset_state(True), PartialState._reset_state(), GradientState._reset_state()
    norms, rest = [], {"optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "constant", "max_steps": 3}
    rest |= {"use_cpu": True, "save_strategy": "no", "report_to": "none", "per_device_train_batch_size": 2}
    args = TrainingArguments(tempfile.mkdtemp(), max_grad_norm=BOUND, logging_steps=1, **rest)
    rows = [{"input_ids": row, "labels": row} for row in data]
    trainer = Own(fresh(), args, train_dataset=rows, callbacks=[Told()])
    trainer.train()
    moved, apart = (
        sum((a - b).square().sum() for a, b in zip(whole(alone), other, strict=True)).sqrt().item()
        for other in (whole(fresh()), whole(trainer.model_wrapped))
    )
    if dist.get_rank() == 0:
        right = "equal one process's" if apart / moved < 1e-5 else "are not one process's"
        same = (
            "are its" if all(abs(a / b - 1) < 1e-5 for a, b in zip(norms, alone_norms, strict=True)) else "are not its"
        )
        print(f"\n=> {name}, {type(trainer.model_wrapped).__name__}: the weights {right}, the norms {same}", flush=True)
        print(f"distance {apart / moved:.1e}, norms {norms}, bound {BOUND}", flush=True)
dist.barrier()
os._exit(0)  # else gloo's threads may abort at the end: pytorch/pytorch#154976
