"""The books: outline, links, fonts and text, page by page; nothing past the margin; the same bytes each time.

`path`, `book` and `texts` are of the whole book, which has everything; `either` is each of the two.
"""

import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from xml.etree import ElementTree

import pikepdf
import pypdfium2
import pytest

from readyonce.data.catalog import MINIMAL_RUNS
from readyonce.pages.committed import LEXERS
from readyonce.publish import book as setter
from readyonce.publish import site
from support.html import pieces, tree
from support.project import KNOWN

LANGUAGES = ("en", "zh")
# Points; as in book.css. What stands outside is a running head or a page number.
LEFT, TOP, BOTTOM = (millimetres / 25.4 * 72 for millimetres in (18, 20, 18))
SHORT_LEFT, SHORT_TOP, SHORT_BOTTOM = (millimetres / 25.4 * 72 for millimetres in (15, 16, 14))
LEFT_OUT = ("ro-screen", "headerlink", "md-content__button", "md-source-file", "ro-repository", "ro-diagnose")


@pytest.fixture(scope="session", params=LANGUAGES)
def language(request):
    return request.param


@pytest.fixture(scope="session")
def path(books, language):
    return books / setter.name(language, setter.WHOLE)


@pytest.fixture(scope="session", params=setter.EDITIONS)
def either(request, books, language):
    return books / setter.name(language, request.param)


@pytest.fixture(scope="session")
def book(path):
    return opened(path)


@pytest.fixture(scope="session")
def texts(path):
    return texts_of(path)


@pytest.fixture(scope="session")
def short(books, language):
    return books / setter.name(language, setter.SHORT)


@functools.cache
def opened(path):
    return pikepdf.open(path)


def texts_of(path, top=TOP, bottom=BOTTOM):
    """The text of each page between the margins, without white space: where lines break is no matter."""
    found = []
    with pypdfium2.PdfDocument(path) as document:
        for page in document:
            width, height = page.get_size()
            found.append(squeezed(page.get_textpage().get_text_bounded(0, bottom, width, height - top)))
    return found


@pytest.fixture(scope="session")
def articles(books, root, language):
    """Page of the navigation → its article."""
    folder, pages = root / "build" / "site" / language, {}
    navigation = (root / {"en": "mkdocs.yml", "zh": "mkdocs.zh.yml"}[language]).read_text(encoding="utf-8")
    listed = re.split(r"\n(?=\w)", navigation.partition("\nnav:")[2])[0]
    for name in re.findall(r"^ +- (?:.+: )?(\S+)\.md$", listed, re.M):
        address = re.sub(r"(^|/)index$", r"\1", name)
        pages[address] = Article((folder / address / "index.html").read_text(encoding="utf-8"))
    for id, incident in KNOWN.incidents.items():
        for name in [f"incidents/{id}/evidence"] * (not incident.short) + [f"incidents/{id}/files"]:
            pages[name] = Article((folder / name / "index.html").read_text(encoding="utf-8"))
    assert len(pages) >= 25 and {f"incidents/{id}" for id in KNOWN.incidents} <= pages.keys()
    return pages


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


def test_outline_has_every_page_and_section_three_levels_deep(path, articles):
    listed = [(level, squeezed(title)) for level, title, _ in outline(path)]
    assert {level for level, _ in listed} == {1, 2, 3}
    titles = {title for _, title in listed}
    for name, article in articles.items():
        id = name.rstrip("/").rpartition("/")[2]
        assert titles & {article.headings[1][0], f"{id}·{article.headings[1][0]}"}, name
        assert set(article.headings[2]) <= titles or id in ("evidence", "files"), name
    assert [level for level, title in listed if title.startswith("RO-0001")] == [2, 3, 3]  # lab book and files


def test_what_the_navigation_leaves_out_follows_the_page_above(built, root, language):
    """The files of each incident; beyond a hundred, the incidents."""
    navigation = setter._config(root / site.CONFIG[language])["nav"]
    section = next(value for entry in navigation for value in entry.values() if "incidents/index.md" in value)
    articles = [f"incidents/{id}.md" for id in KNOWN.incidents]
    site_of = root / "build" / "site" / language
    index, *listed = section
    listed = [next(iter(entry.values())) if isinstance(entry, dict) else entry for entry in listed]
    assert not setter._left_out(site_of, index, listed)
    assert setter._left_out(site_of, index, [name for name in listed if name not in articles]) == articles
    assert not setter._left_out(site_of, "index.md", [])
    chapters = [chapter.address for chapter in setter._chapters(site_of, navigation)]
    after = chapters.index("incidents/RO-0003/") + 1
    assert chapters[after : after + 2] == ["incidents/RO-0003/evidence/", "incidents/RO-0003/files/"]


def test_contents_name_the_page_on_which_each_chapter_begins(path, book, texts, articles):
    _, _, first = outline(path)[0]
    printed = [int(number) for text in texts[1:first] for number in re.findall(r"\.{2,}(\d+)", text)]
    targets = [str(link["/Dest"]) for page in book.pages[1:first] for link in links(page)]
    begins = [places(path)[target] + 1 for target in dict.fromkeys(targets)]
    assert printed == begins == sorted(begins) and len(begins) >= len(articles)


def test_every_internal_link_leads_to_a_page(either):
    count, dead = 0, []
    for page in opened(either).pages:
        for link in links(page):
            assert link["/Subtype"] == "/Link"
            if "/Dest" in link:
                count += 1
                if str(link["/Dest"]) not in places(either):
                    dead.append(link["/Dest"])
            else:
                assert re.match(r"https?://", str(link["/A"]["/URI"]))  # none to a file of the machine it was set on
    assert count > 90 and not dead


def test_a_link_leads_where_it_says(path, articles, texts):
    number = places(path)["page-errors-ddp-ready-twice--cases"]
    assert any(heading in texts[number] for heading in articles["errors/ddp-ready-twice"].headings[2])


def test_addresses_can_be_read_in_print(articles, texts):
    text = "".join(texts)
    addresses = set().union(*(article.addresses for article in articles.values()))
    assert not [it for it in addresses if squeezed(it) not in text]


def test_fonts_are_embedded_and_chinese_is_simplified(either, language):
    fonts = {}
    for page in opened(either).pages:
        for font in page.Resources.get("/Font", {}).values():
            fonts[str(font.BaseFont).partition("+")[2]] = font
    if language == "zh":
        assert "Noto-Sans-CJK-SC" in fonts
    assert not [name for name in fonts if re.search("CJK-(JP|KR|TC|HK)", name)], sorted(fonts)
    for name, font in fonts.items():
        descriptor = font.DescendantFonts[0].FontDescriptor
        assert {"/FontFile2", "/FontFile3"} & {*descriptor.keys()}, name
        assert "/ToUnicode" in font, f"{name} cannot be copied"


def test_text_of_every_page_is_there(articles, texts):
    text = "".join(texts)
    wanted = set().union(*(article.pieces for article in articles.values()))
    missing = [it for it in wanted if it not in text]
    # A list's bullets and numbers may come later in the text than they stand on the page, all after one another. These and
    # drawings come last on their page: so between the two parts of a paragraph that goes on overleaf.
    number = re.compile(r"(?<=\D)·*(?:\d\.)+(?=\D)")
    drawings = {it for article in articles.values() for it in article.drawings}
    text = number.sub("", "".join(without_last(page, drawings).rstrip("·") for page in texts))
    assert not [it for it in missing if number.sub("", it) not in text]


def without_last(page, drawings):
    """A page's text without the drawings that it ends with."""
    while last := next((it for it in drawings if it and page.endswith(it)), None):
        page = page.removesuffix(last)
    return page


def test_code_is_complete_and_without_line_numbers(root, texts):
    text = "".join(texts)
    files = sorted(path for kind in LEXERS for path in (root / "snippets").glob(f"RO-*/*.{kind}"))
    for path in (path for path in files if path.name != MINIMAL_RUNS):  # a record, as evidence is
        lines = path.read_text(encoding="utf-8").splitlines()
        assert squeezed("".join(line for line in lines if "--8<--" not in line)) in text, path


def test_nothing_stands_past_the_margins(either, short):
    margin = SHORT_LEFT if either == short else LEFT
    with pypdfium2.PdfDocument(either) as document:
        for number, page in enumerate(document, 1):
            width, _ = page.get_size()
            for thing in page.get_objects(max_depth=1):  # a drawing's parts have coordinates of their own
                left, _, right, _ = thing.get_bounds()
                assert margin - 3 <= left and right <= width - margin + 3, (number, thing.type, left, right)


def test_figures_are_vectors_with_a_description(path, book, articles):
    for page in book.pages:
        for thing in page.Resources.get("/XObject", {}).values():
            assert thing.Subtype != "/Image"
    assert sum(len(article.drawings) for article in articles.values()) == elements(path)["/Figure", True]


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


def test_accessibility(either, language):
    book = opened(either)
    root = book.Root
    assert root.MarkInfo.Marked and root.Lang == {"en": "en", "zh": "zh-Hans"}[language]
    assert root.ViewerPreferences.DisplayDocTitle
    assert "pdfuaid:part" in root.Metadata.read_bytes().decode()
    kinds = {kind for kind, _ in elements(either)}
    assert kinds >= {"/H1", "/H2", "/H3", "/P", "/Table", "/TH", "/TD", "/Figure", "/Link", "/L", "/LI"}


def test_cover_has_version_and_date_of_the_newest_evidence(texts, known):
    from readyonce import __version__

    newest = max(evidence.environment.date for it in known.incidents.values() for evidence in it.evidence.values())
    assert __version__ in texts[0] and newest in texts[0]


SET = [sys.executable, "-m", "readyonce.publish.book"]
NEWEST = max(evidence.environment.date for it in KNOWN.incidents.values() for evidence in it.evidence.values())


def set_at_once(*commands):
    """Each takes one core; two at a time."""
    setting = [subprocess.Popen(command, cwd=folder, env=os.environ | more) for command, folder, more in commands]
    assert [process.wait() for process in setting] == [0, 0]


def test_the_same_bytes_in_another_folder(books, root, tmp_path):
    shutil.copytree(root / "build" / "site", tmp_path / "build" / "site")
    for name in site.CONFIG.values():
        shutil.copy(root / name, tmp_path)
    set_at_once(*(([*SET, it, NEWEST, site.CONFIG[it], setter.SHORT], tmp_path, {}) for it in LANGUAGES))
    for name in (setter.name(it, setter.SHORT) for it in LANGUAGES):
        assert (tmp_path / "build" / "book" / name).read_bytes() == (books / name).read_bytes()


def test_the_same_bytes_of_the_whole_one(books, root, tmp_path):
    """Of some chapters: a longer one is no different, and takes minutes. Each folder has hashes of strings of its own."""
    language = "en"  # the short ones are in both
    some = "nav:\n  - A: index.md\n  - B:\n    - incidents/RO-0003.md\n    - guard.md\n"
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        shutil.copytree(root / "build" / "site" / language, folder / "build" / "site" / language)
        config = (root / site.CONFIG[language]).read_text(encoding="utf-8")
        short, count = re.subn(r"(?m)^nav:\n([ #].*\n|\n)+", some, config)
        assert count == 1
        (folder / site.CONFIG[language]).write_text(short, encoding="utf-8")
    setting = [*SET, language, NEWEST, site.CONFIG[language], setter.WHOLE]
    set_at_once(*((setting, folder, {"PYTHONHASHSEED": str(n)}) for n, folder in enumerate(folders)))
    one, other = (folder / "build" / "book" / setter.name(language, setter.WHOLE) for folder in folders)
    assert one.read_bytes() == other.read_bytes() and len(pikepdf.open(one).pages) > 20


# ------------------------------------------------------------------------------ the short one


def chapters_of(path):
    """(title, first page, pages) of each chapter of the outline, those below a heading without a page of its own too."""
    begins = [(title, page) for level, title, page in outline(path) if level == 1 or page and level == 2]
    ends = [page for _, page in begins[1:]] + [len(opened(path).pages)]
    return [(title, page, end - page) for (title, page), end in zip(begins, ends)]


def test_the_short_book_is_short(short):
    """46 pages with five incidents, four for each, when this was written."""
    found = {title.split()[0]: pages for title, _, pages in chapters_of(short) if title.startswith("RO-")}
    assert found.keys() == KNOWN.incidents.keys() and max(found.values()) <= 4
    assert len(opened(short).pages) <= 26 + 4 * len(found)


def test_the_short_book_begins_with_who_is_affected(short, articles):
    (title, begins), (_, ends), *_ = [(title, page) for level, title, page in outline(short) if level == 1]
    assert squeezed(title) == articles["incidents/"].headings[1][0]
    assert ends - begins <= 1 + len(KNOWN.incidents) // 15
    text = "".join(texts_of(short, SHORT_TOP, SHORT_BOTTOM)[begins:ends])
    for incident in KNOWN.incidents.values():
        assert incident.id in text
        assert all(squeezed(entry.package) in text for entry in incident.meta.affected[:1])
    assert all(heading in text for heading in articles["incidents/"].headings[2])


def test_the_short_book_has_each_claim_and_no_proof(short, language, texts):
    text = "".join(texts_of(short, SHORT_TOP, SHORT_BOTTOM))
    for incident in KNOWN.incidents.values():
        for name, claim in incident.meta.claims.items():
            words = squeezed(re.sub(r"`|\*\*", "", claim.text[language]).rstrip(".。"))
            assert words in text, name
    assert 3 * len(text) < sum(map(len, texts))


def test_what_is_silent_stands_on_amber_in_print_too(short, root, language):
    with pypdfium2.PdfDocument(short) as document:
        for title, first, count in chapters_of(short):
            article = root / "docs" / language / "incidents" / f"{title.split()[0]}.md"
            if article.is_file() and "!!! warning" in article.read_text(encoding="utf-8"):
                grounds = {ground for number in range(first, first + count) for ground in filled(document[number])}
                assert (0xFB, 0xF1, 0xE6) in grounds, title


def filled(page):
    for thing in page.get_objects(max_depth=1):
        colour = [ctypes.c_uint() for _ in range(4)]
        if pypdfium2.raw.FPDFPageObj_GetFillColor(thing.raw, *colour):
            yield tuple(part.value for part in colour[:3])


def test_no_list_of_addresses_breaks_up_the_short_book(short):
    assert max(page.count("https://") for page in texts_of(short, SHORT_TOP, SHORT_BOTTOM)) < 5


def test_tabs_are_printed_once_in_the_short_book(short, texts):
    """The whole book has them wherever a fix is."""
    shown = squeezed("args = SFTConfig(")
    assert 1 <= "".join(texts_of(short, SHORT_TOP, SHORT_BOTTOM)).count(shown) <= 4 < "".join(texts).count(shown)


def test_without_fonts_the_wiki_builds_and_a_line_says_how_to_get_the_book(copy, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")  # so that no font is found
    assert site.build(copy) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if "book" in line.lower()]
    assert len(said) == 1 and "scripts/system-packages" in said[0]
    assert (copy / "site" / "offline" / "readyonce-offline.zip").is_file() and not (copy / "site" / "book").exists()
    assert ".pdf" not in (copy / "site" / "index.html").read_text(encoding="utf-8")


def test_links_that_leave_the_book_know_their_language(monkeypatch, tmp_path):
    monkeypatch.setenv("SITE_URL", "https://wiki.example.com/")
    article = ElementTree.fromstring('<article><a href="../../">here</a><a href="../new/">a page</a></article>')
    article.append(ElementTree.fromstring('<a href="../../../api/v1/claims.json">data</a>'))
    chapter, home = setter.Chapter("RO-0001", 2, "incidents/RO-0001/"), setter.Chapter("ReadyOnce", 1, "")
    notes = setter._link(article, chapter, {"": home}, tmp_path, "zh")
    assert article.find("a").get("href") == f"#{home.id}"
    assert list(notes) == ["https://wiki.example.com/zh/incidents/new/", "https://wiki.example.com/api/v1/claims.json"]


def test_what_is_folded_is_opened_and_tabs_keep_their_labels():
    element = ElementTree.fromstring(
        "<article><details><summary>More</summary><p>Inside.</p></details> and"
        '<div class="tabbed-set"><input/><input/><div class="tabbed-labels"><label>One</label><label>Two</label></div>'
        '<div class="tabbed-content"><div><p>first</p></div><div><p>second</p></div></div></div>'
        "<button>Copy</button> after</article>"
    )
    setter._clean(element)
    assert "".join(element.itertext()) == "MoreInside. andOnefirstTwosecond after"
    assert element.find(".//details") is None
