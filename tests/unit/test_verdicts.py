"""The rules of verdicts, each on its own, and that nobody can pick what a claim is judged on."""

import pytest

from readyonce import schema
from readyonce.catalog import Catalog, Observed
from readyonce.verdicts import judge
from support.project import KNOWN, ROOT, fits


def claim(**changes) -> schema.Claim:
    text = {"en": "x", "zh": "x"}
    given = {"text": text, "note": text, "basis": "run", "scope": {}, "predicts": "match", "advice": "yes"}
    return schema.Claim.model_validate(given | changes)


def verdict(runs: list[tuple[str | None, str, str | None]], **changes) -> str:
    """On runs of which each is predicted an outcome, and ended in one, perhaps with an error's family."""
    known = Catalog(ROOT)
    known.observed = [
        Observed(None, None, "current", schema.Run(**RUN, outcome=outcome, error=error), {"n": n}, {"n": n}, n)
        for n, (_, outcome, error) in enumerate(runs)
    ]
    cases = [schema.Case(where={"n": n}, outcome=it[0]) for n, it in enumerate(runs) if it[0]]
    return judge(known, claim(predicts=cases, **changes)).verdict


RUN = {"variant": "v", "repeats": 1, "alone": True, "seconds": 1}
GOOD, BAD = ("match", "match", None), ("match", "diverge", None)


@pytest.mark.parametrize(
    "expected, runs",
    [
        ("holds", [GOOD, ("error", "error", "a")]),
        ("fails", [("match", "error", "a"), BAD]),
        ("depends", [GOOD, BAD]),
        ("depends", [GOOD, (None, "match", None)]),  # what is not predicted did not come true
        ("fails", [GOOD, *[BAD] * 8]),  # where it is right is a corner
        ("depends", [GOOD, *[BAD] * 7]),
        ("open", []),
        ("holds", [("error:a", "error", "a")]),
        ("fails", [("error:a", "error", "b")]),
    ],
)
def test_runs_decide(expected, runs):
    assert verdict(runs) == expected


def test_of_several_cases_the_first_that_fits_predicts():
    known = Catalog(ROOT)
    known.observed = [Observed(None, None, "current", schema.Run(**RUN, outcome="match"), {"n": 1}, {"n": 1})]
    cases = [schema.Case(where={"n": "< 2"}, outcome="diverge"), schema.Case(outcome="match")]
    assert judge(known, claim(predicts=cases)).verdict == "fails"
    assert judge(known, claim(predicts=cases[::-1])).verdict == "holds"


def test_a_source_supports_or_leaves_open():
    source = {"link": "a/b#1", "says": {"en": "x", "zh": "x"}}
    assert verdict([], basis="source", supports="fails", sources=[source]) == "fails"
    assert verdict([], basis="source", sources=[source]) == "open"


@pytest.mark.parametrize("basis", ["measured", "inferred"])
def test_what_decides_nothing(basis):
    assert verdict([GOOD], basis=basis) == "open"


def test_claims_are_judged_on_every_run_that_fits_their_scope():
    for incident in KNOWN.incidents.values():
        for it in incident.meta.claims.values():
            if it.scope is not None and not it.explanation:
                fitting = {observed.name for observed in KNOWN.fitting(it.scope)[0]}
                assert {observed.name for observed in judge(KNOWN, it).runs} == fitting


def test_an_explanation_is_judged_by_what_could_refute_it():
    for incident in KNOWN.incidents.values():
        for name, it in incident.meta.claims.items():
            if it.explanation and it.otherwise:
                judgement = judge(KNOWN, it)
                for observed in judgement.runs:
                    others = [case.outcome for case in it.otherwise if fits(case.where, observed)]
                    assert others and others[0] != judgement.predicted_for(observed), (incident.id, name)


def test_the_same_claim_has_the_same_verdict_wherever_it_stands():
    seen = {}
    for incident in KNOWN.incidents.values():
        for name, it in incident.meta.claims.items():
            if it.basis == "run":
                key = str((it.scope, it.predicts, it.otherwise, it.explanation))
                verdict = judge(KNOWN, it).verdict
                assert seen.setdefault(key, verdict) == verdict, (incident.id, name)
