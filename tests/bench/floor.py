"""The least a two-rank launch can cost: the imports of the repros, gloo, and the end."""

import os

import torch
import torch.distributed as dist
from torch import nn  # noqa: F401
from torch.nn.parallel import DistributedDataParallel  # noqa: F401
from torch.utils.checkpoint import checkpoint  # noqa: F401

if not torch.accelerator.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed  # noqa: F401

torch.set_num_threads(1)
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
