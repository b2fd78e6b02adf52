"""Judges claims by the evidence: verdicts are computed here and typed nowhere.

A claim is a prediction about all runs that fit its scope, of whichever incident. No run can be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from readyonce.catalog import Catalog, Incident, Observed
from readyonce.facts import Leaf, separate
from readyonce.schema import Case, Claim, Prediction, Verdict

CORNER = 1 / 8  # a claim that comes true in less than this part of its runs does not hold; where it does is a corner


@dataclass(frozen=True)
class Judged:
    """One run in the scope of a claim, what the claim predicts for it (None: nothing), and whether its `when` fits."""

    observed: Observed
    predicted: Prediction | None
    inside: bool | None

    @property
    def came_true(self) -> bool:
        outcome, _, family = (self.predicted or "").partition(":")
        run = self.observed.run
        return run.outcome == outcome and (not family or run.error == family)


@dataclass(frozen=True)
class Judgement:
    claim: Claim
    verdict: Verdict
    runs: tuple[Judged, ...]
    undecided: int  # runs that do not tell enough to say whether they are in its scope

    @property
    def right(self) -> list[Judged]:
        return [judged for judged in self.runs if judged.came_true]

    def separating(self, names: Sequence[str]) -> list[Leaf]:
        """What separates the runs that came true from the others, computed from their facts."""
        return separate([(j.observed.facts, "right" if j.came_true else "wrong") for j in self.runs], names)


def judge(catalog: Catalog, incident: Incident, name: str) -> Judgement:
    """The verdict on one claim of an incident.

    An explanation is judged by the runs that would come out differently if it were false.

    `run`: the prediction came true for every run in scope: holds; for (nearly) none: fails; for some: depends; no run:
    open. `source`: what its sources support, else open. `measured` on a CPU and `inferred` decide nothing: open.
    """
    claim = incident.meta.claims[name]
    found, undecided = catalog.fitting(claim.scope) if claim.scope is not None else ([], 0)
    if claim.explanation:  # what both explanations predict alike decides nothing between them
        found = [
            observed
            for observed in found
            if first_fitting(catalog, claim.otherwise, observed) not in (None, predicted_for(catalog, claim, observed))
        ]
    runs = tuple(
        Judged(
            observed,
            predicted_for(catalog, claim, observed),
            catalog.fits(claim.when.where, observed) if claim.when else None,
        )
        for observed in found
    )
    return Judgement(claim, _verdict(claim, runs), runs, undecided)


def predicted_for(catalog: Catalog, claim: Claim, observed: Observed) -> Prediction | None:
    return claim.predicts if isinstance(claim.predicts, str) else first_fitting(catalog, claim.predicts or [], observed)


def first_fitting(catalog: Catalog, cases: Sequence[Case], observed: Observed) -> Prediction | None:
    return next((case.outcome for case in cases if catalog.fits(case.where, observed)), None)


def _verdict(claim: Claim, runs: tuple[Judged, ...]) -> Verdict:
    if claim.basis == "source":
        return claim.supports or "open"
    if claim.basis != "run" or not runs:
        return "open"
    share = sum(judged.came_true for judged in runs) / len(runs)
    return "holds" if share == 1 else "fails" if share < CORNER else "depends"
