"""What TrainCheck says of the silent variants: `python packages/guard/tests/traincheck.py ENVIRONMENT [--write]`.

ENVIRONMENT is a virtual environment with traincheck, torch and DeepSpeed; it is not among those of the tests. TrainCheck learns
invariants from a trace of a right run, then checks another run's trace. So each silent variant has two right ones of the same
file: one to learn from, one held out. What is violated in the held-out run too tells nothing apart.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# (file, silent, learned from, held out)
CASES = [
    (
        "RO-0001/repro.py",
        "find-unused-false-stack-twice",
        "non-reentrant-find-unused-false-stack-twice",
        "static-graph-stack-twice",
    ),
    (
        "RO-0001/repro.py",
        "find-unused-false-two-forwards",
        "non-reentrant-find-unused-false-two-forwards",
        "static-graph-two-forwards",
    ),
    (
        "RO-0002/repro.py",
        "static-graph-text-first-tower-trained",
        "static-graph-tower-trained",
        "static-graph-text-first",
    ),
    (
        "RO-0003/repro.py",
        "smaller-last-batch-static-graph",
        "lora-twice-off",
        "lora-twice-reentrant-static-graph",
    ),
    (
        "RO-0001/zero.py",
        "zero3-twice-reentrant-small-bucket-accumulate-1",
        "zero3-twice-non-reentrant-small-bucket-accumulate-1",
        "zero3-once-reentrant-small-bucket-accumulate-1",
    ),
    ("RO-0005/repro.py", "no-term-first-unused", "zero-input-first-unused", "zero3-used-no-term"),
]
EQUAL = "Parameter.data stays consistent across training steps"  # its words for: equal on all ranks
LIMIT = 2400  # seconds of each of its commands
# The single-process run that a repro ends with is not part of what somebody would watch.
REFERENCE = re.compile(r"^    reference = train.*$", re.MULTILINE)
# Its collector replaces torch's functions; reentrant checkpointing then takes its own default for a `context_fn` that was given, and
# raises "Passing `context_fn` or `debug` is only supported when use_reentrant=False". Given the replaced one, it runs.
IMPORTED = "from torch.utils.checkpoint import checkpoint\n"
MENDED = (
    "import functools\nimport torch.utils.checkpoint\n"
    "checkpoint = functools.partial(checkpoint, context_fn=torch.utils.checkpoint.noop_context_fn)\n"
)


class Unusable(Exception):
    """One of its commands ended badly; says how."""


def called(environment, folder, program, *words):
    """Run one of its commands; returns seconds and what it printed."""
    variables = {**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
    variables |= {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    before = time.monotonic()
    command = [environment / "bin" / program, *words]
    try:
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise Unusable(f"{program} did not end in {LIMIT} s") from None
    said = done.stdout + done.stderr
    if done.returncode:
        errors = re.findall(r"^.*(?:Error|Signal \d+).*$", said, re.MULTILINE)
        raise Unusable(f"{program} ended with {done.returncode}: {errors[-1].strip()[:200] if errors else ''}")
    return time.monotonic() - before, said


def traced(environment, folder, file, variant, style):
    """Run a variant under its collector; returns seconds."""
    text = (ROOT / "snippets" / file).read_text(encoding="utf-8")
    text, cut = REFERENCE.subn('    return {"variant": variant, "outcome": "not compared"}', text)
    assert cut == 1, file
    text = text.replace(IMPORTED, IMPORTED + MENDED)
    script = Path(file).name
    (folder / script).write_text(text, encoding="utf-8")
    (folder / "run.sh").write_text(f"torchrun --standalone --nproc-per-node 2 {script} {variant}\n")
    words = ["--pyscript", script, "--shscript", "run.sh", "--models-to-track", "model"]
    words += ["--model-tracker-style", style, "--output-dir", variant]
    seconds, said = called(environment, folder, "traincheck-collect", *words)
    if "RESULT" not in said:
        raise Unusable(f"{variant} printed no result under traincheck-collect")
    if not any((folder / variant).glob("trace_*")):
        raise Unusable(f"{variant} left no trace")
    return seconds


def violated(environment, folder, variant):
    """Seconds, and the invariants that a trace violates, each as its text."""
    out = f"checked-{variant}"
    seconds, _ = called(
        environment,
        folder,
        "traincheck-check",
        "-f",
        variant,
        "-i",
        "invariants.json",
        "-o",
        out,
        "--no-html-report",
    )
    found = set()
    for path in (folder / out).rglob("failed.log"):
        text, at, decoder = path.read_text(encoding="utf-8"), 0, json.JSONDecoder()
        while (at := text.find("{", at)) >= 0:
            record, at = decoder.raw_decode(text, at)
            found.add(record["invariant"]["text_description"] or json.dumps(record["invariant"]["params"]))
    return seconds, found


def case(environment, file, silent, right, held_out, style):
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            seconds = [traced(environment, folder, file, variant, style) for variant in (right, held_out, silent)]
            learned, _ = called(environment, folder, "traincheck-infer", "-f", right, "-o", "invariants.json")
            number = len((folder / "invariants.json").read_text(encoding="utf-8").splitlines())
            checked, wrong = violated(environment, folder, silent)
            _, also = violated(environment, folder, held_out)
        except Unusable as error:
            return {"unusable": str(error)}
    return {
        "learned_from": right,
        "held_out": held_out,
        "invariants": number,
        "violated": len(wrong),
        "held_out_violated": len(also),
        "only": len(wrong - also),
        "equal_parameters": EQUAL in wrong - also,
        "seconds": {"trace": round(sum(seconds) / 3), "infer": round(learned), "check": round(checked)},
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("environment", type=Path)
    arguments.add_argument("--style", default="subclass")
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--only", default="")
    options = arguments.parse_args()
    versions = "import importlib.metadata as m; print(m.version('traincheck'), m.version('torch'))"
    environment = options.environment.absolute()
    told = subprocess.run([environment / "bin" / "python", "-c", versions], capture_output=True, text=True, check=True)
    traincheck, torch = told.stdout.split()
    runs = {}
    for file, silent, right, held_out in CASES:
        if options.only in f"{file} {silent}":
            runs[f"{file} {silent}"] = case(environment, file, silent, right, held_out, options.style)
            print(file, silent, json.dumps(runs[f"{file} {silent}"]), flush=True)
    if options.write:
        path = ROOT / "packages" / "guard" / "traincheck.json"
        if path.is_file():
            runs = json.loads(path.read_text(encoding="utf-8"))["runs"] | runs
        runs = {name: runs[name] for file, silent, *_ in CASES if (name := f"{file} {silent}") in runs}
        stored = {"traincheck": traincheck, "torch": torch, "style": options.style, "runs": runs}
        path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
