"""Accumulation with accelerate, and where the gradients are cleared: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator


def train(accelerator, model, batches, fixed):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    for inputs, targets in batches:
        with accelerator.accumulate(model):
            if not fixed:
                # --8<-- [start:fails]
                optimizer.zero_grad()  # before the last backward of a step it clears what the others have added
                # --8<-- [end:fails]
            accelerator.backward(torch.nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
            if fixed:
                # --8<-- [start:fixed]
                optimizer.zero_grad()  # after the step
                # --8<-- [end:fixed]


accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
rank = accelerator.process_index
torch.manual_seed(0)
model, reference = (torch.nn.Linear(8, 1) for _ in range(2))
reference.load_state_dict(model.state_dict())
inputs, targets = torch.randn(12, 2, 3, 8), torch.randn(12, 2, 3, 1)  # 3 steps of 4 micro-batches, 2 ranks, 3 rows
train(accelerator, model, zip(inputs[:, rank], targets[:, rank]), "--fixed" in sys.argv)
optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
for step in range(0, 12, 4):
    rows, wanted = inputs[step : step + 4].flatten(0, 2), targets[step : step + 4].flatten(0, 2)
    torch.nn.functional.mse_loss(reference(rows), wanted).backward()
    optimizer.step()
    optimizer.zero_grad()
torch.testing.assert_close(model.state_dict(), reference.state_dict())
if rank == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
