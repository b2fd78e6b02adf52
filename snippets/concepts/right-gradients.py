"""Are the gradients right? Compare parameters across ranks, and with one process.

    torchrun --nproc-per-node 2 right-gradients.py
    torchrun --nproc-per-node 2 right-gradients.py reentrant

Needs torch >= 2.0 and no GPU. The second command trains on wrong gradients without an error: its
layers are checkpointed reentrantly and run twice. To check your own model, copy `ranks_differ`, or `off` and `check`.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


# --8<-- [start:ranks]
def ranks_differ(model):
    """Under DDP, called on all ranks: the trainable parameters that are not rank 0's to the bit. Right: none."""
    names = []
    for name, p in model.named_parameters():
        if p.requires_grad:
            first = p.detach().clone()
            dist.broadcast(first, src=0)
            if not torch.equal(first, p.detach()):
                names.append(name)
    return names  # empty on rank 0, which is compared with itself
# --8<-- [end:ranks]


# --8<-- [start:check]
def off(mine, other, start):
    """The largest difference on any rank, as a share of how far the training of `other` moved that tensor."""
    worst = torch.zeros(())
    for p, q, before in zip(mine, other, start, strict=True):
        rounding = 2e3 * torch.finfo(q.dtype).eps * q.abs().max()  # what moves less than this shows nothing
        worst = torch.maximum(worst, (p - q).abs().max() / torch.maximum((q - before).abs().max(), rounding))
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return worst.item()


def check(model, alone, start):
    """After the same steps: `model` trained by all ranks, `alone` by one process on all data, `start` not at all."""
    mine, one, before = ([p.detach() for p in m.parameters() if p.requires_grad] for m in (model, alone, start))
    rank_0 = [p.clone() for p in mine]
    for p in rank_0:
        dist.broadcast(p, src=0)
    return off(mine, rank_0, before), off(mine, one, before)  # right: both at most 1e-3
# --8<-- [end:check]


STEPS, BATCH, WIDTH = 3, 4, 16


class Model(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.use_reentrant = use_reentrant

    def forward(self, x):
        x = x.requires_grad_()
        for layer in [*self.layers, *self.layers]:  # the stack runs twice
            if self.use_reentrant is None:
                x = torch.tanh(layer(x))
            else:
                x = torch.tanh(checkpoint(layer, x, use_reentrant=self.use_reentrant))
        return x


def train(use_reentrant, rank=0, world_size=1, wrap=lambda model: model, steps=STEPS):
    torch.manual_seed(0)  # the same weights and the same data, however many processes
    model = Model(use_reentrant)
    wrapped = wrap(model)  # keep a reference: DDP's hooks die with its wrapper
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in torch.randn(steps, BATCH, WIDTH):
        (wrapped(batch[rank::world_size]) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def main(use_reentrant):
    dist.init_process_group("gloo")
    model = train(use_reentrant, dist.get_rank(), dist.get_world_size(), DistributedDataParallel)
    if names := ranks_differ(model):
        print(f"rank {dist.get_rank()} is not rank 0: {len(names)} parameters, the first {names[0]}", flush=True)
    dist.barrier()
    ranks, one = check(model, train(use_reentrant=None), train(use_reentrant=None, steps=0))
    if dist.get_rank() == 0:
        print(f"between ranks {ranks:.0e}, to one process {one:.0e}:", end=" ")
        print("right" if max(ranks, one) <= 1e-3 else "WRONG GRADIENTS", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(use_reentrant="reentrant" in sys.argv[1:])
    dist.barrier()  # without it a rank that is done can take the store away from the other
    os._exit(0)  # else gloo's threads may abort, or block the end: seen with torch 2.6, pytorch/pytorch#154976
