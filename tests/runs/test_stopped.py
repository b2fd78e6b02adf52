"""Six jobs that one rank stops, made now: triage names it, and its line."""

import subprocess
import sys

from support.project import TESTS
from support.stacks import answers, cases, judged

JOBS = ("dead-loader-5", "decoder-3", "evaluates-3", "gathers-4", "lock-file-2", "swallowed-4")


def test_the_rank_that_stops_a_job_is_told(tmp_path):
    command = [sys.executable, TESTS / "fleet" / "hung" / "make.py", tmp_path, *JOBS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and answers(tmp_path).keys() == set(JOBS), done.stdout + done.stderr
    made = {(job, form): judged(job, form, tmp_path) for job, form in cases(tmp_path)}
    assert len(made) >= 2 * len(JOBS) and set(made.values()) == {"right"}, made
