"""The command that prints a link, and the list of addresses that stay."""

import shutil
import subprocess
import sys

import permalinks
from support.project import command


def test_link_says_what_it_needs(root):
    told = command("link", "RO-0003")
    assert told.returncode == 2 and "SITE_URL=" in told.stderr
    told = command("link", "RO-0003", "--section", "fixes", environment={"SITE_URL": "https://wiki.example.com"})
    assert told.returncode == 2 and "no section `fixes`" in told.stderr and "already-trained" in told.stderr


def test_the_list_only_grows(root):
    log = subprocess.run(
        ["git", "-C", str(root), "log", "--format=", "--patch", "--", "tests/permalinks.txt"],
        capture_output=True,
        text=True,
    )
    taken = {line[1:] for line in log.stdout.splitlines() if line.startswith("-") and not line.startswith("---")}
    assert permalinks.listed(taken) <= set(permalinks.read())


def test_without_pages_the_list_says_what_to_do_first(tmp_path):
    (tmp_path / "tests").mkdir()
    script = shutil.copy(permalinks.__file__, tmp_path / "tests" / "permalinks.py")
    told = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert told.returncode == 1 and "make site" in told.stderr
    assert not (tmp_path / "tests" / "permalinks.txt").exists()
