"""Rules that all others rest on: where one of these finds something, only pages themselves are looked at beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from readyonce.check.sources import pages
from readyonce.data.catalog import Catalog
from readyonce.data.reading import CatalogError, Problem
from readyonce.data.schema import INCIDENT_ID
from readyonce.pages import guard


def article_without_incident(catalog: Catalog) -> Iterator[Problem]:
    """There is an article, and no incident in `snippets/` that it is about.

    Links into the article would be told as dead, one by one.
    Remedy: make the incident with `readyonce new ID`, or remove the article.
    """
    for name, page in pages(catalog)["en"].items():
        found = re.fullmatch(rf"incidents/({INCIDENT_ID})\.md", name)
        if found and not (catalog.root / "snippets" / found[1]).exists():
            what = f"there is no snippets/{found[1]}/incident.yml"
            yield catalog.problem(page.path, 1, what, f"`readyonce new {found[1]}` makes it.")


def guard_record_unreadable(catalog: Catalog) -> Iterator[Problem]:
    """A file of `packages/guard/` that the guard's pages are made of is not what its program writes.

    All tables of the guard rest on these files.
    Remedy: run the program below `packages/guard/` that writes the file, or take the file back from Git.
    """
    for name in guard.STORED:
        try:
            guard.stored(catalog, name)
        except CatalogError as error:
            yield from error.problems
