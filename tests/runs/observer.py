"""Watches repros from outside while they train: the worker loads it in the guard's place, started by test_runs.py.

It knows nothing of the repros' settings: it looks at what they hand to torch and DeepSpeed, and counts calls. Appends one
JSON line for each variant to the file $OBSERVED: `[variant, the facts that it could see]`.
"""

import collections
import contextlib
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch
import torch.utils.checkpoint as checkpointing
from torch.nn import parallel

seen: dict = {}
forwards: collections.Counter = collections.Counter()  # how often each checkpointed module ran since the last backward
depth = 0  # of backwards that run now: a reentrant one runs inside another


def watch_ddp(plain):
    def init(self, module, **options):
        seen.setdefault("strategy", "ddp")
        seen.setdefault("find_unused", options.get("find_unused_parameters", False))
        seen.setdefault("static_graph", options.get("static_graph", False))
        plain(self, module, **options)

    return init


def watch_checkpoints(plain):
    def checkpoint(function, *args, use_reentrant=None, **options):
        seen.setdefault("checkpointing", "reentrant" if use_reentrant else "non-reentrant")
        if depth == 0 and torch.is_grad_enabled():
            forwards[id(getattr(function, "__self__", function))] += 1  # a bound method is a new object each time
        return plain(function, *args, use_reentrant=use_reentrant, **options)

    return checkpoint


def watch_backward(plain):
    def backward(*args, **options):
        global depth
        if depth == 0 and forwards:
            seen["more"] = seen.get("more", False) or max(forwards.values()) > 1
        depth += 1
        try:
            return plain(*args, **options)
        finally:
            depth -= 1
            if depth == 0 and not options.get("retain_graph"):
                forwards.clear()

    return backward


def watch_deepspeed():
    import deepspeed

    plain = deepspeed.initialize

    def initialize(*args, **options):
        zero = (options.get("config") or options["config_params"])["zero_optimization"]  # accelerate: the older name
        engine, *rest = plain(*args, **options)
        seen.setdefault("strategy", f"zero-{engine.zero_optimization_stage()}")
        seen.setdefault("overlap", bool(engine._config.zero_config.overlap_comm))
        trained = sum(getattr(p, "ds_numel", p.numel()) for p in options["model"].parameters() if p.requires_grad)
        seen.setdefault("buckets", "several" if trained > zero.get("reduce_bucket_size", 5e8) else "one")
        seen.setdefault("accumulation", engine.gradient_accumulation_steps())
        no_sync = engine.no_sync

        def counted_by_the_loop():
            seen.pop("accumulation", None)
            return no_sync()

        engine.no_sync = counted_by_the_loop
        return engine, *rest

    deepspeed.initialize = initialize


@contextlib.contextmanager
def automatic(name, **_):
    """Where the worker asks a guard to watch an item of its plan."""
    seen.clear(), forwards.clear()
    yield ()
    if os.environ["RANK"] == "0":
        plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        with open(os.environ["OBSERVED"], "a", encoding="utf-8") as file:
            print(json.dumps([plan["items"][int(name)]["variant"], seen]), file=file)


ddp = parallel.DistributedDataParallel
ddp.__init__ = watch_ddp(ddp.__init__)  # the class itself stays: frameworks ask for it by name
checkpointing.checkpoint = watch_checkpoints(checkpointing.checkpoint)
torch.autograd.backward = watch_backward(torch.autograd.backward)
watch_deepspeed()
