"""As many incidents as one likes, made from the skeleton."""

from __future__ import annotations

import shutil
from pathlib import Path

from readyonce.cli import new
from readyonce.data.catalog import MINIMAL_RUNS, SETTINGS
from readyonce.lab import made_from
from support.project import KNOWN

FILLED = {
    "TODO：": "",
    "TODO: ": "",
    "--todo": "--standalone",
    "0.0.0": "1.0.0",
    "owner/repository#1": "a/b#1",
    " # TODO": "",
    "TODO": "something",
}


def generate(copy: Path, count: int) -> None:
    """Incidents of the skeleton's two variants, with evidence as two real runs gave it."""
    real = KNOWN.incidents["RO-0003"].evidence["current"]
    fixed = real.by_variant["non-reentrant"].model_copy(update={"variant": "fixed"})
    options = [it.options for incident in KNOWN.incidents.values() for it in incident.evidence.values()]
    known = {
        "options": {"torchrun": next(it["torchrun"] for it in options if "torchrun" in it)},
        "runs": [real.by_variant["reported"], fixed],
        "made_from": None,  # of the incident that lent them
    }
    evidence = real.model_copy(update=known).model_dump_json(indent=1)
    for number in range(1000, 1000 + count):
        for name in new.create(copy, f"RO-{number}", form="judged"):
            text = (copy / name).read_text(encoding="utf-8")
            for todo, done in FILLED.items():
                text = text.replace(todo, done)
            (copy / name).write_text(text, encoding="utf-8")
        # The skeleton's minimal repro is that of RO-0001, but for its docstring.
        for name in (MINIMAL_RUNS, SETTINGS):
            shutil.copy(KNOWN.incidents["RO-0001"].folder / name, copy / "snippets" / f"RO-{number}")
        record = copy / "snippets" / f"RO-{number}" / "evidence" / "current.json"
        record.parent.mkdir()
        record.write_text(evidence, encoding="utf-8")
        with (copy / made_from.STALE).open("a", encoding="utf-8") as listed:
            listed.write(f"RO-{number}/evidence/current.json\n")
