"""For every reader: axe finds nothing, nothing moves while a page loads, the keyboard alone is enough."""

import functools
import itertools
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from support.browser import TOUCHED, a_browser, answered, visit, wait_until
from support.hosting import served
from support.logs import LOG
from support.project import KNOWN, TESTS

AXE = (TESTS / "lighthouse/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
LANGUAGES = ("", "zh/")
# Taken from the start of the page on, also before there is anything to see.
SHIFTS = """window.shifts = []
const box = ({ x, y, width, height }) => [x, y, width, height].map(Math.round)
new PerformanceObserver(list => list.getEntries().forEach(entry => shifts.push(`${entry.value.toFixed(4)}: ` +
    entry.sources.map(it => `${it.node?.outerHTML?.slice(0, 60)} ${box(it.previousRect)} to ${box(it.currentRect)}`)
))).observe({ type: "layout-shift", buffered: true })"""


# Every kind of page, in both languages; the last one is not there.
KINDS = [
    "/",
    "diagnose/",
    "tags/",
    "changes/",
    "decision/",
    "advice/",
    "already-trained/",
    "lint/",
    "public-examples/",
    "security/",
    "links/",
    "contributing/",
    "hosting/",
    "about/",
    "incidents/",
    "errors/",
    "guard/",
    "guard-findings/",
    "guard-evidence/",
    "guard-compare/",
    "errors/ddp-ready-twice/",
    "errors/look-alikes/",
    "errors/look-alikes/ddp-graph-changed/",
    "concepts/reentrant-checkpointing/",
    "concepts/zero-partitioning/",
    "concepts/glossary/",
    "incidents/RO-0003/evidence/",
    "incidents/RO-0003/files/",
    "not/found/",
]
PAGES = [name.removeprefix("/") for name in [*KINDS, *(f"incidents/{id}/" for id in KNOWN.incidents)]]


DRAWN = "new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))"


def faults(page) -> list[str]:
    """What axe finds on the page as it stands."""
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")["violations"]
    return [f"{it['id']}: {node['target']} {node['html'][:100]}" for it in found for node in it["nodes"]]


def test_axe_finds_nothing(address, sample):
    """On each page in one language, every other one in the other: each has its like there, and the languages differ in their
    words, the screens in the header and the menus, the schemes in their colours."""
    with ThreadPoolExecutor() as pool:  # each takes one core
        found = [
            *pool.map(
                functools.partial(_all_faults, address, sample(PAGES)), ("", "zh/"), (PHONE, DESKTOP), ("light", "dark")
            )
        ]
    assert not any(found), "\n".join(itertools.chain(*found))


def _all_faults(address, pages, language, screen, scheme) -> list[str]:
    found = []
    names = [language + name for name in pages[bool(language) :: 2]]
    with a_browser() as browser:
        for name, page, _, _ in visit(browser, address, names, viewport=screen, color_scheme=scheme, bypass_csp=True):
            page.evaluate(AXE)
            if name.endswith("diagnose/"):
                page.fill("#ro-log", LOG)
                answered(page)
            page.evaluate("document.querySelectorAll('details').forEach(folded => folded.open = true)")
            page.evaluate(DRAWN)  # a table is measured, and can be focused where it is wide, once it is drawn
            found += [f"{name}, {scheme}: {fault}" for fault in faults(page)]
    return found


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_axe_finds_nothing_in_what_opens(browser, address, screen, language):
    """The search with results, the menu of a phone, the choices of a copied link."""
    shown = {"viewport": screen, "color_scheme": "dark" if screen is PHONE else "light", "bypass_csp": True}
    for _, page, _, _ in visit(browser, address, [f"{language}incidents/RO-0001/"], **shown):
        page.evaluate(AXE)
        page.add_style_tag(content="* { transition: none !important }")
        page.click("h2 .ro-copy button")
        assert not (seen := faults(page)), seen
        page.keyboard.press("/")
        page.keyboard.insert_text("RO-0003")
        page.keyboard.press("Shift")
        page.wait_for_selector(".md-search-result__link")
        assert not (seen := faults(page)), seen
        page.keyboard.press("Escape")
        if screen is PHONE:
            page.click(".md-header__button[for=__drawer]")
            assert not (seen := faults(page)), seen


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_moves_while_a_page_loads(browser, built, language):
    """On a slow line: a page is drawn again and again while it comes, as on a busy machine."""
    kinds = (
        "",
        "incidents/RO-0001/",
        "errors/",
        "errors/ddp-ready-twice/",
        "decision/",
        "advice/",
        "diagnose/",
        "tags/",
    )
    with served(built, pause=0.05) as address:
        for name in (language + kind for kind in kinds):  # each in a context of its own: nothing is cached
            for _, page, _, _ in visit(browser, address, [name], viewport=PHONE, scripts=[SHIFTS, TOUCHED]):
                # As browsers and Lighthouse round it: 0.00. A column may widen by a hair when a row comes in.
                shifts = page.evaluate("shifts")
                assert sum(float(shift.split(":")[0]) for shift in shifts) < 0.005, (name, shifts)


# ------------------------------------------------------------------------------ the keyboard

# All that can be used with a mouse and is in sight. A radio button stands for its group, its labels and their arrows.
USABLE = """[...document.querySelectorAll("a[href], button, input, select, textarea, summary")].filter(it =>
    it.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && it.getClientRects().length
    && !it.closest("[inert]") && !(it.type === "radio" && !it.checked)
    && !it.matches(".tabbed-labels a, .tabbed-button, form[name=search] [type=reset]"))"""
# Where the focus is, and what shows it: an outline, a ring, or another ground; on the label for a control without a face.
FOCUS = """() => {
    const at = document.activeElement
    if (!at || at === document.body) return null
    const told = it => {
        const style = getComputedStyle(it)
        return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0
    }
    const shown = told(at) || [...(at.labels ?? [])].some(told) || at.matches(".md-search__input")
        || (at.matches(".md-option") && told(at.nextElementSibling))
        || (at.matches(".tabbed-set > input") && told(at.parentElement.querySelector(".tabbed-labels")))
    window.reached ??= new Set()
    const again = reached.has(at)
    reached.add(at)
    return { again, shown, html: at.outerHTML.slice(0, 120) }
}"""


def walk(page) -> list[dict]:
    """Press Tab until the end of the page."""
    stops = []
    page.keyboard.press("Tab")
    while (stop := page.evaluate(FOCUS)) and not stop["again"]:
        stops.append(stop)
        page.keyboard.press("Tab")
    return stops


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_tab_reaches_all_and_shows_where_it_is(browser, address, screen, language):
    for name in ("", "incidents/RO-0005/", "decision/", f"diagnose/#log={quote(LOG[-6000:])}"):
        for _, page, _, _ in visit(browser, address, [language + name], viewport=screen):
            if "#log" in name:
                answered(page)
            # From the start of the page, wherever an answer has put the focus.
            page.evaluate(
                "const top = document.documentElement; top.tabIndex = -1; top.focus(); top.removeAttribute('tabindex')"
            )
            stops = walk(page)
            assert not (hidden := [stop["html"] for stop in stops if not stop["shown"]]), (name, hidden)
            missed = page.evaluate(f"{USABLE}.filter(it => !reached.has(it)).map(it => it.outerHTML.slice(0, 120))")
            assert len(stops) > 10 and not missed, (name, missed)
            assert page.evaluate(
                "[...document.querySelectorAll('.md-typeset__scrollwrap, pre > code')].filter(it => it.checkVisibility()"
                " && it.scrollWidth > it.clientWidth).every(it => reached.has(it))"
            ), name


def press(page, selector: str, key: str = "Enter") -> None:
    """Go there with Tab, and press the key."""
    for _ in range(400):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            page.keyboard.press(key)
            return
    raise AssertionError(f"Tab never reaches {selector}")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_reader_without_a_mouse(browser, address, tmp_path, language):
    options = {"viewport": DESKTOP, "color_scheme": "light", "permissions": ["clipboard-read", "clipboard-write"]}
    copied = "navigator.clipboard.readText()"
    for _, page, _, _ in visit(browser, address, [f"{language}incidents/RO-0001/"], **options):
        press(page, ".md-skip")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.matches('article *')")  # the header is skipped
        press(page, ".ro-copy button")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector(".ro-toast:not(:empty)")
        assert "RO-0001" in page.evaluate(copied)
        press(page, ".md-code__button")
        wait_until(page, f"async () => (await {copied}).includes('use_reentrant')")
        press(page, "details > summary")
        assert page.locator("article details[open]").count()
    for _, page, _, _ in visit(browser, address, [language], **options):
        press(page, ".ro-scheme")
        wait_until(page, "document.documentElement.dataset.mdColorScheme === 'slate'")
        press(page, ".ro-language")
        page.wait_for_url(f"{address}{'' if language else 'zh/'}")
        press(page, ".md-search__input", "R")
        page.keyboard.insert_text("O-0003")
        page.keyboard.press("Shift")
        page.wait_for_selector(".md-search-result__item:first-child > [href*='RO-0003']")  # what Enter will open
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_url("**/incidents/RO-0003/**")
    for _, page, _, _ in visit(browser, address, [f"{language}diagnose/"], **options):
        page.evaluate("text => navigator.clipboard.writeText(text)", LOG)
        press(page, "#ro-log", "ControlOrMeta+V")
        assert "RO-0003" in answered(page)
        with page.expect_file_chooser() as chosen:
            press(page, '[data-ro="file"]')
        (log := tmp_path / "train.log").write_text(LOG, encoding="utf-8")
        chosen.value.set_files(log)
        answered(page)
        press(page, ".ro-answer .md-button")
        wait_until(page, f"async () => (await {copied}).includes('RO-0003')")
        for _ in range(8):  # back over the folds and the incidents
            page.keyboard.press("Shift+Tab")
            if page.evaluate("document.activeElement.matches('.ro-answer a[href$=\"#cases\"]')"):
                break
        page.keyboard.press("Enter")
        page.wait_for_url(f"{address}{language}errors/ddp-ready-twice/#cases")
    for _, page, _, _ in visit(browser, address, [language], **options | {"viewport": PHONE}):
        press(page, ".md-header__button[for=__drawer] button")
        press(page, ".md-nav--primary a[href$='errors/']")
        page.wait_for_url(f"{address}{language}errors/")
        press(page, ".md-header__button[for=__search] button")
        wait_until(page, "document.activeElement.matches('.md-search__input')")
    for _, page, _, _ in visit(
        browser, address, [f"{language}incidents/RO-0004/evidence/"], **options | {"viewport": PHONE}
    ):
        press(page, ".md-typeset__scrollwrap[tabindex]", "ArrowRight")
        wait_until(page, "document.activeElement.scrollLeft > 0")
