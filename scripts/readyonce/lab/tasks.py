"""What the commands `run`, `verify` and `count` ask of the lab: which incidents, variants and environments, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from readyonce.data.catalog import Catalog, Incident, Variant
from readyonce.data.inputs import Unusable
from readyonce.lab import commands, counts, minimal, printed, processes, settings, venvs, verify
from readyonce.lab.counts import Count
from readyonce.lab.processes import Observation
from readyonce.lab.verify import Wanted


def incidents(known: Catalog, ids: list[str]) -> list[Incident]:
    """The incidents that are named, or all. Raises `Unusable` where there is no such incident."""
    for id in ids:
        if id not in known.incidents:
            raise Unusable(f"there is no incident {id}. There are: {', '.join(known.incidents)}")
    return [known.incidents[id] for id in ids or known.incidents]


# ------------------------------------------------------------------------------ run


def variants(incident: Incident, environment: str, named: str | None) -> dict[str, Variant]:
    """The variants that run in an environment. Raises `Unusable` where there is none, or not the one that is named."""
    if incident.short:
        raise Unusable(f"{incident.id} has no variants; its minimal repro is run by: readyonce verify {incident.id}")
    found = {name: variant for name, variant in incident.variants.items() if environment in variant.declared}
    if named and named not in found:
        there = "\n  ".join(found)
        raise Unusable(f"{incident.id} has no variant `{named}` in `{environment}`. It has:\n  {there}")
    return found


def run(known: Catalog, incident: Incident, variant: Variant, python: Path) -> Observation:
    """Run a variant in a launch of its own."""
    if variant.is_command:
        with commands.Commands(known, incident, python) as started:
            return started.run(variant)
    return processes.alone(known, incident, variant, python)


def run_all(
    known: Catalog,
    incident: Incident,
    variants: Iterable[Variant],
    python: Path,
    show: Callable[[Observation], None],
) -> None:
    """Run the variants of repros in one launch, then each framework's command."""
    given = list(variants)
    if repros := [(variant, 1) for variant in given if not variant.is_command]:
        processes.together(known, incident, repros, python, show)
    with commands.Commands(known, incident, python) as started:
        for variant in given:
            if variant.is_command:
                show(started.run(variant))


def sentence(result: Observation, variant: Variant) -> str:
    """How a run ended, for a reader."""
    match result.outcome:
        case "error":
            return f"It failed: {result.error}." if result.error else "It failed, with an error of no known family."
        case "match":
            other = "the same launch without checkpointing" if variant.is_command else "a single process"
            return f"It trained right: the parameters equal those of {other} (difference {result.gradient_error:.2g})."
        case "diverge":
            name = f"`{result.worst}` is" if result.worst else "the parameters are"
            return f"It finished, on WRONG gradients: {name} off by {result.gradient_error:.2g} of how far they should move."
        case "still":
            return "It finished, and NOTHING MOVED: the trained parameters equal their start."
        case "hang":
            return "It hung and was ended at its time limit."
    return "It trained, printed its result, and then crashed while shutting down: a fault of the repro."


# ------------------------------------------------------------------------------ verify, count


def environments(incidents: list[Incident], named: str | None) -> list[str]:
    """Where the incidents run, or the one of these environments that is named. Raises `Unusable` where it is none."""
    every = [name for incident in incidents for name in (*incident.environments, *incident.meta.printed_in)]
    found = list(dict.fromkeys(every))
    if named and named not in found:
        of = incidents[0].id if len(incidents) == 1 else "No incident of these"
        raise Unusable(f"{of} is not run in `{named}`, but in: {', '.join(found)}")
    return [named] if named else found


def differences(
    known: Catalog, incidents: list[Incident], environments: list[str], wanted: Wanted, address: str | None
) -> Iterator[str]:
    """Run what is wanted, here with the minimal repros, or on the cluster at `address`; yields a text for each difference."""
    if address:
        from readyonce.lab import cluster

        yield from cluster.differences(known, incidents, environments, wanted, address)
        return
    yield from verify.differences(known, incidents, environments, wanted)
    if "current" in environments and not (wanted.guard or wanted.missing):
        yield from minimal.differences(known, incidents, "current", wanted)
        yield from settings.differences(known, incidents, "current", wanted)
    for environment in [] if wanted.guard or wanted.missing else environments:
        yield from printed.differences(known, incidents, environment, wanted)


def counted(
    known: Catalog, named: str | None, environment: str | None, say: Callable[[str], None]
) -> Iterator[tuple[str, str, Path, list[Count]]]:
    """Run what is counted: (script, environment, its Python, the counts)."""
    for name, file in counts.files(known).items():
        for where in file.environments if named in (None, name) else ():
            if environment in (None, where):
                python = venvs.interpreter(known.root, where, say)
                yield name, where, python, counts.measure(known, name, file, where, python)
