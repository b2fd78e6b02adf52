"""Prints how long things take, as ratios within this one run. `make bench`, about three minutes.

bench.py            all of it; launches of one variant are timed on a sample
bench.py --alone    every variant in a launch of its own, in place of the sample (15 minutes)
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from readyonce.data import catalog
from readyonce.lab import processes

FLOOR = Path(__file__).with_name("floor.py")
REPEATS = 3


def main() -> None:
    known = catalog.load(catalog.find_root()).require_sound()
    for id in known.incidents:
        one_launch(known, known.incidents[id], alone="--alone" in sys.argv)
    explain(known.root)
    site(known.root)


def one_launch(known, incident, alone: bool) -> None:
    """All variants in one launch, against a bare launch plus the variants' own time."""
    python = Path(sys.executable)
    variants = [v for v in incident.variants.values() if "current" in v.declared]
    floors, wholes, ratios = [], [], []
    for _ in range(REPEATS):  # in turn, so that both see the same machine
        floor = seconds(lambda: bare(python))
        observations = []

        def all_of_them(seen=observations, asked=tuple((v, 1) for v in variants)):
            seen.extend(processes.together(known, incident, asked, python))

        whole = seconds(all_of_them)
        least = floor + sum(o.seconds for o in observations)
        floors.append(floor)
        wholes.append(whole)
        ratios.append(whole / least)
    print(
        f"{incident.id}: {len(variants)} variants in one launch: {statistics.median(wholes):.1f} s; bare launch {statistics.median(floors):.1f} s"
    )
    print(f"  ratio to bare launch + the variants' own time: {spread(ratios)} (aim: at most 1.5)")
    sample = variants if alone else variants[:: max(1, len(variants) // 6)]
    each = [seconds(lambda v=v: processes.alone(known, incident, v, python)) for v in sample]
    total = statistics.mean(each) * len(variants)
    how = "measured" if alone else f"from a sample of {len(sample)}"
    print(
        f"  one launch per variant: {total:.0f} s ({how}), {total / statistics.median(wholes):.1f} times one launch for all"
    )


def bare(python: Path) -> None:
    launched = [*processes.torchrun(python, 2), FLOOR]
    with (
        tempfile.TemporaryDirectory(prefix="readyonce-") as scratch,
        processes.running(launched, python, scratch) as process,
    ):
        assert process.wait() == 0, (Path(scratch) / "log.txt").read_text()


def explain(root: Path) -> None:
    command = [Path(sys.executable).with_name("readyonce"), "explain", "RO-0001"]
    bare_python = [seconds(lambda: run([sys.executable, "-c", "pass"], root)) for _ in range(9)]
    whole = [seconds(lambda: run(command, root)) for _ in range(9)]
    ratio = statistics.median(whole) / statistics.median(bare_python)
    print(
        f"readyonce explain RO-0001: {1000 * statistics.median(whole):.0f} ms (aim: below 300), {ratio:.1f} times `python -c pass`"
    )


def site(root: Path) -> None:
    run(["make", "site"], root)
    unchanged = [seconds(lambda: run(["make", "site"], root)) for _ in range(REPEATS)]
    for stamp in (root / "build" / "stamps").glob("*"):
        stamp.unlink()
    whole = seconds(lambda: run(["make", "site"], root))
    print(
        f"make site, nothing changed: {statistics.median(unchanged):.1f} s (aim: below 10); everything: {whole:.1f} s"
    )


def run(command, root: Path) -> None:
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)


def seconds(action) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
