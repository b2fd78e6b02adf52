"""An attribute of the model, read from DistributedDataParallel: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.layer = 0.5, nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x)


def train(model, scale, batch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        (scale * model(batch).square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()


dist.init_process_group("gloo")
batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
mine = batch[dist.get_rank() :: 2]
torch.manual_seed(0)
trained, reference = Model(), Model()
reference.load_state_dict(trained.state_dict())
wrapper = DistributedDataParallel(trained)
if "--fixed" in sys.argv:
    # --8<-- [start:fixed]
    train(wrapper, wrapper.module.scale, mine)  # read from .module, and train the wrapper
    # --8<-- [end:fixed]
else:
    # --8<-- [start:fails]
    train(wrapper, wrapper.scale, mine)
    # --8<-- [end:fails]
train(reference, reference.scale, batch)
torch.testing.assert_close(trained.state_dict(), reference.state_dict())
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
