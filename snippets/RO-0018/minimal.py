"""Several backwards before one step under DeepSpeed ZeRO-2: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


deepspeed.init_distributed("gloo")
batches = torch.randn(3, 4, 2, 2, 8, generator=torch.Generator().manual_seed(1))  # 3 steps of 4 micro-batches, 2 ranks
model, optimizer = make()
config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1,  # the loop below accumulates by itself
    "gradient_clipping": 0.0,  # DeepSpeed 0.19.3 and newer clip at 1.0 unless told otherwise
    "zero_allow_untested_optimizer": True,  # plain SGD
    "zero_optimization": {"stage": 2},
}
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
for micro_batches in batches[:, :, dist.get_rank()]:
    for i, micro_batch in enumerate(micro_batches):
        loss = (engine(micro_batch) - 1).square().mean() / 4
        if "--fixed" in sys.argv:
            # --8<-- [start:fixed]
            engine.set_gradient_accumulation_boundary(i == 3)  # only the last backward before the step ends it
            engine.backward(loss)
            # --8<-- [end:fixed]
        else:
            # --8<-- [start:fails]
            engine.backward(loss)  # each ends a step, and throws away what the backward before it has left
            # --8<-- [end:fails]
    engine.step()
reference, optimizer = make()
for rows in batches.flatten(1, 3):
    (reference(rows) - 1).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.testing.assert_close(model.state_dict(), reference.state_dict())
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
