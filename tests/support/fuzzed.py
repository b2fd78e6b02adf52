"""What must end well for any bytes: `make fuzz` gives it millions, and the tests those that once broke it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from readyonce.launches import shell
from readyonce.lint import judge
from readyonce.triage import layout, verdict
from readyonce.triage.reading import read
from support.launches import READER
from support.launches import RULES as LINT
from support.logs import ENGINE

GOOD = ("job-b/rank_0.log", b"Traceback (most recent call last):\nKeyError: 'good'\n")
# Names that are read in ways of their own.
LOGS = ("job-a/rank_0.log", "job-a/attempt_0/0/error.json", "job-a/stacks.txt", "job-a/nccl_trace_rank_0")
LAUNCHES = ("train.sh", "values.yaml", "ds.json", "train.py", "run.md")


def triaged(data: bytes) -> None:
    """Raises where a file cannot be read, other than by a sentence, or where it costs another job its answer."""
    for name in LOGS:
        of = [read(ENGINE, iter([text]), it, layout.place(it)) for it, text in ((name, data), GOOD)]
        (good,) = [answer for answer in verdict.answers(of) if answer.job.startswith("job-b")]
        assert "good" in good.first.message, name


def judged(data: bytes) -> None:
    """Raises where a file cannot be read as a launch, other than by a sentence."""
    with tempfile.TemporaryDirectory() as folder:
        for name in LAUNCHES:
            path = Path(folder, name)
            path.write_bytes(data)
            try:
                for found in READER.file(str(path)):
                    judge.judge(LINT, found, {})
            except shell.Unreadable:
                pass


TRIED: dict[str, Callable[[bytes], None]] = {"triage": triaged, "lint": judged}
