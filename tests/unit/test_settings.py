"""The settings under which each mended minimal repro is run too, and what counts as right there."""

import itertools
from dataclasses import replace

import pytest

from readyonce.check import scripts
from readyonce.lab import settings
from support.project import KNOWN

VALUES = {"adapters": 2, "precision": 4, "optimizer": 2, "terms": 2, "frozen": 2, "buffers": 2}


def test_each_pair_of_values_is_run_together():
    for one, other in itertools.combinations(VALUES, 2):
        pairs = {(getattr(it, one), getattr(it, other)) for it in settings.COVERING}
        assert len(pairs) == VALUES[one] * VALUES[other], (one, other)


@pytest.mark.parametrize(
    "apart, rounding, outcome",
    [
        ([2e-7, 9e-5], [], "match"),
        ([2e-7, 2e-4], [], "diverge"),
        ([float("nan")], [], "diverge"),
        ([2e-7, float("nan"), 9e-5], [], "match"),  # nothing has a gradient in the second step
        ([2e-7, float("nan"), 2e-4], [], "diverge"),
        ([2e-7, float("nan"), float("nan")], [], "diverge"),
        ([0.007], [0.001], "match"),  # one number, rounded to its neighbour
        ([0.009], [0.001], "diverge"),
        ([0.03, 0.9], [0.01, 0.01], "match"),  # after the first step the weights are rounded apart
        ([0.04, 0.03], [0.01, 0.01], "diverge"),
        ([0.02], [float("nan")], "diverge"),
    ],
)
def test_how_far_gradients_may_be_apart(apart, rounding, outcome):
    assert settings.outcome(apart, rounding) == outcome


@pytest.mark.parametrize("name", ["minimal.py", "setting_worker.py", "environment"])
def test_what_was_run_with_another_input_is_red(name):
    incident = KNOWN.incidents["RO-0004"]
    assert not settings.is_stale(KNOWN, incident)
    older = {**incident.settings.made_from, name: "sha256:0"}
    stale = replace(incident, settings=incident.settings.model_copy(update={"made_from": older}))
    (problem,) = scripts.minimal_not_proven(replace(KNOWN, incidents={incident.id: stale}))
    assert problem.file == "snippets/RO-0004/settings.json" and "--stale --write" in problem.remedy


def test_only_a_script_with_sgd_is_run_in_other_settings():
    left_out = {id for id, incident in KNOWN.incidents.items() if not settings.can_be_set(KNOWN, incident)}
    assert left_out == {id for id, incident in KNOWN.incidents.items() if not incident.settings} == {"RO-0023"}
