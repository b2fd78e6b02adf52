"""Rules of error families, `snippets/errors/NAME.yml`."""

from __future__ import annotations

from collections.abc import Iterator

from readyonce.check.words import some, unknown_words
from readyonce.data.catalog import Catalog
from readyonce.data.reading import Problem


def wording_of_unknown_strategy(catalog: Catalog) -> Iterator[Problem]:
    """A wording asks for a strategy of which `snippets/diagnose.yml` does not say how a log shows it.

    The wording would never be found.
    Remedy: name a strategy of `snippets/diagnose.yml`.
    """
    known = catalog.diagnose.strategies if catalog.diagnose else {}
    for family in catalog.families.values():
        for index, wording in enumerate(family.wordings):
            if wording.strategy and wording.strategy not in known:
                what = f"snippets/diagnose.yml does not say how a log shows `{wording.strategy}`"
                keys = ("wordings", index, "strategy")
                path = catalog.file_of(family)
                yield catalog.problem(path, keys, what, f"Write one of: {', '.join(known)}.")


def case_without_runs(catalog: Catalog) -> Iterator[Problem]:
    """A case of an error asks for a fact that the vocabulary does not have, or no run that ended in the error fits it.

    The page would send a reader to a case that nobody has seen.
    Remedy: mend the query, or leave `where` out.
    """
    for family in catalog.families.values():
        for index, case in enumerate(family.cases):
            if case.where is not None:
                path, keys = catalog.file_of(family), ("cases", index, "where")
                yield from (unknown := list(unknown_words(catalog, path, keys, case.where)))
                if not unknown and not catalog.ended_in(family.family) & catalog.telling(case.where)[0]:
                    what = "no run that ended in this error fits this case"
                    yield catalog.problem(path, keys, what, "Mend it, or leave `where` out.")


def run_of_no_case(catalog: Catalog) -> Iterator[Problem]:
    """A run ended in an error and fits none of the error's cases.

    The cases cover all that was seen. Where one of them fits no run at all, only that is said.
    Remedy: add a case, or widen one.
    """
    for family in catalog.families.values():
        left = ended = catalog.ended_in(family.family)
        empty = False
        for case in family.cases:
            if case.where is not None:
                fit = ended & catalog.telling(case.where)[0]
                left -= fit
                empty |= not fit
        if family.cases and left and not empty:
            what = f"runs that ended in this error and are of none of its cases: {some(left)}"
            yield catalog.problem(catalog.file_of(family), ("cases",), what, "A case is missing, or one is too narrow.")
