"""The words of generated parts, a file for each language: `words.en.yml`, `words.zh.yml`."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from readyonce.project import Language

HERE = Path(__file__).parent


@functools.cache
def of(language: Language) -> dict[str, str]:
    """All of a language: key, or section.key → text, in which `{}` and `{name}` stand for what is put in."""
    words: dict[str, str] = {}
    if (carried := HERE / "data" / name(language)).is_file():  # in a wheel, which needs no YAML
        words = json.loads(carried.read_text(encoding="utf-8"))
        return words
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C, where there is one
    read = yaml.load((HERE / f"words.{language}.yml").read_text(encoding="utf-8"), loader)
    for key, said in read.items():
        words |= {f"{key}.{inner}": text for inner, text in said.items()} if isinstance(said, dict) else {key: said}
    return words


def name(language: Language) -> str:
    """The file that a wheel carries."""
    return f"words.{language}.json"


def say(key: str, language: Language, *values: object, **named: object) -> str:
    """The text of a key, with what is put in; as it stands, where nothing is given."""
    text = of(language)[key]
    return text.format(*values, **named) if values or named else text
