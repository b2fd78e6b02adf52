"""The optimizer and accelerate's `prepare`: which order trains, under which strategy?

    torchrun --nproc-per-node 2 prepare.py fsdp1-flat-together
    torchrun --nproc-per-node 2 prepare.py fsdp1-flat-model-first

Objective: the mean squared error over the samples of all ranks. `still`: after three steps every parameter equals its start.
On a CPU accelerate never turns FSDP on. This file sets the two values of its state that it sets on a GPU; the rest is accelerate's own.
"""

import copy
import inspect
import itertools
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

# --8<-- [start:variants]
STRATEGIES = ("ddp", "fsdp1-flat", "fsdp1-orig", "fsdp2")  # FSDP1: fsdp_use_orig_params false and true
ORDERS = ("together", "model-first", "apart")
VARIANTS = {
    f"{strategy}-{order}": dict(strategy=strategy, order=order)
    for strategy, order in itertools.product(STRATEGIES, ORDERS)
}


# --8<-- [start:orders]
def prepared(accelerator, model, order):
    if order == "together":  # the optimizer is made before, and both are passed at once
        # --8<-- [start:together]
        model, optimizer = accelerator.prepare(model, sgd(model))
        # --8<-- [end:together]
        return model, optimizer
    if order == "model-first":  # the model is prepared, then the optimizer made of what comes back
        # --8<-- [start:model-first]
        model = accelerator.prepare(model)
        optimizer = accelerator.prepare(sgd(model))
        # --8<-- [end:model-first]
        return model, optimizer
    optimizer = sgd(model)  # apart: the optimizer is made before, and both are passed one by one
    return accelerator.prepare(model), accelerator.prepare(optimizer)


# --8<-- [end:orders]
# --8<-- [end:variants]

STEPS, BATCH, WIDTH = 3, 4, 8


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    strategy, _, form = VARIANTS[variant]["strategy"].partition("-")
    order = VARIANTS[variant]["order"]
    told = {"orig_params": form == "orig"} if strategy == "fsdp1" else {}
    told |= {"find_unused": False, "static_graph": False} if strategy == "ddp" else {}
    return told | {
        "strategy": strategy,
        "optimizer_made": "last" if order == "model-first" else "first",
        "optimizer_repaired": "prepared-together" if order == "together" else "none",
        "prepare": order,
        "late_change": "none",
        "optimizer": "sgd",
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": 1,
        "batch_size": BATCH // 2,
    }


# --8<-- [end:facts]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class Model(nn.Module):
    _tied_weights_keys = None  # accelerate 1.1 asks for it

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


# --8<-- [start:accelerator]
def accelerator_for(strategy):
    accelerator = Accelerator(cpu=True)
    state = accelerator.state
    state.distributed_type = DistributedType.MULTI_CPU
    if strategy != "ddp":
        settings = dict(auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=strategy == "fsdp1-orig")
        settings |= dict(sync_module_states=False, cpu_ram_efficient_loading=False)
        settings |= dict(fsdp_version=2 if strategy == "fsdp2" else 1)
        known = inspect.signature(FullyShardedDataParallelPlugin).parameters  # older releases have fewer
        state.fsdp_plugin = FullyShardedDataParallelPlugin(**{k: v for k, v in settings.items() if k in known})
        state.distributed_type = DistributedType.FSDP
        state.device = torch.device("cpu")  # without an index, as FSDP1 wants it
    return accelerator


# --8<-- [end:accelerator]


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with its start and with one process that saw all the data."""
    strategy = VARIANTS[variant]["strategy"]
    rank, world_size = dist.get_rank(), dist.get_world_size()
    data = torch.randn(STEPS, BATCH, WIDTH, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    model = Model()
    alone, start = copy.deepcopy(model), copy.deepcopy(model)
    accelerator = accelerator_for(strategy)
    model, optimizer = prepared(accelerator, model, VARIANTS[variant]["order"])
    for batch in data:
        accelerator.backward((model(batch[rank::world_size]) - 1).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    optimizer = sgd(alone)
    for batch in data:
        (alone(batch) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return compared(variant, whole(model, strategy), *(dict(it.named_parameters()) for it in (alone, start)))


# --8<-- [end:train]


def whole(model, strategy):
    if strategy == "fsdp2":
        return {name: p.full_tensor() for name, p in model.named_parameters()}
    if strategy == "ddp":
        return dict(model.module.named_parameters())
    with FullyShardedDataParallel.summon_full_params(model):
        return {name: p.detach().clone() for name, p in model.named_parameters()}


def compared(variant, trained, reference, start):
    """What `compare` tells, or `still` where no parameter moved on any rank."""
    told = compare(variant, trained, reference, start)
    moved = dist.get_world_size() * [None]
    dist.all_gather_object(moved, any(not p.equal(start[name]) for name, p in trained.items()))
    return told if any(moved) else {key: told[key] for key in ("variant", "rank_spread")} | {"outcome": "still"}


# Copied from scripts/readyonce/compare.py, which `readyonce render` writes here.
LIMIT = 1e-3  # the largest gradient error of a match


def compare(variant, trained, reference, start):
    """How a run ended. The tensors are {name: whole tensor}: of this rank, of one process, and of both before training.

    A gradient error is a tensor's distance to one process's, as a share of how far that one moved it from `start`; a
    rank spread is its distance to rank 0's. What moved by less than rounding can show is named, and not judged.
    """
    assert trained.keys() == reference.keys() == start.keys(), "not the same tensors"
    errors, spreads, unmoved, unjudged = {}, {}, [], {}
    for name, q in reference.items():
        p, q, first = trained[name].detach(), q.detach(), trained[name].detach().clone()
        assert p.shape == q.shape == start[name].shape, f"{name}: {p.shape}, {q.shape}, {start[name].shape}"
        if dist.is_initialized():
            dist.broadcast(first, src=0)
        moved = (q - start[name].detach()).abs().max().item()
        rounding = 2 * torch.finfo(q.dtype).eps * q.abs().max().item() + torch.finfo(q.dtype).tiny
        if moved < rounding:
            unmoved.append(name)
        elif moved < rounding / LIMIT:
            unjudged[name] = rounding / moved  # the smallest error that it can show
        off, apart = ((p - other).abs().max().nan_to_num(nan=3e38).item() for other in (q, first))
        errors[name], spreads[name] = (part / max(moved, rounding / LIMIT) for part in (off, apart))
    assert len(unjudged) <= len(errors) / 20, f"these moved too little to be judged: {unjudged}"
    worst = max(errors, key=errors.get)
    ranks = [(errors[worst], worst, max(spreads.values()))]
    if dist.is_initialized():
        ranks = dist.get_world_size() * ranks
        dist.all_gather_object(ranks, ranks[0])
    error, worst, _ = max(ranks)
    told = {"variant": variant, "outcome": "match" if error <= LIMIT else "diverge", "gradient_error": error}
    told |= {"rank_spread": max(spread for *_, spread in ranks), "worst": worst}
    return told | {key: value for key, value in (("unmoved", unmoved), ("unjudged", unjudged)) if value}


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
