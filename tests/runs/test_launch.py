"""A framework's command: what is run is the script with a line changed, and what it trained is compared."""

import sys
from pathlib import Path

import pytest

from readyonce.data.catalog import Incident, Variant
from readyonce.data.schema import IncidentFile, Text
from readyonce.lab import commands as launch
from readyonce.lab import processes, recording

TINY = """
import json, sys
print("a line before")
print(json.dumps({"variables": {"MODEL": sys.argv[1]}, "arguments": ["--steps", "2"]}))
"""
SCRIPT = """#!/usr/bin/env bash
# --rate is only mentioned here
set -euo pipefail
python train.py \\
    --output "$OUTPUT" \\
    --rate 1 \\
    --fix yes \\
    "$@"
"""
TRAIN = """
import argparse, pathlib, sys, time, torch
from safetensors.torch import save_file
parser = argparse.ArgumentParser()
for name, default in (("output", ""), ("rate", "1"), ("fix", "no"), ("steps", "1"), ("off", "no")):
    parser.add_argument("--" + name, default=default)
given = parser.parse_args()
if given.off != "yes" and given.fix == "no":
    raise RuntimeError("Expected to mark a variable ready only once. And more")
if given.fix == "sleep":
    time.sleep(600)
if given.fix == "abort":
    aborted = pathlib.Path.cwd().parent / "aborted"
    if not aborted.exists():
        aborted.touch()
        raise SystemExit("terminate called without an active exception")
for step in range(1, int(given.steps) + 1):
    folder = pathlib.Path(given.output) / "run" / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    wrong = 0.5 if given.fix == "wrong" else 0.0
    save_file({"weight": torch.full((2,), step * float(given.rate) + wrong)}, folder / "model.safetensors")
"""


@pytest.fixture
def commands(known, tmp_path):
    for name, content in (("tiny.py", TINY), ("launch.sh", SCRIPT), ("train.py", TRAIN)):
        (tmp_path / name).write_text(content)
    file = IncidentFile.model_construct(id="RO-0900", reference={"--fix": "--off yes"}, time_limit=1)
    with launch.Commands(known, Incident(file, tmp_path, {}, {}), Path(sys.executable)) as opened:
        yield opened


def variant(**lines):
    changed = {f"--{name}": line for name, line in lines.items()}
    return Variant("command", "launch.sh", Text(en="x", zh="x"), 2, "torchrun", {}, lines=changed)


@pytest.mark.parametrize(
    "lines, outcome, error",
    [
        ({}, "match", None),
        ({"fix": ""}, "error", "ddp-ready-twice"),
        ({"fix": "--fix wrong"}, "diverge", None),
        ({"fix": "--fix sleep"}, "hang", None),
        ({"fix": "--fix abort"}, "match", None),  # dies in teardown the first time
    ],
)
def test_outcomes(commands, monkeypatch, lines, outcome, error):
    if outcome == "hang":
        commands._made()  # what has to finish has no such limit
        monkeypatch.setattr(launch, "START_LIMIT", 9)
    seen = commands.run(variant(**lines))
    assert (seen.outcome, seen.error) == (outcome, error), seen.log
    if outcome == "diverge":
        assert seen.gradient_error == pytest.approx(0.5)


def test_what_trains_nothing_is_no_reference(commands):
    with pytest.raises(processes.LabError, match="trained nothing"):
        commands.run(variant(rate="--rate 0"))


def test_a_tiny_model_that_cannot_be_made_says_why(commands, tmp_path):
    (tmp_path / "tiny.py").write_text("raise SystemExit('this release has no such trainer')")
    with pytest.raises(processes.LabError, match="this release has no such trainer"):
        commands.run(variant())


def test_lines():
    changed = recording.with_lines(SCRIPT, {"--fix": "", "--rate": "--rate 2 --more"})
    assert "--fix" not in changed and "\n    --rate 2 --more \\\n" in changed and "# --rate is only" in changed
    for option in ("--none", "--ra"):
        with pytest.raises(processes.LabError, match="stands in 0 lines"):
            recording.with_lines(SCRIPT, {option: ""})
