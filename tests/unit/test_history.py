"""When incidents came and changed, by what git tells."""

import os
import subprocess

import pytest

from readyonce.data import history


@pytest.fixture
def repository(tmp_path):
    """An empty one, and a function that commits what lies in it."""

    def git(*arguments, day="2026-01-01"):
        when = f"{day}T12:00:00Z"
        dates = os.environ | {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", str(tmp_path), *name, *arguments], check=True, env=dates)

    def commit(day="2026-01-01"):
        git("add", "-A", day=day)
        git("commit", "-q", "-m", "words", day=day)

    assert history.changes(tmp_path) is None and history.dates(tmp_path) == {}
    git("init", "-q")
    assert history.changes(tmp_path) is None
    return tmp_path, commit


def test_dates_come_from_git(repository):
    folder, commit = repository

    def write(*paths):
        for path in paths:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with open(folder / path, "a") as file:
                file.write("a")

    write("snippets/RO-0001/incident.yml", "README.md")
    commit("2026-01-01")
    write("docs/en/index.md", "snippets/errors/a.yml")
    commit("2026-01-02")
    write("snippets/RO-0002/evidence/current.json", "docs/zh/incidents/RO-0001.md")
    commit("2026-01-03")
    seen = history.changes(folder)
    assert [(c.when[:10], c.new, c.changed) for c in seen] == [
        ("2026-01-03", ("RO-0002",), ("RO-0001",)),
        ("2026-01-01", ("RO-0001",), ()),
    ]
    assert history.dates(folder)["RO-0001"] == (seen[1].when, seen[0].when)
    shallow = folder / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{folder}", str(shallow)], check=True)
    assert history.changes(shallow) is None
