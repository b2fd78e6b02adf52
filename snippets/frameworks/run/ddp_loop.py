"""Plain PyTorch, two processes: torchrun --nproc-per-node 2 watch.py ddp_loop.py"""

import torch
import torch.distributed as dist
from setting import ADAPTED, adapted, clip, optimizer
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            # --8<-- [start:checkpointing]
            x = checkpoint(layer, x, use_reentrant=False)
            # --8<-- [end:checkpointing]
        return x


dist.init_process_group("gloo")
model, data = adapted(Model(), r"layers\.\d"), torch.randn(8, 8)
# --8<-- [start:find-unused]
model = DistributedDataParallel(model, find_unused_parameters=True)
# --8<-- [end:find-unused]
optimizer = optimizer(model)
for batch in DataLoader(data, batch_size=2, sampler=DistributedSampler(data)):
    with torch.autocast("cpu", torch.bfloat16, enabled=ADAPTED):
        loss = model(batch).pow(2).mean()
    loss.backward()
    clip(model)
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
