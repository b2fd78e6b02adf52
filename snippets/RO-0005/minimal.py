"""A head that some batches leave out, under DeepSpeed ZeRO-3: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read by DeepSpeed when it is imported
import deepspeed


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.text, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x, audio):
        x = self.text(x)
        loss = x.square().mean()
        if audio is not None:
            loss = loss + (self.head(x) - audio).square().mean()
        if "--fixed" in sys.argv:
            # --8<-- [start:fixed]
            if audio is None:
                loss = loss + self.head(torch.zeros_like(x)).sum() * 0.0
            # --8<-- [end:fixed]
        else:
            # --8<-- [start:fails]
            loss = loss + sum(p.sum() for p in self.head.parameters()) * 0.0
            # --8<-- [end:fails]
        return loss


def make():
    torch.manual_seed(0)
    model = Model()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


deepspeed.init_distributed("gloo")
x, audio = torch.randn(4, 11, generator=torch.Generator().manual_seed(1)).split([8, 3], dim=1)
mine = slice(dist.get_rank(), None, 2)
config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 0.0,  # DeepSpeed 0.19.3 and newer clip at 1.0 unless told otherwise
    "zero_allow_untested_optimizer": True,  # plain SGD
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},  # else ZeRO-3 leaves small ones whole
}
model, optimizer = make()
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
reference, optimizer = make()
for has_audio in (True, False, True):
    engine.backward(engine(x[mine], audio[mine] if has_audio else None))
    engine.step()
    reference(x, audio if has_audio else None).backward()
    optimizer.step()
    optimizer.zero_grad()
with deepspeed.zero.GatheredParameters(list(model.parameters())):
    torch.testing.assert_close(model.state_dict(), reference.state_dict())
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
