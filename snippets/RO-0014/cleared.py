"""What else clears the gradients under accelerate's `accumulate`: torchrun --nproc-per-node 2 cleared.py

Three steps of four micro-batches. The weights are compared with one process that takes each step's micro-batches whole, and
with one that takes only the last of each step, divided by four. With `bf16-lora` it is the first gradient that the ranks have
averaged, of LoRA in bfloat16, with AdamW and clipping.
"""

import os
import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator

ADAPTED = "bf16-lora" in sys.argv
CASES = {  # what is given to `prepare`, what clears, and whether it stands before the backward or after the step
    "the prepared optimizer's zero_grad() after the step": (True, "optimizer", False),
    "model.zero_grad() before the backward": (True, "model", True),
    "model.zero_grad() after the step": (True, "model", False),
    "an optimizer that was not prepared, zero_grad() before the backward": (False, "optimizer", True),
    "an optimizer that was not prepared, zero_grad() after the step": (False, "optimizer", False),
}


def weights(model):
    return [p for p in model.parameters() if p.requires_grad]


def flat(tensors):
    return torch.cat([it.detach().flatten() for it in tensors])


def fresh():
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    if ADAPTED:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(torch.nn.Sequential(model), LoraConfig(target_modules=["0"], init_lora_weights=False))
        return model, torch.optim.AdamW(weights(model), lr=0.1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def loss(model, rows, wanted):
    return torch.nn.functional.mse_loss(model(rows).float(), wanted)


def trained(prepared, clears, first):
    model, optimizer = fresh()
    wrapped, optimizer = accelerator.prepare(model, optimizer) if prepared else (accelerator.prepare(model), optimizer)
    clear = wrapped.zero_grad if clears == "model" else optimizer.zero_grad
    for rows, wanted in zip(inputs[:, accelerator.process_index], targets[:, accelerator.process_index], strict=True):
        with accelerator.accumulate(wrapped):
            if first:
                clear()
            accelerator.backward(loss(wrapped, rows, wanted))
            if ADAPTED and accelerator.sync_gradients:
                averaged.append(flat(p.grad for p in weights(model)))
                assert accelerator.clip_grad_norm_(weights(model), 0.1) > 0.1
            optimizer.step()
            if not first:
                clear()
    return flat(weights(model))


def one_process(first, share):
    """With the micro-batches of each step from `first` on."""
    model, optimizer = fresh()
    for step in range(0, 12, 4):
        some = slice(step + first, step + 4)
        (loss(model, inputs[some].flatten(0, 2), targets[some].flatten(0, 2)) * share).backward()
        optimizer.step()
        optimizer.zero_grad()
    return flat(weights(model))


def gradient(first, share, bf16=True):
    """The first of one process."""
    model, _ = fresh()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        (loss(model, inputs[first:4].flatten(0, 2), targets[first:4].flatten(0, 2)) * share).backward()
    return flat(p.grad for p in weights(model))


accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4, mixed_precision="bf16" if ADAPTED else "no")
torch.manual_seed(1)
inputs, targets = torch.randn(12, 2, 3, 8), torch.randn(12, 2, 3, 1)
start = flat(weights(fresh()[0]))
RIGHT, LAST = "one process's", "those of the last micro-batches alone"
what, of, bound = "weights are", one_process, 1e-5
if ADAPTED:
    LAST = "that of the last micro-batches alone"
    what, of, start = "first averaged gradient is", gradient, 0
    bound = 3 * ((gradient(0, 1.0, bf16=False) - gradient(0, 1.0)).norm() / gradient(0, 1.0).norm()).item()
references = {RIGHT: of(0, 1.0), LAST: of(3, 0.25)}
for name, case in CASES.items():
    averaged = []
    ended = trained(*case)
    got = averaged[0] if ADAPTED else ended
    told = {text: ((got - it).norm() / (start - it).norm()).item() for text, it in references.items()}
    text = next((text for text, distance in told.items() if distance < bound), "neither one process's nor the last's")
    every = accelerator.gather(ended[None])
    ranks = "equal on both ranks" if torch.equal(*every) else "other on each rank"
    if accelerator.is_main_process:
        setting, ranks = ("LoRA in bf16, AdamW, clipping | ", f"the weights {ranks}") if ADAPTED else ("", ranks)
        print(f"\n=> {setting}{name}: the {what} {text}, {ranks}\ndistance {told}, bound {bound:.1e}", flush=True)
dist.barrier()
os._exit(0)  # else gloo's threads may abort at the end: pytorch/pytorch#154976
