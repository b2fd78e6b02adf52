"""Tests that are ended leave no process: neither by a signal nor killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, as_in_a_terminal, free_port

TEST = """
import sys, time
from pathlib import Path
from conftest import behind_nginx
from readyonce import lab

def test(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "headers.nginx.conf").touch()
    python = Path(sys.executable)
    with behind_nginx(tmp_path / "site", tmp_path, 0), lab.running(["sleep", "3600"], python, str(tmp_path)):
        time.sleep(3600)
"""


def below(process: psutil.Process) -> list[psutil.Process]:
    """What it started, but for that which tidies up after it."""
    found = []
    for it in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # ended meanwhile
            if "readyonce.ending" not in it.cmdline():
                found.append(it)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name)
def test_ended_tests_leave_nothing(tmp_path, number):
    (tmp_path / "test_it.py").write_text(TEST.replace("tmp_path, 0)", f"tmp_path, {free_port()})"), encoding="utf-8")
    places = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    options = ["-p", "conftest", "-p", "no:cacheprovider", "--basetemp", tmp_path / "below"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, "test_it.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places), "READYONCE_ROOT": str(ROOT)},
        preexec_fn=as_in_a_terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    limit = time.monotonic() + 60
    while len(started := below(psutil.Process(process.pid))) < 3 and time.monotonic() < limit:
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.1)
    assert len(started) >= 3, "nginx, its worker and a launch"
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    _, left = psutil.wait_procs(started, timeout=10)
    for it in left:
        it.kill()
    assert not left, said
