"""Archives for the tests, made in memory."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping


def tarred(files: Mapping[str, bytes], packing: str = "") -> bytes:
    """A .tar of files, name → bytes; `packing` as `tarfile` names it, such as `gz`."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=f"w:{packing}") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()
