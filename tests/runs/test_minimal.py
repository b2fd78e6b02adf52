"""The minimal repro of each incident: it fails as the incident does, and with `--fixed` it trains right, also in other settings."""

import pytest

from readyonce.lab import minimal, processes, settings, venvs
from support import selection
from support.project import KNOWN, ROOT

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


@pytest.mark.parametrize("incident", [id for id in INCIDENTS if KNOWN.incidents[id].settings])
def test_in_another_setting_it_ends_as_it_did(known, incident):
    """In one that the commit draws; in all of them where they changed, or where everything is run."""
    stored, python = known.incidents[incident].settings.runs, venvs.interpreter(known.root, "current")
    for then in selection.Selection.of(ROOT).some(stored, [f"snippets/{incident}/settings.json"]):
        seen = settings.run(known.incidents[incident], python, then.setting)
        assert (seen.outcome, seen.setting) == (then.outcome, then.setting), (seen, then)
        if then.said:
            assert processes._apart_from_numbers(seen.said) == processes._apart_from_numbers(then.said)


@pytest.mark.parametrize("incident", ["RO-0009", "RO-0012", "RO-0014"])
def test_without_its_fix_another_setting_shows_it_too(known, incident):
    python = venvs.interpreter(known.root, "current")
    seen = settings.run(known.incidents[incident], python, settings.COVERING[3], fixed=False)
    assert seen.outcome == "diverge" and seen.apart[0] > 0.49
