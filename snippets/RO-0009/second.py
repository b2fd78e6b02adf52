"""What ms_swift.py, flagembedding_main.py and tevatron_loss.py share: the verdict on the first gradient.

With the word `bf16-lora` LoRA is trained in bfloat16 with AdamW and clipping. Compared is the gradient before it is
clipped, with one process in bfloat16; it may be off by three times what one process in float32 is.
"""

import sys

import torch
import torch.distributed as dist

ADAPTED, CLIP = "bf16-lora" in sys.argv, 0.01
sys.argv = [word for word in sys.argv if word != "bf16-lora"]
unclipped, clip = [], torch.nn.utils.clip_grad_norm_


def gradient(parameters):
    return torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])


def noted(parameters, *rest, **more):
    parameters = list(parameters)
    unclipped[:] = [gradient(parameters)]
    norm = clip(parameters, *rest, **more)
    assert norm > CLIP and all(p.grad.any() for p in parameters if p.grad is not None)  # the bound acts, and A learns
    return norm


def moved(model, alone):
    """AdamW's step changed each weight that is trained, and no other: `alone` is a copy of the start."""
    pairs = zip(model.parameters(), alone.parameters(), strict=True)
    assert all(after.equal(before) != after.requires_grad for after, before in pairs)


def verdict(name, model, alone, loss, bound, near):
    def one_process(bf16):
        alone.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss(alone).backward()
        return gradient(alone.parameters())

    got, wanted, digits = gradient(model.parameters()), one_process(bf16=False), 3
    if ADAPTED:
        name, near, digits = f"LoRA in bf16, AdamW, clipping | {name}", "within bf16's rounding", 1
        (got,), plain, wanted = unclipped, wanted, one_process(bf16=True)
        bound = 3 * ((wanted - plain).norm() / wanted.norm()).item()
        assert bound < 0.25  # else a gradient half as long could pass
    apart = ((got - wanted).norm() / wanted.norm()).item()
    if dist.get_rank() == 0:
        right = f"one process's, {near}" if apart < bound else "not one process's"
        times = f"{got.norm() / wanted.norm():.{digits}f} times as long"
        print(f"\n=> {name}the gradient is {right}, {times}", flush=True)
        print(f"distance {apart:.1e}, the bound {bound:.1e}", flush=True)


if ADAPTED:
    torch.nn.utils.clip_grad_norm_ = noted
