"""The address of evidence: a hash of each input that decides how its runs end.

Evidence is a lock file. It stores its address (`made_from`); `readyonce check` computes it again from the files of today,
and what differs is stale. Hashed are contents only, never paths or names of folders: an incident may be renamed.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from readyonce.data import hashes
from readyonce.data.catalog import Catalog, Incident
from readyonce.data.project import write_whole
from readyonce.data.schema import GUARD, Evidence, Run
from readyonce.lab import processes, venvs
from readyonce.rules import lint as lint_rules

STALE = "snippets/stale.txt"  # evidence that was stored before it had an address: this list only shrinks
DECLARED = "variants"  # what incident.yml says of how each is started
LAUNCH = "launches"  # the worker, and the code that starts launches and reads how they end
ENVIRONMENT = "environment"  # its list, its lock, and what must not come along
FACTS = "facts"  # what the vocabulary says of the facts that the runs tell; of commands, the rules that read them
WATCHED = "guard"  # the guard's script; only runs in `current` are watched again when it changes
# What changed without a run being another one: it is stored again without running anything.
WITHOUT_A_RUN = frozenset({FACTS, WATCHED})
STARTS = ("lab/worker.py", "lab/processes.py")  # under scripts/readyonce/
STARTS_COMMANDS = ("lab/commands.py", "compare.py")
READS_COMMANDS = ("data/facts.py", "launches/reader.py", "launches/shell.py")
PACKAGE = Path(__file__).parents[1]


def address(catalog: Catalog, incident: Incident, evidence: Evidence) -> dict[str, str]:
    """Each input of the evidence by its name, `repro.py` or one of the words above, with the hash that it has today."""
    root, runs = catalog.root, [*evidence.runs, *evidence.unusable]
    variants = [incident.variants[run.variant] for run in runs if run.variant in incident.variants]
    commands = any(variant.is_command for variant in variants)
    found = {path.name: hashes.of_file(path) for path in incident.needed_by(variants)}
    if runs:
        declared: list[Any] = [[v.name, v.script, v.processes, v.launcher, v.lines] for v in variants]
        found[DECLARED] = hashes.of(json.dumps([declared, incident.meta.reference if commands else {}], sort_keys=True))
        starts = [*STARTS, *STARTS_COMMANDS] if commands else STARTS
        found[LAUNCH] = _joined(
            hashes.of_file(path) for path in [*(_ours(root, name) for name in starts), *_one_gloo_thread(root)]
        )
        told = sorted({name for run in runs for name in run.facts if name in catalog.vocabulary})
        words: list[Any] = [[name, sorted(catalog.vocabulary[name].values)] for name in told]
        if commands:
            words += [lint_rules.stacks(catalog), *(hashes.of_file(_ours(root, name)) for name in READS_COMMANDS)]
        found[FACTS] = hashes.of(json.dumps(words, sort_keys=True))
    found[ENVIRONMENT] = environment(catalog, evidence.environment.name)
    if any(run.guard for run in runs):
        found[WATCHED] = hashes.of_file(root / GUARD)
    return found


def differences(catalog: Catalog, incident: Incident, evidence: Evidence) -> list[str]:
    """The inputs that are others than when the evidence was stored; one that is not stored is another one."""
    stored, today = evidence.made_from or {}, address(catalog, incident, evidence)
    differ = [name for name in {**today, **stored} if stored.get(name) != today.get(name)]
    return [name for name in differ if name != WATCHED or evidence.environment.name == "current"]


def commit(catalog: Catalog, incident: Incident) -> str | None:
    """The commit that has an incident's files as they are; None where they were changed since, or there is no history."""
    git = ["git", "-C", str(catalog.root)]
    try:
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", str(incident.folder)], capture_output=True, text=True
        )
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    except OSError:
        return None
    known = head.returncode == 0 and not any(line[3:].endswith(".py") for line in changed.stdout.splitlines())
    return head.stdout.strip() if known else None


def addressed(catalog: Catalog, incident: Incident, evidence: Evidence) -> Evidence:
    """Evidence that cannot be run again here, with its address and the commit that has the files of it."""
    found = {"made_from": address(catalog, incident, evidence), "commit": commit(catalog, incident)}
    return evidence.model_copy(update=found)


def beside(catalog: Catalog, incident: Incident, stored: Evidence, evidence: Evidence) -> dict[str, str]:
    """The address of stored runs with new ones beside them: what is told of the stored ones stays as old as it is."""
    old = {name: stored.made_from[name] for name in WITHOUT_A_RUN if stored.made_from and name in stored.made_from}
    return address(catalog, incident, evidence) | {
        name: old[name] for name in differences(catalog, incident, stored) if name in old
    }


def to_run_again(catalog: Catalog, incident: Incident, evidence: Evidence) -> list[str]:
    """The inputs that differ for which its runs have to be run again."""
    return [name for name in differences(catalog, incident, evidence) if name not in WITHOUT_A_RUN]


def refreshed(catalog: Catalog, incident: Incident, evidence: Evidence, runs: list[Run], name: str) -> Evidence:
    """The evidence with what was told anew of the same runs: `FACTS`, or `WATCHED`, what the guard says."""
    fresh = evidence.model_copy(update={"runs": runs})
    if evidence.made_from is None:
        return fresh
    today = {key: value for key, value in address(catalog, incident, fresh).items() if key == name}
    return fresh.model_copy(update={"made_from": evidence.made_from | today})


def listed(catalog: Catalog) -> dict[str, int]:
    """The evidence of which it is known that it has no address, or an old one: as the list names it, and in which line."""
    path = catalog.root / STALE
    lines = catalog.text(path).splitlines() if path.is_file() else []
    return {line: number for number, line in enumerate(lines, 1) if line and not line.startswith("#")}


def unlist(incident: Incident, evidence: Evidence) -> None:
    """Evidence that has an address now is no longer on the list."""
    path, name = incident.folder.parents[1] / STALE, name_of(incident, evidence)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    if (kept := [line for line in lines if line.strip() != name]) != lines:
        write_whole(path, "".join(kept))


def name_of(incident: Incident, evidence: Evidence) -> str:
    """As the list has it."""
    return f"{incident.id}/evidence/{evidence.environment.name}.json"


def environment(catalog: Catalog, name: str) -> str:
    """Of the lists that an environment is made of, the first without its comments."""
    named, *others = venvs.lists(catalog.root, name)
    lock = (
        catalog.root / "tests" / "requirements.txt"
    )  # where the packages of `current` are locked, among the tests' own
    pinned, locked, *rest = (catalog.text(path) if path.is_file() else "" for path in (named, lock, *others))
    return _of_lists(pinned, locked if name == "current" else "", tuple(filter(None, rest)))


@lru_cache(64)  # each stored run of an environment asks
def _of_lists(pinned: str, locked: str, others: tuple[str, ...]) -> str:
    """`locked` is another list too: of it counts what locks a package that is pinned."""
    lines = list(filter(None, (line.split("#")[0].strip() for line in pinned.splitlines())))
    packages = "|".join(re.escape(re.split(r"[=;\[ ]", line)[0]) for line in lines)
    found = re.findall(rf"^(?:{packages})==.*(?:\n +--hash=.*)*", locked, re.MULTILINE)
    return hashes.of("\n".join(["\n".join(lines), *found, *others]))


def _ours(root: Path, name: str) -> Path:
    """A file of this package: the checkout's, else the one that is installed."""
    path = root / "scripts" / "readyonce" / name
    return path if path.is_file() else PACKAGE / name


def _one_gloo_thread(root: Path) -> list[Path]:
    """What `launches` gives to old releases: the project's, else that of the checkout that runs, if it has one."""
    ours = processes.ONE_GLOO_THREAD / "sitecustomize.py"
    here = root / ours.relative_to(ours.parents[3])
    return [path for path in (here, ours) if path.is_file()][:1]


def _joined(parts: Iterable[str]) -> str:
    return hashes.of(" ".join(parts))
