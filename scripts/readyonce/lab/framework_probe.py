"""What a framework's script makes torch do: `snippets/frameworks/run/watch.py` tells what reached it.

`python -m readyonce.lab.framework_probe ENVIRONMENT SCRIPT [WORD]` stores that in `snippets/frameworks/runs.json`.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from readyonce.data.catalog import find_root
from readyonce.data.project import write_whole
from readyonce.lab import processes, venvs

TIME_LIMIT = 600  # seconds for one script


def run(root: Path, python: Path, script: str, *words: str) -> dict[str, Any]:
    """Run a script under `watch.py` in two processes; returns what reached torch."""
    folder = root / "snippets" / "frameworks" / "run"
    command = [*processes.torchrun(python, 2), folder / "watch.py", folder / script, *words]
    with tempfile.TemporaryDirectory() as scratch:
        running = processes.running(command, python, scratch, {"CUDA_VISIBLE_DEVICES": ""})
        with running as process, suppress(subprocess.TimeoutExpired):
            process.wait(TIME_LIMIT)
        said = processes.log_of(scratch)
    if found := re.search(r"RESULT (\{.*\})$", said, re.MULTILINE):
        result: dict[str, Any] = json.loads(found[1])
        return result
    raise RuntimeError(f"{script} {' '.join(words)} told nothing: {processes.message_in(said) or said[-3000:]}")


def main(environment: str, script: str, *words: str) -> None:
    """`environment` is one of snippets/environments/, or the Python of one that is no list here."""
    root = find_root()
    listed = os.path.sep not in environment
    python = venvs.interpreter(root, environment) if listed else Path(environment)
    path = root / "snippets" / "frameworks" / "runs.json"
    stored = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.is_file() else {}
    result = {"date": datetime.date.today().isoformat(), "environment": environment if listed else None, "processes": 2}
    result |= run(root, python, script, *words)
    stored[" ".join((script, *words))] = result
    write_whole(path, json.dumps({"runs": dict(sorted(stored.items()))}, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
