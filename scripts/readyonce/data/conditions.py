"""Facts in words: a query, and what separates runs, as a reader reads them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from readyonce.data.catalog import Catalog, Observed
from readyonce.data.facts import Condition, Query, Value, bounds, version
from readyonce.data.project import Language
from readyonce.data.words import say


@dataclass(frozen=True)
class Part:
    """Runs that came out alike, and the conditions that tell them from the other parts."""

    label: str
    runs: tuple[Observed, ...]
    names: tuple[str, ...]  # the facts asked for


def in_words(catalog: Catalog, query: Query, language: Language) -> str:
    """`{strategy: ddp, deepspeed: "< 0.19.3"}` → "DDP, DeepSpeed < 0.19.3"."""
    wheres = query if isinstance(query, list) else [query]
    texts = [
        say("comma", language).join(_condition(catalog, name, condition, language) for name, condition in where.items())
        for where in wheres
    ]
    return say("or-else", language).join(texts)


def _either(texts: Iterable[str], language: Language) -> str:
    """Chinese sets a space only beside other letters."""
    return re.sub(r"(?<=[^\x00-\x7f]) 或 (?=[^\x00-\x7f])", "或", say("or", language).join(texts))


def _condition(catalog: Catalog, name: str, condition: Condition, language: Language) -> str:
    if isinstance(condition, list):
        return _either((_condition(catalog, name, one, language) for one in condition), language)
    if bounds(condition):
        return f"{catalog.vocabulary[name].text[language]} {condition}"
    return value_in_words(catalog, name, condition, language)


def value_in_words(catalog: Catalog, name: str, value: Value, language: Language) -> str:
    fact = catalog.vocabulary[name]
    if fact.values:
        return fact.values[str(value).lower()][language]
    return f"{fact.text[language]} {value}"


def parts(catalog: Catalog, runs: Collection[Observed]) -> list[Part]:
    """Runs in parts of one outcome each, as few as their facts allow; the most runs first."""
    found = []
    for leaf, here in catalog.parted(runs):
        told = tuple(dict.fromkeys(name for name, _, _ in leaf.path))
        found += [
            Part(label, tuple(observed for observed in here if observed.label == label), told) for label in leaf.labels
        ]
    return sorted(found, key=lambda part: -len(part.runs))


def part_in_words(catalog: Catalog, part: Part, language: Language) -> str:
    """The conditions that its runs have in common, of those that tell it apart."""
    return common(catalog, part.names, part.runs, language)


def common(catalog: Catalog, names: Iterable[str], runs: Collection[Observed], language: Language) -> str:
    """What runs tell of these facts: `base weights frozen or vision tower frozen, one reduce bucket`."""
    texts = (_seen(catalog, name, runs, language) for name in names)
    return say("comma", language).join(text for text in texts if text)


def _seen(catalog: Catalog, name: str, runs: Iterable[Observed], language: Language) -> str:
    values = {str(observed.facts[name]).lower() for observed in runs if name in observed.facts}
    fact = catalog.vocabulary[name]
    if not values:
        return ""
    if fact.kind in ("number", "version"):
        ordered = sorted(values, key=version)
        span = ordered[0] if len(ordered) == 1 else say("to", language, ordered[0], ordered[-1])
        return f"{fact.text[language]} {span}"
    known = [value for value in fact.values if value in values]
    return _either((fact.values[value][language] for value in known), language)
