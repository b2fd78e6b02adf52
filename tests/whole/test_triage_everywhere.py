"""Triage beside Diagnose on every error, and what a log of twice the length costs."""

import os
import signal
import sys

import pytest

from readyonce.diagnose import engine as diagnose
from readyonce.triage import layout, verdict
from readyonce.triage.reading import read
from support.fleet import FAILED, REPORT, triage
from support.logs import (
    BEFORE,
    CHANGES,
    CONFUSERS,
    ENGINE,
    GUIDES,
    LOGS,
    MESSAGES,
    REPORTS,
    UNCOVERED,
    before_each,
)
from support.logs import read as read_log

BEGUN = 'Traceback (most recent call last):\n  File "t.py", line 3, in f\n'
GONE = f"{BEGUN}RuntimeError: Connection reset by peer\n"
LOGGER = "2026-01-01 00:00:01 ERROR step failed\n"
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"
# What a loop that tries again writes each time, and what a launcher writes of many ranks.
AGAIN = {
    "one-error": "ValueError: bad {0}\n",
    "one-traceback": BEGUN + "ValueError: bad {0}\n",
    "logged": LOGGER + BEGUN + "ValueError: bad {0}\n",
    "two-errors": LOGGER + BEGUN + "ValueError: bad {0}\n" + BEGUN + "KeyError: {0}\n",
    "two-errors-one-follows": LOGGER + BEGUN + "ValueError: bad {0}\n" + GONE,
    "two-lines-one-follows": "ValueError: bad {0}\nRuntimeError: Connection reset by peer\n",
    "consequence": "Watchdog caught collective operation timeout: {0}\n" + BEGUN + "ValueError: bad {0}\n" + GONE,
    "handled": GONE + CHAIN + BEGUN + "ValueError: bad {0}\n",
    "aside": "Exception in thread Thread-1:\n" + BEGUN + "ValueError: bad {0}\n" + GONE,
    "long-lines": "x" * 2000 + " ValueError: bad {0}\n" + GONE,
    "ranks": "[rank{0}]: ValueError: bad\n",
    "attempts": FAILED.format(1) + "[default0]:ValueError: bad {0}\n",
    "tasks": "srun: error: n1: tasks {0},{0}-{0}: Killed\n",
    "ranges": "srun: error: n1: tasks 0-49: Killed\n",
    "labels": "[default{0}]: 2026-01-01 00:00:01 x{0} Error\n",
    "report": REPORT.format("{0}", 1),
    "nccl-starts": "n{0}:1:1 [0] NCCL INFO comm 0x1 rank {0} nranks 400 cudaDev 0 commId 0x{0} - Init COMPLETE\n",
    "nccl-warnings": "n{0}:1:1 [0] a.cc:1 NCCL WARN Connection closed by remote peer n<1>\n",
    "nccl-one-process": "n:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 commId 0x{0} - Init COMPLETE\n",
    "hccl": "[ERROR] HCCL({0},a):2026-01-01-00:00:01.000.000 [a.cc:1] [1]wait timeout, remoteRank[{0}]\n",
}


def ended(code):
    """The family of an exit code: of a signal as Python tells it, as a shell does, or of no signal."""
    number = -code if code < 0 else code - 128
    return f"exit-{signal.Signals(number).name.lower()}" if number in set(signal.Signals) else f"exit-{code}"


def alike(text):
    """Whether triage and diagnose name the same family, or the same exception, of one file."""
    (answer,) = triage({"train.log": text.encode()})
    first, told = answer.first, diagnose.diagnose(ENGINE, text.encode()).json
    if told["exception"] and diagnose._NAME.match(
        told["exception"]["text"].encode()
    ):  # no sentence that a job may survive
        return first.family is None and first.message.startswith(told["exception"]["text"][:40])
    yields = told["error"] and ENGINE.families[told["error"]]["yields"]
    if first is None or first.family is None:
        signalled = {ended(first.code)} if first and first.code else set()
        return (
            told["error"] in signalled or yields in (None, "warning") and (told["error"] is None or yields == "warning")
        )
    return first.family == told["error"]


@pytest.mark.parametrize("change", ["as it is", "prefixed", "timestamps", "CRLF", "coloured"])
def test_triage_and_diagnose_agree_on_one_file(change):
    texts = (
        [read_log(path)[1] for path in LOGS] + [entry["message"] for entry in MESSAGES] + UNCOVERED + REPORTS + GUIDES
    )
    texts += [text for groups in CONFUSERS.values() for group in groups.values() for text in group]
    for text in map(CHANGES[change], texts):
        assert alike(text), text


@pytest.mark.parametrize("before", BEFORE)
def test_they_agree_whatever_stands_before_an_error(before):
    watchdog = next(entry["message"] for entry in MESSAGES if entry["family"] == "nccl-watchdog")
    followed = (f"{text}\n{watchdog}" for text in UNCOVERED[:4])
    for text in (*UNCOVERED[::3], *followed, *(entry["message"] for entry in MESSAGES[::8])):
        assert alike(before_each(text, before)), text


def work(text, most):
    """How many lines of the package run until there is an answer; it ends above `most`."""
    count = 0

    def line(frame, event, argument):
        nonlocal count
        count += 1
        assert count <= most
        return line

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: line if f"{os.sep}readyonce{os.sep}" in frame.f_code.co_filename else None)
    try:
        it = read(ENGINE, iter([text.encode()]), "train.log", layout.place("train.log"))
        verdict.answers([it])
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("kind", AGAIN)
def test_twice_as_long_a_log_takes_twice_the_work(kind):
    short, long = ("".join(map(AGAIN[kind].format, range(times))) for times in (200, 400))
    once = work(short, 5000 * short.count("\n"))
    assert work(long, int(2.3 * once)) <= 2.3 * once
