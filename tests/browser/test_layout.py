"""How pages stand on paper and where their lines break: short on paper, whole words, nothing cut off."""

import pypdfium2
import pytest

from support.browser import visit

# Sheets of A4, at most. Measured when all folds were opened: 8, 7, 13, 61 and 29.
SHEETS = {
    "incidents/RO-0001/": 6,
    "incidents/RO-0005/": 6,
    "errors/ddp-ready-twice/": 6,
    "already-trained/": 8,
    "advice/": 6,
}
# Each place where a code span of the text breaks between two letters or digits.
BROKEN = r"""() => {
    document.querySelectorAll("details").forEach(it => (it.open = true))
    const found = []
    for (const code of document.querySelectorAll("article :not(pre) > code")) {
        const letters = document.createTreeWalker(code, NodeFilter.SHOW_TEXT)
        let before = null
        for (let text = letters.nextNode(); text; text = letters.nextNode()) {
            for (let at = 0; at < text.length; at++) {
                const range = document.createRange()
                range.setStart(text, at)
                range.setEnd(text, at + 1)
                const { top, width } = range.getBoundingClientRect()
                const letter = text.data[at]
                if (before && width && top > before.top + 4 && /[A-Za-z0-9]{2}/.test(before.letter + letter)) {
                    found.push(code.textContent)
                }
                before = width || /\s/.test(letter) ? { top, letter } : before
            }
        }
    }
    return found
}"""


@pytest.mark.parametrize("language", ["", "zh/"])
def test_a_page_is_short_on_paper(browser, strict, language):
    names = [language + name for name in SHEETS]
    for name, page, _, _ in visit(browser, strict, names, viewport={"width": 1280, "height": 800}):
        with pypdfium2.PdfDocument(page.pdf(prefer_css_page_size=True)) as paper:
            assert len(paper) <= SHEETS[name.removeprefix("zh/")], (name, len(paper))


def test_on_paper_a_stack_is_larger_than_its_version_and_stands_at_the_margin(browser, strict):
    for _, page, _, _ in visit(browser, strict, ["errors/ddp-ready-twice/"], viewport={"width": 680, "height": 1000}):
        page.emulate_media(media="print")
        name, version = page.evaluate(
            """() => {
                const label = [...document.querySelectorAll(".tabbed-labels > label")].find(it => it.innerText === "accelerate")
                const strong = document.querySelector(".tabbed-block p > strong:only-child")
                return [label.querySelector("a") ?? label, strong].map(it => {
                    const range = document.createRange()
                    range.selectNodeContents(it)
                    return [range.getBoundingClientRect().left, parseFloat(getComputedStyle(it).fontSize)]
                })
            }"""
        )
        assert abs(name[0] - version[0]) < 1 and name[1] > version[1], (name, version)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_name_breaks_after_what_joins_its_words(browser, strict, width):
    names = ["already-trained/", "zh/already-trained/", "incidents/RO-0001/evidence/", "advice/", "incidents/"]
    for name, page, _, _ in visit(browser, strict, names, viewport={"width": width, "height": 844}):
        assert not page.evaluate(BROKEN), name


def test_the_navigation_cuts_no_letter_off(browser, strict):
    names = ["incidents/RO-0001/", "decision/", "zh/incidents/RO-0001/"]
    for name, page, _, _ in visit(browser, strict, names, viewport={"width": 1280, "height": 800}):
        heights = page.eval_on_selector_all(
            ".md-nav .md-ellipsis", "all => all.map(it => [it.clientHeight, it.scrollHeight])"
        )
        assert any(box for box, _ in heights) and not [it for it in heights if it[0] and it[1] > it[0]], name


def test_an_article_opens_the_tab_of_its_own_framework(browser, strict):
    for id, title in {"RO-0001": "ms-swift", "RO-0003": "FlagEmbedding", "RO-0004": "ms-swift"}.items():
        for _, page, _, _ in visit(browser, strict, [f"incidents/{id}/", f"zh/incidents/{id}/"]):
            assert page.locator(".tabbed-labels > label").first.inner_text() == title
            assert page.locator(".tabbed-block").first.is_visible()
