"""The second setting of trl_liger.py: with the word `bf16-lora`, LoRA in bfloat16, with AdamW and clipping, under ZeRO-3.

The first gradient, averaged over the ranks and not yet clipped, is compared with one process's in bfloat16. It is right where
it is no farther from that than three times the rounding: how far one process in float32 is.
"""

import sys

import deepspeed
import torch
from deepspeed.utils import safe_get_full_grad

ADAPTED, CLIP, seen = "bf16-lora" in sys.argv, 0.001, []
OPTIONS = {"optim": "sgd", "max_grad_norm": 0, "bf16": False}
ZERO = {"gradient_clipping": 0.0}
if ADAPTED:
    OPTIONS = {"optim": "adamw_torch", "max_grad_norm": CLIP, "bf16": True}
    ZERO = {"gradient_clipping": CLIP, "bf16": {"enabled": True}}
step = deepspeed.DeepSpeedEngine.step


def adapter():
    """`B` is not zero at the start: else `A` has no gradient in the first step."""
    from peft import LoraConfig

    return LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False, lora_dropout=0, task_type="CAUSAL_LM")


def adapted(model, weights):
    """The model with an adapter, not the trainer's: TRL may have put a forward of its own into that one."""
    from peft import get_peft_model

    model = get_peft_model(model, adapter())
    model.load_state_dict(weights)
    return model


def before_step(engine, *rest, **more):
    seen.append(torch.cat([safe_get_full_grad(p).float().flatten() for p in engine.parameters() if p.requires_grad]))
    assert seen[-1].norm() > CLIP  # the bound acts
    step(engine, *rest, **more)


def rounded(model, loss):
    """One process's gradient in bfloat16, and three times its distance from float32's, as a share of its length."""
    of = {}
    for dtype in (torch.bfloat16, torch.float32):
        model.to(dtype).zero_grad()
        loss().backward()
        of[dtype] = torch.cat([p.grad.float().flatten() for p in model.parameters() if p.requires_grad])
    bound = 3 * ((of[torch.float32] - of[torch.bfloat16]).norm() / of[torch.bfloat16].norm()).item()
    assert bound < 0.25  # else a gradient half as long could pass
    return of[torch.bfloat16], bound


if ADAPTED:
    deepspeed.DeepSpeedEngine.step = before_step
