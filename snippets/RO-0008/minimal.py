"""The optimizer and FSDP1's wrapping, in both orders: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def train(model, optimizer, batch):
    for _ in range(3):
        (model(batch) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


dist.init_process_group("gloo")
batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
mine = batch[dist.get_rank() :: 2]
model, reference = make(), make()
if "--fixed" in sys.argv:
    # --8<-- [start:fixed]
    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    # --8<-- [end:fixed]
else:
    # --8<-- [start:fails]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    # --8<-- [end:fails]
train(model, optimizer, mine)
train(reference, torch.optim.SGD(reference.parameters(), lr=0.5), batch)
with FullyShardedDataParallel.summon_full_params(model):
    torch.testing.assert_close(dict(model.named_parameters()), dict(reference.named_parameters()))
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
