"""Verifying: what runs together and how often, how that is judged against what is declared and stored, and what is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from readyonce.data.catalog import Catalog, Incident, Variant
from readyonce.data.facts import Value
from readyonce.data.schema import BASELINE, Environment, Evidence, Guard, Run
from readyonce.lab import commands as launch
from readyonce.lab import made_from, processes, recording, venvs
from readyonce.lab.processes import LabError, Observation

T = TypeVar("T")


@dataclass(frozen=True)
class Wanted:
    """How it is to be verified, and by whom it is heard."""

    write: bool = False  # store what it showed
    isolated: bool = False  # each variant in a launch of its own, once; beside --write not only one of each kind
    missing: bool = False  # only what has no stored run, or was not watched
    stale: bool = False  # only what was stored with other scripts, environments or launches than those of today
    guard: bool = False  # what the guard says, not how it ends
    say: Callable[[str], None] = print
    progress: Callable[[str], None] = lambda line: None


@dataclass
class _Seen:
    together: list[Observation] = field(default_factory=list)
    alone: dict[str, Observation] = field(default_factory=dict)  # variant -> in a launch of its own
    unusable: list[Observation] = field(default_factory=list)


@dataclass
class _Ticker:
    """Says how far a part of the runs is."""

    label: str
    total: int
    progress: Callable[[str], None]
    done: int = 0

    def __call__(self, observation: Observation) -> None:
        self.done += 1
        self.progress(f"{self.label}: {self.done} of {self.total}  {observation.variant}")


@dataclass(frozen=True)
class Task:
    """What is run in one go: variants of an incident in an environment, each by its name."""

    environment: str
    incident: str
    variants: tuple[str, ...]
    unusable: tuple[str, ...] = ()  # of which it is declared that their end says nothing
    commands: tuple[str, ...] = ()  # whose options are asked for
    file: str | None = None  # whose variants they are; None: of all files

    @property
    def label(self) -> str:
        return f"{self.incident} in {self.environment}{self.file and f', {self.file}' or ''}"

    def by_file(self, incident: Incident) -> list[Task]:
        """The same in parts, one for each file."""
        files = dict.fromkeys(incident.variants[name].script for name in (*self.variants, *self.unusable))

        def of(file: str, names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(name for name in names if incident.variants[name].script == file)

        parts = [
            replace(self, file=file, variants=of(file, self.variants), unusable=of(file, self.unusable), commands=())
            for file in files
        ]
        return [replace(parts[0], commands=self.commands), *parts[1:]] if parts else [self]


@dataclass
class Measured:
    """What a task showed. It goes from where it was run to where it is judged and written."""

    seen: _Seen = field(default_factory=_Seen)
    described: Environment | None = None  # this and the rest only where it is to be written
    facts: dict[str, dict[str, Value]] = field(default_factory=dict)
    options: dict[str, list[str]] = field(default_factory=dict)
    guard: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    one_device: Evidence | None = None


def tasks(
    known: Catalog, incidents: list[Incident], environments: Iterable[str], wanted: Wanted
) -> Iterator[tuple[Incident, Task]]:
    """What there is to run: of each environment the incidents that have it, whole."""
    for environment in environments:
        for incident in (
            candidate for candidate in incidents if environment in candidate.environments and not candidate.short
        ):
            if task := _task(known, incident, environment, wanted):
                yield incident, task


def _task(known: Catalog, incident: Incident, environment: str, wanted: Wanted) -> Task | None:
    recorded = incident.evidence.get(environment)
    if wanted.stale and recorded and not made_from.to_run_again(known, incident, recorded):
        return None
    if wanted.guard:
        watched = [
            run.variant
            for run in (recorded.runs if recorded else [])
            if _can_watch(incident.variants[run.variant], run.outcome) and not (wanted.missing and run.guard)
        ]
        return Task(environment, incident.id, tuple(watched)) if watched else None
    variants = [name for name, variant in incident.variants.items() if environment in variant.declared]
    if wanted.missing:
        variants = [name for name in variants if not incident.run(name, environment)]
        if not variants:
            return None
    unusable = [name for name, variant in incident.variants.items() if environment in variant.unusable]
    commands = [command for command, where in incident.meta.commands.items() if environment in where]
    return Task(environment, incident.id, tuple(variants), tuple(unusable), tuple(commands))


def differences(
    known: Catalog, incidents: list[Incident], environments: Iterable[str], wanted: Wanted
) -> Iterator[str]:
    """Run the incidents in each environment that they have; yields a text for each difference. What is written is told."""
    for incident, task in tasks(known, incidents, environments, wanted):
        try:
            measured = measure(known, task, wanted)
        except LabError as error:  # the other environments do not stop for it
            yield from not_run(known, incident, task.environment, error, wanted)
        else:
            yield from conclude(known, incident, task.environment, [measured], wanted)


def measure(known: Catalog, task: Task, wanted: Wanted) -> Measured:
    """Run a task; judges and writes nothing. Raises `LabError` where it cannot be run."""
    incident, environment = known.incidents[task.incident], task.environment
    python = venvs.interpreter(known.root, environment, wanted.say)
    variants = [incident.variants[name] for name in task.variants]
    if wanted.guard:
        return Measured(guard=_watched(known, incident, variants, python, wanted, task.label))
    observed = _run(
        known, incident, environment, variants, [incident.variants[name] for name in task.unusable], python, wanted
    )
    if not wanted.write:
        return Measured(observed)
    described = venvs.describe(environment, python)
    facts = recording.facts_of(known, incident, variants, python, described.versions)
    measured = Measured(observed, described, facts)
    if any(_judge(incident, environment, observed, "", against_stored=False)) or _disagreeing(measured):
        return measured  # it will not be stored: no more is needed
    if environment == "current" or _was_watched(incident.evidence.get(environment)):
        still = [variant for variant in variants if _can_watch(variant, variant.declared[environment].outcome)]
        measured.guard = dict(processes.guarded(known, incident, still, python))
    if environment == "current" and (gpu := venvs.gpu()):
        mine = replace(incident, variants={variant.name: variant for variant in variants})
        measured.one_device = recording.on_one_device(known, mine, gpu, python)
    measured.options = {command: venvs.options_of(python, command) for command in task.commands}
    return measured


def not_run(known: Catalog, incident: Incident, environment: str, error: LabError, wanted: Wanted) -> Iterator[str]:
    """Of what could not be run: whether it is known why. To be written, the reason is, but for what once ran."""
    recorded = incident.evidence.get(environment)
    if recorded and recorded.not_run:
        print(f"{incident.id} in {environment}: not run; it is recorded why", flush=True)
    else:
        yield f"{incident.id} in {environment}: {error}"
    if wanted.write and not (recorded and recorded.runs):  # what once ran is not thrown away
        recording.write(incident, recording.not_run(known.root, environment, str(error)))


def conclude(known: Catalog, incident: Incident, environment: str, parts: list[Measured], wanted: Wanted) -> list[str]:
    """Judge what the tasks of an incident showed, the parts of one environment, and store it where that is wanted and
    nothing speaks against it. Returns a text for each difference."""
    if wanted.guard:
        return _watch(known, incident, environment, _joined(part.guard for part in parts), wanted)
    label = f"{incident.id} in {environment}"
    observed = _Seen(
        [observation for part in parts for observation in part.seen.together],
        _joined(part.seen.alone for part in parts),
        [observation for part in parts for observation in part.seen.unusable],
    )
    faults = list(_judge(incident, environment, observed, label, against_stored=not wanted.write))
    if wanted.write:
        return faults + _store(known, incident, environment, parts, observed, wanted, label, sound=not faults)
    count = len(observed.together) + len(observed.alone)
    print(f"{label}: {count} {'run' if count == 1 else 'runs'}", flush=True)
    return faults


def _run(
    known: Catalog,
    incident: Incident,
    environment: str,
    variants: list[Variant],
    unusable: list[Variant],
    python: Path,
    wanted: Wanted,
) -> _Seen:
    """Repros together, repeated by their outcome; when it is to be written one of each kind alone, too; then commands."""
    observed, label = _Seen(), f"{incident.id} in {environment}"
    repros = [repro for repro in variants if not repro.is_command]
    commands = [command for command in variants if command.is_command]
    if (wanted.write or not wanted.isolated) and repros:
        # A variant that hangs would take the others' launch with it.
        hanging = [repro for repro in repros if repro.declared[environment].outcome == "hang"]
        jobs = [
            (repro, recording.REPEATS[repro.declared[environment].outcome]) for repro in repros if repro not in hanging
        ]
        tick = _Ticker(label, sum(repeats for _, repeats in jobs) + len(hanging), wanted.progress)
        observed.together = processes.together(known, incident, jobs, python, tick, environment=environment)
        for variant in hanging:
            observed.together.append(processes.alone(known, incident, variant, python))
            tick(observed.together[-1])
        observed.alone = {observation.variant: observation for observation in observed.together if observation.log}
    if wanted.isolated or wanted.write:
        singles = repros if wanted.isolated else of_each_kind(incident, repros, environment)
        singles = [repro for repro in singles if repro.name not in observed.alone]
        tick = _Ticker(label, len(singles), wanted.progress)
        for observation in processes.each_alone(known, incident, singles, python):
            observed.alone[observation.variant] = observation
            tick(observation)
    if commands or unusable:
        tick = _Ticker(label, len(commands) + len(unusable), wanted.progress)
        with launch.Commands(known, incident, python) as started:
            for variant in commands:
                observed.alone[variant.name] = started.run(variant)
                tick(observed.alone[variant.name])
            for variant in unusable:
                ended = (
                    started.run(variant) if variant.is_command else processes.alone(known, incident, variant, python)
                )
                observed.unusable.append(ended)
                tick(ended)
    wanted.progress("")
    return observed


def of_each_kind(incident: Incident, variants: list[Variant], environment: str) -> list[Variant]:
    """The incident as reported, its fix, and of each file, way to end and way to be started the first."""
    kinds: dict[tuple[object, ...], str] = {}
    for variant in variants:
        declared = variant.declared[environment]
        kinds.setdefault((variant.script, declared.outcome, declared.error), variant.name)
        kinds.setdefault((variant.launcher, variant.processes), variant.name)
    names = {BASELINE, incident.meta.fix.variant, *kinds.values()}
    return [variant for variant in variants if variant.name in names]


def _judge(incident: Incident, environment: str, observed: _Seen, label: str, against_stored: bool) -> Iterator[str]:
    for ended in observed.unusable:
        if ended.outcome == "match" or ended.error:
            yield f"{label}: {ended.variant}: declared unusable, saw {ended.short}: declare that instead"
    for run in [*observed.together, *observed.alone.values()]:
        declared = incident.variants[run.variant].declared[environment]
        if not run.agrees_with(declared):
            details = run.message or run.log[-3000:]
            yield f"{label}: {run.variant}: declared {declared}, saw {run.short}\n{details}".rstrip()
        stored = incident.run(run.variant, environment)
        was, is_now = stored.gradient_error if stored else None, run.gradient_error
        if against_stored and was is not None and is_now is not None and not recording.same_gradient_error(was, is_now):
            yield f"{label}: {run.variant}: gradient error {is_now:.3g}, stored {was:.3g}"


def _disagreeing(measured: Measured) -> list[str]:
    return recording.summarise(measured.seen.together, measured.seen.alone, measured.facts)[1]


def _store(
    known: Catalog,
    incident: Incident,
    environment: str,
    parts: list[Measured],
    observed: _Seen,
    wanted: Wanted,
    label: str,
    sound: bool,
) -> list[str]:
    """Write the evidence, when all is `sound` and all repeats agree; returns why not."""
    facts = _joined(part.facts for part in parts)
    runs, disagreeing = recording.summarise(observed.together, observed.alone, facts)
    described, apart = _described(parts)
    if disagreeing or apart or not sound:
        faults = [f"{label}: {line}" for line in (*disagreeing, *apart)]
        return [*faults, f"{label}: evidence not written, because of the lines above"]
    stored = incident.evidence.get(environment)
    added_to = stored if wanted.missing and stored and stored.runs else None
    if added_to:
        if added_to.environment.versions != described.versions:
            return [f"{label}: its versions are not those of the stored runs: run it without --missing"]
        if added_to.made_from and (others := made_from.to_run_again(known, incident, added_to)):
            return [f"{label}: the stored runs are of another {' and '.join(others)}: run it without --missing"]
        runs = [*added_to.runs, *runs]
    runs = _with_guard(runs, _joined(part.guard for part in parts))
    evidence = Evidence(
        environment=described,
        options=_joined(part.options for part in parts),
        runs=_in_order(incident, runs),
        unusable=_in_order(
            incident, recording.summarise([], {run.variant: run for run in observed.unusable}, facts)[0]
        ),
    )
    if not added_to or added_to.made_from:  # else the address of the stored runs is not known
        beside, address = made_from.beside, made_from.address
        of = beside(known, incident, added_to, evidence) if added_to else address(known, incident, evidence)
        evidence = evidence.model_copy(update={"made_from": of})
        made_from.unlist(incident, evidence)
    print(f"{label}: wrote {recording.write(incident, evidence).relative_to(known.root)}", flush=True)
    if (on_gpu := [part.one_device for part in parts if part.one_device]) and len(on_gpu) == len(parts):
        runs = _in_order(incident, [run for partial in on_gpu for run in partial.runs])
        one_device = on_gpu[0].model_copy(update={"runs": runs})
        written = recording.write(incident, made_from.addressed(known, incident, one_device))
        print(f"{label}: wrote {written.relative_to(known.root)}", flush=True)
    return []


def _joined(parts: Iterable[dict[str, T]]) -> dict[str, T]:
    return {name: value for part in parts for name, value in part.items()}


def _described(parts: list[Measured]) -> tuple[Environment, list[str]]:
    """The one environment of all parts, and how they differ where it is not one: evidence names one only."""
    descriptions = [part.described for part in parts if part.described]
    latest = max(descriptions, key=lambda description: description.date)
    words = [description.model_dump(exclude={"date"}) for description in descriptions]
    apart = [
        f"its files were run with {key} that differ: {' and '.join(sorted({str(dump[key]) for dump in words}))}"
        for key in words[0]
        if any(dump[key] != words[0][key] for dump in words)
    ]
    return latest, apart


def _in_order(incident: Incident, runs: list[Run]) -> list[Run]:
    """As they are declared: in which order, in how many parts and when they were run says nothing."""
    return sorted(runs, key=lambda run: list(incident.variants).index(run.variant))


# ------------------------------------------------------------------------------ the guard


def _can_watch(variant: Variant, outcome: str) -> bool:
    """The guard watches a launch of many: a command has its own, and one that hangs would take the others with it."""
    return not variant.is_command and outcome != "hang"


def _watched(
    known: Catalog, incident: Incident, variants: list[Variant], python: Path, wanted: Wanted, label: str
) -> dict[str, dict[str, Any] | None]:
    """Run each variant once with the guard, which only records: what it said."""
    said: dict[str, dict[str, Any] | None] = {}
    for name, words in processes.guarded(known, incident, variants, python):
        said[name] = words
        wanted.progress(f"{label}: {len(said)} of {len(variants)}  {name}")
    wanted.progress("")
    return said


def _watch(
    known: Catalog, incident: Incident, environment: str, said: dict[str, dict[str, Any] | None], wanted: Wanted
) -> list[str]:
    """Store what the guard said, or compare it with what is stored."""
    recorded, label = incident.evidence[environment], f"{incident.id} in {environment}"
    watched = _with_guard(recorded.runs, said)
    if wanted.write:
        fresh = recorded.model_copy(update={"runs": watched})
        if not wanted.missing:  # all of them were watched by the guard of today
            fresh = made_from.refreshed(known, incident, recorded, watched, made_from.WATCHED)
        recording.write(incident, fresh)
        return []
    return [
        f"{label}: {now.variant}: the guard said {now.guard}, stored {then.guard}"
        for now, then in zip(watched, recorded.runs)
        if now.guard != then.guard
    ]


def _was_watched(evidence: Evidence | None) -> bool:
    return evidence is not None and any(run.guard for run in evidence.runs)


def _with_guard(runs: list[Run], said: dict[str, dict[str, Any] | None]) -> list[Run]:
    """The runs with what the guard said of them, where it was there."""
    given = {name: Guard(**words) if words else None for name, words in said.items()}
    return [run.model_copy(update={"guard": given[run.variant]}) if run.variant in given else run for run in runs]


# ------------------------------------------------------------------------------ facts


def rewrite_facts(known: Catalog, say: Callable[[str], None] = print) -> None:
    """A word of the vocabulary changed: the runs need not be run again for it. Evidence that has no address of it is left."""
    for incident in known.incidents.values():
        for name, evidence in (incident.evidence | incident.elsewhere).items():
            changed = made_from.differences(known, incident, evidence)
            if made_from.FACTS not in changed or made_from.FACTS not in (evidence.made_from or {}):
                continue
            # In its own releases: what a repro's settings come to may depend on them.
            python = venvs.interpreter(known.root, name if name in incident.evidence else "current", say)
            variants = [incident.variants[run.variant] for run in evidence.runs]
            facts = recording.facts_of(known, incident, variants, python, evidence.environment.versions)
            runs = [run.model_copy(update={"facts": facts[run.variant]}) for run in evidence.runs]
            fresh = made_from.refreshed(known, incident, evidence, runs, made_from.FACTS)
            if fresh != evidence:
                path = recording.write(incident, fresh)
                print(f"wrote {path.relative_to(known.root)}", flush=True)
