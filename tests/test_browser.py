"""The built wiki in a real browser: no request leaves, nothing overflows, the languages lead to each other."""

import pytest
from conftest import visit


@pytest.fixture(scope="session")
def names(built):
    return sorted(
        p.relative_to(built).as_posix().removesuffix("index.html")
        for p in built.rglob("*.html")
        if p.name != "404.html"
    )


def test_no_request_to_a_third_party(browser, address, names):
    for name, _, requests, complaints in visit(browser, address, names):
        assert requests and all(url.startswith((address, "data:", "blob:")) for url in requests), (name, requests)
        assert not complaints, (name, complaints)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_screen(browser, address, names, width, scheme):
    for name, page, _, _ in visit(
        browser, address, names, viewport={"width": width, "height": 844}, color_scheme=scheme
    ):
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        wanted = {"light": "default", "dark": "slate"}[scheme]
        assert page.evaluate("document.body.getAttribute('data-md-color-scheme')") == wanted


def test_language_switch_leads_to_the_same_page_and_back(browser, address, names):
    for name, page, _, _ in visit(browser, address, [name for name in names if not name.startswith("zh/")]):
        page.click(".ro-language")
        assert page.url == f"{address}zh/{name}"
        assert page.evaluate("document.documentElement.lang") == "zh"
        page.click(".ro-language")
        assert page.url == address + name


@pytest.mark.parametrize("language, word", [("", "use_reentrant"), ("zh/", "非可重入")])
def test_search_finds_the_incident(browser, address, language, word):
    for _, page, _, _ in visit(browser, address, [language]):
        page.keyboard.press("/")
        page.keyboard.insert_text(word)
        page.keyboard.press("Shift")  # the theme searches when a key is released
        page.wait_for_selector(".md-search-result__link", timeout=10_000)
        found = page.eval_on_selector_all(".md-search-result__link", "links => links.map(link => link.href)")
        assert any("RO-0001" in link for link in found), found


def test_first_screen_of_an_incident_has_the_fix(browser, address):
    for name in ("incidents/RO-0001/", "zh/incidents/RO-0001/"):
        for _, page, _, _ in visit(browser, address, [name], viewport={"width": 390, "height": 844}):
            block = page.locator(".ro-header pre").first
            assert "use_reentrant" in block.inner_text()
            assert block.bounding_box()["y"] + block.bounding_box()["height"] < 844
