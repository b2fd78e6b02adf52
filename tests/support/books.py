"""What is read from a book, page by page, and what holds in the short one and in the whole one."""

import functools
import re
from collections import Counter

import pikepdf
import pypdfium2

from support.html import pieces, tree

LANGUAGES = ("en", "zh")
# Points; left, top and bottom, as in book.css. What stands outside is a running head or a page number.
WHOLE_MARGINS, SHORT_MARGINS = (
    tuple(millimetres / 25.4 * 72 for millimetres in margins) for margins in ((18, 20, 18), (15, 16, 14))
)
LEFT_OUT = ("ro-screen", "headerlink", "md-content__button", "md-source-file", "ro-repository", "ro-diagnose")


@functools.cache
def opened(path):
    return pikepdf.open(path)


def texts_of(path, margins=WHOLE_MARGINS):
    """The text of each page between the margins, without white space: where lines break is no matter."""
    found, (_, top, bottom) = [], margins
    with pypdfium2.PdfDocument(path) as document:
        for page in document:
            width, height = page.get_size()
            found.append(squeezed(page.get_textpage().get_text_bounded(0, bottom, width, height - top)))
    return found


class Article:
    """What the tests read of a page: its pieces of text as they stand between tags, headings, addresses."""

    def __init__(self, html):
        (article,) = tree(html[html.index("<article") : html.rindex("</article>")]).iter("article")
        shown = functools.partial(pieces, tags=("svg", "button", "form", "noscript"), marks=LEFT_OUT)
        self.pieces = {squeezed(it) for it in shown(article) if it.strip()}
        headings = {level: article.iter(f"h{level}") for level in (1, 2)}
        self.headings = {level: [squeezed("".join(shown(it))) for it in found] for level, found in headings.items()}
        self.addresses = {it.get("href") for it in article.iter("a") if re.match("https?://", it.get("href", ""))}
        self.drawings = ["".join(squeezed(it.text or "") for it in svg.iter("text")) for svg in article.iter("svg")]


def squeezed(text: str) -> str:
    # PDFium gives U+0002 for a hyphen at the end of a line, and the marks of a list after all else on its page.
    return "".join(text.replace("\x02", "-").replace("\u2011", "-").replace("•", "").split())


@functools.cache
def outline(path):
    """(level, title, page from 0) of each entry."""
    book = opened(path)
    numbers = {page.objgen: number for number, page in enumerate(book.pages)}

    def below(entries, level):
        for entry in entries:
            yield level, str(entry.title), numbers[entry.destination[0].objgen]
            yield from below(entry.children, level + 1)

    with book.open_outline() as found:
        return [*below(found.root, 1)]


@functools.cache
def places(path):
    """Name that links lead to → page from 0."""
    book = opened(path)
    numbers = {page.objgen: number for number, page in enumerate(book.pages)}
    return {name: numbers[place[0].objgen] for name, place in pikepdf.NameTree(book.Root.Names.Dests).items()}


def links(page):
    return page.get("/Annots", ())


@functools.cache
def elements(path):
    """How many elements of its structure there are of each kind, with and without a text in place: {(kind, with): count}."""
    found, todo = Counter(), [opened(path).Root.StructTreeRoot]
    while todo:
        element = todo.pop()
        if isinstance(element, pikepdf.Array):
            todo.extend(element)
        elif isinstance(element, pikepdf.Dictionary):
            found[str(element.get("/S")), "/Alt" in element] += 1
            if "/K" in element:
                todo.append(element["/K"])
    return found


def check_links(path, least=90):
    """Every link leads to a place in the book or to an address on the web; more than so many to a place in it."""
    count, dead = 0, []
    for page in opened(path).pages:
        for link in links(page):
            assert link["/Subtype"] == "/Link"
            if "/Dest" in link:
                count += 1
                if str(link["/Dest"]) not in places(path):
                    dead.append(link["/Dest"])
            else:
                assert re.match(r"https?://", str(link["/A"]["/URI"]))  # none to a file of the machine it was set on
    assert count > least and not dead


def check_fonts(path, language):
    """The fonts are embedded, their text can be copied, and Chinese is simplified."""
    fonts = {}
    for page in opened(path).pages:
        for font in page.Resources.get("/Font", {}).values():
            fonts[str(font.BaseFont).partition("+")[2]] = font
    if language == "zh":
        assert "Noto-Sans-CJK-SC" in fonts
    assert not [name for name in fonts if re.search("CJK-(JP|KR|TC|HK)", name)], sorted(fonts)
    for name, font in fonts.items():
        descriptor = font.DescendantFonts[0].FontDescriptor
        assert {"/FontFile2", "/FontFile3"} & {*descriptor.keys()}, name
        assert "/ToUnicode" in font, f"{name} cannot be copied"


def check_margins(path, margins):
    """Nothing stands past the margins."""
    with pypdfium2.PdfDocument(path) as document:
        for number, page in enumerate(document, 1):
            width, _ = page.get_size()
            for thing in page.get_objects(max_depth=1):  # a drawing's parts have coordinates of their own
                left, _, right, _ = thing.get_bounds()
                assert margins[0] - 3 <= left and right <= width - margins[0] + 3, (number, thing.type, left, right)


def check_accessible(path, language, *without):
    """It is tagged, knows its language, and has the elements that a screen reader goes by, but those that its text has not."""
    root = opened(path).Root
    assert root.MarkInfo.Marked and root.Lang == {"en": "en", "zh": "zh-Hans"}[language]
    assert root.ViewerPreferences.DisplayDocTitle
    assert "pdfuaid:part" in root.Metadata.read_bytes().decode()
    kinds = {kind for kind, _ in elements(path)}
    wanted = {"/H1", "/H2", "/H3", "/P", "/Table", "/TH", "/TD", "/Figure", "/Link", "/L", "/LI"}
    assert wanted - kinds == {*without}
