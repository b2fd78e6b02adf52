"""TODO: one line on what fails.

torchrun --nproc-per-node 2 repro.py reported
torchrun --nproc-per-node 2 repro.py fixed
"""

import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

# --8<-- [start:variants]
VARIANTS = {
    "reported": dict(use_reentrant=True),
    "fixed": dict(use_reentrant=False),
}
# --8<-- [end:variants]

STEPS, BATCH, WIDTH = 3, 4, 8
ON_DEVICE = torch.accelerator.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DEVICE = torch.accelerator.current_accelerator() if ON_DEVICE else torch.device("cpu")


# --8<-- [start:facts]
def facts(variant):
    """What this file's settings are called in the field (snippets/facts.yml), for the record. TODO: yours."""
    return {
        "strategy": "ddp",
        "tuning": "full",
        "frozen": "none",
        "checkpointing": "reentrant" if VARIANTS[variant]["use_reentrant"] else "non-reentrant",
        "checkpointed": "all",
        "find_unused": True,
        "static_graph": False,
        "runs": "once",
        "runs_vary": False,
        "skips": "never",
        "second_use": "none",
        "backward_calls": "once",
        "accumulation": 1,
        "first_backward": "synchronises",
        "batch_size": BATCH // 2,
    }


# --8<-- [end:facts]


class Model(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.use_reentrant = use_reentrant
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x):
        x = x.requires_grad_()
        for layer in self.layers:
            if self.use_reentrant is None:
                x = torch.tanh(layer(x))
            else:
                x = torch.tanh(checkpoint(layer, x, use_reentrant=self.use_reentrant))
        return x


def train(use_reentrant, steps=STEPS, rank=0, world_size=1, wrap=lambda model: model):
    """Steps of plain SGD on this rank's share of each batch; returns {name: parameter}."""
    torch.manual_seed(0)
    model = Model(use_reentrant).to(DEVICE)
    wrapped = wrap(model)  # keep a reference: DDP's hooks die with its wrapper
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in torch.randn(steps, BATCH, WIDTH):
        (wrapped(batch[rank::world_size].to(DEVICE)) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return dict(model.named_parameters())


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    place = STEPS, dist.get_rank(), dist.get_world_size()
    trained = train(
        *VARIANTS[variant].values(), *place, lambda m: DistributedDataParallel(m, find_unused_parameters=True)
    )
    return compare(variant, trained, reference=train(None), start=train(None, steps=0))


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
