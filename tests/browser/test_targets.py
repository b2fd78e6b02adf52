"""Whatever an address or an answer leads to stands in sight, below the header and its tabs."""

from support.browser import answered, wait_until
from support.logs import LOG

# Where the first line of a target is: [its top, its bottom, the bottom of what stays above, the window's height].
FIRST_LINE = """selector => {
    const it = document.querySelector(selector), range = document.createRange();
    range.selectNodeContents(it);
    const lines = [...range.getClientRects()].filter(({ width, height }) => width > 1 && height > 1);
    const { top, bottom } = lines[0] ?? it.closest("td, th, p").getBoundingClientRect();
    const staying = [...document.querySelectorAll(".md-header, .md-tabs, thead th")].filter(part => !part.closest("table")
        || (part.closest("table").contains(it) && getComputedStyle(part).position === "sticky"));
    const above = staying.map(part => part.getBoundingClientRect().bottom);
    return [top, bottom, Math.max(...above), innerHeight];
}"""
# The page, and its targets: the first one is in the address from the start, the next ones are followed on the page.
PAGES = {
    "incidents/RO-0001/": ("claim-zero2", "cause", "claim-always-non-reentrant"),  # a verdict, a heading, a verdict
    "zh/incidents/RO-0005/": ("claim-ascend", "affected"),
    "incidents/RO-0001/evidence/": ("run-zero2-twice-non-reentrant-default-bucket-accumulate-1", "reproduce"),
    "decision/": ("zero-3-once", "stacks"),  # a cell below its table's head, which stays too
    "guard/": ("kept", "limits"),  # a key of a table
}


def in_sight(page, selector):
    # Until two frames are drawn, a fold that opens may move what was scrolled to.
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    wait_until(page, f"scrollY > 0 && ({FIRST_LINE})({selector!r})[1] > 0")
    top, bottom, above, height = page.evaluate(FIRST_LINE, selector)
    assert above <= top and bottom <= height, (page.url, selector, top, bottom, above, height)


SIZES = [(1280, 800), (1920, 1080), (390, 844)]


def test_a_target_is_in_sight_below_the_header(browser, address):
    with browser.new_context() as context:
        page = context.new_page()

        def at_each_size(first):
            for width, height in [*SIZES[first % 3 :], *SIZES[: first % 3]]:
                page.set_viewport_size({"width": width, "height": height})
                yield

        for number, (name, targets) in enumerate(PAGES.items()):
            for turn, _ in enumerate(at_each_size(-number)):
                if not turn:
                    page.goto(f"{address}{name}#{targets[0]}")
                    wait_until(page, "'component$' in window")  # the theme's script opens folds too
                    in_sight(page, f"#{targets[0]}")
                for target in (*targets[1:], targets[0]):
                    page.evaluate("name => { location.hash = name }", target)
                    in_sight(page, f"#{target}")
        for name in ("diagnose/", "zh/"):
            page.goto(address + name)
            for turn, _ in enumerate(at_each_size(0)):
                page.fill("#ro-log", LOG + "\n" * turn)
                answered(page)
                wait_until(page, "document.activeElement.classList.contains('ro-verdict')")
                in_sight(page, ".ro-verdict")
