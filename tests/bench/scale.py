"""Prints what many incidents cost: python tests/bench/scale.py [COUNT ...]. By default 10, 100 and 1000, ten minutes.

Incidents made from the skeleton stand beside the real ones, in a copy. Seconds are of CPU, all processes together; Zensical
builds the same tree in the same run. The book and the offline copy are left out.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from readyonce.publish import site
from support.many import generate
from support.project import ROOT, copy_of

PAGES = ("incidents/RO-0001/", "decision/", "", "incidents/", "diagnose/")
READYONCE = [sys.executable, "-m", "readyonce.cli.main"]
FLOOR = "import yaml, pathlib; [yaml.load(p.open(encoding='utf-8'), yaml.CSafeLoader) for p in pathlib.Path('snippets').rglob('*.yml')]"
BUILD = "from pathlib import Path; from readyonce.publish import site; raise SystemExit(site.build(Path.cwd(), take_along=()))"


def main() -> None:
    for count in map(int, sys.argv[1:] or ("10", "100", "1000")):
        with tempfile.TemporaryDirectory(prefix="readyonce-") as folder:
            copy = copy_of(ROOT, Path(folder) / "copy")
            generate(copy, count)
            measure(copy, count)


def measure(copy: Path, count: int) -> None:
    print(f"{count} generated incidents:")
    tell("reading the YAML alone", [sys.executable, "-c", FLOOR], copy)
    tell("render, all of it", [*READYONCE, "render"], copy)
    tell("render, nothing new", [*READYONCE, "render"], copy, "aim: below 2 s")
    tell("check", [*READYONCE, "check"], copy, "aim: below 2 s")
    for words, aim in (
        (["explain", "RO-0001"], "0.15"),
        (["list"], "0.10"),
        (["lint", "snippets/RO-0001/launch.sh"], "0.15"),
    ):
        tell(f"{words[0]}, compiled anew", [*READYONCE, *words], copy)
        tell(f"{words[0]}, nothing new", [*READYONCE, *words], copy, f"aim: {aim} s")
    tell("site, both languages", [sys.executable, "-c", BUILD], copy)
    weights = [len(gzip.compress((copy / "site" / page / "index.html").read_bytes())) / 1000 for page in PAGES]
    print("  HTML, gzip: " + ", ".join(f"/{page} {weight:.1f} kB" for page, weight in zip(PAGES, weights)))
    zensical = str(Path(sys.executable).with_name("zensical"))
    for language, config in site.CONFIG.items():
        mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", config]
        tell(f"MkDocs, {language}", mkdocs, copy)
        tell(f"Zensical, {language}", [zensical, "build", "--strict", "--clean", "-f", config], copy)


def tell(what: str, command: list[str], copy: Path, aim: str = "") -> None:
    environment = os.environ | {"READYONCE_ROOT": str(copy), "NO_MKDOCS_2_WARNING": "1", "JIEBA_LOG": "0"}
    started = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, cwd=copy, env=environment, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        said.seek(0)
        faults = said.read().decode() if status else ""
    # Of the memory, that of the largest process.
    figures = f"{used.ru_utime + used.ru_stime:6.2f} s CPU, {time.monotonic() - started:6.1f} s passed, {used.ru_maxrss >> 10:5d} MiB"
    print(f"  {what:22}{figures}  {aim}", flush=True)
    if faults:
        print("    " + "\n    ".join(faults.splitlines()[-3:]))


if __name__ == "__main__":
    main()
