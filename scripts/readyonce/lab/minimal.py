"""The minimal repro of an incident, `minimal.py`: it fails as the incident does, and with `--fixed` it trains right.

It is a plain training script without variants. What both launches said is stored in `minimal.json` beside it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from readyonce.data import hashes, project
from readyonce.data.catalog import MINIMAL, MINIMAL_RUNS, Catalog, Incident
from readyonce.data.schema import MinimalRun, MinimalRuns, Model
from readyonce.lab import cleanup, made_from, processes, venvs
from readyonce.lab.verify import Wanted

RIGHT = "The weights equal one process's."  # what it says last, where they do
WRONG = "AssertionError: Tensor-likes are not close!"  # what torch.testing.assert_close says
LINES, LINES_WITH_A_LIBRARY = 40, 60  # that are not blank and mark no section; of a script that imports one of these
LIBRARIES = re.compile(r"^ *(?:import|from) (?:deepspeed|transformers)\b", re.MULTILINE)
LAUNCHES = 3  # an abort as in pytorch/pytorch#154976, after the last line, was seen in 2 of some 30 on a busy machine
SECTIONS = ("fails", "fixed")
SECTION_LINES = 3


def run(catalog: Catalog, incident: Incident, python: Path, fixed: bool) -> MinimalRun:
    """Launch it in two processes, as a reader does; again where it said that all is right and gloo's threads aborted then.

    Raises `LabError` where it does not end, or says nothing."""
    command = [*processes.torchrun(python, 2), incident.folder / MINIMAL, *(["--fixed"] if fixed else [])]
    for _ in range(LAUNCHES):
        code, log = launched(f"{incident.id}/{MINIMAL}", command, python, incident.meta.time_limit)
        if code == 0 or RIGHT not in log.splitlines():
            break
    if code == 0 and RIGHT in log.splitlines():
        return MinimalRun(outcome="match", said=RIGHT)
    if code == 0 or not (message := processes.message_in(log)):
        raise processes.LabError(f"{incident.id}/{MINIMAL} ended with {code} and said nothing\n{log[-3000:]}")
    if message.startswith(WRONG):
        return MinimalRun(outcome="diverge", said=message)
    return MinimalRun(outcome="error", error=catalog.family_of(message), said=message)


def launched(name: str, command: Sequence[str | Path], python: Path, seconds: float) -> tuple[int, str]:
    """How a launch ended, and its log. Raises `LabError` where it has not ended so many seconds after it may have started."""
    with cleanup.folder() as scratch:
        with processes.running(command, python, scratch) as process:
            try:
                code = process.wait(seconds + processes.START_LIMIT)
            except subprocess.TimeoutExpired:
                raise processes.LabError(f"{name} does not end") from None
        return code, processes.log_of(scratch)


def store(catalog: Catalog, path: Path, runs: Model) -> None:
    """Write what was run beside the script, and say so."""
    project.write_whole(path, json.dumps(runs.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n")
    place = path.relative_to(catalog.root)
    print(f"{place.parts[1]}: wrote {place}", flush=True)


def address(catalog: Catalog, incident: Incident, environment: str) -> dict[str, str]:
    """What decides how it ends: the script, and the environment."""
    return {
        MINIMAL: hashes.of_file(incident.folder / MINIMAL),
        made_from.ENVIRONMENT: made_from.environment(catalog, environment),
    }


def is_stale(catalog: Catalog, incident: Incident) -> bool:
    stored = incident.minimal
    return not stored or stored.made_from != address(catalog, incident, stored.environment.name)


def differences(known: Catalog, incidents: list[Incident], environment: str, wanted: Wanted) -> Iterator[str]:
    """Run the minimal repro of each incident; yields a text for each that does not end as it must. What is written is told."""
    for incident in incidents:
        if not incident.has_minimal or wanted.stale and not is_stale(known, incident):
            continue
        python, label = venvs.interpreter(known.root, environment, wanted.say), f"{incident.id}, {MINIMAL}"
        try:
            fails, fixed = (run(known, incident, python, fixed) for fixed in (False, True))
        except processes.LabError as error:
            yield f"{label}: {error}"
            continue
        if found := list(faults(incident, fails, fixed)):
            yield from (f"{label}: {fault}" for fault in found)
        elif wanted.write:
            made = address(known, incident, environment)
            described = venvs.describe(environment, python)
            stored = MinimalRuns(environment=described, made_from=made, fails=fails, fixed=fixed)
            store(known, incident.folder / MINIMAL_RUNS, stored)
        else:
            print(f"{label}: 2 runs", flush=True)


def faults(incident: Incident, fails: MinimalRun, fixed: MinimalRun) -> Iterator[str]:
    """It fails with an error of the incident, or trains wrong where the incident has none; with --fixed it trains right."""
    errors = incident.meta.errors
    if fails.error not in errors if errors else fails.outcome != "diverge":
        wanted = " or ".join(f"`{name}`" for name in errors) or "weights that are not one process's"
        yield f"it has to end with {wanted}, and ended so: {fails.said}"
    if fixed.outcome != "match":
        yield f"with --fixed it has to train right, and ended so: {fixed.said}"
