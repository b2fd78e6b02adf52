"""How far an incident is proven follows from what was run, and is told wherever the incident is."""

import pytest

from readyonce.diagnose import report
from readyonce.pages.article import Article
from readyonce.pages.terminal import listing
from readyonce.publish import api
from support.logs import ENGINE, RULES
from support.project import KNOWN

SHORT = [id for id, incident in KNOWN.incidents.items() if incident.short]


def test_levels_follow_from_runs():
    for incident in KNOWN.incidents.values():
        assert incident.level == ("reproduced" if incident.id in SHORT else "judged")
    assert SHORT and KNOWN.incidents["RO-0001"].level == "judged"


def test_the_api_and_the_list_tell_it():
    assert [entry["level"] for entry in api.incidents_json(KNOWN)] == [it.level for it in KNOWN.incidents.values()]
    for language, word in (("en", "(reproduced)"), ("zh", "（已复现）")):
        lines = [line for line in listing(KNOWN, language).splitlines() if word in line]
        assert [line[:7] for line in lines] == SHORT


def test_diagnose_tells_it():
    """Where it names an incident; of a judged one it says nothing more."""
    shorts = {incident["id"]: incident["short"] for incident in RULES["incidents"]}
    assert [id for id in shorts if shorts[id]["en"].endswith(" (reproduced)")] == SHORT
    error = KNOWN.incidents["RO-0021"].meta.errors[0]
    for language, word in (("en", "(reproduced)"), ("zh", "（已复现）")):
        assert shorts["RO-0021"][language] in report.error(ENGINE, error, language)
        assert word in shorts["RO-0021"][language]


@pytest.mark.parametrize("id", KNOWN.incidents)
def test_the_page_tells_it(id):
    for language, words in (("en", {"reproduced", "judged"}), ("zh", {"已复现", "已判定"})):
        lead = Article(KNOWN, language, KNOWN.incidents[id]).lead()
        assert sum(f"[{word}](../concepts/glossary.md#levels)" in lead for word in words) == 1


def test_its_runs_judge_the_claims_that_they_fit():
    names = {observed.name for observed in KNOWN.observed}
    assert {"RO-0014/minimal", "RO-0014/minimal-fixed"} <= names
    fit, _ = KNOWN.fitting({"zero_grad": "first", "accumulate": "plain"})
    assert "RO-0014/minimal" in {observed.name for observed in fit}


def test_an_error_that_its_run_ended_in_counts_as_run():
    for incident in KNOWN.incidents.values():
        if incident.minimal and incident.minimal.fails.error:
            assert KNOWN.was_run(incident.minimal.fails.error)


def test_what_is_wrong_without_an_error_is_named():
    """Where the gradients are right, and the weights are not, no page speaks of wrong gradients."""
    for language, wrong, ordinary in (("en", "wrong updates", "wrong gradients"), ("zh", "更新错误", "梯度错误")):
        for id, incident in KNOWN.incidents.items():
            article = Article(KNOWN, language, incident)
            told = article.lead() + article.minimal()
            assert (wrong in told) == (incident.meta.wrong == "updates"), id
            assert not (wrong in told and f">{ordinary}<" in told), id
    assert KNOWN.incidents["RO-0023"].meta.wrong == "updates"
