"""Peak memory of a step: gradient checkpointing against smaller micro-batches.

    torchrun --nproc-per-node 2 memory.py off-batch-8
    torchrun --nproc-per-node 2 memory.py non-reentrant-batch-8

Needs torch >= 2.6 (2.9 on an accelerator), and Linux on a CPU. A variant's name joins one word of
each axis below. Each step uses the same 8 sequences on a rank, at once or in micro-batches; the
last line says how much memory it took, and how far the parameters are from a single-process run.
"""

import contextlib
import ctypes
import functools
import itertools
import json
import os
import re
import statistics
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

# --8<-- [start:variants]
AXES = dict(
    checkpointing={"off": False, "non-reentrant": True},
    batch={"batch-8": 8, "batch-4": 4, "batch-2": 2, "batch-1": 1},  # sequences at a time on a rank
)
VARIANTS = {
    "-".join(words): {key: AXES[key][word] for key, word in zip(AXES, words)}
    for words in itertools.product(*AXES.values())
}
# --8<-- [end:variants]

STEPS, BATCH, LENGTH, WIDTH, LAYERS = 3, 8, 64, 128, 12
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = VARIANTS[variant]
    return {
        "strategy": "ddp",
        "tuning": "lora",
        "frozen": "base",
        "lora_rank": 4,
        "checkpointing": "non-reentrant" if s["checkpointing"] else "none",
        "checkpointed": "all",
        "find_unused": False,
        "static_graph": False,
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": BATCH // s["batch"],
        "first_backward": "no-sync" if s["batch"] < BATCH else "synchronises",
        "batch_size": s["batch"],
    }


# --8<-- [end:facts]


# --8<-- [start:model]
class LoraLayer(nn.Module):
    def __init__(self, rank=4):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH).requires_grad_(False)
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.lora_A = nn.Linear(WIDTH, rank, bias=False)
        self.lora_B = nn.Linear(rank, WIDTH, bias=False)  # not zero: lora_A needs a gradient

    def forward(self, x):
        normed = self.norm(x)
        return x + torch.tanh(self.base(normed) + self.lora_B(self.lora_A(normed)))


class Model(nn.Module):
    def __init__(self, checkpointing):
        super().__init__()
        self.checkpointing = checkpointing
        self.embed = nn.Embedding(32, WIDTH).requires_grad_(False)
        self.layers = nn.ModuleList(LoraLayer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 1).requires_grad_(False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointing else layer(x)
        return (self.head(x[:, -1]) - 1).square().mean()


# --8<-- [end:model]


# --8<-- [start:train]
def make(checkpointing):
    torch.manual_seed(0)
    return Model(checkpointing).to(DEVICE)


def train(checkpointing, batch, rank=0, world_size=1, wrap=lambda model: model):
    """Three steps of plain SGD; returns the trained model and the median of the steps' peaks."""
    model = make(checkpointing)
    wrapped = wrap(model)  # keep a reference: DDP's hooks die with its wrapper
    no_sync = getattr(wrapped, "no_sync", contextlib.nullcontext)
    optimizer = torch.optim.SGD(trainable(model), lr=0.1)
    torch.manual_seed(1)
    peaks = []
    for tokens in torch.randint(32, (STEPS, 2 * BATCH, LENGTH)):
        parts = tokens[rank::world_size].to(DEVICE).split(batch)

        def step(parts=parts):
            for part in parts:
                with contextlib.nullcontext() if part is parts[-1] else no_sync():
                    (wrapped(part) / len(parts)).backward()
            optimizer.step()

        peaks.append(peak_memory(step))
        optimizer.zero_grad(set_to_none=False)
    return model, statistics.median(peaks)


def peak_memory(step):
    """Bytes that a step takes at its height, beyond what the process held before it."""
    if DEVICE.type != "cpu":
        torch.accelerator.reset_peak_memory_stats()
        before = torch.accelerator.memory_allocated()
        step()
        return torch.accelerator.max_memory_allocated() - before
    libc = ctypes.CDLL(None)  # memory that is free, but kept, would hide a peak:
    libc.mallopt(-3, 65536)  # M_MMAP_THRESHOLD: what is larger goes back at once
    libc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again at VmRSS
    before = in_status("VmRSS")
    step()
    return in_status("VmHWM") - before


def in_status(key):
    return 1024 * int(re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


# --8<-- [end:train]


# --8<-- [start:compare]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    settings = VARIANTS[variant]
    place = dict(rank=dist.get_rank(), world_size=dist.get_world_size())
    model, peak = train(**settings, **place, wrap=DistributedDataParallel)
    start = make(settings["checkpointing"])
    return compare(variant, *map(named, (model, reference(), start))) | {"peak_memory": peak}


@functools.cache  # the same for all variants
def reference():
    return train(checkpointing=False, batch=2 * BATCH)[0]


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


def trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


def named(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


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
