"""DeepSpeed's own checkpointing of a layer that runs twice: torchrun ... watch.py own_checkpointing.py WHICH STRATEGY

WHICH is usual, non-reentrant or keyword, STRATEGY is zero2 or zero3. A gradient that is wrong is an error.
"""

import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from deepspeed.utils import safe_get_full_grad
from torch import nn

which, strategy = sys.argv[1:]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x):
        for layer in (*self.layers, self.layers[0]):
            if not checkpointed:
                x = layer(x)
            elif which == "usual":
                x = deepspeed.checkpointing.checkpoint(layer, x)
            elif which == "keyword":
                x = deepspeed.checkpointing.checkpoint(layer, x, use_reentrant=False)
            else:
                # --8<-- [start:checkpointing]
                x = deepspeed.checkpointing.non_reentrant_checkpoint(layer, x)
                # --8<-- [end:checkpointing]
        return x


deepspeed.init_distributed("gloo", verbose=False)
torch.manual_seed(0)
checkpointed, model, x = False, Model(), torch.randn(2, 8, requires_grad=True)
model(x).pow(2).sum().backward()
wanted = [parameter.grad.clone() for parameter in model.parameters()]
model.zero_grad()
checkpointed = True
settings = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": int(strategy[-1])},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
engine.backward(engine(x).pow(2).sum())
got = [safe_get_full_grad(parameter) for parameter in model.parameters()]
for ours, theirs in zip(got, wanted, strict=True):
    torch.testing.assert_close(ours, theirs)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
