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

    Names, sections and ids are the same in both languages. All are made of what stands in `snippets/` and `packages/`.
    """
    if catalog.unsound:
        return None
    try:
        folders = (*sorted((catalog.root / "snippets").iterdir()), catalog.root / "packages")
        digests = {path.name: kept.digest_of(path) for path in folders if path.exists()}
        return kept.answer(f"includes of {kept.digest(str(digests).encode())}", lambda: _marks(catalog, digests))
    except Exception:  # `check.problems` makes them once more where nothing else is found
        return None


def _marks(catalog: Catalog, digests: dict[str, str]) -> dict[str, str]:
    """Only what shows an edited file is made anew. Of another incident, an incident's pages show runs: their facts and outcomes."""
    from readyonce.pages import includes  # takes long, and mostly they are kept

    of_all = {name: digest for name, digest in digests.items() if name not in catalog.incidents}
    ended = [(observed.name, observed.label) for observed in catalog.observed]
    shown = kept.digest(str((of_all, ended)).encode(), *catalog.told)
    found = _marked(includes.of_catalog(catalog, "en"))
    found |= kept.answer("includes of the program", lambda: _marked(includes.of_program("en")))
    for id in catalog.incidents:
        key = f"includes of {id} {digests[id]} {shown}"
        found |= kept.answer(key, functools.partial(_of_incident, catalog, id))
    return found


def _of_incident(catalog: Catalog, id: str) -> dict[str, str]:
    from readyonce.pages.incident import includes

    return _marked(includes(catalog, catalog.incidents[id], "en"))


def _marked(files: dict[str, str]) -> dict[str, str]:
    """Of each file its ids and marks of sections, a line each."""
    return {name: "\n".join(_marks_of(text)) for name, text in files.items()}


def _marks_of(text: str) -> list[str]:
    return [*re.findall(r'(?:\{ ?#|id=")[^\s"{}]+', text), *re.findall(r"--8<-- \[(?:start|end):.*", text)]
