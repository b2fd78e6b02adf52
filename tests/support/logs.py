"""Logs, real and made up, the expected answers, and the engine that reads them: what all tests of `diagnose` share."""

from __future__ import annotations

import json
import random
import re

from readyonce import diagnose, reading, rules
from readyonce.project import LANGUAGES
from support.project import KNOWN, TESTS, command

RULES = rules.compile_rules(KNOWN)
ENGINE = diagnose.Rules(RULES)
LOGS = sorted((TESTS / "logs").glob("*.log"))
CONFUSERS = reading.parse_yaml((TESTS / "confusers.yml").read_text(encoding="utf-8"))
MESSAGES = reading.parse_yaml((TESTS / "messages.yml").read_text(encoding="utf-8"))


def read(path):
    """(what is expected, the log); `begins` are the first letters of the winning line."""
    lines = path.read_text(encoding="utf-8").split("\n")
    head = [line[2:].strip() for line in lines if line.startswith("#?")]
    expected = reading.parse_yaml("\n".join(head))
    if line := expected.get("line"):
        expected["begins"] = letters(re.sub(r"^\[rank\d\]: *", "", lines[int(line) - 1]))[:22]
    return expected, "\n".join(lines[len(head) :])


def letters(text):
    return "".join(re.findall("[A-Za-z]", text))


def told(text, language="en"):
    return diagnose.diagnose(ENGINE, text.encode("utf-8", "replace"), "log", language)


LOG = read(next(path for path in LOGS if path.stem == "RO-0003-command-reported@flagembedding-1.4.2"))[1]


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


TITLES = {
    family: [
        it.title.en,
        *(i.meta.title[lang] for i in KNOWN.incidents.values() for lang in LANGUAGES if i.meta.errors[:1] == [family]),
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


def error(name):
    return next(entry["message"] for entry in MESSAGES if entry["family"] == name)


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


SHORTEST = [
    (family["family"], min((" ".join(it["all"] + it.get("needs", [])[:1]) for it in family["wordings"]), key=len))
    for family in RULES["families"]
]


def on_one_line(unit, size):
    return ("If you see " + (unit + " ") * (size // len(unit) + 1))[:size]


PLAIN = "[rank3]: {'step': 1234, 'tokens': 4096, 'speed': 1.25}\n"


def padded(chance, count, least):
    """(a text, the same with so much around it that it is read in parts, the lines that came before)."""
    texts = [change(read(path)[1]) for path in LOGS for change in CHANGES.values()]
    texts += [entry["message"] for entry in MESSAGES]
    texts += [text for groups in CONFUSERS.values() for group in groups.values() for text in group]
    texts += generated(seed=chance.randrange(1000), count=len(texts))
    for text in chance.sample(texts, count):
        text = f"\n{text.encode('utf-8', 'replace').decode().strip(chr(10))}\n\n"
        # The text stands across a border between two blocks, at any of its letters.
        room = diagnose.BLOCK * chance.choice((1, 2)) - chance.randrange(len(text.encode()) + 1)
        if chance.random() < 0.2:
            before = "\n" * room
        else:
            before = PLAIN * (room // len(PLAIN))
            before += "x" * (room - len(before) - 1) + "\n" * (room > len(before))
        after = PLAIN * max(4, (least - room) // len(PLAIN))
        yield f"{PLAIN * 4}{text}{PLAIN * 4}", before + text + after, before.count("\n") - 4


def shifted(answer, lines):
    for place in (answer, *answer["also"]):
        if place["line"]:
            place["line"] += lines
    return answer


def alike(large, whole, lines):
    """Words that are no exception are looked at in short texts only."""
    if whole["kind"] == "fragment" and large["kind"] == "unknown":
        whole |= {"kind": "unknown", "line": None, "words_of": []}
    return large == shifted(whole, lines)


def pasted_in_pieces(paths) -> int:
    """None holds part of an error; returns how many lines they have."""
    lines = 0
    for path in paths:
        rows = path.read_text(encoding="utf-8", errors="replace").split("\n")
        lines += len(rows)
        for at in range(0, len(rows), 400):
            answer = told("\n".join(rows[at : at + 400]))
            assert not answer.json["words_of"], (path, answer.json, answer.around)
    return lines


# ------------------------------------------------------------------------------ the command


def run(*arguments, **options):
    return command("diagnose", *map(str, arguments), **options)


def issue(tmp_path, title, body):
    path = tmp_path / "event.json"
    path.write_text(
        json.dumps({"action": "opened", "issue": {"number": 1, "title": title, "body": body}}), encoding="utf-8"
    )
    return run("--github-event", path)
