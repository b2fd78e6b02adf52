"""Verifying: what runs together and how often, how that is judged against what is declared and stored, and what is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from readyonce import lab, launch
from readyonce.catalog import Catalog, Incident, Variant
from readyonce.lab import LabError, Observation
from readyonce.schema import Evidence, Guard, Run


@dataclass(frozen=True)
class Wanted:
    """How it is to be verified, and by whom it is heard."""

    write: bool = False  # store what it showed
    isolated: bool = False  # each variant in a launch of its own, once
    missing: bool = False  # only what has no stored run, or was not watched
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

    def __call__(self, seen: Observation) -> None:
        self.done += 1
        self.progress(f"{self.label}: {self.done} of {self.total}  {seen.variant}")


def differences(
    known: Catalog, incidents: list[Incident], environments: Iterable[str], wanted: Wanted
) -> Iterator[str]:
    """Run the incidents in each environment that they have; yields a text for each difference. What is written is told."""
    for environment in environments:
        for incident in (it for it in incidents if environment in it.environments):
            try:
                yield from _differences(known, incident, environment, wanted)
            except LabError as error:  # the other environments do not stop for it
                recorded = incident.evidence.get(environment)
                if recorded and recorded.not_run:
                    print(f"{incident.id} in {environment}: not run; it is recorded why", flush=True)
                else:
                    yield f"{incident.id} in {environment}: {error}"
                if wanted.write and not (recorded and recorded.runs):  # what once ran is not thrown away
                    lab.write(incident, lab.not_run(known.root, environment, str(error)))


def _differences(known: Catalog, incident: Incident, environment: str, wanted: Wanted) -> list[str]:
    python = lab.interpreter(known.root, environment, wanted.say)
    if wanted.guard:
        return _watch(known, incident, environment, python, wanted)
    variants = [it for it in incident.variants.values() if environment in it.declared]
    if wanted.missing:
        variants = [it for it in variants if not incident.run(it.name, environment)]
        if not variants:
            return []
    label = f"{incident.id} in {environment}"
    seen = _run(known, incident, environment, variants, python, wanted, label)
    faults = list(_judge(incident, environment, seen, label, against_stored=not wanted.write))
    if wanted.write:
        return faults + _store(known, incident, environment, variants, python, seen, wanted, label, sound=not faults)
    count = len(seen.together) + len(seen.alone)
    print(f"{label}: {count} {'run' if count == 1 else 'runs'}", flush=True)
    return faults


def _run(
    known: Catalog,
    incident: Incident,
    environment: str,
    variants: list[Variant],
    python: Path,
    wanted: Wanted,
    label: str,
) -> _Seen:
    """Repros together, repeated by their outcome; alone too when it is to be written; then the frameworks' commands."""
    seen = _Seen()
    repros = [it for it in variants if not it.is_command]
    commands = [it for it in variants if it.is_command]
    unusable = [it for it in incident.variants.values() if environment in it.unusable]
    if not wanted.isolated and repros:
        # A variant that hangs would take the others' launch with it.
        hanging = [it for it in repros if it.declared[environment].outcome == "hang"]
        jobs = [(it, lab.REPEATS[it.declared[environment].outcome]) for it in repros if it not in hanging]
        tick = _Ticker(label, sum(repeats for _, repeats in jobs) + len(hanging), wanted.progress)
        seen.together = lab.together(known, incident, jobs, python, tick)
        for variant in hanging:
            seen.together.append(lab.alone(known, incident, variant, python))
            tick(seen.together[-1])
    if wanted.isolated or wanted.write:
        tick = _Ticker(label, len(repros), wanted.progress)
        for observation in lab.each_alone(known, incident, repros, python):
            seen.alone[observation.variant] = observation
            tick(observation)
    if commands or unusable:
        tick = _Ticker(label, len(commands) + len(unusable), wanted.progress)
        with launch.Commands(known, incident, python) as started:
            for variant in commands:
                seen.alone[variant.name] = started.run(variant)
                tick(seen.alone[variant.name])
            for variant in unusable:
                ended = started.run(variant) if variant.is_command else lab.alone(known, incident, variant, python)
                seen.unusable.append(ended)
                tick(ended)
    wanted.progress("")
    return seen


def _judge(incident: Incident, environment: str, seen: _Seen, label: str, against_stored: bool) -> Iterator[str]:
    for ended in seen.unusable:
        if ended.outcome == "match" or ended.error:
            yield f"{label}: {ended.variant}: declared unusable, saw {ended.short}: declare that instead"
    for run in [*seen.together, *seen.alone.values()]:
        declared = incident.variants[run.variant].declared[environment]
        if not run.agrees_with(declared):
            details = run.message or run.log[-3000:]
            yield f"{label}: {run.variant}: declared {declared}, saw {run.short}\n{details}".rstrip()
        stored = incident.run(run.variant, environment)
        was, is_now = stored.gradient_error if stored else None, run.gradient_error
        if against_stored and was is not None and is_now is not None and not lab.same_gradient_error(was, is_now):
            yield f"{label}: {run.variant}: gradient error {is_now:.3g}, stored {was:.3g}"


def _store(
    known: Catalog,
    incident: Incident,
    environment: str,
    variants: list[Variant],
    python: Path,
    seen: _Seen,
    wanted: Wanted,
    label: str,
    sound: bool,
) -> list[str]:
    """Write the evidence, when all is `sound` and all repeats agree; returns why not."""
    described = lab.describe(environment, python)
    facts = lab.facts_of(known, incident, variants, python, described.versions)
    runs, disagreeing = lab.summarise(seen.together, seen.alone, facts)
    if disagreeing or not sound:
        faults = [f"{label}: {line}" for line in disagreeing]
        return [*faults, f"{label}: evidence not written, because of the lines above"]
    stored = incident.evidence.get(environment)
    if wanted.missing and stored and stored.runs:
        if stored.environment.versions != described.versions:
            return [f"{label}: its versions are not those of the stored runs: run it without --missing"]
        runs = [*stored.runs, *runs]
    if environment == "current":
        still = (it for it in variants if not it.is_command and it.declared[environment].outcome != "hang")
        runs = _with_guard(runs, dict(lab.guarded(known, incident, still, python)))
    evidence = Evidence(
        environment=described,
        options={
            command: lab.options_of(python, command)
            for command, where in incident.file.commands.items()
            if environment in where
        },
        runs=runs,
        unusable=lab.summarise([], {ended.variant: ended for ended in seen.unusable}, facts)[0],
    )
    print(f"{label}: wrote {lab.write(incident, evidence).relative_to(known.root)}", flush=True)
    if environment == "current" and (gpu := lab.gpu()):
        on_gpu = lab.on_one_device(known, incident, gpu, python)
        print(f"{label}: wrote {lab.write(incident, on_gpu).relative_to(known.root)}", flush=True)
    return []


# ------------------------------------------------------------------------------ the guard


def _watch(known: Catalog, incident: Incident, environment: str, python: Path, wanted: Wanted) -> list[str]:
    """Run each variant once with the guard, which only records; store it, or compare it with what is stored."""
    recorded, label = incident.evidence[environment], f"{incident.id} in {environment}"
    variants = [
        incident.variants[run.variant]
        for run in recorded.runs
        if not incident.variants[run.variant].is_command
        and run.outcome != "hang"
        and not (wanted.missing and run.guard)
    ]
    said: dict[str, dict[str, Any] | None] = {}
    for name, words in lab.guarded(known, incident, variants, python):
        said[name] = words
        wanted.progress(f"{label}: {len(said)} of {len(variants)}  {name}")
    wanted.progress("")
    watched = _with_guard(recorded.runs, said)
    if wanted.write:
        lab.write(incident, recorded.model_copy(update={"runs": watched}))
        return []
    return [
        f"{label}: {now.variant}: the guard said {now.guard}, stored {then.guard}"
        for now, then in zip(watched, recorded.runs)
        if now.guard != then.guard
    ]


def _with_guard(runs: list[Run], said: dict[str, dict[str, Any] | None]) -> list[Run]:
    """The runs with what the guard said of them, where it was there."""
    given = {name: Guard(**words) if words else None for name, words in said.items()}
    return [run.model_copy(update={"guard": given[run.variant]}) if run.variant in given else run for run in runs]


# ------------------------------------------------------------------------------ facts


def rewrite_facts(known: Catalog, say: Callable[[str], None] = print) -> None:
    """A word of the vocabulary changed: the runs need not be run again for it."""
    for incident in known.incidents.values():
        for name, evidence in (incident.evidence | incident.one_device).items():
            own = lab.folder(known.root, name) / "bin" / "python"
            python = own if own.is_file() else lab.interpreter(known.root, "current", say)
            variants = [incident.variants[run.variant] for run in evidence.runs]
            facts = lab.facts_of(known, incident, variants, python, evidence.environment.versions)
            runs = [run.model_copy(update={"facts": facts[run.variant]}) for run in evidence.runs]
            if runs != evidence.runs:
                path = lab.write(incident, evidence.model_copy(update={"runs": runs}))
                print(f"wrote {path.relative_to(known.root)}", flush=True)
