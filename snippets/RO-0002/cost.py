"""What gradient checkpointing costs: time and memory of none, reentrant and non-reentrant.

    torchrun --nproc-per-node 2 cost.py large-reentrant
    torchrun --nproc-per-node 2 cost.py large-non-reentrant

Needs torch >= 2.6 (2.9 on an accelerator). A variant's name joins a size and a kind of
checkpointing. It trains some steps under DDP, says in its last line what a step took, how far the
memory rose above what was there before the steps, and how far its parameters are from a
single-process run. Compare figures of one machine only, taken while nothing else runs on it.
"""

import ctypes
import itertools
import json
import os
import re
import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import gelu
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

# --8<-- [start:variants]
SIZES = dict(  # tokens are those of one batch on one device
    small=dict(layers=4, width=64, tokens=2048),
    medium=dict(layers=8, width=64, tokens=2048),
    large=dict(layers=16, width=64, tokens=2048),
)
CHECKPOINTING = {"none": None, "reentrant": True, "non-reentrant": False}  # use_reentrant
VARIANTS = {
    f"{size}-{kind}": dict(SIZES[size], use_reentrant=CHECKPOINTING[kind])
    for size, kind in itertools.product(SIZES, CHECKPOINTING)
}
# --8<-- [end:variants]

STEPS = 5  # the first warms up and is not measured
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    use_reentrant = VARIANTS[variant]["use_reentrant"]
    return {
        "strategy": "ddp",
        "tuning": "lora",
        "frozen": "base",
        "lora_rank": 4,
        "checkpointing": {None: "none", True: "reentrant", False: "non-reentrant"}[use_reentrant],
        "checkpointed": "all",
        "find_unused": False,
        "static_graph": False,
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": 1,
        "first_backward": "synchronises",
    }


# --8<-- [end:facts]


# --8<-- [start:model]
class LoraLinear(nn.Module):
    def __init__(self, inputs, outputs, rank=4):
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.lora_A = nn.Linear(inputs, rank, bias=False)
        self.lora_B = nn.Linear(rank, outputs, bias=False)  # not zero: lora_A needs a gradient

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(x))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width).requires_grad_(False)
        self.up, self.down = LoraLinear(width, 4 * width), LoraLinear(4 * width, width)

    def forward(self, x):
        return x + self.down(gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, layers, width, tokens, use_reentrant):
        super().__init__()
        self.use_reentrant = use_reentrant
        self.embed = nn.Embedding(32, width).requires_grad_(False)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, 1).requires_grad_(False)

    def forward(self, tokens):
        x = self.embed(tokens).requires_grad_()  # what peft's enable_input_require_grads() does
        for layer in self.layers:
            if self.use_reentrant is None:
                x = layer(x)
            else:
                x = checkpoint(layer, x, use_reentrant=self.use_reentrant)
        return self.head(x)


# --8<-- [end:model]


# --8<-- [start:train]
def make(settings):
    torch.manual_seed(0)
    return Model(**settings).to(DEVICE)


def train(settings, world_size, ranks, wrap=lambda model: model):
    """Plain SGD on what these ranks are given; returns the trained model and what it cost."""
    model = make(settings)
    wrapped = wrap(model)  # keep a reference: DDP's hooks die with its wrapper
    optimizer = torch.optim.SGD(trainable(model), lr=0.01)
    torch.manual_seed(1)
    batches = torch.randint(32, (STEPS, world_size, settings["tokens"])).to(DEVICE)
    seconds = []
    for step, batch in enumerate(batches):
        if step == 1:
            before = start_memory()
        started = time.perf_counter()
        for rank in ranks:
            loss = (wrapped(batch[rank]) - 1).square().mean()
            (loss / len(ranks)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if DEVICE.type != "cpu":
            torch.accelerator.synchronize()
        seconds.append(time.perf_counter() - started)
    cost = {"seconds_per_step": statistics.median(seconds[1:])}
    if before is not None:
        cost["peak_memory"] = peak_memory() - before
    return model, cost


def start_memory():
    """Bytes in use now; from here on `peak_memory` counts. None where that cannot be read."""
    if DEVICE.type != "cpu":
        torch.accelerator.reset_peak_memory_stats()
        return torch.accelerator.memory_allocated()
    if not Path("/proc/self/clear_refs").exists():
        return None
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)  # what an earlier step freed goes back, and is counted when used again
    Path("/proc/self/clear_refs").write_text("5")  # Linux: the high-water mark starts anew
    return resident("VmRSS")


def peak_memory():
    return torch.accelerator.max_memory_allocated() if DEVICE.type != "cpu" else resident("VmHWM")


def resident(name):
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", status)[1])


# --8<-- [end:train]


# --8<-- [start:compare]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    settings = VARIANTS[variant]
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model, cost = train(settings, world_size, [rank], DistributedDataParallel)
    reference, _ = train({**settings, "use_reentrant": None}, world_size, range(world_size))
    return compare(variant, *map(named, (model, reference, make(settings)))) | cost


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
