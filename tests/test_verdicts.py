"""The rules of verdicts, each on its own, and the table of RO-0001 as the runs have it."""

import pytest
from conftest import KNOWN

from readyonce import catalog
from readyonce.verdicts import Judged, _verdict, judge


def claim(**changes) -> catalog.Claim:
    text = {"en": "x", "zh": "x"}
    return catalog.Claim.model_validate(
        {"text": text, "note": text, "basis": "run", "predicts": "match", "advice": "yes"} | changes
    )


def judged(predicted: str, outcome: str | None, error: str | None = None) -> Judged:
    run = outcome and catalog.Run(variant="v", outcome=outcome, error=error, repeats=1, alone=True, seconds=1)
    return Judged("v", "current", predicted, run or None)


@pytest.mark.parametrize(
    "verdict, predictions",
    [
        ("holds", [judged("match", "match"), judged("error", "error", "a")]),
        ("fails", [judged("match", "error", "a"), judged("match", "diverge")]),
        ("depends", [judged("match", "match"), judged("match", "diverge")]),
        ("open", [judged("match", "match"), judged("match", None)]),
        ("open", []),
        ("holds", [judged("error:a", "error", "a")]),
        ("fails", [judged("error:a", "error", "b")]),
    ],
)
def test_a_run_decides(verdict, predictions):
    assert _verdict(claim(), tuple(predictions)) == verdict


def test_a_source_supports_or_leaves_open():
    source = {"link": "a/b#1", "says": {"en": "x", "zh": "x"}}
    assert _verdict(claim(basis="source", supports="fails", sources=[source]), ()) == "fails"
    assert _verdict(claim(basis="source", sources=[source]), ()) == "open"


@pytest.mark.parametrize("basis", ["measured", "inferred"])
def test_what_decides_nothing(basis):
    assert _verdict(claim(basis=basis), (judged("match", "match"),)) == "open"


def test_the_baseline_never_counts():
    for incident in KNOWN.incidents.values():
        for name in incident.file.claims:
            assert all(p.variant != catalog.BASELINE for p in judge(incident, name).predictions)


def test_claims_are_judged_on_every_variant_that_names_them():
    for incident in KNOWN.incidents.values():
        for name, it in incident.file.claims.items():
            naming = {
                (v.name, e)
                for v in incident.variants.values()
                if name in v.claims
                for e in v.declared.keys() - incident.not_run
            }
            if it.basis == "run":
                assert {(p.variant, p.environment) for p in judge(incident, name).predictions} == naming
