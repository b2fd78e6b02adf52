"""Makes the books: the built pages of one language as PDFs.

The short one has the pages that `extra: book:` of the configuration names, the first of them as its first chapter, and of what
is folded on the screen only the headings. The whole one has every page in the order of the navigation, with all unfolded. A chosen
one has the articles of some incidents, as they are in the short one.

Run as `python -m readyonce.publish.book LANGUAGE DATE CONFIG EDITION [ID...]`, so that they are set side by side.
"""

from __future__ import annotations

import ctypes.util
import gc
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urljoin
from xml.etree.ElementTree import Element, SubElement

from readyonce import __version__
from readyonce.data import links
from readyonce.data.project import Language
from readyonce.data.words import say

if TYPE_CHECKING:
    from weasyprint import CSS, HTML, Document

STYLE = Path(__file__).with_name("book.css")
SHORT, WHOLE = EDITIONS = ("short", "whole")
CHOSEN = "chosen"
UNKNOWN = "00"  # a page's number before the first layout: as wide as most
PACKAGES = "libpangoft2-1.0-0 fonts-noto-cjk fonts-open-sans"

# What only makes sense on a screen.
_DROPPED_TAGS = {"script", "noscript", "template", "style", "button", "form", "input", "select", "textarea", "dialog"}
_DROPPED_CLASSES = {"headerlink", "md-content__button", "md-source-file", "md-feedback", "linenos", "ro-screen"}
_PLAIN_TOKENS = {None, "n", "nn", "nv", "nx", "o", "p", "w", "x"}
ROWS = 25  # of a table, more than which the short book does not print
_LONG = 100  # columns from which a line of code may have to wrap
_SVG = "{http://www.w3.org/2000/svg}"


class BookError(Exception):
    """The book would have a fault; says which."""


def missing() -> str | None:
    """What keeps the book from being made here, in one line with the remedy; None if nothing."""
    lacks = [] if ctypes.util.find_library("pangoft2-1.0") else ["the library pango"]
    try:
        fonts = subprocess.run(["fc-list", ":lang=zh-cn"], capture_output=True, check=False, text=True).stdout
    except OSError:
        fonts = ""
    if not fonts.strip():
        lacks.append("a Chinese font")
    if not lacks:
        return None
    return (
        f"The book (PDF) is left out, {' and '.join(lacks)} not being there."
        f" To get it: scripts/system-packages {PACKAGES}"
    )


@dataclass
class Chapter:
    """A page of the site, or a heading of the navigation that has no page."""

    title: str  # in the navigation, until the page is read
    level: int
    address: str | None = None  # as on the site: "incidents/RO-0001/"
    source: str | None = None  # "incidents/RO-0001.md"
    section: str = ""  # its name in the navigation
    article: Element | None = None

    @property
    def id(self) -> str:
        return "page-" + (re.sub(r"\W+", "-", self.address or self.title).strip("-") or "home")


def name(language: Language, edition: str) -> str:
    """The file of a book, below `book/` of the site."""
    return f"readyonce-{language}.pdf" if edition == SHORT else f"readyonce-{language}-{edition}.pdf"


def path(root: Path, language: Language, edition: str) -> Path:
    """Where a book is made."""
    return root / "build" / "book" / edition / name(language, edition)


def write(root: Path, language: Language, date: str, config_file: str, edition: str, *ids: str) -> Path:
    """Set a book from `build/site/<language>`, a chosen one of the incidents with these ids; returns its path."""
    from weasyprint import CSS, HTML
    from weasyprint.urls import URLFetcher

    said = _Said()
    logging.getLogger("weasyprint").addHandler(said)
    built = root / "build" / "site" / language
    config = _config(root / config_file)
    chapters = list(_chapters(built, config["nav"]))
    _add(chapters, config["extra"].get("more", []))
    if edition == SHORT:
        chapters = _short(chapters, config["extra"]["book"])
    elif edition == CHOSEN:
        chapters = [Chapter("", 1, _address(f"incidents/{id}.md"), f"incidents/{id}.md") for id in ids]
    for chapter in chapters:
        _read(chapter, built)
    document = HTML(
        string=f'<!doctype html><html lang="{"zh-Hans" if language == "zh" else "en"}"><head></head><body></body></html>',
        base_url=built.as_uri(),
        url_fetcher=URLFetcher(allowed_protocols={"file", "data"}),
    )
    head, body = document.etree_element
    SubElement(head, "title").text = config["site_name"]
    SubElement(head, "meta", name="description", content=config["site_description"])
    edition, kind = (SHORT if ids else edition), edition  # how it is set, and what it is called
    body.set("class", edition)
    body.append(_cover(config, say(f"book {kind}", language, ids=", ".join(ids)), language, date))
    body.append(_contents(chapters, language))
    pages = {chapter.address: chapter for chapter in chapters if chapter.address is not None}
    if edition == SHORT:
        _shorten(chapters, language)
    for chapter in chapters:
        body.append(_section(chapter, pages, built, language, edition))
    target = path(root, language, kind)
    target.parent.mkdir(parents=True, exist_ok=True)
    pdf = _laid_out(document, CSS(filename=STYLE)).write_pdf(pdf_variant="pdf/ua-1")
    if said.lines:
        raise BookError("\n".join(said.lines))
    target.write_bytes(pdf)
    return target


def _laid_out(document: HTML, style: CSS) -> Document:
    """The pages, each reference with the number of the page that it leads to.

    WeasyPrint's own `target-counter` may stop before the numbers are stable. Here they are text, so one more layout shows
    whether they moved what stands behind them.
    """
    references = [link for link in document.etree_element.iter("a") if link.get("data-page")]
    images: dict[str, Any] = {}
    for attempt in range(8):
        gc.collect()  # the last layout
        laid_out = document.render(stylesheets=[style], pdf_variant="pdf/ua-1", cache=images)
        at: dict[str, int] = {}
        for number, page in enumerate(laid_out.pages, 1):
            for id in page.anchors:  # of each piece of what is broken across pages
                at.setdefault(id, number)
        # Numbers of one width move nothing: that ends it, should it go to and fro.
        width = 4 if attempt > 3 else 0
        numbers = [
            str(at.get(reference.get("href", "#")[1:], 0)).rjust(width, "\N{FIGURE SPACE}") for reference in references
        ]
        if numbers == [reference.get("data-page") for reference in references]:
            return laid_out
        for reference, printed in zip(references, numbers, strict=True):
            reference.set("data-page", printed)
    raise BookError("page numbers do not settle")


def _count_pages_once() -> None:
    """pydyf makes the list of all pages anew for each tagged element that names its own: two fifths of the writing."""
    import pydyf

    made = pydyf.PDF.page_references.fget
    kept = cache(lambda pdf, pages: made(pdf))
    pydyf.PDF.page_references = property(lambda pdf: kept(pdf, len(pdf.pages["Kids"])))


class _Said(logging.Handler):
    """Gathers what WeasyPrint complains of: a link without a target, a style it does not know."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


# ------------------------------------------------------------------------------ what is in it


def _config(path: Path) -> dict[str, Any]:
    from mkdocs.utils.yaml import yaml_load

    with path.open(encoding="utf-8") as file:
        read: dict[str, Any] = yaml_load(file)
        return read


def _chapters(built: Path, navigation: list[Any], level: int = 1) -> Iterator[Chapter]:
    for entry in navigation:
        title, value = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
        source, rest = (value, []) if isinstance(value, str) else (None, value)
        if rest and str(rest[0]).endswith("index.md"):
            source, rest = rest[0], rest[1:]
        yield Chapter(title, level, source and _address(source), source, title)
        left_out = _left_out(built, source, rest) if source else []
        yield from _chapters(built, [*left_out, *rest], level + 1)


def _left_out(built: Path, source: str, navigation: list[Any]) -> list[str]:
    """The pages one level below a page that the navigation has not: files of an incident, incidents where there are many."""
    folder = _address(source)
    below = sorted(f"{folder}{page.parent.name}.md" for page in (built / folder).glob("*/index.html") if folder)
    named = {page for entry in navigation for page in (entry.values() if isinstance(entry, dict) else [entry])}
    return [page for page in below if page not in named]


def _add(chapters: list[Chapter], more: list[str]) -> None:
    """The pages that the navigation has not: `guard-findings.md` follows `guard.md`, what follows none stands at the end."""
    for source in more:
        name = f"{source.rpartition('-')[0]}.md"
        above = next((number for number, chapter in enumerate(chapters) if chapter.source == name), None)
        level = 1 if above is None else chapters[above].level + 1
        place = len(chapters) if above is None else above + 1
        while place < len(chapters) and chapters[place].level >= level:
            place += 1
        chapters.insert(place, Chapter("", level, _address(source), source))


def _short(chapters: list[Chapter], patterns: list[str]) -> list[Chapter]:
    """Those that a pattern names and the headings above them; the first pattern's in front."""

    def fits(chapter: Chapter, pattern: str) -> bool:
        return chapter.source is not None and PurePosixPath(chapter.source).match(pattern)

    wanted = [chapter for chapter in chapters if any(fits(chapter, one) for one in patterns)]
    first = next(chapter for chapter in wanted if fits(chapter, patterns[0]))
    kept: list[Chapter] = []
    for chapter in reversed(chapters):  # a heading stays if what stays follows below it
        if chapter in wanted and chapter is not first:
            kept.append(chapter)
        elif chapter.level == 1 and kept and kept[-1].level > 1:
            kept.append(Chapter(chapter.section, 1))
    for chapter in kept:
        chapter.level = min(chapter.level, 2)
    return [first, *reversed(kept)]


def _address(source: str) -> str:
    """`incidents/index.md` → `incidents/`, `incidents/RO-0001.md` → `incidents/RO-0001/`, `index.md` → ``."""
    address = re.sub(r"(?:index)?\.md$", "", source)
    return address + "/" if address and not address.endswith("/") else address


def _read(chapter: Chapter, built: Path) -> None:
    """Take article and title from its page, if it has one."""
    import tinyhtml5

    if chapter.address is None:
        return
    html = (built / chapter.address / "index.html").read_text(encoding="utf-8")
    html = html[html.index("<article") : html.rindex("</article>")]  # the menus are a third of a page
    chapter.article = article = tinyhtml5.parse(html, namespace_html_elements=False).find(".//article")
    heading = article.find(".//h1")
    for mark in heading.findall("a[@class='headerlink']"):
        _remove(heading, mark)
    title = "".join(heading.itertext()).strip()
    name = chapter.address.rstrip("/").rpartition("/")[2]
    chapter.title = f"{name} · {title}" if re.fullmatch(r"RO-\d+", name) else title


def _cover(config: dict[str, Any], what: str, language: Language, date: str) -> Element:
    cover = Element("section", {"class": "cover"})
    SubElement(cover, "p", {"class": "title"}).text = config["site_name"]
    SubElement(cover, "p", {"class": "subtitle"}).text = config["site_description"]
    SubElement(cover, "p", {"class": "subtitle"}).text = what
    SubElement(cover, "p", {"class": "edition"}).text = say("edition", language, version=__version__, date=date)
    SubElement(cover, "p", {"class": "licence"}).text = config["copyright"]
    return cover


def _contents(chapters: list[Chapter], language: Language) -> Element:
    contents = Element("section", {"class": "contents"})
    SubElement(contents, "p", {"class": "head"}).text = say("contents", language)
    for chapter in chapters:
        entry = SubElement(contents, "p", {"class": f"level-{chapter.level}"})
        SubElement(entry, "a", {"href": f"#{chapter.id}", "data-page": UNKNOWN}).text = chapter.title
    return contents


def _section(chapter: Chapter, pages: dict[str, Chapter], built: Path, language: Language, edition: str) -> Element:
    section = Element("section", {"class": f"chapter level-{chapter.level}", "id": chapter.id})
    if chapter.article is None:
        section.set("class", "part")
        SubElement(section, f"h{chapter.level}").text = chapter.title
        return section
    article = chapter.article
    _clean(article, edition)
    notes = _link(article, chapter, pages, built, language, edition)
    heading = next(article.iter("h1"))
    heading.set("data-title", chapter.title)
    for element in article.iter():
        if re.fullmatch("h[1-6]", element.tag):
            element.tag = f"h{min(6, int(element.tag[1]) + chapter.level - 1)}"
        if element.tag == f"{_SVG}svg":
            # A drawing sees no style sheet but its own.
            SubElement(element, f"{_SVG}style").text = _figure_style()
    section.extend(article)
    if chapter.address and (site := links.site_url()):
        where = links.address(site, chapter.address, language)
        line = Element("p", {"class": "address"})
        SubElement(line, "a", href=where).text = where
        parent = next(element for element in section.iter() if heading in list(element))
        parent.insert(list(parent).index(heading) + 1, line)
    if notes:
        SubElement(section, "p", {"class": "head"}).text = say("addresses", language)
        listed = SubElement(section, "ol", {"class": "notes"})
        for address, number in notes.items():
            entry = SubElement(listed, "li", id=f"{chapter.id}--note-{number}")
            SubElement(entry, "a", href=address).text = address
    return section


def _figure_style() -> str:
    return STYLE.with_name("book-figures.css").read_text(encoding="utf-8")


# ------------------------------------------------------------------------------ from screen to paper


def _shorten(chapters: list[Chapter], language: Language) -> None:
    """Of tabs that say nothing new a line stays that leads to the first, of a long table one that counts its rows."""
    printed: dict[str, Chapter] = {}  # each block of code in tabs
    for chapter in chapters:
        if chapter.article is None:
            continue
        parents = [(parent, child) for parent in chapter.article.iter() for child in parent]
        for parent, child in parents:
            if child.get("class", "").startswith("tabbed-set"):
                codes = {"".join(code.itertext()).strip() for code in child.iter("code")}
                first = next((printed[code] for code in codes if code in printed), None)
                if first is not None and codes <= printed.keys():
                    line = Element("p")
                    link = SubElement(line, "a", {"class": "elsewhere", "href": f"#{first.id}"})
                    link.text = say("other stacks", language)
                    _replace(parent, child, line)
                printed = dict.fromkeys(codes, chapter) | printed
            elif child.tag == "table" and (rows := len(child.findall("tbody/tr"))) > ROWS:
                line = Element("p", {"class": "ro-small"})
                line.text = say("rows elsewhere", language, rows)
                _replace(parent, child, line)


def _replace(parent: Element, child: Element, other: Element) -> None:
    other.tail = child.tail
    parent[list(parent).index(child)] = other


def _clean(parent: Element, edition: str = WHOLE) -> None:
    """Take out what only works on a screen, open what is folded, lay tabs one below the other.

    In the short book what is folded goes: of a claim its heading stays.
    """
    for child in list(parent):
        classes = set(child.get("class", "").split())
        # A comment has a function for its tag.
        if callable(child.tag) or child.tag in _DROPPED_TAGS or classes & _DROPPED_CLASSES or "hidden" in child.attrib:
            _remove(parent, child)
            continue
        if child.tag == "details":
            if edition == SHORT:
                if not classes & {"ro-claim", "ro-claims"}:
                    _remove(parent, child)
                    continue
                if "ro-claim" in classes:
                    child[:] = child.findall("summary")
            child.tag = "div"
            child.set("class", " ".join(["details", *sorted(classes & {"ro-claim", "ro-claims"})]))
        elif child.tag == "summary":
            child.tag = "div" if any(child.find(heading) is not None for heading in ("h3", "h4")) else "p"
            child.set("class", "summary")
        elif child.tag == "nav":
            child.tag = "p"
        elif "tabbed-set" in classes:
            _flatten_tabs(child)
        elif child.tag == "code" and parent.tag == "pre":
            _set_code(child)
            continue
        _clean(child, edition)


def _remove(parent: Element, child: Element) -> None:
    """Take out an element, but not the text behind it."""
    before = list(parent).index(child) - 1
    if before >= 0:
        parent[before].tail = (parent[before].tail or "") + (child.tail or "")
    else:
        parent.text = (parent.text or "") + (child.tail or "")
    parent.remove(child)


def _flatten_tabs(tabs: Element) -> None:
    labels = ["".join(label.itertext()) for label in tabs.iterfind("*[@class='tabbed-labels']/label")]
    blocks = tabs.findall("*[@class='tabbed-content']/*")
    tabs[:] = blocks
    for label, block in zip(labels, blocks):
        title = Element("p", {"class": "summary"})
        title.text = label
        block.insert(0, title)


def _set_code(code: Element) -> None:
    """Keep only the tokens that have a colour, and give each line that may be too long an element of its own.

    Without the plain tokens, three in four, the book is set in half the time.
    """
    lines, line = [], Element("span", {"class": "line"})

    def add(text: str) -> None:
        nonlocal line
        for part in re.split(r"(?<=\n)", text):
            if len(line):
                line[-1].tail = (line[-1].tail or "") + part
            else:
                line.text = (line.text or "") + part
            if part.endswith("\n"):
                lines.append(line)
                line = Element("span", {"class": "line"})

    def walk(element: Element) -> None:
        add(element.text or "")
        for token in element:
            if token.get("class") in _PLAIN_TOKENS:
                walk(token)
            else:
                line.append(Element("span", token.attrib))
                line[-1].text = "".join(token.itertext())
            add(token.tail or "")

    walk(code)
    code.text, code[:] = "", []
    lines.append(line)
    for line in lines:
        text = "".join(line.itertext())
        if len(text) + len(re.findall(r"[⺀-￯]", text)) > _LONG:
            code.append(line)
            continue
        if len(code):
            code[-1].tail = (code[-1].tail or "") + (line.text or "")
        else:
            code.text += line.text or ""
        code.extend(line)


def _link(
    article: Element, chapter: Chapter, pages: dict[str, Chapter], built: Path, language: Language, edition: str = WHOLE
) -> dict[str, int]:
    """Aim links at the book's own pages; number the others' addresses, and return those.

    In the short book they are linked without a number, and no list of addresses breaks it up: the whole book has them.
    """
    notes: dict[str, int] = {}
    top = links.address("/", "", language)
    here, site = top + (chapter.address or ""), links.site_url().rstrip("/")
    parents = [(parent, child) for parent in article.iter() for child in parent]
    for element in article.iter():
        if "id" in element.attrib:
            element.set("id", f"{chapter.id}--{element.get('id')}")
        if names := element.get("aria-labelledby"):  # a drawing may stand in several chapters
            element.set("aria-labelledby", " ".join(f"{chapter.id}--{name}" for name in names.split()))
        if source := element.get("src"):
            element.set("src", f"{built.as_uri()}/{urljoin(here, source).removeprefix(top)}")
    for parent, link in parents:
        address = link.get("href")
        if link.tag != "a" or not address or address.startswith("#page-"):
            continue
        link.attrib = {name: link.attrib[name] for name in ("id", "href", "class") if name in link.attrib}
        path, anchor = urldefrag(urljoin(here, address))
        if path.removeprefix(top) in pages and not re.match(r"\w+:", address):
            target = pages[path.removeprefix(top)]
            link.set("href", f"#{target.id}--{anchor}" if anchor else f"#{target.id}")
            if target is not chapter:
                link.attrib |= {"class": "elsewhere", "data-page": UNKNOWN}
        elif not re.match(r"\w+:", address) and not site:
            del link.attrib["href"]  # on the site, but not in the book
        else:
            own = not re.match(r"\w+:", address)
            address = site + path + (f"#{anchor}" if anchor else "") if own else address
            link.set("href", address)
            if edition == SHORT:
                continue
            if "".join(link.itertext()) != address and not address.startswith("mailto:"):
                number = notes.setdefault(address, len(notes) + 1)
                note = Element("a", {"class": "note", "href": f"#{chapter.id}--note-{number}"})
                note.text, note.tail, link.tail = str(number), link.tail, None
                parent.insert(list(parent).index(link) + 1, note)
    return notes


if __name__ == "__main__":
    gc.disable()  # it would go through millions of boxes again and again, none of which can go before the layout is made
    _count_pages_once()
    try:
        language, *rest = sys.argv[1:]
        write(Path.cwd(), "zh" if language == "zh" else "en", *rest)
    except BookError as error:
        sys.exit(str(error))
