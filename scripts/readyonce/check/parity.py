"""Rules of translations. A page is compared with its translation where no other rule finds anything in either."""

from __future__ import annotations

from collections.abc import Iterator

from readyonce.check.sources import pages
from readyonce.data.articles import Page
from readyonce.data.catalog import Catalog, Incident
from readyonce.data.reading import Problem
from readyonce.data.schema import FamilyFile, address_of

Things = list[tuple[int, str]]  # the line of each
SAME = "Both languages have the same, in the same order."


def _translated(catalog: Catalog) -> Iterator[tuple[Page, Page]]:
    """Each English page and its translation."""
    chinese = pages(catalog)["zh"]
    yield from ((page, chinese[name]) for name, page in pages(catalog)["en"].items() if name in chinese)


def _difference(catalog: Catalog, other: Page, what: str, one: Things, two: Things, remedy: str) -> Iterator[Problem]:
    """The first difference: that is what a translator needs to see."""
    for index in range(max(len(one), len(two))):
        a = one[index] if index < len(one) else None
        b = two[index] if index < len(two) else None
        if a is None or b is None or a[1] != b[1]:
            line = b[0] if b else max((line for line, _ in two), default=1)
            here, there = (f"`{b[1]}`" if b else "nothing"), (f"`{a[1]}`" if a else "nothing")
            yield catalog.problem(other.path, line, f"{what}: {here} here, {there} in English", remedy)
            return


def heading_ids_differ(catalog: Catalog) -> Iterator[Problem]:
    """A page and its translation have other headings.

    A link to a heading has to lead to the same place in both languages.
    Remedy: write the same ids on the same levels in the same order.
    """
    for page, other in _translated(catalog):
        one, two = ([(h.line, f"{'#' * h.level} {h.id}") for h in p.headings] for p in (page, other))
        yield from _difference(catalog, other, "heading ids differ", one, two, SAME)


def includes_differ(catalog: Catalog) -> Iterator[Problem]:
    """A page and its translation include other files.

    Figures, tables and messages are the same in both languages.
    Remedy: include the same files in the same order.
    """
    for page, other in _translated(catalog):
        one, two = ([(i.line, str(i)) for i in p.includes] for p in (page, other))
        yield from _difference(catalog, other, "includes differ", one, two, SAME)


def code_blocks_differ(catalog: Catalog) -> Iterator[Problem]:
    """A page and its translation have other code blocks.

    Code is not translated.
    Remedy: write the same blocks in the same order.
    """
    for page, other in _translated(catalog):
        one, two = ([(b.line, f"{b.language}: {b.content}") for b in p.blocks] for p in (page, other))
        yield from _difference(catalog, other, "code blocks differ", one, two, f"Code is not translated. {SAME}")


def links_differ(catalog: Catalog) -> Iterator[Problem]:
    """A page and its translation lead to other places.

    A statement has the same proof in both languages. What a source names as its Chinese text (`zh:`) is the same place.
    Remedy: link to the same places.
    """
    cited: list[Incident | FamilyFile] = [*catalog.incidents.values(), *catalog.families.values()]
    known = {address_of(source.zh): source.url for entry in cited for source in entry.sources if source.zh}
    for page, other in _translated(catalog):
        one, two = (
            [(line, target) for target, line in sorted((known.get(target, target), line) for line, target in p.links)]
            for p in (page, other)
        )
        remedy = "Both languages link to the same places, or to what a source names as its Chinese text (`zh:`)."
        yield from _difference(catalog, other, "links differ", one, two, remedy)
