"""The truth set of triage: jobs that were really run, whose first rank and error are known."""

from __future__ import annotations

import re
import tarfile
from functools import cache

import yaml

from readyonce.fleet import layout, verdict
from readyonce.fleet.reading import read
from support.logs import ENGINE
from support.project import TESTS

TRUTH = yaml.safe_load((TESTS / "fleet" / "answers.yml").read_text(encoding="utf-8"))
LAYOUTS = sorted({name.split("/")[0] for name in TRUTH})


@cache
def truth() -> dict[str, bytes]:
    """name → bytes, `LAYOUT/JOB/...`"""
    with tarfile.open(TESTS / "fleet" / "truth.tar.xz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def triage(files):
    """The answers for files that are held as name → bytes: a plain loop, of one process."""
    return verdict.answers(read(ENGINE, iter([data]), name, layout.place(name)) for name, data in files.items())


def by_name(answers, kind):
    """Its name in TRUTH → the answer, for a layout of the truth set."""
    here, names = [name for name in TRUTH if name.startswith(f"{kind}/")], {}
    for it in answers:
        (name,) = [name for name in here if re.search(rf"/{name.split('/')[1]}(?:/|$)", it.job)]
        assert name not in names, f"{name} fell apart"
        names[name] = it
    return names


@cache
def told(kind):
    return by_name(triage({name: data for name, data in truth().items() if name.startswith(f"{kind}/")}), kind)


def wrong(answer, known):
    """What of an answer is not as it is known to be."""
    if answer.outcome != known["outcome"]:
        return f"{answer.outcome}, not {known['outcome']}"
    if known["outcome"] == "fine":
        return None
    if answer.first.rank not in known["first"]:
        return f"rank {answer.first.rank} ({answer.first.how}, by {answer.why}), not {known['first']}"
    return None
