"""The second setting that each script here is run in: with the word `bf16-lora`, LoRA in bfloat16, with AdamW and clipping.

Without the word nothing changes. `B` of the adapter is not zero at the start, so that `A` has a gradient in the first step.
"""

import sys

import torch
from torch import nn

ADAPTED = "bf16-lora" in sys.argv
CLIP = 0.1
sys.argv = [word for word in sys.argv if word != "bf16-lora"]
torch.manual_seed(0)  # LoRA's frozen weights are nobody's to hand on: each process makes the same ones


def adapted(model, modules="all-linear"):
    """The model, with its adapter."""
    if not ADAPTED:
        return model
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(target_modules=modules, init_lora_weights=False))


def optimizer(model):
    """AdamW in place of SGD."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trained, lr=1e-3) if ADAPTED else torch.optim.SGD(trained, lr=0.1)


def clip(model):
    """Clip by the norm, before the optimizer's step."""
    if ADAPTED:
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
