"""Every variant, run now, does what is declared and what the stored evidence says.

In the current environment; `readyonce verify` does the same in all.
"""

import pytest

from readyonce import lab
from support.project import KNOWN, RUNS, selected

CURRENT = [pytest.param(*run.values[:2], id=run.id) for run in RUNS if run.values[2] == "current"]


@pytest.mark.parametrize("incident, variant", CURRENT)
def test_outcome(observed, known, incident, variant):
    seen = observed[incident, variant]
    declared = known.incidents[incident].variants[variant].declared["current"]
    assert seen.agrees_with(declared), f"declared {declared}, saw {seen.outcome} ({seen.error}): {seen.message}"
    for literal in known.incidents[incident].variants[variant].shows:
        assert literal in seen.message
    stored = known.incidents[incident].run(variant, "current")
    assert stored, "no evidence is stored"
    if stored.gradient_error is not None:
        assert lab.same_gradient_error(stored.gradient_error, seen.gradient_error), (
            stored.gradient_error,
            seen.gradient_error,
        )


def one_of_each_kind():
    """Of each incident the baseline, of each file the first variant that finishes; of all, the first of every other outcome
    and launcher. A launch of all at once has what else each does, evidence a lone launch of each variant."""
    met = set()
    for incident in KNOWN.incidents.values():
        names = ["reported"]
        for variant in incident.variants.values():
            if declared := variant.declared.get("current"):
                kinds = {(declared.outcome, variant.launcher, variant.processes)}
                if declared.outcome not in ("error", "hang"):
                    kinds.add((incident.id, variant.script))
                names += [variant.name] if kinds - met else []
                met |= kinds
        yield from (pytest.param(incident.id, name, id=f"{incident.id}/{name}") for name in dict.fromkeys(names))


@pytest.fixture(scope="module")
def alone(request, known):
    """(incident, variant) → what it did in a launch of its own; of those selected, two at a time."""
    wanted = {(it["incident"], it["variant"]) for it in selected(request, "alone")}
    seen, python = {}, lab.interpreter(known.root, "current")
    for id, incident in known.incidents.items():
        variants = [variant for name, variant in incident.variants.items() if (id, name) in wanted]
        for each in lab.each_alone(known, incident, variants, python):
            seen[id, each.variant] = each
    return seen


@pytest.mark.parametrize("incident, variant", list(one_of_each_kind()))
def test_alone_as_a_reader_runs_it(known, alone, incident, variant):
    seen = alone[incident, variant]
    assert seen.agrees_with(known.incidents[incident].variants[variant].declared["current"]), seen.log[-3000:]
