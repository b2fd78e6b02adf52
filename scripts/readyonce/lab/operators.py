"""The operator that DeepSpeed compiles on a CPU: compiled once in an environment, copied for each launch, cleaned up."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from readyonce.data import project
from readyonce.lab import cleanup

COMPILE_LIMIT = 1800  # seconds for DeepSpeed's own compilation, once per environment
SILENCE = 5  # seconds that an operator may be compiled before a line says so
COMPILE = """
import os, torch
if not torch.accelerator.is_available():
    os.environ["DS_ACCELERATOR"] = "cpu"
    from deepspeed.accelerator import get_accelerator
    get_accelerator().create_op_builder("ShareMemCommBuilder").load()
"""


def compile_once(python: Path, start: Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]) -> None:
    """Have an environment's DeepSpeed compile its operator before the first launch, whose time that would take.

    `start` starts the process that does it: `launches.running`.
    """
    kept = python.parent.parent / "torch-extensions" / "whole"
    if kept.is_dir() or not deepspeeds(python.parent):
        return
    with project.one_at_a_time(kept), cleanup.folder() as scratch:
        if kept.is_dir():
            return
        run = start([python, "-c", COMPILE], python, scratch, compiled=True)
        with run as process, suppress(subprocess.TimeoutExpired):
            process.wait(COMPILE_LIMIT)
        kept.mkdir(parents=True, exist_ok=True)  # where it did not compile, launches say so


@contextmanager
def extensions(bin_folder: Path, token: str) -> Iterator[Path]:
    """A folder of this launch alone for what DeepSpeed compiles; the environment keeps what it compiled whole.

    torch locks such a folder even to load from it, a launch that is killed leaves its lock, and the next one
    would wait for it for ever, without a word.
    """
    place = bin_folder.parent / "torch-extensions"
    kept, own = place / "whole", place / "launches" / token
    with cleanup.watched(str(own)):
        own.mkdir(parents=True)
        for left in own.parent.iterdir():  # by a machine that was switched off
            if left.stat().st_mtime < time.time() - 86400:
                shutil.rmtree(left, ignore_errors=True)
        try:
            for folder in {library.parent for library in kept.glob("*/*.so")}:
                try:  # with their times: by these ninja sees that there is nothing to do
                    shutil.copytree(folder, own / folder.name, ignore=shutil.ignore_patterns("lock"))
                except OSError:  # another launch is replacing it: this one compiles its own
                    shutil.rmtree(own / folder.name, ignore_errors=True)
            given = {library: _changed(library) for library in own.glob("*/*.so")}
            yield own
            kept.mkdir(parents=True, exist_ok=True)
            for library in own.glob("*/*.so"):
                known = kept / library.parent.name
                newest = max(given.get(library, 0), _changed(known / library.name))
                if (library.parent / "lock").exists() or _changed(library) <= newest:
                    continue
                shutil.rmtree(known, ignore_errors=True)  # of an older torch or DeepSpeed
                with suppress(OSError):  # another launch was faster
                    library.parent.rename(known)
        finally:
            shutil.rmtree(own, ignore_errors=True)


@contextmanager
def locks_told(folder: Path) -> Iterator[None]:
    """Meanwhile, a line when the launch waits for an operator to be compiled: of itself it says nothing."""
    ended = threading.Event()

    def look() -> None:
        since: dict[Path, float] = {}
        while not ended.wait(SILENCE / 5):
            for lock in folder.glob("*/lock"):
                if time.monotonic() - since.setdefault(lock, time.monotonic()) >= SILENCE:
                    print(f"Waiting for an operator to be compiled, at {lock} ...", file=sys.stderr, flush=True)
                    return

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def sweep_shared_memory() -> None:
    """Remove the buffers that DeepSpeed's CPU op leaves in /dev/shm, 66 MiB a rank, once nobody maps them."""
    old = time.time() - 60  # a younger one may be about to be opened
    mine = f"deepspeed_allreduce_buffer_{os.getuid()}_*"
    left, mapped = [], ""
    for path in Path("/dev/shm").glob(mine):
        with suppress(OSError):  # gone meanwhile
            if path.stat().st_mtime < old:
                left.append(path)
    for maps in Path("/proc").glob("[0-9]*/maps") if left else ():
        with suppress(OSError):  # ended meanwhile, or somebody else's
            mapped += maps.read_text()
    for path in left:
        if path.name not in mapped:
            path.unlink(missing_ok=True)


def deepspeeds(bin_folder: Path) -> list[tuple[int, ...]]:
    """The release of an environment's DeepSpeed, if it has one."""
    found = bin_folder.parent.glob("lib/python*/site-packages/deepspeed-*.dist-info")
    return [tuple(map(int, re.findall(r"\d+", path.name)[:3])) for path in found]
