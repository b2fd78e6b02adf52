"""`diagnose` in Python and in JavaScript, held against each other; and the bench that compares what they cost."""

import json
import random
import re

import pytest

from readyonce.data.project import LANGUAGES
from readyonce.diagnose import report
from readyonce.rules import diagnose
from support.logs import (
    CHANGES,
    COMPLAINTS,
    CONFUSERS,
    CUTS,
    ENGINE,
    GUIDES,
    LEADS,
    LOGS,
    MESSAGES,
    NO_COMPLAINTS,
    NO_SIGNS,
    REPORTS,
    RULES,
    SAMPLE,
    SHORTEST,
    SIGNS,
    TITLES,
    alike,
    generated,
    on_one_line,
    padded,
    posted,
    read,
    told,
)
from support.ordinary import ERRORS, SURROUNDINGS
from support.project import KNOWN, ROOT, TESTS

CODE = (ROOT / "docs/theme/javascripts/diagnose.js").read_text(encoding="utf-8")
# What the engine does, counted, as support/steps.py does: how far expressions and `indexOf` read, and its loops and calls.
STEPS = """window.spent = { read: 0, turns: 0 };
{
    const { exec } = RegExp.prototype, { indexOf } = String.prototype;
    RegExp.prototype.exec = function (text) {
        const start = this.global || this.sticky ? this.lastIndex : 0, found = exec.call(this, text);
        spent.read += (found ? found.index + found[0].length : text.length) - start;
        return found;
    };
    String.prototype.indexOf = function (part, start = 0) {
        const found = indexOf.call(this, part, start);
        spent.read += Math.max(0, (found < 0 ? this.length : found) - start);
        return found;
    };
}"""
TURNS = (
    (r"\bwhile \(", r"while (++spent.turns, "),
    (r"(\bfor \(let [^;]*;) (?=[^;])", r"\1 ++spent.turns, "),
    (r"(?m)^( *function \w+\(.*\) \{)$", r"\1 ++spent.turns;"),
)


def engine(browser, code):
    """A page in which `engine` has loaded `rules[language]`."""
    page = browser.new_context().new_page()
    page.evaluate(f"{code}; window.make = readyonceEngine; null")
    scripts = {language: diagnose.to_script(RULES, language) for language in LANGUAGES}
    shipped = {language: json.loads(text.partition(" = ")[2].rstrip(";\n")) for language, text in scripts.items()}
    load = "data => { window.engine = make(data.en.matching); window.rules = { en: engine.load(data.en), zh: engine.load(data.zh) } }"
    page.evaluate(load, shipped)
    return page


@pytest.fixture(scope="session")
def twin(browser):
    """The engine in JavaScript: texts → JSON lines, or comments."""
    page = engine(browser, CODE)
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
    texts += GUIDES + REPORTS + COMPLAINTS + NO_COMPLAINTS + [*SIGNS, *NO_SIGNS]
    texts += [form(*error) for error in ERRORS for form in SURROUNDINGS.values()]
    texts += map(posted, SAMPLE)
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


def test_a_line_of_quoted_errors_costs_what_its_length_costs_in_the_browser_too(browser):
    counted = CODE
    for pattern, with_a_count in TURNS:
        counted, places = re.subn(pattern, with_a_count, counted)
        assert places > 3, pattern
    page = engine(browser, f"{STEPS} {counted}")
    count = (
        "text => { spent.read = spent.turns = 0; engine.diagnose(rules.en, text, 'log', 'en'); return { ...spent } }"
    )
    for name, unit in SHORTEST:
        less, more = (page.evaluate(count, on_one_line(unit, size)) for size in (10_000, 40_000))
        assert less["turns"] > 1000 and all(more[kind] < 4.5 * less[kind] for kind in more), (name, less, more)
    page.context.close()


def test_nor_in_the_browser(twin, small_blocks):
    some = list(padded(random.Random(18), 30, least=200 << 10))
    for (text, _, lines), whole, large in zip(some, twin([it[0] for it in some]), twin([it[1] for it in some])):
        assert alike(json.loads(large), json.loads(whole), lines), text


CORPUS = sorted((TESTS / "fuzz" / "corpus" / "diagnose").iterdir())


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
