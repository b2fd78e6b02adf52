"""What passes only alone is listed; the second time, the run is red."""

import os
import subprocess
import sys

from support.project import TESTS

TEST = """
from pathlib import Path

def test_beside_others():
    assert Path("alone").exists()

def test_never():
    assert Path("mended").exists()

def test_always():
    pass
"""


def test_a_test_that_passes_only_alone_is_listed_and_the_second_time_red(tmp_path):
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    listed = tmp_path / "build" / "second-chance.txt"

    def run(*options, **more):
        command = [sys.executable, "-m", "pytest", "-p", "support.second_chance", "-c", os.devnull, "--rootdir", "."]
        environment = os.environ | {"PYTHONPATH": str(TESTS)} | more
        return subprocess.run([*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True)

    def both():
        assert run().returncode == 1
        (tmp_path / "alone").touch()
        again = run("--last-failed", SECOND_CHANCE=str(listed))
        (tmp_path / "alone").unlink()
        return again

    assert both().returncode == 1 and listed.read_text() == "test_it.py::test_beside_others\n"  # `test_never` is red
    listed.unlink()
    (tmp_path / "mended").touch()
    first, second = both(), both()
    assert first.returncode == 0 and "  1  test_it.py::test_beside_others\n" in first.stdout, first.stdout
    assert second.returncode == 1 and "  2  test_it.py::test_beside_others  <- mend it" in second.stdout, second.stdout
    assert "test_always" not in second.stdout
