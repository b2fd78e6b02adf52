"""Whatever an address or an answer leads to stands in sight, below the header and its tabs."""

import pytest

from support.browser import answered, wait_until
from support.logs import LOG

# Where the first line of a target is, where what stays above it ends, and what covers it.
FIRST_LINE = """selector => {
    const it = document.querySelector(selector), range = document.createRange();
    range.selectNodeContents(it);
    const lines = [...range.getClientRects()].filter(({ width, height }) => width > 1 && height > 1);
    const { left, right, top, bottom } = lines[0] ?? it.closest("td, th, p").getBoundingClientRect();
    const staying = [...document.querySelectorAll(".md-header, .md-tabs, thead th")].filter(part => !part.closest("table")
        || (part.closest("table").contains(it) && getComputedStyle(part).position === "sticky"));
    const above = Math.max(...staying.map(part => part.getBoundingClientRect().bottom));
    const seen = [left + 1, (left + right) / 2, right - 1].map(x => document.elementFromPoint(x, (top + bottom) / 2));
    const covered = seen.find(part => part && !it.closest("article").contains(part))?.className;
    return { top, bottom, above, height: innerHeight, covered };
}"""
# The page, and its targets: the first one is in the address from the start, the next one is followed on the page.
PAGES = {
    "incidents/RO-0001/": ("claim-zero2", "cause"),  # a verdict, whose fold opens; a heading
    "incidents/RO-0001/evidence/": ("run-zero2-twice-non-reentrant-default-bucket-accumulate-1",),
    "decision/": ("zero-3-once",),  # a row below its table's head, which stays too
    "guard/": ("kept",),  # a row
    "guard-findings/": ("kept",),
}


def in_sight(page, selector):
    # Until two frames are drawn, a fold that opens may move what was scrolled to.
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    wait_until(page, f"scrollY > 0 && ({FIRST_LINE})({selector!r}).bottom > 0")
    line = page.evaluate(FIRST_LINE, selector)
    assert line["above"] <= line["top"] and line["bottom"] <= line["height"] and not line["covered"], (page.url, line)


@pytest.mark.parametrize("width, height", [(1280, 800), (1920, 1080)], ids=["desktop", "large"])
def test_a_control_of_the_header_leaves_the_page_where_it_is(browser, address, width, height):
    with browser.new_context(viewport={"width": width, "height": height}) as context:
        page = context.new_page()
        page.goto(f"{address}incidents/RO-0003/")
        for selector in (".ro-language", ".md-logo", ".md-tabs__link", ".md-search__input"):
            page.evaluate("selector => { scrollTo(0, 2000); document.querySelector(selector).focus() }", selector)
            page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            assert page.evaluate("scrollY") == 2000, selector


@pytest.mark.parametrize(
    "language, width, height", [("", 1280, 800), ("zh/", 1920, 1080), ("", 390, 844)], ids=["desktop", "large", "phone"]
)
def test_a_target_is_in_sight_below_the_header(browser, address, language, width, height):
    with browser.new_context(viewport={"width": width, "height": height}) as context:
        page = context.new_page()
        for name, (first, *more) in PAGES.items():
            page.goto(f"{address}{language}{name}#{first}")
            wait_until(page, "'component$' in window")  # the theme's script opens folds too
            in_sight(page, f"#{first}")
            for target in more:
                page.evaluate("name => { location.hash = name }", target)
                in_sight(page, f"#{target}")
        for name in ("diagnose/", ""):
            page.goto(address + language + name)
            page.fill("#ro-log", LOG)
            answered(page)
            wait_until(page, "document.activeElement.classList.contains('ro-verdict')")
            in_sight(page, ".ro-verdict")
