"""The minimal repro of each incident: it fails as the incident does, and with `--fixed` it trains right."""

import pytest

from readyonce.lab import minimal, processes, venvs
from support.project import KNOWN

INCIDENTS = [id for id, incident in KNOWN.incidents.items() if incident.has_minimal]


def test_each_incident_has_one():
    assert list(KNOWN.incidents) == INCIDENTS


@pytest.mark.parametrize("fixed", [False, True], ids=["fails", "fixed"])
@pytest.mark.parametrize("incident", INCIDENTS)
def test_it_ends_as_it_did(known, incident, fixed):
    stored, python = known.incidents[incident].minimal, venvs.interpreter(known.root, "current")
    seen, then = minimal.run(known, known.incidents[incident], python, fixed), stored.fixed if fixed else stored.fails
    assert (seen.outcome, seen.error) == (then.outcome, then.error), seen.said
    if seen.outcome != "diverge":  # the last digits of weights depend on the processor
        assert processes._apart_from_numbers(seen.said) == processes._apart_from_numbers(then.said)
