"""What the other scripts of an incident print: those lines that begin with `=> `, which its pages report.

`incident.yml` names each call (`printed: [uses.py, causes.py ddp-save]`). What they printed is stored in `printed.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from readyonce.data import hashes
from readyonce.data.catalog import PRINTED, Catalog, Incident
from readyonce.data.schema import PrintedLines
from readyonce.lab import made_from, minimal, processes, venvs
from readyonce.lab.verify import Wanted

LIMIT = 600  # seconds for one call
LINE = re.compile(r"^=> (.+)$", re.MULTILINE)


def run(incident: Incident, python: Path, call: str) -> list[str]:
    """The lines of a call in two processes, sorted: ranks speak in any order. Raises `LabError` where it fails."""
    script, *words = call.split()
    command = [*processes.torchrun(python, 2), incident.folder / script, *words]
    code, log = minimal.launched(f"{incident.id}/{call}", command, python, LIMIT)
    lines = sorted(LINE.findall(log))
    if code or not lines:
        raise processes.LabError(f"{incident.id}/{call} ended with {code}\n{log[-3000:]}")
    return lines


def address(catalog: Catalog, incident: Incident, environment: str) -> dict[str, str]:
    """What decides what they print: the scripts, and the environment."""
    scripts = sorted({call.split()[0] for call in incident.meta.printed})
    files = {script: hashes.of_file(incident.folder / script) for script in scripts}
    return files | {made_from.ENVIRONMENT: made_from.environment(catalog, environment)}


def is_stale(catalog: Catalog, incident: Incident) -> bool:
    """Whether what they print is not stored, or is stored of other files or calls."""
    stored = incident.printed
    if not stored:
        return bool(incident.meta.printed)
    today = address(catalog, incident, stored.environment.name)
    return stored.made_from != today or list(stored.lines) != incident.meta.printed


def differences(known: Catalog, incidents: list[Incident], environment: str, wanted: Wanted) -> Iterator[str]:
    """Run each call of each incident; yields a text for each that prints otherwise than is stored."""
    for incident in incidents:
        if not incident.meta.printed or wanted.stale and not is_stale(known, incident):
            continue
        python, lines = venvs.interpreter(known.root, environment, wanted.say), {}
        try:
            for call in incident.meta.printed:
                lines[call] = run(incident, python, call)
        except processes.LabError as error:
            yield str(error)
            continue
        if wanted.write:
            made, described = address(known, incident, environment), venvs.describe(environment, python)
            stored = PrintedLines(environment=described, made_from=made, lines=lines)
            minimal.store(known, incident.folder / PRINTED, stored)
            continue
        then = incident.printed.lines if incident.printed else {}
        yield from (f"{incident.id}/{call} prints otherwise now" for call in lines if lines[call] != then.get(call))
        print(f"{incident.id}: what {len(lines)} calls print", flush=True)
