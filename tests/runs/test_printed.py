"""What the other scripts of an incident print, as its pages report it."""

import dataclasses

import pytest

from readyonce.lab import printed, processes, venvs
from support import selection
from support.project import KNOWN, ROOT

INCIDENTS = [id for id, incident in KNOWN.incidents.items() if incident.meta.printed]
ELSEWHERE = [(id, name) for id, incident in KNOWN.incidents.items() for name in incident.meta.printed_in]


@pytest.mark.parametrize("incident", INCIDENTS)
def test_it_prints_what_it_did(known, incident):
    """One call that the commit draws; all of them where they changed, or where everything is run."""
    prints_as_stored(known, incident, "current")


@pytest.mark.frameworks
def test_it_prints_what_it_did_elsewhere(known):
    """In one environment that the commit draws; in all of them where something is stored anew, or everything is run."""
    for incident, environment in selection.Selection.of(ROOT).some(ELSEWHERE, ["snippets/RO-*/printed/*.json"]):
        prints_as_stored(known, incident, environment)


def prints_as_stored(known, incident, environment):
    of, python = known.incidents[incident], venvs.interpreter(known.root, environment)
    stored, record = of.printed[environment].lines, of.printed_record(environment).relative_to(ROOT)
    for call in selection.Selection.of(ROOT).some(list(stored), [record.as_posix()]):
        assert printed.run(of, python, call) == stored[call], call


def test_a_call_that_prints_nothing_is_told(known, tmp_path):
    (tmp_path / "silent.py").write_text("print('nothing that begins so')\n")
    incident = dataclasses.replace(known.incidents["RO-0019"], folder=tmp_path)
    with pytest.raises(processes.LabError, match=r"RO-0019/silent.py word ended with 0\n"):
        printed.run(incident, venvs.interpreter(known.root, "current"), "silent.py word")
