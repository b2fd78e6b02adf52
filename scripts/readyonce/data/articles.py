"""Reads the Markdown pages: headings, fenced blocks, includes, links, front matter."""

from __future__ import annotations

import functools
import os
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from readyonce.data.catalog import Catalog, Incident
from readyonce.data.kept import kept
from readyonce.data.project import MADE_OF, Language
from readyonce.data.reading import CatalogError, Problem, explain_yaml, parse_yaml

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

SECTIONS = ("fix", "case", "error", "cause", "claims", "affected", "look-alikes")
SHORT = ("fix", "minimal", "case", "cause")  # of a short incident
NOTED = ("fix", "case", "cause")  # of one without a script
LAB_BOOK = ("reproduce", "runs", "evidence")  # of the page beside it

_HEADING = re.compile(r"(.*?)(?: *\{#([\w-]+)[^}]*\})? *")
_INCLUDE = re.compile(r'^\s*--8<-- "([^":]+)(?::([\w-]+))?"\s*$')
_BOX = re.compile(r"(?:!!!|\?\?\?\+?|===) ")
# Others are of the page's address: the site's tests follow them.
_HREF = re.compile(r'\bhref="([^"]*\.md(?:#[^"]*)?|#[^"]+)"')
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
    """A fenced block, or one that is code by its indent and has no language. `content` is its text as written;
    `includes` stand inside it."""

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
    return replace(_parsed(path.read_text(encoding="utf-8") if text is None else text), path=path)


@functools.lru_cache(1 << 14)  # `serve` reads all again when one was changed
def _parsed(text: str) -> Page:
    page = Page(Path(), text)
    lines = text.splitlines()
    if lines and lines[0] == "---" and "---" in lines[1:]:
        start = lines.index("---", 1) + 1
        page.front_matter = "\n".join(lines[1 : start - 1]) + "\n"
        lines[:start] = [""] * start
    page.includes = [found for number, line in enumerate(lines, 1) if (found := _include(number, line))]
    headings, blocks, page.links = _markdown("\n".join(lines))
    page.headings = [Heading(*heading) for heading in headings]
    for begin, end, language, content in blocks:
        includes = tuple(include for include in page.includes if begin <= include.line <= end)
        page.blocks.append(Block(begin, language, content, includes))
    return page


@kept
def _markdown(text: str) -> tuple[list[tuple[Any, ...]], list[tuple[int, int, str, str]], list[tuple[int, str]]]:
    """The headings of a page as they are made of, its blocks (first line, last line, language, content), and its links."""
    headings: list[tuple[Any, ...]] = []
    blocks: list[tuple[int, int, str, str]] = []
    by_reference: dict[str, Any] = {}
    tokens = _parser().parse(text, by_reference)
    defined = {reference["href"]: reference["map"][0] + 1 for reference in by_reference.get("references", {}).values()}
    links = [(line, target) for target, line in defined.items()]
    level = 0  # of the heading that the next text is, if it is one
    for token in tokens:
        begin, end = (token.map[0] + 1, token.map[1]) if token.map else (0, 0)
        if token.type in ("fence", "code_block"):
            language = re.findall(r"^\w*", token.info.strip())[0]
            blocks.append((begin, end, language, textwrap.dedent(token.content).rstrip("\n")))
        elif token.type == "html_block":  # its Markdown, where it has any, and its tags
            links += _links(begin, _parser().parseInline(token.content)[0])
        elif token.type == "inline":
            links += [link for link in _links(begin, token) if link[1] not in defined]
            if level and (heading := _HEADING.fullmatch(token.content)):
                headings.append((begin, level, heading[1], heading[2]))
        level = int(token.tag[1:]) if token.type == "heading_open" else 0
    return headings, blocks, sorted(links, key=lambda link: link[0])


def _links(line: int, token: Token) -> Iterator[tuple[int, str]]:
    """What an inline token leads to, each with its line; `line` is that of its beginning."""
    code = 0  # how far the code in it was read: a break inside is lost to the token
    for child in token.children or []:
        target = child.attrs.get("href" if child.type == "link_open" else "src")
        if target is not None:
            yield line, str(target)
        elif child.type == "html_inline":
            yield from ((line, found[1]) for found in _HREF.finditer(child.content))
            line += child.content.count("\n")
        elif child.type == "code_inline":
            begin = token.content.find(child.markup, code)
            code = token.content.find(child.markup, begin + len(child.markup)) + len(child.markup)
            line += token.content.count("\n", begin, code)
        elif child.type in ("softbreak", "hardbreak"):
            line += 1


@functools.cache
def _parser() -> MarkdownIt:
    """CommonMark with what the site's Markdown has beside it: tables, and boxes."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.block.ruler.before("table", "box", _box, {"alt": ["paragraph", "list"]})
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    return parser


def _box(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A note, a fold or a tab: a line that names it, and Markdown that is indented below it."""
    if state.is_code_block(start) or not _BOX.match(state.src, state.bMarks[start] + state.tShift[start]):
        return False
    if silent:
        return True
    indent, last = state.sCount[start] + 4, start + 1
    while last < end and (state.isEmpty(last) or state.sCount[last] >= indent):
        last += 1
    outer = state.blkIndent, state.lineMax, state.level
    state.blkIndent, state.lineMax, state.level = indent, last, state.level + 1
    state.md.block.tokenize(state, start + 1, last)
    state.blkIndent, state.lineMax, state.level = outer
    state.line = last
    return True


def _include(number: int, line: str) -> Include | None:
    found = _INCLUDE.match(line) if "--8<--" in line else None
    return Include(number, found[1], found[2]) if found else None


class MissingSection(LookupError):
    pass


@functools.lru_cache(1 << 12)  # the same are shown on many pages
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


def fix_of(catalog: Catalog, incident: Incident) -> str:
    """An incident's fix as it is written: an option, or a section of a file that is run."""
    fix = incident.meta.fix
    if fix.option:
        return fix.option
    assert fix.code  # one of the two, says the model
    file, name = fix.code.split(":")
    try:
        return section(catalog.text(incident.folder / file), name).rstrip()
    except (OSError, MissingSection):
        return ""  # `readyonce check` says so; here it must not hide the other problems


def places(root: Path, language: Language) -> list[Path]:
    """Where a page's includes are looked up, in this order; mkdocs.yml names the same folders."""
    sources = (root / name for name in MADE_OF)
    return [*sources, root / "build" / "includes" / language, root / "docs" / "theme" / "figures" / language]


def find(include: Include, places: Iterable[Path]) -> Path | None:
    """The file of an include: the first of the folders that has it, as pymdownx.snippets looks. Never one outside."""
    if include.path.startswith("/") or ".." in include.path.split("/"):
        return None
    for place in places:
        if os.path.isfile(path := os.path.join(place, include.path)):
            return Path(path)
    return None
