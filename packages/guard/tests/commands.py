"""The frameworks' own commands behind `python -m readyonce_guard --`: python packages/guard/tests/commands.py ENVIRONMENTS [--write]

ENVIRONMENTS is the folder of the environments that `readyonce verify` made. What the guard said is stored in
packages/guard/commands.json; how the same command ends without it stands in the evidence.
"""

import json
import re
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))

from readyonce.data import catalog, schema
from readyonce.lab import commands as launch
from readyonce.lab import processes
from support.patience import PATIENCE

RUNS = [  # incident, variant, environment: each framework's silent ones, and right ones beside them
    ("RO-0002", "command-vision-both-find-unused-false", "ms-swift-3.5.3"),
    ("RO-0004", "command-ddp-find-unused-false", "ms-swift-3.5.3"),
    ("RO-0005", "command-no-term", "ms-swift-3.5.3"),
    ("RO-0004", "command-ddp-find-unused-false", "ms-swift-4.6.0"),
    ("RO-0004", "command-ddp-non-reentrant", "ms-swift-4.6.0"),
    ("RO-0004", "command-zero3", "ms-swift-4.6.0"),
    ("RO-0005", "command-no-term", "ms-swift-4.6.0"),
    ("RO-0005", "command", "ms-swift-4.6.0"),
    ("RO-0001", "command", "ms-swift-4.6.0"),
    ("RO-0003", "command-embedder-find-unused-false", "flagembedding-1.4.2"),
    ("RO-0003", "command-embedder", "flagembedding-1.4.2"),
    ("RO-0003", "command", "flagembedding-1.4.2"),
    ("RO-0003", "command-embedder-find-unused-false", "flagembedding-1.4.2-transformers-5"),
]
SCRIPTS = [("trl_sft.py", "old", "ms-swift-4.6.0")]  # of snippets/frameworks/run/, with the TRL of that environment
ROOT = Path(__file__).resolve().parents[3]
GUARD = ROOT / schema.GUARD


@contextmanager
def behind_the_guard(command, python, *rest, **options):
    with processes.running([python, GUARD, "--", *command], python, *rest, **options) as process:
        yield process


def said(log, code):
    watching = re.findall(r"^.*?readyonce guard: (watching .*)$", log, re.MULTILINE)
    found = re.findall(r"\[(\w+)\] before optimizer step (\d+): ", log)
    nothing = re.search(r"readyonce guard: nothing was watched: (.*)", log)
    return {
        "exit": code,
        "watching": watching[0] if watching else nothing and nothing[0],
        "codes": sorted({name for name, _ in found}),
        "step": min((int(step) for _, step in found), default=None),
        "removed": bool(re.search(r"optimizer steps watched, \w+ findings; removed", log)),
    }


def main(environments, write):
    known = catalog.load(ROOT)
    path = GUARD.with_name("commands.json")
    stored = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.is_file() else {}
    for id, variant, environment in RUNS:
        python = Path(environments) / environment / "bin" / "python"
        name = f"{id}/{variant} {environment}"
        if name in stored or not python.exists():
            continue
        incident = known.incidents[id]
        with launch.Commands(known, incident, python) as commands:
            commands._made()  # the tiny model needs no guard
            with mock.patch.object(launch, "running", behind_the_guard):
                which = incident.variants[variant]
                code, log, _, seconds = commands._launch(which, commands._script(which, which.lines))
        keep(stored, name, said(log, code) | {"seconds": round(seconds, 1)}, log, path, write)
    for script, word, environment in SCRIPTS:
        python, name = Path(environments) / environment / "bin" / "python", f"{script} {word} {environment}"
        if name in stored or not python.exists():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            command = [*processes.torchrun(python, 2), ROOT / "snippets/frameworks/run" / script, word]
            with behind_the_guard(command, python, scratch) as process:
                code = process.wait(PATIENCE)
            log = processes.log_of(Path(scratch))
        keep(stored, name, said(log, code), log, path, write)


def keep(stored, name, told, log, path, write):
    print(name, json.dumps(told), flush=True)
    if not told["watching"] or told["codes"] == [] and not told["removed"]:
        print(log[-3000:], flush=True)
    stored[name] = told
    if write:
        path.write_text(json.dumps({"runs": stored}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], "--write" in sys.argv)
