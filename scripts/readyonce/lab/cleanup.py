"""Ends what a lab started, also when the lab cannot: it was killed, or ran out of memory.

Then nothing of it runs any more that could tidy up. So a small process of its own waits for the lab's end, and does it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

TOKEN = "READYONCE_RUN"  # marks the processes of one launch in their environment

_watcher: subprocess.Popen[bytes] | None = None
_lock = Lock()  # launches run side by side, in threads


@contextmanager
def folder() -> Iterator[str]:
    """A temporary folder; it is gone on leaving."""
    with tempfile.TemporaryDirectory(prefix="readyonce-") as path, watched(path):
        yield path


@contextmanager
def watched(what: str) -> Iterator[None]:
    """A token whose processes are ended, or a folder that is removed, should this process be killed meanwhile."""
    _tell(what)
    try:
        yield
    finally:
        _tell(what)


def _tell(what: str) -> None:
    """Said first, it is to be ended or removed; said again, it is gone already."""
    global _watcher
    with _lock:
        if _watcher is None or _watcher.poll() is not None:
            # A session of its own, and no token: what ends the lab's, or a lab around it, does not end it.
            _watcher = subprocess.Popen(
                [sys.executable, "-m", "readyonce.lab.cleanup"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if name != TOKEN},
                cwd="/",
            )
        assert _watcher.stdin  # a pipe, as asked for above
        with suppress(OSError):  # killed this very moment: the launch is worth more
            _watcher.stdin.write(json.dumps(what).encode() + b"\n")
            _watcher.stdin.flush()


def kill(token: str) -> None:
    """End every process that inherited `token`. torchrun starts its ranks in sessions of their own,
    and a launcher that dies leaves them behind: neither its group nor its children would find them."""
    import psutil

    for _ in range(10):  # while we look through the list, one of them may start another
        ours = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(TOKEN) == token:
                    process.kill()
                    ours.append(process)
            except psutil.Error:
                pass  # ended meanwhile, or somebody else's
        if not ours:
            return
        psutil.wait_procs(ours, timeout=10)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the lab does, not before
    left: set[str] = set()
    for line in sys.stdin:
        left ^= {json.loads(line)}
    for what in sorted(left, key=os.path.isabs):  # processes first: they write into the folders
        if os.path.isabs(what):
            shutil.rmtree(what, ignore_errors=True)
        else:
            kill(what)


if __name__ == "__main__":
    main()
