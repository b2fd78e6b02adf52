"""FSDP2: a unit that runs twice under reentrant checkpointing loses the gradient of one run, without an error.

torchrun --nproc-per-node 2 script.py                  # use_reentrant=True
torchrun --nproc-per-node 2 script.py non-reentrant    # use_reentrant=False: the gradient is right
"""

import copy
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.entry, self.layer = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

    def forward(self, x):
        x = self.entry(x)
        for _ in range(2):
            x = checkpoint(self.layer, x, use_reentrant=len(sys.argv) == 1).tanh()
        return x.square().mean()


dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model, x = Twice(), torch.randn(4, 8)
entry, first = copy.deepcopy(model.entry), copy.deepcopy(model.layer)  # one process, the two runs kept apart
second = copy.deepcopy(first)
second(first(entry(x)).tanh()).tanh().square().mean().backward()
fully_shard(model.layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)  # plain SGD: the update is the gradient
model(x).backward()
optimizer.step()
model.layer.reshard()
seen = first.weight - model.layer.weight.full_tensor()
one, both = second.weight.grad, first.weight.grad + second.weight.grad
if dist.get_rank() == 0:
    print(f"expected {both.norm():.4f}, the norm of the layer's gradient, both runs added")
    print(f"seen     {seen.norm():.4f}; the gradient of its second run alone has {one.norm():.4f}", flush=True)
dist.barrier()
os._exit(0)
