"""Judges claims by the evidence: verdicts are computed here and typed nowhere.

A claim is a prediction about all runs that fit its scope, of whichever incident. No run can be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from readyonce.data.catalog import Catalog, Observed, RunSet
from readyonce.data.facts import Leaf, Where, separate
from readyonce.data.schema import Case, Claim, Prediction, Verdict

CORNER = 1 / 8  # a claim that comes true in less than this part of its runs does not hold; where it does is a corner
Predicted = dict[Prediction, RunSet]


@dataclass(frozen=True)
class Judgement:
    """A claim, the runs that decide it, and what came of its prediction."""

    claim: Claim
    runs: RunSet
    right: RunSet  # those of them for which the prediction came true
    predicted: Predicted  # of all runs there are
    undecided: int  # runs that do not tell enough to say whether they are in its scope

    @property
    def verdict(self) -> Verdict:
        """`run`: the prediction came true for every run in scope: holds; for (nearly) none: fails; for some: depends; no run:
        open. `source`: what its sources support, else open. `measured` on a CPU and `inferred` decide nothing: open.
        """
        if self.claim.basis == "source":
            return self.claim.supports or "open"
        if self.claim.basis != "run" or not self.runs:
            return "open"
        share = len(self.right) / len(self.runs)
        return "holds" if share == 1 else "fails" if share < CORNER else "depends"

    def predicted_for(self, observed: Observed) -> Prediction | None:
        return next((outcome for outcome, runs in self.predicted.items() if observed in runs), None)

    def separating(self, names: Sequence[str]) -> list[Leaf]:
        """What separates the runs that came true from the others, computed from their facts."""
        return separate([(run.facts, "right" if run in self.right else "wrong") for run in self.runs], names)


def judge(catalog: Catalog, claim: Claim, setting: Where | None = None) -> Judgement:
    """The verdict on one claim. An explanation is judged by the runs that would come out differently if it were false.

    In a `setting`, only the runs count that fit it too, but for the facts that the claim's own scope asks for.
    """
    runs, undecided = (catalog.none, 0) if claim.scope is None else catalog.fitting(claim.scope)
    scopes = claim.scope if isinstance(claim.scope, list) else [claim.scope or {}]
    own = {name for scope in scopes for name in scope}
    if asked := {name: value for name, value in (setting or {}).items() if name not in own}:
        runs &= catalog.telling(asked)[0]
    predicts = claim.predicts or []
    cases = [Case(outcome=predicts)] if isinstance(predicts, str) else predicts
    predicted = _predicted(catalog, cases)
    if claim.explanation:  # what both explanations predict alike decides nothing between them
        deciding = catalog.none
        for outcome, otherwise in _predicted(catalog, claim.otherwise).items():
            deciding |= otherwise - predicted.get(outcome, catalog.none)
        runs &= deciding
    right = catalog.none
    for outcome, meant in predicted.items():
        right |= meant & catalog.ended.get(outcome, catalog.none)
    return Judgement(claim, runs, runs & right, predicted, undecided)


def _predicted(catalog: Catalog, cases: Sequence[Case]) -> Predicted:
    """Of several cases the first that fits a run predicts its outcome."""
    found: Predicted = {}
    left = catalog.every
    for case in cases:
        fit = left & catalog.telling(case.where)[0]
        found[case.outcome] = found.get(case.outcome, catalog.none) | fit
        left -= fit
    return found
