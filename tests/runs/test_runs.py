"""Every variant, run now, does what is declared and what the stored evidence says.

In the current environment; `readyonce verify` does the same in all. An observer watches each: the facts that repros tell
are those that somebody sees who only watches them train, so no mapping is wrong unnoticed.
"""

import json
import subprocess
from pathlib import Path

import pytest

from readyonce.lab import processes, recording, venvs
from support.project import KNOWN, RUNS, selected

CURRENT = [pytest.param(*run.values[:2], id=run.id) for run in RUNS if run.values[2] == "current"]


@pytest.fixture(scope="module")
def launched(request, known, tmp_path_factory):
    """(incident, variant) → what it did just now, and the facts that the observer saw; a launch for each incident."""
    wanted = {(it["incident"], it["variant"]) for it in selected(request, "launched")}
    observed, watched, python = {}, {}, venvs.interpreter(known.root, "current")
    for id in sorted({id for id, _ in wanted}):
        incident, lines = known.incidents[id], tmp_path_factory.mktemp("watched") / "lines"
        jobs = [(v, 1) for v in incident.variants.values() if (id, v.name) in wanted]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OBSERVED", str(lines))
            observer = Path(__file__).with_name("observer.py")
            for it in processes.together(known, incident, jobs, python, guard=observer, environment="current"):
                observed[id, it.variant] = it
        watched |= {(id, variant): seen for variant, seen in map(json.loads, lines.read_text("utf-8").splitlines())}
    return observed, watched


@pytest.mark.parametrize("incident, variant", CURRENT)
def test_outcome(launched, known, incident, variant):
    seen = launched[0][incident, variant]
    declared = known.incidents[incident].variants[variant].declared["current"]
    assert seen.agrees_with(declared), f"declared {declared}, saw {seen.outcome} ({seen.error}): {seen.message}"
    for literal in known.incidents[incident].variants[variant].shows:
        assert literal in seen.message
    stored = known.incidents[incident].run(variant, "current")
    assert stored, "no evidence is stored"
    if stored.gradient_error is not None:
        assert recording.same_gradient_error(stored.gradient_error, seen.gradient_error), (
            stored.gradient_error,
            seen.gradient_error,
        )


@pytest.mark.parametrize("incident, variant", CURRENT)
def test_facts_are_those_that_are_seen(launched, known, incident, variant):
    run, (observed, watched) = known.incidents[incident].run(variant, "current"), launched
    told = run.facts
    if (incident, variant) not in watched:
        # It ran alone, as does what stalls or kills a launch; or a rank raised this while the first one waited for it.
        assert observed[incident, variant].log or observed[incident, variant].error == "rank-lists-disagree"
        return
    if told["strategy"] == "single" or variant.startswith("single-process"):
        return
    seen = watched[incident, variant]
    if seen.get("accumulation") == 1 and told.get("synced") == "by-deepspeed":
        del seen["accumulation"]  # the configuration's: the loop accumulates by itself
    for name in ("strategy", "find_unused", "static_graph", "overlap", "buckets", "accumulation"):
        if name in seen and not told["strategy"].startswith("fsdp"):
            assert told.get(name, seen[name]) == seen[name], name
    if told.get("mode", "train") == "train":
        assert told["checkpointing"] == seen.get("checkpointing", "none")
    # Of what is checkpointed and trained; a frozen tower may run as often as it likes.
    if told["runs"] != "once" and told["checkpointing"] != "none" and "frozen" not in variant:
        assert seen["more"]
    if seen.get("more") and told["frozen"] in ("none", "base"):
        assert told["runs"] != "once"


def test_facts_told_are_those_stored(known):
    python = venvs.interpreter(known.root, "current")
    runs = [(known.incidents[it.values[0]], it.values[1]) for it in CURRENT]
    files = sorted({str(incident.folder / incident.variants[name].script) for incident, name in runs})
    command, environment = [python, processes.WORKER, "--facts", *files], processes.environment_of(python.parent)
    told = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout.splitlines()[-1])
    for incident, name in runs:
        facts = told[str(incident.folder / incident.variants[name].script)][name]
        assert incident.run(name, "current").facts == facts, (
            f"{incident.id}/{name}: `readyonce facts --write` stores it"
        )


def one_of_each_kind():
    """Of each incident the baseline, of each other file the first variant that finishes; of all, the first of every other
    outcome and launcher. A launch of all at once has what else each does, evidence more lone launches (`verify.of_each_kind`)."""
    met = set()
    for incident in KNOWN.incidents.values():
        if incident.short:
            continue
        names = ["reported"]
        met.add((incident.id, incident.variants["reported"].script))
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
    seen, python = {}, venvs.interpreter(known.root, "current")
    for id, incident in known.incidents.items():
        variants = [variant for name, variant in incident.variants.items() if (id, name) in wanted]
        for each in processes.each_alone(known, incident, variants, python):
            seen[id, each.variant] = each
    return seen


@pytest.mark.parametrize("incident, variant", list(one_of_each_kind()))
def test_alone_as_a_reader_runs_it(known, alone, incident, variant):
    seen = alone[incident, variant]
    assert seen.agrees_with(known.incidents[incident].variants[variant].declared["current"]), seen.log[-3000:]
