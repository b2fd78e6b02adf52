"""What the tests of clusters share: a project of which a few runs are forgotten, so that a verify has little to do."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from readyonce.data import catalog
from readyonce.lab import made_from, recording, venvs
from support.project import ROOT, command, copy_of

# A few variants of each: what a run takes on a loaded machine, it takes twice.
SOME = {"RO-0009": ["single-own-grad"], "RO-0011": ["ddp-loop", "ddp-everything"]}
MISSING = ("verify", *SOME, "--environment", "current", "--write", "--missing")
# What two runs may not have in common: times, and what their hosts are.
UNEQUAL = re.compile(r'"(date|seconds|seconds_per_step|peak_memory|platform|python|device)": [^\n]*')


def forgetful(place: Path) -> tuple[Path, dict[Path, str]]:
    """A copy of the project that lacks the runs of SOME, and its evidence: path → text."""
    copy, paths = copy_of(ROOT, place), []
    # Whose torch this is, the machine decides.
    versions = venvs.describe("current", Path(sys.executable)).versions
    for id, names in SOME.items():
        path = copy / "snippets" / id / "evidence" / "current.json"
        evidence = json.loads(path.read_text(encoding="utf-8"))
        evidence["runs"] = [run for run in evidence["runs"] if run["variant"] not in names]
        evidence["environment"]["versions"] = versions
        path.write_text(json.dumps(evidence), encoding="utf-8")
    known = catalog.load(copy)
    for id in SOME:  # its address is that of the runs that are left
        incident = known.incidents[id]
        evidence = incident.evidence["current"]
        address = made_from.address(known, incident, evidence)
        paths.append(recording.write(incident, evidence.model_copy(update={"made_from": address})))
    return copy, {path: path.read_text(encoding="utf-8") for path in paths}


def run_here(copy: Path, stored: dict[Path, str]) -> list[str]:
    """The evidence of a local run of what was forgotten, which is then forgotten again."""
    here = command(*MISSING, root=copy)
    assert here.returncode == 0, here.stderr
    local = [path.read_text(encoding="utf-8") for path in stored]
    for path, text in stored.items():
        path.write_text(text, encoding="utf-8")
    return local


def assert_same(stored: dict[Path, str], local: list[str]) -> None:
    """Byte for byte what a local run wrote: the same keys in the same order, in the same form."""
    for path, mine, names in zip(stored, local, SOME.values()):
        other = path.read_text(encoding="utf-8")
        assert {run["variant"] for run in json.loads(other)["runs"]} >= set(names)
        assert UNEQUAL.sub("", other) == UNEQUAL.sub("", mine) and len(UNEQUAL.findall(mine)) > 10
