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
            kinds = {}
            for variant in incident.variants.values():
                if variant.is_command and variant.file == file and environment in variant.declared:
                    reported = variant.name.endswith(f"-{BASELINE}")
                    kinds.setdefault((str(variant.declared[environment]), reported), variant.name)
            yield from (pytest.param(incident.id, name, id=f"{incident.id}/{name}") for name in kinds.values())


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
