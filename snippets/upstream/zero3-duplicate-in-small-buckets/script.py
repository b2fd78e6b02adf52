"""ZeRO-3: layers that run twice under reentrant checkpointing lose the gradient of one run, without an error.

torchrun --nproc-per-node 2 script.py            # reduce_bucket_size 100, two layers of 64 elements each
torchrun --nproc-per-node 2 script.py 1000000    # all in one bucket: an AssertionError without a text
"""

import copy
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed


class Twice(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        for layer in (*self.layers, *self.layers):
            x = checkpoint(layer, x, use_reentrant=True).tanh()
        return x.square().mean()


deepspeed.init_distributed("gloo")
torch.manual_seed(0)
model, x = Twice(nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(2))), torch.randn(4, 8, requires_grad=True)
first, second = copy.deepcopy(model.layers), copy.deepcopy(model.layers)  # one process, the two runs kept apart
y = x
for layer in (*first, *second):
    y = layer(y).tanh()
y.square().mean().backward()
config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,  # plain SGD: the update is the gradient
    "zero_optimization": {"stage": 3, "reduce_bucket_size": int(sys.argv[1]) if len(sys.argv) > 1 else 100},
}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), config=config)
engine.backward(engine(x))
engine.step()
with deepspeed.zero.GatheredParameters(model.layers[0].weight):
    seen = first[0].weight - model.layers[0].weight
one, both = first[0].weight.grad, first[0].weight.grad + second[0].weight.grad
if dist.get_rank() == 0:
    print(f"expected {both.norm():.4f}, the norm of the first layer's gradient, both runs added")
    print(f"seen     {seen.norm():.4f}; the gradient of its first run alone has {one.norm():.4f}", flush=True)
dist.barrier()
os._exit(0)
