"""Ranks that run different modules in one step, as experts or a vision tower: what do DDP and DeepSpeed's stages do?

    torchrun --nproc-per-node 2 ranks.py zero2-other-modules
    torchrun --nproc-per-node 2 ranks.py zero2-in-order

In each of three steps rank 0 has data for one of two modules and rank 1 for the other; in the next step it is the other way
round. A variant is compared, on every rank, with one process that saw all the data. Needs DeepSpeed.
"""

import itertools
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
    # Without it, older releases call the program numactl to count processors.
    os.environ.setdefault("LOCAL_SIZE", os.environ.get("LOCAL_WORLD_SIZE", "1"))
import deepspeed  # noqa: E402

LINEAR = nn.functional.linear  # ZeRO-3 replaces it for the rest of the process

# --8<-- [start:variants]
DEFAULTS = dict(
    stage=2,  # of DeepSpeed; None is DDP with find_unused_parameters=True
    overlap=False,  # overlap_comm
    leaf=False,  # set_z3_leaf_modules on the parent of both modules
    widths=(16, 16),  # of the two modules: equal sizes, or not
    way="other-modules",  # a rank runs the module that it has data for; see AXES
)
AXES = dict(
    strategy={"ddp": dict(stage=None), "zero1": dict(stage=1), "zero2": dict(stage=2)},
    way={
        "other-modules": dict(way="other-modules"),  # and nothing else
        "used-first": dict(way="used-first"),  # then the other one, on zeros: the order differs between the ranks
        "in-order": dict(way="in-order"),  # both in a fixed order, on zeros where it has no data
    },
)
VARIANTS = {
    "-".join(words): {key: value for axis, word in zip(AXES.values(), words) for key, value in axis[word].items()}
    for words in itertools.product(*AXES.values())
} | {
    "zero0-other-modules": dict(stage=0),
    "zero1-used-first-overlap": dict(stage=1, way="used-first", overlap=True),
    "zero2-used-first-other-sizes": dict(way="used-first", widths=(16, 24)),
    "zero3-in-order": dict(stage=3, way="in-order"),
    "zero3-leaf-parent": dict(stage=3, leaf=True),
    "zero3-leaf-parent-other-sizes": dict(stage=3, leaf=True, widths=(16, 24)),
}
# --8<-- [end:variants]

STEPS, SAMPLES, WIDTH = 3, 4, 16
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    deepspeeds = {
        "buckets": "one",
        "overlap": s["overlap"] or s["stage"] == 3,  # with stage 3, DeepSpeed's own choice
        "offload": "none",
        "leaf": "parent" if s["leaf"] else False,
        "persistence": "none",
        "gathering": "none",
    }
    return {
        "strategy": "ddp" if s["stage"] is None else f"zero-{s['stage']}",
        "gradient_order": {"in-order": "same", "used-first": "other-order"}.get(s["way"], s["way"]),
        "skips": "some-ranks" if s["way"] == "other-modules" else "never",
        "filler": "none" if s["way"] == "other-modules" else "zeros",
        **({"find_unused": True, "static_graph": False} if s["stage"] is None else deepspeeds),
        "optimizer": "sgd",
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": 1,
        "batch_size": SAMPLES,
    }


# --8<-- [end:facts]


# --8<-- [start:model]
class Branches(nn.Module):
    """Two modules; `number` says for which of them the batch has data."""

    def __init__(self, widths):
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, w), nn.Tanh(), nn.Linear(w, WIDTH)) for w in widths
        )

    def forward(self, x, number, way):
        if way == "other-modules":
            return self.branches[number](x)
        if way == "used-first":
            return self.branches[number](x) + self.branches[1 - number](torch.zeros_like(x)) * 0.0
        # --8<-- [start:fix]
        out = 0.0
        for i, branch in enumerate(self.branches):  # the same order on every rank
            out = out + (branch(x) if i == number else branch(torch.zeros_like(x)) * 0.0)
        # --8<-- [end:fix]
        return out


class Model(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(WIDTH, WIDTH), Branches(widths), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, number, way):
        x = torch.tanh(self.first(x))
        return (self.last(x + self.middle(x, number, way)) - 1).square().mean()


# --8<-- [end:model]


# --8<-- [start:train]
def make(s):
    torch.manual_seed(0)
    return Model(s["widths"]).to(DEVICE)


def train(model, data, s):
    """Three steps; the trained parameters."""
    rank = dist.get_rank()
    if s["stage"] is None:
        wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            wrapped(data[step, rank], (step + rank) % 2, s["way"]).backward()
            optimizer.step()
            optimizer.zero_grad()
        return dict(model.named_parameters())
    if s["leaf"]:
        # --8<-- [start:leaf]
        deepspeed.utils.set_z3_leaf_modules(model, [Branches])  # the parent, which every rank runs in every step
        # --8<-- [end:leaf]
    zero = {"stage": s["stage"]} | ({"stage3_param_persistence_threshold": 0} if s["stage"] == 3 else {})
    if s["stage"] in (1, 2):
        zero["overlap_comm"] = s["overlap"]
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        config={
            "train_micro_batch_size_per_gpu": SAMPLES,
            "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
            "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
            "zero_optimization": zero,
        },
    )
    try:
        for step in range(STEPS):
            engine.backward(engine(data[step, rank], (step + rank) % 2, s["way"]))
            engine.step()
        trained = {}
        for name, p in model.named_parameters():
            with deepspeed.zero.GatheredParameters(p, enabled=s["stage"] == 3):
                trained[name] = p.detach().clone()
        return trained
    finally:
        engine.destroy()  # or its hooks outlive a failed variant


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    nn.functional.linear = LINEAR
    world_size = dist.get_world_size()
    shape = STEPS, world_size, SAMPLES, WIDTH
    data = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    alone = make(s)
    trained = train(make(s), data, s)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(STEPS):
        for rank in range(world_size):
            (alone(data[step, rank], (step + rank) % 2, "other-modules") / world_size).backward()
        optimizer.step()
        optimizer.zero_grad()
    return compare(variant, trained, *(dict(it.named_parameters()) for it in (alone, make(s))))


# --8<-- [end:train]


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
    deepspeed.init_distributed(timeout=timedelta(seconds=60), verbose=False)
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
