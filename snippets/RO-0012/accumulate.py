"""accelerate's `accumulate`: which micro-batches are synchronised, and what happens to the short window at the end?

    torchrun --nproc-per-node 2 accumulate.py bare-optimizer
    torchrun --nproc-per-node 2 accumulate.py prepared

Two epochs of eight micro-batches, accumulation 3. The stated objective is, for each optimizer step, the mean squared error over
all samples of its window, of all ranks: a short window is a mean over its own samples. Variants that are compared with another
objective say so under `reference`. `accumulate`, `backward`, `prepare` and `no_sync` are accelerate's own; the model is wrapped in DDP.
"""

import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import DistributedType, GradientAccumulationPlugin
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# --8<-- [start:variants]
DEFAULTS = dict(
    loader="prepared",  # or "own": sharded by the script itself
    optimizer="prepared",  # or "bare": never given to `prepare`
    plugin={},  # of the GradientAccumulationPlugin
    windows="per-epoch",  # how the steps should fall: 3, 3, 2 in each epoch; "spanning": counted on over epochs
    loss="plain",  # or "scaled": times 3, divided by the window's own size; "divided": by 3 in the script too
    zero_grad="last",  # in the block of `accumulate`; or "first" in it, or "before" or "after" the block
    loop="accumulate",  # "split": each batch in two; "no-sync", "forwards-first": without `accumulate`
    reference="right",  # "micro-batch-shares": each micro-batch counts one third in a short window too
    # "last-micro-batch": only the last micro-batch of a window counts, one third
)
SHARES = dict(reference="micro-batch-shares")
VARIANTS = {
    "prepared": {},
    "prepared-own-objective": SHARES,
    "prepared-scaled": dict(loss="scaled"),
    "prepared-divided-too": dict(loss="divided"),
    "each-batch": dict(plugin=dict(sync_each_batch=True), **SHARES),
    "not-with-loader": dict(plugin=dict(sync_with_dataloader=False), windows="spanning"),
    "own-loader": dict(loader="own", windows="spanning"),
    "own-loader-own-epochs": dict(loader="own"),  # the script expects a step at the end of each epoch
    "zero-grad-first": dict(zero_grad="first", **SHARES),
    "zero-grad-first-last-only": dict(zero_grad="first", reference="last-micro-batch"),
    "zero-grad-before": dict(zero_grad="before", **SHARES),
    "zero-grad-after": dict(zero_grad="after", **SHARES),
    "bare-optimizer": dict(optimizer="bare", **SHARES),
    "split-batches": dict(loop="split"),
    "no-sync-first": dict(loop="no-sync"),
    "forwards-first": dict(loop="forwards-first"),
    "forwards-first-triggered": dict(loop="forwards-first-triggered"),
}
# --8<-- [end:variants]

N, EPOCHS, EPOCH, SAMPLES, WIDTH = 3, 2, 8, 4, 8


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field, for the record."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    first, each = s["loop"] == "no-sync", s["plugin"].get("sync_each_batch", False)
    if s["loop"] in BY_HAND:
        told = {"synced": "first" if first else "last", "no_sync_around": s["loop"].replace("no-sync", "both")}
    else:
        unlinked = s["plugin"].get("sync_with_dataloader") is False
        told = {
            "synced": "every" if each else "by-accelerate",
            "accumulate": "split" if s["loop"] == "split" else "each-batch" if each else "plain",
            "accumulate_loader": "unlinked" if unlinked else s["loader"],
            "accumulate_optimizer": s["optimizer"],
            "zero_grad": s["zero_grad"],
            "tail": "spanning" if unlinked or s["loader"] == "own" else "synced",
            "window_divisor": {"plain": "setting", "scaled": "window", "divided": "twice"}[s["loss"]],
        }
        if s["loader"] == "own" and s["windows"] == "per-epoch":
            told["reference"] = "steps-at-epoch-ends"
    return told | {
        "strategy": "ddp",
        "find_unused": False,
        "static_graph": False,
        "first_backward": "synchronises" if first or each else "no-sync",
        "reference": told.get("reference", s["reference"]),
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
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    model._tied_weights_keys = None  # accelerate 1.1 asks for it
    return model


def loss_of(output):
    return (output - 1).square().mean()


# --8<-- [start:train]
def train(data, s):
    """Two epochs with accelerate; the trained model."""
    plugin = GradientAccumulationPlugin(num_steps=1 if s["loop"] in BY_HAND else N, **s["plugin"])
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin)
    accelerator.state.distributed_type = DistributedType.MULTI_CPU
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(data.flatten(0, 1)), batch_size=SAMPLES // dist.get_world_size())
    if s["optimizer"] == "bare":
        model = accelerator.prepare(model)
    else:
        model, optimizer = accelerator.prepare(model, optimizer)
    if s["loader"] == "prepared":
        loader = accelerator.prepare(loader)
    else:
        loader = [(batch,) for i, (batch,) in enumerate(loader) if i % dist.get_world_size() == dist.get_rank()]
    for _ in range(EPOCHS):
        loop = scaled if s["loss"] == "scaled" else BY_HAND.get(s["loop"], accumulate)
        loop(accelerator, model, optimizer, loader, s)
    return accelerator.unwrap_model(model)


def scaled(accelerator, model, optimizer, loader, s):
    # --8<-- [start:scaled]
    for i, (batch,) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = loss_of(model(batch))
            window = min(N, len(loader) - i // N * N)  # its own size, at the end of an epoch too
            loss = loss * accelerator.gradient_accumulation_steps / window
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()  # as the first line here, it would clear all micro-batches but the last
    # --8<-- [end:scaled]


def accumulate(accelerator, model, optimizer, loader, s):
    for (batch,) in loader:
        if s["zero_grad"] == "before":
            optimizer.zero_grad()
        for part in batch.split(1) if s["loop"] == "split" else [batch]:
            with accelerator.accumulate(model):
                if s["zero_grad"] == "first":
                    optimizer.zero_grad()
                loss = loss_of(model(part))
                accelerator.backward(loss / N if s["loss"] == "divided" else loss)
                optimizer.step()
                if s["zero_grad"] == "last":
                    optimizer.zero_grad()
        if s["zero_grad"] == "after":
            optimizer.zero_grad()


def no_sync(accelerator, model, optimizer, loader, s):
    """Six micro-batches; no_sync by hand, around all but the first of a window."""
    for i, (batch,) in enumerate(list(loader)[: 2 * N]):
        with accelerator.no_sync(model) if i % N else accelerator.autocast():
            accelerator.backward(loss_of(model(batch)) / N)
        if i % N == N - 1:
            optimizer.step()
            optimizer.zero_grad()


def forwards_first(accelerator, model, optimizer, loader, s):
    """Six micro-batches; the forwards of a window, then its backwards, of which the last is to synchronise."""
    batches = [batch for (batch,) in loader]
    for first in (0, N):
        window = batches[first : first + N]
        with accelerator.no_sync(model):
            losses = [loss_of(model(batch)) / N for batch in (window[:-1] if s["loop"] == "forwards-first" else window)]
        if s["loop"] == "forwards-first":
            losses.append(loss_of(model(window[-1])) / N)
            for loss in losses:
                accelerator.backward(loss)
        else:
            for loss in losses[:-1]:
                accelerator.backward(loss)
            # --8<-- [start:trigger]
            with accelerator.trigger_sync_in_backward(model):  # the forward was under no_sync
                accelerator.backward(losses[-1])
            # --8<-- [end:trigger]
        optimizer.step()
        optimizer.zero_grad()


# --8<-- [end:train]

BY_HAND = {"no-sync": no_sync, "forwards-first": forwards_first, "forwards-first-triggered": forwards_first}


def train_alone(data, s):
    """The same steps in one process; the trained model."""
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    length = 2 * N if s["loop"] in BY_HAND else EPOCH
    order = [data[i] for _ in range(EPOCHS) for i in range(length)]
    if s["windows"] == "spanning":
        windows = [order[i : i + N] for i in range(0, len(order) - N + 1, N)]
    else:
        windows = [order[e * length : (e + 1) * length][i : i + N] for e in range(EPOCHS) for i in range(0, length, N)]
    for window in windows:
        share = len(window) if s["reference"] == "right" else N
        window = window[-1:] if s["reference"] == "last-micro-batch" else window
        (loss_of(model(torch.cat(window))) * len(window) / share).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    s = {**DEFAULTS, **VARIANTS[variant]}
    data = torch.randn(EPOCH, SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1))
    models = train(data, s), train_alone(data, s), made()
    return compare(variant, *(dict(model.named_parameters()) for model in models))


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
