"""AdamW on bfloat16 weights, and on float32 ones: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def load():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32, bias=False), nn.LayerNorm(32, bias=False), nn.Linear(32, 1, bias=False))
    return model.to(torch.bfloat16)  # as the checkpoint stores it


def train(model, rows):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
    for _ in range(20):
        with torch.autocast("cpu", torch.bfloat16):
            output = model(rows)
        nn.functional.mse_loss(output.float(), rows[:, :1].float()).backward()
        optimizer.step()
        optimizer.zero_grad()


dist.init_process_group("gloo")
rows = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
if "--fixed" in sys.argv:
    # --8<-- [start:fixed]
    trained = load().float()  # the optimizer updates float32; autocast still computes in bfloat16
    # --8<-- [end:fixed]
else:
    # --8<-- [start:fails]
    trained = load()  # the optimizer updates bfloat16
    # --8<-- [end:fails]
own = rows[dist.get_rank() :: dist.get_world_size()]
train(DistributedDataParallel(trained), own.to(trained[0].weight.dtype))
reference = load().float()
train(reference, rows)
torch.testing.assert_close(trained.float().state_dict(), reference.state_dict())
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
