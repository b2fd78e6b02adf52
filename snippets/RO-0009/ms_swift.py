"""ms-swift's own InfoNCE across ranks, with DDP, and one process: torchrun --nproc-per-node 2 ms_swift.py

The loss is the class that `--task_type embedding --loss_type infonce` chooses; the encoder and the data are this file's.
"""

import copy
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import PartialState
from swift.loss import loss_map
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PAIRS, WIDTH, TEMPERATURE = 4, 8, 0.1  # of each rank; ms-swift's default temperature
PartialState(cpu=True)  # starts gloo, as under the Trainer
rank, world_size = dist.get_rank(), dist.get_world_size()
queries, passages = torch.randn(2, world_size * PAIRS, WIDTH, generator=torch.Generator().manual_seed(1))
torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
alone = copy.deepcopy(encoder)
model = DistributedDataParallel(encoder)
mine = slice(rank * PAIRS, (rank + 1) * PAIRS)
rows = torch.stack([queries[mine], passages[mine]], 1).flatten(0, 1)  # a query, its passage, a query, its passage
loss = loss_map["infonce"](SimpleNamespace(), SimpleNamespace())
loss({"last_hidden_state": F.normalize(model(rows), dim=-1)}, torch.ones(PAIRS)).backward()
scores = F.normalize(alone(queries), dim=-1) @ F.normalize(alone(passages), dim=-1).T
F.cross_entropy(scores / TEMPERATURE, torch.arange(len(scores))).backward()
got, wanted = (torch.cat([p.grad.flatten() for p in it.parameters()]) for it in (encoder, alone))
apart = ((got - wanted).norm() / wanted.norm()).item()
if rank == 0:
    right = "one process's, to a millionth" if apart < 1e-6 else "not one process's"
    print(f"=> the gradient is {right}, {got.norm() / wanted.norm():.3f} times as long", flush=True)
    print(f"distance {apart:.1e}", flush=True)
dist.barrier()
dist.destroy_process_group()
