"""The rule of what is generated, in files that are in git. It runs where no other rule finds anything."""

from __future__ import annotations

from collections.abc import Iterator

from readyonce.data.catalog import Catalog
from readyonce.data.reading import Problem
from readyonce.pages.committed import committed


def generated_part_stale(catalog: Catalog) -> Iterator[Problem]:
    """A generated part of a file in git is not what it is made of today: front matter, navigation, lists, copies.

    The site's builder reads it as it stands.
    Remedy: run `readyonce render`.
    """
    for path, text in committed(catalog).items():
        if not path.is_file() or catalog.text(path) != text:
            yield catalog.problem(path, 1, "the generated part is out of date", "Run `readyonce render`.")
