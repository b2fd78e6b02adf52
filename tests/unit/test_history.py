"""What changed lately, by what git tells."""

import os
import shutil
import subprocess

import pytest

from readyonce import history, news


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

    assert history.changes(tmp_path) is None and history.dates(tmp_path) == {} and not list(news.news(tmp_path))
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
    assert history.changes(shallow) is None and not list(news.news(shallow))


def test_news_are_what_readers_rely_on(repository, root, known):
    folder, commit = repository
    snippets = folder / "snippets"
    others = [id for id in known.incidents if id != "RO-0001"]
    left_out = shutil.ignore_patterns(*others, "__pycache__")
    shutil.copytree(root / "snippets", snippets, ignore=left_out)
    path, ran = snippets / "RO-0001" / "incident.yml", snippets / "RO-0001" / "evidence" / "ms-swift-3.5.3.json"
    text, evidence = path.read_text(encoding="utf-8"), ran.read_text(encoding="utf-8")
    ran.unlink()
    commit("2026-01-01")
    ran.write_text(evidence, encoding="utf-8")
    commit("2026-01-02")
    (snippets / "RO-0001" / "repro.py").write_text("# other words, which no reader relies on\n", encoding="utf-8")
    commit("2026-01-03")
    assert "basis: source\n    supports: holds" in text and text.count(known.incidents["RO-0001"].meta.fix.option) == 1
    text = text.replace("basis: source\n    supports: holds", "basis: source\n    supports: fails", 1)
    path.write_text(text.replace(known.incidents["RO-0001"].meta.fix.option, "--another true"), encoding="utf-8")
    commit("2026-01-04")
    third, second, first = news.news(folder)
    assert (third.day, second.day, first.day) == ("2026-01-04", "2026-01-02", "2026-01-01")
    assert first.before is None and len(first.verdicts) == len(known.incidents["RO-0001"].meta.claims)
    assert set(second.runs) == {"ms-swift-3.5.3"} and not (second.fixed or second.affected or second.turned)
    assert second.runs["ms-swift-3.5.3"].total() == len(known.incidents["RO-0001"].evidence["ms-swift-3.5.3"].runs)
    assert third.fixed and list(third.verdicts.values()) == [("holds", "fails")] and not third.runs
    path.write_text("id: what nobody can read", encoding="utf-8")
    commit("2026-01-05")
    assert not list(news.news(folder))
