"""`diagnose` in Python and in JavaScript, held against each other; and the bench that compares what they cost."""

import json
import random
import time

import pytest

from readyonce import report, rules
from readyonce.project import LANGUAGES
from support.logs import (
    CHANGES,
    CONFUSERS,
    CUTS,
    ENGINE,
    LEADS,
    LOGS,
    MESSAGES,
    RULES,
    SHORTEST,
    TITLES,
    alike,
    generated,
    on_one_line,
    padded,
    read,
    told,
)
from support.project import KNOWN, ROOT, TESTS


@pytest.fixture(scope="session")
def twin(browser):
    """The engine in JavaScript: texts → JSON lines, or comments."""
    page = browser.new_context().new_page()
    page.evaluate(
        (ROOT / "docs/theme/javascripts/diagnose.js").read_text(encoding="utf-8") + "; window.make = readyonceEngine"
    )
    scripts = {language: rules.to_script(RULES, language) for language in LANGUAGES}
    shipped = {language: json.loads(text.partition(" = ")[2].rstrip(";\n")) for language, text in scripts.items()}
    load = "data => { window.engine = make(); window.rules = { en: engine.load(data.en), zh: engine.load(data.zh) } }"
    page.evaluate(load, shipped)
    script = """([texts, language, comment]) => texts.map((text) => {
        const told = engine.diagnose(rules[language], text, "log", language);
        return comment ? engine.markdown(rules[language], told, language) : JSON.stringify(told.json);
    })"""
    yield lambda texts, language="en", comment=False: page.evaluate(script, [texts, language, comment])
    page.context.close()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_both_engines_say_the_same_of_every_fixture(twin, language):
    texts = [change(read(path)[1]) for path in LOGS for change in CHANGES.values()]
    texts += ["\n".join(cut(read(path)[1].split("\n"))) for path in LOGS for cut in CUTS.values()]
    texts += [entry["message"] for entry in MESSAGES]
    texts += [text for groups in CONFUSERS.values() for group in groups.values() for text in group]
    texts += [lead + title for lead in LEADS for titles in TITLES.values() for title in titles]
    texts += [entry["message"][:end] for entry in MESSAGES for end in range(10, 150, 7)]
    texts += ["x)\n".join([*look.all, ""]) for it in KNOWN.incidents.values() for look in it.meta.look]
    assert twin(texts, language) == [told(text, language).to_json() for text in texts]
    some = texts[:: len(CHANGES) - 1] + texts[-40:]
    assert twin(some, language, comment=True) == [
        report.markdown(ENGINE, told(text, language), language) for text in some
    ]


def test_both_engines_say_the_same_of_anything(twin):
    texts = list(generated(seed=5, count=10_000))
    for at in range(0, len(texts), 1000):
        some = texts[at : at + 1000]
        assert twin(some) == [told(text).to_json() for text in some]


def test_the_same_in_the_browser(twin):
    def seconds(size):
        texts = [on_one_line(unit, size) for _, unit in SHORTEST]
        start = time.perf_counter()
        twin(texts)
        return time.perf_counter() - start

    seconds(20_000)
    assert seconds(160_000) < 16 * seconds(40_000) + 2


def test_nor_in_the_browser(twin, small_blocks):
    some = list(padded(random.Random(18), 30, least=200 << 10))
    for (text, _, lines), whole, large in zip(some, twin([it[0] for it in some]), twin([it[1] for it in some])):
        assert alike(json.loads(large), json.loads(whole), lines), text


CORPUS = sorted((TESTS / "fuzz" / "corpus").iterdir())


def test_what_once_broke_it(twin):
    """What `make fuzz` found, and what was found by hand."""
    texts = [path.read_bytes().decode("utf-8", "replace") for path in CORPUS]
    assert texts and twin(texts) == [told(text).to_json() for text in texts]


@pytest.mark.parametrize("power, code", [(1, 0), (1.25, 0), (2, 1)])
def test_the_bench_fails_where_time_grows_faster_than_the_text(monkeypatch, power, code):
    monkeypatch.syspath_prepend(TESTS / "bench")
    import repeated

    def both(_, start, unit, size):
        return 1e-6 * size, 1e-6 * size * (size / repeated.SIZES[0]) ** (power - 1)

    monkeypatch.setattr(repeated, "both", both)
    monkeypatch.setattr(repeated, "memory", lambda folder: None)
    monkeypatch.setattr("sys.argv", ["repeated.py", "ddp-ready-twice"])
    assert repeated.main() == code
