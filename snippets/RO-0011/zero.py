"""Gradient clipping under DeepSpeed: by its config, by torch on the engine's parameters, and where nobody asked for it.

    torchrun --nproc-per-node 2 zero.py zero2-torch
    torchrun --nproc-per-node 2 zero.py zero2-config

Objective: the mean squared error over the samples of all ranks, the whole gradient clipped once in each step by the norm of the whole
model, in one process on the same data; `default`: not clipped. Three steps of plain SGD, a bound below the norm in each step.
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

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported

import deepspeed

# --8<-- [start:variants]
STAGES = ("zero0", "zero1", "zero2", "zero3")
WAYS = {
    "config": {"gradient_clipping": 0.2},
    "torch": {"gradient_clipping": 0.0},  # and torch's clip_grad_norm_ between backward and step
    "default": {},  # nothing said
}
VARIANTS = {f"{stage}-{way}": dict(stage=int(stage[-1]), way=way) for stage, way in itertools.product(STAGES, WAYS)}
# --8<-- [end:variants]

STEPS, BATCH, WIDTH, BOUND = 3, 8, 8, 0.2
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = VARIANTS[variant]
    return {
        "strategy": f"zero-{s['stage']}",
        "clipping": s["way"],
        "clip_bites": True,
        "norm_type": "2",
        "optimizer": "sgd",
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "second_use_of": "none",
        "backward_calls": "once",
        "accumulation": 1,
        "batch_size": BATCH // 2,
        "buckets": "one",
        "offload": "none",
        "leaf": False,
        "overlap": s["stage"] == 3,  # DeepSpeed's own choice
        "deepspeed_backward": "engine",
        **({"persistence": "none", "gathering": "none"} if s["stage"] == 3 else {}),
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


def loss_of(output):
    return (4 * output - 4).square().mean()  # its gradient's norm is above 1, DeepSpeed's default bound


# --8<-- [start:train]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    s = VARIANTS[variant]
    rank, world_size, stage = dist.get_rank(), dist.get_world_size(), s["stage"]
    data = torch.randn(STEPS, BATCH, WIDTH, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    alone, start, taken = copy.deepcopy(model), copy.deepcopy(model), None
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        config={
            "train_micro_batch_size_per_gpu": BATCH // world_size,
            "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
            "zero_optimization": {"stage": stage} | ({"stage3_param_persistence_threshold": 0} if stage == 3 else {}),
            **WAYS[s["way"]],
        },
    )
    try:
        for batch in data:
            engine.backward(loss_of(engine(batch[rank::world_size])))
            if s["way"] == "torch":
                # --8<-- [start:torch]
                norm = torch.nn.utils.clip_grad_norm_(engine.parameters(), BOUND)
                # --8<-- [end:torch]
                taken = taken or round(float(norm), 4)
            engine.step()
            if s["way"] != "torch":
                taken = taken or round(float(engine.get_global_grad_norm() or 0), 4)
        trained = {}
        for name, p in model.named_parameters():
            with deepspeed.zero.GatheredParameters(p, enabled=stage == 3):
                trained[name] = p.detach().clone()
    finally:
        engine.destroy()
    expected, norms = train_alone(alone, data, s), [None] * world_size
    dist.all_gather_object(norms, taken)
    told = compare(variant, trained, *(dict(it.named_parameters()) for it in (alone, start)))
    return told | {"whole_norm": round(expected, 4), "grad_norm": norms}


def train_alone(model, data, s):
    """The same steps in one process. Returns the norm before the first clipping."""
    optimizer, first = torch.optim.SGD(model.parameters(), lr=0.05), None
    for batch in data:
        loss_of(model(batch)).backward()
        bound = BOUND if s["way"] in ("config", "torch") else float("inf")
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), bound)
        first = first or norm.item()
        optimizer.step()
        optimizer.zero_grad()
    return first


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
    if DEVICE.type != "cpu":
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(dist.get_default_backend_for_device(DEVICE), timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
