"""Prints what `triage` costs: python tests/bench/fleet.py [GB, default 1] [files for each GB, default 500].

Jobs of the truth set as Slurm lays them, a file for each rank; above what a rank says stand lines of other jobs' progress, with
other numbers in each file, until it is large. Against `grep -F -c` with the strings that the rules hold, over the same files and
with as many processes (xargs -P), in turn: seconds on the clock and seconds of CPU. Others on the machine change the first more
than the second. Memory: the most that the process held that collects the answers, and the most that a worker held, while the first
tenth of the files was read, and all of them.
"""

from __future__ import annotations

import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil

from support.fleet import TRUTH, told, truth
from support.logs import RULES

BLOCK = 256 << 10  # bytes of progress, of which files are made
_NUMBER = re.compile(rb"(?<=\.)\d+|(?<=step )\d+")
Cost = tuple[
    float, float, list[int]
]  # seconds on the clock, seconds of CPU, bytes of the first process and of its children


def main() -> None:
    size = float(sys.argv[1]) if len(sys.argv) > 1 else 1
    count = int(size * (int(sys.argv[2]) if len(sys.argv) > 2 else 500))
    with tempfile.TemporaryDirectory(prefix="readyonce-") as folder:
        jobs = Path(folder) / "jobs"
        paths, failed = generated(jobs, count, int(size * 1e9) // count)
        names, some = Path(folder) / "names", Path(folder) / "some"
        names.write_text("".join(f"{path}\n" for path in paths))
        strings = Path(folder) / "strings"
        words = {text for family in RULES["families"] for wording in family["wordings"] for text in wording["all"]}
        words |= set(RULES["launcher"])
        strings.write_text("\n".join(sorted(words)) + "\n", encoding="utf-8")
        real = sum(path.stat().st_size for path in paths)
        print(f"{real / 1e9:.3g} GB in {len(paths)} files, {failed} jobs failed; {len(words)} strings", flush=True)
        for workers in (2, 1):
            grep = ["xargs", "-a", str(names), "-P", str(workers), "-n", "64", "grep", "-F", "-c", "-f", str(strings)]
            ours = [sys.executable, "-m", "readyonce", "triage", str(jobs)]
            clock, cpu, _ = measured(grep)
            our_clock, our_cpu, memory = measured(ours, failed, workers)
            print(
                f"{workers} at once: grep {clock:.1f} s, {cpu:.1f} s of CPU; triage {our_clock:.1f} s, {our_cpu:.1f} s of CPU, "
                f"{real / 1e6 / our_clock:.0f} MB a second, {memory[1] >> 20} MiB a worker\n"
                f"  {our_clock / clock:.2f} times grep on the clock, {our_cpu / cpu:.2f} times in CPU (aim: at most 3)",
                flush=True,
            )
        some.mkdir()
        for path in paths[: len(paths) // 10]:
            (some / path.name).hardlink_to(path)
        *_, less = measured([sys.executable, "-m", "readyonce", "triage", str(some)], None, 1)
        for who, few, many in zip(("what collects", "a worker"), less, memory):
            print(
                f"memory, {who}: {few >> 20} MiB for a tenth of the files, {many >> 20} MiB for all (aim: at most 300, flat)"
            )


def progress() -> list[bytes]:
    """Blocks of lines that jobs print where nothing is wrong, each with numbers of its own."""
    lines = [
        line
        for name, data in truth().items()
        if name.startswith("slurm/") and TRUTH[f"slurm/{name.split('/')[1]}"]["outcome"] == "fine"
        for line in data.splitlines(keepends=True)
        if b"rror" not in line
    ]
    dice, blocks = random.Random(20), []
    for _ in range(64):
        block = b"".join(dice.choice(lines) for _ in range(4 * BLOCK // 100))
        while len(block) < BLOCK:
            block += b"".join(dice.choice(lines) for _ in range(1000))
        digits = iter(dice.choices(b"0123456789", k=2 * len(block)))
        blocks.append(_NUMBER.sub(partial(_other, digits), block))
    return blocks


def _other(digits: Iterator[int], it: re.Match[bytes]) -> bytes:
    return bytes(next(digits) for _ in it[0])


def generated(folder: Path, count: int, size: int) -> tuple[list[Path], int]:
    """(about `count` files of `size` bytes, how many jobs failed, as triage says of the same jobs without more lines)"""
    of: dict[str, dict[str, bytes]] = {}
    for name, data in truth().items():
        if name.startswith("slurm/"):
            of.setdefault(name.split("/")[1], {})[name.rpartition("/")[2]] = data
    paths: list[Path] = []
    dice, blocks, failed, number = random.Random(7), progress(), 0, 0
    while len(paths) < count:
        job = sorted(of)[number % len(of)]
        failed += told("slurm")[f"slurm/{job}"].outcome == "failed"
        for name, text in of[job].items():
            path = folder / f"{number:05}" / re.sub(r"\d{4}", str(10_000 + number), name, count=1)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                left = max(0, size - len(text)) if "slurm-" not in name else 0
                while left > 0:
                    block = dice.choice(blocks)[:left]
                    file.write(block[: block.rfind(b"\n") + 1])
                    left -= len(block)
                file.write(text)
            paths.append(path)
        number += 1
    return paths, failed


def measured(command: list[str], failed: int | None = None, at_once: int = 0) -> Cost:
    """What a command took. With `failed`: it is triage, and must say that so many jobs failed."""
    before, most, began = resource.getrusage(resource.RUSAGE_CHILDREN), [0, 0], time.monotonic()
    environment = os.environ | {"LC_ALL": "C"} | ({"DASK_NUM_WORKERS": str(at_once)} if at_once else {})
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)

    def watch() -> None:
        while process.poll() is None:
            try:
                first = psutil.Process(process.pid)
                most[0] = max(most[0], first.memory_info().rss)
                # A child that has just been forked still holds its parent's memory.
                workers = [it for it in first.children(recursive=True) if time.time() - it.create_time() > 1]
                most[1] = max([most[1], *(it.memory_info().rss for it in workers)])
            except psutil.Error:
                continue
            time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    said, _ = process.communicate()
    watcher.join()
    clock = time.monotonic() - began
    assert failed is None or f"{failed}  failed" in said, said[:2000]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, most


if __name__ == "__main__":
    main()
