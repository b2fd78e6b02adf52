"""What other checks say of the silent variants: `python tests/guard/others.py --write` stores it in snippets/guard/others.json.

Each check is one launch over the same variants, and one without it: what the log has more is what the check says.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VARIANTS = [
    ("RO-0001/repro.py", "find-unused-false-stack-twice"),
    ("RO-0001/repro.py", "find-unused-false-two-forwards"),
    ("RO-0002/repro.py", "static-graph-text-first-tower-trained"),
    ("RO-0003/repro.py", "smaller-last-batch-static-graph"),
    ("RO-0001/zero.py", "zero3-twice-reentrant-small-bucket-accumulate-1"),
    ("RO-0005/repro.py", "no-term-first-unused"),
]
RIGHT = [("RO-0001/repro.py", "non-reentrant-stack-twice")]  # a check that speaks here too tells nothing apart
CHECKS = {
    "none": {},
    "DDP logging data": {},
    "TORCH_DISTRIBUTED_DEBUG=INFO": {"TORCH_DISTRIBUTED_DEBUG": "INFO"},
    "TORCH_DISTRIBUTED_DEBUG=DETAIL": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    "set_detect_anomaly(True)": {},
    "ACCELERATE_DEBUG_MODE=1": {"ACCELERATE_DEBUG_MODE": "1"},
    "DeepSpeed enable_sanity_checks": {},
    "the guard": {},
}


def rank(check, results):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    if check == "set_detect_anomaly(True)":
        torch.autograd.set_detect_anomaly(True)
    watching = None
    if check == "the guard":
        sys.path.insert(0, str(ROOT / "snippets" / "guard"))
        import readyonce_guard as watching
    for file, variant in VARIANTS + RIGHT:
        print(f"=== {file} {variant}", file=sys.stderr, flush=True)
        path = ROOT / "snippets" / file
        spec = importlib.util.spec_from_file_location(path.parent.name.replace("-", "") + path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if "deepspeed" in sys.modules:
            sys.modules["deepspeed"].ops.__compatible_ops__["deepspeed_shm_comm"] = False
        if check == "DeepSpeed enable_sanity_checks" and hasattr(module, "config"):
            config = module.config
            module.config = lambda *a, config=config: (
                config(*a) | {"zero_optimization": config(*a)["zero_optimization"] | {"enable_sanity_checks": True}}
            )
        if check == "DDP logging data" and hasattr(module, "DistributedDataParallel"):

            class Logged(module.DistributedDataParallel):
                def forward(self, *inputs, **options):
                    data = self._get_ddp_logging_data()
                    print({k: v for k, v in data.items() if "error" in k or "warn" in k}, file=sys.stderr, flush=True)
                    return super().forward(*inputs, **options)

            module.DistributedDataParallel = Logged
        try:
            if watching:
                with watching.automatic(timeout=60):
                    outcome = module.run(variant)["outcome"]
            else:
                outcome = module.run(variant)["outcome"]
        except Exception as error:
            outcome = f"stopped: {type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"
            if watching and isinstance(error, watching.GuardError):
                outcome = "stopped: " + " ".join(finding.code for finding in error.findings)
        if dist.get_rank() == 0:
            with open(results, "a") as file_of:
                print(json.dumps([file, variant, outcome]), file=file_of, flush=True)
        dist.barrier()
    os._exit(0)


def said(log):
    """Lines of a log by variant, without what changes from run to run."""
    parts = re.split(r"^=== (.*)$", log, flags=re.MULTILINE)
    lines = {}
    for name, text in zip(parts[1::2], parts[2::2]):
        known = lines.setdefault(name, set())
        for line in text.splitlines():
            # Torch warns of its own deprecated calls now here, now there; no check says that.
            if line.strip() and "FutureWarning" not in line and line.strip() != "return func(*args, **kwargs)":
                line = re.sub(r"/\S*/(site-packages|bin|tests)/", r"\1/", line)
                known.add(re.sub(r"[\d.]+|0x\w+", "N", line).strip())
    return lines


def main(write):
    found, base = {}, {}
    for check, variables in CHECKS.items():
        with tempfile.TemporaryDirectory() as scratch:
            results = Path(scratch) / "results.jsonl"
            results.touch()
            launch = [
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                "2",
                __file__,
                check,
                str(results),
            ]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", **variables}
            done = subprocess.run([sys.executable, *launch], env=environment, capture_output=True, text=True)
            told = {
                f"{file} {variant}": outcome
                for file, variant, outcome in map(json.loads, results.read_text().splitlines())
            }
        lines = said(done.stderr)
        if check == "none":
            base = lines
        crash = re.search(r"Signal \d+ \(\w+\)|exitcode\s*: -\d+", done.stderr)
        found[check] = {
            f"{file} {variant}": {
                "outcome": told.get(f"{file} {variant}", "crashed: " + crash[0] if crash else "crashed"),
                "says": sorted(lines.get(f"{file} {variant}", set()) - base.get(f"{file} {variant}", set()))[:5],
            }
            for file, variant in VARIANTS + RIGHT
        }
        print(check, json.dumps(found[check], indent=1), flush=True)
    if write:
        import torch

        path = ROOT / "snippets" / "guard" / "others.json"
        path.write_text(json.dumps({"torch": torch.__version__, "checks": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank(*sys.argv[1:])
    else:
        main("--write" in sys.argv)
