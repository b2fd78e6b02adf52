"""A real Slurm runs what the page on clusters shows, with a job cancelled in the middle: `make test-cluster`, as nothing else."""

import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

from readyonce.lab import cleanup
from support.cluster import MISSING, assert_same, forgetful, run_here
from support.patience import PATIENCE, until
from support.project import ROOT, as_in_a_terminal, command
from support.slurm import slurm

pytestmark = pytest.mark.cluster
SHOWN = ROOT / "snippets" / "cluster"
HERE = {"python": sys.executable, "memory": "4GiB"}  # what of the shown configuration is a place


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """What the commands of a Slurm need of the environment, with the configuration that the page shows."""
    place = tmp_path_factory.mktemp("slurm")
    places = HERE | {"log_directory": str(place / "logs")}
    with slurm(place) as environment:
        yield (
            environment
            | {"DASK_CONFIG": str(SHOWN)}
            | {f"DASK_JOBQUEUE__SLURM__{name.upper()}": value for name, value in places.items()}
        )
    left = [it for it in psutil.process_iter() if "SLURM_JOB_ID" in environ(it)]
    assert not left, left


def environ(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:  # ended meanwhile
        return {}


def launched() -> list[dict[str, str]]:
    """Of what jobs have launched: the environments."""
    told = map(environ, psutil.process_iter())
    return [it for it in told if "SLURM_JOB_ID" in it and it.get(cleanup.TOKEN) != os.environ[cleanup.TOKEN]]


def started(jobs: int, *arguments, root, environment) -> subprocess.Popen:
    readyonce = [sys.executable, "-m", "readyonce.cli.main", *arguments, "--on"]
    return subprocess.Popen(
        [sys.executable, SHOWN / "slurm.py", str(jobs), *readyonce],
        env=environment | {"READYONCE_ROOT": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=as_in_a_terminal,
    )


def test_a_verify_ends_with_its_evidence_though_a_job_is_cancelled(commands, tmp_path):
    copy, stored = forgetful(tmp_path / "copy")
    local = run_here(copy, stored)
    process = started(2, *MISSING, root=copy, environment=commands)
    assert until(launched)
    cancelled = launched()[0]["SLURM_JOB_ID"]
    subprocess.run(["scancel", cancelled], env=commands, check=True)
    said = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0, said
    assert "this worker has gone" in said, said
    assert len(re.findall(r"SLURMCluster-\d on .*: runs ", said)) > 3, said  # three tasks, of which one ran twice
    assert_same(stored, local)
    assert until(lambda: not launched()), "what the job had launched is left"


def test_a_triage_says_what_it_says_here(commands, tmp_path):
    for name in ("RO-0001-reported.log", "RO-0005-reported.log", "RO-0010-around.log"):
        (tmp_path / name).write_bytes((ROOT / "tests" / "logs" / name).read_bytes())
    asked = ("triage", str(tmp_path), "--format", "jsonl")
    here = command(*asked)
    process = started(1, *asked, root=ROOT, environment=commands)
    out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == here.returncode == 1, said
    assert out == here.stdout and out.count("\n") >= 3


def test_what_is_ended_leaves_no_job(commands, tmp_path):
    copy, stored = forgetful(tmp_path / "copy")
    process = started(1, *MISSING, root=copy, environment=commands)
    assert until(launched)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
    queue = ["squeue", "--noheader", "--states", "PENDING,RUNNING,COMPLETING"]
    assert until(lambda: not subprocess.run(queue, env=commands, capture_output=True).stdout)
    assert until(lambda: not launched())
    assert all(path.read_text(encoding="utf-8") == text for path, text in stored.items())
