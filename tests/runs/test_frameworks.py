"""The frameworks' own commands, as the pages show them, in the current environment of each.

`make test-frameworks` runs these: the fix, the reported form, and the first of every other outcome. `make evidence` runs all.
"""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from readyonce.data.schema import BASELINE
from readyonce.lab import commands as launch
from readyonce.lab import recording, venvs
from support.project import KNOWN, selected


def one_of_each_kind():
    for incident in KNOWN.incidents.values():
        for file, (environment, *_) in incident.meta.files.items():
            commands = [v for v in incident.variants.values() if v.script == file and environment in v.declared]
            commands = [variant for variant in commands if variant.is_command]
            chosen = [
                v for v in commands if not v.lines or v.name.endswith(f"-{BASELINE}")
            ]  # the fix, the reported form
            for variant in commands:
                if variant.declared[environment] not in [other.declared[environment] for other in chosen]:
                    chosen.append(variant)
            yield from (pytest.param(incident.id, v.name, environment, id=f"{incident.id}/{v.name}") for v in chosen)


@pytest.fixture(scope="module")
def seen(request, known):
    """(incident, variant) → a future of what its command did. Two incidents at a time: a launch is mostly imports."""
    groups, futures = {}, {}
    for it in selected(request, "seen"):
        groups.setdefault((it["incident"], it["environment"]), []).append(it["name"])
        futures[it["incident"], it["name"]] = Future()
    environments = list(dict.fromkeys(environment for _, environment in groups))
    with ThreadPoolExecutor(max_workers=2) as pool:
        pythons = dict(zip(environments, pool.map(lambda it: venvs.interpreter(known.root, it), environments)))

    def run(id, environment):
        with launch.Commands(known, known.incidents[id], pythons[environment]) as commands:
            for name in groups[id, environment]:
                if ended.is_set():
                    return
                try:
                    futures[id, name].set_result(commands.run(known.incidents[id].variants[name]))
                except Exception as error:
                    futures[id, name].set_exception(error)

    ended = threading.Event()
    with ThreadPoolExecutor(max_workers=2) as pool:
        for group in groups:
            pool.submit(run, *group)
        yield futures
        ended.set()  # where the tests were interrupted


@pytest.mark.frameworks
@pytest.mark.parametrize("incident, name, environment", list(one_of_each_kind()))
def test_command(seen, known, incident, name, environment):
    told = seen[incident, name].result()
    assert told.agrees_with(known.incidents[incident].variants[name].declared[environment]), told.log[-3000:]
    stored = known.incidents[incident].run(name, environment)
    assert stored, "no evidence is stored"
    if stored.gradient_error is not None:
        assert recording.same_gradient_error(stored.gradient_error, told.gradient_error)
