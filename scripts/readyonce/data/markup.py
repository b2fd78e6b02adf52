"""The small pieces of Markdown that pages are made of."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from readyonce.data.project import Language
from readyonce.data.schema import Run, Source, address_of
from readyonce.data.words import say

NO_BREAK_HYPHEN = "\N{NON-BREAKING HYPHEN}"


def chip(text: str, kind: str, id: str = "") -> str:
    return f'<span class="ro-chip ro-{kind}"' + (f' id="{id}"' if id else "") + f">{text}</span>"


def code(text: str) -> str:
    """Text as Markdown code, also where it has backticks itself."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def without_links(text: str) -> str:
    """The text with the words of each link alone."""
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)


def columns(text: str) -> int:
    """How wide a text is, in columns: a Chinese character takes two."""
    return sum(1 + (unicodedata.east_asian_width(it) in "WFA") for it in text)


def cite(source: Source, language: Language) -> str:
    place = source.place(language)
    return say("aside", language, f"[{place}]({address_of(place)})", source.says[language])


def cite_all(sources: Iterable[Source], language: Language) -> str:
    return say("semicolon", language).join(cite(source, language) for source in sources)


def number(run: Run) -> str:
    """A gradient error for reading: `13%` or `75×` where it is wrong, `6e-08` where it is rounding, else nothing."""
    if run.gradient_error is None:  # nothing was trained
        return ""
    if run.outcome == "diverge":
        return percent(run.gradient_error)
    return f"{run.gradient_error:.0e}".replace("-", NO_BREAK_HYPHEN)


NOT_A_NUMBER = 1e30  # a distance above it stands for one that is no number


def percent(value: float) -> str:
    """A share to two digits; above ten times as a factor. A repro writes a number for nan, as JSON has none: `NOT_A_NUMBER`."""
    if value > NOT_A_NUMBER:
        return "nan"
    if value > 10:
        return f"{float(f'{value:.2g}'):g}×"
    return f"{float(f'{100 * value:.2g}'):g}%"


def table_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def table(rows: Iterable[Iterable[str]], kind: str = "") -> str:
    """Of rows, the first the head; with `kind` in an element of that class."""
    head, *body = map(list, rows)
    text = "".join(map(table_row, [head, ["---"] * len(head), *body]))
    return f'<div class="{kind}" markdown>\n\n{text}\n</div>\n' if kind else text


def sections(**parts: str) -> str:
    """An include of several parts, each named: a page shows `file.md:name`."""
    return "".join(f"--8<-- [start:{name}]\n{text}--8<-- [end:{name}]\n" for name, text in parts.items())
