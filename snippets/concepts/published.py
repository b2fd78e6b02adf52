"""Silent errors that others published, each by its mechanism: do two ranks against one process show it?

    torchrun --nproc-per-node 2 published.py

Needs torch >= 2.6 and no GPU. Each case trains three steps three times: on all ranks, in one process with the same
code, and in one process with the code as it was meant. One line for each says which of them came out equal.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, WIDTH = 3, 4, 8


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))


# --8<-- [start:cases]
def lost_in_transfer(state, bucket):
    """A broken link: once, the sum does not arrive on one of the ranks."""
    state["calls"] += 1
    lost = dist.get_rank() == 1 and state["calls"] == 2
    mine = bucket.buffer().div_(dist.get_world_size())
    done = dist.all_reduce(mine, async_op=True).get_future()
    return done.then(lambda it: it.value()[0] * (0 if lost else 1))


def norms(name):
    return name.startswith("1.")


def above_the_first(name):
    return not name.startswith("0.")


CASES = {
    # pytorch#84803, #96600, Baichuan2#86
    "lost-in-transfer": {"hook": lost_in_transfer},
    # stackoverflow 60335387
    "no-zero-grad": {"zero_grad": False},
    # forum 84911: all but the norms are frozen
    "frozen-by-name": {"trained": norms},
    # mmpretrain#702: all is trained
    "not-frozen": {"meant": above_the_first},
}
# --8<-- [end:cases]


def train(world_size, trained=lambda name: True, zero_grad=True, hook=None):
    """Three steps of plain SGD on this rank's share; with `world_size` 1, on all of the batch."""
    net = model()
    for name, p in net.named_parameters():
        p.requires_grad_(trained(name))
    wrapped, rank = net, 0
    if world_size > 1:
        wrapped, rank = DistributedDataParallel(net), dist.get_rank()
        if hook:
            wrapped.register_comm_hook({"calls": 0}, hook)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    for batch in torch.randn(STEPS, BATCH, WIDTH, generator=torch.Generator().manual_seed(0)):
        (wrapped(batch[rank::world_size]) - 1).square().mean().backward()
        optimizer.step()
        if zero_grad:
            optimizer.zero_grad()
    return [p.detach() for p in net.parameters()]


def equal(mine, other):
    """Within 1e-5 of each tensor's largest value, on every rank."""
    worst = torch.stack([(p - q).abs().max() / q.abs().max().clamp_min(1e-12) for p, q in zip(mine, other)]).max()
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return "equal" if worst <= 1e-5 else "differs"


def run(name):
    case = dict(CASES[name])
    meant = {"trained": case.pop("meant")} if "meant" in case else {}
    ranks = train(dist.get_world_size(), **case)
    first = [p.clone() for p in ranks]
    for p in first:
        dist.broadcast(p, src=0)
    case.pop("hook", None)  # one process sends nothing
    told = {"ranks": first, "same code": train(1, **case), "as meant": train(1, **meant)}
    return {to: equal(ranks, other) for to, other in told.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in CASES:
        told = run(name)
        if dist.get_rank() == 0:
            print(f"{name}:", "; ".join(f"{to} {it}" for to, it in told.items()), flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
