"""The fix in code you own: `python ddp-ready-twice.py` runs it on one module."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

layer = nn.Linear(4, 4)
x = torch.ones(2, 4, requires_grad=True)

# --8<-- [start:fix]
y = checkpoint(layer, x, use_reentrant=False)
# --8<-- [end:fix]

y.sum().backward()
assert layer.weight.grad is not None
