"""The built wiki in a real browser: no request leaves, nothing overflows, the languages lead to each other."""

import functools
import http.server
import shutil
import threading

import pytest
from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser():
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert program, "no chromium: scripts/system-packages chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def address(built):
    """The wiki under a sub-path, as many hosts have it."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path):
            return super().translate_path(path.removeprefix("/wiki"))

        def log_message(self, format, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=built))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/wiki/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def names(built):
    return sorted(
        p.relative_to(built).as_posix().removesuffix("index.html")
        for p in built.rglob("*.html")
        if p.name != "404.html"
    )


def visit(browser, address, names, **context):
    """Open each page; yields (name, page, requests, complaints of the console)."""
    with browser.new_context(**context) as opened:
        for name in names:
            page, requests, complaints = opened.new_page(), [], []
            page.on("request", lambda request, seen=requests: seen.append(request.url))
            page.on(
                "console",
                lambda message, seen=complaints: seen.append(message.text) if message.type == "error" else None,
            )
            page.on(
                "response",
                lambda response, seen=complaints: seen.append(response.url) if response.status >= 400 else None,
            )
            page.on("pageerror", lambda error, seen=complaints: seen.append(str(error)))
            page.goto(address + name, wait_until="networkidle")
            yield name, page, requests, complaints
            page.close()


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
