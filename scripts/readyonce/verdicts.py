"""Judges claims by the evidence: verdicts are computed here and typed nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from readyonce.catalog import BASELINE, Claim, Incident, Prediction, Run, Verdict


@dataclass(frozen=True)
class Judged:
    """One prediction of a claim against the run that decides it (`observed` None: not run)."""

    variant: str
    environment: str
    predicted: Prediction
    observed: Run | None

    @property
    def came_true(self) -> bool | None:
        if self.observed is None:
            return None
        outcome, _, family = self.predicted.partition(":")
        return self.observed.outcome == outcome and (not family or self.observed.error == family)


@dataclass(frozen=True)
class Judgement:
    claim: Claim
    verdict: Verdict
    predictions: tuple[Judged, ...]


def judge(incident: Incident, name: str) -> Judgement:
    """The verdict on one claim of an incident.

    `run`: all predictions came true: holds; none: fails; some: depends; one not run, or none
    made: open. `source`: what its sources support, else open. `measured` on a CPU and `inferred`
    decide nothing: open.
    """
    claim = incident.file.claims[name]
    predictions = tuple(
        Judged(variant.name, environment, predicted, incident.run(variant.name, environment))
        for variant, environment in incident.judged_on(name)
        if variant.name != BASELINE and (predicted := predicted_for(claim, variant.name, environment))
    )
    return Judgement(claim, _verdict(claim, predictions), predictions)


def predicted_for(claim: Claim, variant: str, environment: str) -> Prediction | None:
    """What a claim predicts for a variant; a pattern with `@environment` goes before one without."""
    if isinstance(claim.predicts, str):
        return claim.predicts
    for label in (f"{variant}@{environment}", variant):
        for pattern, prediction in claim.predicts.items():
            if ("@" in pattern) == ("@" in label) and fnmatchcase(label, pattern):
                return prediction
    return None


def _verdict(claim: Claim, predictions: tuple[Judged, ...]) -> Verdict:
    if claim.basis == "source":
        return claim.supports or "open"
    if claim.basis != "run":
        return "open"
    truths = {judged.came_true for judged in predictions}
    if not truths or None in truths:
        return "open"
    if truths == {True}:
        return "holds"
    return "fails" if truths == {False} else "depends"
