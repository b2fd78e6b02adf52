"""`diagnose`: real logs, texts that only look like them, and both engines held against each other.

`logs/` has real logs, each with the expected answer in lines that begin with `#?`; `messages.yml` has texts from threads and
sources; `confusers.yml` has what must not be taken for an error.
"""

import gzip
import json
import os
import random
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from conftest import KNOWN, ROOT, command, edit

from readyonce import catalog, diagnose, report, rules
from readyonce.catalog import LANGUAGES

RULES = rules.compile_rules(KNOWN)
ENGINE = diagnose.Rules(RULES)
LOGS = sorted((ROOT / "tests" / "logs").glob("*.log"))
CONFUSERS = catalog.parse_yaml((ROOT / "tests" / "confusers.yml").read_text(encoding="utf-8"))
MESSAGES = catalog.parse_yaml((ROOT / "tests" / "messages.yml").read_text(encoding="utf-8"))


def read(path):
    """(what is expected, the log); `begins` are the first letters of the winning line."""
    lines = path.read_text(encoding="utf-8").split("\n")
    head = [line[2:].strip() for line in lines if line.startswith("#?")]
    expected = catalog.parse_yaml("\n".join(head))
    if line := expected.get("line"):
        expected["begins"] = letters(re.sub(r"^\[rank\d\]: *", "", lines[int(line) - 1]))[:22]
    return expected, "\n".join(lines[len(head) :])


def letters(text):
    return "".join(re.findall("[A-Za-z]", text))


def told(text, language="en"):
    return diagnose.diagnose(ENGINE, text.encode("utf-8", "replace"), "log", language)


# ------------------------------------------------------------------------------ what may happen to a log


def wrapped(text, width):
    return "\n".join(line[at : at + width] for line in text.split("\n") for at in range(0, max(1, len(line)), width))


def before_each(text, prefix):
    return "\n".join(prefix + line for line in text.split("\n"))


def without_ranks(text):
    return re.sub(r"(?m)^\[rank\d\]: ?", "", text)


def interleaved(text):
    """Two ranks write the same, line by line in turn."""
    lines = without_ranks(text).split("\n")
    return "\n".join(f"[rank{rank}]: {line}" for line in lines for rank in (0, 1))


def apart(text, width=80):
    """Letters lost where lines are wrapped, as in a transcription."""
    return "\n".join(
        line[at : at + width - 1] if at + width < len(line) else line[at:]
        for line in text.split("\n")
        for at in range(0, max(1, len(line)), width)
    )


CHANGES = {
    "as it is": lambda text: text,
    "wrapped at 80": lambda text: wrapped(text, 80),
    "wrapped at 132": lambda text: wrapped(text, 132),
    "wrapped at 97, quoted": lambda text: before_each(wrapped(text, 97), "> "),
    "prefixed": lambda text: before_each(text, "[rank3]: "),
    "prefixed twice": lambda text: before_each(text, "[default0]:[rank0]: "),
    "prefixed, wrapped at 80": lambda text: wrapped(before_each(text, "[default0]:[rank0]: "), 80),
    "wrapped at 80, prefixed": lambda text: before_each(wrapped(text, 80), "[default0]:[rank0]: "),
    "timestamps": lambda text: before_each(text, "2025-03-11T10:00:00.1234567Z "),
    "timestamps, wrapped at 80": lambda text: before_each(wrapped(text, 80), "2025-03-11 10:00:00,123 - ERROR - "),
    "coloured": lambda text: "\n".join(f"\x1b[31m{line}\x1b[0m" for line in text.split("\n")),
    "coloured in the middle": lambda text: re.sub(r"(\w\w\w)(?= )", "\x1b[1;31m\\1\x1b[0m", text),
    "colours without escape": lambda text: "\n".join(f"[31m{line}[0m" for line in text.split("\n")),
    "quoted": lambda text: before_each(text, "> "),
    "quoted as headings": lambda text: before_each(text, "# "),
    "quoted twice": lambda text: before_each(text, "> > "),
    "in a code fence": lambda text: f"I get this error:\n```\n{text}\n```\nAny idea?",
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "after a progress bar": lambda text: (
        "Train:  12%|█▏   | 12/100 [00:10<01:20]\r" + text.replace("\n", "\n 13%|█▎ |\r")
    ),
    "interleaved": interleaved,
    "interleaved, wrapped at 80": lambda text: wrapped(interleaved(text), 80),
    "many spaces": lambda text: re.sub(r"(?<=\w) (?=\w)", " " * 13, text),
    "curly quotes": lambda text: re.sub(r"'(\w+)'", "\u2018\\1\u2019", text),
    "no-break spaces": lambda text: text.replace(" ", "\u00a0"),
}
CUTS = {"first 30 lines": lambda lines: lines[:30], "last 30 lines": lambda lines: lines[-30:]}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_log(path, change):
    expected, text = read(path)
    text = CHANGES[change](text)
    answer = told(text)
    assert answer.json["kind"] == expected["kind"]
    assert answer.json["error"] == expected.get("error")
    if "incident" in expected:
        assert [entry["id"] for entry in answer.json["incidents"]][0] == expected["incident"]
    if "line" in expected and "middle" not in change:
        winning = re.sub(r"\x1b\[[0-9;]*m", "", text.split("\n")[answer.json["line"] - 1])
        # Where the message does not stand at the start of its line, a wrap may have put it into the next.
        assert expected["begins"] in letters(winning) or "wrapped" in change and letters(winning)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_line(path):
    """The file as it stands, with the answer in its first lines."""
    expected, _ = read(path)
    assert diagnose.diagnose(ENGINE, path.read_bytes()).json["line"] == (
        int(expected["line"]) if "line" in expected else None
    )


def test_letters_lost_at_the_wrap():
    """Rare and hopeless now and then, as where a wording's first letters are lost: few may be missed, none be another."""
    widths, logs = (68, 72, 80, 100, 132, 136), [read(path) for path in LOGS]
    wanted = [expected.get("error") for expected, _ in logs for _ in widths]
    found = [told(apart(log, width)).json["error"] for _, log in logs for width in widths]
    assert all(error in (None, name) for error, name in zip(found, wanted))
    assert sum(error == name for error, name in zip(found, wanted)) >= 0.85 * len(found)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_part_of_a_log(path, cut):
    """Half a log has the same answer, if the message is in it; else the launcher's, or none. Never another one."""
    expected, text = read(path)
    part = "\n".join(CUTS[cut](text.rstrip("\n").split("\n")))
    answer = told(part)
    if answer.json["error"] != expected.get("error"):
        assert answer.json["error"] is None
        assert expected["begins"] not in letters(part) or expected["begins"].startswith("assert")
    if cut.startswith("last") and answer.json["error"] is None:
        assert answer.json["kind"] == (
            "wrapper-only" if "ChildFailedError" in part or "got signal" in part else "unknown"
        )


@pytest.mark.parametrize("entry", MESSAGES, ids=lambda entry: entry["family"])
@pytest.mark.parametrize("change", ["as it is", "wrapped at 80", "prefixed", "CRLF", "coloured", "quoted"])
def test_message(entry, change):
    answer = told(CHANGES[change](entry["message"]))
    assert answer.json["error"] == entry["family"]


@pytest.mark.parametrize(
    "family, kind, text",
    [
        pytest.param(family, kind, text, id=f"{family}-{kind}-{number}")
        for family, groups in CONFUSERS.items()
        for kind, texts in groups.items()
        for number, text in enumerate(texts)
    ],
)
def test_confuser_is_no_hit(family, kind, text):
    for change in ("as it is", "CRLF", "coloured", "prefixed"):
        assert told(CHANGES[change](text)).json["kind"] == "unknown", change


@pytest.mark.parametrize("family", KNOWN.families)
def test_family_has_a_fixture_a_confuser_and_a_near_miss(family):
    fixtures = [read(path)[0].get("error") for path in LOGS] + [entry["family"] for entry in MESSAGES]
    assert family in fixtures
    assert CONFUSERS[family]["mentions"] and CONFUSERS[family]["near"]


def test_source_code_of_the_libraries_is_no_hit():
    """The files that raise these errors speak of all of them."""
    found = []
    for name in (
        "torch/utils/checkpoint.py",
        "torch/nn/parallel/distributed.py",
        "torch/distributed/fsdp/_flat_param.py",
        "deepspeed/runtime/engine.py",
        "deepspeed/runtime/zero/stage3.py",
        "deepspeed/runtime/zero/stage_1_and_2.py",
        "transformers/integrations/accelerate.py",
    ):
        found += [path for path in (os.path.join(folder, name) for folder in sys.path) if os.path.isfile(path)][:1]
    assert found, "none of the libraries is installed: pip install -r tests/requirements.txt"
    for path in found:
        with open(path, "rb") as file:
            assert diagnose.diagnose(ENGINE, file.read()).json["kind"] == "unknown", path


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.as_posix()[-40:])
def test_our_own_pages_are_no_hit(path):
    """But for a look-alike's page, whose title is the error's text: that is of its own family, or of none."""
    answer = diagnose.diagnose(ENGINE, path.read_bytes())
    own = {path.stem} if KNOWN.is_generated(path) else set()
    assert answer.json["error"] in {None, *own}, (answer.json, answer.around)
    if answer.json["words_of"]:  # a page on an error, whose title that is
        assert {*answer.json["words_of"]} & {path.stem, *_errors_of(path)}, (answer.json, answer.around)


def _errors_of(path):
    return next((it.file.errors for id, it in KNOWN.incidents.items() if id in path.as_posix()), ())


# ------------------------------------------------------------------------------ part of an error's text

TITLES = {
    family: [
        it.title.en,
        *(i.file.title[lang] for i in KNOWN.incidents.values() for lang in LANGUAGES if i.file.errors[:1] == [family]),
    ]
    for family, it in KNOWN.families.items()
}
LEADS = [
    "",
    "RuntimeError: ",
    "[rank0]: RuntimeError: ",
    "报错：",
    "报错：RuntimeError: ",
    "> [rank1]: AssertionError: ",
]


@pytest.mark.parametrize("family", KNOWN.families)
def test_a_title_is_known_or_belongs_to_its_error(family):
    for title in TITLES[family]:
        for lead in LEADS:
            for end in ("", "…", "?", "。"):
                answer = told(lead + title + end).json
                assert answer["error"] == family or answer["words_of"] == [family], (lead + title + end, answer)


@pytest.mark.parametrize("family", KNOWN.families)
def test_a_line_cut_at_the_edge_belongs_to_its_error(family):
    """From the first 30 letters of a message on, wherever it is cut; some texts begin as others do."""
    for wording in KNOWN.families[family].wordings:
        line = wording.all[0]
        if wording.needs or line.startswith("assert"):
            continue
        for end in range(30, len(line)):
            answer = told("Traceback (most recent call last):\n  ...\n[rank0]: RuntimeError: " + line[:end]).json
            if line[:end].strip() not in sum(TITLES.values(), []):  # the whole title of another, maybe
                assert answer["error"] == family or family in answer["words_of"], (line[:end], answer)
            assert answer["kind"] != "fragment" or answer["line"] == 3


@pytest.mark.parametrize(
    "text, families",
    [
        ("The parameter 447 has already been reduced", ["zero-reduced-twice"]),
        ("AssertionError: The parameter visual.blocks.0.attn.qkv.weight has already been red", ["zero-reduced-twice"]),
        ("got [0] but expected shape compatible with", ["zero3-empty-gradient"]),
        ("ready only once\nExpected to mark a variable ready only on", ["ddp-ready-twice"]),
        ("Must flatten tensors with uniform", ["fsdp-dtype", "fsdp-requires-grad"]),
        # Something else, or too little.
        ("RuntimeError: Expected to mark a variable ready only one time", []),
        ("The parameter 447 has already been registered", []),
        ("The parameter", []),
        ("RuntimeError: The size of tensor a (4) must match the size of tensor b (8) at non-singleton dimension 1", []),
        ("The size of tensor a (4) must match the size of tensor b", []),
        # Another error comes first.
        ("torch.OutOfMemoryError: CUDA out of memory.\nExpected to mark a variable ready only once", []),
        # Somebody writes about it.
        ("If you see\n\nExpected to mark a variable ready only once\n\nread on.", []),
        ("## Expected to mark a variable ready only once\n\nA guide.", []),
        ("- RuntimeError: Expected to mark a variable ready only once", []),
        ('raise RuntimeError(\n    "Expected to mark a variable ready only once"\n)', []),
    ],
)
def test_part_of_an_error(text, families):
    answer = told(text).json
    assert answer["words_of"] == families
    assert answer["kind"] == ("fragment" if families else "unknown")
    assert answer["error"] is None and answer["incidents"] == [] and answer["fix"] is None


def test_an_exception_that_is_cut_in_a_large_log():
    """Only its own line is asked there, and it is not called an error of somebody else."""
    log = (
        "{'loss': 0.5}\n" * 100_000
        + "Expected to mark a variable ready only once\n"
        + "RuntimeError: Expected to mark a variable rea\n"
    )
    answer = told(log)
    assert (answer.json["kind"], answer.json["line"]) == ("fragment", 100_002)
    assert answer.json["words_of"] == ["ddp-ready-twice"] and answer.note is None


def test_ordinary_text_holds_no_part_of_an_error():
    """Source, also of the libraries that raise these errors, notes and logs of other failures, in pieces as people paste."""
    paths = [*(ROOT / "scripts").rglob("*.py"), *(ROOT / "tests").glob("*.py"), ROOT / "README.md", ROOT / "LICENSE"]
    for name in (
        "torch/nn/parallel/*.py",
        "torch/utils/checkpoint.py",
        "torch/distributed/fsdp/*.py",
        "deepspeed/runtime/zero/*.py",
    ):
        paths += [path for folder in sys.path for path in Path(folder).glob(name)]
    paths += [path for path in LOGS if read(path)[0]["kind"] in ("unknown", "wrapper-only")]
    lines = 0
    for path in paths:
        if path.name == "test_diagnose.py":  # the texts above
            continue
        rows = path.read_text(encoding="utf-8", errors="replace").split("\n")
        lines += len(rows)
        for at in range(0, len(rows), 400):
            answer = told("\n".join(rows[at : at + 400]))
            assert not answer.json["words_of"], (path, answer.json, answer.around)
    assert lines >= 2000


def test_the_words_for_part_of_an_error():
    answer = told("RuntimeError: Expected to mark a variable ready only once")
    for language, words in (("en", "not a whole error line"), ("zh", "不是完整的一行报错")):
        assert words in report.text(ENGINE, answer, language) and words in report.markdown(ENGINE, answer, language)


# ------------------------------------------------------------------------------ all of a text, and what is not known


def test_every_known_error_of_a_text_is_told_by_its_line():
    ours, other = error("zero-reduced-twice").strip(), error("no-grad-fn").strip()
    text = f"{ours}\nstep\n{other}\n{error('inputs-without-grad')}"
    answer = told(text)
    assert answer.json["error"] == "zero-reduced-twice"
    (also,) = answer.json["also"]  # a warning is no error
    assert also["name"] == "no-grad-fn" and "grad_fn" in text.split("\n")[also["line"] - 1]
    assert f"line {also['line']}" in report.text(ENGINE, answer, "en")
    assert f"第 {also['line']} 行" in report.markdown(ENGINE, answer, "zh")
    large = told("x\n" * (1 << 20) + text + "\n" + "y\n" * (1 << 20))
    assert large.json["also"] == [{"name": "no-grad-fn", "line": also["line"] + (1 << 20)}]


@pytest.mark.parametrize(
    "text, covered",
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", False),
        ("[rank0]: Traceback (most recent call last):\n[rank0]: ValueError: bad config", False),
        ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2013, remote process exited", None),
        ("no error at all", None),
    ],
)
def test_an_error_that_is_not_covered_is_told_so(text, covered):
    answer = told(text)
    words = report.text(ENGINE, answer, "en")
    assert answer.json["kind"] == "unknown" and (answer.note == "not-covered") == (covered is False)
    assert ("does not cover" in words) == (covered is False)
    assert ("Look further up" in words) == (covered is None)


def test_a_text_without_an_error_leads_to_the_guard():
    """For whom nothing failed and who doubts the gradients; an error that is somebody else's does not."""
    engine = diagnose.Rules(RULES | {"site": "https://wiki.example"})
    for text, led in (("no error at all", True), ("torch.OutOfMemoryError: CUDA out of memory.", False)):
        words = report.text(engine, diagnose.diagnose(engine, text.encode()), "en")
        assert ("https://wiki.example/guard/" in words) == led


@pytest.mark.parametrize("data, words", [(b"", "empty"), (b" \n", "empty"), (b"\x89PNG\0\0", "binary")])
def test_nothing_to_read_is_told_without_talk_of_tracebacks(data, words):
    text = report.text(ENGINE, diagnose.diagnose(ENGINE, data), "en")
    assert words in text and "raceback" not in text


# ------------------------------------------------------------------------------ which answer


def error(name):
    return next(entry["message"] for entry in MESSAGES if entry["family"] == name)


@pytest.mark.parametrize("name", [name for name, family in KNOWN.families.items() if not family.yields])
def test_the_first_cause_wins(name):
    """Whatever follows from it, and whatever was warned of before."""
    logs = [read(path) for path in LOGS]
    text = next((text for expected, text in logs if expected.get("error") == name), None) or error(name)
    noise = error("inputs-without-grad")
    assert told(f"{noise}\n{text}\n{error('nccl-watchdog')}").json["error"] == name
    assert told(f"{error('nccl-watchdog')}\n{text}").json["error"] == name
    other = "no-grad-fn" if name != "no-grad-fn" else "weight-not-2d"
    assert told(f"{text}\n{error(other)}").json["error"] == name


def test_a_mention_before_the_error_does_not_win():
    guide = "If you get `RuntimeError: 'weight' must be 2-D`, initialise the reference model.\n\nHere is my log:\n\n"
    _, text = read(next(path for path in LOGS if path.stem == "RO-0002-reported"))
    assert told(guide + text).json["error"] == "ddp-ready-twice"


@pytest.mark.parametrize(
    "text, kind",
    [
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n====\ntrain.py FAILED", "wrapper-only"),
        ("Signal 9 (SIGKILL) received by PID 4711", "wrapper-only"),
        (
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -6) local_rank: 0 (pid: 16) of binary: /bin/python",
            "wrapper-only",
        ),
        (
            "[2025-03-11 10:00:00,123] [ERROR] [launch.py:325:sigkill_handler] exits with return code = -9",
            "wrapper-only",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory.\nChildFailedError:\n", "unknown"),
        ("ValueError: bad config\n", "unknown"),
        ("", "unknown"),
        ("\0\1\2 RuntimeError: Expected to mark a variable ready only once.", "unknown"),
    ],
)
def test_kind(text, kind):
    answer = told(text)
    assert answer.json["kind"] == kind and answer.json["error"] is None and answer.json["incidents"] == []


def test_the_launcher_says_which_rank():
    _, text = read(next(path for path in LOGS if path.stem == "weight-not-2d"))
    answer = told(text[text.index("torch.distributed.elastic.multiprocessing.errors.ChildFailedError") :])
    assert answer.json["kind"] == "wrapper-only" and answer.rank in ("0", "1")
    words = report.text(ENGINE, answer, "en")
    assert f"rank {answer.rank}" in words and "TORCHELASTIC_ERROR_FILE" in words and "@record" in words


def test_json_has_the_agreed_keys_and_no_other_family():
    for path in LOGS:
        expected, text = read(path)
        answer = json.loads(told(text).to_json())
        assert list(answer) == ["file", "kind", "error", "line", "words_of", "also", "incidents", "look", "fix"]
        assert all(set(entry) == {"name", "line"} for entry in answer["also"])
        assert all(set(entry) == {"id", "why"} for entry in answer["incidents"])


# ------------------------------------------------------------------------------ both engines


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
    assert twin(texts, language) == [told(text, language).to_json() for text in texts]
    some = texts[:: len(CHANGES) - 1] + texts[-40:]
    assert twin(some, language, comment=True) == [
        report.markdown(ENGINE, told(text, language), language) for text in some
    ]


def generated(seed, count):
    """Texts made of the rules' own literals, broken and mixed with what logs are full of."""
    chance = random.Random(seed)
    words = [literal for family in RULES["families"] for wording in family["wordings"] for literal in wording["all"]]
    words += RULES["launcher"] + RULES["guides"][:8] + RULES["notes"][:8] + RULES["progress"]
    words += ["RuntimeError: ", "AssertionError", "Traceback (most recent call last):", "raise ", "KeyError: 'x'"]
    noise = [
        "\n",
        "\n",
        "\r\n",
        "\r",
        " ",
        "  ",
        "\t",
        "[rank0]: ",
        "[default1]:[rank1]: ",
        "\x1b[31m",
        "\x1b[0m",
        "\x1b[",
        "> ",
        "# ",
    ]
    noise += [
        '"',
        "'",
        "`",
        "(",
        ")",
        "\\",
        "%",
        "é",
        "中文",
        "\u2028",
        "\u00a0",
        "\U0001f600",
        "0",
        "x",
        "E  ",
        "2025-03-11 10:00:00,1 ",
    ]
    for _ in range(count):
        parts = []
        for _ in range(chance.randrange(1, 14)):
            word = (
                chance.choice(words)
                if chance.random() < 0.45
                else chance.choice(noise) * chance.choice((1, 1, 1, 2, 9))
            )
            if chance.random() < 0.3 and len(word) > 3:
                at = chance.randrange(1, len(word))
                word = word[:at] + chance.choice(noise) + word[at + chance.randrange(0, 4) :]
            parts.append(word)
        yield "".join(parts)


def test_both_engines_say_the_same_of_anything(twin):
    texts = list(generated(seed=5, count=10_000))
    for at in range(0, len(texts), 1000):
        some = texts[at : at + 1000]
        assert twin(some) == [told(text).to_json() for text in some]


@pytest.mark.parametrize(
    "unit",
    [
        "Expected",
        "Expected\n",
        "The parameter",
        "The parameter has already\n",
        "\x1b[",
        "\x1b[0;",
        "[rank0]:",
        "a.",
        "EI0002 ",
        '"',
        "> ",
    ]
    + [
        "a" * 60 + "\n",
        "RuntimeError: Expected to mark a variable ready only\n",
        "[",
        "2025-03-11 10:00:00 ",
        "E  E  ",
    ],
    ids=repr,
)
def test_time_grows_with_the_length_only(unit):
    def seconds(size):
        text = (unit * (size // len(unit) + 1))[:size]
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            told(text)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(200_000) < 8 * seconds(50_000) + 0.2


# ------------------------------------------------------------------------------ the command


def run(*arguments, **options):
    return command("diagnose", *map(str, arguments), **options)


CODES = {"known": 0, "look-alike": 0, "fragment": 1, "unknown": 1, "wrapper-only": 3}


@pytest.mark.parametrize("path", LOGS[::7], ids=lambda path: path.stem)
@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_command(tmp_path, path, form):
    expected, text = read(path)
    log = tmp_path / "train.log"
    log.write_text(text, encoding="utf-8")
    said = run(log, "--format", form)
    assert said.returncode == CODES[expected["kind"]], said.stderr
    if form == "json":
        assert json.loads(said.stdout)["error"] == expected.get("error")
    elif expected.get("error"):
        assert KNOWN.families[expected["error"]].title.en in said.stdout
    piped = run("-", "--format", form, input=text)
    assert piped.stdout == said.stdout.replace(str(log), "-")


def test_part_of_an_error_is_no_diagnosis_for_a_program():
    said = run("-", "--format", "json", input="RuntimeError: Expected to mark a variable ready only once")
    assert said.returncode == CODES["fragment"]
    assert json.loads(said.stdout)["words_of"] == ["ddp-ready-twice"]


def test_folders_globs_and_gzip(tmp_path):
    _, text = read(LOGS[0])
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text(text, encoding="utf-8")
    with gzip.open(tmp_path / "logs" / "b.log.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    (tmp_path / "logs" / "c.log").write_bytes(b"\xff\xfe" + text.encode("utf-16-le"))
    for given in (tmp_path / "logs", tmp_path / "logs" / "*"):
        lines = [json.loads(line) for line in run(given, "--format", "json").stdout.splitlines()]
        assert [line["error"] for line in lines] == ["ddp-ready-twice"] * 3
        assert [line["file"] for line in lines] == [
            str(tmp_path / "logs" / name) for name in ("a.log", "b.log.gz", "c.log")
        ]


@pytest.mark.parametrize(
    "content",
    [b"", b" \n\n", bytes(range(256)) * 99, b"\xff\xfe\xfa" * 999, b"x" * 6_000_000, b"\x1f\x8b broken", b"\xe4\xb8"],
    ids=["empty", "blank", "binary", "undecodable", "one huge line", "broken gzip", "half a character"],
)
@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_bad_input_gets_an_answer(tmp_path, content, form):
    path = tmp_path / "input"
    path.write_bytes(content)
    said = run(path, "--format", form)
    assert said.returncode in (1, 2) and "Traceback" not in said.stderr
    assert said.stdout.strip() or said.stderr.strip()


@pytest.mark.parametrize(
    "arguments", [["no-such-file.log"], ["--github-event", "no-such-file.json"], ["--format", "xml"]]
)
def test_bad_usage(arguments):
    said = run(*arguments)
    assert said.returncode == 2 and said.stderr.strip() and "Traceback" not in said.stderr


def test_a_large_log_has_the_answer_of_a_small_one(tmp_path):
    """Above 1 MiB only parts are read in full; line and answer are the same."""
    chance = random.Random(7)
    line = "[rank{}]: {{'loss': {:.4f}, 'grad_norm': {:.3f}, 'learning_rate': 1e-05, 'epoch': {:.2f}}}\n"
    before = [
        line.format(chance.randrange(8), chance.random(), chance.random(), chance.random()) for _ in range(90_000)
    ]
    decoy = "WARNING: find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters\n"
    before[30_000] = decoy
    before[60_000] = "INFO If you see `RuntimeError: Expected to mark a variable ready only once.` read the guide\n"
    for path in LOGS:
        expected, text = read(path)
        if "error" not in expected or expected["error"] == "inputs-without-grad":
            continue
        big = ("".join(before) + text).encode()
        assert len(big) > diagnose.WHOLE
        answer = diagnose.diagnose(ENGINE, big)
        small = told(text)
        assert answer.json["error"] == expected["error"], path.stem
        assert answer.json["line"] == small.json["line"] + len(before)
        assert (answer.json["line"], small.around[3][1]) in answer.around or len(small.around) < 4


def issue(tmp_path, title, body):
    path = tmp_path / "event.json"
    path.write_text(
        json.dumps({"action": "opened", "issue": {"number": 1, "title": title, "body": body}}), encoding="utf-8"
    )
    return run("--github-event", path)


def test_comment_for_an_issue(tmp_path):
    _, text = read(next(path for path in LOGS if path.stem == "RO-0003-reported"))
    body = f"<!-- e.g. RuntimeError: 'weight' must be 2-D -->\nSince yesterday:\n\n```\n{text}\n```\n\nHelp!"
    said = issue(tmp_path, "RuntimeError: 'weight' must be 2-D", body)
    assert said.returncode == 0 and "RO-0003" in said.stdout and "2-D" not in said.stdout
    chinese = issue(
        tmp_path, "训练报错", f"多卡训练第一步反向传播就报错，单卡没有问题，请问怎么解决：\n```\n{text}\n```"
    )
    assert "可能性大的在前" in chinese.stdout
    by_title = issue(tmp_path, "RuntimeError: 'weight' must be 2-D", "See the title.")
    assert by_title.returncode == 0 and "2-D" in by_title.stdout
    nothing = issue(tmp_path, "A question", "How do I install it?")
    assert nothing.returncode == 1 and not nothing.stdout
    no_body = issue(tmp_path, "A question", None)
    assert no_body.returncode == 1 and not no_body.stdout


def test_a_comment_cannot_be_broken_out_of(tmp_path):
    said = issue(tmp_path, "x", "RuntimeError: 'weight' must be 2-D ``````` @everyone <img src=x>")
    fence = re.search(r"(?m)^(`{3,})text\n.*\n\1$", said.stdout)
    assert fence and len(fence[1]) > 7


def test_a_log_gives_no_orders_to_the_terminal(tmp_path):
    path = tmp_path / "log"
    path.write_text("\x1b]0;title\x07\x1b[2J\nRuntimeError: 'weight' must be 2-D\x9b31m", encoding="utf-8")
    for form in ("text", "json", "markdown"):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", run(path, "--format", form).stdout)


NAMES = [
    b"\x1b]0;title\x07\x1b[2Jx.log",
    "x\u009b31m\u202egol.log".encode(),
    b"\xff\xfe.log",
    b"line\nbreak\rx.log",
    b"<script>alert(1)<img src=x onerror=alert(1)>.log",
    b"```\n@everyone",
    b"--x\x1b[2J",
]


@pytest.mark.parametrize("name", NAMES, ids=repr)
@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_a_file_name_gives_no_orders(tmp_path, form, name):
    name = os.fsdecode(name)
    path = tmp_path / name
    path.write_text("RuntimeError: 'weight' must be 2-D", encoding="utf-8")
    broken = path.with_name(f"{name}.gz")
    broken.write_bytes(b"\x1f\x8b broken")
    given = [[path], [tmp_path], [broken], [tmp_path / f"no {name}"], [f"--{name}"], ["--github-event", path]]
    for number, arguments in enumerate(given):
        said = run("--format", form, *arguments, errors="surrogateescape")
        assert "Traceback" not in said.stderr and said.returncode in (0, 2)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\udc80-\udcff]", said.stdout + said.stderr)
        if form == "json" and number == 0:
            assert json.loads(said.stdout)["file"] == str(path)


def test_diagnose_imports_nothing_heavy(tmp_path):
    path = tmp_path / "log"
    path.write_text(error("no-grad-fn"), encoding="utf-8")
    run(path)  # compiles the rules, if they are older than their sources
    script = (
        f"import sys; from readyonce import cli; cli.main(['diagnose', {str(path)!r}]);"
        "print(sorted({'torch', 'yaml', 'pydantic', 'mkdocs'} & set(sys.modules)), file=sys.stderr)"
    )
    said = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert said.stderr.strip() == "[]"


def test_the_rules_are_small():
    assert all(len(rules.to_script(RULES, language).encode()) < 44_000 for language in LANGUAGES)


def test_wheel_works_without_project_and_dependencies(tmp_path):
    """In an environment that has nothing else, away from the checkout."""
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    made = subprocess.run(build, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    guard = "readyonce_guard.py"  # `from readyonce_guard import watch`; it stands in git once
    assert (tmp_path / "site" / guard).read_bytes() == (ROOT / "snippets" / "guard" / guard).read_bytes()
    (tmp_path / "train.log").write_text(read(LOGS[0])[1], encoding="utf-8")
    away = {key: value for key, value in os.environ.items() if not key.startswith(("READYONCE", "PYTHON"))}

    def readyonce(*arguments):
        # -S -I: neither site-packages nor this checkout can be seen.
        script = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); from readyonce.cli import main; sys.exit(main())"
        return subprocess.run(
            [sys.executable, "-I", "-S", "-c", script, *arguments],
            cwd=tmp_path,
            env=away,
            capture_output=True,
            text=True,
        )

    said = readyonce("diagnose", "train.log", "--format", "json")
    assert said.returncode == 0 and json.loads(said.stdout)["error"] == "ddp-ready-twice", said.stderr
    for language in ("en", "zh"):
        article = readyonce("explain", "RO-0001", "--lang", language)
        assert article.returncode == 0 and KNOWN.incidents["RO-0001"].file.title[language] in article.stdout
    assert readyonce("explain", "RO-9999").returncode == 2
    (tmp_path / "train.sh").write_text("NPROC_PER_NODE=2 swift sft --model m\n", encoding="utf-8")
    (hook,) = catalog.parse_yaml((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, *words = hook["entry"].split()
    said = readyonce(*words, "--with", "ms-swift==3.5.3", "train.sh")
    assert program == "readyonce" and said.returncode == 1 and "[ddp-ready-twice]" in said.stdout, said.stderr


# ------------------------------------------------------------------------------ compiled rules are never stale


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "scripts" / "readyonce" / "rules.py").touch(),
        lambda root: edit(root / "snippets" / "errors" / "no-grad-fn.yml", "no-grad-fn", "no-grad-fn"),
        lambda root: (root / "snippets" / "errors" / "fsdp-dtype.yml").unlink(),
    ],
    ids=["code", "signature", "deletion"],
)
def test_what_is_older_than_its_sources_is_compiled_again(copy, change):
    compiled, package = copy / "build" / "rules.json", {"PYTHONPATH": str(copy / "scripts")}
    assert command("diagnose", "-", root=copy, environment=package, input="fine\n").returncode == 1
    compiled.write_text('{"families": []}', encoding="utf-8")
    change(copy)
    done = command("diagnose", "-", root=copy, environment=package, input="fine\n")
    assert done.returncode == 1, done.stderr
    assert "path" in json.loads(compiled.read_text(encoding="utf-8"))["families"][0]
