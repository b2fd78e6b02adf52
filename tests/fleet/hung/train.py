"""A training in which one rank stops. Each line where it then stands ends in a comment with the kind.

Called as train(kind, bad): of the ranks `bad` goes wrong after two steps, in the way that `kind` names. With gloo.
"""

import os
import queue
import socket
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LONG = 600


class Shards:
    """A data set that is read piece by piece."""

    def __init__(self, kind, bad):
        self.kind, self.bad = kind, bad

    def read(self, step):
        if dist.get_rank() == self.bad and step == 2 and hasattr(self, self.kind):
            getattr(self, self.kind)()
        return torch.ones(4, 8)

    def sleep(self):
        time.sleep(LONG)  # stands: sleep

    def slow(self):
        time.sleep(20)  # stands: slow

    def lock_file(self):
        while os.path.exists(__file__):
            time.sleep(0.1)  # stands: lock_file

    def lock(self):
        held = threading.Lock()
        held.acquire()
        held.acquire()  # stands: lock

    def dead_loader(self):
        queue.Queue().get()  # stands: dead_loader

    def decoder(self):
        subprocess.run(["sleep", str(LONG)])  # stands: decoder

    def pipe(self):
        os.read(os.pipe()[0], 1)  # stands: pipe

    def download(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.accept()  # stands: download

    def worker(self):
        thread = threading.Thread(target=time.sleep, args=(LONG,), daemon=True)
        thread.start()
        thread.join()  # stands: worker

    def future(self):
        from concurrent.futures import ThreadPoolExecutor

        ThreadPoolExecutor(1).submit(time.sleep, LONG).result()  # stands: future

    def compute(self):
        until = time.monotonic() + LONG
        while time.monotonic() < until:
            torch.ones(64, 64) @ torch.ones(64, 64)  # stands: compute


def mean(value, group=None):
    dist.all_reduce(value, group=group)
    return value / dist.get_world_size()


def evaluate():
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        time.sleep(0.05)  # stands: evaluates, fewer


def save(group):
    dist.barrier(group=group)  # stands: saves


def train(kind, bad):
    rank, others = dist.get_rank(), dist.new_group()
    third = dist.new_group()
    data, model = Shards(kind, bad), DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        batch = data.read(step)
        wrong = rank == bad and step == 2
        if wrong and kind == "evaluates":
            evaluate()
        if wrong and kind == "saves":
            save(others)
        if wrong and kind == "branch":
            dist.barrier(group=others)  # stands: branch
        if wrong and kind == "metric":
            mean(torch.ones(1), others)  # stands: metric
        if wrong and kind == "gathers":
            dist.all_gather_object([None] * dist.get_world_size(), step, group=others)  # stands: gathers
        if wrong and kind == "broadcasts":
            dist.broadcast(torch.ones(1), 1 - min(bad, 1), group=others)  # stands: broadcasts
        if wrong and kind == "receives":
            dist.recv(torch.ones(1), 1 - min(bad, 1), group=others)  # stands: receives
        if wrong and kind == "other_group":
            dist.all_reduce(torch.ones(2), group=third)  # stands: other_group
        if kind == "other_order" and step == 2:
            first, second = (third, others) if rank == bad else (others, third)
            dist.barrier(group=first)  # stands: other_order
            dist.barrier(group=second)
        if wrong and kind == "fewer":
            break
        try:
            if wrong and kind == "swallowed":
                raise ValueError("a sample that cannot be read")
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
        except ValueError:
            continue_with_metrics(others)  # stands: swallowed
        optimizer.zero_grad()
    if kind == "fewer":
        evaluate()


def continue_with_metrics(group):
    mean(torch.ones(1), group)


KINDS = [name for name in vars(Shards) if not name.startswith("_") and name != "read"]
KINDS += ["evaluates", "saves", "branch", "metric", "gathers", "broadcasts", "receives", "other_group", "other_order"]
KINDS += ["fewer", "swallowed"]


def line(kind):
    """Where the rank that goes wrong stands, from 1."""
    with open(__file__, encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            if kind in text.rstrip().partition("# stands: ")[2].split(", "):
                return number
    raise ValueError(kind)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(sys.argv[1], int(sys.argv[2]))
