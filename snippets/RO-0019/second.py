"""What tabs.py and accelerate_fsdp1.py share: their second setting, with the word `bf16-lora`.

It is LoRA in bfloat16 with AdamW and clipping. The first unclipped gradient may be three times as far from one
process's as that one is from its own in float32. The weights begin as bfloat16 numbers: no save rounds them.
"""

import sys

import torch
from peft import LoraConfig, get_peft_model

ADAPTED, BOUND = "bf16-lora" in sys.argv, 0.01
SETTING = "LoRA in bf16, AdamW, clipping | " if ADAPTED else ""
sys.argv = [word for word in sys.argv if word != "bf16-lora"]


def adapted(model):
    """The model, with adapters in the second setting."""
    if ADAPTED:  # B is not zero, so A has a gradient at once
        model = get_peft_model(model, LoraConfig(target_modules="all-linear", init_lora_weights=False))
        model.bfloat16().float()
    return model


def optimizer_of(model):
    held = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(held, lr=1e-3) if ADAPTED else torch.optim.SGD(held, lr=0.1)


def flat(gradients):
    return torch.cat([it.float().flatten() for it in gradients])


def one_process(model, rows):
    model(input_ids=rows, labels=rows).loss.backward()
    return flat(p.grad for p in model.parameters() if p.requires_grad)


def told(got, fresh, rows):
    """What is to say of the first gradient, and the numbers: the distance and its limit are shares of one process's length."""
    half, full = (one_process(fresh()[0].to(it), rows) for it in (torch.bfloat16, torch.float32))
    unit, norm = half.norm(), got.norm()
    apart, limit = (got - half).norm() / unit, 3 * (half - full).norm() / unit
    assert limit < 0.25, limit  # else a gradient half as long could pass
    text = f"the first gradient is {'' if apart < limit else 'NOT '}one process's, within rounding, "
    text += f"and {'above' if norm > BOUND else 'below'} the bound"
    return text, f"distance {apart:.1e}, limit {limit:.1e}, norm {norm:.1e}"
