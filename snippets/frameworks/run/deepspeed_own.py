"""DeepSpeed's own checkpointing under DDP: torchrun ... watch.py deepspeed_own.py non-reentrant (or usual). No run is stored."""

import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

usual = sys.argv[1] == "usual"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            if usual:
                x = deepspeed.checkpointing.checkpoint(layer, x)
            else:
                # --8<-- [start:checkpointing]
                x = deepspeed.checkpointing.non_reentrant_checkpoint(layer, x)
                # --8<-- [end:checkpointing]
        return x


dist.init_process_group("gloo")
torch.manual_seed(0)
model, plain, x = Model(), nn.Sequential(*(nn.Linear(8, 8) for _ in range(3))), torch.randn(2, 8, requires_grad=True)
plain.load_state_dict({key.removeprefix("layers."): value for key, value in model.state_dict().items()})
wrapped = DistributedDataParallel(model)
wrapped(x).sum().backward()
plain(x).sum().backward()
for ours, theirs in zip(model.parameters(), plain.parameters()):
    torch.testing.assert_close(ours.grad, theirs.grad)
dist.barrier()
dist.destroy_process_group()
