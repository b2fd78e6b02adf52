"""The rules of verdicts, each on its own, and that nobody can pick what a claim is judged on."""

import re

import pytest

from readyonce.data import schema
from readyonce.data.catalog import Catalog, Observed
from readyonce.data.verdicts import judge
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


CROSS = {"contrast": "all-queries", "gather": "slot", "temperature": "fixed", "loss_times": "ranks"}
AFTER = {"strategy": "zero-0", "checkpoint_into": "engine", "checkpoint_by": "load-state-dict"}


@pytest.mark.parametrize(
    "incident, claim, facts, right",
    [
        ("RO-0009", "times-ranks", CROSS | {"second_term": "none"}, True),
        ("RO-0009", "times-ranks", CROSS | {"second_term": "local"}, False),
        ("RO-0010", "initialize-first", AFTER | {"dtype": "bf16"}, False),
    ],
)
def test_the_condition_of_advice_names_the_setting_that_turns_its_runs(incident, claim, facts, right):
    """The runs with these facts decide the claim, and its condition promises nothing that they refute."""
    declared = KNOWN.incidents[incident].meta.claims[claim]
    runs = KNOWN.fitting(facts)[0]
    assert {run.label for run in runs} == {"match" if right else "diverge"}
    assert {bool(declared.when and fits(declared.when.where, run)) for run in runs} == {right}
    assert {run.name for run in runs} <= {run.name for run in KNOWN.fitting(declared.scope)[0]}


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


# ------------------------------------------------------------------------------ ways out

WAY_OUT = re.compile(r"ZeRO-[12]\b|(?:with|to) DeepSpeed\b(?! ZeRO-3)")


def leads_to_zero():
    """Advice to take ZeRO-1 or ZeRO-2, of claims and of the lines on articles; in both languages."""
    for incident in KNOWN.incidents.values():
        for name, claim in incident.meta.claims.items():
            if claim.advice in ("yes", "only if") and WAY_OUT.search(claim.text.en):
                for language in ("en", "zh"):
                    words = [claim.note, claim.when and claim.when.text]
                    yield f"{incident.id}/{name}/{language}", " ".join(getattr(it, language) for it in words if it)
            if claim.row and claim.advice != "no" and WAY_OUT.search(claim.row.do.en):
                for language in ("en", "zh"):
                    yield f"{incident.id}/{name}/row/{language}", getattr(claim.row.only_if or claim.row.do, language)


@pytest.mark.parametrize("words", [pytest.param(words, id=place) for place, words in leads_to_zero()])
def test_who_is_sent_to_zero_1_or_2_is_told_that_ranks_have_to_run_the_same_modules(words):
    assert "zero-partitioning.md#different-modules" in words


def test_ranks_that_run_different_modules_train_wrong_under_zero_1_and_2_and_stay_equal():
    apart = [it for it in KNOWN.observed if it.facts.get("gradient_order") == "other-modules"]
    ends = {
        (it.facts["strategy"], it.filled["rank_sizes"], it.facts.get("leaf", False)): it.run.outcome for it in apart
    }
    assert ends == {
        ("ddp", "equal", False): "match",
        ("zero-0", "equal", False): "match",
        ("zero-0", "unequal", False): "match",
        ("zero-1", "equal", False): "diverge",
        ("zero-1", "unequal", False): "error",
        ("zero-2", "equal", False): "diverge",
        ("zero-2", "unequal", False): "error",
        ("zero-3", "equal", False): "error",
        ("zero-3", "unequal", False): "error",
        ("zero-3", "equal", "parent"): "match",
        ("zero-3", "unequal", "parent"): "match",
    }
    assert {it.run.rank_spread for it in apart if it.run.outcome != "error"} == {0.0}


def test_only_first_in_the_block_does_zero_grad_lose_gradients():
    judgement = judge(KNOWN, KNOWN.incidents["RO-0012"].meta.claims["zero-grad-order"])
    assert judgement.verdict == "depends"
    code = (ROOT / "snippets" / "RO-0012" / "accumulate.py").read_text(encoding="utf-8")
    shown = code.partition("[start:scaled]")[2].partition("[end:scaled]")[0]
    calls = ["accumulate(model)", "backward(loss)", "optimizer.step()", "optimizer.zero_grad()"]
    assert sorted(calls, key=shown.find) == calls and all(call in shown for call in calls)
