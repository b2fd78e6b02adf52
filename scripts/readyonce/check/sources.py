"""What the rules of pages look at: the pages as they are written, and the includes that are generated."""

from __future__ import annotations

import functools
import re

from readyonce.data import articles, kept
from readyonce.data.articles import Page
from readyonce.data.catalog import Catalog
from readyonce.data.project import LANGUAGES, Language

Pages = dict[Language, dict[str, Page]]  # by their path below docs/en/ or docs/zh/


@functools.lru_cache(1)
def pages(catalog: Catalog) -> Pages:
    """Every page that somebody writes; `generated_part_stale` compares those that are generated as a whole."""
    found: Pages = {}
    for language in LANGUAGES:
        folder = catalog.root / "docs" / language
        found[language] = {
            path.relative_to(folder).as_posix(): articles.read(path, catalog.text(path))
            for path in sorted(folder.rglob("*.md"), key=str)
            if not path.is_symlink() and not catalog.is_generated(path)  # loading says so of a link
        }
    return found


@functools.lru_cache(1)
def made(catalog: Catalog) -> dict[str, str] | None:
    """The generated includes, of each what rules ask for: its ids, and marks of sections. None where none can be made, since
    something else has to be mended before.

    Names, sections and ids are the same in both languages. All are made of what stands in `snippets/`.
    """
    if catalog.unsound:
        return None
    try:
        return kept.answer(f"includes of {kept.digest_of(catalog.root / 'snippets')}", lambda: _marks(catalog))
    except Exception:  # `check.problems` makes them once more where nothing else is found
        return None


def _marks(catalog: Catalog) -> dict[str, str]:
    from readyonce.pages import includes  # takes long, and mostly they are kept

    return {name: "\n".join(_MARK.findall(text)) for name, text in includes.every(catalog, "en").items()}


_MARK = re.compile(r'(?:\{ ?#|id=")[^\s"{}]+|.*--8<-- \[(?:start|end):.*')
