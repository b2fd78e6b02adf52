"""Prints what the lint costs against its floors: python tests/bench/lint.py.

A thousand scripts in one call, as a ratio to `grep -c` over the same files; beside it a Python that only reads them, which nothing
written in Python goes below. One file cold, as a ratio to a Python that starts and imports nothing. Seconds of the processor,
median of seven each: on a machine that others use too the clock tells of them.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
LINT = [sys.executable, "-m", "readyonce.cli.main", "lint"]
READ = [sys.executable, "-c", "import sys\nfor name in sys.argv[1:]: open(name, 'rb').read()"]
NUMBER, TIMES = 1000, 7
ENVIRONMENT = {name: it for name, it in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
OTHER = 'set -e\nfor it in data/*.tar; do\n  tar xf "$it" -C "${OUT:-out}"\n  rsync -a out/ "$HOST:$DEST" | tee log.txt\ndone\n'


def seconds(command: list) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, stdout=subprocess.DEVNULL, env=ENVIRONMENT | {"PYTHONPATH": str(ROOT / "scripts")}, cwd=ROOT
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def median(command: list) -> float:
    seconds(command)  # the rules are compiled, the files are in memory
    return statistics.median(seconds(command) for _ in range(TIMES))


traps = yaml.safe_load((ROOT / "tests" / "lint" / "traps.yml").read_text(encoding="utf-8"))
launches = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("snippets/RO-*/launch*.sh"))]
launches += [trap["script"] for trap in traps.values() if "name" not in trap]
with tempfile.TemporaryDirectory() as folder:
    paths = [Path(folder) / f"{number:04}.sh" for number in range(NUMBER)]
    for every in (1, 20):
        for number, path in enumerate(paths):
            text = launches[number // every % len(launches)] if number % every == 0 else OTHER
            path.write_text(text, encoding="utf-8")
        grep = median(["grep", "-c", "swift", *paths])
        for name, command in (("only read", READ), ("lint", LINT)):
            took = median([*command, *paths])
            kind = f"{NUMBER} scripts, one of {every} a launch:" if every > 1 else f"{NUMBER} launches:"
            print(f"{kind:38}{name:10}{took * 1000:6.0f} ms  grep -c {grep * 1000:5.1f} ms  ratio {took / grep:5.1f}")
    one, start = median([*LINT, paths[0]]), median([sys.executable, "-c", ""])
    print(f"{'one, cold:':48}{one * 1000:6.0f} ms  python  {start * 1000:5.1f} ms  ratio {one / start:5.1f}")
