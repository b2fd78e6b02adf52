"""What `readyonce diagnose` is given: files, folders, globs, standard input, an issue."""

from __future__ import annotations

import codecs
import errno
import glob
import gzip
import json
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from readyonce.diagnose import Answer, Rules
    from readyonce.project import Language

BLOCK, STEP = 1 << 20, 1 << 16


class Unusable(Exception):
    """Bad usage: says what is wrong and what to do."""


class Missing(Unusable):
    """There is no such file."""


def names(given: list[str], terminal: bool, faults: list[str]) -> list[str]:
    """The inputs, in order: a folder stands for the files below it, a glob for what it matches.

    `faults` takes what cannot be looked into, so that the rest is still read.
    """
    if not given:
        if terminal:
            raise Unusable(
                "give a file, or pipe a log in: readyonce diagnose train.log, or ... 2>&1 | readyonce diagnose"
            )
        return ["-"]
    found: list[str] = []
    for name in given:
        if not name.strip():
            raise Unusable("a file's name is empty: is the variable set that was to hold it?")
        try:
            found += ["-"] if name == "-" else _files(name, faults)
        except ValueError:  # a zero byte
            raise Unusable(f"{shown(name[:100])} is no file's name: check the path") from None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise Missing(PASTED) from None
            faults.append(_unreadable(name, error))
    return list(dict.fromkeys(found))


PASTED = (
    "there is no such file, and this looks like a text. Pipe it in: readyonce diagnose -, then paste it and end it with Ctrl-D; "
    "or printf '%s' \"$TEXT\" | readyonce diagnose"
)


def pasted(rules: Rules, given: list[str], language: Language) -> Answer | None:
    """The answer where an error stands in place of a file's name, whole or as the words that a shell makes of it."""
    text = " ".join(given)
    if len(text.split()) < 3 or any(map(os.path.exists, given)):
        return None
    from readyonce import diagnose as engine  # most calls need none

    answer = engine.diagnose(rules, os.fsencode(text), "-", language)
    return None if answer.json["kind"] == "unknown" else answer


def _files(name: str, faults: list[str]) -> list[str]:
    try:
        mode = os.stat(name).st_mode  # unlike `exists`, it tells a missing file from one in a folder that is closed
    except (FileNotFoundError, NotADirectoryError):
        if matched := _matched(name, faults):
            return matched
        if re.search(r"\s", name) and re.search(r"Error|Exception|Traceback|:\s|\n", name):
            raise Missing(PASTED) from None
        if faults and glob.has_magic(name):
            return []
        raise Missing(f"there is no file {shown(name)}: check the path, or quote the glob") from None
    if not stat.S_ISDIR(mode):
        return [name]  # a pipe too
    below, before = [], len(faults)
    for folder, folders, files in os.walk(
        name, onerror=lambda error: faults.append(_unreadable(error.filename, error))
    ):
        folders.sort()
        below += [path for path in (os.path.join(folder, file) for file in files) if os.path.isfile(path)]
    if not below and len(faults) == before:
        raise Unusable(f"there is no file in the folder {shown(name)}")
    return sorted(str(Path(path)) for path in below)


def _matched(name: str, faults: list[str]) -> list[str]:
    """What a glob matches. glob itself passes over a folder that is closed; here it is named."""
    if not glob.has_magic(name):
        return []
    parts = Path(name).parts
    fixed = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    patterns = [os.path.join(*parts[:number], "") for number in range(fixed, len(parts)) if number]
    for folder in {folder for pattern in patterns for folder in glob.glob(pattern, recursive=True)}:
        try:
            os.scandir(folder).close()
            os.stat(os.path.join(folder, "."))
        except OSError as error:
            faults.append(_unreadable(folder, error))
    return sorted(one for one in glob.glob(name, recursive=True) if os.path.isfile(one))


def diagnose(rules: Rules, name: str, language: Language, faults: list[str]) -> Answer | None:
    """The answer for an input. `faults` takes what of it cannot be read; if that is all of it, there is no answer."""
    from readyonce import diagnose as engine  # `lint` needs the names of files only

    try:
        if name == "-":
            if sys.stdin is None:
                raise Unusable("standard input is closed: give a file, or pipe a log in")
            return engine.diagnose_stream(rules, blocks(sys.stdin.buffer), name, language)
        with open(name, "rb") as file:
            unpacked = Unpacked(file) if file.peek(2)[:2] == b"\x1f\x8b" else None
            answer = engine.diagnose_stream(rules, blocks(unpacked or file), name, language)
            if unpacked and unpacked.fault:
                if not unpacked.any:
                    faults.append(f"{shown(name)} cannot be read: {unpacked.fault}")
                    return None
                faults.append(
                    f"{shown(name)} is cut or damaged ({unpacked.fault}): the answer is for what could be read of it"
                )
            return answer
    except OSError as error:
        faults.append(_unreadable(name, error))
        return None


def _unreadable(name: str, error: OSError) -> str:
    return f"{shown(name)} cannot be read: {error.strerror or error}"


def shown(name: str) -> str:
    """A file's name, on one line."""
    return name.replace("\n", "\\n")


class Unpacked:
    """The bytes of a .gz, as far as they can be read: that of a job that was killed ends anywhere."""

    def __init__(self, file: BinaryIO):
        self.stream, self.fault, self.any = gzip.GzipFile(fileobj=file), "", False

    def read(self, size: int) -> bytes:
        # What is unpacked is handed on before it fails.
        parts, length = [], 0
        while length < size and not self.fault:
            try:
                part = self.stream.read1(STEP)
            except (EOFError, zlib.error, OSError) as error:
                if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
                    raise
                self.fault = str(error)
                break
            if not part:
                break
            self.any = True
            parts.append(part)
            length += len(part)
        return b"".join(parts)


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def blocks(stream: Readable) -> Iterator[bytes]:
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


def event(rules: Rules, name: str, language: Language | None) -> Answer:
    """The answer for the issue of a GitHub event: what its body says, else its title."""
    from readyonce import diagnose as engine

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
