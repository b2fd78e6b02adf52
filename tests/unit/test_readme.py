"""The two READMEs: their links lead somewhere, and they name commands that are there."""

import re

import pytest

from readyonce.cli import main
from support.project import KNOWN, ROOT

READMES = ["README.md", "README.zh-CN.md"]


@pytest.mark.parametrize("name", READMES)
def test_its_links_lead_somewhere(name):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text(encoding="utf-8"))
    assert len(links) > 5
    for link in links:
        assert (ROOT / link).is_file(), link
    assert {*READMES} - {name} <= set(links)


@pytest.mark.parametrize("name", READMES)
def test_its_commands_are_there(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    called = re.findall(r"^\S*? ?\.venv/bin/readyonce (.*?)(?:#.*)?$", text, re.M)
    assert len(called) > 5
    for words in called:
        assert main.parser().parse_args(words.split())
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert set(re.findall(r"(?:^|`)(?:UV\S+ )?make ([\w-]+)", text, re.M)) <= targets


def test_readme_lists_every_incident(root):
    assert re.findall(r"^\| \[(RO-\d{4})\]", (root / "README.md").read_text(encoding="utf-8"), re.M) == list(
        KNOWN.incidents
    )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_of_outcomes_says_what_ran_on_a_gpu(language):
    on_gpu = {
        incident.id: evidence
        for incident in KNOWN.incidents.values()
        for evidence in incident.elsewhere.values()
        if evidence.environment.device == "cuda"
    }
    ran = sorted(on_gpu)
    assert ran == [f"RO-{number:04}" for number in range(1, 8)]  # else the words there are to be changed
    for evidence in on_gpu.values():
        assert evidence.environment.backend == "nccl" and len(evidence.runs) > 50
    assert re.search(
        rf"{ran[0]}\D+{ran[-1]}", (ROOT / "docs" / language / "concepts/right-gradients.md").read_text(encoding="utf-8")
    )
