"""What trainer.py and lightning_accumulate.py share: the comparison with one process, and their second setting.

With the word `bf16-lora` it is LoRA in bfloat16 with AdamW and clipping. The rate is so low that the weights stay where they
were, and each window's unclipped gradient is compared in place of the weights. It may be three times as far from one
process's as that one is from its own in float32.
"""

import sys

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel

ADAPTED, BOUND, RATE = "bf16-lora" in sys.argv, 0.01, 1e-6
SETTING = "LoRA in bf16, AdamW, clipping | " if ADAPTED else ""


def adapted(model, layers):
    lora = LoraConfig(target_modules=layers, init_lora_weights=False)  # B is not zero: A has a gradient in the first step
    return get_peft_model(model, lora) if ADAPTED else model


def whole(model):
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return [p.detach().clone() for p in model.parameters()]
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach().clone() for p in model.parameters()]


def gradient(model):
    """The whole gradient, which stands in the place of the weights for as long as `whole` needs."""
    kept = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.data.zero_() if p.grad is None else p.data.copy_(p.grad)
    found = whole(model)
    for p, before in zip(model.parameters(), kept, strict=True):
        p.data.copy_(before)
    return found


def one_process(model, losses, half):
    """What the weights became, or each window's gradient."""
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.5), []
    for loss in losses:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            value = loss(model)
        value.backward()
        found.append(gradient(model)) if ADAPTED else optimizer.step()
        optimizer.zero_grad()
    return found or [whole(model)]


def distances(some, others):
    return [sum((a - b).norm() for a, b in zip(*pair, strict=True)).item() for pair in zip(some, others, strict=True)]


def compared(fresh, losses, found):
    """How far this is from one process's on the farthest rank: as a share of what is allowed, and of the whole way."""
    alone = one_process(fresh(), losses, half=ADAPTED)
    moved = distances(alone, [[p * (not ADAPTED) for p in whole(fresh())]] * len(alone))
    allowed = [1e-5 * it for it in moved]
    if ADAPTED:
        allowed = [3 * it for it in distances(one_process(fresh(), losses, half=False), alone)]
    apart = distances(alone, found)
    farthest = torch.tensor([max(a / b for a, b in zip(apart, it, strict=True)) for it in (allowed, moved)])
    dist.all_reduce(farthest, dist.ReduceOp.MAX)  # of the ranks
    return farthest.tolist()


def clipped(gradients):
    return all(sum(part.square().sum() for part in it) > BOUND**2 for it in gradients)
