"""A team's own incidents beside ours: a folder of theirs and the project, as one tree that every command can read.

In their folder lie `ACME-0001/` with `incident.yml`, `minimal.py` and an article, `en.md` or `zh.md` or both, and error families
of theirs in `errors/`. Nothing of it is written into the project, so an update of the project has no conflict with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from readyonce.data.catalog import MINIMAL_RUNS
from readyonce.data.project import LANGUAGES, write_whole
from readyonce.data.reading import CatalogError, Problem
from readyonce.data.schema import INCIDENT_ID, OURS

SHARED = (
    "docs",
    "snippets",
    "requirements.txt",
    "tests/requirements.txt",
    "README.md",
    "README.zh-CN.md",
)  # of the project
PLACE = Path("build", "with")  # where the tree is made


def compose(root: Path, folder: Path) -> Path:
    """The tree of both: files of the project and of `folder`. Raises CatalogError, naming file
    and remedy, where the folder holds no incident, an id or a family of ours, or an article without an incident."""
    theirs = dict(_theirs(folder))
    if faults := [*_faults(root, folder, theirs)]:
        raise CatalogError(faults)
    tree = root / PLACE
    kept = tree / "build"  # what was built before is built again only where something changed
    for path in tree.iterdir() if tree.is_dir() else ():
        if path != kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for source in shared(root):
        _put(source, tree / source.relative_to(root))
    for source, target in theirs.items():
        _put(source, tree / target)
    return tree


def shared(root: Path) -> Iterator[Path]:
    """Each file of the project that a wiki is made of."""
    for path in (*(root / name for name in SHARED), *root.glob("mkdocs*.yml"), *root.glob("packages/*/*.*")):
        yield from _files(path)


def as_named(problems: Iterable[Problem], tree: Path, folder: Path) -> list[Problem]:
    """Problems of the tree with each file of theirs named as it lies in their folder, and the line as it is there."""
    theirs: dict[str, Path] = {}
    for source, target in _theirs(folder) if folder.is_dir() else ():
        theirs[str(target)] = source
        if target.parts[0] == "docs":  # what the other language shows until it has an article of its own
            for language in LANGUAGES:
                theirs.setdefault(str(Path("docs", language, *target.parts[2:])), source)
    found = []
    for problem in problems:
        if (lies := theirs.get(problem.file)) is not None:
            with contextlib.suppress(OSError):  # of an article the tree has the front matter above it
                above = (tree / problem.file).read_bytes().count(b"\n") - lies.read_bytes().count(b"\n")
                problem = dataclasses.replace(problem, line=max(1, problem.line - above))
            problem = dataclasses.replace(problem, file=str(lies))
        found.append(problem)
    return found


def follow(tree: Path, folder: Path, every: float = 1.0) -> threading.Thread:
    """While the tree is served: copy what is saved in their folder, once a second."""

    def copy() -> None:
        seen = {source: source.stat().st_mtime_ns for source, _ in _theirs(folder)}
        while True:
            time.sleep(every)
            for source, target in _theirs(folder):
                with contextlib.suppress(OSError):  # an editor takes it away for a moment
                    if (now := source.stat().st_mtime_ns) != seen.get(source):
                        seen[source] = now
                        _put(source, tree / target)

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def store(tree: Path, folder: Path) -> list[Path]:
    """Take back what was run in the tree: how their minimal repros ended."""
    stored = []
    for record in (tree / "snippets").glob(f"*/{MINIMAL_RUNS}"):
        own = folder / record.parent.name
        if own.is_dir() and (text := record.read_bytes()) != _bytes(own / MINIMAL_RUNS):
            write_whole(own / MINIMAL_RUNS, text)
            stored.append(own / MINIMAL_RUNS)
    return stored


def _theirs(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Each file of theirs, and its place in the tree."""
    for incident in sorted(path for path in folder.iterdir() if path.is_dir() and re.fullmatch(INCIDENT_ID, path.name)):
        for path in _files(incident):
            language = path.stem if path.parent == incident and path.suffix == ".md" else ""
            if language in LANGUAGES:
                yield path, Path("docs", language, "incidents", f"{incident.name}.md")
            else:
                yield path, Path("snippets", incident.name) / path.relative_to(incident)
    for path in sorted((folder / "errors").glob("*.yml")):
        yield path, Path("snippets", "errors", path.name)


def _faults(root: Path, folder: Path, theirs: dict[Path, Path]) -> Iterator[Problem]:
    if not theirs:
        what = "it holds no incidents"
        yield Problem(
            str(folder), 1, what, f"`readyonce new --in {folder}` makes the first, in a folder such as ACME-0001/."
        )
    for path, target in theirs.items():
        shown = str(path)
        if not path.is_file() and not path.is_symlink():  # of a link the rules tell
            yield Problem(shown, 1, "no file but a pipe or a device", "Take it out.")
        elif target.parts[1] == "errors":
            if (root / target).exists():
                remedy = "Name that family in `errors:` of your incident, or give yours another name."
                yield Problem(shown, 1, f"there is a family `{path.stem}` already", remedy)
        elif (named := path.relative_to(folder).parts[0]).startswith(f"{OURS}-"):  # any file, such as a run's record
            yield Problem(
                str(folder / named / "incident.yml"),
                1,
                f"{OURS}- is the prefix of the public incidents",
                "Give yours a prefix of your own: ACME-0001.",
            )
        elif target.parts[0] == "docs" and not (path.parent / "incident.yml").is_file():
            yield Problem(
                shown,
                1,
                "an article without an incident",
                f"Add {path.parent.name}/incident.yml, or take the file out.",
            )


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for place, folders, names in os.walk(path):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(place, name) for name in names)


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
