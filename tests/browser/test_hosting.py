"""How the wiki is published: the files that the page `hosting` shows, tried. The wiki `published` is behind nginx."""

import re
import shutil
import subprocess
import urllib.request

import pytest

from readyonce.data import reading
from support.browser import settled, visit
from support.hosting import HOSTING
from support.project import ROOT


@pytest.fixture
def address(published) -> str:
    return published[0]


def test_a_reader_behind_nginx(browser, address):
    """Home, an article, search, Diagnose, Chinese: no request fails and none leaves."""
    for _, page, requests, complaints in visit(browser, address, [""]):
        page.click('article a[href*="RO-0005"]:visible')
        page.wait_for_url(f"{address}incidents/RO-0005/**")
        page.keyboard.press("/")
        page.keyboard.insert_text("use_reentrant")
        page.keyboard.press("Shift")  # the theme searches when a key is released
        first = page.locator(".md-search-result__link").first
        found = first.evaluate("link => link.origin + link.pathname")  # which page is first, test_search says
        assert found.startswith(address) and found != page.url.partition("#")[0]
        first.click()
        page.wait_for_url(f"{found}**")
        page.goto(f"{address}diagnose/")
        page.click("article textarea")
        page.keyboard.insert_text("RuntimeError: Expected to mark a variable ready only once.")
        page.wait_for_selector('article a[href*="ddp-ready-twice"]')
        page.click(".ro-language")
        page.wait_for_url(f"{address}zh/diagnose/")
        page.goto(f"{address}zh/incidents/RO-0003/")
        settled(page)
        assert page.evaluate("document.documentElement.lang") == "zh-Hans"
        assert not complaints, complaints
        assert len(requests) > 20 and all(url.startswith((address, "data:", "blob:")) for url in requests)


def test_not_found_behind_nginx(browser, address):
    missing = f"{address}zh/incidents/RO-9999/deep"
    for _, page, requests, complaints in visit(browser, address, ["zh/incidents/RO-9999/deep"]):
        assert page.locator("h1").inner_text().startswith("找不到页面")
        # The page itself is the one thing that is not there; all that it shows is.
        assert [c for c in complaints if "Failed to load resource" not in c] == [missing], complaints
        assert len(complaints) == 2 and len(requests) > 3
        page.click('article a[hreflang="zh"] >> nth=0')
        page.wait_for_load_state()
        assert "RO-" in page.title()


@pytest.mark.parametrize(
    "asked, leads_to",
    [("/wiki", "/wiki/"), ("/wiki/incidents/RO-0001", "/wiki/incidents/RO-0001/"), ("/wiki/zh", "/wiki/zh/")],
)
def test_an_address_without_its_slash(address, asked, leads_to):
    base = address.removesuffix("/wiki/")
    with urllib.request.urlopen(base + asked) as answer:
        assert answer.url == base + leads_to


@pytest.mark.parametrize(
    "name, kind",
    [
        ("", "text/html; charset=utf-8"),
        ("zh/", "text/html; charset=utf-8"),
        ("api/v1/incidents.json", "application/json"),
        ("stylesheets/readyonce.css", "text/css"),
        ("javascripts/diagnose.js", "application/javascript; charset=utf-8"),
        ("feed.xml", "text/xml; charset=utf-8"),
        ("llms.txt", "text/plain; charset=utf-8"),
    ],
)
def test_content_types(address, name, kind):
    with urllib.request.urlopen(urllib.request.Request(address + name, headers={"Accept-Encoding": "gzip"})) as answer:
        assert answer.headers["Content-Type"] == kind
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-cache"


def test_gitlab_calls_what_is_there():
    """Not run on GitLab: what can be told here is that its commands and variables exist."""
    job = reading.parse_yaml((HOSTING / "gitlab-ci.yml").read_text(encoding="utf-8"))["pages"]
    *_, built, moved = job["script"]
    assert built == "make site" and job["artifacts"]["paths"] == [moved.split()[-1]]
    for line in job["script"]:
        program = line.split()[0]
        assert (ROOT / program).is_file() if "/" in program else shutil.which(program), program
    assert subprocess.run(["make", "-n", "site"], cwd=ROOT, capture_output=True).returncode == 0
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "scripts" / "readyonce").rglob("*.py"))
    assert all(re.search(rf'"{name}"', code) for name in job["variables"] if name.endswith("_URL"))
