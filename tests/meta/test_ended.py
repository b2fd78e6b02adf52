"""Tests that are ended leave no process: neither by a signal nor killed."""

import contextlib
import os
import signal
import subprocess
import sys

import psutil
import pytest

from support.patience import PATIENCE, until
from support.project import ROOT, TESTS, as_in_a_terminal

TEST = """
import subprocess, sys
from pathlib import Path
from support.firefox import Firefox
from support.hosting import behind_nginx, reserved_port
from readyonce.lab import processes as launches
from readyonce.publish import site

def test(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "headers.nginx.conf").touch()
    python = Path(sys.executable)
    launch = launches.running(["sleep", "3600"], python, str(tmp_path), compiled=True)
    with reserved_port() as port, behind_nginx(tmp_path / "site", tmp_path, port), launch:
        subprocess.Popen(["sleep", "3600"], start_new_session=True)
        firefox = NUMBER == 9 and Firefox(tmp_path)  # it takes its time
        site._make(tmp_path, [site.Part("pages", ["sleep", "3600"], tmp_path / "none", "")])
"""


def below(process: psutil.Process) -> dict[psutil.Process, str]:
    """What it started → its command; but for that which tidies up after it."""
    found = {}
    for it in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # ended meanwhile
            if "readyonce.lab.cleanup" not in (line := it.cmdline()):
                found[it] = line
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name)
def test_ended_tests_leave_nothing(tmp_path, number):
    test = TEST.replace("NUMBER", str(int(number)))
    (tmp_path / "test_it.py").write_text(test, encoding="utf-8")
    places = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
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

    def all_started():
        assert process.poll() is None, process.stdout.read()
        found = below(psutil.Process(process.pid))
        return found if sum("sleep" in line for line in found.values()) >= 3 else None

    started = until(all_started)
    process.send_signal(number)
    said, _ = process.communicate(timeout=PATIENCE)
    _, left = psutil.wait_procs(started, timeout=PATIENCE)
    for it in left:
        it.kill()
    assert not left, said
