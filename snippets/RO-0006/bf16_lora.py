"""The second setting of tabs.py and kto.py: with the word `bf16-lora`, LoRA in bfloat16, with AdamW and clipping.

The first gradient, as the framework hands it to the clipping, is compared with one process's in bfloat16. It is right where
it is no farther from that than three times the rounding: how far one process in float32 is.
"""

import sys

import torch
from torch import nn

ADAPTED, CLIP, seen = "bf16-lora" in sys.argv, 0.01, []
OPTIONS = {"optim": "sgd", "max_grad_norm": 0}  # of the Trainer
if ADAPTED:
    OPTIONS = {"bf16": True, "optim": "adamw_torch", "max_grad_norm": CLIP}
clip = nn.utils.clip_grad_norm_


def adapted(model, modules):
    """The model with its adapter, whose `B` is not zero: else `A` has no gradient in the first step."""
    if not ADAPTED:
        return model
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(target_modules=modules, init_lora_weights=False))


def optimizer_of(net, rate):
    trained = [p for p in net.parameters() if p.requires_grad]
    return torch.optim.AdamW(trained) if ADAPTED else torch.optim.SGD(trained, lr=rate)


def gradient(parameters):
    return torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])


def noted(parameters, *rest, **more):
    parameters = list(parameters)
    seen.append(gradient(parameters))
    norm = clip(parameters, *rest, **more)
    assert norm > CLIP  # the bound acts
    return norm


def rounded(model, loss):
    """One process's gradient in bfloat16, and three times its distance from float32's, as a share of its length."""
    of = {}
    for bf16 in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            told = loss()
        model.zero_grad()
        told.backward()
        of[bf16] = gradient(model.parameters())
    bound = 3 * ((of[True] - of[False]).norm() / of[True].norm()).item()
    assert bound < 0.25  # else a gradient half as long could pass
    return of[True], bound


if ADAPTED:
    nn.utils.clip_grad_norm_ = noted
