"""The second setting of tabs.py: with the word `bf16-lora`, LoRA in bfloat16, with AdamW and clipping.

Compared is the first gradient, averaged over the ranks and not yet clipped, with one process's in bfloat16. It is right
where it is no farther from that than three times the rounding: how far one process in float32 is.
"""

import inspect
import sys

import deepspeed
import torch
from deepspeed.utils import safe_get_full_grad
from peft import LoraConfig, get_peft_model

ADAPTED, CLIP = "bf16-lora" in sys.argv, 0.01
sys.argv = [word for word in sys.argv if word != "bf16-lora"]
ZERO = {"bf16": {"enabled": True}, "gradient_clipping": CLIP} if ADAPTED else {"gradient_clipping": 0.0}
SETTING, DTYPE = ("LoRA in bf16, AdamW, clipping | ", torch.bfloat16) if ADAPTED else ("", torch.float32)
UPCASTS = ADAPTED and "autocast_adapter_dtype" in inspect.signature(get_peft_model).parameters  # not in PEFT 0.8.2


def peft(model, modules, upcast=False, **settings):
    options = {"autocast_adapter_dtype": upcast} if UPCASTS else {}
    model = get_peft_model(model, LoraConfig(r=2, target_modules=modules, **settings), **options)
    with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
        for key, value in model.named_parameters():
            if "lora_" in key:  # drawn at random
                value.data.copy_(torch.linspace(-0.2, 0.2, value.numel()).view(value.shape))
    return model


def adapted(model):
    return peft(model, ["q_proj", "v_proj"]) if ADAPTED else model


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def stepping(model):
    return torch.optim.AdamW(trained(model), lr=0.1) if ADAPTED else torch.optim.SGD(trained(model), lr=0.5)


def flat(gradients):
    return torch.cat([it.float().flatten() for it in gradients])


def of_ranks(model):
    """The gradient that DeepSpeed has between the backward and the step."""
    return [flat(safe_get_full_grad(p) for p in trained(model))]


def of_one(models, loss):
    """One process's gradient in bfloat16, and that of the same weights in float32."""
    for dtype in (torch.bfloat16, torch.float32):
        for model in models:
            model.to(dtype)
        yield flat(torch.autograd.grad(loss(), trained(models[0])))


def averaged(average, before, model):
    """Whether the copy holds the mean after its first update, which moved what is trained."""
    kept, before, now = (flat(trained(it)).detach() for it in (average, before, model))
    return (kept - before.lerp(now, 0.3)).norm() < 0.05 * (kept - before).norm()  # the copy is rounded to bfloat16


def distance(got, wanted):
    """How far it is from one process, and how far it may be."""
    if not ADAPTED:
        return max(float((a - b).abs().max()) for a, b in zip(got, wanted, strict=True)), 1e-6
    half, full = wanted
    assert got[0].norm() > CLIP
    apart, bound = (((it - half).norm() / half.norm()).item() * times for it, times in ((got[0], 1), (full, 3)))
    assert bound < 0.25  # else a gradient half as long could pass
    return apart, bound
