"""Where the project is, its languages, and files that are written whole or not at all. Needs nothing."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
MADE_OF = ("snippets", "packages")  # what pages are made of, beside their own words
INCIDENT_FOLDERS = "[A-Z]*-[0-9][0-9][0-9][0-9]"  # as a glob
PACKED = Path(__file__).parents[1] / "packed"  # what a wheel carries of the project; `publish.rule_cache` writes it
PROJECT = PACKED / "project.tar.xz"  # and the files that a wiki is made of


def find() -> Path | None:
    """$READYONCE_ROOT, else the nearest folder upwards with `snippets/` and `docs/`."""
    if named := os.environ.get("READYONCE_ROOT"):
        return Path(named).resolve()
    here = Path.cwd()
    for folder in (here, *here.parents, *Path(__file__).resolve().parents):
        if (folder / "snippets" / "errors").is_dir() and (folder / "docs").is_dir():
            return folder
    return None


def is_named() -> bool:
    """Whether somebody says which project is meant."""
    return "READYONCE_ROOT" in os.environ


def carried() -> Path | None:
    """What the wheel carries of the project, unpacked into the user's cache; None where this is no wheel."""
    if not PROJECT.is_file():
        return None
    import hashlib  # most commands need none of these
    import io
    import shutil
    import tarfile

    data = PROJECT.read_bytes()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "readyonce" / hashlib.sha256(data).hexdigest()[:16]
    with one_at_a_time(folder):
        if not folder.is_dir():
            fresh = folder.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)  # of one that was killed
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                    archive.extraction_filter = staticmethod(tarfile.data_filter)
                archive.extractall(fresh)
            fresh.rename(folder)
    return folder


def write_whole(path: Path, content: str | bytes) -> None:
    """In one step: who reads it meanwhile, writes it too or is killed never sees, makes or leaves half of it."""
    data = content if isinstance(content, bytes) else content.encode()
    if path.exists() and not path.is_file():  # a pipe or a device, such as /dev/null, is written to and stays
        path.write_bytes(data)
        return
    path = Path(os.path.realpath(path))  # a link stays, and leads to the new file
    fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # or a power cut could leave the new name with nothing in it
        if path.exists():
            fresh.chmod(path.stat().st_mode)  # who may read it stays as it was
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    for left in path.parent.glob("*.new"):  # by one that was killed; other files may end in `.new` too
        with contextlib.suppress(OSError):  # another was quicker
            if _OURS.search(left.name) and left.stat().st_mtime < time.time() - 60:
                left.unlink()


_OURS = re.compile(r"\.\d+-\d{6,}\.new$")


@contextlib.contextmanager
def one_at_a_time(place: Path, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Of the processes that share this folder, on one machine or on several, one makes it; the others call `waits`, and wait."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        with contextlib.suppress(ImportError):  # Windows has no such locks
            import fcntl

            try:  # given back with the file, however its holder ends
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waits()
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
