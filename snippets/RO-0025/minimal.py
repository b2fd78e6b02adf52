"""A schedule of the learning rate in accelerate's prepare: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.optim.lr_scheduler import LinearLR

UPDATES = 6  # that the training makes; the rate falls from 0.1 to 0 in them


def falling(optimizer, steps):
    return LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=steps)


accelerator = Accelerator(cpu=True)
rank, ranks = accelerator.process_index, accelerator.num_processes
torch.manual_seed(0)
model, reference = (torch.nn.Linear(8, 1) for _ in range(2))
reference.load_state_dict(model.state_dict())
inputs, targets = torch.randn(UPDATES, ranks, 3, 8), torch.randn(UPDATES, ranks, 3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if "--fixed" in sys.argv:
    # --8<-- [start:fixed]
    # a prepared scheduler is stepped once for each process
    scheduler = falling(optimizer, UPDATES * accelerator.num_processes)
    # --8<-- [end:fixed]
else:
    # --8<-- [start:fails]
    scheduler = falling(optimizer, UPDATES)  # over after UPDATES / num_processes
    # --8<-- [end:fails]
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
for rows, wanted in zip(inputs[:, rank], targets[:, rank]):
    accelerator.backward(torch.nn.functional.mse_loss(model(rows), wanted))
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
scheduler = falling(optimizer, UPDATES)
for rows, wanted in zip(inputs.flatten(1, 2), targets.flatten(1, 2)):
    torch.nn.functional.mse_loss(reference(rows), wanted).backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
torch.testing.assert_close(accelerator.unwrap_model(model).state_dict(), reference.state_dict())
if rank == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
