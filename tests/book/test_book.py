"""The short book, and how both are set: links, fonts and text, page by page; nothing past the margin; the same bytes each time."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pikepdf
import pypdfium2

from readyonce.publish import book as setter
from readyonce.publish import site
from support.books import (
    LANGUAGES,
    SHORT_MARGINS,
    check_accessible,
    check_fonts,
    check_links,
    check_margins,
    opened,
    outline,
    squeezed,
    texts_of,
)
from support.project import KNOWN


def test_links_fonts_margins_and_tags_are_right(short, language):
    check_links(short)
    check_fonts(short, language)
    check_margins(short, SHORT_MARGINS)
    check_accessible(short, language)


def test_what_the_navigation_leaves_out_follows_the_page_above(built, root, language):
    """The files of each incident; beyond a hundred, the incidents. And what `more` has, by its name or at the end."""
    navigation = setter._config(root / site.CONFIG[language])["nav"]
    section = next(value for entry in navigation for value in entry.values() if "incidents/index.md" in value)
    articles = [f"incidents/{id}.md" for id in KNOWN.incidents]
    site_of = root / "build" / "site" / language
    index, *listed = section
    assert setter._left_out(site_of, index, listed) == articles
    assert not setter._left_out(site_of, index, [*listed, *articles])
    assert not setter._left_out(site_of, "index.md", [])
    chapters = list(setter._chapters(site_of, navigation))
    setter._add(chapters, ["guard-findings.md", "about.md", "guard-evidence.md"])
    assert (chapters[-1].address, chapters[-1].level) == ("about/", 1)
    of_page = [("guard.md", 2), ("guard-findings.md", 3), ("guard-evidence.md", 3)]
    of_guard = [(chapter.source, chapter.level) for chapter in chapters if (chapter.source or "").startswith("guard")]
    assert of_guard == [*of_page, ("guard-compare.md", 2)]
    chapters = [chapter.address for chapter in chapters]
    after = chapters.index("incidents/RO-0003/") + 1
    assert chapters[after : after + 3] == [f"incidents/RO-0003/{name}/" for name in ("claims", "evidence", "files")]


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
        assert (tmp_path / "build" / "book" / setter.SHORT / name).read_bytes() == (books / name).read_bytes()


def test_the_same_bytes_of_the_whole_one(books, root, tmp_path):
    """Of some chapters: a longer one is no different, and takes minutes. Each folder has hashes of strings of its own."""
    language = "en"  # the short ones are in both
    some = "nav:\n  - A: index.md\n  - B:\n    - incidents/RO-0003.md\n    - guard.md\n"
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        shutil.copytree(root / "build" / "site" / language, folder / "build" / "site" / language)
        config = (root / site.CONFIG[language]).read_text(encoding="utf-8")
        short, count = re.subn(r"(?m)^nav:.*\n([ #].*\n|\n)+", some, config)
        assert count == 1
        (folder / site.CONFIG[language]).write_text(short, encoding="utf-8")
    setting = [*SET, language, NEWEST, site.CONFIG[language], setter.WHOLE]
    set_at_once(*((setting, folder, {"PYTHONHASHSEED": str(n)}) for n, folder in enumerate(folders)))
    one, other = (folder / "build" / "book" / setter.WHOLE / setter.name(language, setter.WHOLE) for folder in folders)
    assert one.read_bytes() == other.read_bytes() and len(pikepdf.open(one).pages) > 20


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
    assert ends - begins <= 2 + len(KNOWN.incidents) // 15  # a page of frameworks, then the incidents
    text = "".join(texts_of(short, SHORT_MARGINS)[begins:ends])
    for incident in KNOWN.incidents.values():
        assert incident.id in text
        assert all(squeezed(entry.package) in text for entry in incident.meta.affected[:1])
    assert all(heading in text for heading in articles["incidents/"].headings[2])


def test_the_short_book_has_each_instruction_with_its_condition(short, language):
    text = "".join(texts_of(short, SHORT_MARGINS))
    for incident in KNOWN.incidents.values():
        for name, claim in incident.meta.claims.items():
            for words in (claim.row.do, claim.row.only_if) if claim.row else ():
                if words:
                    shown = re.sub(r"`|\*\*", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", words[language]))
                    assert squeezed(shown.rstrip(".。")) in text, name


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
    assert max(page.count("https://") for page in texts_of(short, SHORT_MARGINS)) < 5


def test_tabs_are_printed_once_in_the_short_book(short):
    shown = squeezed("args = SFTConfig(")
    assert 1 <= "".join(texts_of(short, SHORT_MARGINS)).count(shown) <= 4


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


def test_a_chosen_book_has_the_articles_of_its_incidents(built, root, tmp_path, language):
    """And nothing of the others; a link to one of these leads to no page of it."""
    config = site.CONFIG[language]
    shutil.copytree(root / "build" / "site" / language, tmp_path / "build" / "site" / language)
    for name in site.CONFIG.values():  # one inherits from the other
        shutil.copy(root / name, tmp_path)
    chosen = ("RO-0003", "RO-0014")
    subprocess.run([*SET, language, NEWEST, config, setter.CHOSEN, *chosen], cwd=tmp_path, check=True)
    path = setter.path(tmp_path, language, setter.CHOSEN)
    titles = [title for level, title, _ in outline(path) if level == 1]
    assert [title.split()[0] for title in titles] == list(chosen)
    check_links(path, least=0)
    check_accessible(path, language, "/H3", "/Table", "/TH", "/TD")
    assert len(opened(path).pages) <= 2 + 2 * 4
    assert squeezed(KNOWN.incidents["RO-0001"].meta.title[language]) not in "".join(texts_of(path, SHORT_MARGINS))
