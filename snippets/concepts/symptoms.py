"""Training is wrong, and nothing failed: four checks of a few lines, each tried on a loop that is wrong and on its twin that is right.

    torchrun --nproc-per-node 2 symptoms.py

Needs torch >= 2.6 and no GPU. Copy the check that fits what you see. Whether the ranks differ, right-gradients.py checks.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


# --8<-- [start:moved]
def values(model):
    """Copies of the trainable parameters; of a sharded one, this rank's shard."""
    local = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            shard = p.to_local() if hasattr(p, "to_local") else p
            local[name] = shard.detach().clone()
    return local


def unmoved(before, after):
    """`values` of before and after: what stayed as it was. Right: none."""
    same = {name: torch.equal(p, before[name]) for name, p in after.items()}
    return [name for name, p in after.items() if p.numel() and same[name]]


# --8<-- [end:moved]


# --8<-- [start:loaded]
def not_loaded(model, saved):
    """The parameters that do not hold what `saved` holds. Right: none."""
    names = []
    for name, p in model.named_parameters():
        wanted = saved.get(name)
        if wanted is None or not torch.equal(p.detach().to(wanted), wanted):
            names.append(name)
    return names


# --8<-- [end:loaded]


# --8<-- [start:factor]
def factors(gradients, expected):
    """Each gradient against the one it should be, by name. Right: 1."""
    found = {}
    for name, gradient in gradients.items():
        ratio = gradient.norm() / expected[name].norm()
        found[name] = round(ratio.item(), 3)
    return found


# --8<-- [end:factor]


# --8<-- [start:rate]
def ahead(scheduler, optimizer_steps):
    """How far the schedule is ahead of the optimizer. Right: 0."""
    inner = getattr(scheduler, "scheduler", scheduler)  # of accelerate's
    return inner.last_epoch - optimizer_steps


# --8<-- [end:rate]


WIDTH, STEPS = 8, 3


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))


def batches(size=4):
    return torch.randn(STEPS, size, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))


def moved(wrong):
    sharded = model()
    early = torch.optim.SGD(sharded.parameters(), lr=0.1)
    fully_shard(sharded)
    late = torch.optim.SGD(sharded.parameters(), lr=0.1)
    before = values(sharded)
    sharded(batches()[0]).square().mean().backward()
    (early if wrong else late).step()  # the early one holds parameters that the model has no more
    return unmoved(before, values(sharded))


def loaded(wrong):
    torch.manual_seed(1)
    saved = {name: torch.randn_like(p) for name, p in model().named_parameters()}
    fresh, file = model(), {f"module.{name}": p for name, p in saved.items()} if wrong else saved
    fresh.load_state_dict(file, strict=False)  # of names that do not fit it says nothing
    return not_loaded(fresh, saved)


def factor(wrong, micro_batches=4):
    batch = batches()[0]
    once, parts = model(), model()
    once(batch).square().mean().backward()
    for part in batch.chunk(micro_batches):
        (parts(part).square().mean() / (1 if wrong else micro_batches)).backward()
    of = ({name: p.grad for name, p in m.named_parameters()} for m in (parts, once))
    return {name: each for name, each in factors(*of).items() if each != 1}


def rate(wrong, micro_batches=2):
    optimizer = torch.optim.SGD(model().parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=8)
    for _ in range(STEPS):
        optimizer.step()
        for _ in range(micro_batches if wrong else 1):
            scheduler.step()
    return ahead(scheduler, STEPS)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for check in (moved, loaded, factor, rate):
        told = {word: check(word == "wrong") for word in ("right", "wrong")}
        if dist.get_rank() == 0:
            print(f"{check.__name__}: right: {told['right'] or 'nothing'}; wrong: {told['wrong']}", flush=True)
    dist.barrier()  # without it a rank that is done can take the store away from the other
    dist.destroy_process_group()
