"""Rules of what pages lead to and include."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from readyonce.check.sources import made, pages
from readyonce.data import articles
from readyonce.data.articles import Page
from readyonce.data.catalog import Catalog
from readyonce.data.project import LANGUAGES
from readyonce.data.reading import Problem


def include_missing(catalog: Catalog) -> Iterator[Problem]:
    """A page includes a file or a section that does not exist.

    The page would not be built.
    Remedy: mend the include; files are looked for in `snippets/` and `packages/`, among what is generated, and in the figures.
    """
    if (generated := made(catalog)) is None:
        return
    for language in LANGUAGES:
        places = articles.places(catalog.root, language)
        for page in pages(catalog)[language].values():
            for include in page.includes:
                text = generated.get(include.path)
                if text is None and (path := articles.find(include, places)):
                    text = catalog.text(path)
                if text is None:
                    leads_out = include.path.startswith("/") or ".." in include.path.split("/")
                    what = f"there is no {include.path} to include"
                    what = f"the include {include.path} leads out of its folder" if leads_out else what
                    remedy = "It is looked for in snippets/ and packages/, among what `readyonce render` writes, "
                    remedy += "and in docs/theme/figures/."
                    yield catalog.problem(page.path, include.line, what, remedy)
                    continue
                try:
                    if include.section:
                        articles.section(text, include.section)
                except articles.MissingSection:
                    there = re.findall(r"--8<-- \[start:([\w-]+)\]", text)
                    what = f"{include.path} has no section `{include.section}`"
                    remedy = f"It has: {', '.join(there)}." if there else "It has none."
                    yield catalog.problem(page.path, include.line, what, remedy)


def link_dead(catalog: Catalog) -> Iterator[Problem]:
    """A link leads to a page or to an id that does not exist.

    What the page in the other language has was lost in this language: that is said there.
    Remedy: mend the link, or give the heading that id.
    """
    every = pages(catalog)
    for language, other in (LANGUAGES, reversed(LANGUAGES)):
        # By path, as text, since links are many.
        here = {str(page.path): page for page in every[language].values()}
        twins = {f"{catalog.root}/docs/{language}/{name}": page for name, page in every[other].items()}
        for page in every[language].values():
            for line, target in page.links:
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                path = os.path.normpath(f"{os.path.dirname(page.path)}/{name}") if name else str(page.path)
                if path not in here and not os.path.isfile(path):
                    if path not in twins:
                        what = f"the link goes to {name}, which is not there"
                        remedy = "Mend it. Links go to .md files, relative to the page."
                        yield catalog.problem(page.path, line, what, remedy)
                elif anchor and not _has(catalog, path, anchor, here, twins):
                    what = f"the link goes to #{anchor}, which is not on {os.path.basename(path)}"
                    yield catalog.problem(page.path, line, what, "Mend the anchor, or give the heading that id.")


def _has(catalog: Catalog, path: str, anchor: str, here: dict[str, Page], twins: dict[str, Page]) -> bool:
    """Whether a file has an id, by itself or by what it includes, or its twin has it; of other files nothing is said."""
    if path not in here:
        return not catalog.is_generated(Path(path)) or f"{{#{anchor}}}" in catalog.text(Path(path))
    if anchor in here[path].ids or (generated := made(catalog)) is None:
        return True
    if anchor in _ids(catalog.text(Path(path))):  # of a paragraph, such as an entry of the glossary
        return True
    if any(anchor in _ids(generated.get(include.path, "")) for include in here[path].includes):
        return True
    return path in twins and anchor in twins[path].ids


@functools.lru_cache(1 << 14)  # a page is led to by many
def _ids(text: str) -> frozenset[str]:
    return frozenset(re.findall(r'(?:\{ ?#|id=")([^\s"{}]+)', text))
