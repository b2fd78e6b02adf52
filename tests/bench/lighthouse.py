"""Prints Lighthouse's performance of each kind of page on a phone: the median of three runs, half an hour. The aim is 98.

Arguments (`advice/ zh/advice/`) are the pages to judge instead.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from readyonce.publish import site
from support.browser import lighthouse
from support.hosting import behind_nginx, reserved_port
from support.project import ROOT

REPEATS = 3
# One of each.
KINDS = [
    *(
        "",
        "advice/",
        "already-trained/",
        "changes/",
        "cluster/",
        "concepts/ddp-ready/",
        "concepts/glossary/",
        "contributing/",
        "decision/",
        "diagnose/",
    ),
    *("errors/", "errors/ddp-ready-twice/", "errors/look-alikes/", "errors/look-alikes/hccl-ei0006/", "guard/"),
    *("incidents/", "incidents/RO-0001/", "incidents/RO-0001/evidence/", "incidents/RO-0001/files/"),
    *("lint/", "public-examples/", "published/", "symptoms/", "tags/", "triage/", "upstream/"),
]


def main() -> None:
    pages = sys.argv[1:] or [language + name for name in KINDS for language in ("", "zh/")]
    with contextlib.redirect_stdout(sys.stderr):
        assert site.build(ROOT, take_along=()) == 0
    seen: dict[str, list[int]] = {}
    # Behind nginx, as the page `hosting` has it: a plain server packs nothing.
    with (
        tempfile.TemporaryDirectory(prefix="readyonce-") as scratch,
        reserved_port() as port,
        behind_nginx(ROOT / "site", Path(scratch), port),
    ):
        address = f"http://127.0.0.1:{port}/wiki/"
        for it in lighthouse(address, ["performance"], pages * REPEATS):
            seen.setdefault(it["page"].removeprefix(address), []).append(it["scores"]["performance"])
    for page, scores in seen.items():
        print(f"/{page}: {statistics.median(scores):.0f} ({min(scores)} to {max(scores)}; aim: 98)")


if __name__ == "__main__":
    main()
