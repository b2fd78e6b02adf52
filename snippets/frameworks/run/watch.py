"""Says which checkpointing and which DDP setting your training really got: torchrun ... watch.py train.py ARGUMENTS

It runs train.py as it is and prints one line last. A module that runs again inside a backward was checkpointed; a backward
inside a backward is what makes checkpointing reentrant. So it needs no framework, and sees a framework's own functions too.
"""

import importlib.metadata
import json
import os
import runpy
import sys
import time

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel

PACKAGES = "llamafactory axolotl torch transformers accelerate peft trl deepspeed lightning bitsandbytes".split()
depth = repeated = nested = 0
find_unused = set()
inner, build = torch.autograd.backward, DistributedDataParallel.__init__


def backward(*args, **kwargs):
    global depth, nested
    nested += depth > 0
    depth += 1
    try:
        return inner(*args, **kwargs)
    finally:
        depth -= 1


def before_forward(module, args):
    global repeated
    repeated += depth > 0


def wrap(self, *args, **kwargs):
    build(self, *args, **kwargs)
    find_unused.add(self.find_unused_parameters)


torch.autograd.backward, DistributedDataParallel.__init__ = backward, wrap
register_module_forward_pre_hook(before_forward)
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
error = None
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except Exception as caught:
    error = caught

if os.environ.get("RANK", "0") == "0":
    told = {
        "checkpointing": "reentrant" if nested else "non-reentrant" if repeated else "none",
        "find_unused_parameters": find_unused.pop() if len(find_unused) == 1 else None,
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES if name in sys.modules},
    }
    if error:
        told["error"] = f"{type(error).__name__}: {error}".splitlines()[0].strip()
    print("RESULT", json.dumps(told), flush=True)
if error:
    time.sleep(0 if os.environ.get("RANK", "0") == "0" else 5)  # torchrun ends all when one fails; rank 0 speaks first
    raise error
