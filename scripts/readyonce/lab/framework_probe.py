"""What a framework's script makes torch do, and whether its first gradient is that of one process.

`snippets/frameworks/run/watch.py` tells what reached torch; `readyonce_compare` compares the gradient. Both are stored in
`snippets/frameworks/runs.json`.

    python -m readyonce.lab.framework_probe ENVIRONMENT SCRIPT [WORD ...]    # this run
    python -m readyonce.lab.framework_probe ENVIRONMENT                      # each stored run of it whose files have changed

ENVIRONMENT is one of `snippets/environments/`, or the path of the Python of one that is no list there.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from readyonce.data import catalog as catalogs
from readyonce.data import hashes
from readyonce.data.catalog import Catalog
from readyonce.data.project import write_whole
from readyonce.data.schema import GUARD, FirstGradient, Seen
from readyonce.lab import cleanup, made_from, processes, venvs
from readyonce.lab.processes import LabError

TIME_LIMIT = 600  # seconds for one script
COMPARED = re.compile(
    r"distance (\S+), ratio of lengths (\S+), cosine \S+\n.*noise of two right orders (\S+), limit (\S+)"
)


def run(root: Path, python: Path, script: str, *words: str) -> dict[str, Any]:
    """Run a script under `watch.py` in two processes; returns what reached torch."""
    folder = _folder(root)
    command = [*processes.torchrun(python, 2), folder / "watch.py", folder / script, *words]
    said = _said(command, python)
    if found := re.search(r"RESULT (\{.*\})$", said, re.MULTILINE):
        result: dict[str, Any] = json.loads(found[1])
        return result
    raise LabError(f"{script} {' '.join(words)} told nothing: {processes.message_in(said) or said[-3000:]}")


def gradient(root: Path, python: Path, script: str, *words: str) -> FirstGradient:
    """Run a script up to its first step in two processes, and as one that is given the batches of both.

    Raises `LabError` where they cannot be compared."""
    training = [*processes.torchrun(python, 2), _folder(root) / script, *words]
    command = [python, (root / GUARD).with_name("readyonce_compare.py"), "--", *training]
    said = _said(command, python)
    if found := COMPARED.search(said):
        distance, ratio, noise, limit = map(float, found.groups())
        return FirstGradient(distance=distance, ratio=ratio, noise=noise, limit=limit, alike="  ALIKE" in said)
    why = re.search(r"not compared: ([^.\n]*)", said)
    raise LabError(why[1] if why else said[-3000:])


def _folder(root: Path) -> Path:
    return root / "snippets" / "frameworks" / "run"


def _said(command: Sequence[str | Path], python: Path) -> str:
    """The log of a launch, also of one that does not end: a rank may hang once all is told, as one of Axolotl's did."""
    with cleanup.folder() as scratch:
        with (
            processes.running(command, python, scratch, {"CUDA_VISIBLE_DEVICES": ""}) as process,
            suppress(subprocess.TimeoutExpired),
        ):
            process.wait(TIME_LIMIT)
        return processes.log_of(scratch)


def address(catalog: Catalog, name: str, environment: str | None) -> dict[str, str]:
    """What decides what a stored run shows: its script with the files beside it that this imports, and the environment."""
    folder, files = _folder(catalog.root), [name.split()[0]]
    for file in files:
        imports = re.findall(r"^(?:from|import) (\w+)", catalog.text(folder / file), re.MULTILINE)
        files += [f"{it}.py" for it in imports if (folder / f"{it}.py").is_file() and f"{it}.py" not in files]
    found = {file: hashes.of_file(folder / file) for file in files}
    return found | ({made_from.ENVIRONMENT: made_from.environment(catalog, environment)} if environment else {})


def _seen(catalog: Catalog, environment: str, name: str) -> Seen:
    """Run it, and compare its gradient unless it fails."""
    listed = os.path.sep not in environment
    python = venvs.interpreter(catalog.root, environment) if listed else Path(environment)
    told = run(catalog.root, python, *name.split())
    if "error" not in told:
        try:
            told["gradient"] = gradient(catalog.root, python, *name.split())
        except LabError as error:
            told["not_compared"] = str(error)
    return Seen(
        date=datetime.date.today().isoformat(),
        environment=environment if listed else None,
        made_from=address(catalog, name, environment if listed else None),
        **told,
    )


def main(environment: str, *words: str) -> None:
    """Run what is named, or what is stale, and store it at once."""
    catalog = catalogs.load(catalogs.find_root())
    stored = catalog.stack_runs
    stale = [
        name
        for name, seen in stored.items()
        if seen.environment == environment and seen.made_from != address(catalog, name, environment)
    ]
    for name in [" ".join(words)] if words else stale:
        stored[name] = _seen(catalog, environment, name)
        runs = {key: seen.model_dump(mode="json", exclude_unset=True) for key, seen in sorted(stored.items())}
        write_whole(_folder(catalog.root).with_name("runs.json"), json.dumps({"runs": runs}, indent=1) + "\n")
        print(name, stored[name].model_dump_json(exclude={"made_from", "versions"}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
