"""ZeRO-3: a parameter that gets no gradient in a step is moved by its previous gradient again.

torchrun --nproc-per-node 2 script.py      # stage 3
torchrun --nproc-per-node 2 script.py 2    # stage 2 for comparison: the parameter stays
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, with_head):
        x = self.body(x)
        return (self.head(x) if with_head else x).square().mean()


stage = int(sys.argv[1]) if len(sys.argv) > 1 else 3
deepspeed.init_distributed("gloo")
torch.manual_seed(0)
model = Model()
start = model.head.weight.detach().clone()
config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,  # plain SGD: no momentum, no weight decay
    "zero_optimization": {"stage": stage},
}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), config=config)
x, weights = torch.randn(4, 8), [start]
for with_head in (True, False):
    engine.backward(engine(x, with_head))
    engine.step()
    with deepspeed.zero.GatheredParameters(model.head.weight, enabled=stage == 3):
        weights.append(model.head.weight.detach().clone())
if dist.get_rank() == 0:
    print("expected 0.0000, how far the head's weight moves in the second step, which leaves the head out")
    print(
        f"seen     {(weights[2] - weights[1]).norm():.4f}; in the first step {(weights[1] - weights[0]).norm():.4f}",
        flush=True,
    )
dist.barrier()
os._exit(0)
