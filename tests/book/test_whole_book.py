"""The whole book, which has every page and all proof: outline, links, fonts and text, page by page; nothing past the margin."""

import re

import pytest

from readyonce.data.catalog import MINIMAL_RUNS, SETTINGS
from readyonce.pages.committed import LEXERS
from readyonce.publish import book as setter
from support.books import (
    SHORT_MARGINS,
    WHOLE_MARGINS,
    check_accessible,
    check_fonts,
    check_links,
    check_margins,
    elements,
    links,
    opened,
    outline,
    places,
    squeezed,
    texts_of,
)


@pytest.fixture(scope="session")
def path(whole_books, language):
    return whole_books / setter.name(language, setter.WHOLE)


@pytest.fixture(scope="session")
def book(path):
    return opened(path)


@pytest.fixture(scope="session")
def texts(path):
    return texts_of(path)


def test_outline_has_every_page_and_section_three_levels_deep(path, articles):
    listed = [(level, squeezed(title)) for level, title, _ in outline(path)]
    assert {level for level, _ in listed} == {1, 2, 3}
    titles = {title for _, title in listed}
    for name, article in articles.items():
        id = name.rstrip("/").rpartition("/")[2]
        assert titles & {article.headings[1][0], f"{id}·{article.headings[1][0]}"}, name
        assert set(article.headings[2]) <= titles or id in ("claims", "evidence", "files"), name
    assert [level for level, title in listed if title.startswith("RO-0001")] == [2, 3, 3]  # lab book and files


def test_contents_name_the_page_on_which_each_chapter_begins(path, book, texts, articles):
    _, _, first = outline(path)[0]
    printed = [int(number) for text in texts[1:first] for number in re.findall(r"\.{2,}(\d+)", text)]
    targets = [str(link["/Dest"]) for page in book.pages[1:first] for link in links(page)]
    begins = [places(path)[target] + 1 for target in dict.fromkeys(targets)]
    assert printed == begins == sorted(begins) and len(begins) >= len(articles)


def test_a_link_leads_where_it_says(path, articles, texts):
    number = places(path)["page-errors-ddp-ready-twice--cases"]
    assert any(heading in texts[number] for heading in articles["errors/ddp-ready-twice"].headings[2])


def test_addresses_can_be_read_in_print(articles, texts):
    text = "".join(texts)
    addresses = set().union(*(article.addresses for article in articles.values()))
    assert not [it for it in addresses if squeezed(it) not in text]


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
    for path in (path for path in files if path.name not in (MINIMAL_RUNS, SETTINGS)):  # records, as evidence is
        lines = path.read_text(encoding="utf-8").splitlines()
        assert squeezed("".join(line for line in lines if "--8<--" not in line)) in text, path


def test_figures_are_vectors_with_a_description(path, book, articles):
    for page in book.pages:
        for thing in page.Resources.get("/XObject", {}).values():
            assert thing.Subtype != "/Image"
    assert sum(len(article.drawings) for article in articles.values()) == elements(path)["/Figure", True]


def test_cover_has_version_and_date_of_the_newest_evidence(texts, known):
    from readyonce import __version__

    newest = max(evidence.environment.date for it in known.incidents.values() for evidence in it.evidence.values())
    assert __version__ in texts[0] and newest in texts[0]


def test_links_fonts_margins_and_tags_are_right(path, language):
    check_links(path)
    check_fonts(path, language)
    check_margins(path, WHOLE_MARGINS)
    check_accessible(path, language)


def test_it_has_what_the_short_one_leaves_out(short, texts):
    """Three times as much text at least, and tabs wherever a fix is, not once."""
    less = "".join(texts_of(short, SHORT_MARGINS))
    assert 3 * len(less) < sum(map(len, texts))
    shown = squeezed("args = SFTConfig(")
    assert less.count(shown) <= 4 < "".join(texts).count(shown)
