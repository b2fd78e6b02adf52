"""Queries over the facts of all stored runs: of the catalogue, and of what is compiled of it for the command `facts`."""

from __future__ import annotations

import json
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, reduce

from readyonce.data import facts
from readyonce.data.facts import Facts, Index, Leaf, Query, Value, Where
from readyonce.data.inputs import Unusable


class RunIndex(Index):
    """Runs by their facts, some of which have a usual value: a run has it if it says nothing else."""

    def __init__(self, runs: Sequence[Facts], usual: Mapping[str, Value], optional: Collection[str] = ()):
        super().__init__(runs, optional)
        self._usual = usual
        self._any_unusual: dict[frozenset[str], int] = {}

    def meant(self, query: Query) -> tuple[int, int]:
        """As `fitting`, of runs with the usual values only, but for facts that the query asks for."""
        names = frozenset(self._unusual.keys() - facts.named(query))
        if names not in self._any_unusual:  # most queries ask for none of them
            self._any_unusual[names] = reduce(operator.or_, (self._unusual[name] for name in names), 0)
        fit, unclear = self.fitting(query)
        return fit & ~self._any_unusual[names], unclear & ~self._any_unusual[names]

    @cached_property
    def _unusual(self) -> dict[str, int]:
        """For each fact with a usual value, the runs that have another."""
        return {name: self.all & ~self.fitting({name: value})[0] for name, value in self._usual.items()}


class StoredRuns:
    """The runs with their names, facts and outcomes, as `rules.facts` compiles them."""

    def __init__(self, text: str):
        compiled = json.loads(text)
        self.names: list[str] = compiled["names"]
        self.told: list[tuple[Facts, str]] = compiled["told"]  # of each run its facts and its outcome
        self.vocabulary: list[str] = compiled["vocabulary"]
        usual = compiled["usual"]
        self._index = RunIndex([usual | told for told, _ in self.told], usual, compiled["optional"])

    def query(self, words: Iterable[str]) -> Where:
        """The query that words such as `strategy=ddp` or `deepspeed=< 0.19.3` make; raises `Unusable`."""
        query: Where = {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in self.vocabulary or not value:
                raise Unusable(f"`{word}` is no FACT=VALUE. The facts: {', '.join(self.vocabulary)}")
            query[name] = value if value[0] in "<>" else list(value.split(","))
        return query

    def fitting(self, query: Query) -> tuple[list[int], int]:
        """The numbers of the runs that fit, and how many do not tell enough to say so."""
        fit, unclear = self._index.meant(query)
        return list(facts.members(fit)), unclear.bit_count()

    def separate(self, runs: Sequence[int]) -> list[tuple[Leaf, list[str]]]:
        """What tells the outcomes of these runs apart, and the names of the runs of each part."""
        leaves = facts.separate([self.told[number] for number in runs], self.vocabulary)
        return [(leaf, [self.names[runs[number]] for number in leaf.runs]) for leaf in leaves]


def condition(leaf: Leaf) -> str:
    """What only the runs of a part fulfil, as text; empty where it is all runs."""
    return " and ".join(
        f"{'' if inside else 'not '}{name} {'told' if condition is None else condition}"
        for name, condition, inside in leaf.path
    )
