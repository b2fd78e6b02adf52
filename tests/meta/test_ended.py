"""Tests that are ended leave no process: neither by a signal nor killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from support.hosting import free_port
from support.project import ROOT, TESTS, as_in_a_terminal

TEST = """
import subprocess, sys
from pathlib import Path
from support.firefox import Firefox
from support.hosting import behind_nginx
from readyonce import launches, site

def test(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "headers.nginx.conf").touch()
    python = Path(sys.executable)
    launch = launches.running(["sleep", "3600"], python, str(tmp_path), compiled=True)
    with behind_nginx(tmp_path / "site", tmp_path, PORT), launch:
        subprocess.Popen(["sleep", "3600"], start_new_session=True)
        firefox = NUMBER == 9 and Firefox(tmp_path)  # it takes its time
        site._make(tmp_path, [site.Part("pages", ["sleep", "3600"], tmp_path / "none", "")])
"""


def below(process: psutil.Process) -> dict[psutil.Process, str]:
    """What it started → its command; but for that which tidies up after it."""
    found = {}
    for it in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # ended meanwhile
            if "readyonce.ending" not in (line := it.cmdline()):
                found[it] = line
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name)
def test_ended_tests_leave_nothing(tmp_path, number):
    test = TEST.replace("NUMBER", str(int(number))).replace("PORT", str(free_port()))
    (tmp_path / "test_it.py").write_text(test, encoding="utf-8")
    places = [str(TESTS), os.environ.get("PYTHONPATH", "")]
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
    limit = time.monotonic() + 120
    started = {}
    while sum("sleep" in line for line in started.values()) < 3:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < limit, started
        time.sleep(0.1)
        started = below(psutil.Process(process.pid))
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    _, left = psutil.wait_procs(started, timeout=10)
    for it in left:
        it.kill()
    assert not left, said
