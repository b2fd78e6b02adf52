"""The picker on "Which setting works", in a browser: hosted and on disk, by keyboard, sent as a link, without scripts."""

import re

import pypdfium2
import pytest

from support.browser import visit

HOSTED, ON_DISK = "decision/", "decision.html"
SHOWN = ".ro-pick-answer"


def stored(page, key):
    """The answer that stands in the page for a choice, and the settings whose option goes with it."""
    return page.evaluate(
        """key => {
            const all = [...document.querySelectorAll(".ro-pick li")]
            const found = all.find(it => it.dataset.for.split(" ").includes(key)) ?? all[0]
            return [found.textContent, found.dataset.option]
        }""",
        key,
    )


def shown(page):
    seen = page.locator(".ro-pick div[data-option]:visible").evaluate_all("all => all.map(it => it.dataset.option)")
    return [page.text_content(SHOWN), *(seen or [""])]


@pytest.mark.parametrize("language", ["", "zh/"])
@pytest.mark.parametrize("name", [HOSTED, ON_DISK])
def test_it_shows_the_answer_to_what_is_chosen(browser, strict, disk, name, language):
    address = disk if name == ON_DISK else strict
    for _, page, _, complaints in visit(browser, address, [language + name]):
        asked = {it: page.locator(f".ro-pick select[name={it}]") for it in ("strategy", "use", "tuning", "version")}
        keys = page.eval_on_selector_all(".ro-pick li", "all => all.flatMap(it => it.dataset.for.split(' '))")
        assert page.inner_text(SHOWN).startswith("use_reentrant=False") and not asked["version"].is_visible()
        seen = set()
        for strategy in ("ddp", "zero-1", "zero-3"):
            asked["strategy"].select_option(strategy)
            uses = asked["use"].locator("option:enabled").evaluate_all("all => all.map(it => it.value)")
            assert uses == list(dict.fromkeys(key.split("/")[1] for key in keys if key.startswith(f"{strategy}/")))
            for use in uses:
                asked["use"].select_option(use)
                for tuning in ("any", "lora", "full", "part"):
                    asked["tuning"].select_option(tuning)
                    version = asked["version"].input_value()
                    assert shown(page) == stored(page, f"{strategy}/{use}/{tuning}/{version}")
                    seen.add(tuple(shown(page)))
        assert len(seen) > 10 and {option for _, option in seen} == {"", "checkpointing", "checkpointing find-unused"}
        asked["use"].select_option("once")
        assert asked["version"].is_visible()
        answers = []
        for version in ("deepspeed=0.19.2", "deepspeed=0.19.8"):
            asked["version"].select_option(version)
            asked["tuning"].select_option("lora")
            answers.append(shown(page))
            assert answers[-1] == stored(page, f"zero-3/once/lora/{version}")
        assert answers[0] != answers[1]
        # Its link leads to a row of the table; the address leads back to the choice.
        link = page.url
        page.click(f"{SHOWN} a[href='#zero-3-once']")
        assert page.locator("#zero-3-once").is_visible()
        above = page.evaluate(
            """() => document.querySelector(".ro-decision tr:has(:target)").getBoundingClientRect().top
                - document.querySelector(".ro-decision table:has(:target) thead th").getBoundingClientRect().bottom"""
        )
        assert above >= 0, above  # nothing of it lies below the table's head, which stays
        page.goto("about:blank")
        page.goto(link)
        assert shown(page) == answers[1]
        assert not complaints


def test_it_is_used_by_keyboard_and_read_aloud(browser, strict):
    for _, page, _, _ in visit(browser, strict, ["decision/"]):
        assert page.locator(SHOWN).get_attribute("role") == "status"
        page.get_by_label("I train with").focus()
        for _ in range(6):
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("L")  # of "LoRA": a busy machine may take the "A" for the start of a word of its own
        assert page.url.endswith("#pick=zero-3/once/lora/any")
        assert shown(page) == stored(page, "zero-3/once/lora/any")


def test_without_scripts_the_tables_are_all(browser, strict):
    with browser.new_context(java_script_enabled=False) as opened:
        page = opened.new_page()
        page.goto(f"{strict}{HOSTED}")
        assert not page.locator(".ro-pick").is_visible()
        assert page.locator(".ro-decision table").count() == 2


@pytest.mark.parametrize("language", ["", "zh/"])
def test_on_every_screen_and_on_paper_each_cell_tells_its_column(browser, strict, language):
    for _, page, _, _ in visit(browser, strict, [f"{language}decision/"], viewport={"width": 1280, "height": 800}):
        heads = page.locator(".ro-decision thead").first
        page.locator("#ddp-second-place").scroll_into_view_if_needed()
        page.evaluate("document.getElementById('ddp-second-place').scrollIntoView({block: 'center'})")
        assert heads.locator("th").nth(1).is_visible()
        assert 0 <= heads.locator("th").nth(1).bounding_box()["y"] < 110  # it stays in sight
        assert "use_reentrant=False" in heads.locator("th").nth(1).text_content()
        page.set_viewport_size({"width": 390, "height": 844})
        told = page.evaluate("getComputedStyle(document.querySelector('#zero-3-once + td'), '::before').content")
        assert told == '"use_reentrant=False"'
        # A4 without its margins: every column ends on the paper.
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 680, "height": 1000})
        ends = page.eval_on_selector_all(
            ".ro-decision :is(th, td)", "all => all.map(it => it.getBoundingClientRect().right)"
        )
        assert len(ends) > 50 and max(ends) <= 680
        assert re.search("static_graph", page.locator(".ro-decision thead th").nth(5).text_content())


@pytest.mark.parametrize("language", ["", "zh/"])
def test_on_paper_it_is_short(browser, strict, language):
    """Measured: 5 pages of A4 in both languages; it was 21 and 18 when folds were opened and every option told its runs."""
    for _, page, _, _ in visit(browser, strict, [f"{language}decision/"], viewport={"width": 1280, "height": 800}):
        with pypdfium2.PdfDocument(page.pdf(prefer_css_page_size=True)) as paper:
            text = "".join(sheet.get_textpage().get_text_bounded() for sheet in paper)
            assert len(paper) <= 6
            assert "SFTConfig(" in text and "def backward" not in text  # every stack, no listing
            width, height = paper[0].get_size()
            assert (round(width), round(height)) == (595, 842)
