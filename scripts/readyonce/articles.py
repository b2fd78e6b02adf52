"""Reads the Markdown pages: headings, fenced blocks, includes, links, front matter."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from readyonce.catalog import Catalog
from readyonce.project import Language
from readyonce.reading import CatalogError, Problem, explain_yaml, parse_yaml

SECTIONS = ("fix", "case", "error", "cause", "claims", "otherwise", "affected", "look-alikes")
LAB_BOOK = ("reproduce", "runs", "evidence")  # of the page beside it

_HEADING = re.compile(r"^(#{1,6}) +(.*?)(?: *\{#([\w-]+)[^}]*\})? *$")
_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*(\w*)(.*)$")
_INCLUDE = re.compile(r'^\s*--8<-- "([^":]+)(?::([\w-]+))?"\s*$')
_LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)"  # [text](target), also with a title
    r"|^ {0,3}\[[^\]]+\]:\s+<?([^\s>]+)"  # [name]: target
    r"|\bhref=\"([^\"]*\.md(?:#[^\"]*)?|#[^\"]+)\""  # others are of the page's address, which the tests of the site follow
    r"|<(https?://[^>\s]+)>"
)
_MARK = re.compile(r"--8<-- \[(start|end):")


@dataclass(frozen=True)
class Heading:
    line: int
    level: int
    text: str
    id: str | None


@dataclass(frozen=True)
class Include:
    line: int
    path: str
    section: str | None

    def __str__(self) -> str:
        return self.path + (f":{self.section}" if self.section else "")


@dataclass(frozen=True)
class Block:
    """A fenced block. `content` is its text as written; `includes` stand inside it."""

    line: int
    language: str
    content: str
    includes: tuple[Include, ...]

    @property
    def is_include(self) -> bool:
        """Whether every line of it comes from elsewhere."""
        lines = [line for line in self.content.splitlines() if line.strip()]
        return bool(lines) and len(lines) == len(self.includes)


@dataclass
class Page:
    path: Path
    text: str
    front_matter: str = ""
    headings: list[Heading] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    includes: list[Include] = field(default_factory=list)
    links: list[tuple[int, str]] = field(default_factory=list)

    @property
    def ids(self) -> list[str | None]:
        return [heading.id for heading in self.headings]


def matter(catalog: Catalog, page: Page) -> dict[str, Any]:
    """The front matter; a `CatalogError` where it is not YAML."""
    try:
        return parse_yaml(page.front_matter) or {}
    except yaml.YAMLError as error:
        line, what, remedy = explain_yaml(error)
        file = str(page.path.relative_to(catalog.root))
        raise CatalogError([Problem(file, line + 1, f"front matter: {what}", remedy)]) from None


def read(path: Path, text: str | None = None) -> Page:
    """A page; `text` is the file's, where it has been read already."""
    text = path.read_text(encoding="utf-8") if text is None else text
    page = Page(path, text)
    lines = text.splitlines()
    start = 0
    if lines and lines[0] == "---" and "---" in lines[1:]:
        start = lines.index("---", 1) + 1
        page.front_matter = "\n".join(lines[1 : start - 1]) + "\n"
    number = start
    while number < len(lines):
        line, number = lines[number], number + 1
        # A plain test first: most lines are none of these.
        if ("```" in line or "~~~" in line) and (fence := _FENCE.match(line)):
            begin, content = number, []
            while number < len(lines) and lines[number].strip() != fence[2]:
                content.append(lines[number])
                number += 1
            number += 1
            includes = tuple(found for n, text in enumerate(content, begin + 1) if (found := _include(n, text)))
            page.blocks.append(Block(begin, fence[3], textwrap.dedent("\n".join(content)), includes))
            page.includes += includes
        elif include := _include(number, line):
            page.includes.append(include)
        elif line[:1] == "#" and (heading := _HEADING.match(line)):
            page.headings.append(Heading(number, len(heading[1]), heading[2], heading[3]))
        if "](" in line or "]:" in line or '="' in line or "<http" in line:
            found_here = _LINK.finditer(re.sub(r"`[^`]*`", "", line))
            page.links += [(number, next(filter(None, found.groups()))) for found in found_here]
    return page


def _include(number: int, line: str) -> Include | None:
    found = _INCLUDE.match(line) if "--8<--" in line else None
    return Include(number, found[1], found[2]) if found else None


class MissingSection(LookupError):
    pass


def section(text: str, name: str | None) -> str:
    """A named section of an included file as the page shows it, or all of it, without the marks."""
    lines = text.splitlines()
    if name:
        starts = [i for i, line in enumerate(lines) if f"--8<-- [start:{name}]" in line]
        ends = [i for i, line in enumerate(lines) if f"--8<-- [end:{name}]" in line]
        if not starts or not ends or ends[0] < starts[0]:
            raise MissingSection(name)
        lines = lines[starts[0] + 1 : ends[0]]
    return textwrap.dedent("\n".join(line for line in lines if not _MARK.search(line))) + "\n"


def places(root: Path, language: Language) -> list[Path]:
    """Where a page's includes are looked up, in this order; mkdocs.yml names the same folders."""
    return [root / "snippets", root / "build" / "includes" / language, root / "docs" / "theme" / "figures" / language]


def find(include: Include, places: Iterable[Path]) -> Path | None:
    """The file of an include: the first of the folders that has it, as pymdownx.snippets looks. Never one outside."""
    if include.path.startswith("/") or ".." in include.path.split("/"):
        return None
    for place in places:
        if os.path.isfile(path := os.path.join(place, include.path)):
            return Path(path)
    return None
