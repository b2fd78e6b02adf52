"""Sources that would crash a parser, or make a command stumble."""

import errno
import os
import subprocess
import sys

import pytest

from readyonce.data import catalog
from readyonce.publish import render
from support.patience import PATIENCE
from support.project import MOUNTING, bytes_of, command, edit


@pytest.mark.parametrize("name", ["snippets/RO-0001/incident.yml", "snippets/RO-0001/evidence/current.json"])
@pytest.mark.parametrize(
    "bomb", ['"\x1b[2J"', "[" * 100_000, "[" * 900 + "]" * 900, "- " * 5000, '{"a":' * 20_000, "1" * 5000]
)
def test_what_would_crash_a_parser_is_refused(copy, name, bomb):
    (copy / name).write_text(bomb)
    told = command("list", root=copy, timeout=PATIENCE)
    assert told.returncode == 1 and "Traceback" not in told.stderr, told.stderr
    assert f"{name}:1: " in told.stderr and "\n    " in told.stderr and len(told.stderr) < 1000


@pytest.mark.parametrize("python", ["not " * 100_000 + "1", "elif 1: 1\n" * 50_000, "(" * 1000, "1" + "+1" * 300_000])
def test_python_that_no_parser_takes_is_refused(copy, python):
    (copy / "snippets/RO-0001/repro.py").write_text(f"if 1: 1\n{python}", encoding="utf-8")
    told = command("check", root=copy, timeout=PATIENCE)
    assert told.returncode == 1 and "Traceback" not in told.stderr, told.stderr
    assert "it was stored with another repro.py\n    " in told.stderr


@pytest.mark.parametrize("words", ["render", "site", "new RO-0042", "new ACME-0001 --in {}/ours"])
def test_a_tree_that_cannot_be_written_to(copy, words):
    """Mounted so, in a namespace: permissions would not stop root."""
    mounted = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && cd "$0"'
    if subprocess.run([*MOUNTING, mounted, copy], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a folder of his own")
    before = bytes_of(copy)
    told = subprocess.run(
        [
            *MOUNTING,
            f'{mounted} && exec "$@"',
            copy,
            sys.executable,
            "-m",
            "readyonce.cli.main",
            *words.format(copy).split(),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | {"READYONCE_ROOT": str(copy)},
    )
    assert told.returncode == 2 and "Traceback" not in told.stderr, told.stderr
    assert ": Read-only file system. Let this user" in told.stderr and str(copy) in told.stderr
    assert bytes_of(copy) == before


@pytest.mark.parametrize("name", ["check", "site"])
def test_a_page_saved_in_another_encoding_has_its_line(copy, name):
    page = copy / "docs/zh/incidents/RO-0001.md"
    first, *rest = page.read_bytes().splitlines(keepends=True)
    text = b"".join(rest).decode()
    page.write_bytes(first + text.encode("gbk", "replace"))
    told = command(name, root=copy)
    assert told.returncode == 1 and "Traceback" not in told.stderr, told.stderr
    assert "docs/zh/incidents/RO-0001.md:2: the file is not UTF-8\n    Save it as UTF-8." in told.stderr


STUMBLES = {
    "a word of a matrix is gone": (
        "snippets/RO-0005/incident.yml",
        "      no-term:",
        "      other-term:",
        "0 cases fit `zero3-alternating-other-term`",
    ),
    "an outcome without its figures": (
        "snippets/RO-0001/evidence/current.json",
        '"outcome": "error"',
        '"outcome": "match"',
        "does not follow from its gradient error",
    ),
    "evidence cut": ("snippets/RO-0001/evidence/current.json", '"runs": [', "", "not JSON"),
}


@pytest.mark.parametrize("name", ["check", "list", "render", "site", "explain"])
@pytest.mark.parametrize("what", STUMBLES)
def test_where_a_command_would_stumble_it_says_what_is_wrong(copy, what, name):
    file, find, replace, says = STUMBLES[what]
    edit(copy / file, find, replace)
    told = command(name, *(["RO-0001"] if name == "explain" else []), root=copy)
    assert "Traceback" not in told.stderr, told.stderr
    assert told.returncode == 0 and name in ("list", "explain") or told.returncode == 1 and says in told.stderr, told


def test_a_full_disk_costs_an_author_no_page(copy, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    page = copy / "docs/en/incidents/RO-0003.md"
    edit(page, "\n## ", "\nWritten today.\n\n## ")
    edit(page, "title: ", "title: other ")
    before = page.read_bytes()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "fsync", full)
        render.write(catalog.load(copy))
    assert page.read_bytes() == before
    render.write(catalog.load(copy))
    assert b"Written today." in page.read_bytes() != before
