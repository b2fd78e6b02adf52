"""The command that prints a link, and the list of addresses that stay."""

import subprocess

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
