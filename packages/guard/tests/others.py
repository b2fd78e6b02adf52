"""What other checks say of every silent run: `python packages/guard/tests/others.py [FILE ...]`.

It is stored in packages/guard/others.json. A launch for each check and each repro's file: right variants first, one of each
strategy, since a check that speaks there too tells nothing apart, then the silent ones. What the log has more than without
the check is what the check says. A launch that dies goes on behind the variant that killed it; where that was the first,
the others are not asked. All of it takes an hour, one FILE (as RO-0001/repro.py) minutes. Stored of a check is what differs
from the run without it.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GUARD = ROOT / "packages" / "guard"
LIMIT = 600  # seconds of a launch
GIVEN_UP = 60  # seconds that a rank waits for another: that it does not come may be all that a check says
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


def asked():
    """file → (right variants, silent variants), names as the evidence has them, of two ranks."""
    from readyonce.data import catalog
    from readyonce.pages import guard

    known = catalog.load(ROOT).require_sound()
    silent, right, strategies = {}, {}, {}
    for incident, run in guard.watched(known):
        variant = incident.variants[run.variant]
        file = f"{incident.id}/{variant.script}"
        strategy = run.facts["strategy"], run.facts.get("orig_params")  # FSDP1 logs otherwise with these
        if variant.launcher == "torchrun" and variant.processes == 2:
            if run.outcome in guard.SILENT:
                silent.setdefault(file, []).append(run.variant)
                strategies.setdefault(file, {})[strategy] = None
            elif run.outcome == "match" and not run.guard.codes:
                fixed = run.variant == incident.meta.fix.variant
                right[file, strategy] = run.variant if fixed else right.get((file, strategy), run.variant)
    rights = {file: [right[file, it] for it in strategies[file] if (file, it) in right] for file in silent}
    return {file: (rights[file], variants) for file, variants in silent.items() if rights[file]}


def rank(check, results, file, *variants):
    sys.path.insert(0, str(ROOT / "scripts" / "readyonce" / "lab"))
    import torch
    import torch.distributed as dist
    import worker

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=GIVEN_UP))
    if check == "set_detect_anomaly(True)":
        torch.autograd.set_detect_anomaly(True)
    watching = None
    if check == "the guard":
        sys.path.insert(0, str(GUARD))
        import readyonce_guard as watching
    module = worker.load(str(ROOT / "snippets" / file))
    if "deepspeed" in sys.modules:
        sys.modules["deepspeed"].ops.__compatible_ops__["deepspeed_shm_comm"] = False
        if check == "DeepSpeed enable_sanity_checks":
            checked(sys.modules["deepspeed"])
    if check == "DDP logging data":
        logged(torch.nn.parallel.DistributedDataParallel)
    for variant in variants:
        print(f"=== {variant}", file=sys.stderr, flush=True)
        try:
            if watching:
                with watching.automatic(timeout=GIVEN_UP):
                    outcome = module.run(variant)["outcome"]
            else:
                outcome = module.run(variant)["outcome"]
        except Exception as error:
            outcome = f"stopped: {type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"
            if watching and isinstance(error, watching.GuardError):
                outcome = "stopped: " + " ".join(finding.code for finding in error.findings)
        if dist.get_rank() == 0:
            with open(results, "a") as file_of:
                print(json.dumps([variant, outcome]), file=file_of, flush=True)
        dist.barrier()
    os._exit(0)


def checked(deepspeed):
    plain = deepspeed.initialize

    def initialize(*args, config, **options):
        zero = {**config["zero_optimization"], "enable_sanity_checks": True}
        return plain(*args, config={**config, "zero_optimization": zero}, **options)

    deepspeed.initialize = initialize


def logged(wrapper):
    plain = wrapper.forward

    def forward(self, *inputs, **options):
        data = self._get_ddp_logging_data()
        if told := {key: value for key, value in data.items() if "error" in key or "warn" in key}:
            print(told, file=sys.stderr, flush=True)
        return plain(self, *inputs, **options)

    wrapper.forward = forward


def said(log):
    """Lines of a log by variant, without what changes from run to run."""
    parts = re.split(r"^=== (.*)$", log, flags=re.MULTILINE)
    lines = {}
    for name, text in zip(parts[1::2], parts[2::2]):
        known = lines.setdefault(name, set())
        for line in text.splitlines():
            # Torch warns of its own deprecated calls now here, now there; no check says that.
            if line.strip() and "FutureWarning" not in line and line.strip() != "return func(*args, **kwargs)":
                line = re.sub(r"/\S*/(site-packages|bin|tests|packages|snippets)/", r"\1/", line)
                line = re.sub(r"\[['\"].*['\"]\]", "[...]", line)  # names of parameters
                known.add(re.sub(r"[\d.]+|0x\w+", "N", line).strip())
    return lines


def launched(check, file, variants):
    """variant → (outcome, lines of the log)."""
    found, left = {}, list(variants)
    while left:
        with tempfile.TemporaryDirectory() as scratch:
            results = Path(scratch) / "results.jsonl"
            results.touch()
            launch = ["timeout", "--kill-after", "10", str(LIMIT), sys.executable, "-m", "torch.distributed.run"]
            launch += ["--standalone", "--nproc-per-node", "2", __file__, check, str(results), file, *left]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", **CHECKS[check]}
            done = subprocess.run(launch, env=environment, capture_output=True, text=True)
            told = dict(map(json.loads, results.read_text().splitlines()))
        lines = said(done.stderr)
        if crashed := next((variant for variant in left if variant not in told), None):
            crash = re.search(r"Signal \d+ \(\w+\)|exitcode\s*: -\d+", done.stderr)
            late = f"no end within {LIMIT} s" if done.returncode == 124 else ""
            told[crashed] = "crashed: " + crash[0] if crash and not late else f"crashed: {late}".removesuffix(": ")
        found |= {variant: (outcome, lines.get(variant, set())) for variant, outcome in told.items()}
        if variants[0] == crashed:
            return found | {variant: ("not asked", set()) for variant in variants[1:]}
        left = [variant for variant in left if variant not in told]
    return found


def main(files):
    path = GUARD / "others.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if files else {"right": [], "checks": {}}
    all_files = asked()
    if unknown := set(files) - all_files.keys():
        sys.exit(f"no silent run in {' '.join(unknown)}; one of: {' '.join(all_files)}")
    files = {file: it for file, it in all_files.items() if file in files or not files}
    with ThreadPoolExecutor(max_workers=2) as pool:  # a launch is mostly imports
        told = {
            (check, file): pool.submit(launched, check, file, [*right, *silent])
            for check in CHECKS
            for file, (right, silent) in files.items()
        }
        for (check, file), launch in told.items():
            base = told["none", file].result()
            kept = {name: it for name, it in stored["checks"].get(check, {}).items() if name.split()[0] != file}
            for variant, (outcome, lines) in launch.result().items():
                it = {"outcome": outcome, "says": sorted(lines - base[variant][1])[:5]}
                if check == "none" or it != {"outcome": base[variant][0], "says": []}:
                    kept[f"{file} {variant}"] = it
            stored["checks"][check] = dict(sorted(kept.items()))
            print(check, file, *sorted({outcome for outcome, _ in launch.result().values()}), flush=True)
    import torch

    stored["torch"] = torch.__version__
    stored["right"] = [f"{file} {variant}" for file, (right, _) in all_files.items() for variant in right]
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank(*sys.argv[1:])
    else:
        main(sys.argv[1:])
