"""The words of generated parts, a file for each language: `words.en.yml`, `words.zh.yml`."""

from __future__ import annotations

import functools
from pathlib import Path

from readyonce.project import Language
from readyonce.reading import parse_yaml


@functools.cache
def of(language: Language) -> dict[str, str]:
    """All of a language: key → text, in which `{}` and `{name}` stand for what is put in."""
    path = Path(__file__).with_name(f"words.{language}.yml")
    words: dict[str, str] = parse_yaml(path.read_text(encoding="utf-8"))
    return words


def say(key: str, language: Language, *values: object, **named: object) -> str:
    """The text of a key, with what is put in; as it stands, where nothing is given."""
    text = of(language)[key]
    return text.format(*values, **named) if values or named else text
