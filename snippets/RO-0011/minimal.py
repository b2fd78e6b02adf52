"""Gradient clipping under FSDP1: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


dist.init_process_group("gloo")
batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
mine = batch[dist.get_rank() :: 2]
model, reference = FullyShardedDataParallel(make(), device_id=torch.device("cpu")), make()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
alone = torch.optim.SGD(reference.parameters(), lr=0.5)
for _ in range(3):
    (model(mine) - 1).square().mean().backward()
    if "--fixed" in sys.argv:
        # --8<-- [start:fixed]
        model.clip_grad_norm_(0.2)
        # --8<-- [end:fixed]
    else:
        # --8<-- [start:fails]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.2)
        # --8<-- [end:fails]
    optimizer.step()
    optimizer.zero_grad()
    (reference(batch) - 1).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.2)
    alone.step()
    alone.zero_grad()
with FullyShardedDataParallel.summon_full_params(model):
    torch.testing.assert_close(dict(model.named_parameters()), dict(reference.named_parameters()))
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
