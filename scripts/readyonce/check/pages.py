"""Rules of a page by itself: headings and front matter."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from readyonce.check.sources import pages
from readyonce.data import articles
from readyonce.data.articles import Page
from readyonce.data.catalog import Catalog
from readyonce.data.markup import columns
from readyonce.data.project import LANGUAGES
from readyonce.data.reading import CatalogError, Keys, Problem


def _pages(catalog: Catalog) -> Iterator[Page]:
    for language in LANGUAGES:
        yield from pages(catalog)[language].values()


def heading_without_id(catalog: Catalog) -> Iterator[Problem]:
    """A heading has no id, or the id of another heading of the page.

    Links lead to ids, and both languages have the same.
    Remedy: end the heading with `{#id}`, with an id that the page does not have yet.
    """
    for page in _pages(catalog):
        seen: set[str] = set()
        for heading in page.headings:
            if heading.id is None:
                remedy = "End it with {#id}: the same id in both languages."
                yield catalog.problem(page.path, heading.line, f"heading `{heading.text}` has no id", remedy)
            elif heading.id in seen:
                remedy = "Give one of the headings another id."
                yield catalog.problem(page.path, heading.line, f"id `{heading.id}` stands here twice", remedy)
            seen.add(heading.id or "")


def front_matter_unreadable(catalog: Catalog) -> Iterator[Problem]:
    """The front matter of a page is not YAML, or its title has markup.

    The theme puts titles into every page as they are. An article's front matter is generated.
    Remedy: mend the YAML, or write the title without `<`.
    """
    for page in _pages(catalog):
        if page.path.stem in catalog.incidents:
            continue
        try:
            title = articles.matter(catalog, page).get("title", "")
        except CatalogError as error:
            yield from error.problems
            continue
        if "<" in str(title):
            remedy = "Write it without `<`: the theme puts titles into every page as they are."
            yield catalog.problem(page.path, 1, "the title has markup", remedy)


def description_too_wide(catalog: Catalog) -> Iterator[Problem]:
    """A page's description, or an incident's summary, has more than 160 columns.

    A search engine shows no more of what it finds. A look-alike's begins with a sentence that is read whole.
    Remedy: shorten it; a Chinese character takes two columns.
    """

    def problems(path: Path, keys: int | Keys, text: str) -> Iterator[Problem]:
        if (width := columns(text)) > 160:
            what = f"a search engine cuts it at 160 columns, and it has {width}"
            yield catalog.problem(path, keys, what, "Shorten it; a Chinese character takes two columns.")

    for incident in catalog.incidents.values():
        for language in LANGUAGES:
            yield from problems(incident.file, ("summary", language), incident.meta.summary[language])
    for page in _pages(catalog):
        if page.path.stem not in catalog.incidents and page.path.parent.name != "look-alikes":
            with contextlib.suppress(CatalogError):  # the rule above says what is wrong
                yield from problems(page.path, 1, str(articles.matter(catalog, page).get("description", "")))
