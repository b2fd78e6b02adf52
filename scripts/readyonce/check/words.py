"""Queries and facts in the words of the vocabulary, `snippets/facts.yml`. Rules of several kinds ask this."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from readyonce.data.catalog import Catalog, RunSet
from readyonce.data.facts import Query, Value, bounds
from readyonce.data.reading import Keys, Problem
from readyonce.data.schema import Fact


def unknown_words(catalog: Catalog, path: Path, keys: Keys, query: Query) -> Iterator[Problem]:
    """What a query asks for that the vocabulary does not have."""
    for part in query if isinstance(query, list) else [query]:
        for name, condition in part.items():
            fact = catalog.vocabulary.get(name)
            if fact is None:
                remedy = f"snippets/facts.yml has: {', '.join(catalog.vocabulary)}."
                yield catalog.problem(path, keys, f"there is no fact `{name}`", remedy)
                continue
            for value in condition if isinstance(condition, list) else [condition]:
                if not is_value(fact, value) and not (bounds(value) and fact.kind in ("number", "version")):
                    what = f"`{value}` is no value of the fact `{name}`"
                    yield catalog.problem(path, keys, what, _values(fact))


def is_value(fact: Fact, value: Value) -> bool:
    match fact.kind:
        case "value":
            return str(value).lower() in fact.values
        case "number":
            return isinstance(value, int) and not isinstance(value, bool)
        case "version":
            return re.fullmatch(r"\d[\w.]*", str(value)) is not None
    return isinstance(value, str)


def _values(fact: Fact) -> str:
    if fact.values:
        return f"Write one of: {', '.join(fact.values)}."
    return 'Write a number, or a comparison such as "< 0.19.3".' if fact.kind != "word" else "Write a word."


def some(runs: RunSet) -> str:
    """The names of the first runs, and how many more there are."""
    names = [observed.name for observed in itertools.islice(runs, 3)]
    return ", ".join(names) + (f" and {len(runs) - len(names)} more" if len(runs) > len(names) else "")
