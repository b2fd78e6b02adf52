"""A condition of each rank decides what is trained: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(wrap, batch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 8))
    wanted = torch.tensor(dist.get_rank() > 0)  # stands for a file, a seed or data that differs between the ranks
    if "--fixed" in sys.argv:
        # --8<-- [start:fixed]
        dist.all_reduce(wanted, op=dist.ReduceOp.MAX)  # if one rank wants it, all do
        model[0].requires_grad_(bool(wanted))
        # --8<-- [end:fixed]
    else:
        # --8<-- [start:fails]
        model[0].requires_grad_(bool(wanted))
        # --8<-- [end:fails]
    wrapped, optimizer = wrap(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        wrapped(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


dist.init_process_group("gloo")
batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
trained = train(DistributedDataParallel, batch[dist.get_rank() :: 2])
torch.testing.assert_close(trained, train(lambda model: model, batch))
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
