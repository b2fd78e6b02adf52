"""What `readyonce triage` is given: folders, globs, archives, packed files, addresses of object stores; and their bytes.

All is streamed: nothing is unpacked to the disk, no file is held whole.
"""

from __future__ import annotations

import glob
import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any

from readyonce.data import inputs
from readyonce.data.scheduler import HOW

GZIP, ZSTD, ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"


def expand(given: list[str], faults: list[str]) -> dict[str, int]:
    """name → size in bytes, of every file that is meant; raises inputs.Unusable where there is none."""
    found: dict[str, int] = {}
    for name in given:
        if "://" in name:
            found |= _remote(name)
            continue
        for path in inputs.names([name], True, faults):
            if path == "-":
                raise inputs.Unusable(
                    "triage reads files, not standard input: for one log there is `readyonce diagnose`"
                )
            try:
                size = os.stat(path).st_size
            except OSError:  # it is named when it is opened
                size = 0
            found[path.replace(os.sep, "/")] = size
    return found


def _remote(address: str) -> dict[str, int]:
    scheme = address.partition("://")[0]
    try:
        import fsspec
    except ImportError:
        raise inputs.Unusable(f"{inputs.shown(address)} needs fsspec. Install it: {HOW}") from None
    try:
        system, path = fsspec.core.url_to_fs(address)
        names = system.glob(path, detail=True) if glob.has_magic(path) else system.find(path, detail=True)
        sizes = {
            system.unstrip_protocol(info["name"]): info["size"] or 0
            for info in names.values()
            if info["type"] == "file"
        }
    except ImportError as error:
        raise inputs.Unusable(f"{scheme}:// needs a package of its own. {error}") from None
    except ValueError as error:
        raise inputs.Unusable(f"{inputs.shown(address)} is no address that fsspec knows: {error}") from None
    except Exception as error:  # each store has its own
        raise inputs.Unusable(f"{inputs.shown(address)} cannot be listed: {inputs.words(error)}") from None
    if not sizes:
        raise inputs.Unusable(f"there is no file at {inputs.shown(address)}: check the path, or quote the glob")
    return sizes


def reason(error: Exception) -> str:
    """Why a file cannot be read."""
    return str(getattr(error, "strerror", None) or inputs.words(error))


class Blocks:
    """The bytes of one file, in blocks. `fault` says afterwards why they end too early."""

    def __init__(self, stream: Any, fault: str = ""):
        self._stream, self.fault = stream, fault

    def __iter__(self) -> Iterator[bytes]:
        yield from inputs.blocks(self)
        self.fault = self.fault or getattr(self._stream, "fault", "")

    def read(self, size: int) -> bytes:
        """What comes before an error is handed on; a package of compression has errors of its own."""
        parts: list[bytes] = []
        try:
            while size > 0 and not self.fault and (part := self._stream.read1(min(size, inputs.STEP))):
                parts.append(part)
                size -= len(part)
        except Exception as error:
            self.fault = reason(error)
        return b"".join(parts)


def files(name: str) -> Iterator[tuple[str, Blocks]]:
    """(name, bytes) of each file in `name`: itself, or what an archive holds; the bytes are read before the next. Raises OSError."""
    with _opened(name) as raw:
        yield from _within(name, raw, inputs.Room(raw))


def _opened(name: str) -> IO[bytes]:
    if "://" not in name:
        return open(name, "rb")
    import fsspec

    opened: IO[bytes] = fsspec.open(name, "rb").open()
    return opened


def _within(name: str, raw: IO[bytes], room: inputs.Room) -> Iterator[tuple[str, Blocks]]:
    stream: Any = raw if hasattr(raw, "peek") else io.BufferedReader(_Raw(raw.read))
    if stream.peek(4)[:4] == ZIP and raw.seekable():
        raw.seek(0)
        yield from _zipped(name, raw, room)
        return
    bare, unpacked = name, None
    for magic, ending, opener in ((GZIP, ".gz", inputs.Unpacked), (ZSTD, ".zst", _Unzstd)):
        if stream.peek(4)[: len(magic)] == magic:
            unpacked = opener(stream, room)
            buffered = io.BufferedReader(_Raw(unpacked.read), 1 << 17)
            bare = name.removesuffix(ending)
            if not _is_tar(buffered):
                yield bare, Blocks(_Both(buffered, unpacked))
                return
            stream = buffered
    if _is_tar(stream):
        yield from _tarred(name, stream, room)
        if fault := getattr(unpacked, "fault", ""):
            raise OSError(None, f"the archive {inputs.damage(fault)}")
    else:
        yield bare, Blocks(stream)


class _Raw(io.RawIOBase):
    """What `read` tells, which may be more than it was asked for."""

    def __init__(self, read: Callable[[int], bytes]):
        self._read, self._left = read, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._left or self._read(len(buffer))
        size = min(len(data), len(buffer))
        buffer[:size], self._left = data[:size], data[size:]
        return size


class _Both:
    """Reads from a buffer, and tells of the fault below it."""

    def __init__(self, stream: Any, below: Any):
        self.read1, self._below = stream.read1, below

    @property
    def fault(self) -> str:
        return str(getattr(self._below, "fault", ""))


class _Unzstd:
    """The bytes of a .zst, of one frame or more. zstandard's own reader does not tell of one that is cut."""

    def __init__(self, stream: IO[bytes], room: inputs.Room):
        try:
            import zstandard
        except ImportError:
            raise OSError(None, f"a .zst needs the package zstandard: {HOW}") from None
        self._stream, self._room, self._error, self.fault = stream, room, zstandard.ZstdError, ""
        self._begin = zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._rest = b""

    def read(self, size: int) -> bytes:
        data = b""
        while not data and not self.fault:
            # Little at a time: a piece may grow by a factor of thousands.
            if not (piece := self._rest or self._stream.read(1024)):
                self.fault = "it ends inside a frame" if self._frame else ""
                break
            self._frame = self._frame or self._begin()
            try:
                data = self._frame.decompress(piece)
            except self._error as error:
                self.fault = str(error)
                break
            if fault := self._room.take(len(data)):
                self.fault, data = fault, data[: self._room.left]  # so many too many
            self._rest = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        return data


def _is_tar(stream: Any) -> bool:
    return bool(stream.peek(512)[257:262] == b"ustar")


def _tarred(name: str, stream: Any, room: inputs.Room) -> Iterator[tuple[str, Blocks]]:
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if member.isfile() and (file := archive.extractfile(member)):
                    # It is read forwards only, so a .zip in it is not looked into.
                    opened = partial(io.BufferedReader, _Raw(file.read))
                    yield from _member(f"{name}/{member.name.removeprefix('./')}", opened, room)
    except (tarfile.TarError, EOFError) as error:
        raise OSError(None, f"the archive {inputs.damage(room.take(0) or str(error))}") from None


def _zipped(name: str, raw: IO[bytes], room: inputs.Room) -> Iterator[tuple[str, Blocks]]:
    try:
        with zipfile.ZipFile(raw) as archive:
            for member in archive.infolist():
                if not member.is_dir():
                    # Members may share their bytes, so that what each unpacks counts.
                    yield from _member(f"{name}/{member.filename}", partial(_counted, archive, member, room), room)
                if room.left < 0:
                    raise OSError(None, f"the archive {inputs.damage(room.take(0))}")
    except (zipfile.BadZipFile, EOFError) as error:
        raise OSError(None, f"the archive is cut or damaged ({error})") from None


def _counted(archive: zipfile.ZipFile, member: zipfile.ZipInfo, room: inputs.Room) -> io.BufferedReader:
    file = archive.open(member)

    def read(size: int) -> bytes:
        data = file.read(size)
        if fault := room.take(len(data)):
            raise OSError(None, fault)
        return data

    return io.BufferedReader(_Raw(read))


def _member(name: str, opened: Callable[[], Any], room: inputs.Room) -> Iterator[tuple[str, Blocks]]:
    """What a file in an archive holds; one that cannot be opened or unpacked costs the others nothing."""
    try:
        with opened() as file:
            yield from _within(name, file, room)
    except RecursionError:
        raise  # an archive that holds itself
    except Exception as error:
        yield name, Blocks(None, reason(error))
