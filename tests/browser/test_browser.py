"""The built wiki in a real browser: no request leaves, nothing overflows, the languages lead to each other."""

import itertools
import re

import pytest

from support.browser import visit, wait_until
from support.project import KNOWN, ROOT


@pytest.fixture(params=["address", "disk"])
def base(request, archive) -> str:
    return request.getfixturevalue(request.param)


def test_every_page_keeps_to_itself_and_to_the_screen(browser, strict, names, sample):
    """No request to a third party, nothing stopped under the strictest policy that a host may send, nothing too wide, and
    at 1280 no table that hides a column, also in what is folded. The theme's script has come on every other page, and on its
    like in the other language it has not."""
    cut = """[...document.querySelectorAll("article .md-typeset__scrollwrap")]
        .filter(it => it.scrollWidth > it.clientWidth + 1).map(it => it.innerText.slice(0, 60))"""
    schemes = """[1, 2].map(() => {
        document.querySelector(".ro-scheme").click()
        return document.documentElement.dataset.mdColorScheme
    })"""
    english = [name for name in names if not name.startswith("zh/")]
    names = sample(names)
    touched = {*english[::2], *(f"zh/{name}" for name in english[1::2])}
    phone = {"width": 390, "height": 844}
    opened = (
        visit(browser, strict, [name for name in names if name in touched], viewport=phone),
        visit(browser, strict, [name for name in names if name not in touched], scripts=(), viewport=phone),
    )
    for name, page, requests, complaints in itertools.chain(*opened):
        assert any("/bundle." in url for url in requests) == (name in touched), name
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 844})
            wait_until(page, f"document.documentElement.scrollWidth <= {width}")  # after a change of width
        assert sorted(page.evaluate(schemes)) == ["default", "slate"], name
        assert requests and all(url.startswith((strict, "data:", "blob:")) for url in requests), (name, requests)
        page.evaluate("document.querySelectorAll('details').forEach(folded => folded.open = true)")
        assert not (tables := page.evaluate(cut)), (name, tables)
        assert not complaints, (name, complaints)


@pytest.mark.parametrize("name", ["decision/", "zh/decision/"])
def test_what_is_read_stands_in_the_page_before_a_script_has_come(browser, address, name):
    """Dark where the system is, tables in their boxes, the picker's first answer."""
    with browser.new_context(color_scheme="dark") as opened:
        page = opened.new_page()
        page.route("**/*.js", lambda route: route.abort())
        page.goto(address + name)
        assert page.evaluate("document.documentElement.dataset.mdColorScheme") == "slate"
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(map(int, re.findall(r"\d+", ground))) < 64, ground
        header = page.evaluate("getComputedStyle(document.querySelector('.md-header')).backgroundColor")
        theme = page.locator("meta[name=theme-color]").get_attribute("content")
        assert [int(it) for it in re.findall(r"\d+", header)] == list(bytes.fromhex(theme[1:]))
        assert page.locator("article table").count() == page.locator(".md-typeset__scrollwrap table").count() > 1
        assert "use_reentrant=False" in page.locator(".ro-pick-answer").inner_text()


def test_who_tabs_to_the_search_before_the_themes_script_has_come_stays_there(browser, address):
    held = []
    for _, page, _, _ in visit(browser, address, [""], scripts=()):
        page.route("**/bundle*.js", lambda route: held.append(route))
        while not page.evaluate("document.activeElement.matches('.md-search__input')"):
            page.keyboard.press("Tab")
        page.keyboard.insert_text("RO-0003")
        wait_until(page, "document.querySelector('script[src*=bundle]')")
        held[0].continue_()
        wait_until(page, "'ready' in document.documentElement.dataset")
        page.keyboard.press("Shift")
        page.wait_for_selector(".md-search-result__link[href*='RO-0003']")
        assert page.evaluate("document.activeElement.matches('.md-search__input')")


def test_the_themes_script_comes_with_the_first_thing_that_a_reader_does(browser, base):
    """Until then it costs nothing, nor does the index of the search; what was done meanwhile is answered when it is there."""
    name = "guard/" if base.startswith("http") else "guard.html"

    def press(page):
        page.keyboard.press("/")
        page.keyboard.insert_text("RO-0003")  # at once
        page.wait_for_selector(".md-search-result__link[href*='RO-0003']")

    def tap(page):
        page.set_viewport_size({"width": 390, "height": 844})
        page.click(".md-header__button[for=__search]")
        page.keyboard.insert_text("RO-0003")
        page.wait_for_selector(".md-search-result__link[href*='RO-0003']")

    def choose(page):
        page.evaluate("document.querySelectorAll('.tabbed-labels label')[1].click()")
        wait_until(page, "__md_get('__tabs')")  # for the next page

    def copy(page):
        page.mouse.move(300, 300)
        page.wait_for_selector(".md-code__button")

    def scroll(page):
        page.evaluate("scrollTo(0, 2000)")
        page.wait_for_selector(".md-nav--secondary .md-nav__link--active", state="attached")

    for act in (press, tap, choose, copy, scroll):
        for _, page, requests, complaints in visit(browser, base, [name], scripts=()):
            assert not [url for url in requests if re.search("bundle|search_index.json", url)]
            act(page)
            assert any("bundle" in url for url in requests)
            assert not complaints, complaints
    for _, page, _, _ in visit(browser, base, [f"{name}#twice"], scripts=()):
        wait_until(page, "'component$' in window")


@pytest.mark.parametrize("name", ["", "incidents/RO-0001/", "diagnose/"])  # of all: test_site.py
def test_language_switch_leads_to_the_same_page_and_back(browser, address, name):
    for _, page, _, _ in visit(browser, address, [name]):
        page.click(".ro-language")
        assert page.url == f"{address}zh/{name}"
        assert page.locator("html").get_attribute("lang") == "zh-Hans"  # waits for the page that the address promises
        page.click(".ro-language")
        assert page.url == address + name


def test_language_switch_keeps_the_place(browser, base):
    name = "incidents/RO-0003" + ("/" if base.startswith("http") else ".html")
    for asked, expected in (("#cause", "#cause"), ("", "")):
        for _, page, _, _ in visit(browser, base, [name + asked]):
            page.click(".ro-language")
            assert page.url == f"{base}zh/{name}{expected}"
            page.wait_for_load_state()  # until then the browser may still go to the address's own target
            page.evaluate("document.getElementById('affected').scrollIntoView()")
            page.click(".ro-language")
            assert page.url == f"{base}{name}#affected"


def test_the_navigation_is_short_and_each_other_page_has_a_way_up(browser, address, built):
    """Five tabs, at most 26 entries; incidents, errors of other causes, lab books and what maintainers read lead up."""
    for language in ("", "zh/"):
        for _, page, _, _ in visit(browser, address, [f"{language}errors/"]):
            assert page.locator(".md-tabs__link").count() == 5
            assert page.get_by_role("link", name="参与和维护" if language else "Contribute and maintain").count() == 1
        config = (ROOT / ("mkdocs.zh.yml" if language else "mkdocs.yml")).read_text(encoding="utf-8")
        listed = re.findall(r"^ +- .*?([\w/-]+)\.md$", config.partition("\nnav:")[2].partition("\n\n")[0], re.M)
        assert 20 < len(listed) <= 26
        inside = {re.sub(r"(^|/)index$", r"\1", name).rstrip("/") for name in listed} | {"contributing"}
        for path in (built / language).rglob("index.html"):
            name = path.parent.relative_to(built / language).as_posix().replace(".", "", 1)
            if name.startswith("zh") and not language or name in inside:
                continue
            html = path.read_text(encoding="utf-8")
            up = re.search(r'<nav class="ro-up".*?</nav>', html, re.S)
            assert up and up[0].count("<a ") == (2 if re.fullmatch(r"incidents/[^/]+/[^/]+", name) else 1), name
            # One tab shows where the reader is; maintainers' pages belong to none.
            lit = len(re.findall(r"md-tabs__item--active|md-tabs__link ro-lit", html))
            assert lit == ("/contributing/" not in up[0]), name


@pytest.mark.parametrize("language, word", [("", "use_reentrant"), ("zh/", "非可重入")])
def test_search_finds_the_incident(browser, address, language, word):
    for _, page, _, _ in visit(browser, address, [language]):
        page.keyboard.press("/")
        page.keyboard.insert_text(word)
        page.keyboard.press("Shift")  # the theme searches when a key is released
        page.wait_for_selector(".md-search-result__link")
        found = page.eval_on_selector_all(".md-search-result__link", "links => links.map(link => link.href)")
        assert any("RO-0001" in link for link in found), found


def test_first_screen_of_an_incident_has_the_fix(browser, address):
    for name in ("incidents/RO-0001/", "zh/incidents/RO-0001/"):
        for _, page, _, _ in visit(browser, address, [name], viewport={"width": 390, "height": 844}):
            block = page.locator(".ro-header pre").first
            assert "use_reentrant" in block.inner_text()
            assert block.bounding_box()["y"] + block.bounding_box()["height"] < 844


# Frameworks of which a reader sees no tab, or only a part of it.
CUT_OFF = """() => [...document.querySelectorAll(".tabbed-labels > label")].filter(it => it.offsetParent
    && it.getBoundingClientRect().right > it.parentElement.getBoundingClientRect().right + 1).map(it => it.textContent)"""
WORDS = 700  # of a judged incident, in English
ARTICLES = [f"{language}incidents/{id}/" for id in KNOWN.incidents for language in ("", "zh/")]


@pytest.mark.parametrize("width, height, begins, screens", [(1280, 800, 1.5, 4.0), (390, 844, 1.5, 5.6)])
def test_an_article_is_read_in_a_minute(browser, address, width, height, begins, screens):
    """What helps comes first, and the whole is short; a short incident has its failing lines second."""
    for name, page, _, _ in visit(browser, address, ARTICLES, viewport={"width": width, "height": height}):
        short = KNOWN.incidents[name.rstrip("/").rpartition("/")[2]].short
        ends = page.evaluate(
            "ids => ids.map(id => document.getElementById(id).getBoundingClientRect().bottom / innerHeight)",
            ["fix", "minimal" if short else "case"],
        )
        long = page.evaluate("document.querySelector('article').getBoundingClientRect().height / innerHeight")
        assert max(ends) < begins, (name, ends)
        assert long <= screens, (name, long)
        assert width == 390 or not page.evaluate(CUT_OFF), name  # on a phone a finger moves them
        if not short and not name.startswith("zh/"):  # a short incident has tables of runs, which other pages do not
            words = len(page.inner_text("article").split())  # of figures, code and tags too; what is folded is left out
            assert words <= WORDS, (name, words)
        assert short or page.locator("article svg.ro-fig").count(), name


# Of a page's article: the most screens on a desk, and on a phone.
SHORT = {"advice/": (4.0, 6.2), "guard/": (5.02, 7.5)}


@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
def test_pages_that_lead_are_short(browser, address, phone):
    names = [f"{language}{name}" for name in SHORT for language in ("", "zh/")]
    viewport = {"width": 390, "height": 844} if phone else {"width": 1280, "height": 800}
    for name, page, _, _ in visit(browser, address, names, viewport=viewport):
        long = page.evaluate("document.querySelector('article').getBoundingClientRect().height / innerHeight")
        assert long <= SHORT[name.removeprefix("zh/")][phone], (name, long)


ERRORS = [
    f"{language}errors/{it.family}/" for it in KNOWN.families.values() if it.page == "own" for language in ("", "zh/")
]


def test_an_error_page_answers_in_order(browser, address):
    """The message in two lines, the fix, three questions, the incidents; what else it may read like is folded."""
    parts = ["pre", ".tabbed-set", ".ro-flow", "#incidents", "#wordings + details:not([open])"]
    for name, page, _, _ in visit(browser, address, ERRORS, viewport={"width": 1280, "height": 800}):
        tops = [page.locator(f"article {part}").first.bounding_box()["y"] / 800 for part in parts]
        assert tops == sorted(tops) and tops[2] < 2, (name, tops)
        assert page.locator("article pre").first.inner_text().strip().count("\n") <= 1, name
        assert not page.evaluate(CUT_OFF), name
        assert page.locator(".ro-flow li").count() == 3, name


@pytest.mark.parametrize("language", ["", "zh/"])
def test_advice_can_be_filtered(browser, address, language):
    for _, page, _, _ in visit(browser, address, [f"{language}advice/"]):
        claims = page.locator("article :is(tbody tr, .ro-claim, p[id*='-claim-'])")
        page.fill(".ro-filter input", "static_graph")
        left = claims.filter(visible=True).count()
        assert 0 < left < claims.count() / 2 and page.inner_text(".ro-filter") == f"{left} / {claims.count()}"
        assert 0 < page.locator("article .ro-said[open]").count() <= left
        page.fill(".ro-filter input", "")
        assert not page.locator(
            "article .ro-said[open], article .ro-said[hidden], article [id*='-claim-'][hidden]"
        ).count()
