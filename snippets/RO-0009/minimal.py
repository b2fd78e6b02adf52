"""InfoNCE with the other ranks' negatives, under DDP: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def gathered(own):
    if "--fixed" in sys.argv:
        # --8<-- [start:fixed]
        parts = torch.distributed.nn.functional.all_gather(own)  # has gradients
        # --8<-- [end:fixed]
    else:
        # --8<-- [start:fails]
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, own)  # no gradients
        parts[dist.get_rank()] = own
        # --8<-- [end:fails]
    return torch.cat(parts)


def train(wrap, gather, batch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    wrapped, optimizer = wrap(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        queries, passages = (gather(it) for it in F.normalize(wrapped(batch), dim=-1))
        F.cross_entropy(5 * queries @ passages.T, torch.arange(len(queries))).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


dist.init_process_group("gloo")
batch = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))  # four queries and their passages
mine = batch[:, dist.get_rank() :: 2]
trained = train(DistributedDataParallel, gathered, mine)
torch.testing.assert_close(trained, train(lambda model: model, lambda own: own, batch))
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
