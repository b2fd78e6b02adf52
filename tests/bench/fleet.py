"""Prints what `triage` costs: python tests/bench/fleet.py [GB, default 1] [files for each GB, default 500].

Jobs of eight ranks, a file for each, of lines as training writes them; one job in four failed. Against `grep -F -c` with the
strings that the rules hold, in turn: seconds of CPU, which other processes on the machine do not change, and those of triage
also by the number of its workers, which work at once; the memory of each worker, for files of 2 MB and for one of all bytes.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil
from diagnose import write

from support.logs import RULES

ERROR = (
    'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n'
    "RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following reasons\n"
)
LATE = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.7]:9448.\n"
RANKS = 8


def main() -> None:
    size = float(sys.argv[1]) if len(sys.argv) > 1 else 1
    count = int(size * (int(sys.argv[2]) if len(sys.argv) > 2 else 500)) // RANKS * RANKS
    with tempfile.TemporaryDirectory(prefix="readyonce-") as folder:
        jobs, failed = generated(Path(folder) / "jobs", count, int(size * 1e9) // count)
        strings = Path(folder) / "strings"
        words = {text for family in RULES["families"] for wording in family["wordings"] for text in wording["all"]}
        strings.write_text("\n".join(sorted(words | set(RULES["launcher"]))) + "\n", encoding="utf-8")
        ratios = []
        for _ in range(2):
            grep, _ = measured(["grep", "-r", "-F", "-c", "-f", str(strings), str(jobs)])
            ours, memory = measured([sys.executable, "-m", "readyonce", "triage", str(jobs)], failed)
            ratios.append(ours / grep)
            print(f"  {size:g} GB in {count} files: grep {grep:.1f} s, triage {ours:.1f} s of CPU", flush=True)
        ratio, cores = max(ratios), os.cpu_count() or 1
        print(
            f"fleet: {ratio:.2f} times grep -F -c in CPU, {ratio / cores:.2f} on {cores} cores at once (aim: at most 3)"
        )
        print(f"  {memory >> 20} MiB a worker (aim: at most 300)")
        one = Path(folder) / "one.log"
        with one.open("wb") as whole:
            for path in sorted(jobs.rglob("*.log")):
                whole.write(path.read_bytes())
        ours, memory = measured([sys.executable, "-m", "readyonce", "triage", str(one)])
        print(f"one file of {size:g} GB: {ours:.1f} s of CPU, {memory >> 20} MiB")


def generated(folder: Path, count: int, size: int) -> tuple[Path, int]:
    """Returns the folder and how many jobs failed. One text of `size` serves all: what differs stands at its end."""
    folder.mkdir()
    write(folder / "text", size)
    lines = (folder / "text").read_bytes()[:size].splitlines(keepends=True)
    text = b"".join(line for line in lines if b"Expected to mark" not in line)
    (folder / "text").unlink()
    for number in range(count // RANKS):
        (folder / f"job-{number}").mkdir()
        for rank in range(RANKS):
            bad = number % 4 == 0
            end = (ERROR if rank == number // 4 % RANKS else LATE) if bad else "done\n"
            (folder / f"job-{number}" / f"rank_{rank}.log").write_bytes(text + end.encode())
    return folder, len(range(0, count // RANKS, 4))


def measured(command: list[str], failed: int | None = None) -> tuple[float, int]:
    """(seconds of CPU, the most bytes that one of its processes held in memory)."""
    before, most = resource.getrusage(resource.RUSAGE_CHILDREN), [0]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def watch() -> None:
        while process.poll() is None:
            try:
                for it in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
                    most[0] = max(most[0], it.memory_info().rss)
            except psutil.Error:
                continue
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    said, _ = process.communicate()
    watcher.join()
    assert failed is None or f"{failed}  failed" in said and f"{failed}  ddp-ready-twice" in said, said[-2000:]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, most[0]


if __name__ == "__main__":
    main()
