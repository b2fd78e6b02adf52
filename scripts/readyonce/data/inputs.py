"""What a command is given to read: files, folders, globs, standard input, packed files."""

from __future__ import annotations

import codecs
import errno
import glob
import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

BLOCK, STEP = 1 << 20, 1 << 16
UNPACKED, GROWN = 1 << 30, 250  # a packed file may hold so many bytes, or so many times its own


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
            faults.append(unreadable(name, error))
    return list(dict.fromkeys(found))


PASTED = (
    "there is no such file, and this looks like a text. Pipe it in: readyonce diagnose -, then paste it and end it with Ctrl-D; "
    "or printf '%s' \"$TEXT\" | readyonce diagnose"
)


OPENED = re.compile("/dev/(?:fd/|std)|/proc/(?:self|[0-9]+)/fd/")  # what a shell opened, as for `<(zcat a.log.gz)`


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
        if not stat.S_ISREG(mode) and not OPENED.match(name) and os.path.realpath(name) != os.devnull:
            raise Unusable(
                f"{shown(name)} is no file but a pipe or a device, which may never end. "
                "Save what it holds in a file, and give that one"
            )
        return [name]
    below, before = [], len(faults)
    for folder, folders, files in os.walk(name, onerror=lambda error: faults.append(unreadable(error.filename, error))):
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
            faults.append(unreadable(folder, error))
    return sorted(one for one in glob.glob(name, recursive=True) if os.path.isfile(one))


def unreadable(name: str, error: OSError) -> str:
    return f"{shown(name)} cannot be read: {error.strerror or error}"


def words(error: Exception) -> str:
    """What an error says, on one line; one that says nothing is called by its name."""
    return " ".join(str(error).split()) or type(error).__name__


def shown(name: str) -> str:
    """A file's name, on one line."""
    return name.replace("\n", "\\n")


class Room:
    """How much may still be unpacked of a packed file, with all that is packed in it: a few bytes may stand for any number."""

    def __init__(self, file: IO[bytes]):
        try:
            size = os.fstat(file.fileno()).st_size
        except (OSError, AttributeError):  # no file of this machine
            size = getattr(file, "size", None) or 0
        self.most = self.left = max(UNPACKED, GROWN * size)

    def take(self, size: int) -> str:
        """Empty, or why there has to be an end."""
        self.left -= size
        return (
            "" if self.left >= 0 else f"stopped after {self.most:,} bytes, far more than a log of its packed size has"
        )


def damage(fault: str) -> str:
    return f"is too large ({fault})" if fault.startswith("stopped after ") else f"is cut or damaged ({fault})"


class Unpacked:
    """The bytes of a .gz, as far as they can be read: that of a job that was killed ends anywhere."""

    def __init__(self, file: IO[bytes], room: Room):
        self.stream, self.fault, self.any, self.room = gzip.GzipFile(fileobj=file), "", False, room

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
            self.fault = self.room.take(len(part))
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
