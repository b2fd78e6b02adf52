"""What a framework's script makes torch do: `snippets/frameworks/run/watch.py` tells what reached it.

`python -m readyonce.stack_runs ENVIRONMENT SCRIPT [WORD]` stores that in `snippets/frameworks/runs.json`.
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

from readyonce import lab, launches
from readyonce.catalog import find_root

TIME_LIMIT = 600  # seconds for one script


def run(root: Path, python: Path, script: str, *words: str) -> dict[str, Any]:
    """Run a script under `watch.py` in two processes; returns what reached torch."""
    folder = root / "snippets" / "frameworks" / "run"
    command = [*launches.torchrun(python, 2), folder / "watch.py", folder / script, *words]
    with tempfile.TemporaryDirectory() as scratch:
        running = launches.running(command, python, scratch, {"CUDA_VISIBLE_DEVICES": ""})
        with running as process, suppress(subprocess.TimeoutExpired):
            process.wait(TIME_LIMIT)
        said = launches.log_of(scratch)
    if found := re.search(r"RESULT (\{.*\})$", said, re.MULTILINE):
        result: dict[str, Any] = json.loads(found[1])
        return result
    raise RuntimeError(f"{script} {' '.join(words)} told nothing: {launches.message_in(said) or said[-3000:]}")


def main(environment: str, script: str, *words: str) -> None:
    """`environment` is one of snippets/environments/, or the Python of one that is no list here."""
    root = find_root()
    listed = os.path.sep not in environment
    python = lab.interpreter(root, environment) if listed else Path(environment)
    path = root / "snippets" / "frameworks" / "runs.json"
    stored = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.is_file() else {}
    result = {"date": datetime.date.today().isoformat(), "environment": environment if listed else None, "processes": 2}
    result |= run(root, python, script, *words)
    stored[" ".join((script, *words))] = result
    path.write_text(json.dumps({"runs": dict(sorted(stored.items()))}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
