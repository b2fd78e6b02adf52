"""The optimizer was made before the model was sharded: it holds parameters that are no longer the model's.

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py fsdp1-flat-last

Objective: the mean squared error over the samples of all ranks. `still`: after three steps every trainable parameter
equals its start, to the bit. Anything else is compared with one process that saw all samples.
"""

import copy
import itertools
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

# --8<-- [start:variants]
DEFAULTS = dict(strategy="ddp", made="last", repaired="none", root="kept", late="none", optimizer="sgd", tied=None)
STRATEGIES = ("ddp", "fsdp1-flat", "fsdp1-orig", "fsdp2")  # FSDP1: use_orig_params=False, its default, and True
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "sgd-foreach": lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=True),
    "sgd-fused": lambda parameters: torch.optim.SGD(parameters, lr=0.1, fused=True),
    "sgd-lr-100": lambda parameters: torch.optim.SGD(parameters, lr=10.0),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
}
LATE = ("adapter", "unfrozen", "head", "converted", "assigned", "materialized")

VARIANTS = {  # last: after wrapping; first: before it; after-forward: after a forward of the wrapped model
    f"{strategy}-{made}": dict(strategy=strategy, made=made)
    for strategy, made in itertools.product(STRATEGIES, ("last", "first", "after-forward"))
} | {
    "reported": dict(strategy="fsdp1-flat", made="first", optimizer="adamw"),
    **{f"{it}-between": dict(strategy=it, made="between") for it in STRATEGIES[1:]},  # the blocks wrapped, the root not
    "fsdp2-after-forward-reshard": dict(strategy="fsdp2", made="after-forward", root="resharded"),
    "fsdp2-after-forward-resharding": dict(strategy="fsdp2", made="after-forward", root="resharding"),
    "fsdp2-after-forward-backward": dict(strategy="fsdp2", made="after-forward", root="backward"),
    "fsdp2-first-repointed-after-forward": dict(strategy="fsdp2", made="first", repaired="repointed-after-forward"),
    **{
        f"{strategy}-first-{repaired}": dict(strategy=strategy, made="first", repaired=repaired)
        for strategy, repaired in itertools.product(("fsdp1-flat", "fsdp2"), ("repointed", "remade", "added"))
    },
    **{
        f"{strategy}-first-{kind}": dict(strategy=strategy, made="first", optimizer=f"sgd-{kind}")
        for strategy, kind in itertools.product(("fsdp1-flat", "fsdp2"), ("foreach", "fused", "lr-100"))
    },
    # What changes the model after its optimizer was made, without any sharding.
    **{f"late-{late}-{made}": dict(late=late, made=made) for late in LATE for made in ("first", "last")},
    "fsdp2-tied": dict(strategy="fsdp2", tied="apart"),  # the head has the first block's weight; two FSDP groups
    "fsdp2-tied-together": dict(strategy="fsdp2", tied="together"),  # one group
}
# --8<-- [end:variants]

STEPS, BATCH, WIDTH = 3, 4, 8
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    strategy, _, form = s["strategy"].partition("-")
    told = {"orig_params": form == "orig"} if strategy == "fsdp1" else {}
    told |= {"find_unused": False, "static_graph": False} if strategy == "ddp" else {}
    told |= {"root_parameters": s["root"]} if strategy == "fsdp2" and s["made"] == "after-forward" else {}
    told |= {"tied_group": s["tied"]} if s["tied"] else {}
    return told | {
        "strategy": strategy,
        "optimizer_made": s["made"],
        "optimizer_repaired": s["repaired"],
        "prepare": "none",
        "late_change": s["late"],
        "optimizer": s["optimizer"],
        "tuning": "lora" if s["late"] == "adapter" else "full",
        "frozen": "base" if s["late"] == "adapter" else "none",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "output" if s["tied"] else "none",
        "second_use_of": "not-checkpointed" if s["tied"] else "none",
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
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Adapted(nn.Module):
    """A frozen layer and LoRA's two matrices, B not zero."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


# --8<-- [start:wrap]
def wrap(model, s, between=lambda: None):
    """As each strategy is documented; `between` is called when the blocks are wrapped and the root is not."""
    if s["strategy"] == "fsdp2":
        mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(),))
        first, *others = model.blocks
        # --8<-- [start:tied]
        fully_shard([first, model.head] if s["tied"] == "together" else first, mesh=mesh)
        # --8<-- [end:tied]
        for block in others:
            fully_shard(block, mesh=mesh)
        between()
        return fully_shard(model, mesh=mesh, reshard_after_forward=True if s["root"] == "resharding" else None)
    if s["strategy"] == "ddp":
        return DistributedDataParallel(model)
    settings = dict(use_orig_params=s["strategy"] == "fsdp1-orig", device_id=DEVICE)
    for i, block in enumerate(model.blocks):
        model.blocks[i] = FullyShardedDataParallel(block, **settings)
    between()
    return FullyShardedDataParallel(model, **settings)


# --8<-- [end:wrap]


def change(model, late):
    """What is done to the model after its optimizer was made, or before, where that is made last."""
    if late == "adapter":
        model.requires_grad_(False)
        for block in model.blocks:
            block.linear = Adapted(block.linear)
    elif late == "unfrozen":
        model.requires_grad_(True)
    elif late == "head":
        model.head = nn.Linear(WIDTH, WIDTH)
    elif late == "converted":
        model.double().float()
    elif late == "assigned":
        model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
    elif late == "materialized":  # made on the meta device; its weights come now
        model.to_empty(device=DEVICE)
        for p in model.parameters():
            nn.init.normal_(p, std=0.3)


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with its start and with one process that saw all the data."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    rank, world_size, made = dist.get_rank(), dist.get_world_size(), s["made"]
    data = torch.randn(STEPS, BATCH, WIDTH, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    torch.manual_seed(0)
    with torch.device("meta" if s["late"] == "materialized" else DEVICE):
        model = Model()
    model.head.requires_grad_(s["late"] != "unfrozen")
    if s["tied"]:
        model.head.weight = model.blocks[0].linear.weight
    holding = []

    def make(point):
        if made == point:
            holding.append(OPTIMIZERS[s["optimizer"]](trainable(model).values()))

    make("first")
    change(model.to(DEVICE) if s["late"] != "materialized" else model, s["late"])
    reference = copy.deepcopy(model)
    start = trainable(copy.deepcopy(model))
    if made == "last":
        model, optimizer = in_order(model, lambda it: wrap(it, s), OPTIMIZERS[s["optimizer"]])
    else:
        model = wrap(model, s, lambda: make("between"))
    if made == "after-forward" or s["repaired"] == "repointed-after-forward":
        loss = model(data[0, rank::world_size]).square().mean()  # a check of the shapes, a first validation
        if s["root"] == "backward":
            loss.backward()
            model.zero_grad()
        if s["root"] == "resharded":
            model.reshard()
    make("after-forward")
    if made != "last":
        optimizer = repair(holding[0], model, s)
    for batch in data:
        (model(batch[rank::world_size]) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return compared(variant, whole(model, s["strategy"]), train_alone(reference, data, s), start)


# --8<-- [end:train]


def in_order(model, shard, make_optimizer):
    # --8<-- [start:fix]
    model = shard(model)  # fully_shard(...), FSDP(model): the last thing that is done to the parameters
    optimizer = make_optimizer(p for p in model.parameters() if p.requires_grad)  # only now, of the model that trains
    # --8<-- [end:fix]
    return model, optimizer


def repair(optimizer, model, s):
    """Of what was made too early."""
    if s["repaired"] == "remade":
        return OPTIMIZERS[s["optimizer"]](trainable(model).values())
    if s["repaired"].startswith("repointed"):
        # --8<-- [start:repoint]
        optimizer.param_groups[0]["params"] = list(model.parameters())
        # --8<-- [end:repoint]
    elif s["repaired"] == "added":
        optimizer.add_param_group({"params": list(model.parameters())})
    return optimizer


def train_alone(model, data, s):
    """The same steps in one process, the optimizer made last: what the parameters must become."""
    optimizer = OPTIMIZERS[s["optimizer"]](trainable(model).values())
    for batch in data:
        (model(batch) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return trainable(model)


def whole(model, strategy):
    """The trainable parameters, gathered."""
    if strategy == "fsdp2":
        return {name: p.full_tensor() for name, p in trainable(model).items()}
    if strategy == "ddp":
        return trainable(model.module)
    with FullyShardedDataParallel.summon_full_params(model):
        return {name: p.detach().clone() for name, p in trainable(model).items()}


def trainable(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


# --8<-- [start:compare]
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


# --8<-- [end:compare]


if __name__ == "__main__":
    torch.set_num_threads(1)
    if DEVICE.type != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(dist.get_default_backend_for_device(DEVICE), timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
