"""Prints what an error costs that a log says again and again, in both engines: python tests/bench/repeated.py [FAMILY ...].

Every wording of every family, at 64 KB, 1 MB and 16 MB: quoted on one line, quoted on lines of their own, and as errors.
Microseconds for each KB; the last number of a row is how much dearer a KB is than in the text a sixteenth as long, at most:
1 where time grows as the text does, 16 where it grows as its square. Beyond FACTOR the command ends with 1.
About twenty minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from diagnose import measured

from readyonce.diagnose import engine as diagnose
from support.logs import ENGINE, RULES
from support.project import ROOT

SIZES = (64 << 10, 1 << 20, 16 << 20)
FACTOR = 4  # of a KB's cost, from a size to the next
NOTHING = 20  # microseconds for a KB: what costs less is not told from noise
SHAPES = {
    "quoted on one line": ("If you see ", " "),
    "quoted, a line each": ("If you see ", "\nIf you see "),
    "an error, a line each": ("", "\nRuntimeError: "),
}
NODE = """
const { readFileSync } = require("fs");
const [code, data] = process.argv.slice(1).map((path) => readFileSync(path, "utf-8"));
const compiled = JSON.parse(data), engine = new Function(code + "; return readyonceEngine")()(compiled.matching);
const rules = engine.load(compiled);
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { start, unit, size } = JSON.parse(line);
  const log = Buffer.from((start + unit.repeat(size / unit.length + 1)).slice(0, size));
  const before = process.cpuUsage();
  const { json } = engine.diagnose(rules, log, "log", "en");
  const { user, system } = process.cpuUsage(before);
  console.log(JSON.stringify([(user + system) / 1e6, json]));
});
"""
# What a child is told it used at most counts what its parent held when it was started.
PEAK = """
import sys
from readyonce.cli import main
main.main(["diagnose", sys.argv[1], "--format", "json"])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def main() -> int:
    wanted = sys.argv[1:] or [family["family"] for family in RULES["families"]]
    worst = {"Python": (0.0, ""), "JavaScript": (0.0, "")}
    with tempfile.TemporaryDirectory(prefix="readyonce-") as folder:
        (rules := Path(folder) / "rules.json").write_text(json.dumps(RULES), encoding="utf-8")
        code = ROOT / "docs/theme/javascripts/diagnose.js"
        node = Path(sys.executable).with_name("node")
        # Without its own process for compiling, so that all the time counts and counts once.
        with subprocess.Popen(
            [node, "--single-threaded", "-e", NODE, code, rules],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as twin:
            for family in RULES["families"]:
                for number, wording in enumerate(family["wordings"] if family["family"] in wanted else ()):
                    for shape, ends in SHAPES.items():
                        text = " ".join([*wording["all"], *wording.get("needs", [])[:1]])
                        row = f"{family['family']:24} {number:2}  {shape:22}"
                        seconds = zip(*(both(twin, ends[0], text + ends[1], size) for size in SIZES))
                        for engine, times in zip(worst, seconds):
                            each = [1e6 * it / (size >> 10) for it, size in zip(times, SIZES)]
                            worst[engine] = max(worst[engine], (growth(each), row))
                            cells = "  ".join(f"{it:6.0f}" for it in each)
                            print(f"{row} {engine:10}  {cells}  {growth(each):5.2f}", flush=True)
            twin.stdin.close()
        for engine, (most, row) in worst.items():
            print(
                f"{engine}: a KB costs at most {most:.2f} times what it does at the size before (limit {FACTOR}): {row}"
            )
        memory(Path(folder))
    return int(max(worst.values())[0] > FACTOR)


def growth(each: list[float]) -> float:
    """How much dearer a KB is than at the size before, at most."""
    return max(after / max(before, NOTHING) for before, after in pairwise(each))


def both(twin: subprocess.Popen, start: str, unit: str, size: int) -> tuple[float, float]:
    """CPU seconds of each engine; they work at the same time."""
    print(json.dumps({"start": start, "unit": unit, "size": size}), file=twin.stdin, flush=True)
    text = (start + unit * (size // len(unit) + 1))[:size].encode()
    before = time.process_time()
    ours = diagnose.diagnose(ENGINE, text, "log")
    after = time.process_time()
    theirs, json_ = json.loads(twin.stdout.readline())
    assert ours.json == json_, (unit, size, ours.json, json_)
    return after - before, theirs


def memory(folder: Path) -> None:
    """What the command holds of a log that repeats an unknown error, a known one, and a quoted one."""
    for name, line in (
        ("unknown", "ValueError: bad config"),
        ("known", "RuntimeError: Expected to mark a variable ready only once."),
        ("quoted", "If you see Expected to mark a variable ready only once."),
    ):
        used = []
        for size in (2 << 20, 32 << 20):
            (log := folder / "log").write_text((line + "\n") * (size // len(line)), encoding="utf-8")
            cost, _, said = measured([sys.executable, "-c", PEAK, str(log)])
            used.append(f"{size >> 20} MB {cost:.1f} s, {int(said.split()[-2]) >> 10} MiB")
        print(f"the command, {name}: {'; '.join(used)}")


if __name__ == "__main__":
    sys.exit(main())
