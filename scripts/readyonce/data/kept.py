"""What was computed from texts, kept in `build/` from one `readyonce check` to the next.

Each answer is kept by the hash of what it was computed from, and all of them by the hash of this package and the releases of the
libraries that read the texts: an edited file, or an edited program, has another hash, so no answer is older than its question.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import marshal
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from readyonce.data import project

T = TypeVar("T")
FILE = Path("build", "check.kept")
MOST = 1500  # answers; beyond that the oldest are dropped

_answers: dict[str, Any] | None = None  # while `between_runs` is open


def digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(b"%d " % len(part))
        whole.update(part)
    return whole.hexdigest()


def digest_of(folder: Path) -> str:
    """Of a file, or of the files below a folder: their names and bytes."""
    below = folder.rglob("*") if folder.is_dir() else [folder]
    files = sorted(path for path in below if path.suffix != ".pyc" and path.is_file())
    return digest(*(part for path in files for part in (str(path.relative_to(folder)).encode(), path.read_bytes())))


@contextlib.contextmanager
def between_runs(root: Path) -> Iterator[None]:
    """Within it, answers of the last run are used, and new ones are kept for the next. Inside another one it does nothing."""
    global _answers
    if _answers is not None:
        yield
        return
    path = root / FILE
    releases = [sys.version, version("pyyaml"), version("markdown-it-py")]
    made_by = digest(*map(str.encode, releases), digest_of(Path(__file__).parents[1]).encode())
    found: Any = None
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):  # there is none, or half of one
        found = marshal.loads(path.read_bytes())
    known = found[1] if isinstance(found, tuple) and len(found) == 2 and found[0] == made_by else {}
    before, _answers = len(known), known
    try:
        yield
    finally:
        _answers = None
        if len(known) != before:
            newest = itertools.islice(known.items(), max(0, len(known) - MOST), None)
            # A project that cannot be written to, or an answer that is no plain value: then nothing is kept.
            with contextlib.suppress(OSError, ValueError):
                data = marshal.dumps((made_by, dict(newest)))
                path.parent.mkdir(exist_ok=True)
                project.write_whole(path, data)


def answer(key: str, compute: Callable[[], T]) -> T:
    """What was computed for this key; it has to name the function, and to hash all that the answer depends on."""
    if _answers is None:
        return compute()
    if key not in _answers:
        _answers[key] = compute()
    found: T = _answers[key]
    return found


def kept(function: Callable[[str], T]) -> Callable[[str], T]:
    """A function of a text alone whose answer is a plain value, which nobody changes."""

    @functools.wraps(function)
    def remembered(text: str) -> T:
        key = f"{function.__qualname__} {digest(text.encode(errors='surrogatepass'))}"
        return answer(key, lambda: function(text))

    return remembered
