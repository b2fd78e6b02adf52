"""When incidents came and changed, and the files of then: read from the project's git history."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# What a reader of an incident sees a change of: its metadata, repros and evidence, and its article.
_PATH = re.compile(r"(?:snippets|docs/\w+/incidents)/(RO-[0-9]{4})[./]")


@dataclass(frozen=True)
class Change:
    """One commit that touched incidents."""

    when: str  # ISO 8601, in UTC
    new: tuple[str, ...]
    changed: tuple[str, ...]


def changes(root: Path) -> list[Change] | None:
    """Newest first; None where the history is not all there: no git, no repository, a shallow clone."""
    try:
        if _git(root, "rev-parse", "--is-shallow-repository").strip() != "false":
            return None
        shape = ("--format=%x00%cd", "--date=iso-strict-local", "--name-only", "--no-renames", "--relative")
        log = _git(root, "log", "--reverse", *shape)
    except (OSError, subprocess.CalledProcessError):
        return None
    known: set[str] = set()
    found = []
    for commit in log.split("\0")[1:]:
        when, *paths = commit.splitlines()
        ids = {match[1] for path in paths if (match := _PATH.match(path))}
        if ids:
            found.append(Change(when, tuple(sorted(ids - known)), tuple(sorted(ids & known))))
            known |= ids
    return found[::-1] if known else None


def dates(root: Path) -> dict[str, tuple[str, str]]:
    """Id → when it came and when it last changed; empty where the history is not all there."""
    dated: dict[str, tuple[str, str]] = {}
    for change in reversed(changes(root) or []):
        for id in change.new + change.changed:
            dated[id] = (dated.get(id, (change.when,))[0], change.when)
    return dated


def days(root: Path) -> list[tuple[str, str]]:
    """(day, in UTC; the last commit of that day under `snippets/`), newest first; none where the history is not all there."""
    if changes(root) is None:
        return []
    log = _git(root, "log", "--first-parent", "--reverse", "--format=%cd %H", "--date=short-local", "--", "snippets")
    return list(dict(line.split() for line in log.splitlines()).items())[::-1]


def archive(root: Path, commit: str, folder: str) -> bytes:
    """A folder of the project as it was at a commit, as a tar file."""
    return _run(root, "archive", "--format=tar", commit, folder)


def _git(root: Path, *arguments: str) -> str:
    return _run(root, *arguments).decode()


def _run(root: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, env=os.environ | {"TZ": "UTC"}, capture_output=True, check=True).stdout
