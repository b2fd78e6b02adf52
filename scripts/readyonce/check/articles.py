"""Rules of the pages that the catalogue asks for: articles, lab books, pages of errors."""

from __future__ import annotations

from collections.abc import Iterator

from readyonce.check.sources import pages
from readyonce.data import articles, links
from readyonce.data.articles import Page
from readyonce.data.catalog import Catalog, Incident
from readyonce.data.project import LANGUAGES, Language
from readyonce.data.reading import Problem
from readyonce.data.schema import SILENT
from readyonce.data.words import say


def page_missing(catalog: Catalog) -> Iterator[Problem]:
    """An incident has no article or no lab book, or an error family or a table has no page.

    Generated links lead there.
    Remedy: write the page, in both languages.
    """
    wanted = [f"incidents/{id}.md" for id in catalog.incidents]
    wanted += [f"incidents/{id}/evidence.md" for id, incident in catalog.incidents.items() if not incident.short]
    wanted += [f"errors/{family.family}.md" for family in catalog.listed("own")]
    wanted += ["decision.md"] if catalog.decision else []
    wanted += ["errors/look-alikes.md"] if catalog.listed("look-alikes") else []
    for language in LANGUAGES:
        for name in wanted:
            if name not in pages(catalog)[language]:
                path = catalog.root / "docs" / language / name
                remedy = "Write it; the other language has the same sections."
                yield catalog.problem(path, (), "the page is missing", remedy)


def _articles(catalog: Catalog, name: str) -> Iterator[tuple[Incident, Page, Language]]:
    """The pages `incidents/NAME` that there are."""
    for id, incident in catalog.incidents.items():
        for language in LANGUAGES:
            if page := pages(catalog)[language].get(f"incidents/{name.format(id)}"):
                yield incident, page, language


def article_out_of_order(catalog: Catalog) -> Iterator[Problem]:
    """An article has another title than its incident, lacks a section, or has its sections in another order.

    A reader in trouble finds the fix at the same place in every article.
    Remedy: write the title and the sections as the problem names them.
    """
    for incident, page, language in _articles(catalog, "{}.md"):
        short = articles.SHORT if incident.has_minimal else articles.NOTED
        sections = short if incident.short else articles.SECTIONS
        yield from _outline(catalog, page, incident.meta.title[language], sections, "An article")


def noted_without_source(catalog: Catalog) -> Iterator[Problem]:
    """An incident without a script says why the error happens, and links no source of it.

    Nothing was run, so a reader can only trust what the sources say.
    Remedy: link the lines of source, or the report, that the section {#cause} rests on.
    """
    for incident, page, _ in _articles(catalog, "{}.md"):
        if not incident.short or incident.has_minimal:
            continue
        starts = [(heading.line, heading.id) for heading in page.headings if heading.level == 2]
        line = next((line for line, id in starts if id == "cause"), 1)
        end = next((start for start, _ in starts if start > line), None)
        linked = [target for at, target in page.links if at >= line and (end is None or at < end)]
        if not any(target.startswith(("https://", "http://")) for target in linked):
            what = "nothing was run, and the section {#cause} links no source"
            yield catalog.problem(page.path, line, what, "Link the source or the report that each statement rests on.")


def lab_book_out_of_order(catalog: Catalog) -> Iterator[Problem]:
    """A lab book has another title than its incident, lacks a section, or has its sections in another order.

    A reader in doubt finds the same things at the same place in every lab book.
    Remedy: write the title and the sections as the problem names them.
    """
    for incident, page, language in _articles(catalog, "{}/evidence.md"):
        title = links.label(incident.id, say("lab-book", language))
        yield from _outline(catalog, page, title, articles.LAB_BOOK, "A lab book")


def _outline(catalog: Catalog, page: Page, title: str, wanted: tuple[str, ...], kind: str) -> Iterator[Problem]:
    titles = [heading for heading in page.headings if heading.level == 1]
    if [heading.text for heading in titles] != [title]:
        line = titles[0].line if titles else 1
        yield catalog.problem(page.path, line, "the title is not that of incident.yml", f"Write: # {title}")
    sections = [heading.id for heading in page.headings if heading.level == 2]
    for id in wanted:
        if id not in sections:
            remedy = f"{kind} has, in this order: {', '.join(wanted)}."
            yield catalog.problem(page.path, 1, f"section {{#{id}}} is missing", remedy)
    if [id for id in sections if id in wanted] != [id for id in wanted if id in sections]:
        remedy = f"The order is: {', '.join(wanted)}."
        yield catalog.problem(page.path, 1, "the sections are out of order", remedy)


def already_trained_missing(catalog: Catalog) -> Iterator[Problem]:
    """A variant of an incident trains wrong without an error, and the article has no section `{#already-trained}`.

    Readers may have trained this way, and want to know how to tell and what to do.
    Remedy: add the section.
    """
    for incident, page, _ in _articles(catalog, "{}.md"):
        outcomes = {declared.outcome for v in incident.variants.values() for declared in v.declared.values()}
        outcomes |= {incident.outcome}
        if not outcomes.isdisjoint(SILENT) and "already-trained" not in page.ids:
            what = "a variant trains wrong without an error, "
            what += "and no section {#already-trained} says how to tell and what to do"
            yield catalog.problem(page.path, 1, what, "Add it: readers may have trained this way.")


def page_in_one_language(catalog: Catalog) -> Iterator[Problem]:
    """A page exists in one language only.

    Every page leads to its translation.
    Remedy: write the page in the other language.
    """
    for language, title, other in (("en", "English", "zh"), ("zh", "Chinese", "en")):
        for name in pages(catalog)[other].keys() - pages(catalog)[language].keys():  # type: ignore[index]
            path = catalog.root / "docs" / language / name
            remedy = "Both languages have the same pages."
            yield catalog.problem(path, (), f"the page is missing in {title}", remedy)
