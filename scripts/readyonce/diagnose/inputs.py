"""The answers to what `readyonce diagnose` is given: files, pasted text, an issue."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from readyonce.data.inputs import Missing, Room, Unpacked, Unusable, blocks, damage, names, shown, unreadable

if TYPE_CHECKING:
    from readyonce.data.project import Language
    from readyonce.diagnose.engine import Answer, Rules


def answers(
    rules: Rules, given: list[str], language: Language, faults: list[str], say: Callable[[str], None]
) -> Iterator[Answer]:
    """The answer for each input, one after the other. `faults` takes what cannot be read; `say` tells a reading that may
    surprise. Raises `Unusable` where there is nothing to read."""
    try:
        found = names(given, sys.stdin is not None and sys.stdin.isatty(), faults)
    except Missing:
        if not (answer := pasted(rules, given, language)):
            raise
        say("there is no such file: read as the text of an error")
        yield answer
        return
    for name in found:
        if answer := diagnose(rules, name, language, faults):
            yield answer


def pasted(rules: Rules, given: list[str], language: Language) -> Answer | None:
    """The answer where an error stands in place of a file's name, whole or as the words that a shell makes of it."""
    text = " ".join(given)
    if len(text.split()) < 3 or any(map(os.path.exists, given)):
        return None
    from readyonce.diagnose import engine  # most calls need none

    answer = engine.diagnose(rules, os.fsencode(text), "-", language)
    return None if answer.json["kind"] == "unknown" else answer


def diagnose(rules: Rules, name: str, language: Language, faults: list[str]) -> Answer | None:
    """The answer for an input. `faults` takes what of it cannot be read; if that is all of it, there is no answer."""
    from readyonce.diagnose import engine  # `lint` needs the names of files only

    try:
        if name == "-":
            if sys.stdin is None:
                raise Unusable("standard input is closed: give a file, or pipe a log in")
            return engine.diagnose_stream(rules, blocks(sys.stdin.buffer), name, language)
        with open(name, "rb") as file:
            unpacked = Unpacked(file, Room(file)) if file.peek(2)[:2] == b"\x1f\x8b" else None
            answer = engine.diagnose_stream(rules, blocks(unpacked or file), name, language)
            if unpacked and unpacked.fault:
                if not unpacked.any:
                    faults.append(f"{shown(name)} cannot be read: {unpacked.fault}")
                    return None
                faults.append(f"{shown(name)} {damage(unpacked.fault)}: the answer is for what could be read of it")
            return answer
    except OSError as error:
        faults.append(unreadable(name, error))
        return None


def event(rules: Rules, name: str, language: Language | None) -> Answer:
    """The answer for the issue of a GitHub event: what its body says, else its title."""
    from readyonce.diagnose import engine

    try:
        issue = json.loads(Path(name).read_text(encoding="utf-8"))["issue"]
        title, body = (issue.get(key) or "" for key in ("title", "body"))
        body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)  # a form's own hints
        chinese = len(re.findall("[\u4e00-\u9fff]", title + body)) > 15
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unusable(f"{name} is not an event of an issue: it needs `issue` with `title` and `body`") from None
    language = language or ("zh" if chinese else "en")
    answers = [engine.diagnose(rules, text.encode("utf-8", "replace"), name, language) for text in (body, title)]
    # Titles often name another error than the log: they count only where the body has none.
    return answers[1] if answers[0].json["error"] is None and answers[1].json["error"] else answers[0]
