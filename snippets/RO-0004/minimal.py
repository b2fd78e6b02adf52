"""A vision tower that runs in chunks, under DeepSpeed ZeRO-2: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.tower, self.head = nn.Linear(12, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, images):
        slices = self.patches(images).flatten(0, 1)  # all slices of the batch; vision_batch_size is 16
        if "--fixed" in sys.argv:
            # --8<-- [start:fixed]
            seen = [checkpoint(self.tower, chunk, use_reentrant=False) for chunk in slices.split(16)]
            # --8<-- [end:fixed]
        else:
            # --8<-- [start:fails]
            seen = [checkpoint(self.tower, chunk, use_reentrant=True) for chunk in slices.split(16)]
            # --8<-- [end:fails]
        return (self.head(torch.tanh(torch.cat(seen))) - 1).square().mean()


def make():
    torch.manual_seed(0)
    model = Model()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


deepspeed.init_distributed("gloo")
batch = torch.randn(4, 10, 12, generator=torch.Generator().manual_seed(1))  # four images of ten slices
mine = batch[dist.get_rank() :: 2]
config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 0.0,  # DeepSpeed 0.19.3 and newer clip at 1.0 unless told otherwise
    "zero_allow_untested_optimizer": True,  # plain SGD
    "zero_optimization": {"stage": 2},
}
model, optimizer = make()
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
reference, optimizer = make()
for _ in range(3):
    engine.backward(engine(mine))
    engine.step()
    reference(batch).backward()
    optimizer.step()
    optimizer.zero_grad()
torch.testing.assert_close(model.state_dict(), reference.state_dict())
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
