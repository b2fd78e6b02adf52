"""The keys of the files below `snippets/`: their JSON Schema for editors, and the manual of them for contributors.

Both are read from the models in `schema`; what a key means in Chinese stands in `schema_docs.zh.yml`.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from readyonce.data import schema
from readyonce.data.markup import table
from readyonce.data.project import Language
from readyonce.data.schema import Slug
from readyonce.data.words import say

FILES: dict[str, tuple[str, Any]] = {
    "incident": ("snippets/RO-0042/incident.yml", schema.IncidentFile),
    "error": ("snippets/errors/NAME.yml", schema.FamilyFile),
    "facts": ("snippets/facts.yml", dict[Slug, schema.Fact]),
    "framework": ("snippets/frameworks/NAME.yml", schema.FrameworkFile),
    "decision": ("snippets/decision.yml", schema.DecisionFile),
    "tables": ("snippets/tables.yml", dict[Slug, schema.RunsTable]),
}
TRANSLATED = Path(__file__).with_name("schema_docs.zh.yml")
PLAIN = ("Text", "Title")  # words in both languages: what stands in them needs no table


def schemas() -> dict[str, str]:
    """File name → JSON Schema (draft 2020-12) of each kind of file."""
    return {f"{name}.json": json.dumps(_schema(name), indent=1, ensure_ascii=False) + "\n" for name in FILES}


def manual(language: Language) -> str:
    """Of each kind of file its keys, and below it those of the parts that it is made of."""
    parts, shown = [], set(PLAIN)
    for name, (path, _) in FILES.items():
        whole = _schema(name)
        parts.append(f"## `{path}` {{ #{name} }}\n")
        if "properties" in whole:
            parts.append(_table(whole, whole["title"], language))
        else:
            parts.append(say("keys.names", language, *map(_link, _models(whole))) + "\n")
        for model, part in whole["$defs"].items():
            if model not in shown:
                shown.add(model)
                parts.append(f"### {model} {{ #{model.lower()} }}\n")
                parts.append(_table(part, model, language))
    return "\n".join(parts)


@cache
def _schema(name: str) -> dict[str, Any]:
    made = TypeAdapter(FILES[name][1]).json_schema()
    for title, part in [(made.get("title", ""), made), *made["$defs"].items()]:
        for key, said in _described(title).items():
            part["properties"][key]["description"] = said
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def _described(model: str) -> dict[str, str]:
    """Of a model and of those that it is made from: key → the text below it in `schema`."""
    if not (kind := getattr(schema, model, None)):
        return {}
    said = {name: text for base in reversed(kind.__mro__) for name, text in _texts().get(base.__name__, {}).items()}
    return {field.alias or name: said[name] for name, field in kind.model_fields.items() if name in said}


@cache
def _texts() -> dict[str, dict[str, str]]:
    """Class of `schema` → attribute → the text below it. Read here and not by pydantic, which each command would wait for."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(Path(schema.__file__).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            for one, below in itertools.pairwise(node.body):
                if isinstance(one, ast.AnnAssign) and isinstance(below, ast.Expr):
                    text = inspect.cleandoc(ast.literal_eval(below.value))
                    found.setdefault(node.name, {})[ast.unparse(one.target)] = text
    return found


def _table(model: dict[str, Any], name: str, language: Language) -> str:
    rows = [[say("keys.key", language), say("keys.says", language)]]
    for key, value in model["properties"].items():
        shown = f"**`{key}`**" if key in model.get("required", ()) else f"`{key}`"
        rows.append([shown, say("keys.space", language).join(_row(value, name, key, language))])
    return table(rows, "ro-keys")


def _row(value: dict[str, Any], model: str, key: str, language: Language) -> Iterator[str]:
    yield value["description"] if language == "en" else _in_chinese(model, key)
    if words := [f"`{word}`" for kind in _kinds(value) for word in kind.get("enum", ())]:
        yield say("keys.one-of", language, say("keys.between", language).join(words))
    if links := [_link(name) for name in _models(value) if name not in PLAIN]:
        yield say("keys.see", language, say("keys.between", language).join(links))
    if isinstance(value.get("default"), str | int) and not isinstance(value["default"], bool):
        yield say("keys.else", language, value["default"])


def _kinds(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What may stand there, also in a list or below a name."""
    if "enum" in value or "$ref" in value:
        yield value
    inner = [*value.get("anyOf", ()), *value.get("patternProperties", {}).values()]
    for subschema in (*inner, value.get("items"), value.get("additionalProperties"), value.get("propertyNames")):
        if isinstance(subschema, dict):
            yield from _kinds(subschema)


def _models(value: dict[str, Any]) -> list[str]:
    names = [kind["$ref"].rpartition("/")[2] for kind in _kinds(value) if "$ref" in kind]
    return list(dict.fromkeys(names))


def _link(model: str) -> str:
    return f"[{model}](#{model.lower()})"


def _in_chinese(model: str, key: str) -> str:
    """As with its meaning in English, a key that a model takes from another has its words there."""
    said = _translated()
    return next(
        said[base.__name__][key] for base in getattr(schema, model).__mro__ if key in said.get(base.__name__, {})
    )


@cache
def _translated() -> dict[str, dict[str, str]]:
    """Model → key → what it means."""
    read: dict[str, dict[str, str]] = yaml.safe_load(TRANSLATED.read_text(encoding="utf-8"))
    return read
