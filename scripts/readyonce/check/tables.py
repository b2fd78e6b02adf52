"""Rules of what rests on runs: `snippets/decision.yml`, `snippets/tables.yml`, `snippets/models.yml`."""

from __future__ import annotations

from collections.abc import Iterator

from readyonce.check.words import unknown_words
from readyonce.data import models
from readyonce.data.catalog import Catalog
from readyonce.data.facts import Where
from readyonce.data.reading import Keys, Problem
from readyonce.pages import decision


def _unknown_words(catalog: Catalog) -> list[Problem]:
    """Of the decision table."""
    if catalog.decision is None:
        return []
    asked: dict[Keys, Where] = {
        **{("columns", name, "where"): column.where for name, column in catalog.decision.columns.items()},
        **{("uses", name, "where"): use.where for name, use in catalog.decision.uses.items()},
        **{("strategies", n): {"strategy": strategy} for n, strategy in enumerate(catalog.decision.strategies)},
    }
    path = catalog.root / "snippets" / "decision.yml"
    return [problem for keys, query in asked.items() for problem in unknown_words(catalog, path, keys, query)]


def decision_in_unknown_words(catalog: Catalog) -> Iterator[Problem]:
    """A strategy, use or column of the decision table asks for a fact or a value that the vocabulary does not have.

    No run could fit it.
    Remedy: write a fact and a value of `snippets/facts.yml`.
    """
    yield from _unknown_words(catalog)


def decision_without_runs(catalog: Catalog) -> Iterator[Problem]:
    """No run fits a strategy or a use of the decision table.

    Its row would be empty.
    Remedy: mend the query, or take the row out.
    """
    if catalog.decision is None or _unknown_words(catalog):
        return
    path, remedy = catalog.root / "snippets" / "decision.yml", "Mend it, or take it out."
    rows = decision.cells(catalog)
    for index, strategy in enumerate(catalog.decision.strategies):
        if not any(row[0] == strategy for row in rows):
            yield catalog.problem(path, ("strategies", index), "no run fits this strategy", remedy)
    for name in catalog.decision.uses:
        if not any(row[1] == name for row in rows):
            yield catalog.problem(path, ("uses", name, "where"), "no run fits this row", remedy)


def remedy_without_proof(catalog: Catalog) -> Iterator[Problem]:
    """No run fits a remedy of the decision table, or one of its runs does not train right.

    The page would lead with a way out that nobody proved.
    Remedy: name variants of the incident that train right.
    """
    if catalog.decision is None:
        return
    path, mend = catalog.root / "snippets" / "decision.yml", "Name variants of the incident that train right."
    for name, use in catalog.decision.uses.items():
        for index, remedy in enumerate(use.remedies):
            runs = [
                run for strategy in catalog.decision.strategies for run in decision.proving(catalog, remedy, strategy)
            ]
            wrong = [observed.name for observed in runs if observed not in decision.right(runs)]
            if wrong or not runs:
                what = f"{wrong[0]} does not train right" if wrong else f"no run of {remedy.incident} fits"
                yield catalog.problem(path, ("uses", name, "remedies", index, "variants"), what, mend)


def table_without_runs(catalog: Catalog) -> Iterator[Problem]:
    """A table of runs asks for a fact or a value that the vocabulary does not have, or no run fits it.

    A page would show an empty table.
    Remedy: mend the query, or take the table out.
    """
    path = catalog.root / "snippets" / "tables.yml"
    for name, table in catalog.tables.items():
        yield from (unknown := list(unknown_words(catalog, path, (name, "where"), table.where)))
        if not unknown and not catalog.fitting(table.where)[0]:
            remedy = "Mend it, or take it out."
            yield catalog.problem(path, (name, "where"), "no run fits this table", remedy)


def class_without_run(catalog: Catalog) -> Iterator[Problem]:
    """`models.yml` names a class of which no run says that its training step runs each module once.

    The lint would leave its names out without a word.
    Remedy: add its type to `RO-0001/forwards.py` and store what that prints, or take the class out.
    """
    path, known = catalog.root / "snippets" / "models.yml", {*models.named(catalog).values()}
    for kind in catalog.models:
        if kind not in known:
            remedy = (
                "Add its type to `RO-0001/forwards.py`, run `readyonce verify RO-0001 --stale --write`, or take it out."
            )
            yield catalog.problem(path, (kind,), f"no run says that {kind} runs each module once", remedy)
