"""What could decide the outcome of a run: its facts, the queries over them, and what separates outcomes.

A fact is a name and a value of `snippets/facts.yml`. A query is a mapping of facts to conditions, all of which must
hold, or a list of such mappings, one of which must. A condition is a value, a list of values, or a comparison
(`"< 0.19.3"`). A fact that a run does not tell leaves a query undecided; it is never taken for a default.
"""

from __future__ import annotations

import operator
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

Value = str | int | bool
Facts = Mapping[str, Value]
Condition = Value | list[Value]
Where = dict[str, Condition]
Query = Where | list[Where]

_NOT_EMPTY = re.compile(rb"[^\0]")
_COMPARISON = re.compile(r"(<=|>=|<|>)\s*(\d[\w.+-]*)")


def version(text: Value) -> tuple[int, ...]:
    """`0.19.2+cpu` → (0, 19, 2)."""
    return tuple(int(part) for part in re.findall(r"\d+", str(text).partition("+")[0]))


def bounds(condition: Condition) -> list[tuple[str, str]]:
    """The comparisons that a condition is made of: `">= 4.38, < 5"` has two; of a plain value none."""
    return _bounds(condition) if isinstance(condition, str) else []


@lru_cache(maxsize=4096)
def _bounds(condition: str) -> list[tuple[str, str]]:
    parts = condition.split(",")
    found = [match for part in parts if (match := _COMPARISON.fullmatch(part.strip()))]
    return [(match[1], match[2]) for match in found] if len(found) == len(parts) else []


def holds(condition: Condition, value: Value) -> bool:
    if isinstance(condition, list):
        return any(_holds(one, value) for one in condition)
    return _holds(condition, value)


@lru_cache(maxsize=1 << 16, typed=True)  # the same few are asked of every run, a million times; 1 is not True
def _holds(condition: Value, value: Value) -> bool:
    if compared := bounds(condition):
        return all(_compare(version(value), sign, version(bound)) for sign, bound in compared)
    return str(condition).lower() == str(value).lower()  # YAML's `true` and JSON's are one


def _compare(one: tuple[int, ...], sign: str, other: tuple[int, ...]) -> bool:
    width = max(len(one), len(other))
    a, b = (part + (0,) * (width - len(part)) for part in (one, other))
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]


def fits(query: Query, facts: Facts, optional: Collection[str] = ()) -> bool | None:
    """Whether a run's facts fit a query; None where it does not tell enough.

    A run that says nothing of an `optional` fact has nothing of the kind.
    """
    if isinstance(query, list):
        answers = [fits(where, facts, optional) for where in query]
        return True if True in answers else None if None in answers else False
    result = True
    for name, condition in query.items():
        if name in facts:
            if not holds(condition, facts[name]):
                return False
        elif name in optional:
            return False
        else:
            result = False
    return result or None


class Index:
    """Runs by what they tell. A set of runs is a number, run i its bit i: a query costs its conditions, not the runs."""

    def __init__(self, runs: Sequence[Facts], optional: Collection[str] = ()):
        self.all = (1 << len(runs)) - 1
        self._optional = optional
        by_value: dict[str, dict[tuple[type, Value], list[int]]] = defaultdict(lambda: defaultdict(list))
        for number, facts in enumerate(runs):
            for name, value in facts.items():
                by_value[name][type(value), value].append(number)
        self._by_value = {
            name: [(value, _bits(numbers)) for (_, value), numbers in values.items()]
            for name, values in by_value.items()
        }
        self._telling = {name: _any(runs for _, runs in values) for name, values in self._by_value.items()}
        self._asked: dict[tuple[str, str], int] = {}

    def fitting(self, query: Query) -> tuple[int, int]:
        """(the runs that fit, those that do not tell enough), as `fits` says of each."""
        if isinstance(query, list):
            answers = [self.fitting(where) for where in query]
            fit = _any(fit for fit, _ in answers)
            return fit, _any(unclear for _, unclear in answers) & ~fit
        fit = possible = self.all
        for name, condition in query.items():
            holding = self._holding(name, condition)
            fit &= holding
            possible &= holding if name in self._optional else holding | ~self._telling.get(name, 0)
        return fit, possible & ~fit

    def _holding(self, name: str, condition: Condition) -> int:
        key = name, repr(condition)
        if key not in self._asked:
            values = self._by_value.get(name, ())
            self._asked[key] = _any(runs for value, runs in values if holds(condition, value))
        return self._asked[key]


def _any(sets: Iterable[int]) -> int:
    return reduce(operator.or_, sets, 0)


def _bits(numbers: list[int]) -> int:
    """The number with these bits; they come in ascending order."""
    bits = bytearray(numbers[-1] // 8 + 1)
    for number in numbers:
        bits[number // 8] |= 1 << number % 8
    return int.from_bytes(bits, "little")


def members(runs: int) -> Iterator[int]:
    """The runs of a set, in their order."""
    bits = runs.to_bytes(runs.bit_length() // 8 + 1, "little")
    for found in _NOT_EMPTY.finditer(bits):
        first, byte = 8 * found.start(), bits[found.start()]
        yield from (first + bit for bit in range(8) if byte >> bit & 1)


def named(query: Query) -> set[str]:
    """The facts that a query asks for."""
    return set().union(*query) if isinstance(query, list) else set(query)


# ------------------------------------------------------------------------------ what separates outcomes


Path = tuple[tuple[str, Condition | None, bool], ...]


class Leaf(NamedTuple):
    """Runs of one kind, and the conditions that only they fulfil: (fact, condition, whether it must hold)."""

    path: Path
    labels: Counter[str]
    runs: list[int]  # which of those that were given

    @property
    def pure(self) -> bool:
        return len(self.labels) == 1


def separate(runs: Sequence[tuple[Facts, str]], names: Sequence[str]) -> list[Leaf]:
    """Split runs, (facts, label) each, by the facts `names` until each part has one label, where that can be done.

    Greedy: at each step the one question that leaves the least mixture; the fact named first wins a tie.
    """
    return list(_leaves(runs, names, list(range(len(runs))), ()))


def _leaves(runs: Sequence[tuple[Facts, str]], names: Sequence[str], here: list[int], path: Path) -> Iterator[Leaf]:
    labels = Counter(runs[number][1] for number in here)
    asked = _best([runs[number] for number in here], labels, names) if len(labels) > 1 else None
    if asked is None:
        yield Leaf(path, labels, here)
        return
    name, condition = asked
    inside: list[int] = []
    outside: list[int] = []
    for number in here:
        (inside if _answer(name, condition, runs[number][0]) else outside).append(number)
    yield from _leaves(runs, names, inside, (*path, (name, condition, True)))
    yield from _leaves(runs, names, outside, (*path, (name, condition, False)))


def _best(
    runs: list[tuple[Facts, str]], labels: Counter[str], names: Sequence[str]
) -> tuple[str, Condition | None] | None:
    """The question whose two answers are least mixed; None where none has two answers.

    A value is asked for, or a bound between two neighbours; where no value separates, whether the fact is told at all.
    """
    by_fact: dict[str, dict[str, Counter[str]]] = {}  # fact -> value -> labels: the runs are read once
    for name in names:
        by_value: dict[str, Counter[str]] = defaultdict(Counter)
        for facts, label in runs:
            if name in facts:
                by_value[str(facts[name])][label] += 1
        by_fact[name] = by_value
    best: tuple[float, str, Condition | None] | None = None
    for questions in (_questions, _told):
        for name, by_value in by_fact.items():
            for condition in questions(by_value):
                inside: Counter[str] = Counter()
                for value, counts in by_value.items():
                    if condition is None or holds(condition, value):
                        inside.update(counts)
                outside = labels - inside
                mixture = _mixture(inside) + _mixture(outside)
                if inside and outside and (best is None or mixture < best[0] - 1e-9):
                    best = mixture, name, condition
        if best:
            return best[1:]
    return None


def _questions(values: Collection[str]) -> Iterator[Condition]:
    known = sorted(values)
    if len(known) > 1 and all(re.match(r"\d", value) for value in known):
        yield from (f">= {value}" for value in sorted(known, key=version)[1:])
    else:
        yield from known


def _told(values: Collection[str]) -> Iterator[None]:
    yield None


def _answer(name: str, condition: Condition | None, facts: Facts) -> bool:
    return name in facts and (condition is None or holds(condition, facts[name]))


def _mixture(labels: Counter[str]) -> float:
    count = labels.total()
    return count - sum(one * one for one in labels.values()) / count if count else 0.0


# ------------------------------------------------------------------------------ of a command


def of_command(
    script: str,
    rules: Iterable[Mapping[str, Any]],
    versions: Mapping[str, str],
    options: Mapping[str, str | None] = {},
) -> dict[str, Value | None]:
    """The facts of a framework's command: of each fact the first rule that sets it and fits.

    A rule is `{"text": words of the script, "option": name, "is": its value or several, "where": query over what is known
    so far and the versions, "facts": ...}`; each condition may be left out, and an option without `is` is one that is given and
    not switched off. Comments of the script say nothing. `options` are those of the command, None where a value is not known.
    A fact is None where a rule that would decide it asks for what is not known.
    """
    said = " ".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
    said = " ".join(said.replace("\\ ", " ").split())
    found: dict[str, Value | None] = {}
    known = {name: value for name, value in versions.items() if value is not None}
    for rule in rules:
        if rule.get("text", "") not in said or (is_given := given(rule, options)) is False:
            continue
        fit = fits(rule.get("where", {}), known)
        if fit is False:
            continue
        for name, value in rule["facts"].items():
            if name not in found:
                found[name] = told = value if is_given and fit else None
                if told is None:
                    known.pop(name, None)
                else:
                    known[name] = told
    return found


def given(rule: Mapping[str, Any], options: Mapping[str, str | None]) -> bool | None:
    """Whether options are as a rule asks; None where a value is not known."""
    name, wanted = rule.get("option"), rule.get("is")
    if not name:
        return True
    if name not in options or rule.get("without") in options:
        return False
    if (value := options[name]) is None:
        return None
    return value.lower() not in ("false", "no", "0", "none") if wanted is None else holds(wanted, value)
