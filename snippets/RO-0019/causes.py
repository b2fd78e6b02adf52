"""What rank 0 does alone, and what each rank shows then: torchrun --nproc-per-node 2 causes.py NAME"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def model(middle):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), middle, nn.Linear(8, 1))


def ddp(middle):
    return DistributedDataParallel(model(middle), process_group=group)


def fsdp2():
    return fully_shard(model(nn.Tanh()), mesh=DeviceMesh.from_group(group, "cpu"))


def backward(wrapper):
    wrapper(data).square().mean().backward()


def evaluate(wrapper):
    with torch.no_grad():
        wrapper.eval()(data)


def batches(wrapper):
    for _ in range(3 if rank == 0 else 2):
        backward(wrapper)


def join(wrapper):
    with Join([wrapper]):
        batches(wrapper)


def save(wrapper):
    get_model_state_dict(wrapper, options=StateDictOptions(full_state_dict=True))


def reduce(_):
    dist.all_reduce(torch.ones(1), group=group)


dist.init_process_group("gloo")
rank, name = dist.get_rank(), sys.argv[1]
group = dist.new_group(timeout=timedelta(seconds=20))
data = torch.randn(4, 8, generator=torch.Generator().manual_seed(rank))
wrapper = fsdp2() if name.startswith("fsdp2") else ddp(nn.BatchNorm1d(8) if "buffers" in name else nn.Tanh())
alone = {
    "fsdp2-save": save,
    "fsdp2-evaluate": evaluate,
    "ddp-save": lambda wrapper: wrapper.module.state_dict(),
    "ddp-evaluate": evaluate,
    "ddp-evaluate-buffers": evaluate,
    "ddp-evaluate-buffers-module": lambda wrapper: evaluate(wrapper.module),
    "barrier": lambda _: dist.barrier(group=group),
    "reduce": reduce,
    "reduce-then-all": reduce,
}
try:
    if name in alone and rank == 0:
        alone[name](wrapper)
    if name == "reduce-then-all":
        loss = torch.tensor(10.0 + rank)
        dist.all_reduce(loss, group=group)
        print(f"=> rank {rank}: 10 + 11 = {loss.item()}", flush=True)
    if name == "batches":
        batches(wrapper)
    if name == "batches-join":
        join(wrapper)
    said = "goes on"
except RuntimeError as error:
    ended = any(word in str(error) for word in ("Timed out", "timeout", "timed out"))  # gloo has several texts for it
    said = "waits until the time limit" if ended else str(error)
print(f"=> rank {rank}: {said}", flush=True)
dist.barrier()  # so that none ends before the other has waited
dist.destroy_process_group()
