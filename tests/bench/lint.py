"""Prints what the lint costs against its floors: python tests/bench/lint.py.

A thousand scripts in one call, as a ratio to `grep -c` over the same files; one file cold, as a ratio to a Python that starts
and imports nothing. Median of seven each.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
LINT = [sys.executable, "-m", "readyonce.cli", "lint"]
NUMBER, TIMES = 1000, 7


def seconds(command: list) -> float:
    before = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")}, cwd=ROOT)
    return time.perf_counter() - before


def median(command: list) -> float:
    seconds(command)  # the rules are compiled, the files are in memory
    return statistics.median(seconds(command) for _ in range(TIMES))


traps = yaml.safe_load((ROOT / "tests" / "lint" / "traps.yml").read_text(encoding="utf-8"))
scripts = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("snippets/RO-*/launch*.sh"))]
scripts += [trap["script"] for trap in traps.values() if "name" not in trap]
with tempfile.TemporaryDirectory() as folder:
    paths = [Path(folder) / f"{number:04}.sh" for number in range(NUMBER)]
    for number, path in enumerate(paths):
        path.write_text(scripts[number % len(scripts)], encoding="utf-8")
    many, floor = median([*LINT, *paths]), median(["grep", "-c", "swift", *paths])
    one, start = median([*LINT, paths[0]]), median([sys.executable, "-c", ""])
print(f"{NUMBER} scripts {many * 1000:7.0f} ms   grep -c {floor * 1000:7.1f} ms   ratio {many / floor:6.1f}")
print(f"one, cold    {one * 1000:7.0f} ms   python  {start * 1000:7.1f} ms   ratio {one / start:6.1f}")
