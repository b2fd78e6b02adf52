"""Tables across incidents, before they are on a page: no run is left out, nothing is called what it is not."""

import re

import pytest

from readyonce.pages import decision
from readyonce.pages.article import Article
from readyonce.pages.overview import Overview
from readyonce.pages.page import Page


def test_the_decision_page_covers_every_way_to_train(known):
    rows = decision.cells(known)
    for strategy in set(known.vocabulary["strategy"].values) - {"single"}:
        assert rows[strategy, "once"] and rows[strategy, "repeated"]


def test_the_decision_page_leaves_no_run_of_a_strategy_out(known):
    """Each run that trains on several ranks, as is usual but for what the table asks, stands in a row and a column."""
    usual = {name: fact.usually for name, fact in known.vocabulary.items() if fact.usually}
    shown = {it.name for by_column in decision.cells(known).values() for runs in by_column.values() for it in runs}
    for it in known.observed:
        as_usual = all(it.facts.get(name, value) == value for name, value in usual.items())
        if it.facts["strategy"] != "single" and as_usual:
            assert it.name in shown, it.name


def test_an_explanation_has_a_verdict_and_no_advice(known):
    for incident in known.incidents.values():
        groups = re.split(r"\{ #claims-([\w-]+) \}", Article(known, "en", incident).all_claims())[1:]
        for name, claim in incident.meta.claims.items():
            assert not (claim.explanation and claim.advice)
            shown = [group for group, body in zip(groups[::2], groups[1::2]) if f"{{ #claim-{name} }}" in body]
            assert shown == [(claim.advice or "said").replace(" ", "-")], (incident.id, name)


def test_what_was_not_measured_is_not_called_equal(known):
    lines = iter(Overview(known, "en").silent_table().splitlines()[2:])
    for incident in known.incidents.values():
        for _, evidence in sorted(incident.evidence.items()):
            for run in evidence.runs:
                if run.outcome in ("diverge", "still"):
                    spread = next(lines).split("|")[-2].strip()
                    assert (spread == "not measured") == (run.rank_spread is None), (incident.id, run.variant)
                    assert (spread == "equal") == (run.rank_spread == 0), (incident.id, run.variant)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_package_without_a_bound_names_the_versions_that_were_run(known, language):
    named = 0
    for incident in known.incidents.values():
        header = Page(known, language).of(incident).affected_packages()
        for entry in incident.meta.affected:
            if entry.introduced or entry.fixed:
                continue
            versions = {
                evidence.environment.versions[entry.package].partition("+")[0]
                for evidence in incident.evidence.values()
                if entry.package in evidence.environment.versions and evidence.runs
            }
            if versions:
                told = re.search(rf"{re.escape(entry.package)} [^(（]*[(（](.*?)[)）]", header)[1]
                assert set(re.split("[,、] ?", told)) == versions, (incident.id, entry.package, told)
                named += 1
    assert named > 5
