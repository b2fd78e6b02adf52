"""A team's own incidents beside the public ones: one tree, nothing written into the project, each mistake with a remedy."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from readyonce.check import check
from readyonce.data import catalog, overlay, project, reading
from readyonce.data.reading import CatalogError
from readyonce.publish import render
from readyonce.rules import diagnose
from support.project import KNOWN, ROOT

INCIDENT = """\
id: ACME-0001
status: active
title: "Our recommender: accumulation changed nothing"
short: Recommender · accumulation
summary: Raising the accumulation did not change the loss curve of our recommender.
tags: {framework: [accelerate], strategy: [DDP], hardware: [GPU], symptom: [accumulation changes nothing]}
reported: {date: "2026-11-20", source: "https://tracker.acme.example/browse/TRAIN-17", hardware: 8×H20}
errors: []
fix: {text: Clear the gradients after the step.}
look:
  - all: [our_recommender, zero_grad]
    why: The recommender clears too early.
facts:
  fails: {strategy: ddp, zero_grad: first}
  fixed: {strategy: ddp, zero_grad: first}
"""
ARTICLE = """\
# Our recommender: accumulation changed nothing {#acme-0001}

--8<-- "ACME-0001/lead.md"

## Fix {#fix}

--8<-- "ACME-0001/header.md"

## Failing and mended lines {#minimal}

--8<-- "ACME-0001/minimal.md"

## Is it your case? {#case}

It is, if `zero_grad()` stands first in the block: [the public incident](RO-0014.md).

## Why it happens {#cause}

See there.

## You already trained this way {#already-trained}

TRAIN-17 lists the models.
"""


@pytest.fixture
def theirs(tmp_path):
    folder = tmp_path / "theirs"
    (folder / "ACME-0001").mkdir(parents=True)
    for name in ("minimal.py", "minimal.json"):
        shutil.copy(ROOT / "snippets/RO-0014" / name, folder / "ACME-0001" / name)
    (folder / "ACME-0001/incident.yml").write_text(INCIDENT, encoding="utf-8")
    (folder / "ACME-0001/en.md").write_text(ARTICLE, encoding="utf-8")
    return folder


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if "build" not in path.parts)


def test_both_are_one_tree(copy, theirs):
    before = files(copy), files(theirs)
    tree = overlay.compose(copy, theirs)
    render.write(catalog.load(tree).require_sound())
    known = catalog.load(tree)
    assert check.problems(known) == []
    assert list(known.incidents) == ["ACME-0001", *KNOWN.incidents]  # theirs first
    assert known.incidents["ACME-0001"].level == "reproduced"
    assert "ACME-0001" in {it["id"] for it in diagnose.compile_rules(known)["incidents"]}
    assert (files(copy), files(theirs)) == before
    assert overlay.compose(copy, theirs) == tree  # once more, over the old one


def test_nothing_of_theirs_gets_into_what_is_published(copy, theirs):
    """Their tree is made beside the project; what the project makes of its own afterwards knows nothing of it."""
    render.write(catalog.load(overlay.compose(copy, theirs)))
    render.write(catalog.load(copy))
    words, place = re.compile(rb"our_recommender|TRAIN-17|tracker\.acme"), copy / overlay.PLACE
    holding = [path for path in copy.rglob("*") if path.is_file() and words.search(path.read_bytes())]
    assert {path.is_relative_to(place) for path in holding} == {True}
    assert "rules.js" in {path.name for path in holding}  # of theirs


def test_their_runs_judge_nothing_of_ours(copy, theirs):
    known = catalog.load(overlay.compose(copy, theirs))
    assert [it.name for it in known.observed] == [it.name for it in KNOWN.observed]


def test_an_article_in_one_language_stands_in_the_other_with_a_note(copy, theirs):
    tree = overlay.compose(copy, theirs)
    render.write(catalog.load(tree))
    chinese = tree / "docs/zh/incidents/ACME-0001.md"
    assert "本页暂时只有英文" in chinese.read_text(encoding="utf-8")
    (theirs / "ACME-0001/zh.md").write_text(ARTICLE.replace("See there.", "见那里。"), encoding="utf-8")
    tree = overlay.compose(copy, theirs)
    render.write(catalog.load(tree))
    assert "见那里。" in (text := chinese.read_text(encoding="utf-8")) and "本页暂时只有英文" not in text


def test_what_was_run_in_the_tree_is_taken_back(copy, theirs):
    tree, record = overlay.compose(copy, theirs), theirs / "ACME-0001/minimal.json"
    assert overlay.store(tree, theirs) == []
    (tree / "snippets/ACME-0001/minimal.json").write_text("{}", encoding="utf-8")
    assert overlay.store(tree, theirs) == [record] and record.read_text(encoding="utf-8") == "{}"


def test_what_check_finds_in_their_article_is_told_with_the_line_of_their_file(copy, theirs):
    """The tree has front matter above it, and shows it in the other language too: the fault is told once."""
    article = theirs / "ACME-0001/en.md"
    article.write_text(ARTICLE.replace("(RO-0014.md)", "(RO-9999.md)"), encoding="utf-8")
    tree = overlay.compose(copy, theirs)
    render.write(catalog.load(tree).require_sound())
    found = overlay.as_named(check.problems(catalog.load(tree)), tree, theirs)
    (problem,) = reading.in_order(found)
    line = ARTICLE[: ARTICLE.index("(RO-0014.md)")].count("\n") + 1
    assert (problem.file, problem.line) == (str(article), line) and "RO-9999.md" in problem.what


def our_prefix(folder):
    (folder / "ACME-0001").rename(folder / "RO-0015")


def our_run(folder):
    shutil.copytree(folder / "ACME-0001", folder / "RO-0003", ignore=shutil.ignore_patterns("incident.yml", "en.md"))


def our_family(folder):
    (folder / "errors").mkdir()
    (folder / "errors/no-grad-fn.yml").write_text("family: no-grad-fn\n", encoding="utf-8")


def no_incident(folder):
    (folder / "ACME-0001/incident.yml").unlink()


@pytest.mark.parametrize(
    "spoil, file, says",
    [
        (our_prefix, "RO-0015/incident.yml", "RO- is the prefix of the public incidents"),
        (lambda folder: os.mkfifo(folder / "ACME-0001/zh.md"), "ACME-0001/zh.md", "no file but a pipe or a device"),
        (our_run, "RO-0003/incident.yml", "RO- is the prefix of the public incidents"),
        (our_family, "errors/no-grad-fn.yml", "there is a family `no-grad-fn` already"),
        (no_incident, "ACME-0001/en.md", "an article without an incident"),
        (lambda folder: shutil.rmtree(folder / "ACME-0001"), "theirs", "it holds no incidents"),
    ],
)
def test_a_mistake_is_told_with_its_file_and_a_remedy(copy, theirs, spoil, file, says):
    spoil(theirs)
    with pytest.raises(CatalogError) as told:
        overlay.compose(copy, theirs)
    (problem,) = told.value.problems
    assert problem.file.endswith(file) and says in problem.what and problem.remedy


def test_two_commands_of_two_teams_go_one_after_the_other(copy, theirs, tmp_path):
    """They share the folder in which the tree is made: the second says that it waits, and judges its own team's folder."""
    other = shutil.copytree(theirs, tmp_path / "others")
    no_incident(other)
    with project.one_at_a_time(copy / overlay.PLACE):
        start = [sys.executable, "-m", "readyonce.cli.main", "check", "--with"]
        options = {"env": os.environ | {"READYONCE_ROOT": str(copy)}, "stderr": subprocess.PIPE, "text": True}
        waiting = [subprocess.Popen([*start, folder], **options) for folder in (theirs, other)]
        for process in waiting:
            assert "this one waits for it" in process.stderr.readline()
    good, faulty = (process.communicate()[1] for process in waiting)
    assert [process.returncode for process in waiting] == [0, 1], good + faulty
    assert "an article without an incident" in faulty and "ACME-0001" not in good, good
