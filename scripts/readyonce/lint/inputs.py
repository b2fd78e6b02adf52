"""What `lint` is given: files, folders and a command line that may launch, and the releases that they will run with."""

from __future__ import annotations

import os
import re
import shlex
from contextlib import suppress
from functools import cache
from pathlib import Path

from readyonce.data import inputs
from readyonce.launches import forms, shell
from readyonce.launches import reader as launch
from readyonce.launches.reader import Launch, Reader

ABOVE = 8  # folders in which pinned releases are looked for: the launch's own, and those above it


def releases(python: str | None, named: list[str]) -> dict[str, str]:
    """Package → release: those beside an interpreter, then those that are named. Raises `inputs.Unusable`."""
    try:
        beside = launch.installed(python) if python else {}
    except launch.Unreadable as error:
        raise inputs.Unusable(str(error)) from None
    return beside | dict(map(_release, named))


def _release(text: str) -> tuple[str, str]:
    name, sign, release = text.partition("==")
    if not sign or not re.match(r"\d", release):
        raise inputs.Unusable(f"--with {text}: write a package and its release, as in transformers==4.57.1")
    return name.strip().lower().replace("_", "-"), release.strip()


PACKAGE, RELEASE = r"([A-Za-z][\w.-]*)(?:\[[^\]\n]*\])?[ \t]*", r"[ \t]*(\d[\w.+]*)"
IN_LINES = re.compile(rf"^[ \t]*{PACKAGE}=={RELEASE}[ \t]*\\?$", re.MULTILINE)
IN_QUOTES = re.compile(rf"(?<=[\"']){PACKAGE}(?:=={RELEASE}|[<>!~=@ ][^\"'\n]*)(?=[\"'])")
IN_ITEMS = re.compile(rf"^[ \t]*- {PACKAGE}==?{RELEASE}(?:=\w+)?[ \t]*$", re.MULTILINE)
# The files that pin releases, the surest first, and how.
PINNING = {
    "requirements.txt": IN_LINES,
    "pyproject.toml": IN_QUOTES,
    "setup.py": IN_QUOTES,
    "environment.yml": IN_ITEMS,
    "environment.yaml": IN_ITEMS,
}
COMMENT = re.compile(r"#.*")


@cache
def pinned(folder: str) -> dict[str, tuple[str, str]]:
    """Package → (release, file), as the nearest file that pins it says, beside a launch or above it, within one repository.

    Where no repository is known, above it means: up to the folder in which the command is run.
    """
    places = [Path(os.path.abspath(folder)), *Path(os.path.abspath(folder)).parents][:ABOVE]
    ends = [number for number, place in enumerate(places) if (place / ".git").exists() or place == Path.cwd()]
    found: dict[str, tuple[str, str]] = {}
    for place in places[: ends[0] + 1 if ends else 1]:
        for file, pins in PINNING.items():
            told: dict[str, set[str]] = {}
            with suppress(OSError, launch.Unreadable):
                for name, release in pins.findall(COMMENT.sub("", launch._text(str(place / file)))):
                    told.setdefault(name.lower().replace("_", "-"), set()).add(release)
            for name, releases in told.items():
                if len(releases) == 1 and "" not in releases:  # two, for two machines or Pythons, are none
                    found.setdefault(name, (releases.pop(), os.path.relpath(place / file)))
    return found


def launches(reader: Reader, given: list[str], words: list[str], faults: list[str]) -> tuple[list[Launch], int]:
    """The launches of a command line and of files, and how many files were read. `faults` takes what cannot be read.

    Raises `inputs.Unusable` where there is nothing to read.
    """
    found: list[Launch] = []
    try:
        if words:
            line = [shell.Word(word, 1, written=shlex.quote(word)) for word in words]
            found += filter(None, [reader.words("command line", line, os.environ)])
    except launch.Unreadable as error:
        raise inputs.Unusable(str(error)) from None
    read = 0
    for name in _files(given, faults) if given or not words else []:
        try:
            told = forms.file(reader, name)
            found += told.launches
            faults += [f"{inputs.shown(name)}:{line}: {what}" for line, what in told.not_read]
            read += 1
        except launch.Unreadable as error:
            faults.append(f"{inputs.shown(name)}:{error.line}: {error}")
        except OSError as error:
            faults.append(inputs.unreadable(name, error))
    for each in found:
        each.pins = pinned(os.path.dirname(each.file))
    return found, read


def _files(given: list[str], faults: list[str]) -> list[str]:
    """The files that are meant, each once; of a folder only those that can hold a launch, by their names."""
    meant: dict[str, None] = {}
    for named in [[one] for one in given] or [[]]:  # who names none is told so
        folder = bool(named) and os.path.isdir(named[0])
        meant |= {name: None for name in inputs.names(named, True, faults) if not folder or forms.readable(name)}
    return list(meant)
