"""The words of generated parts, a file for each language: `words.en.yml`, `words.zh.yml`."""

from __future__ import annotations

import functools
from pathlib import Path

import yaml

from readyonce.project import Language


@functools.cache
def of(language: Language) -> dict[str, str]:
    """All of a language: key, or section.key → text, in which `{}` and `{name}` stand for what is put in."""
    text = Path(__file__).with_name(f"words.{language}.yml").read_text(encoding="utf-8")
    words: dict[str, str] = {}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C, where there is one
    for key, said in yaml.load(text, loader).items():
        words |= {f"{key}.{inner}": it for inner, it in said.items()} if isinstance(said, dict) else {key: said}
    return words


def say(key: str, language: Language, *values: object, **named: object) -> str:
    """The text of a key, with what is put in; as it stands, where nothing is given."""
    text = of(language)[key]
    return text.format(*values, **named) if values or named else text
