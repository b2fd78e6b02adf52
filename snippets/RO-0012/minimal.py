"""Gradient accumulation with no_sync under DDP: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def make():
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


dist.init_process_group("gloo")
batches = torch.randn(8, 4, 8, generator=torch.Generator().manual_seed(1))  # micro-batches: windows of 3, 3 and 2
mine = batches[:, dist.get_rank() :: 2]
trained, optimizer = make()
model = DistributedDataParallel(trained)
for i, batch in enumerate(mine):
    window = min(3, len(mine) - i // 3 * 3)
    last = i % 3 == window - 1  # before the step
    if "--fixed" in sys.argv:
        # --8<-- [start:fixed]
        context = nullcontext() if last else model.no_sync()
        # --8<-- [end:fixed]
    else:
        # --8<-- [start:fails]
        context = nullcontext() if i % 3 == 0 else model.no_sync()
        # --8<-- [end:fails]
    with context:
        (model(batch).square().mean() / window).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
reference, optimizer = make()
for batch in batches.split(3):
    reference(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.testing.assert_close(trained.state_dict(), reference.state_dict())
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
