"""A training of several ranks that hangs, is slow, or neither, for the guard's `--stall`: `torchrun ... stalls.py HOW`."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))
from support.patience import PATIENCE

FOLDER = Path("stalls")


def batches(how, rank, ranks):
    number = 200 if how == "healthy" else 3
    for _ in range(number - (how == "fewer" and rank == ranks - 1)):
        time.sleep(0.1)  # the healthy one takes longer than a stall
        yield torch.ones(2, 4)


def average(value):
    dist.all_reduce(value)
    return value / dist.get_world_size()


def save(model):
    torch.save(model.state_dict(), os.devnull)
    dist.barrier()


def wait_for_a_report(of="in wait_for_a_report;"):
    """Until the guard has said that a rank is here, or something else."""
    while not any(of in path.read_text(encoding="utf-8") for path in FOLDER.glob("report-*.txt")):
        time.sleep(0.1)


def be_stopped(seconds):
    subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


def train(how, rank, ranks):
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watching = contextlib.nullcontext()
    if how.startswith("watched-"):  # the guard in the code, without its command
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
        from readyonce_guard import watch

        how, watching = how.removeprefix("watched-"), watch(model, stall=2, stall_folder=FOLDER)
    with watching:
        for step, batch in enumerate(batches(how, rank, ranks)):
            loss = model(batch + rank).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if how == "skips" and step == 2 and rank != ranks - 1:
                average(loss.detach())
            if step != 1:
                continue
            if how == "saves" and rank == 0:
                save(model)
            if how == "slow" and rank == ranks - 1:
                wait_for_a_report()
            if how == "late" and rank == ranks - 1:
                time.sleep(8)
            if how == "stopped":
                dist.barrier()
                be_stopped(15)
            if how == "dies":
                if rank == ranks - 1:
                    os._exit(0)
                wait_for_a_report()
        if how == "slow":
            wait_for_a_report("ended by itself")
    if how in ("skips", "fewer"):
        dist.barrier()
    print(f"rank {rank} has trained", flush=True)


if __name__ == "__main__":
    import torch._dynamo  # as DDP does; it takes seconds, so not while a step is waited for

    signal.alarm(PATIENCE)
    dist.init_process_group("gloo")
    train(sys.argv[1], dist.get_rank(), dist.get_world_size())
    if sys.argv[1] != "dies":
        dist.destroy_process_group()
