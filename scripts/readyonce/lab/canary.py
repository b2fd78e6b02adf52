"""Whether what is declared and stored still holds with the newest releases; says what changed, and stores nothing."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from readyonce.data.catalog import Catalog, Incident
from readyonce.data.schema import Declaration, Run
from readyonce.lab import commands as launch
from readyonce.lab import framework_probe, processes, recording, venvs
from readyonce.lab.processes import LabError, Observation

BROKEN = (LabError, OSError, subprocess.SubprocessError)  # also a command that is gone, or does not end
LONGEST = 4_000  # characters of one message in a report
LIMIT = 60_000  # of a report: GitHub takes 65,536 for an issue


@dataclass(frozen=True)
class Change:
    environment: str
    subject: str  # an incident's variant, a command, or `environment`
    what: str
    details: str = ""  # others' words, as they are


@dataclass
class Report:
    releases: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)  # environment -> package -> then, now
    changes: list[Change] = field(default_factory=list)


def watch(
    catalog: Catalog,
    incidents: Iterable[Incident],
    say: Callable[[str], None] = print,
    progress: Callable[[str], None] = lambda line: None,
) -> Report:
    """Run each variant once in the newest form of every environment that stands for today."""
    report, incidents = Report(), list(incidents)
    of_stacks = [run.environment for run in catalog.stack_runs.values() if run.environment]
    for environment in dict.fromkeys([*(name for incident in incidents for name in incident.current), *of_stacks]):
        try:
            python = venvs.newest(catalog.root, environment, say)
        except LabError as error:
            report.changes.append(Change(environment, "environment", "does not install any more", str(error)))
            continue
        report.releases[environment] = _releases(catalog, environment, python)
        for incident in incidents:
            if environment in incident.current:
                report.changes += _changes(catalog, incident, environment, python, progress)
        report.changes += _stacks(catalog, environment, python, progress)
    return report


def _releases(catalog: Catalog, environment: str, python: Path) -> dict[str, tuple[str, str]]:
    pins = venvs.pins(catalog.root, environment)
    # `2.13.0+cpu` is another build of the same release.
    now = {name: (version or "").partition("+")[0] for name, version in venvs.installed(python, pins).items()}
    return {name: (then, now[name]) for name, then in pins.items() if then != now[name]}


def _changes(
    catalog: Catalog, incident: Incident, environment: str, python: Path, progress: Callable[[str], None]
) -> Iterator[Change]:
    variants = [variant for variant in incident.variants.values() if environment in variant.declared]
    done = 0

    def tick(observation: Observation) -> None:
        nonlocal done
        done += 1
        progress(f"{incident.id} with the newest of {environment}: {done} of {len(variants)}  {observation.variant}")

    jobs = [(variant, 1) for variant in variants if not variant.is_command]
    observed = processes.together(catalog, incident, jobs, python, tick)
    with launch.Commands(catalog, incident, python) as commands:
        for variant in (variant for variant in variants if variant.is_command):
            try:
                observed.append(commands.run(variant))
                tick(observed[-1])
            except BROKEN as error:
                yield Change(environment, f"{incident.id}/{variant.name}", "could not be run", str(error))
    for run in observed:
        declared, stored = (
            incident.variants[run.variant].declared[environment],
            incident.run(run.variant, environment),
        )
        if found := difference(declared, stored, run):
            yield Change(environment, f"{incident.id}/{run.variant}", *found)
    evidence = incident.evidence.get(environment)
    for command, options in (evidence.options if evidence else {}).items():
        try:
            gone = sorted(set(options) - set(venvs.options_of(python, command)))
        except BROKEN as error:
            yield Change(environment, command, "does not tell its options", str(error))
        else:
            if gone:
                yield Change(environment, command, "has these options no more", "\n".join(gone))


def _stacks(catalog: Catalog, environment: str, python: Path, progress: Callable[[str], None]) -> Iterator[Change]:
    """What reaches torch from each framework's settings, and from its defaults: one that moved is a change."""
    runs = {name: run for name, run in catalog.stack_runs.items() if run.environment == environment}
    for name, stored in runs.items():
        progress(f"frameworks with the newest of {environment}: {name}")
        try:
            result = framework_probe.run(catalog.root, python, *name.split())
        except BROKEN as error:
            yield Change(environment, name, "could not be run", str(error))
            continue
        for key in ("checkpointing", "find_unused_parameters"):
            then, now = getattr(stored, key), result[key]
            if then != now:
                yield Change(environment, name, f"{key} that reaches torch then: {then}; now: {now}")
        if _wording(stored.error) != _wording(result.get("error")):
            yield Change(environment, name, "it ends otherwise", result.get("error") or "without an error")


def difference(declared: Declaration, stored: Run | None, run: Observation) -> tuple[str, str] | None:
    """What is new in a run against what is declared and stored: in our words, and in those of its message."""
    if not run.agrees_with(declared):
        now = f"{run.outcome} ({run.error or 'of no known family'})" if run.outcome == "error" else run.outcome
        return f"declared: {declared}; now: {now}", run.message or run.log
    if stored is None:
        return None
    if _wording(stored.message) != _wording(run.message):
        lines = [("- ", line) for line in _lines(stored.message)] + [("+ ", line) for line in _lines(run.message)]
        return "the message reads otherwise", "\n".join(mark + line for mark, line in lines)
    was, is_now = stored.gradient_error, run.gradient_error
    if was is not None and is_now is not None and not recording.same_gradient_error(was, is_now):
        return f"gradient error then: {was:.3g}; now: {is_now:.3g}", ""
    return None


# What is no wording: addresses, folders, which parameter is named, numbers and lists of them.
INCIDENTAL = re.compile(r"\b0x[0-9a-fA-F]+|(/[\w.+-]+)+/|\b(\w+\.)+(weight|bias)\b|\d+([\s.,]+\d+)*")


def _wording(message: str | None) -> str:
    return INCIDENTAL.sub("…", " ".join(_lines(message)))


def _lines(message: str | None) -> list[str]:
    return [" ".join(line.split()) for line in (message or "").splitlines() if line.strip()]


# ------------------------------------------------------------------------------ words


def text(report: Report) -> str:
    lines = []
    for environment, releases in report.releases.items():
        listed = [f"  {name} {then} -> {now}" for name, (then, now) in releases.items()]
        lines += [f"The newest of {environment}: {'' if listed else 'as pinned'}".rstrip(), *listed]
    for change in report.changes:
        lines += ["", f"{change.subject}, with the newest of {change.environment}: {change.what}"]
        lines += [f"    {line}" for line in _harmless(change.details).splitlines()]
    return "\n".join([*lines, "", _summary(report)])


def markdown(report: Report) -> str:
    """The body of an issue. Others' words stand in code, which shows them as they are and calls nobody."""
    parts = [f"{_summary(report)} Python {platform.python_version()}, {platform.system()} {platform.machine()}."]
    for environment, releases in report.releases.items():
        listed = [f"- {_code(name)} {_code(then)} → {_code(now)}" for name, (then, now) in releases.items()]
        parts += [f"## The newest of {_code(environment)}", "\n".join(listed) or "As pinned."]
    parts += ["## What changed"] if report.changes else []
    left = LIMIT - sum(map(len, parts))
    for number, change in enumerate(report.changes):
        block = f"### {_code(change.subject)}\n\nWith the newest of {_code(change.environment)}: {change.what}.\n"
        block += _fenced(_harmless(change.details)) if change.details else ""
        left -= len(block)
        if left < 0:
            parts.append(f"{len(report.changes) - number} more do not fit here: the run's log has them.")
            break
        parts.append(block)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _summary(report: Report) -> str:
    number = len(report.changes)
    if not number:
        return "All runs with the newest releases are as declared and stored."
    return f"With the newest releases, {number} {'thing' if number == 1 else 'things'} changed."


def _harmless(details: str) -> str:
    """The end of others' words, without what steers a terminal."""
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]|[^\n\t -\x7e\xa0-\U0010ffff]", "", details)[-LONGEST:]


def _code(words: str) -> str:
    ticks = _longer_than("`", words, 1)
    pad = " " if "`" in words else ""
    return f"{ticks}{pad}{words}{pad}{ticks}"


def _fenced(words: str) -> str:
    fence = _longer_than("~", words, 3)
    return f"\n{fence}text\n{words}\n{fence}\n"


def _longer_than(mark: str, words: str, least: int) -> str:
    longest = max((len(run) for run in re.findall(re.escape(mark) + "+", words)), default=0)
    return mark * max(least, longest + 1)
