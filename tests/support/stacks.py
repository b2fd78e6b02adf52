"""The truth set of stacks: jobs that were really stopped by one rank, and where it stood."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path

import yaml

from support.fleet import triage
from support.project import TESTS

FOLDER = TESTS / "fleet" / "hung"
FORMS = ("faulthandler", "py-spy", "json", "pickle")


@cache
def answers(folder: Path = FOLDER) -> dict[str, dict[str, int]]:
    """Job → its number of ranks, the rank that went wrong, and the line of train.py where it stands."""
    return yaml.safe_load((folder / "answers.yml").read_text(encoding="utf-8"))


@cache
def dumps(folder: Path = FOLDER) -> dict[str, bytes]:
    """`JOB/FORM/FILE` → bytes."""
    with tarfile.open(folder / "stacks.tar.xz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def cases(folder: Path = FOLDER) -> list[tuple[str, str]]:
    """(job, form) of each set of dumps."""
    return sorted({tuple(name.split("/")[:2]) for name in dumps(folder)})


def answer(job: str, form: str, folder: Path = FOLDER):
    """What triage says of these dumps alone."""
    (found,) = triage({name: data for name, data in dumps(folder).items() if name.startswith(f"{job}/{form}/")})
    return found


def judged(job: str, form: str, folder: Path = FOLDER) -> str:
    """`right`; `untold`: both sides are shown, and none is named; `wrong`: another rank is named; `no line`.

    The Flight Recorder knows lines of collectives only, and none in JSON."""
    known, it = answers(folder)[job], answer(job, form, folder).standing
    apart = it.apart.ranks if it.apart else []
    if apart and apart != [known["bad"]]:
        return "wrong"
    (group,) = [group for group in it.groups if known["bad"] in group.ranks]
    shown = " ".join([group.place.at, group.place.within, group.parts])
    recorded = form in ("json", "pickle") and (group.stand.over or not group.stand.frames)
    if not recorded and f"train.py:{known['line']}" not in shown + " ":
        return "no line"
    return "right" if apart else "untold"
