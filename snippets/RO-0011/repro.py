"""Gradients clipped by the norm of a shard: each rank by another factor, and no error.

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py fsdp1-orig-fixed

Objective: the mean squared error over the samples of all ranks; in each step the whole gradient is clipped once, by the norm of the
whole model, as one process does it on the same data. Three steps of plain SGD; the bound is below the norm in each step (`rare`: far
above it). The last line tells `whole_norm`, the first step's norm in that process, and `grad_norm`, what each rank takes for it.
"""

import contextlib
import copy
import itertools
import json
import math
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.parallel import DistributedDataParallel

# --8<-- [start:variants]
DEFAULTS = dict(
    strategy="ddp",
    clip="torch",  # who clips, see `clip`
    norm=2.0,
    bound="tight",  # below the norm in each step, or "rare": far above it
    foreach=None,
    outside=False,  # FSDP2: the head is not sharded, its gradient averaged by hand
    scaling="none",  # a GradScaler: "unscaled" before clipping, or "scaled": not
    accumulation=1,
    when="last",  # clip after the last micro-batch, or after "each"
    optimizer="sgd",
)
STRATEGIES = {  # FSDP1: use_orig_params and the sharding strategy
    "ddp": None,
    "fsdp1-flat": (False, "FULL_SHARD"),
    "fsdp1-orig": (True, "FULL_SHARD"),
    "fsdp1-grad-op": (True, "SHARD_GRAD_OP"),
    "fsdp1-no-shard": (True, "NO_SHARD"),
    "fsdp2": None,
}
WAYS = {
    "torch": dict(clip="torch"),
    "fixed": dict(clip="fixed"),
    "inf": dict(clip="torch", norm=math.inf),
    "fixed-inf": dict(clip="fixed", norm=math.inf),
    "rare": dict(clip="torch", bound="rare"),
    "by-hand": dict(clip="by-hand"),
    "reduced": dict(clip="reduced"),
    "value": dict(clip="value"),
}
VARIANTS = {f"{s}-{way}": dict(WAYS[way], strategy=s) for s, way in itertools.product(STRATEGIES, WAYS)} | {
    "reported": dict(strategy="fsdp1-flat"),
    **{f"{s}-loop": dict(strategy=s, foreach=False) for s in ("ddp", "fsdp1-orig", "fsdp2")},
    **{f"{s}-foreach": dict(strategy=s, foreach=True) for s in ("ddp", "fsdp1-orig", "fsdp2")},
    "fsdp2-items": dict(strategy="fsdp2", clip="items"),
    "ddp-items": dict(clip="items"),
    "fsdp2-total-item": dict(strategy="fsdp2", clip="total-item"),
    "fsdp2-total-item-inf": dict(strategy="fsdp2", clip="total-item", norm=math.inf),
    "fsdp2-total-full": dict(strategy="fsdp2", clip="total-full"),
    "fsdp2-total-full-inf": dict(strategy="fsdp2", clip="total-full", norm=math.inf),
    "fsdp2-outside-torch": dict(strategy="fsdp2", outside=True),
    "fsdp2-outside-loop": dict(strategy="fsdp2", outside=True, foreach=False),
    "fsdp2-outside-apart": dict(strategy="fsdp2", outside=True, clip="apart"),
    "fsdp2-outside-each": dict(strategy="fsdp2", outside=True, clip="two-calls"),
    **{
        f"{s}-{scaling}": dict(strategy=s, clip="fixed", scaling=scaling)
        for s, scaling in itertools.product(("ddp", "fsdp1-orig", "fsdp2"), ("unscaled", "scaled"))
    },
    **{
        f"{s}-accumulate-{when}": dict(strategy=s, clip="fixed", accumulation=2, when=when)
        for s, when in itertools.product(("ddp", "fsdp2"), ("last", "each"))
    },
    "fsdp1-orig-adamw": dict(strategy="fsdp1-orig", optimizer="adamw"),
    "fsdp1-orig-adamw-fixed": dict(strategy="fsdp1-orig", clip="fixed", optimizer="adamw"),
}
# --8<-- [end:variants]

STEPS, BATCH, WIDTH, SCALE = 3, 8, 8, 1024.0
BOUNDS = {2.0: 0.2, math.inf: 0.05, "value": 0.05, "rare": 1000.0}
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    strategy, one_by_one = s["strategy"].partition("-")[0], s["accumulation"] == 1
    told = {}
    if strategy == "fsdp1":
        orig, sharding = STRATEGIES[s["strategy"]]
        told = {"orig_params": orig, "sharding": sharding.lower().replace("_", "-")}
    if strategy == "ddp":
        first = "synchronises" if one_by_one else "no-sync"
        told = {"find_unused": False, "static_graph": False, "first_backward": first}
    if not one_by_one:
        told["clipped_after"] = s["when"]
    if s["clip"] != "value":
        told["norm_type"] = "inf" if s["norm"] == math.inf else "2"
    if s["clip"] in ("torch", "fixed") and strategy != "fsdp1" or s["clip"] == "torch":
        told["clip_foreach"] = {None: "default"}.get(s["foreach"], s["foreach"])
    return told | {
        "strategy": strategy,
        "clipping": ("own" if strategy == "fsdp1" else "torch") if s["clip"] == "fixed" else s["clip"],
        "clip_bites": s["bound"] == "tight",
        "unsharded_part": "head" if s["outside"] else "none",
        "loss_scaling": s["scaling"],
        "optimizer": s["optimizer"],
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": s["accumulation"],
        "batch_size": BATCH // 2 // s["accumulation"],
    }


# --8<-- [end:facts]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


# --8<-- [start:fix]
def clip_whole(model, max_norm, norm_type=2.0):
    """By the norm of the whole model; called on all ranks."""
    if isinstance(model, FullyShardedDataParallel):  # FSDP1
        norm = model.clip_grad_norm_(max_norm, norm_type)
    else:
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm, norm_type)
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # what to log


# --8<-- [end:fix]


# --8<-- [start:clips]
def clip(model, s):
    """Each way to clip; returns what this rank takes for the norm."""
    params = [p for p in model.parameters() if p.grad is not None]
    grads, bound = [p.grad for p in params], bound_of(s)
    if s["clip"] == "fixed":
        return clip_whole(model, bound, s["norm"])
    if s["clip"] == "torch":  # as in every tutorial for one GPU
        return torch.nn.utils.clip_grad_norm_(model.parameters(), bound, s["norm"], foreach=s["foreach"])
    if s["clip"] == "value":
        return torch.nn.utils.clip_grad_value_(model.parameters(), bound)
    if s["clip"] == "items":  # DTensor's norms, read one by one
        norm = sum(g.norm().item() ** 2 for g in grads) ** 0.5
        for g in grads:
            g.mul_(min(1.0, bound / (norm + 1e-6)))
        return torch.tensor(norm)
    if s["clip"].startswith("total"):
        # --8<-- [start:total]
        norm = torch.nn.utils.get_total_norm(grads, s["norm"])
        norm = norm.full_tensor() if s["clip"] == "total-full" else torch.tensor(norm.item())
        torch.nn.utils.clip_grads_with_norm_(params, bound, norm)
        # --8<-- [end:total]
        return norm
    if s["clip"] == "two-calls":  # the sharded and the other parameters, each by its own norm
        for part in parts(params):
            norm = torch.nn.utils.clip_grad_norm_(part, bound, s["norm"])
        return norm
    if s["clip"] == "apart":
        # --8<-- [start:apart]
        sharded, others = parts(params)
        norms = [torch.nn.utils.get_total_norm([p.grad for p in part]) for part in (sharded, others)]
        norm = torch.stack([norms[0].full_tensor(), norms[1]]).norm()
        for part in (sharded, others):
            torch.nn.utils.clip_grads_with_norm_(part, bound, norm)
        # --8<-- [end:apart]
        return norm
    grads = [g.to_local() if hasattr(g, "to_local") else g for g in grads]  # this rank's shards
    if s["clip"] == "reduced":
        return clip_reduced(grads, bound)
    norm = sum((g.norm() ** 2 for g in grads), torch.zeros((), device=DEVICE)).sqrt()  # by hand
    for g in grads:
        g.mul_((bound / (norm + 1e-6)).clamp(max=1.0))
    return norm


# --8<-- [start:reduced]
def clip_reduced(grads, max_norm):
    """`grads`: this rank's shards, as plain tensors."""
    squares = sum((g.norm() ** 2 for g in grads), torch.zeros((), device=DEVICE))
    dist.all_reduce(squares)  # over the ranks that hold shards, not over replicas
    norm = squares.sqrt()
    for g in grads:
        g.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


# --8<-- [end:reduced]
# --8<-- [end:clips]


def parts(params):
    return [p for p in params if hasattr(p, "full_tensor")], [p for p in params if not hasattr(p, "full_tensor")]


def bound_of(s):
    return BOUNDS["rare" if s["bound"] == "rare" else "value" if s["clip"] == "value" else s["norm"]]


# --8<-- [start:wrap]
def wrap(model, s):
    """As each strategy is documented."""
    if s["strategy"] == "ddp":
        return DistributedDataParallel(model)
    if s["strategy"] == "fsdp2":
        mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(),))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(
            model, mesh=mesh, **({"ignored_params": set(model.head.parameters())} if s["outside"] else {})
        )
    orig, sharding = STRATEGIES[s["strategy"]]
    settings = dict(use_orig_params=orig, sharding_strategy=ShardingStrategy[sharding], device_id=DEVICE)
    for i, block in enumerate(model.blocks):
        model.blocks[i] = FullyShardedDataParallel(block, **settings)
    return FullyShardedDataParallel(model, **settings)


# --8<-- [end:wrap]


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    rank, world_size = dist.get_rank(), dist.get_world_size()
    data = torch.randn(
        STEPS, s["accumulation"], BATCH // s["accumulation"], WIDTH, generator=torch.Generator().manual_seed(1)
    )
    torch.manual_seed(0)
    model, data = Model().to(DEVICE), data.to(DEVICE)
    alone, start, norms = copy.deepcopy(model), copy.deepcopy(model), []
    model = wrap(model, s)
    optimizer, scaler = made(s, model), scaler_of(s)
    for batches in data:
        for number, batch in enumerate(batches, 1):
            last = number == len(batches)
            with contextlib.nullcontext() if last or s["strategy"] != "ddp" else model.no_sync():
                scaler.scale((model(batch[rank::world_size]) - 1).square().mean() / len(batches)).backward()
            if s["outside"]:
                for p in model.head.parameters():
                    dist.all_reduce(p.grad.div_(world_size))
            if last and s["scaling"] == "unscaled":
                # --8<-- [start:unscale]
                scaler.unscale_(optimizer)  # before the gradients are clipped
                # --8<-- [end:unscale]
            if last or s["when"] == "each":
                norms.append(clip(model, s))
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    expected = train_alone(alone, data, s)
    told = compare(variant, *map(named, (model, alone, start)))
    if norms[0] is not None:
        taken = [None] * world_size
        dist.all_gather_object(taken, round(norms[0].item(), 4))
        told |= {"whole_norm": round(expected, 4), "grad_norm": taken}
    return told


def train_alone(model, data, s):
    """The same steps in one process. Returns the norm before the first clipping."""
    optimizer, bound, first = made(s, model), bound_of(s), None
    for batches in data:
        (model(batches.flatten(0, 1)) - 1).square().mean().backward()
        first = first or torch.nn.utils.get_total_norm([p.grad for p in model.parameters()], s["norm"]).item()
        if s["clip"] == "value":
            torch.nn.utils.clip_grad_value_(model.parameters(), bound)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), bound, s["norm"])
        optimizer.step()
        optimizer.zero_grad()
    return first


# --8<-- [end:train]


def made(s, model):
    if s["optimizer"] == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=0.1)
    return torch.optim.SGD(model.parameters(), lr=0.5)


def scaler_of(s):
    kind = ShardedGradScaler if s["strategy"].startswith("fsdp1") else torch.amp.GradScaler
    return kind(device=DEVICE.type, init_scale=SCALE, enabled=s["scaling"] != "none")


def named(model):
    """The parameters, gathered, by their names in the model that is not wrapped."""
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return {name: p.detach().clone() for name, p in model.named_parameters()}
    return {name.removeprefix("module."): whole(p.detach()) for name, p in model.named_parameters()}


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


# --8<-- [start:compare]
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


# --8<-- [end:compare]


if __name__ == "__main__":
    torch.set_num_threads(1)
    if DEVICE.type != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    backend = dist.get_default_backend_for_device(DEVICE)
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
