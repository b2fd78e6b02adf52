"""The stored runs of repros in older releases, run again: those whose evidence changed, and one evidence of each commit's draw."""

import pytest

from readyonce.lab import processes, recording, venvs
from support.project import KNOWN


def older():
    """(incident, environment) of each evidence of repros but that of the current releases."""
    for incident in KNOWN.incidents.values():
        for environment in incident.evidence:
            if environment != "current" and repros(incident, environment):
                yield pytest.param(incident.id, environment, id=f"{incident.id}@{environment}")


def repros(incident, environment):
    variants = [incident.variants[run.variant] for run in incident.evidence[environment].runs]
    return [variant for variant in variants if not variant.is_command]


@pytest.mark.frameworks
@pytest.mark.parametrize("incident, environment", list(older()))
def test_ends_as_stored(known, incident, environment):
    of, told = known.incidents[incident], []
    python = venvs.interpreter(known.root, environment)
    jobs = [(variant, 1) for variant in repros(of, environment)]
    for seen in processes.together(known, of, jobs, python, environment=environment):
        declared, stored = of.variants[seen.variant].declared[environment], of.run(seen.variant, environment)
        if not seen.agrees_with(declared):
            told.append(f"{seen.variant}: declared {declared}, saw {seen.short}: {seen.message or seen.log[-2000:]}")
        elif stored.gradient_error is not None and not recording.same_gradient_error(
            stored.gradient_error, seen.gradient_error
        ):
            told.append(f"{seen.variant}: stored {stored.gradient_error}, saw {seen.gradient_error}")
    assert not told, "\n".join(told)
