"""What else clears the gradients under accelerate's `accumulate`: torchrun --nproc-per-node 2 cleared.py

Three steps of four micro-batches. The weights are compared with one process that takes each step's micro-batches whole, and
with one that takes only the last of each step, divided by four.
"""

import torch
import torch.distributed as dist
from accelerate import Accelerator

CASES = {  # what is given to `prepare`, what clears, and whether it stands before the backward or after the step
    "the prepared optimizer's zero_grad() after the step": (True, "optimizer", False),
    "model.zero_grad() before the backward": (True, "model", True),
    "model.zero_grad() after the step": (True, "model", False),
    "an optimizer that was not prepared, zero_grad() before the backward": (False, "optimizer", True),
    "an optimizer that was not prepared, zero_grad() after the step": (False, "optimizer", False),
}


def fresh():
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def loss(model, rows, wanted):
    return torch.nn.functional.mse_loss(model(rows), wanted)


def trained(prepared, clears, first):
    model, optimizer = fresh()
    wrapped, optimizer = accelerator.prepare(model, optimizer) if prepared else (accelerator.prepare(model), optimizer)
    clear = wrapped.zero_grad if clears == "model" else optimizer.zero_grad
    for rows, wanted in zip(inputs[:, accelerator.process_index], targets[:, accelerator.process_index], strict=True):
        with accelerator.accumulate(wrapped):
            if first:
                clear()
            accelerator.backward(loss(wrapped, rows, wanted))
            optimizer.step()
            if not first:
                clear()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def one_process(first, share):
    """With the micro-batches of each step from `first` on."""
    model, optimizer = fresh()
    for step in range(0, 12, 4):
        some = slice(step + first, step + 4)
        (loss(model, inputs[some].flatten(0, 2), targets[some].flatten(0, 2)) * share).backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
torch.manual_seed(1)
inputs, targets = torch.randn(12, 2, 3, 8), torch.randn(12, 2, 3, 1)
start = torch.cat([p.detach().flatten() for p in fresh()[0].parameters()])
references = {"one process's": one_process(0, 1.0), "those of the last micro-batches alone": one_process(3, 0.25)}
for name, case in CASES.items():
    ended = trained(*case)
    told = {what: ((ended - it).norm() / (start - it).norm()).item() for what, it in references.items()}
    text = next((what for what, distance in told.items() if distance < 1e-5), "neither one process's nor the last's")
    every = accelerator.gather(ended[None])
    ranks = "equal on both ranks" if torch.equal(*every) else "other on each rank"
    if accelerator.is_main_process:
        print(f"\n=> {name}: the weights are {text}, {ranks}\n{told}", flush=True)
dist.destroy_process_group()
