"""The frameworks' own commands, as the pages show them, in the current environment of each.

`make test-frameworks` runs these: the fix, the reported form, and the first of every other outcome. `make evidence` runs all.
"""

import pytest
from conftest import KNOWN

from readyonce import lab, launch
from readyonce.catalog import BASELINE


def one_of_each_kind():
    for incident in KNOWN.incidents.values():
        for file, (environment, *_) in incident.file.files.items():
            commands = [v for v in incident.variants.values() if v.file == file and environment in v.declared]
            commands = [variant for variant in commands if variant.is_command]
            chosen = [
                v for v in commands if not v.lines or v.name.endswith(f"-{BASELINE}")
            ]  # the fix, the reported form
            for variant in commands:
                if variant.declared[environment] not in [other.declared[environment] for other in chosen]:
                    chosen.append(variant)
            yield from (pytest.param(incident.id, v.name, id=f"{incident.id}/{v.name}") for v in chosen)


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
@pytest.mark.parametrize("incident, name", list(one_of_each_kind()))
def test_command(commands, known, incident, name):
    variant = known.incidents[incident].variants[name]
    environment = known.incidents[incident].file.files[variant.file][0]
    seen = commands(incident, environment).run(variant)
    assert seen.agrees_with(variant.declared[environment]), seen.log[-3000:]
    stored = known.incidents[incident].run(name, environment)
    assert stored, "no evidence is stored"
    if stored.gradient_error is not None:
        assert lab.same_gradient_error(stored.gradient_error, seen.gradient_error)
