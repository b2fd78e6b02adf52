"""The rules that run first: afterwards every file can be read as text, and is one text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from readyonce.data.catalog import Catalog
from readyonce.data.project import MADE_OF
from readyonce.data.reading import Problem


def file_is_not_utf8(catalog: Catalog) -> Iterator[Problem]:
    """A file is not UTF-8.

    What cannot be read is replaced, so that the other rules see the rest of the file.
    Remedy: save it as UTF-8.
    """
    for path in _files(catalog):
        yield from catalog.not_utf8(path)


def merge_left_unfinished(catalog: Catalog) -> Iterator[Problem]:
    """A file holds the marks that Git writes where two branches changed the same lines.

    What stands between the marks is said twice, and `readyonce render` may have mended the one half only.
    Remedy: keep what both say. In a list that `readyonce render` writes, either half is right: `git checkout --ours`
    takes one, and rendering adds the rest.
    """
    remedy = "Keep what both sides say. Of a generated list keep either half, and run `readyonce render`."
    for path in _files(catalog):
        before, mark, _ = (b"\n" + path.read_bytes()).partition(b"\n<<<<<<< ")
        if mark:
            line = before.count(b"\n") + 1
            yield catalog.problem(path, line, "a merge was left unfinished here", remedy)


def _files(catalog: Catalog) -> Iterator[Path]:
    root = catalog.root
    made_of = ((root / name).rglob("*.*") for name in MADE_OF)
    for path in itertools.chain(root.glob("*.md"), root.glob("*.yml"), (root / "docs").rglob("*.md"), *made_of):
        if path.is_file() and not path.is_symlink() and path.suffix != ".pyc":
            yield path
