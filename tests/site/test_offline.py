"""The offline copy: unpacked anywhere, opened from disk with the network cut."""

import os
import re
import shutil
import zipfile
from urllib.parse import unquote, urldefrag

import pytest

from readyonce.publish import book, site
from support.browser import visit, wait_until
from support.project import TESTS, bytes_of, edit

WORDS = [("", "use_reentrant"), ("zh/", "非可重入")]


@pytest.fixture(scope="session")
def pages(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))


def test_same_pages_as_the_hosted_wiki(pages, built):
    hosted = {p.relative_to(built).as_posix() for p in built.rglob("*.html") if p.name != "404.html"}
    assert {re.sub(r"(?<!index)\.html$", "/index.html", name) for name in pages} == hosted


def test_every_link_ends_in_the_folder(folder, pages):
    """On disk nothing serves a folder's index.html, so a link must name a file."""
    dead = []
    for name in pages:
        text = (folder / name).read_text(encoding="utf-8")
        for link in re.findall(r'(?:href|src)="([^"]*)"', text[text.index("<body") :]):
            target = unquote(urldefrag(link)[0].partition("?")[0])
            if target and not re.match(r"[a-z]+:", target):
                path = (folder / name).parent / target
                if not path.is_file() or folder not in path.resolve().parents:
                    dead.append(f"{name}: {link}")
    assert not dead, "\n".join(dead)


def test_no_page_asks_for_anything_outside_the_folder(browser, folder, pages, sample):
    """Each kind of page: of lab books, files and errors that look alike one, which have the same scripts. Hosted: all."""
    address = folder.as_uri() + "/"
    kinds = {re.sub(r"RO-\d+(?=/)|(?<=look-alikes/).+", "", name): name for name in pages}
    assert 90 < len(kinds) < len(pages)
    for name, _, requests, complaints in visit(browser, address, sample(kinds.values(), folder), offline=True):
        assert requests and all(url.startswith((address, "data:", "blob:")) for url in requests), (name, requests)
        assert not complaints, (name, complaints)


def test_every_page_has_a_policy_and_it_is_strict(folder, pages):
    for name in pages:
        text = (folder / name).read_text(encoding="utf-8")
        found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
        assert found.startswith("default-src 'none'; script-src file: 'sha256-"), name
        assert "unsafe" not in found and "*" not in found and "http" not in found, name
        assert text.index("Content-Security-Policy") < text.index("<link") and text.index("<meta charset") < 1024, name


@pytest.mark.parametrize("markup", ["<script>broken = 1</script>", '<img src="x" onerror="broken = 1">'])
def test_what_an_author_writes_does_not_run(browser, folder, tmp_path, markup):
    shutil.copytree(folder, tmp_path / "copy")
    edit(tmp_path / "copy" / "about.html", "</article>", f"{markup}</article>")
    for _, page, _, complaints in visit(browser, f"{(tmp_path / 'copy').as_uri()}/", ["about.html"], offline=True):
        assert not page.evaluate("'broken' in window")
        assert any("stopped by script-src" in complaint for complaint in complaints), complaints


def test_languages_lead_to_the_same_page_and_back(folder, pages):
    for name in pages:
        other = name[3:] if name.startswith("zh/") else f"zh/{name}"
        (link,) = re.findall(r'ro-language"[^>]* href="([^"]*)"', (folder / name).read_text(encoding="utf-8"))
        assert ((folder / name).parent / link).resolve() == folder.resolve() / other, name


@pytest.mark.parametrize("language, word", WORDS)
def test_search_finds_and_its_result_opens(browser, folder, language, word):
    address = folder.as_uri() + "/"
    for _, page, requests, _ in visit(browser, address, [f"{language}index.html"], offline=True):
        page.keyboard.press("/")
        page.keyboard.insert_text(word)
        page.keyboard.press("Shift")  # the theme searches when a key is released
        result = page.locator(".md-search-result__link[href*='RO-0001']").first
        result.click()
        page.wait_for_url(re.compile(r"RO-0001\.html"))
        assert "RO-0001" in page.locator("h1 + p").inner_text()
        assert all(url.startswith((address, "data:", "blob:")) for url in requests), requests


def test_what_a_search_result_shows_does_not_run(browser, folder, tmp_path):
    """Markup that an author got into the index, in a heading and in a text."""
    shutil.copytree(folder, tmp_path / "copy")
    index = tmp_path / "copy" / "search" / "search_index.js"
    text = index.read_text(encoding="utf-8")
    for key in ("title", "text"):
        text = text.replace(f'"{key}":"', f'"{key}":"<img src=x onerror=broken=1> use_reentrant ')
    index.write_text(text, encoding="utf-8")
    for _, page, _, complaints in visit(browser, f"{(tmp_path / 'copy').as_uri()}/", ["index.html"], offline=True):
        page.keyboard.press("/")
        page.keyboard.insert_text("use_reentrant")
        page.keyboard.press("Shift")
        page.wait_for_selector(".md-search-result__link img", state="attached")
        wait_until(page, "document.querySelector('.md-search-result__link img').complete")
        assert not page.evaluate("'broken' in window")
        assert any("stopped by script-src" in complaint for complaint in complaints), complaints


@pytest.mark.parametrize("language", ["", "zh/"])
def test_diagnose_answers(browser, root, folder, language):
    log = (TESTS / "logs" / "RO-0003-reported.log").read_text(encoding="utf-8").partition("\n")[2]
    for _, page, requests, complaints in visit(
        browser, folder.as_uri() + "/", [f"{language}diagnose.html"], offline=True
    ):
        page.fill("#ro-log", log)
        page.wait_for_selector(".ro-verdict")
        assert "RO-0003" in page.locator(".ro-answer ol a").first.get_attribute("href")
        assert not complaints and all(url.startswith(("file:", "data:", "blob:")) for url in requests)


def test_dark_mode_stays_from_page_to_page(browser, folder):
    with browser.new_context(offline=True, color_scheme="light") as opened:
        page = opened.new_page()
        page.goto(f"{folder.as_uri()}/index.html")
        scheme = "document.documentElement.dataset.mdColorScheme"
        assert page.evaluate(scheme) == "default"
        page.click(".ro-scheme")
        assert page.evaluate(scheme) == "slate"
        page.goto(f"{folder.as_uri()}/incidents/RO-0001.html")
        assert page.evaluate(scheme) == "slate"


def test_what_moved_to_the_lab_book_is_found_under_its_old_address(browser, folder):
    with browser.new_context(offline=True) as opened:
        page = opened.new_page()
        for language in ("", "zh/"):
            article = f"{folder.as_uri()}/{language}incidents/RO-0001"
            page.goto(f"{article}.html#run-reported")
            page.wait_for_url(f"{article}/evidence.html#run-reported")


@pytest.mark.parametrize("language, name", [("en", "index.html"), ("zh", "zh/incidents/RO-0001.html")])
def test_the_books_are_inside(folder, taken_along, language, name):
    text = (folder / name).read_text(encoding="utf-8")
    paths = [((folder / name).parent / link).resolve() for link in re.findall(r'href="([^"]*\.pdf)"', text)]
    endings = ["", "-whole"] if book.WHOLE in taken_along else [""]
    assert paths == [folder.resolve() / "book" / f"readyonce-{language}{which}.pdf" for which in endings]
    assert all(path.read_bytes().startswith(b"%PDF") for path in paths)


def test_nothing_in_the_archive_tells_when_or_where_it_was_made(archive):
    with zipfile.ZipFile(archive) as packed:
        assert {entry.date_time for entry in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert packed.namelist() == sorted(packed.namelist())


def test_the_same_bytes_in_another_folder(archive, built, root, copy, taken_along, monkeypatch):
    """The whole site; elsewhere, under another user's settings and with other hashes of strings."""
    # The books are compared in test_book.py; here they are taken over, since setting them takes long.
    for kind in ("book/*/*", "stamps/book-*"):
        for path in (root / "build").glob(kind):
            target = copy / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    (copy / ".git").symlink_to(root / ".git")  # what changed lately is a page
    for name, value in {"TZ": "Asia/Shanghai", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "7"}.items():
        monkeypatch.setenv(name, value)
    before = os.umask(0o077)
    try:
        assert site.build(copy, taken_along) == 0
    finally:
        os.umask(before)
    assert (copy / "site" / "offline" / archive.name).is_file()
    assert bytes_of(copy / "site") == bytes_of(built)
