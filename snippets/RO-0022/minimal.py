"""A module copied in a model that ZeRO-3 has partitioned: torchrun --nproc-per-node 2 minimal.py [--fixed]"""

import copy
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
        self.text, self.head = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return (self.head(torch.tanh(self.text(x))) - 1).square().mean()


deepspeed.init_distributed("gloo")
batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
mine = batch[dist.get_rank() :: 2]
config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 0.0,  # DeepSpeed 0.19.3 and newer clip at 1.0 unless told otherwise
    "zero_allow_untested_optimizer": True,  # plain SGD
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},  # else ZeRO-3 leaves small ones whole
}
torch.manual_seed(0)
reference = Model()
torch.manual_seed(0)
with deepspeed.zero.Init(config_dict_or_path=config):  # transformers does so in from_pretrained, with HfDeepSpeedConfig
    model = Model()
if "--fixed" in sys.argv:
    # --8<-- [start:fixed]
    with deepspeed.zero.GatheredParameters(list(model.head.parameters())):
        model.head = copy.deepcopy(model.head)
    # --8<-- [end:fixed]
else:
    # --8<-- [start:fails]
    model.head = copy.deepcopy(model.head)  # a copy of nothing: its weight has 0 elements
    # --8<-- [end:fails]
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config)
optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
for _ in range(3):
    engine.backward(engine(mine))
    engine.step()
    reference(batch).backward()
    optimizer.step()
    optimizer.zero_grad()
with deepspeed.zero.GatheredParameters(list(model.parameters())):
    torch.testing.assert_close(model.state_dict(), reference.state_dict())
if dist.get_rank() == 0:
    print("The weights equal one process's.")
dist.destroy_process_group()
