"""Error families: real messages, each recognised as one family and no other.

`messages.yml` has messages as they stand in logs and threads; runs bring their own.
"""

import hashlib
import re
from collections import Counter

import pytest

from readyonce.data import reading, schema
from readyonce.data.project import LANGUAGES
from readyonce.diagnose import engine as diagnose
from readyonce.pages.errors import ErrorPage
from support.logs import ENGINE, SAMPLE, SAMPLES, posted
from support.project import KNOWN, ROOT, TESTS

MESSAGES = reading.parse_yaml((TESTS / "messages.yml").read_text(encoding="utf-8"))


def test_message_is_of_its_family():
    wrong = [(it, found) for it in MESSAGES if (found := KNOWN.family_of(it["message"])) != it["family"]]
    assert not wrong


@pytest.mark.parametrize("name", KNOWN.families)
def test_every_wording_is_that_of_a_real_message(name):
    """A wording that no message has could be wrong, and nobody would know."""
    messages = [entry["message"] for entry in MESSAGES if entry["family"] == name]
    messages += [
        run.message
        for incident in KNOWN.incidents.values()
        for evidence in incident.evidence.values()
        for run in evidence.runs
        if run.error == name
    ]
    minimal = [incident.minimal.fails for incident in KNOWN.incidents.values() if incident.minimal]
    messages += [run.said for run in minimal if run.error == name]
    for wording in KNOWN.families[name].wordings:
        assert any(schema._wording_matches(wording, message) for message in messages), wording.all


def test_the_public_reports_are_of_families_that_exist():
    reports = reading.parse_yaml((TESTS / "reports.yml").read_text(encoding="utf-8"))
    named = {name for kind in ("logs", "titles", "sentences") for name in reports[kind]}
    assert named <= set(KNOWN.families)


def test_the_sample_of_threads_is_counted_as_its_head_and_the_page_say():
    path = TESTS / "wild" / "first.yml"
    sample = reading.parse_yaml(text := path.read_text(encoding="utf-8"))
    judged = Counter(thread["judged"] for thread in sample)
    assert len(sample) == 60 == len({thread["link"] for thread in sample}) and judged.total() == 60
    assert {thread["family"] for thread in sample if "family" in thread} <= set(KNOWN.families)
    for kind in ("family", "exception", "partly", "nothing", "misled"):
        assert f"{kind} {judged[kind]}" in text
    for language in LANGUAGES:
        page = (ROOT / "docs" / language / "diagnose.md").read_text(encoding="utf-8")
        section = page[page.index("{#wild}") :].partition("\n#")[0].partition("\n\n")[2]
        trust = [int(number) for number in re.findall(r"\d+", section.partition("\n\n")[0])]
        assert trust == [
            60,
            judged["family"],
            judged["exception"],
            judged["partly"],
            judged["nothing"],
            judged["misled"],
        ]


WORDS = ("right", "leads", "doors", "misled")


def test_the_second_sample_is_counted_as_its_head_and_the_page_say():
    counts = []
    for half, text, of_half in halves("second"):
        answered = sum(thread["before"] == "answer" for thread in of_half)
        judged = Counter(thread["judged"] for thread in of_half)
        each = [judged[word] for word in WORDS]
        head = "before, answer {} of 50; after, right {}, leads {}, doors {}, misled {}".format(answered, *each)
        assert f"{half}: {head}" in text
        counts = [answered, *each]
    assert numbers_on_the_page(1) == [[100, 50, *counts]] * len(LANGUAGES)


def test_the_third_sample_is_counted_as_its_head_and_the_page_say():
    held = []
    for half, text, of_half in halves("third"):
        for field, when in (("before", "before"), ("judged", "after")):
            judged = Counter(thread[field] for thread in of_half)
            assert f"{half}: {when}, " + ", ".join(f"{word} {judged[word]}" for word in WORDS) in text
            held = [judged[word] for word in WORDS]
    assert numbers_on_the_page(2) == [[60, 30, 30, *held]] * len(LANGUAGES)


def halves(name):
    """(`open` or `held`, the sample's text, the threads of that half), by the hash of a thread's link."""
    threads, text = SAMPLES[name], (TESTS / "wild" / f"{name}.yml").read_text(encoding="utf-8")
    others = [parsed(each) for each in ("first", "second", "third") if each != name]
    assert len({it["link"] for it in threads} - {it["link"] for other in others for it in other}) == len(threads)
    by_hash = sorted(threads, key=lambda thread: hashlib.sha256(thread["link"].encode()).hexdigest())
    size = len(threads) // 2
    assert [thread["half"] for thread in by_hash] == ["open"] * size + ["held"] * size
    return [(half, text, [it for it in threads if it["half"] == half]) for half in ("open", "held")]


def parsed(name):
    return reading.parse_yaml((TESTS / "wild" / f"{name}.yml").read_text(encoding="utf-8"))


def numbers_on_the_page(paragraph):
    """The first numbers of a paragraph on what people really report, in each language."""
    found = []
    for language in LANGUAGES:
        page = (ROOT / "docs" / language / "diagnose.md").read_text(encoding="utf-8")
        section = page[page.index("{#wild}") :].partition("\n#")[0].split("\n\n")[1:]
        found.append([int(number) for number in re.findall(r"\d+", section[paragraph])][:7])
    return found


@pytest.mark.parametrize("thread", [pytest.param(thread, id=thread["link"][8:]) for thread in SAMPLE])
def test_a_thread_of_a_sample_is_answered_as_noted(thread):
    """No family is claimed that is not noted; a change of rules shows whose answer changes."""
    answer = diagnose.diagnose(ENGINE, posted(thread).encode())
    told, given = answer.json, []
    if told["kind"] == "unknown":
        given = [sign["page"] for sign in told["silent"]] or [answer.note] if answer.note else []
    if told["exception"]:
        given = [f"exception {told['exception']['class']}"]
    if told["kind"] == "wrapper-only":
        given = ["wrapper-only"]
    assert (thread.get("answer") or []) == ([told["error"]] if told["error"] else given)


@pytest.mark.parametrize("name", [name for name, family in KNOWN.families.items() if family.yields])
def test_a_consequence_gives_way_to_the_cause(name):
    beside = next(entry["message"] for entry in MESSAGES if entry["family"] == name)
    for other in MESSAGES:
        if not KNOWN.families[other["family"]].yields:
            assert KNOWN.family_of(f"{beside}\n{other['message']}") == other["family"]


STRATEGIES = {"fsdp1": "FSDP1", "fsdp2": "FSDP2", "zero-3": "ZeRO-3"}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", [name for name, family in KNOWN.families.items() if family.page == "look-alikes"])
def test_a_text_that_names_a_sharding_strategy_names_each_that_was_seen_with_it(name, language):
    seen = {it.facts.get("strategy") for it in KNOWN.observed if it.run.error == name} & set(STRATEGIES)
    text = getattr(KNOWN.families[name].text, language)
    named = {strategy for strategy, word in STRATEGIES.items() if word in text}
    assert not named or seen <= named


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_wording_that_ends_in_a_colon_has_one(language):
    pages = ErrorPage(KNOWN, language)
    families = [family for family in KNOWN.families.values() if family.page == "look-alikes"]
    assert any(wording.all[-1].endswith(":") for family in families for wording in family.wordings)
    for family in families:
        assert not re.search(r"^- .*?[:：]`[:：]", pages.look_alike(family), re.MULTILINE), family.family


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_collective_that_timed_out_has_steps_with_commands(language):
    """A reader whose job hangs can paste them: a search of the logs, the guard, triage."""
    shown = ErrorPage(KNOWN, language).look_alike(KNOWN.families["nccl-watchdog"])
    steps = re.findall(r"^(\d)\. .*\n\n    ```bash\n    (\S+)(?:.*\n)+?    ```$", shown, re.MULTILINE)
    assert steps == [("1", "grep"), ("2", "python"), ("3", "readyonce")]
    assert "symptoms.md#hangs" in shown
    assert not re.search(r"^    ```\n\n- ", shown, re.MULTILINE)  # Markdown would number the texts on
