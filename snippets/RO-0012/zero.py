"""Gradient accumulation with DeepSpeed: its own counting, `engine.no_sync()`, the boundary set by hand.

    torchrun --nproc-per-node 2 zero.py zero1-no-sync-first
    torchrun --nproc-per-node 2 zero.py zero2-own

The stated objective is, for each optimizer step, the mean squared error over all samples of its accumulation window: three
micro-batches of all ranks. A variant is compared, on every rank, with one process that does the same. Needs DeepSpeed.
"""

import json
import os
import sys
from contextlib import nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported

# --8<-- [start:variants]
VARIANTS = {
    "zero2-own": dict(stage=2),  # gradient_accumulation_steps: 3, and step() after each micro-batch
    "zero1-no-sync-last": dict(stage=1, quiet="all-but-last"),  # engine.no_sync() around the others, then step()
    "zero2-no-sync-last": dict(stage=2, quiet="all-but-last"),
    "zero1-no-sync-first": dict(stage=1, quiet="all-but-first"),
    "zero0-boundary-late": dict(stage=0, boundary=True),  # the boundary set by hand, only after the last backward
}
# --8<-- [end:variants]

N, STEPS, SAMPLES, WIDTH = 3, 3, 4, 8
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = VARIANTS[variant]
    quiet, boundary = s.get("quiet"), s.get("boundary")
    told = {"synced": {"all-but-last": "last", "all-but-first": "first", None: "by-deepspeed"}[quiet]}
    return told | {
        "strategy": f"zero-{s['stage']}",
        "no_sync_around": "both",
        "boundary": "before-step" if boundary else "own",
        "tail": "none",
        "averaged_by": "wrapper",
        "window_divisor": "window",
        "deepspeed_backward": "engine",
        "buckets": "one",
        "overlap": s["stage"] == 3,
        "offload": "none",
        "leaf": False,
        **({"persistence": "none", "gathering": "none"} if s["stage"] == 3 else {}),
        "optimizer": "sgd",
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "none",
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": N,
        "batch_size": SAMPLES // 2,
    }


# --8<-- [end:facts]


def made():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)).to(DEVICE)


def loss_of(output):
    return (output - 1).square().mean()


# --8<-- [start:train]
def train(engine, batches, s):
    quiet, boundary = s.get("quiet"), s.get("boundary")
    for i, batch in enumerate(batches):
        number = i % N
        if quiet:
            silent = number < N - 1 if quiet == "all-but-last" else number > 0
            with engine.no_sync() if silent else nullcontext():
                engine.backward(loss_of(engine(batch)) / N)
        else:
            if boundary:
                engine.set_gradient_accumulation_boundary(False)
            engine.backward(loss_of(engine(batch)))  # it divides by gradient_accumulation_steps
        if boundary and number == N - 1:
            engine.set_gradient_accumulation_boundary(True)
        if number == N - 1 or not (quiet or boundary):
            engine.step()


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    import deepspeed

    if DEVICE.type == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
    s, rank, world_size = VARIANTS[variant], dist.get_rank(), dist.get_world_size()
    data = torch.randn(N * STEPS, SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    model = made()
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        config={
            "train_micro_batch_size_per_gpu": SAMPLES // world_size,
            "gradient_accumulation_steps": 1 if s.get("quiet") else N,
            "gradient_clipping": 0.0,  # newer releases clip at 1.0 unless told otherwise
            "zero_allow_untested_optimizer": True,  # plain SGD, to compare parameters
            "zero_optimization": {"stage": s["stage"]}
            | ({"stage3_param_persistence_threshold": 0} if s["stage"] == 3 else {}),
        },
    )
    try:
        train(engine, data[:, rank::world_size], s)
        trained = {}
        for name, p in model.named_parameters():
            with deepspeed.zero.GatheredParameters(p, enabled=s["stage"] == 3):
                trained[name] = p.detach().clone()
    finally:
        engine.destroy()
    alone = made()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for window in data.split(N):
        loss_of(alone(window.flatten(0, 1))).backward()
        optimizer.step()
        optimizer.zero_grad()
    return compare(variant, trained, *(dict(it.named_parameters()) for it in (alone, made())))


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
