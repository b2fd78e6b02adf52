"""DeepSpeed's own checkpointing of a layer that runs twice: torchrun ... watch.py own_checkpointing.py WHICH STRATEGY

WHICH is usual, non-reentrant or keyword, STRATEGY is zero2 or zero3.
"""

import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from setting import ADAPTED, CLIP, adapted, optimizer
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

which, strategy = sys.argv[1:]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x):
        for layer in (*self.layers, self.layers[0]):
            if which == "usual":
                x = deepspeed.checkpointing.checkpoint(layer, x)
            elif which == "keyword":
                x = deepspeed.checkpointing.checkpoint(layer, x, use_reentrant=False)
            else:
                # --8<-- [start:checkpointing]
                x = deepspeed.checkpointing.non_reentrant_checkpoint(layer, x)
                # --8<-- [end:checkpointing]
        return x


deepspeed.init_distributed("gloo", verbose=False)
settings = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": int(strategy[-1])},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "bf16": {"enabled": ADAPTED},
    "gradient_clipping": CLIP if ADAPTED else 0.0,
}
model, data = adapted(Model(), r"layers\.\d"), torch.randn(8, 8)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer(model), config=settings)
for batch in DataLoader(data, batch_size=2, sampler=DistributedSampler(data)):
    x = batch.to(torch.bfloat16 if ADAPTED else torch.float32).requires_grad_()
    engine.backward(engine(x).float().pow(2).mean())
    engine.step()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
