"""`readyonce_compare`: what it says of right training programs, of wrong ones, and of what it cannot compare."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from readyonce.data.catalog import load
from readyonce.pages import guard
from support.patience import PATIENCE
from support.project import ROOT

SCRIPT = ROOT / guard.FOLDER / guard.COMPARE
sys.path.insert(0, str(Path(__file__).resolve().parent))
import compare  # noqa: E402
import compare_runs  # noqa: E402
from compare_loops import ALIKE, DIFFERENT, LOOPS, UNTOLD  # noqa: E402


def test_every_program_was_measured_and_ended_as_expected():
    """The page's table; `python packages/guard/tests/compare.py --write` makes it anew."""
    loops = json.loads(compare.STORED.read_text(encoding="utf-8"))["loops"]
    assert {name: it["says"] for name, it in loops.items()} == LOOPS
    assert all(it["distance"] > 1e-3 for it in loops.values() if it["says"] == DIFFERENT)


def test_every_run_of_these_incidents_was_compared():
    """The table of this site's own runs; `python packages/guard/tests/compare_runs.py --write` makes it anew."""
    stored = json.loads(compare_runs.STORED.read_text(encoding="utf-8"))["runs"]
    assert {name.split()[0] for name in stored if name.endswith(" current")} == set(compare_runs.runs())
    catalog = load(ROOT)
    different = set()
    for name, told in stored.items():
        run, environment = name.split()
        id, variant = run.split("/")
        kept = catalog.incidents[id].evidence[environment].by_variant[variant]
        if kept.outcome == "match" and kept.facts.get("reference", "right") == "right" and told["says"] == DIFFERENT:
            different.add(run)
    # AdamW divides a wrong length away, and an auxiliary loss of each micro-batch depends on what is in it.
    assert {run for run in different if not run.startswith("RO-0013/")} == {
        "RO-0009/adamw-all-slot",
        "RO-0009/adamw-all-slot-learned",
    }


def test_what_the_page_says_of_both_together():
    """docs/en/guard.md: more than half of the silent runs that were watched, and with the comparison four of five."""
    catalog = load(ROOT)
    own = guard.stored(catalog, "compare_runs.json")["runs"]
    silent = guard.silent(catalog, guard.stored(catalog, "commands.json")["runs"])
    watched = [flagged for runs in silent.values() for _, flagged in runs if flagged is not None]
    assert 0.5 < sum(watched) / len(watched) < 0.75
    assert 0.8 <= (sum(watched) + guard.told_silent(catalog, own)) / len(watched) < 0.85


def test_runs_are_compared_as_they_are_stored():
    names = [
        "RO-0007/func-mean-average",
        "RO-0009/own-grad-plain-fixed",
        "RO-0009/fsdp2-all-slot",
        "RO-0011/ddp-reduced",
    ]
    stored = json.loads(compare_runs.STORED.read_text(encoding="utf-8"))["runs"]
    command = [sys.executable, str(Path(compare_runs.__file__)), *names]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    for name in names:
        told = ast.literal_eval(ended.stdout.split(f"{name}: ")[1].split("\n")[0])
        kept = stored[f"{name} current"]
        assert told["says"] == kept["says"], ended.stderr[-2000:]
        assert told["ratio"] == pytest.approx(kept["ratio"], rel=1e-3)


# One of each strategy and each answer; `compare.py` runs all.
LIVE = [
    "ddp",
    "ddp random-loss",
    "contrastive gathered-without-gradients",
    "accelerate-bf16",
    "fsdp2 loss-times-ranks",
    "ddp-sliced",
    "ddp-sliced clipped-each-micro-batch",
    "fsdp1-original-parameters clipped-by-shards",
    "zero3 mean-of-means",
]


@pytest.mark.parametrize("name", LIVE)
def test_a_program_is_compared(name):
    told, log = compare.asked(name, timeout=PATIENCE)
    assert told["says"] == LOOPS[name], log
    if LOOPS[name] == DIFFERENT:
        assert told["distance"] > 10 * told["noise"] and "parameters, the worst first: " in log
    if name == "fsdp1-original-parameters clipped-by-shards":
        assert "first gradient, clipped:" in log and "alike before they are clipped" in log
    if name == "fsdp2 loss-times-ranks":  # clipping does not hide it
        assert told["ratio"] == pytest.approx(2, rel=1e-3) and "2 times that of one process" in log
    if LOOPS[name] == ALIKE:
        assert told["distance"] < (1e-2 if "bf16" in name else 1e-5)
    if LOOPS[name] == UNTOLD:
        assert "Does the loss draw random numbers" in log


TRAINED = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    "command, code, said",
    [
        ([], 2, "name the command to run"),
        (["--", "no-such-program"], 2, "no-such-program cannot be run: No such file or directory"),
        (["--", sys.executable, "-c", "raise SystemExit(7)"], 7, ""),
        (["--", sys.executable, "-c", "print(1)"], 90, "no optimizer step with a gradient was seen"),
        (["--", sys.executable, "-c", TRAINED], 90, "the command trains with one process"),
    ],
)
def test_what_cannot_be_compared_has_a_sentence(command, code, said, tmp_path):
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, SCRIPT, *command], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == code and said in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())
