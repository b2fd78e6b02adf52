"""TODO: what fails, in one line: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.lora = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 8)

    def layer(self, x):
        return self.base(x) + self.lora(x)

    def forward(self, x):
        x = x.clone().requires_grad_()  # peft's enable_input_require_grads()
        if "--fixed" in sys.argv:
            # --8<-- [start:fixed]
            return checkpoint(self.layer, x, use_reentrant=False)
            # --8<-- [end:fixed]
        # --8<-- [start:fails]
        return checkpoint(self.layer, x, use_reentrant=True)
        # --8<-- [end:fails]


def train(wrap, batch):
    torch.manual_seed(0)
    model = Model()
    wrapped, optimizer = wrap(model), torch.optim.SGD(model.lora.parameters(), lr=0.1)
    for _ in range(3):
        wrapped(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


dist.init_process_group("gloo")
batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
mine = batch[dist.get_rank() :: 2]
trained = train(lambda model: DistributedDataParallel(model, find_unused_parameters=True), mine)
torch.testing.assert_close(trained, train(lambda model: model, batch))
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
