"""DeepSpeed's own checkpointing under ZeRO-2: torchrun --nproc-per-node 2 watch.py deepspeed_own.py non-reentrant (or usual)"""

import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from torch import nn

usual = sys.argv[1] == "usual"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            if usual:
                x = deepspeed.checkpointing.checkpoint(layer, x)
            else:
                # --8<-- [start:checkpointing]
                x = deepspeed.checkpointing.non_reentrant_checkpoint(layer, x)
                # --8<-- [end:checkpointing]
        return x


torch.manual_seed(0)
model, plain, x = Model(), nn.Sequential(*(nn.Linear(8, 8) for _ in range(3))), torch.randn(2, 8, requires_grad=True)
plain.load_state_dict({key.removeprefix("layers."): value for key, value in model.state_dict().items()})
settings = {"train_batch_size": 2, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True}
deepspeed.init_distributed("gloo", verbose=False)
engine, optimizer, _, _ = deepspeed.initialize(
    model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=settings
)
deepspeed.checkpointing.configure(None, deepspeed_config=settings)
reference = torch.optim.SGD(plain.parameters(), lr=0.1)
for _ in range(2):
    engine.backward(engine(x).sum())
    engine.step()
    plain(x).sum().backward()
    reference.step()
    reference.zero_grad()
for ours, theirs in zip(model.parameters(), plain.parameters()):
    torch.testing.assert_close(ours, theirs)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
