"""The facts that repros tell are those that somebody sees who only watches them train: no mapping is wrong unnoticed."""

import json
import sys
from pathlib import Path

import pytest

from readyonce import lab
from support.project import KNOWN, ROOT

FILES = sorted(
    {
        str(incident.folder / variant.script)
        for incident in KNOWN.incidents.values()
        for variant in incident.variants.values()
        if not variant.is_command and "current" in variant.declared
    }
)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    script, python = Path(__file__).with_name("observer.py"), Path(sys.executable)
    scratch = str(tmp_path_factory.mktemp("watched"))
    with lab.running([*lab.torchrun(python, 2), script, *FILES], python, scratch) as process:
        process.wait(600)
    log = lab.log_of(scratch)
    lines = [json.loads(line) for line in log.splitlines() if line.startswith('{"file"')]
    assert lines, log[-3000:]
    return lines


def test_all_variants_were_watched(watched):
    assert {line["file"] for line in watched} == set(FILES)


def test_what_is_told_is_what_is_stored(watched):
    for line in watched:
        incident = KNOWN.incidents[Path(line["file"]).parent.name]
        if stored := incident.run(line["variant"], "current"):
            assert stored.facts == line["told"], (
                f"{incident.id}/{line['variant']}: `readyonce facts --write` stores them"
            )
            assert stored.outcome == "error" or not line["error"], (line["variant"], line["error"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(Path(file).relative_to(ROOT / "snippets")))
def test_what_is_told_is_what_is_seen(watched, file):
    for line in (line for line in watched if line["file"] == file):
        told, seen = line["told"], line["seen"]
        for name in ("strategy", "find_unused", "static_graph", "overlap", "buckets", "accumulation"):
            if name in seen and not told["strategy"].startswith("fsdp"):
                assert told.get(name, seen[name]) == seen[name], (line["variant"], name)
        if told.get("mode", "train") == "train":
            assert told["checkpointing"] == seen.get("checkpointing", "none"), line["variant"]
        # Of what is checkpointed and trained; a frozen tower may run as often as it likes.
        if told["runs"] != "once" and told["checkpointing"] != "none" and "frozen" not in line["variant"]:
            assert seen["more"], line["variant"]
        if seen.get("more") and told["frozen"] in ("none", "base"):
            assert told["runs"] != "once", line["variant"]
