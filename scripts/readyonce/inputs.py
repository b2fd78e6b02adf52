"""What `readyonce diagnose` is given: files, folders, globs, standard input, an issue."""

from __future__ import annotations

import codecs
import glob
import gzip
import json
import os
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from readyonce import diagnose as engine

BLOCK = 1 << 20


class Unusable(Exception):
    """Bad usage: says what is wrong and what to do."""


def names(given: list[str], terminal: bool) -> list[str]:
    """The inputs, in order: a folder stands for the files below it, a glob for what it matches."""
    if not given:
        if terminal:
            raise Unusable(
                "give a file, or pipe a log in: readyonce diagnose train.log, or ... 2>&1 | readyonce diagnose"
            )
        return ["-"]
    found: list[str] = []
    for name in given:
        path = Path(name)
        if name == "-" or path.is_file():
            found.append(name)
        elif path.is_dir():
            below = sorted(str(one) for one in path.rglob("*") if one.is_file())
            if not below:
                raise Unusable(f"there is no file in the folder {name}")
            found += below
        elif matched := sorted(one for one in glob.glob(name, recursive=True) if os.path.isfile(one)):
            found += matched
        elif path.exists():
            found.append(name)  # a pipe, for one
        else:
            raise Unusable(f"there is no file {name}: check the path, or quote the glob")
    return list(dict.fromkeys(found))


def diagnose(rules: engine.Rules, name: str, language: str) -> engine.Answer:
    try:
        if name == "-":
            return engine.diagnose_stream(rules, _blocks(sys.stdin.buffer), name, language)
        with open(name, "rb") as file:
            zipped = file.peek(2)[:2] == b"\x1f\x8b"
            with gzip.open(file) if zipped else file as stream:
                return engine.diagnose_stream(rules, _blocks(stream), name, language)
    except (OSError, EOFError, zlib.error) as error:
        raise Unusable(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _blocks(stream) -> Iterator[bytes]:
    """The bytes of a file; those of UTF-16 (a redirect in PowerShell) as UTF-8."""
    block = stream.read(BLOCK)
    if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        while block:
            yield decoder.decode(block).encode("utf-8", "replace")
            block = stream.read(BLOCK)
    while block:
        yield block
        block = stream.read(BLOCK)


def event(rules: engine.Rules, name: str, language: str | None) -> engine.Answer:
    """The answer for the issue of a GitHub event: what its body says, else its title."""
    try:
        issue = json.loads(Path(name).read_text(encoding="utf-8"))["issue"]
        title, body = (issue.get(key) or "" for key in ("title", "body"))
        body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)  # a form's own hints
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unusable(f"{name} is not an event of an issue: it needs `issue` with `title` and `body`") from None
    chinese = len(re.findall("[\u4e00-\u9fff]", title + body)) > 15
    language = language or ("zh" if chinese else "en")
    told = [engine.diagnose(rules, text.encode("utf-8", "replace"), name, language) for text in (body, title)]
    # Titles often name another error than the log: they count only where the body has none.
    return told[1] if told[0].json["error"] is None and told[1].json["error"] else told[0]
