"""The lab tells hang, teardown and crash apart, and leaves nothing behind."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from readyonce import catalog, lab

MARK = f"READYONCE_TEST_{os.getpid()}"
REPRO = """
import json, os, sys, time
import torch.distributed as dist
VARIANTS = dict.fromkeys(["fine", "hangs", "hangs-on-one-rank", "dies", "raises", "empty-assertion", "tears-down"])
def run(variant):
    rank = dist.get_rank()
    if variant == "hangs" or (variant == "hangs-on-one-rank" and rank == 1):
        time.sleep(3600)
    if variant == "dies":
        os.kill(os.getpid(), 11)
    if variant == "raises":
        raise RuntimeError("Expected to mark a variable ready only once. And more")
    if variant == "empty-assertion":
        assert len({1, 1}) == 2
    return {"variant": variant, "outcome": "match", "gradient_error": 0.0}
if __name__ == "__main__":
    dist.init_process_group("gloo")
    result = run(sys.argv[1])
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()
    if sys.argv[1] == "tears-down":
        os.abort()
    dist.destroy_process_group()
"""
INCIDENT = """
id: RO-0900
status: active
title: &t {en: x, zh: x}
short: *t
summary: *t
tags: {framework: [x], strategy: [x], hardware: [x], symptom: [*t]}
reported: {date: "2026-01-01", source: "a/b#1", hardware: *t}
errors: [ddp-ready-twice]
fix: {option: --x, command: x, variant: fine, text: *t}
affected: []
files: {repro.py: [current]}
time_limit: 8
variants:
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory, known):
    folder = tmp_path_factory.mktemp("lab") / "snippets" / "RO-0900"
    folder.mkdir(parents=True)
    shutil.copy(known.root / "snippets" / "diagnose.yml", folder.parent)
    (folder / "repro.py").write_text(REPRO)
    names = ("fine", "hangs", "hangs-on-one-rank", "dies", "raises", "empty-assertion", "tears-down")
    variants = "".join(f"  {name}: {{text: *t, outcome: match}}\n" for name in names)
    (folder / "incident.yml").write_text(INCIDENT + variants + "claims: {}\n")
    loaded = catalog.load(folder.parent.parent)
    assert not loaded.problems, loaded.problems
    loaded.families.update(known.families)
    return loaded, loaded.incidents["RO-0900"]


@pytest.fixture(autouse=True)
def quick_and_clean(monkeypatch, tmp_path):
    monkeypatch.setattr(lab, "START_LIMIT", 30)
    monkeypatch.setenv(MARK, MARK)  # other labs may be at work on this machine
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert not ours(), "processes are left"
    assert not list(tmp_path.glob("readyonce-*")), "folders are left"


def can_be_interrupted() -> None:
    """For `preexec_fn`: what a shell starts in the background ignores SIGINT, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ours() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if MARK in process.environ() and lab.TOKEN in process.environ():
                found.append(process)
        except psutil.Error:
            pass
    return found


@pytest.mark.parametrize(
    "name, outcome",
    [("fine", "match"), ("hangs", "hang"), ("raises", "error"), ("dies", "error"), ("tears-down", "teardown")],
)
def test_alone(toy, name, outcome):
    known, incident = toy
    seen = lab.alone(known, incident, incident.variants[name], Path(sys.executable))
    assert seen.outcome == outcome, seen.log
    if name == "raises":
        assert seen.error == "ddp-ready-twice" and seen.message.startswith("RuntimeError: Expected to mark")


def test_together_survives_what_stalls_and_what_dies(toy):
    known, incident = toy
    names = ("raises", "hangs-on-one-rank", "empty-assertion", "dies", "fine")
    seen = {
        o.variant: o
        for o in lab.together(known, incident, [(incident.variants[n], 1) for n in names], Path(sys.executable))
    }
    outcomes = {name: seen[name].outcome for name in names}
    assert outcomes == {
        "raises": "error",
        "hangs-on-one-rank": "hang",
        "empty-assertion": "error",
        "dies": "error",
        "fine": "match",
    }
    assert seen["empty-assertion"].message == "assert len({1, 1}) == 2\nAssertionError"


def test_repeats(toy):
    known, incident = toy
    seen = lab.together(
        known, incident, [(incident.variants["fine"], 3), (incident.variants["raises"], 2)], Path(sys.executable)
    )
    assert [o.variant for o in seen].count("fine") == 3 and len(seen) == 5


def test_interrupt_leaves_nothing(toy, tmp_path):
    known, _ = toy
    script = f"""
import sys
from pathlib import Path
from readyonce import catalog, lab
known = catalog.load(Path({str(known.root)!r}))
incident = known.incidents["RO-0900"]
lab.alone(known, incident, incident.variants["hangs"], Path(sys.executable))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        preexec_fn=can_be_interrupted,
    )
    limit = time.monotonic() + 30
    while len(ours()) < 3 and time.monotonic() < limit:  # the launcher and two ranks
        time.sleep(0.2)
    assert len(ours()) >= 3
    process.send_signal(signal.SIGINT)
    process.wait(20)


def test_one_device(toy):
    """The path that a GPU takes, on what is at hand; without a GPU nothing claims that there was one."""
    known, incident = toy
    repro = dict(incident.variants)
    for name in set(repro) - {"fine", "raises"}:
        del repro[name]
    small = dataclasses.replace(incident, variants=repro)
    seen = lab.on_one_device(known, small, "a-device", Path(sys.executable))
    assert {run.variant: run.outcome for run in seen.runs} == {"fine": "match", "raises": "error"}
    assert seen.environment.world_size == 1
    import torch

    assert (lab.gpu() is None) == (not torch.cuda.is_available()) == (seen.environment.device == "cpu")


def test_disagreeing_runs_are_no_evidence(toy):
    _, incident = toy
    good, bad = (
        lab.Observation("fine", "match", gradient_error=0.0),
        lab.Observation("fine", "diverge", gradient_error=0.1),
    )
    assert lab.summarise(incident, [good, bad], {})[1]
    assert lab.summarise(incident, [good, good], {"fine": bad})[1]
    runs, faults = lab.summarise(incident, [good, good], {"fine": good})
    assert not faults and runs[0].repeats == 2 and runs[0].alone


def test_torn_logs_have_their_message():
    log = 'W1 launcher\n[rank1]: Traceback (most recent call last):\n[rank1]:   File "x", line 1\n[rank1]:     f()\n[rank1]: ValueError: a\n[rank1]: b\nE1\n'
    assert lab.message_in(log) == "ValueError: a\nb"
    assert lab.message_in("Signal 11 (SIGSEGV) received") == ""
