"""torchrun's own `main`, whose ranks begin as forks of a process that has imported what they import.

To import torch costs a rank three seconds of CPU, and to train as our repros do almost none. All else is torchrun's: the
rendezvous, the environment of each rank, its log files, how it watches, ends and restarts ranks. A rank is a child of
torchrun, in a session of its own, with the exit code and the last words that Python would give it.
"""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn


def end(what: Callable[[], object]) -> NoReturn:
    """Ends this process as Python would end, did it run `what` and nothing else."""
    code = 0
    try:
        what()
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException as error:
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
            trace = trace.tb_next  # not ours
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def launch(options: list[str], folder: str, output: int) -> int:
    """Forks a torchrun with these options, which works in `folder` and writes to the file `output`; returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    subprocess_handler.Popen = Rank  # type: ignore[misc,assignment]
    end(lambda: run.main(options))


class Rank:
    """What torchrun needs of subprocess.Popen, for a Python script."""

    def __init__(self, args: Any, env: dict[str, str], stdout: Any, stderr: Any, start_new_session: bool):
        assert start_new_session and args[:2] == (sys.executable, "-u")
        self.returncode: int | None = None
        ready, told = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(told)
            os.read(ready, 1)  # its session is there
            os.close(ready)
            return
        os.setsid()
        os.write(told, b".")
        for number, stream in ((1, stdout), (2, stderr)):
            if stream:
                os.dup2(stream.fileno(), number)
        os.closerange(3, 4096)  # torchrun's, its store among them
        for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(name, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.disable()  # torchrun's own
        logging.root.handlers.clear()
        os.environ.clear()
        os.environ.update(env)
        sys.argv = list(args[2:])
        end(lambda: runpy.run_path(sys.argv[0], run_name="__main__"))

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = time.monotonic() + timeout if timeout is not None else None
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() >= until:
                raise subprocess.TimeoutExpired("rank", timeout or 0)
            time.sleep(0.05)
        return code


def alone() -> bool:
    """Whether this process may be forked: it has one thread of Python's."""
    return threading.active_count() == 1
