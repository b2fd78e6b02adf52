"""When incidents came and changed: read from the project's git history."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# What a reader of an incident sees a change of: its metadata, repros and evidence, and its article.
_PATH = re.compile(r"(?:snippets|docs/\w+/incidents)/([A-Z][A-Z0-9]*-[0-9]{4})[./]")


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


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    environment = os.environ | {"TZ": "UTC"}
    return subprocess.run(command, env=environment, capture_output=True, check=True, text=True, encoding="utf-8").stdout
