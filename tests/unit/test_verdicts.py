"""The rules of verdicts, each on its own, and that nobody can pick what a claim is judged on."""

import pytest

from readyonce import schema
from readyonce.catalog import Observed
from readyonce.verdicts import Judged, _verdict, judge
from support.project import KNOWN


def claim(**changes) -> schema.Claim:
    text = {"en": "x", "zh": "x"}
    given = {"text": text, "note": text, "basis": "run", "scope": {}, "predicts": "match", "advice": "yes"}
    return schema.Claim.model_validate(given | changes)


def judged(predicted: str | None, outcome: str, error: str | None = None) -> Judged:
    run = schema.Run(variant="v", outcome=outcome, error=error, repeats=1, alone=True, seconds=1)
    return Judged(Observed(None, None, "current", run, {}, {}), predicted, None)


GOOD, BAD = judged("match", "match"), judged("match", "diverge")


@pytest.mark.parametrize(
    "verdict, runs",
    [
        ("holds", [GOOD, judged("error", "error", "a")]),
        ("fails", [judged("match", "error", "a"), BAD]),
        ("depends", [GOOD, BAD]),
        ("depends", [GOOD, judged(None, "match")]),  # what is not predicted did not come true
        ("fails", [GOOD, *[BAD] * 8]),  # where it is right is a corner
        ("depends", [GOOD, *[BAD] * 7]),
        ("open", []),
        ("holds", [judged("error:a", "error", "a")]),
        ("fails", [judged("error:a", "error", "b")]),
    ],
)
def test_runs_decide(verdict, runs):
    assert _verdict(claim(), tuple(runs)) == verdict


def test_a_source_supports_or_leaves_open():
    source = {"link": "a/b#1", "says": {"en": "x", "zh": "x"}}
    assert _verdict(claim(basis="source", supports="fails", sources=[source]), ()) == "fails"
    assert _verdict(claim(basis="source", sources=[source]), ()) == "open"


@pytest.mark.parametrize("basis", ["measured", "inferred"])
def test_what_decides_nothing(basis):
    assert _verdict(claim(basis=basis), (GOOD,)) == "open"


def test_claims_are_judged_on_every_run_that_fits_their_scope():
    for incident in KNOWN.incidents.values():
        for name, it in incident.meta.claims.items():
            if it.scope is not None and not it.explanation:
                fitting = {observed.name for observed in KNOWN.fitting(it.scope)[0]}
                assert {judged.observed.name for judged in judge(KNOWN, incident, name).runs} == fitting


def test_an_explanation_is_judged_by_what_could_refute_it():
    for incident in KNOWN.incidents.values():
        for name, it in incident.meta.claims.items():
            if it.explanation and it.otherwise:
                for judged in judge(KNOWN, incident, name).runs:
                    others = [case.outcome for case in it.otherwise if KNOWN.fits(case.where, judged.observed)]
                    assert others and others[0] != judged.predicted, (incident.id, name)


def test_the_same_claim_has_the_same_verdict_wherever_it_stands():
    seen = {}
    for incident in KNOWN.incidents.values():
        for name, it in incident.meta.claims.items():
            if it.basis == "run":
                key = str((it.scope, it.predicts, it.otherwise, it.explanation))
                verdict = judge(KNOWN, incident, name).verdict
                assert seen.setdefault(key, verdict) == verdict, (incident.id, name)
