"""The noise of `replay`: right settings against a plain backward, in float32, TF32 and bf16. Needs a GPU for TF32.

The page shows packages/guard/noise.json.

python packages/guard/bench/noise.py [--device cpu|cuda] [--processes 1|2] [--json FILE]
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import readyonce_guard
from cost import add

WIDTH, BLOCKS, TOKENS, SEEDS = 256, 4, 256, 5


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.blocks, self.reentrant = nn.ModuleList(Block() for _ in range(BLOCKS)), reentrant

    def forward(self, x):
        for _ in range(2 if self.reentrant else 1):  # what is wrong needs a repeat
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


def one(precision, setting, seed, device):
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    model = Net(setting == "reentrant, repeated").to(device)
    if precision == "bf16":
        model = model.bfloat16()
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=5)
    torch.manual_seed(1000 * seed + dist.get_rank())
    x = torch.randn(TOKENS, WIDTH, device=device).requires_grad_()
    x_of = x.bfloat16() if precision == "bf16" else x
    cast = torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16 autocast")

    def loss(module):
        with cast:
            return (module(x_of).float() - 1).square().mean()

    loss(ddp).backward()
    found = readyonce_guard.replay(ddp, loss, limit=float("inf"), on_finding="record")
    return found.difference, found.noise


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.processes)]
        sys.exit(subprocess.call([sys.executable, *launch, *sys.argv]))
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 4))
    if options.device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if options.device == "cuda" and options.processes == 1 else "gloo")
    rows = []
    for precision in (
        ("float32", "tf32", "bf16 autocast", "bf16")
        if options.device == "cuda"
        else ("float32", "bf16 autocast", "bf16")
    ):
        for setting in ("non-reentrant", "reentrant, repeated"):
            told = [one(precision, setting, seed, options.device) for seed in range(SEEDS)]
            rows.append(
                {
                    "precision": precision,
                    "setting": setting,
                    "difference": [min(d for d, _ in told), max(d for d, _ in told)],
                    "two_replays": max(n for _, n in told),
                    "runs": SEEDS,
                }
            )
            if dist.get_rank() == 0:
                print(json.dumps(rows[-1]), flush=True)
    if dist.get_rank() == 0 and options.json:
        name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
        told = {"torch": torch.__version__, "device": name, "processes": options.processes, "rows": rows}
        add(Path(options.json), told)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
