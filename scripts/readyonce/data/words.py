"""The words of generated parts, a file for each language: `words.en.yml`, `words.zh.yml`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING

from readyonce.data.project import PACKED, Language

if TYPE_CHECKING:
    from readyonce.data.reading import CatalogError, Keys

HERE = Path(__file__).parent


@functools.cache
def of(language: Language) -> dict[str, str]:
    """All of a language: key, or section.key → text, in which `{}` and `{name}` stand for what is put in.

    Raises `CatalogError` where the file cannot be read.
    """
    words: dict[str, str] = {}
    if (carried := PACKED / name(language)).is_file():  # in a wheel, which needs no YAML
        words = json.loads(carried.read_text(encoding="utf-8"))
        return words
    import yaml

    from readyonce.data.reading import explain_yaml, parse_yaml

    try:
        read = parse_yaml(_file(language).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise _wrong(language, line, "the file is not UTF-8", "Save it as UTF-8.") from None
    except yaml.YAMLError as error:
        raise _wrong(language, *explain_yaml(error)) from None
    if not isinstance(read, dict):
        raise _wrong(language, 1, "it holds no keys with their texts", "Take the file back from Git.")
    for key, said in read.items():
        for inner, text in said.items() if isinstance(said, dict) else ((None, said),):
            keys = (key,) if inner is None else (key, inner)
            if not isinstance(text, str):
                raise _wrong(language, keys, f"`{keys[-1]}` must be a text", "Write it, in quotation marks if needed.")
            words[".".join(map(str, keys))] = text
    return words


def name(language: Language) -> str:
    """The file that a wheel carries."""
    return f"words.{language}.json"


def say(key: str, language: Language, *values: object, **named: object) -> str:
    """The text of a key, with what is put in; as it stands, where nothing is given. Raises `CatalogError` where it cannot."""
    text = of(language).get(key)
    if text is None:
        what = f"there is no text `{key}`"
        raise _wrong(language, (key.partition(".")[0],), what, "Add it in each language, or mend the name of the key.")
    try:
        return text.format(*values, **named) if values or named else text
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
        keys = tuple(key.split(".", 1))
        what = f"nothing can be put into the text of `{key}` ({error})"
        raise _wrong(language, keys, what, "Write in braces what the text in the other language has there.") from None


def _file(language: Language) -> Path:
    return HERE / f"words.{language}.yml"


def _wrong(language: Language, where: Keys | int, what: str, remedy: str) -> CatalogError:
    from readyonce.data.reading import CatalogError, Problem, line_of

    path = _file(language)
    line = where if isinstance(where, int) else line_of(path, where)
    return CatalogError([Problem(f"scripts/readyonce/data/{path.name}", line, what, remedy)])
