"""Watches repros from outside while they train, and compares what it sees with the facts that they tell.

    torchrun --nproc-per-node 2 observer.py FILE ...     (started by test_observed.py)

It knows nothing of the repros' settings: it looks at what they hand to torch and DeepSpeed, and counts calls. Prints one
JSON line for each variant: `{"file", "variant", "told", "seen", "error"}`, with the facts that it could see.
"""

import collections
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch
import torch.distributed as dist
import torch.utils.checkpoint as checkpointing
from torch.nn import parallel

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "readyonce"))
import worker

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


def forget(environment):
    """What frameworks keep for the whole process: the next file is another launch."""
    os.environ.clear()
    os.environ.update(environment)
    if accelerate := sys.modules.get("accelerate"):
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerate.state.GradientState._reset_state()


def main(files):
    torch.set_num_threads(1)
    ddp = parallel.DistributedDataParallel
    ddp.__init__ = watch_ddp(ddp.__init__)  # the class itself stays: frameworks ask for it by name
    checkpointing.checkpoint = watch_checkpoints(checkpointing.checkpoint)
    torch.autograd.backward = watch_backward(torch.autograd.backward)
    watch_deepspeed()
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    environment = dict(os.environ)
    for file in files:
        forget(environment)
        module = worker.load(file)
        for variant in module.VARIANTS:
            told = module.facts(variant)
            if told["strategy"] == "single" or variant.startswith("single-process"):
                continue
            seen.clear(), forwards.clear()
            error = worker.observe(module, variant).get("error")
            if dist.get_rank() == 0:
                line = {"file": file, "variant": variant, "told": told, "seen": seen, "error": error}
                print(json.dumps(line), flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
