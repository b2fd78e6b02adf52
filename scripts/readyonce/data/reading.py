"""Reading files: YAML that nothing can crash, faults in words, and the line of a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from readyonce.data.project import MADE_OF
from readyonce.data.terminal import printable

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Keys = tuple[str | int, ...]  # the way to a value, from the top of its file


@dataclass(frozen=True, order=True)
class Problem:
    """One fault: where it is (`line` counts from 1), what is wrong, and what to do."""

    file: str
    line: int
    what: str
    remedy: str

    def __str__(self) -> str:
        what = " ".join(self.what.split())  # it may quote a whole block
        return f"{self.file}:{self.line}: {what}\n    {self.remedy}"


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Each once, by file and line; what is under `snippets/` and `packages/` goes before the pages that are made of it."""
    return sorted(set(problems), key=lambda problem: (not problem.file.startswith(MADE_OF), problem))


class CatalogError(Exception):
    """Raised where a command cannot go on; carries every `Problem` found."""

    def __init__(self, problems: list[Problem]):
        self.problems = in_order(problems)
        super().__init__("\n".join(map(str, self.problems)))


# ------------------------------------------------------------------------------ YAML


DEEPEST = 50  # levels, beyond which the reader in C could end the interpreter; our deepest file has 6


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the one in C, where there is one
    """Safe YAML in which `yes`, `no` and dates stay words, and a key may stand only once.

    It also refuses nesting that would crash it, and orders to a terminal.
    """

    depth = 0

    # Called for every node, before what is in it is read.
    def descend_resolver(self, parent: yaml.Node, index: object) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _refused(parent, f"nested more than {DEEPEST} levels deep")

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        # Nearly all values are plain words: they need none of what objects need that could hold themselves.
        if node.tag == _STRING and isinstance(node, yaml.ScalarNode) and node.value.isprintable():
            return node.value
        return super().construct_object(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode) -> str:
        text: str = super().construct_scalar(node)
        if not text.isprintable() and printable(text) != text:
            raise _refused(node, "a control character", "Take it out.")
        return text

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"`{key.value}` stands here twice", key.start_mark)
            seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


_STRING = "tag:yaml.org,2002:str"
_WORDS = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _WORDS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_WORDS[0], re.compile("^(true|false)$"), ["t", "f"])


def parse_yaml(text: str) -> Any:
    if "&" in text:
        _refuse_aliases_of_aliases(text)
    try:
        return yaml.load(text, _Loader)
    except (ValueError, LookupError, AttributeError) as error:  # `!!bool maybe`, a number of 5000 digits
        raise yaml.YAMLError(f"a value is not what it is said to be: {error}") from None


def _refuse_aliases_of_aliases(text: str) -> None:
    """What a name stands for holds no other name: a short file cannot grow without end, and nothing holds itself."""
    named = [False]  # of what is open: whether it, or what is around it, has a name
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            named.append(named[-1] or event.anchor is not None)
        elif isinstance(event, yaml.CollectionEndEvent):
            named.pop()
        elif isinstance(event, yaml.AliasEvent) and named[-1]:
            raise _refused(event, f"`*{event.anchor}` stands in what has a name (`&`) itself")


def _refused(at: yaml.Event | yaml.Node, what: str, remedy: str = "Write it out, and flatter.") -> yaml.MarkedYAMLError:
    mark: Any = at.start_mark  # of Python's or of C's reader, which have no class in common
    return yaml.MarkedYAMLError(problem=what, problem_mark=mark, note=remedy)


# ------------------------------------------------------------------------------ faults in words


def explain_yaml(error: yaml.YAMLError) -> tuple[int, str, str]:
    """Line, what, remedy."""
    mark = getattr(error, "problem_mark", None)
    what = f"not YAML: {getattr(error, 'problem', None) or error}"
    remedy = getattr(error, "note", None) or "Mend the syntax on or just above this line."
    return mark.line + 1 if mark else 1, what, remedy


def explained(faults: list[ErrorDetails]) -> Iterator[tuple[Keys, str, str]]:
    """Keys, what, remedy. A key that is not known and another that is missing beside it are one slip."""
    missing = {fault["loc"] for fault in faults if fault["type"] == "missing"}
    meant = {}
    for fault in faults:
        if fault["type"] == "extra_forbidden":
            *above, key = fault["loc"]
            beside = [str(keys[-1]) for keys in missing if keys[:-1] == (*above,)]
            for name in get_close_matches(str(key), beside, 1):
                meant[fault["loc"]] = name
                missing.remove((*above, name))
    for fault in faults:
        if right := meant.get(fault["loc"]):
            yield (
                fault["loc"],
                f"the key `{fault['loc'][-1]}` is not known",
                f"Write `{right}:`, which is missing here.",
            )
        elif fault["type"] != "missing" or fault["loc"] in missing:
            yield fault["loc"], *_explain(fault)


def _explain(fault: ErrorDetails) -> tuple[str, str]:
    """Pydantic's fault in our words: what, remedy."""
    *above, key = fault["loc"] or ("the file",)
    if key == "[key]":  # pydantic's word for the key itself
        key = above[-2] if len(above) > 1 else "a name in this file"
    given = fault["input"] if isinstance(fault["input"], str) else "this"
    match fault["type"]:
        case "missing":
            return f"the key `{key}` is missing", f"Add `{key}:` here."
        case "extra_forbidden":
            remedy = "Remove it, or mend its spelling."
            if fault["input"] is None:  # `{en: one, two, zh: …}` has a key `two`
                remedy += " If it is a part of a text: a comma ends a text here, so put the whole text in quotes."
            return f"the key `{key}` is not known", remedy
        case "literal_error":
            return f"`{given}` is no value for `{key}`", f"Write one of: {fault['ctx']['expected']}."
        case "string_pattern_mismatch":
            return f"`{given}` is no value for `{key}`", f"It must fit {fault['ctx']['pattern']}"
        case "value_error":
            return f"`{key}`: {fault['ctx']['error']}", "Mend the value."
        case "string_too_short" | "too_short":
            return f"`{key}` is empty", "Write it, or take the key out."
        case "greater_than_equal" | "greater_than" | "less_than_equal" | "less_than" as bound:
            limit = next(iter(fault["ctx"].values()))
            return f"`{fault['input']}` is no value for `{key}`", f"It must be {bound.replace('_', ' ')} {limit}."
    kind, _, _ = fault["type"].partition("_")
    wanted = KINDS.get(kind, "something else")
    return f"`{key}` must be {wanted}", "Mend the value; another file of this kind shows how it is written."


# What a value must be, by the first word of pydantic's kind of fault.
KINDS = {
    "model": "keys and values",
    "dict": "keys and values",
    "list": "a list",
    "tuple": "a list",
    "string": "a text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "date": "a date such as 2026-11-25",
}


# ------------------------------------------------------------------------------ where a value stands


def line_of(path: Path, keys: Keys) -> int:
    """The line of a value in a YAML or JSON file; of its parent where the last key is missing."""
    if not keys or not path.is_file():
        return 1
    try:
        node, line = _composed(path.read_text(encoding="utf-8", errors="replace")), 1
    except yaml.YAMLError:  # JSON may hold letters that YAML does not allow
        return 1
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode):
            found = [(k, v) for k, v in node.value if k.value == str(key)]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
    return line


@lru_cache(4)  # a file with one fault has many
def _composed(text: str) -> yaml.Node | None:
    node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    return node
