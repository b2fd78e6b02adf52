"""The page Diagnose in a real browser: hosted under a strict policy, and from a local folder."""

import base64
import gzip
import random
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Error

from support.browser import answered, visit, wait_until
from support.logs import LOG, LOGS, read, told
from support.project import KNOWN, ROOT

# As the theme's, on file://: it comes after the scripts of the head, and before the page is ready.
SHIM = """document.addEventListener("readystatechange", () => {
    window.Worker = function () { this.postMessage = () => { throw Error("not the native worker") } }
}, { once: true })"""

# The length of each text that the page hands to a worker.
HANDED = """window.handed = [];
{ const { postMessage } = Worker.prototype;
  Worker.prototype.postMessage = function (data, ...more) {
      if (data.log !== undefined) handed.push(data.log.length);
      return postMessage.call(this, data, ...more);
  } }"""
PAUSE = 200  # milliseconds after which what was typed is read


@pytest.fixture(params=["strict", "folder"])
def page(request, browser, built):
    """Opens `en` or `zh` with a fragment; in a local folder with a Worker that search has replaced."""
    folder = request.param == "folder"
    start = f"file://{built}/" if folder else request.getfixturevalue("strict")
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.add_init_script(HANDED)
    if folder:
        context.add_init_script(SHIM)
    opened = context.new_page()
    faults = []
    # From a folder the theme's search cannot load its index; the offline copy has one that can.
    opened.on("pageerror", lambda error: "search_index" in str(error) or faults.append(str(error)))
    opened.on("console", lambda message: "Content Security" in message.text and faults.append(message.text))

    def go(language="en", fragment=""):
        opened.goto(f"{start}{'zh/' if language == 'zh' else ''}diagnose/{'index.html' if folder else ''}{fragment}")
        return opened

    yield go
    assert not faults
    context.close()


@pytest.mark.parametrize("language, first", [("en", "Do first (RO-0003)"), ("zh", "先这样做（RO-0003）")])
def test_paste(page, language, first):
    it = page(language)
    it.fill("#ro-log", LOG)
    text = answered(it)
    assert first in text and "use_reentrant" in text
    winning = it.text_content(".ro-around mark")
    assert winning.split()[0] == str(told(LOG).json["line"]) and "Expected to mark" in winning
    assert "Expected to mark" in it.inner_text('[data-ro="status"]')  # which a screen reader is told
    links = it.eval_on_selector_all(".ro-answer ol a", "links => links.map(link => link.href)")
    assert [re.search(r"RO-\d{4}", link)[0] for link in links][0] == "RO-0003" and len(links) == 3
    it.click(".ro-answer .md-button")
    it.wait_for_selector(".ro-answer .md-button:text-matches('Copied|已复制')")


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["desktop", "phone"])
def test_answer_and_fix_are_in_sight(page, size):
    """The heading is where one reads on, the fix in the same screen, with its copy button; the log makes room."""
    it = page()
    it.set_viewport_size({"width": size[0], "height": size[1]})
    it.fill("#ro-log", LOG)
    answered(it)
    wait_until(it, "document.activeElement.classList.contains('ro-verdict')")
    tops = it.evaluate(
        """() => [".ro-verdict", ".ro-answer pre"].map(name => document.querySelector(name).getBoundingClientRect().top / innerHeight)"""
    )
    assert 0 <= tops[0] < 0.75 and tops[0] < tops[1] < 0.95, tops
    assert it.get_attribute("#ro-log", "rows") == "3"
    assert it.evaluate("!document.querySelector('.ro-around').closest('details').open")
    it.click(".ro-answer .ro-take")
    wait_until(it, "navigator.clipboard.readText().then(text => text.includes('use_reentrant'))")


def test_the_cursor_stays_where_one_types(page):
    it = page()
    it.clock.install()
    it.focus("#ro-log")
    for part in ("Error", " no d", "istan", "ce"):
        it.keyboard.type(part)
        try:
            it.clock.run_for(PAUSE)
        except Error as error:  # the theme's, once, which `page` lets pass too
            if "search_index" not in str(error):
                raise
            it.clock.run_for(PAUSE)
        answered(it)
    assert it.evaluate("document.activeElement.id") == "ro-log"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_an_example(page, language):
    it = page(language)
    it.click('[data-ro="example"]')
    assert "RO-0003" in answered(it)


@pytest.mark.parametrize(
    "text, kind, words",
    [
        ("Expected to mark a variable ready only once", "fragment", "not a whole error line"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "unknown", "does not cover"),
        (
            LOG + "\nRuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
            "known",
            "Also in",
        ),
    ],
    ids=["fragment", "not covered", "two"],
)
def test_other_answers(page, text, kind, words):
    it = page()
    it.fill("#ro-log", text)
    said = answered(it)
    assert words in said and "Look further up" not in said
    assert it.query_selector(f".ro-verdict.ro-kind-{kind}")


LAUNCH = "NPROC_PER_NODE=2 swift sft --model m"
REENTRANT, NOT = (
    f"{LAUNCH} --gradient_checkpointing_kwargs '{{\"use_reentrant\": {it}}}'\n" for it in ("true", "false")
)
STAGE_3 = """deepspeed train.py --use_lora True --gradient_checkpointing True --deepspeed '{"zero_optimization": {"stage": 3}}'"""
TRAINER = (
    f"torchrun --nproc_per_node 8 train.py --use_lora True --gradient_checkpointing True {'--output_dir out ' * 20}"
)
LOADED = "document.querySelectorAll('script[src*=\"javascripts/lint\"]').length"


@pytest.mark.parametrize(
    "language, text, said",
    [
        ("en", LAUNCH, ["A launch, not a log: 1 warning", "ms-swift < 3.6.0", "add to it:", "the launch in line 1"]),
        ("zh", LAUNCH, ["这是启动命令，不是日志：1 个警告", "ms-swift < 3.6.0", "加上：", "第 1 行的启动命令"]),
        (
            "en",
            REENTRANT,
            ["1 error", "stops: Expected to mark a variable ready only once", "replace this option with:"],
        ),
        ("en", TRAINER, ["the option in line 1: --gradient_checkpointing True\n", "keep this option, and add:"]),
        ("zh", TRAINER, ["第 1 行的选项：--gradient_checkpointing True\n", "保留这个选项，再加上："]),
        ("en", NOT.replace("NPROC_PER_NODE=2 ", ""), ["it starts one process"]),
        ("en", f"{LAUNCH} 'x", ["cannot be read, line 1: this page reads single commands"]),
        ("zh", f"{LAUNCH} $(date)", ["第 1 行", "请在终端里用 readyonce lint FILE"]),
    ],
    ids=[
        "by version",
        "in Chinese",
        "an error",
        "an option that stays",
        "the same in Chinese",
        "one process",
        "unreadable",
        "more than a command, in Chinese",
    ],
)
def test_a_launch_is_judged(page, language, text, said):
    it = page(language)
    it.click("#ro-log")
    assert it.evaluate(LOADED) == 0
    it.fill("#ro-log", text)
    told = answered(it)
    assert all(words in told for words in said), told
    assert it.evaluate(LOADED) == 2
    if "1 error" in said:
        it.click(".ro-answer .ro-take")
        wait_until(it, "navigator.clipboard.readText().then(text => text.includes('\"use_reentrant\": false'))")
        it.click(".ro-answer .ro-finding a")
        it.wait_for_selector("h1")
        assert "/errors/ddp-ready-twice" in it.url


def test_what_a_launch_cannot_show_is_folded(page):
    it = page()
    it.fill("#ro-log", STAGE_3)
    answered(it)
    notes = it.query_selector(".ro-answer details.ro-fold")
    assert notes and not notes.get_attribute("open") and not it.is_visible(".ro-level-note")
    assert it.is_visible(".ro-level-warning")
    link = it.query_selector(".ro-level-note a")
    assert "decision/" in link.get_attribute("href") and "#zero-3-" in link.get_attribute("href")


def test_what_is_all_that_a_launch_shows_is_not_folded(page):
    it = page()
    it.fill(
        "#ro-log", "llamafactory-cli train --stage sft --finetuning_type lora --model_name_or_path m --output_dir o\n"
    )
    answered(it)
    assert it.is_visible(".ro-level-note") and not it.query_selector(".ro-level-warning")


def test_a_launch_without_a_finding_names_what_tells_the_rest(page):
    it = page()
    it.fill("#ro-log", NOT)
    told = answered(it)
    assert "every run that fits trains right" in told and "your own code" in told
    links = it.eval_on_selector_all(".ro-answer li a", "links => links.map(link => [link.textContent, link.href])")
    assert [text.partition(" -- ")[0] for text, _ in links] == [
        "python -m readyonce_guard",
        "python -m readyonce_compare",
    ]
    assert [re.search(r"(guard[\w-]*)/", href)[1] for _, href in links] == ["guard", "guard-compare"]


def test_an_error_of_other_causes_leads_to_its_steps(page):
    it = page()
    it.fill("#ro-log", "[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5) ran for 1800010 ms\n")
    assert "Causes, steps and commands" in answered(it)
    link = it.get_by_role("link", name="Causes, steps and commands")
    assert "/errors/look-alikes/nccl-watchdog" in link.evaluate("link => link.href")


@pytest.mark.parametrize(
    "text, kind",
    [
        (f"+ {REENTRANT}{LOG}", "known"),
        (f"+ {REENTRANT}[rank0]: step 1\n[rank1]: step 1\n", "unknown"),
        ("Nothing that starts anything.\n", "unknown"),
    ],
    ids=["an error behind its launch", "ranks", "words"],
)
def test_a_log_stays_a_log(page, text, kind):
    it = page()
    it.fill("#ro-log", text)
    answered(it)
    assert it.query_selector(f".ro-verdict.ro-kind-{kind}") and it.evaluate(LOADED) == 0


@pytest.mark.parametrize("content, words", [(b"", "empty"), (b"\x89PNG\0\0\0", "binary")], ids=["empty", "binary"])
def test_nothing_to_read_gets_a_sentence_alone(page, content, words):
    it = page()
    choose(it, "some.file", content)
    said = answered(it)
    assert words in said and "raceback" not in said and not it.query_selector(".ro-answer .md-button")


# ------------------------------------------------------------------------------ the box on the home page


@pytest.mark.parametrize("language", ["", "zh/"])
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["desktop", "phone"])
def test_home_shows_the_box_and_a_door_at_once_and_answers(browser, strict, language, size):
    with browser.new_context(viewport={"width": size[0], "height": size[1]}) as context:
        it = context.new_page()
        it.goto(strict + language)
        ends = it.evaluate(
            """() => [".ro-ask", ".ro-door"].map(name => document.querySelector(name).getBoundingClientRect().bottom / innerHeight)"""
        )
        assert ends[0] < ends[1] <= 1, ends
        doors = it.eval_on_selector_all(".ro-door", "all => all.map(a => a.pathname)")
        assert [door.rpartition(language or "/wiki/")[2].strip("/") for door in doors] == [
            "errors",
            "symptoms",
            "already-trained",
        ]
        errors = [family.family for family in KNOWN.families.values() if family.card]
        links = it.eval_on_selector_all(".ro-doors li a", "all => all.map(a => a.pathname)")
        assert [re.search(r"errors/([\w-]+)/", link)[1] for link in links[: len(errors)]] == errors
        assert it.evaluate("document.querySelector('article').getBoundingClientRect().height / innerHeight") <= 1.52
        it.fill("#ro-log", LOG)
        assert "RO-0003" in answered(it)
        wait_until(it, "document.activeElement.classList.contains('ro-verdict')")


def test_both_pages_have_one_box():
    for path in (ROOT / "docs").glob("*/*.md"):
        text = path.read_text(encoding="utf-8")
        assert ('--8<-- "diagnose-box.md"' in text) == (path.name in ("index.md", "diagnose.md")), path
        assert 'id="ro-log"' not in text, path


def test_log_in_the_fragment_and_the_bookmarklet(page):
    it = page(fragment="#log=" + quote("RuntimeError: 'weight' must be 2-D <img src=x onerror=alert(1)>"))
    assert "must be 2-D" in answered(it)
    assert not it.query_selector(".ro-answer img") and "<img" in it.text_content(".ro-around")
    script = it.get_attribute('[data-ro="bookmarklet"]', "href")
    assert script.startswith("javascript:") and "#log=" in script and "getSelection" in script


def test_a_dropped_file(page, tmp_path):
    it = page()
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(LOG.encode()))
    it.set_input_files('[data-ro="file"]', path)
    assert "RO-0003" in answered(it)
    it.evaluate(
        """text => { const data = new DataTransfer(); data.items.add(new File([text], "x.log"));
           document.querySelector(".ro-diagnose").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true})) }""",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n",
    )
    it.wait_for_selector(".ro-kind-wrapper-only")


def test_a_paste_of_20_mb_does_not_freeze_the_page(page):
    """A worker reads all of it, and the text field holds its beginning."""
    it = page()
    size = it.evaluate(
        """log => {
            const line = "{'loss': 0.1234, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': 0.5}\\n";
            const text = line.repeat(20e6 / line.length) + log;
            const data = new DataTransfer();
            data.setData("text/plain", text);
            document.querySelector("#ro-log").dispatchEvent(
                new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true}));
            return text.length;
        }""",
        LOG,
    )
    assert "RO-0003" in answered(it)
    assert it.evaluate("handed") == [size] and len(it.input_value("#ro-log")) < 3000


def test_keyboard_reaches_everything(page):
    it = page()
    it.focus("#ro-log")
    it.keyboard.insert_text(LOG[-4000:] if "Expected" in LOG[-4000:] else LOG)
    answered(it)
    it.click(".ro-answer details:last-of-type > summary")
    it.focus("#ro-log")
    seen = set()
    for _ in range(40):
        it.keyboard.press("Tab")
        seen.add(
            it.evaluate(
                "document.activeElement.dataset.ro || document.activeElement.classList[0] || document.activeElement.tagName"
            )
        )
    assert {"file", "example", "bookmarklet", "ro-take", "ro-around", "md-button"} <= seen
    assert it.evaluate("document.querySelector('#ro-log').labels.length") == 1


def test_what_it_says_is_what_the_command_says(page):
    it = page()
    for path in LOGS[::5]:
        expected, text = read(path)
        it.fill("#ro-log", "")
        it.wait_for_selector(".ro-answer:empty", state="attached")
        it.fill("#ro-log", text)
        answered(it)
        assert it.query_selector(f".ro-verdict.ro-kind-{told(text).json['kind']}")


def test_nothing_leaves_the_page(browser, strict):
    for _, it, requests, complaints in visit(browser, strict, ["diagnose/"]):
        it.focus("#ro-log")  # with that the engine and its rules come
        wait_until(it, "Boolean(window.readyonceRules && window.readyonceEngine)")
        before = len(requests)
        it.fill("#ro-log", LOG)
        answered(it)
        assert [url for url in requests[before:] if not url.startswith("blob:")] == [] and not complaints


def test_no_script_in_the_page_itself():
    for name in ("docs/en/diagnose.md", "docs/zh/diagnose.md", "docs/theme/diagnose.html"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=", text), name
    code = (ROOT / "docs/theme/javascripts/diagnose-page.js").read_text(encoding="utf-8")
    assert "innerHTML" not in code and "insertAdjacentHTML" not in code and "fetch(" not in code


# ------------------------------------------------------------------------------ what may go wrong


def test_the_bookmarklet_takes_nothing_from_the_address(browser, strict, built, tmp_path):
    """It runs on whatever page its reader uses it on, and an address is decoded before it runs."""
    payload = "%22%2B(window.broken=1)%2B%22"
    folder = tmp_path / payload
    folder.symlink_to(built)
    for start in (
        f"{strict}diagnose/?{payload}",
        f"{strict}diagnose/?'{payload}",
        f"{folder.as_uri()}/diagnose/index.html",
    ):
        with browser.new_context() as context:
            page = context.new_page()
            page.goto(start)
            script = page.get_attribute('[data-ro="bookmarklet"]', "href")
            elsewhere = context.new_page()
            elsewhere.set_content("<a>here</a><p>RuntimeError: x</p>")
            elsewhere.evaluate("window.open = (address) => { window.opened = address }")
            elsewhere.evaluate("script => { document.querySelector('a').href = script }", script)
            elsewhere.click("a")
            wait_until(elsewhere, "window.opened")  # what it runs comes after the click
            assert elsewhere.evaluate("window.broken") is None, start
            assert elsewhere.evaluate("window.opened") == start.partition("?")[0] + "#log="


def broken_files():
    whole = gzip.compress(LOG.encode(), 1)
    noise = random.Random(1).randbytes(300_000)
    long = gzip.compress(noise.hex().encode() + b"\n" + LOG.encode(), 1)
    damaged = bytearray(whole)
    damaged[-6] ^= 1  # of the checksum
    return {
        "cut": (long[:-9], True),
        "damaged": (bytes(damaged), True),
        "junk behind its end": (whole + b"junk", True),
        "junk behind a long one": (long + b"junk" * 9000, True),
        "two members": (gzip.compress(b"first\n") + whole, False),
        "padded": (whole + bytes(512), False),
    }


@pytest.mark.parametrize("name", broken_files())
def test_what_can_be_read_of_a_gz_is_answered(page, name):
    it = page()
    content, told = broken_files()[name]
    choose(it, "x.log.gz", content)
    assert "RO-0003" in answered(it)
    assert ("cut or damaged" in it.inner_text(".ro-answer")) == told
    assert ("cut or damaged" in it.inner_text('[data-ro="status"]')) == told


@pytest.mark.parametrize(
    "content, words",
    [
        (b"\x1f\x8b", "cannot be read"),
        (b"\x1f\x8b\x08\x00 nothing of the kind", "cannot be read"),
        (b"x" * (66 << 20), "Larger than 64 MB"),
        (gzip.compress(bytes(80 << 20), 9), "Larger than 64 MB"),
        (gzip.compress(gzip.compress(bytes(8 << 20), 9)), "binary"),
    ],
    ids=["the first two bytes", "no gzip", "large", "large when unpacked", "packed twice"],
)
def test_a_file_that_has_no_answer_takes_the_old_one_away(page, tmp_path, content, words):
    it = page()
    choose(it, "good.log", LOG.encode())
    answered(it)
    bad = tmp_path / "bad.log.gz"
    bad.write_bytes(content)
    it.set_input_files('[data-ro="file"]', bad)  # from the disk: through the driver 66 MB take minutes
    it.wait_for_selector(f'[data-ro="status"]:has-text("{words}")')
    assert "RO-0003" not in it.inner_text(".ro-answer")


def choose(page, name, content):
    page.evaluate(
        """([name, content]) => {
            const data = new DataTransfer();
            data.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], name));
            const field = document.querySelector('[data-ro="file"]');
            field.files = data.files;
            field.dispatchEvent(new Event("change"));
        }""",
        [name, base64.b64encode(content).decode()],
    )


def test_a_diagnosis_that_does_not_end_is_stopped_and_said_so(browser, strict):
    """And the next one is answered, whether it comes before that or after."""
    code = (ROOT / "docs/theme/javascripts/diagnose.js").read_text(encoding="utf-8")
    slow = re.sub(
        r"(function diagnose\(rules, log, \w+, \w+\) \{)", r'\1 while (String(log).includes("endless"));', code
    )
    assert slow != code
    with browser.new_context() as context:
        page = context.new_page()
        page.route("**/diagnose.js", lambda route: route.fulfill(body=slow, content_type="text/javascript"))
        page.add_init_script(HANDED)
        page.clock.install()
        page.goto(f"{strict}diagnose/")
        for number, again in enumerate((True, False)):
            page.fill("#ro-log", "endless")
            page.clock.run_for(PAUSE)
            wait_until(page, f"handed.length > {2 * number}")
            if again:
                page.clock.run_for(30_000)
                page.wait_for_selector('[data-ro="status"]:has-text("Stopped after 30 seconds")')
            page.fill("#ro-log", LOG)
            page.clock.run_for(PAUSE)
            assert "RO-0003" in answered(page)


@pytest.mark.parametrize("how", ["engine not loaded", "no worker", "worker does not start"])
def test_what_cannot_start_is_said_and_tried_again(browser, strict, how):
    with browser.new_context() as context:
        page = context.new_page()
        faults = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.add_init_script(
            """window.Worker = new Proxy(Worker, { construct(native, [address]) {
                if (window.works) return new native(address);
                if (window.none) throw Error("no worker");
                return new native(URL.createObjectURL(new Blob(["not a script"])));
            } })"""
        )
        page.goto(f"{strict}diagnose/")
        page.evaluate("how => { window.works = how[0] === 'e'; window.none = how[0] === 'n' }", how)
        if how == "engine not loaded":
            page.route("**/diagnose.js", lambda route: route.abort())
        page.fill("#ro-log", LOG)
        page.wait_for_selector('[data-ro="status"]:has-text("Diagnose does not work here")')
        page.unroute("**/diagnose.js")
        page.evaluate("window.works = true")
        page.fill("#ro-log", LOG + "\n")
        assert "RO-0003" in answered(page)
        assert not [fault for fault in faults if "not a script" not in fault and "Unexpected identifier" not in fault]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_half_a_letter_in_an_unknown_error(browser, strict, language):
    """The line goes into an address; a letter of two halves stands where it is cut."""
    with browser.new_context() as context:
        page = context.new_page()
        faults = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.add_init_script(
            """Object.defineProperty(window, "readyonceRules", { set(value) { this.rules_ = { ...value, issue: "https://forge.example.com/a/b/issues/new?error={}" } },
               get() { return this.rules_ } })"""
        )
        page.goto(f"{strict}{'zh/' if language == 'zh' else ''}diagnose/")
        for text in (r"ValueError: " + "x" * 187 + r"\ud83d\ude00 y", r"ValueError: half \ud83d of one"):
            page.evaluate(
                """text => { const field = document.querySelector("#ro-log"); field.value = JSON.parse(`"${text}"`);
                   field.dispatchEvent(new Event("input")) }""",
                text,
            )
            page.wait_for_selector(".ro-answer .md-button")
            assert "ValueError" in page.get_attribute('.ro-answer a[href*="issues/new"]', "href")
            page.fill("#ro-log", "")
            page.wait_for_selector(".ro-answer:empty", state="attached")
        assert not faults
