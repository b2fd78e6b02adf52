"""The search field in a real browser: what readers look for stands among the first three hits.

Each test prints a line, and with `pytest -s` each query with its rank and its hits.
"""

import html
import re

import pytest
import yaml

from support.browser import wait_until, wait_until_told
from support.project import KNOWN, TESTS

PREFIX = {"en": "", "zh": "zh/"}
TYPED = yaml.safe_load((TESTS / "typed.yml").read_text(encoding="utf-8"))
HANGS = yaml.safe_load((TESTS / "hangs.yml").read_text(encoding="utf-8"))
REVIEWED = yaml.safe_load((TESTS / "reviewed.yml").read_text(encoding="utf-8"))
QUESTIONS = yaml.safe_load((TESTS / "questions.yml").read_text(encoding="utf-8"))
MESSAGES = yaml.safe_load((TESTS / "messages.yml").read_text(encoding="utf-8"))
FIELD = ".md-search__input"
# A promise that is kept when the theme has put the next list of hits together: it says how many there are, then lists them.
SHOWN = """() => {
    window.shown = new Promise(done => {
        new MutationObserver((_, observer) => {
            observer.disconnect()
            setTimeout(done)
        }).observe(document.querySelector(".md-search-result__meta"), { childList: true })
    })
}"""


@pytest.fixture(scope="module", params=["address", "disk"])
def base(request, archive) -> str:
    """Where the wiki is opened: a fixture's name for each way."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module", params=PREFIX)
def search(request, browser, base):
    """query → the pages found, best first, as in `incidents/RO-0001/`; and the language searched."""
    language = request.param
    page = browser.new_page()
    page.goto(base + PREFIX[language] + ("" if base.startswith("http") else "index.html"))
    page.keyboard.press("/")
    page.fill(FIELD, next(iter(SLIPS[language])))
    page.wait_for_selector(
        ".md-search-result__item"
    )  # which it has once slips are mended: nothing searches again by itself

    def asked() -> str:
        return page.evaluate(f"document.querySelector('{FIELD}').value")  # as the theme reads it

    def find(query: str) -> list[str]:
        before = asked()
        page.evaluate(SHOWN)
        page.fill(FIELD, query)
        if asked() != before:  # else its hits stand there, and the theme lists nothing anew
            page.evaluate("window.shown")
        links = page.eval_on_selector_all(
            ".md-search-result__item", "items => items.map(item => item.querySelector('a').href)"
        )
        return [name_of(link.removeprefix(base + PREFIX[language])) for link in links]

    find.page = page
    yield find, language
    page.close()


def name_of(link: str) -> str:
    """The page of a hit; in the offline copy pages are files."""
    page = re.sub(r"[?#].*", "", link)
    return re.sub(r"(^|/)index\.html$", r"\1", page).replace(".html", "/")


def answers(page: str, wanted: set[str]) -> bool:
    """Whether the page is one of those; an incident's page of all its claims answers as the article does."""
    return page in wanted or page.endswith("/claims/") and page.removesuffix("claims/") in wanted


def judge(capsys, search, what: str, queries: list[tuple[str, set[str]]], least: float = 1) -> None:
    """At least that share of the queries has a right page among the first three."""
    find, language = search
    assert queries
    lines, ranks = [], []
    for query, wanted in queries:
        found = find(query)
        rank = next((number for number, page in enumerate(found, 1) if answers(page, wanted)), None)
        ranks.append(rank)
        lines.append(f"{rank or '-':>4}  {query[:100]}    {' '.join(found[:3])}")
    missed = [line for line, rank in zip(lines, ranks) if not rank or rank > 3]
    first, three = (sum(bool(rank) and rank <= limit for rank in ranks) for limit in (1, 3))
    with capsys.disabled():
        print(f"\nsearch, {language}, {what}: of {len(ranks)}, first {first}, in the first three {three}")
    print("\n".join(lines))
    assert three >= least * len(ranks), "\n".join(missed)


@pytest.mark.parametrize("language", PREFIX.values())
def test_what_is_typed_before_all_scripts_have_come_is_found(browser, address, language):
    """On a slow line: what stands in the field is searched for when all have come, and each hyphen is no operator."""
    held = []
    with browser.new_context() as context:
        page = context.new_page()
        page.route("**/javascripts/search.js", lambda route: held.append(route))
        page.goto(address + language, wait_until="commit")
        page.click(FIELD)
        page.keyboard.insert_text("--gradient_checkpointing")
        wait_until_told(page, lambda: held)
        assert not page.evaluate("'component$' in window")
        held[0].continue_()
        page.wait_for_selector(".md-search-result__link")
        wait_until(page, "window.readyonceTypos !== undefined")


@pytest.mark.parametrize("language", PREFIX)
def test_a_slip_that_is_typed_before_the_index_has_come_is_mended(browser, disk, language):
    """A paste is one event: nobody types on until the index is there."""
    held = []
    with browser.new_context() as context:
        page = context.new_page()
        page.route("**/search_index.js", lambda route: held.append(route))
        page.goto(f"{disk}{PREFIX[language]}index.html")
        page.keyboard.press("/")
        page.fill(FIELD, next(iter(SLIPS[language])))
        wait_until_told(page, lambda: held)
        wait_until(page, "window.readyonceTypos !== undefined")
        held[0].continue_()
        page.wait_for_selector(".md-search-result__item")


def test_ids(capsys, search):
    judge(capsys, search, "ids", [(id, {f"incidents/{id}/"}) for id in KNOWN.incidents])


@pytest.mark.parametrize("base", ["address"], indirect=True)
def test_error_texts(capsys, search):
    """Wordings, messages from logs and threads, and one message of each family from each incident's runs."""
    texts = {" ".join(wording.all): family.family for family in KNOWN.families.values() for wording in family.wordings}
    lines = [entry for entry in MESSAGES if "\n" not in entry["message"]]  # a log of several lines is for Diagnose
    texts |= {entry["message"]: entry["family"] for entry in lines}
    for incident in KNOWN.incidents.values():
        runs = [run for evidence in incident.evidence.values() for run in evidence.runs if run.error]
        texts |= {run.message: run.error for run in {run.error: run for run in runs}.values()}
    judge(
        capsys,
        search,
        "error texts",
        [(" ".join(text.split()), {KNOWN.families[name].path}) for text, name in texts.items()],
        least=0.98,  # a whole message is for Diagnose, where none may be missed; here its words compete with each new page's
    )


def test_options_that_mend(capsys, search):
    """The option that is an incident's fix: one of the incidents that it mends."""
    named: dict[str, set[str]] = {}
    for incident in KNOWN.incidents.values():
        for option in re.findall(r"--[\w-]+", incident.meta.fix.option or ""):
            named.setdefault(option, set()).add(f"incidents/{incident.id}/")
    judge(capsys, search, "options that mend", list(named.items()))


def test_options(capsys, search, built):
    """Every option and setting that a page names; a right page is one that names it.

    The index holds words, not options: `--node-rank` is `node` and `rank`, of which hundreds of paragraphs speak.
    """
    names: set[str] = set()
    texts: dict[str, str] = {}
    folder = built / PREFIX[search[1]]
    for path in sorted(folder.rglob("*.html")):
        page = path.relative_to(folder).as_posix().removesuffix("index.html")
        if page == "404.html" or (search[1] == "en" and page.startswith("zh/")):
            continue
        texts[page] = html.unescape(re.sub(r"<[^>]*>", "", path.read_text(encoding="utf-8")))
        for code in re.findall(r"<code>([^<]+)</code>", path.read_text(encoding="utf-8").replace("<wbr>", "")):
            names |= set(re.findall(r"--[a-z][\w-]+|^[a-z]+(?:_[a-z]+)+(?=$|=\w+$)", html.unescape(code)))
    names -= {"--on", "--since", "--all", "--in"}  # English stop words, which the search leaves out
    names -= {"--out"}  # a word of half the pages
    named = {name: {page for page, text in texts.items() if name in text} for name in sorted(names)}
    judge(capsys, search, "options", list(named.items()), least=0.98)


def test_tags(capsys, search):
    """Framework, strategy, hardware, symptom: an incident that has the tag, or the page of all tags."""
    tags: dict[str, set[str]] = {}
    for incident in KNOWN.incidents.values():
        for tag in incident.meta.tags.all(search[1]):
            tags.setdefault(tag, set()).add(f"incidents/{incident.id}/")
    frameworks = {name for incident in KNOWN.incidents.values() for name in incident.meta.tags.framework}
    judge(
        capsys,
        search,
        "tags",
        [(tag, pages | (set() if tag in frameworks else {"tags/"})) for tag, pages in sorted(tags.items())],
    )


def test_questions(capsys, search):
    questions = QUESTIONS[search[1]]
    assert len(questions) >= 20
    judge(capsys, search, "questions", [(asked, set(pages)) for asked, pages in questions.items()], least=0.95)


def test_what_reviewers_typed(capsys, search):
    judge(capsys, search, "reviewed", [(typed, set(pages)) for typed, pages in REVIEWED[search[1]].items()], least=0.95)


def test_what_people_type_about_hangs_and_starts(capsys, search):
    assert sum(map(len, HANGS.values())) == 30
    judge(capsys, search, "hangs", [(typed, set(pages)) for typed, pages in HANGS[search[1]].items()], least=0.93)


def test_what_people_type(search):
    """Of fifty in each language, 48 and 50 when this was written."""
    find, language = search
    typed = TYPED[language]
    missed = [query for query, pages in typed.items() if not any(answers(page, {*pages}) for page in find(query)[:3])]
    assert len(typed) == 50 and len(missed) <= {"en": 3, "zh": 2}[language], missed


def test_every_page_asked_for_exists(root):
    for language, questions in [*QUESTIONS.items(), *TYPED.items(), *REVIEWED.items()]:
        for page in {page for pages in questions.values() for page in pages}:
            source = root / "docs" / language / page.rstrip("/")
            assert source.with_suffix(".md").is_file() or (source / "index.md").is_file(), page


SLIPS = {
    "en": {
        "reentrent": "reentrant",
        "gradeint checkpointing": "gradient",
        "find_unused_paramters": "find_unused_parameters",
        "deepspeeed zero3": "deepspeed",
        "deepsped": "deepspeed",
        "reentarnt": "reentrant",
        "zerro": "zero",
    },
    "zh": {"reentrent": "reentrant", "torchrunn": "torchrun", "deepspeeed": "deepspeed", "zerro": "zero"},
}
# Words that are right, most of which no page has.
RIGHT = """ascend metal flash stuck stall fixed masked point white black story react apple stopped stopping crashes crashing
hanging running masked layers weights batches tokens kernels launcher launched cached caching hidden states tensorflow
horovod colossal llama gemma falcon mixtral whisper diffusion quantize quantized adafactor warmup cosine wandb slurm
docker jetson xformers liger ollama sglang deepseek hunyuan kimi ernie paddle megengine reentran checkpoin"""


@pytest.mark.parametrize("base", ["address"], indirect=True)  # from the disk: the test below reads one
def test_a_slip_is_read_as_the_word(search):
    """What is left out, put in, changed or swapped; a word that the index has is read as typed."""
    find, language = search
    for typed, meant in SLIPS[language].items():
        find(typed)
        assert find.page.inner_text(".ro-read").endswith(meant)
        found = find(typed.replace(typed.split()[0], meant))
        assert found and find.page.is_hidden(".ro-read") and find(typed)[:3] == found[:3], typed


def test_a_right_word_is_read_as_typed(search):
    find, language = search
    slip = next(iter(SLIPS[language]))
    read = {}
    for word in [*RIGHT.split(), slip]:
        find(word)
        if find.page.is_visible(".ro-read"):
            read[word] = find.page.inner_text(".ro-read")
    assert read.keys() == {slip}, read


def test_where_nothing_is_found_other_pages_are_offered(search, base):
    find, language = search
    assert not find("qqqqqq")
    links = find.page.eval_on_selector_all(".md-search-result__meta a", "links => links.map(link => link.href)")
    assert [name_of(link.removeprefix(base + PREFIX[language])) for link in links] == [
        "diagnose/",
        "errors/",
        "symptoms/",
        "decision/",
    ]
    assert find("DDP") and not find.page.locator(".md-search-result__meta a:visible").count()
    # Nearly every query finds dozens of pages: their number says nothing.
    assert not re.search(r"\d", find.page.inner_text(".md-search-result__meta"))


@pytest.mark.parametrize("base", ["address"], indirect=True)  # from the disk it is the same index
def test_no_hit_shows_the_name_of_a_run(search):
    """Of runs named by several words: a name such as `eager` is a word of its own. Listings of code have them: a lab book's
    repro, and the example for contributors."""
    find, language = search
    names = "|".join({name for it in KNOWN.incidents.values() for name in it.variants if name.count("-") > 1})
    named = re.compile(rf"(?<![\w-])(?:{names})(?![\w-])")
    for query in [*REVIEWED[language], *TYPED[language]]:
        find(query)
        shown = find.page.eval_on_selector_all(
            ".md-search-result__item",
            "items => items.filter(it => !/evidence|contributing/.test(it.querySelector('a').href)).map(it => it.textContent)",
        )
        assert not (found := named.findall(" ".join(shown))), (query, found)


def test_chinese_is_led_to_the_chinese_pages(search, browser):
    find, language = search
    for query in ("梯度检查点 reentrant", "断点续训", "版本"):
        found = find(query)
        link = find.page.query_selector(".ro-read a")
        if language == "zh":
            assert found and link is None
            continue
        page = browser.new_page()
        page.goto(link.get_property("href").json_value())
        page.wait_for_selector(".md-search-result__item")
        assert page.evaluate("document.documentElement.lang").startswith("zh")
        page.close()


def test_words_that_end_in_digits_are_kept_apart(search):
    """lunr's names of nodes ran together: a search for what begins so found nothing (`postprocess.search_worker`)."""
    find, _ = search
    for typed in ("DeepSpeed", "deepspeed.i", "deepspeed_", "torch", "transformers", "ZeRO", "NCCL", "FSDP"):
        assert find(typed), typed
