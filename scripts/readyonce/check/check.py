"""Finds words that disagree with runs, with each other or with the other language. Runs nothing.

A rule is a function of one of these modules that yields problems of a catalogue. Its docstring says what it catches, why, and
the remedy; docs/en/contributing.md shows them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from readyonce.check import (
    articles,
    basis,
    blocks,
    claims,
    encodings,
    evidence,
    families,
    frameworks,
    generated,
    links,
    metadata,
    pages,
    parity,
    scripts,
    tables,
)
from readyonce.check.sources import made
from readyonce.data import kept
from readyonce.data.catalog import Catalog, load
from readyonce.data.reading import CatalogError, Problem, in_order

Rule = Callable[[Catalog], Iterator[Problem]]
ON_PAGES = (pages, blocks, links)  # look at a page even where what it is about did not load
ON_THE_CATALOG = (metadata, evidence, claims, families, tables, frameworks, scripts, articles)
KINDS = (encodings, basis, *ON_PAGES, *ON_THE_CATALOG, parity, generated)


def rules(*modules: ModuleType) -> list[Rule]:
    """The rules of these modules, in their order: each public function of the catalogue alone."""
    return [
        found
        for module in modules
        for name, found in inspect.getmembers(module, inspect.isfunction)
        if found.__module__ == module.__name__
        and name[0] != "_"
        and [*inspect.signature(found).parameters] == ["catalog"]
    ]


def problems(catalog: Catalog) -> list[Problem]:
    """Every problem of the catalog and of the pages, in the order of files and lines.

    One mistake, one answer: where a file did not load, nothing is said of what rests on it.
    """

    def of(*modules: ModuleType) -> list[Problem]:
        return [problem for rule in rules(*modules) for problem in rule(catalog)]

    found = [*catalog.problems, *of(encodings)]
    unsound = of(basis)
    catalog.unsound |= bool(unsound)
    found += unsound
    if catalog.unsound:
        return in_order(found + of(*ON_PAGES))
    found += of(*ON_THE_CATALOG, *ON_PAGES)
    faulty = {problem.file for problem in found}  # else they differ by that
    for problem in of(parity):
        if faulty.isdisjoint((problem.file, problem.file.replace("docs/zh/", "docs/en/", 1))):
            found.append(problem)
    if not found:  # what is generated needs a catalog without a fault, and would be in vain before
        if made(catalog) is None:
            from readyonce.pages import includes

            includes.every(catalog, "en")  # raises what went wrong
        found = of(generated)
    return in_order(found)


def checked(root: Path) -> tuple[Catalog, list[Problem]]:
    """The catalog and its problems; what was computed of the same files before is not computed again."""
    with kept.between_runs(root):
        catalog = load(root)
        return catalog, problems(catalog)


def or_raise(root: Path | None, error: Exception) -> CatalogError:
    """Where a command stumbled: what is wrong with its sources, or, where nothing is, the error itself."""
    try:
        found = problems(load(root)) if root else []
    except Exception:  # then the first error tells more
        found = []
    if not found:
        raise error
    return CatalogError(found)
