"""DDP: the third hint of "Expected to mark a variable ready only once" is not printed in the case it describes.

torchrun --nproc-per-node 2 script.py
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=True)


def message(find_unused_parameters):
    """What one forward and backward raise: every parameter is used, once."""
    model = DistributedDataParallel(Model(), find_unused_parameters=find_unused_parameters)
    try:
        model(torch.ones(4, 8, requires_grad=True)).sum().backward()
    except RuntimeError as error:
        return str(error)
    return ""


dist.init_process_group("gloo")
with_search, without = message(True), message(False)
if dist.get_rank() == 0:
    hints = [f"{n})" for n in (1, 2, 3) if f"{n})" in with_search]
    advice = "find_unused_parameters=False" in with_search
    print("expected hints 1) 2) 3); the third names find_unused_parameters=False")
    print(
        f"seen     hints {' '.join(hints)}; find_unused_parameters=False is {'' if advice else 'not '}named", end="; "
    )
    print("with it there is", "an error" if without else "no error", flush=True)
dist.barrier()
os._exit(0)
