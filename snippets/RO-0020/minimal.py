"""DDP with and without a DistributedSampler: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


def train(model, loader, epochs=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        for inputs, targets in loader:
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()


dist.init_process_group("gloo")
data = torch.Generator().manual_seed(1)
rows = TensorDataset(torch.randn(12, 8, generator=data), torch.randn(12, 1, generator=data))
if "--fixed" in sys.argv:
    # --8<-- [start:fixed]
    sampler = DistributedSampler(rows, shuffle=False)  # with shuffle=True, sampler.set_epoch(epoch) before each epoch
    loader = DataLoader(rows, batch_size=2, sampler=sampler)
    # --8<-- [end:fixed]
else:
    # --8<-- [start:fails]
    loader = DataLoader(rows, batch_size=2)  # all of the rows, on every rank
    # --8<-- [end:fails]
trained, reference = make(), make()
train(DistributedDataParallel(trained), loader)
train(reference, DataLoader(rows, batch_size=4))  # as many rows in a step as both ranks have
torch.testing.assert_close(trained.state_dict(), reference.state_dict())
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
