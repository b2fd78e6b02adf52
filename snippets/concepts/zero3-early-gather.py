"""Counts how often ZeRO-3 hands out parameters that have not arrived yet. On CPU with gloo, two processes:

    torchrun --nproc-per-node 2 zero3-early-gather.py
    torchrun --nproc-per-node 2 zero3-early-gather.py sequential
    PYTHONPATH=one-gloo-thread torchrun --nproc-per-node 2 zero3-early-gather.py

Needs torch >= 2.6 and DeepSpeed. The second sets `stage3_allgather_sequential`, the third gives gloo one thread.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

os.environ["DS_ACCELERATOR"] = "cpu"  # read by DeepSpeed when it is imported
# Without it, older releases call the program numactl to count processors.
os.environ.setdefault("LOCAL_SIZE", os.environ.get("LOCAL_WORLD_SIZE", "1"))
import deepspeed  # noqa: E402

GATHERS, LARGE, SMALL = 20, 4_000_000, 16


# --8<-- [start:count]
def early_gathers(large, small):
    """Of GATHERS, those in which a rank saw memory that nothing had been written to."""
    torch.use_deterministic_algorithms(True)  # fills uninitialised memory with NaN
    early = 0
    for _ in range(GATHERS):
        # The large one first: what is waited for is the last.
        with deepspeed.zero.GatheredParameters([large, small]):
            unfinished = large.isnan().any().float()
        dist.all_reduce(unfinished, op=dist.ReduceOp.MAX)
        early += int(unfinished)
    return early
# --8<-- [end:count]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.large, self.small = nn.Parameter(torch.ones(LARGE)), nn.Parameter(torch.ones(SMALL))


def main(sequential):
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", verbose=False)
    model = Model()
    zero = {"stage": 3, "stage3_param_persistence_threshold": 0}
    if sequential:
        zero["stage3_allgather_sequential"] = True
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": zero,
        },
    )
    early = early_gathers(model.large, model.small)
    if dist.get_rank() == 0:
        print("RESULT", json.dumps({"count": early, "of": GATHERS}), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976


if __name__ == "__main__":
    main("sequential" in sys.argv[1:])
