"""What the guard costs: guarded and unguarded steps by turns in one run, and steps after it removed itself.

    python packages/guard/bench/cost.py [--device cpu|cuda] [--processes 2] [--json FILE] [ddp zero-3 fsdp2]

`hooks`: what a guarded step takes longer, without the comparison before the optimizer's step; `all`: with it. On CPU it is
the process's own time, which other programs do not change; a wait for the other rank is not in it.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import readyonce_guard

SIZES = {"2 M": (256, 4), "16 M": (512, 8), "100 M": (1024, 12)}  # width, blocks: 8 * width**2 parameters each
TOKENS = {"cpu": {"2 M": 1024, "16 M": 512, "100 M": 256}, "cuda": {"2 M": 16384, "16 M": 16384, "100 M": 16384}}
ROUNDS, GUARDED = {"2 M": 48, "16 M": 12, "100 M": 4}, 3


def model_of(size):
    width, blocks = SIZES[size]
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(x)))

    return nn.Sequential(*(Block() for _ in range(blocks)))


def prepared(strategy, size, device):
    """(the model to call and to watch, one training step of it)"""
    model = model_of(size).to(device)
    if strategy == "zero-3":
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_clipping": 0.0,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": 3},
        }
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
        with contextlib.redirect_stdout(sys.stderr):
            engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)

        def step(x):
            engine.backward(engine(x).square().mean())
            engine.step()

        return engine, step
    if strategy == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard

        for block in model:
            fully_shard(block)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step(x):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def measure(strategy, size, device):
    clock = time.process_time if device == "cpu" else time.perf_counter
    model, step = prepared(strategy, size, device)
    width = SIZES[size][0]
    x = torch.randn(TOKENS[device][size], width, device=device) + dist.get_rank()
    compared = []
    check = readyonce_guard.Guard._check

    def timed_check(*args):
        if device == "cuda":
            torch.cuda.synchronize()  # the backward's own work is not the comparison's
        started = clock()
        check(*args)
        compared.append(clock() - started)

    readyonce_guard.Guard._check = timed_check

    def timed(count):
        taken = []
        for _ in range(count):
            if device == "cuda":
                torch.cuda.synchronize()
            started = clock()
            step(x)
            if device == "cuda":
                torch.cuda.synchronize()
            taken.append(clock() - started)
        return taken

    timed(2)
    plain, guarded, sent, memory = [], [], 0, 0
    for _ in range(ROUNDS[size]):
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        plain += timed(GUARDED)
        peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
        guard = readyonce_guard.watch(model, steps=GUARDED, on_finding="warn")
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        guarded += timed(GUARDED)
        if device == "cuda":
            memory = max(memory, torch.cuda.max_memory_allocated() - peak)
        else:
            memory = max(memory, 4 * readyonce_guard.SAMPLED * readyonce_guard.ELEMENTS)
        assert guard.done and not guard.findings, guard.findings
        sent = max(sent, guard.bytes_sent)
        timed(1)  # in its backward the rest goes
    after = timed(ROUNDS[size] * GUARDED)
    left = hasattr(torch.autograd.backward, "__wrapped__") or bool(readyonce_guard._handles)
    readyonce_guard.Guard._check = check
    alone, comparing = statistics.median(plain), statistics.median(compared)
    # Each round's guarded steps against its own plain ones: a machine that slows down slows both.
    rounds = [range(first, first + GUARDED) for first in range(0, len(plain), GUARDED)]
    ratio = statistics.median(
        statistics.median(guarded[it] for it in one) / statistics.median(plain[it] for it in one) for one in rounds
    )
    return {
        "strategy": strategy,
        "size": size,
        "step_ms": round(alone * 1000, 2),
        "hooks": round(ratio - comparing / alone - 1, 4),
        "all": round(ratio - 1, 4),
        "comparison_ms": round(comparing * 1000, 2),
        "after": round(statistics.median(after) / alone - 1, 4),
        "spread": round((statistics.quantiles(plain, n=4)[2] - statistics.quantiles(plain, n=4)[0]) / alone, 4),
        "sent_bytes": sent,
        "memory_bytes": memory,
        "left": left,
    }


def add(path, run):
    """A run more in a file of runs, which need not be there."""
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    path.write_text(json.dumps([*runs, run], indent=1) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json")
    parser.add_argument("--sizes", nargs="*", default=[*SIZES])
    parser.add_argument("strategies", nargs="*", default=["ddp", "zero-3", "fsdp2"])
    options = parser.parse_args()
    if "RANK" not in os.environ:
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.processes)]
        sys.exit(subprocess.call([sys.executable, *launch, *sys.argv]))
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // options.processes))
    if options.device == "cuda":
        torch.cuda.set_device(0)
        os.environ["LOCAL_RANK"] = "0"  # all ranks share the one GPU; DeepSpeed asks this
    else:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    alone_on_gpu = options.device == "cuda" and options.processes == 1
    dist.init_process_group("nccl" if alone_on_gpu else "gloo")
    rows = []
    for strategy in options.strategies:
        for size in options.sizes:
            try:
                row = measure(strategy, size, options.device)
            except Exception as error:
                row = {"strategy": strategy, "size": size, "error": f"{type(error).__name__}: {error}"[:300]}
            rows.append(row)
            if dist.get_rank() == 0:
                print(json.dumps(row), flush=True)
    if dist.get_rank() == 0 and options.json:
        device = (
            torch.cuda.get_device_name()
            if options.device == "cuda"
            else f"cpu, {torch.get_num_threads()} threads a rank"
        )
        told = {"torch": torch.__version__, "device": device, "processes": options.processes, "rows": rows}
        add(Path(options.json), told)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
