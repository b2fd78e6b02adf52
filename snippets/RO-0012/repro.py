"""Gradient accumulation under `no_sync`: which micro-batch is synchronised, and is it the last one before the step?

    torchrun --nproc-per-node 2 repro.py reported
    torchrun --nproc-per-node 2 repro.py fixed

The stated objective is, for each optimizer step, the mean squared error over all samples of its accumulation window: all its
micro-batches, of all ranks. A short last window is a mean over its own samples; the alternative, where each micro-batch counts
one third in a short window too, stands under `reference`. Each variant is compared, on every rank, with one process that does
the same steps on the same micro-batches. Plain SGD.
"""

import contextlib
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
DEFAULTS = dict(
    strategy="ddp",
    around="both",  # no_sync around forward and backward, or around one of them; "flag": see `micro_batch`
    quiet="all-but-last",  # which micro-batches of a window it is for; "none": every one is synchronised
    averaged="wrapper",  # or "hand": each .grad before the step; see `by_hand`
    divided="window",  # a micro-batch's loss: by the window's size; "setting": by N in a short window too; "nothing"
    tail="none",  # a short window at the end: "synced", "unsynced", "dropped", "kept" for the next step; "spanning"
    static=False,  # static_graph; "first-synced": with the very first micro-batch synchronised
    loop="general",  # "right": the loops of the fix
    reference="right",
)
STRATEGIES = ("ddp", "fsdp1", "fsdp2")
AROUND, QUIET = ("both", "forward", "backward"), ("all-but-last", "all-but-first")

VARIANTS = {
    f"{strategy}-{around}-{quiet}": dict(strategy=strategy, around=around, quiet=quiet)
    for strategy, around, quiet in itertools.product(STRATEGIES, AROUND, QUIET)
} | {
    "reported": dict(quiet="all-but-first"),  # with model.no_sync() if batch_idx % N != 0 else nullcontext()
    "fixed": dict(loop="right", tail="synced"),
    "fixed-fsdp1": dict(loop="right", tail="synced", strategy="fsdp1"),
    "fixed-fsdp2": dict(loop="right", tail="synced", strategy="fsdp2"),
    "ddp-every": dict(quiet="none"),
    "fsdp2-every": dict(strategy="fsdp2", quiet="none"),
    "ddp-flag-after-forward": dict(around="flag-after-forward"),
    "ddp-flag-before-forward": dict(around="flag-before-forward"),
    "ddp-forwards-first": dict(around="forwards-first"),  # all forwards of a window, then all backwards
    # What is to mend it.
    "ddp-first-by-hand": dict(quiet="all-but-first", averaged="hand"),
    "ddp-none-by-hand": dict(quiet="all", averaged="hand"),
    "ddp-none-summed-each": dict(quiet="all", averaged="hand-summed-each-micro-batch"),
    "ddp-first-rank-0": dict(quiet="all-but-first", averaged="weights-of-rank-0"),
    "ddp-undivided": dict(divided="nothing"),
    # A static graph.
    "ddp-static": dict(static=True),
    "ddp-static-first-synced": dict(static="first-synced"),
    # Eight micro-batches in windows of three.
    "tail-unsynced": dict(tail="unsynced"),
    "tail-synced-by-setting": dict(tail="synced", divided="setting"),
    "tail-synced-by-setting-own-objective": dict(tail="synced", divided="setting", reference="micro-batch-shares"),
    "tail-dropped": dict(tail="dropped"),
    "tail-kept": dict(tail="kept"),
    "tail-spanning": dict(tail="spanning"),
    "fsdp2-tail-unsynced": dict(strategy="fsdp2", tail="unsynced"),
}
# --8<-- [end:variants]

STEPS, N, SAMPLES, WIDTH = 3, 3, 4, 8  # N: micro-batches in a window; samples of a micro-batch, of all ranks
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    strategy = s["strategy"]
    told = {"orig_params": False} if strategy == "fsdp1" else {}
    if strategy == "ddp":
        quiet_first = s["quiet"] in ("all-but-last", "all") and s["around"] in ("both", "forward", "forwards-first")
        quiet_first = quiet_first and s["static"] != "first-synced" or s["around"] == "flag-before-forward"
        told = {"find_unused": False, "static_graph": bool(s["static"])}
        told["first_backward"] = "no-sync" if quiet_first else "synchronises"
    return told | {
        "strategy": strategy,
        "synced": {"all-but-last": "last", "all-but-first": "first", "all": "none", "none": "every"}[s["quiet"]],
        "no_sync_around": s["around"],
        "tail": s["tail"],
        "averaged_by": s["averaged"],
        "window_divisor": s["divided"],
        "reference": s["reference"],
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


def wrap(model, s):
    """As each strategy is documented."""
    if s["strategy"] == "ddp":
        return DistributedDataParallel(model, static_graph=bool(s["static"]))
    if s["strategy"] == "fsdp2":
        mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(),))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    settings = dict(use_orig_params=False, device_id=DEVICE)
    for i, block in enumerate(model.blocks):
        model.blocks[i] = FullyShardedDataParallel(block, **settings)
    return FullyShardedDataParallel(model, **settings)


def loss_of(output):
    return (output - 1).square().mean()


# --8<-- [start:loops]
def train_right(model, optimizer, batches):  # DDP, FSDP1
    # --8<-- [start:fix]
    for i, batch in enumerate(batches):
        window = min(N, len(batches) - i // N * N)  # a short last one
        last = i % N == window - 1
        with contextlib.nullcontext() if last else model.no_sync():
            loss = loss_of(model(batch)) / window
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    # --8<-- [end:fix]


def train_right_fsdp2(model, optimizer, batches):
    for i, batch in enumerate(batches):
        window = min(N, len(batches) - i // N * N)
        last = i % N == window - 1
        # --8<-- [start:fsdp2]
        model.set_requires_gradient_sync(last)  # FSDP2 has no no_sync
        (loss_of(model(batch)) / window).backward()
        # --8<-- [end:fsdp2]
        if last:
            optimizer.step()
            optimizer.zero_grad()


# --8<-- [end:loops]


# --8<-- [start:general]
@contextlib.contextmanager
def silent(model):
    if hasattr(model, "no_sync"):
        with model.no_sync():
            yield
    else:
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)


def micro_batch(model, batch, quiet, divisor, around):
    """One forward and one backward; `around` says which of them `no_sync` is around."""
    if around.startswith("flag"):  # by hand what no_sync does
        if around == "flag-before-forward":
            model.require_backward_grad_sync = not quiet
        loss = loss_of(model(batch)) / divisor
        # --8<-- [start:flag]
        model.require_backward_grad_sync = not quiet  # too late: the forward has decided
        loss.backward()
        # --8<-- [end:flag]
        return
    with silent(model) if quiet and around in ("both", "forward") else contextlib.nullcontext():
        loss = loss_of(model(batch)) / divisor
        if around == "both":
            loss.backward()
    if around != "both":
        with silent(model) if quiet and around == "backward" else contextlib.nullcontext():
            loss.backward()


def windows(s):
    """The micro-batches of each step, and whether one is taken."""
    epoch, epochs = (8 if s["tail"] != "none" else 9), 2 if s["tail"] in ("dropped", "kept", "spanning") else 1
    if s["tail"] == "spanning":  # counted on from one epoch to the next
        return [(list(range(i, i + N)), True) for i in range(0, epoch * epochs - N + 1, N)]
    parts = [range(e * epoch, (e + 1) * epoch)[i : i + N] for e in range(epochs) for i in range(0, epoch, N)]
    found = [(list(part), len(part) == N or s["tail"] in ("synced", "unsynced")) for part in parts]
    return found[:STEPS] if epochs == 1 else found


def is_quiet(number, window, s):
    if s["static"] == "first-synced" and window[number] == 0:
        return False
    if s["quiet"] == "all-but-last":  # "unsynced": (i + 1) % N never comes in a short window
        return number < (len(window) if s["tail"] in ("none", "synced") else N) - 1
    return {"all-but-first": number > 0, "all": True, "none": False}[s["quiet"]]


def by_hand(model, how):
    for p in model.parameters():
        if how.startswith("weights"):
            p = p.detach()
        if how == "weights-of-rank-0":
            dist.broadcast(p, src=0)
        else:
            # --8<-- [start:by-hand]
            tensor = p if how == "weights" else p.grad
            dist.all_reduce(tensor)
            tensor /= 1 if "summed" in how else dist.get_world_size()
            # --8<-- [end:by-hand]


def train(model, optimizer, batches, s):
    for window, stepped in windows(s):
        divisor = {"window": len(window), "setting": N, "nothing": 1}[s["divided"]]
        if s["around"] == "forwards-first":
            with silent(model):
                losses = [loss_of(model(batches[i])) / divisor for i in window[:-1]]
            losses.append(loss_of(model(batches[window[-1]])) / divisor)
            for loss in losses:
                loss.backward()
        for number, i in enumerate(window) if s["around"] != "forwards-first" else ():
            micro_batch(model, batches[i], is_quiet(number, window, s), divisor, s["around"])
            if s["averaged"].endswith("each-micro-batch"):
                by_hand(model, s["averaged"])
        if s["averaged"] == "hand":
            by_hand(model, "hand")
        if stepped:
            optimizer.step()
        if stepped or s["tail"] == "dropped":
            optimizer.zero_grad()
        if s["averaged"].startswith("weights"):
            by_hand(model, s["averaged"])


# --8<-- [end:general]


# --8<-- [start:run]
def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    rank, world_size = dist.get_rank(), dist.get_world_size()
    data = torch.randn(16, SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    reference, start = copy.deepcopy(model), copy.deepcopy(model)
    model = wrap(model, s)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mine = list(data[:, rank::world_size])
    if s["loop"] == "right":
        (train_right_fsdp2 if s["strategy"] == "fsdp2" else train_right)(model, optimizer, mine[:8])
    else:
        train(model, optimizer, mine, s)
    train_alone(reference, data, s)
    return compare(variant, *map(named, (model, reference, start)))


def train_alone(model, data, s):
    """The same steps in one process."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for window, stepped in windows(s):
        if stepped:
            share = N if s["reference"] == "micro-batch-shares" else len(window)
            (loss_of(model(torch.cat([data[i] for i in window]))) * len(window) / share).backward()
            optimizer.step()
            optimizer.zero_grad()


# --8<-- [end:run]


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
    dist.init_process_group(dist.get_default_backend_for_device(DEVICE), timeout=timedelta(seconds=60))
    result = run(sys.argv[1]) | {"facts": facts(sys.argv[1])}
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
