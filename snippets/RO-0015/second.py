"""The second setting of the scripts here, with the word `bf16-lora`: LoRA in bfloat16, with AdamW and clipping.

Compared is the first gradient: averaged over the ranks, and not yet clipped.
"""

import sys

import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_grad

ADAPTED = "bf16-lora" in sys.argv
CLIP = 0.1
ZERO = {"bf16": {"enabled": True}, "gradient_clipping": CLIP} if ADAPTED else {}


def adapted(model, *parameters):
    """The model with its adapter, and AdamW. `B` is not zero at the start, so that `A` has a gradient in the first step."""
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(target_modules="all-linear", target_parameters=list(parameters) or None, init_lora_weights=False)
    model = get_peft_model(model, lora)
    return model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)


def of_ranks(model):
    """The gradient that DeepSpeed has between the backward and the step."""
    return torch.cat([safe_get_full_grad(p).float().flatten() for p in model.parameters() if p.requires_grad])


def of_one(model, losses, dtype):
    model.to(dtype).zero_grad()
    sum(losses(model)).backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).float().flatten() for p in trained])


def verdict(name, got, alone, losses):
    """Not farther from one process than three times what bfloat16 itself changes there."""
    half, full = (of_one(alone, losses, dtype) for dtype in (torch.bfloat16, torch.float32))
    rounding, apart = ((it - half).norm() / half.norm() for it in (full, got))
    assert got.norm() > CLIP
    assert 3 * rounding < 0.25  # else a gradient half as long could pass
    right = "is one process's" if apart <= 3 * rounding else "is not one process's"
    if dist.get_rank():
        return
    print(f"\n=> LoRA in bf16, AdamW, clipping | {name}: the first gradient {right}", flush=True)
    print(f"distance {apart:.1e}, of bfloat16 itself {rounding:.1e}, norm {got.norm():.1f}", flush=True)
