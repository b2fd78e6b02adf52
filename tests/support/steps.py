"""What an engine does, counted: the same on every machine, however busy. A measure of time would double beside a neighbour."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType

import pytest


class _Read(bytes):
    """A text that counts what is searched of it."""

    steps: Counter[str]

    def find(self, literal, low=0, high=sys.maxsize):
        found = super().find(literal, low, high)
        self.steps["read"] += max(0, (min(high, len(self)) if found < 0 else found) - low)
        return found


class _Pattern:
    """A compiled expression that counts how far it reads: to the end of a match, else to the end of the text."""

    def __init__(self, pattern: re.Pattern, steps: Counter[str]):
        self.pattern, self.steps = pattern, steps

    def __getattr__(self, name):
        method = getattr(self.pattern, name)

        def counted(*given):
            result = method(*given)
            text, start = (given[1], 0) if name == "sub" else (given[0], given[1] if len(given) > 1 else 0)
            self.steps["read"] += (result.end() if isinstance(result, re.Match) else len(text)) - start
            return result

        return counted


def steps(module: ModuleType, work: Callable[..., object], *given: object) -> Counter[str]:
    """The calls that the work makes, and the letters that the module's expressions and its joined text are searched for."""
    counted: Counter[str] = Counter()

    def call(frame, event, argument):
        counted["calls"] += event in ("call", "c_call")

    def joined(form, text, number):
        begin(form, text, number)
        form.text = type("Read", (_Read,), {"steps": counted})(form.text)

    with pytest.MonkeyPatch.context() as patch:
        for name, value in vars(module).copy().items():
            if isinstance(value, re.Pattern):
                patch.setattr(module, name, _Pattern(value, counted))
        begin = module._Form.__init__
        patch.setattr(module._Form, "__init__", joined)
        before = sys.getprofile()
        sys.setprofile(call)
        try:
            work(*given)
        finally:
            sys.setprofile(before)
    return counted
