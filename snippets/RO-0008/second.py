"""What trainer.py and lightning_fsdp.py share: the comparison with one process, and their second setting.

With the word `bf16-lora` it is LoRA in bfloat16 with AdamW and clipping, and the first unclipped gradient is compared
in place of the weights. It may be three times as far from one process's as that one is from its own in float32.
"""

import sys

import torch
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel

ADAPTED, BOUND, RATE = "bf16-lora" in sys.argv, 0.01, 1e-3
SETTING, TRAINED = ("LoRA in bf16, AdamW, clipping | ", "trained ") if ADAPTED else ("", "")


def adapted(model, layers):
    lora = LoraConfig(target_modules=layers, init_lora_weights=False)  # B is not zero, so A has a gradient at once
    return get_peft_model(model, lora) if ADAPTED else model


def optimizer_of(parameters):
    held = [p for p in parameters if p.requires_grad]
    return torch.optim.AdamW(held, lr=RATE) if ADAPTED else torch.optim.SGD(held, lr=0.5)


def whole(model):
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return [p.detach().clone() for p in model.parameters()]
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach().clone() for p in model.parameters()]


def gradient(model):
    """The whole gradients. FSDP gathers only weights, so the gradients stand in their place meanwhile."""
    kept = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.data.zero_() if p.grad is None else p.data.copy_(p.grad)
    found = whole(model)
    for p, before in zip(model.parameters(), kept, strict=True):
        p.data.copy_(before)
    return found


def one_process(model, loss, batches, half=False):
    """What the weights became, or the first gradient."""
    optimizer = optimizer_of(model.parameters())
    for rows in batches:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            value = loss(model, rows)
        value.backward()
        if ADAPTED:
            return gradient(model)
        optimizer.step()
        optimizer.zero_grad()
    return whole(model)


def length(some, others):
    return sum((a - b).square().sum() for a, b in zip(some, others, strict=True)).sqrt().item()


def compared(fresh, loss, batches, ended, seen):
    """How many weights moved, whether these or the first gradient are one process's, and the distance and its limit.

    Both are shares of how long one process's gradient is, or of how far its weights moved.
    """
    start, alone = whole(fresh()), one_process(fresh(), loss, batches, half=ADAPTED)
    trained, zeros = [p.requires_grad for p in fresh().parameters()], [torch.zeros(())] * len(start)
    moved = sum(t and not torch.equal(a, b) for a, b, t in zip(ended, start, trained, strict=True))
    moved = f"{moved} of {sum(trained)} {TRAINED}weights moved"
    got, unit = (seen[0], length(alone, zeros)) if ADAPTED else (ended, length(alone, start))
    apart, norm = length(alone, got) / unit, length(got, zeros)
    limit = 3 * length(alone, one_process(fresh(), loss, batches)) / unit if ADAPTED else 1e-5
    assert limit < 0.25, limit  # else a gradient half as long could pass
    right = "equal one process's" if apart < limit else "are not one process's"
    if ADAPTED:
        right = "the first gradient is one process's" if apart < limit else "the first gradient is not one process's"
        right += f", within rounding, and {'above' if norm > BOUND else 'below'} the bound"
    return moved, right, f"distance {apart:.1e}, limit {limit:.1e}, norm {norm:.1e}"
