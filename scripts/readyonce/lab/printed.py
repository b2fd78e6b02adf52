"""What the other scripts of an incident print: those lines that begin with `=> `, which its pages report.

`incident.yml` names each call (`printed: [uses.py, causes.py ddp-save]`), and in `printed_in:` those that need another
environment. What they printed is stored in `printed.json`, and of another environment in `printed/NAME.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from readyonce.data import hashes
from readyonce.data.catalog import Catalog, Incident
from readyonce.data.schema import PrintedLines
from readyonce.lab import made_from, minimal, processes, venvs
from readyonce.lab.verify import Wanted

LIMIT = 600  # seconds for one call
LINE = re.compile(r"^=> (.+)$", re.MULTILINE)
IMPORT = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)


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
    """What decides what they print: the scripts with the files beside them that these import, and the environment."""
    scripts = sorted({call.split()[0] for call in incident.printed_calls.get(environment, [])})
    for script in scripts:  # which grows
        path = incident.folder / script
        names = [f"{name}.py" for name in IMPORT.findall(catalog.text(path))] if path.is_file() else []
        scripts += [it for it in names if (incident.folder / it).is_file() and it not in scripts]
    files = {script: hashes.of_file(incident.folder / script) for script in scripts}
    return files | {made_from.ENVIRONMENT: made_from.environment(catalog, environment)}


def stale(catalog: Catalog, incident: Incident) -> list[str]:
    """The environments of which what they print is not stored, or is stored of other files or calls, or in vain."""
    return [name for name in {**incident.printed_calls, **incident.printed} if _is_stale(catalog, incident, name)]


def _is_stale(catalog: Catalog, incident: Incident, environment: str) -> bool:
    stored, calls = incident.printed.get(environment), incident.printed_calls.get(environment)
    if not stored or not calls:
        return True
    today = address(catalog, incident, environment)
    return stored.made_from != today or list(stored.lines) != calls or stored.environment.name != environment


def differences(known: Catalog, incidents: list[Incident], environment: str, wanted: Wanted) -> Iterator[str]:
    """Run each call of each incident; yields a text for each that prints otherwise than is stored."""
    for incident in incidents:
        calls = incident.printed_calls.get(environment)
        if not calls or wanted.stale and not _is_stale(known, incident, environment):
            continue
        python, lines = venvs.interpreter(known.root, environment, wanted.say), {}
        try:
            for call in calls:
                lines[call] = run(incident, python, call)
        except processes.LabError as error:
            yield str(error)
            continue
        if wanted.write:
            made, described = address(known, incident, environment), venvs.describe(environment, python)
            stored = PrintedLines(environment=described, made_from=made, lines=lines)
            record = incident.printed_record(environment)
            record.parent.mkdir(exist_ok=True)
            minimal.store(known, record, stored)
            continue
        then = incident.printed[environment].lines if environment in incident.printed else {}
        yield from (f"{incident.id}/{call} prints otherwise now" for call in lines if lines[call] != then.get(call))
        print(f"{incident.id}: what {len(lines)} calls print", flush=True)
