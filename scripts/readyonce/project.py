"""Where the project is, its languages, and files that are written whole or not at all. Needs nothing."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


def find() -> Path | None:
    """$READYONCE_ROOT, else the nearest folder upwards with `snippets/` and `docs/`."""
    if named := os.environ.get("READYONCE_ROOT"):
        return Path(named).resolve()
    here = Path.cwd()
    for folder in (here, *here.parents, *Path(__file__).resolve().parents):
        if (folder / "snippets" / "errors").is_dir() and (folder / "docs").is_dir():
            return folder
    return None


def write_whole(path: Path, text: str) -> None:
    """In one step: who reads it meanwhile, writes it too or is killed never sees, makes or leaves half of it."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # or a power cut could leave the new name with nothing in it
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    for left in path.parent.glob("*.new"):  # by one that was killed
        with contextlib.suppress(OSError):  # another was quicker
            if left.stat().st_mtime < time.time() - 60:
                left.unlink()


@contextlib.contextmanager
def one_at_a_time(place: Path) -> Iterator[None]:
    """Of the processes that share this folder, on one machine or on several, one makes it; the others wait."""
    import fcntl  # not on Windows, where there is no lab

    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back with the file, however its holder ends
        yield
