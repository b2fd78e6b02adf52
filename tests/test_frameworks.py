"""The frameworks' own commands, as the pages show them, in the current environment of each.

`make test-frameworks` runs these; `make test` leaves them out.
"""

import pytest
from conftest import KNOWN

from readyonce import lab, launch

COMMANDS = [
    pytest.param(incident.id, variant.name, id=f"{incident.id}/{variant.name}")
    for incident in KNOWN.incidents.values()
    for variant in incident.variants.values()
    if variant.is_command and incident.file.files[variant.file][0] in variant.declared
]


@pytest.fixture(scope="module")
def commands(known):
    """(incident, environment) → its commands; the tiny model and the runs to compare with are made once."""
    opened = {}

    def of(id, environment):
        if (id, environment) not in opened:
            python = lab.interpreter(known.root, environment)
            opened[id, environment] = launch.Commands(known, known.incidents[id], python)
        return opened[id, environment]

    yield of
    for each in opened.values():
        each.__exit__()


@pytest.mark.frameworks
@pytest.mark.parametrize("incident, name", COMMANDS)
def test_command(commands, known, incident, name):
    variant = known.incidents[incident].variants[name]
    environment = known.incidents[incident].file.files[variant.file][0]
    seen = commands(incident, environment).run(variant)
    assert seen.agrees_with(variant.declared[environment]), seen.log[-3000:]
    stored = known.incidents[incident].run(name, environment)
    assert stored, "no evidence is stored"
    if stored.gradient_error is not None:
        assert lab.same_gradient_error(stored.gradient_error, seen.gradient_error)
