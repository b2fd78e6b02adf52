"""A checkpoint that rank 0 alone takes from FSDP2: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def train(model, batch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


dist.init_process_group("gloo")
rank = dist.get_rank()
batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
torch.manual_seed(0)
model, reference = nn.Linear(8, 8), nn.Linear(8, 8)
reference.load_state_dict(model.state_dict())
group = dist.new_group(timeout=timedelta(seconds=20))  # so that the hang ends; gloo's own limit is half an hour
train(fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu")), batch[rank::2])
whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
with tempfile.TemporaryFile() as file:
    if "--fixed" in sys.argv:
        # --8<-- [start:fixed]
        state = get_model_state_dict(model, options=whole)  # on every rank: each sends its shards
        if rank == 0:
            torch.save(state, file)
        # --8<-- [end:fixed]
    elif rank == 0:
        # --8<-- [start:fails]
        torch.save(get_model_state_dict(model, options=whole), file)
        # --8<-- [end:fails]
    dist.barrier()  # here the other rank waits
    if rank == 0:
        file.seek(0)
        train(reference, batch)
        torch.testing.assert_close(torch.load(file), dict(reference.state_dict()))
        print("The weights equal one process's.")
dist.destroy_process_group()
