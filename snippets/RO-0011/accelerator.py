"""accelerate's own `clip_grad_norm_`: which parameters it is given decides whether it is the whole model's norm.

    torchrun --nproc-per-node 2 accelerator.py fsdp1-orig-trained
    torchrun --nproc-per-node 2 accelerator.py fsdp1-orig-all

Objective: the mean squared error over the samples of all ranks, the whole gradient clipped once in each step by the norm of the whole
model, in one process on the same data. Three steps of plain SGD, a bound below the norm in each step. The tower is frozen, except in
`everything`. On a CPU accelerate never turns FSDP on. This file sets the two values of its state that it sets on a GPU; the rest is
accelerate's own.
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
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

# --8<-- [start:variants]
STRATEGIES = ("ddp", "fsdp1-flat", "fsdp1-orig", "fsdp2")  # FSDP1: fsdp_use_orig_params false and true
GIVEN = ("everything", "all", "trained")  # everything: no part is frozen
VARIANTS = {
    f"{strategy}-{given}": dict(strategy=strategy, given=given)
    for strategy, given in itertools.product(STRATEGIES, GIVEN)
}


# --8<-- [start:given]
def clipped(accelerator, model, given):
    if given == "trained":
        # --8<-- [start:trained]
        trained = [p for p in model.parameters() if p.requires_grad]
        norm = accelerator.clip_grad_norm_(trained, BOUND)
        # --8<-- [end:trained]
    else:
        # --8<-- [start:all]
        norm = accelerator.clip_grad_norm_(model.parameters(), BOUND)
        # --8<-- [end:all]
    return norm


# --8<-- [end:given]
# --8<-- [end:variants]

STEPS, BATCH, WIDTH, BOUND = 3, 8, 8, 0.2


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = VARIANTS[variant]
    strategy, _, form = s["strategy"].partition("-")
    told = {"orig_params": form == "orig", "sharding": "full-shard"} if strategy == "fsdp1" else {}
    told |= {"find_unused": False, "static_graph": False} if strategy == "ddp" else {}
    part = s["given"] != "everything"
    return told | {
        "strategy": strategy,
        "clipping": "accelerate",
        "clipped_list": "trained" if s["given"] == "trained" else "all",
        "norm_type": "2",
        "clip_bites": True,
        "optimizer_repaired": "prepared-together" if strategy == "fsdp2" else "none",
        "optimizer_made": "first" if strategy == "fsdp2" else "last",
        "prepare": "together" if strategy == "fsdp2" else "model-first",
        "optimizer": "sgd",
        "tuning": "part" if part else "full",
        "frozen": "tower" if part else "none",
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
        self.tower = Block()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        x = self.tower(x)
        for block in self.blocks:
            x = block(x)
        return x


def sgd(model):
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)


# --8<-- [start:accelerator]
def accelerator_for(strategy):
    accelerator = Accelerator(cpu=True)
    state, kind = accelerator.state, DistributedType.MULTI_CPU
    if strategy != "ddp":
        settings = dict(auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=strategy == "fsdp1-orig")
        settings |= dict(sync_module_states=False, cpu_ram_efficient_loading=False)
        settings |= dict(fsdp_version=2 if strategy == "fsdp2" else 1)
        known = inspect.signature(FullyShardedDataParallelPlugin).parameters  # older releases have fewer
        state.fsdp_plugin = FullyShardedDataParallelPlugin(**{k: v for k, v in settings.items() if k in known})
        kind = DistributedType.FSDP
    for it in (state, PartialState()):  # the wrapper of the optimizer takes both anew from the second
        it.distributed_type = kind
        it.device = torch.device("cpu")  # without an index, as FSDP1 wants it
    return accelerator


# --8<-- [end:accelerator]


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    strategy, given = VARIANTS[variant]["strategy"], VARIANTS[variant]["given"]
    rank, world_size = dist.get_rank(), dist.get_world_size()
    data = torch.randn(STEPS, BATCH, WIDTH, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    model = Model()
    model.tower.requires_grad_(given == "everything")
    alone, start = copy.deepcopy(model), copy.deepcopy(model)
    accelerator, taken = accelerator_for(strategy), None
    if strategy == "fsdp2":
        model, optimizer = accelerator.prepare(model, sgd(model))
    else:
        model = accelerator.prepare(model)
        optimizer = accelerator.prepare(sgd(model))
    for batch in data:
        accelerator.backward((model(batch[rank::world_size]) - 1).square().mean())
        norm = clipped(accelerator, model, given)
        taken = norm.item() if taken is None else taken
        optimizer.step()
        optimizer.zero_grad()
    optimizer, first = sgd(alone), None
    for batch in data:
        (alone(batch) - 1).square().mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(alone.parameters(), BOUND)
        first = norm.item() if first is None else first
        optimizer.step()
        optimizer.zero_grad()
    norms = [None] * world_size
    dist.all_gather_object(norms, round(taken, 4))
    told = compare(variant, *map(named, (model, alone, start)))
    return told | {"whole_norm": round(first, 4), "grad_norm": norms}


# --8<-- [end:train]


def named(model):
    """The trained parameters, gathered, by their names in the model that is not wrapped."""
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return {name.removeprefix("module."): whole(p) for name, p in trained.items()}


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


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
