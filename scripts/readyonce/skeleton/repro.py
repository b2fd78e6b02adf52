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


def train(use_reentrant, rank=0, world_size=1, wrap=lambda model: model):
    """Three steps of plain SGD on this rank's share of each batch; returns the parameters."""
    torch.manual_seed(0)
    model = Model(use_reentrant).to(DEVICE)
    wrapped = wrap(model)  # keep a reference: DDP's hooks die with its wrapper
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in torch.randn(STEPS, BATCH, WIDTH):
        (wrapped(batch[rank::world_size].to(DEVICE)) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return list(model.parameters())


def run(variant):
    """Train a variant; compare it, on every rank, with one process that saw all the data."""
    place = dist.get_rank(), dist.get_world_size()
    trained = train(*VARIANTS[variant].values(), *place, lambda m: DistributedDataParallel(m, find_unused_parameters=True))
    reference = train(None)
    off = [(p - ref).abs().max() / ref.abs().max() for p, ref in zip(trained, reference)]
    error = torch.stack(off).max().detach()
    dist.all_reduce(error, op=dist.ReduceOp.MAX)
    outcome = "match" if error <= 1e-5 else "diverge"
    return {"variant": variant, "outcome": outcome, "gradient_error": error.item()}


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
