"""`verify --on`: the evidence of a cluster is that of a local run, whoever is killed meanwhile."""

import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import dask
import dask_jobqueue
import psutil
import pytest
import yaml
from distributed import Client, LocalCluster, get_worker

from readyonce.cli import main
from readyonce.data import catalog, inputs, scheduler
from readyonce.data.schema import Environment, Evidence
from readyonce.lab import cleanup, cluster, verify
from readyonce.pages.overview import Overview
from support.cluster import SOME, assert_same, forgetful, run_here
from support.hosting import reserved_port
from support.patience import PATIENCE, until
from support.project import KNOWN, MOUNTING, ROOT, as_in_a_terminal, bytes_of, command

REPRO = """
import json, os, sys, tempfile, time
import torch.distributed as dist
VARIANTS = dict.fromkeys(["fine", "sleeps", "fills"])
def run(variant):
    if variant == "sleeps":
        time.sleep(3600)
    if variant == "fills":
        # In no other folder when this one is full; and no more than 64 MB, should it not be the small disk.
        with tempfile.NamedTemporaryFile(delete=False, dir=os.environ["TMPDIR"]) as file:
            for _ in range(16384):
                file.write(bytes(4096))
                file.flush()
    return {"variant": variant, "outcome": "match", "gradient_error": 0.0}
if __name__ == "__main__":
    dist.init_process_group("gloo")
    print("RESULT", json.dumps(run(sys.argv[1])), flush=True)
    dist.barrier()
    dist.destroy_process_group()
"""
INCIDENT = """
id: {id}
status: active
title: &t {{en: x, zh: x}}
short: *t
summary: *t
tags: {{framework: [x], strategy: [x], hardware: [x], symptom: [*t]}}
reported: {{date: "2026-01-01", source: "a/b#1", hardware: *t}}
errors: []
fix: {{option: --x, command: x, variant: {name}, text: *t}}
affected: []
files: {{repro.py: [current]}}
time_limit: 300
variants: {{{name}: {{text: *t, outcome: match}}}}
claims: {{}}
"""


DASK = [sys.executable, "-m", "dask"]


@pytest.fixture
def port():
    with reserved_port() as reserved:
        yield reserved


def workers(root: Path, number: int, threads: int = 1) -> LocalCluster:
    """Workers of their own processes that see a copy of the project."""
    return LocalCluster(
        n_workers=number,
        threads_per_worker=threads,
        host="127.0.0.1",
        dashboard_address=None,
        env={"READYONCE_ROOT": str(root)},
    )


def launched() -> list[psutil.Process]:
    """What labs below these tests have launched; the watchers that end it are not among it."""
    found, tests = [], os.environ[cleanup.TOKEN]
    for process in psutil.process_iter():
        try:
            told = process.environ()
            if told.get("READYONCE_ROOT", "").startswith(MARK) and told.get(cleanup.TOKEN, tests) != tests:
                found.append(process)
        except psutil.Error:
            pass
    return found


MARK = ""


@pytest.fixture(scope="module", autouse=True)
def mine(tmp_path_factory):
    """Other labs may be at work on this machine: ours know a project below this folder."""
    global MARK
    MARK = str(tmp_path_factory.getbasetemp())
    yield
    until(lambda: not launched(), launched)


@pytest.fixture
def toy(tmp_path):
    """Three incidents that train nothing, each with evidence that a worker's death must not touch: (root, its files)."""
    root = tmp_path / "toy"
    for id, name in {"RO-0901": "fine", "RO-0902": "sleeps", "RO-0903": "fills"}.items():
        folder = root / "snippets" / id
        folder.mkdir(parents=True)
        (folder / "repro.py").write_text(REPRO)
        (folder / "incident.yml").write_text(INCIDENT.format(id=id, name=name))
        stored = Environment(name="current", date="2026-01-01", python="", platform="", world_size=2, versions={})
        evidence = Evidence(environment=stored, runs=[], not_run="as it was")
        (folder / "evidence").mkdir()
        (folder / "evidence" / "current.json").write_text(evidence.model_dump_json())
    shutil.copy(ROOT / "snippets" / "diagnose.yml", root / "snippets")
    (root / "docs").mkdir()
    return root, bytes_of(root / "snippets")


def verified(root, ids, address, hear=lambda line: None, missing=False):
    """With `--write`: the differences, and the lines that were told."""
    known, told = catalog.load(root).require_sound(), SimpleNamespace(lines=[])

    def say(line):
        told.lines.append(line)
        hear(line)

    wanted = verify.Wanted(write=True, missing=missing, say=say)
    incidents = [known.incidents[id] for id in ids]
    told.differences = list(cluster.differences(known, incidents, ["current"], wanted, address))
    return told


def kill_when_it_trains(dask_cluster: LocalCluster, line: str) -> str:
    """Kill -9 for the worker that says it runs something, once what it has launched is there. Its name."""
    name = re.match(r"(\d+) on", line)[1]
    worker = psutil.Process(dask_cluster.workers[int(name)].pid)

    def kill():
        until(lambda: any("torch.distributed.run" in it.cmdline() for it in worker.children(recursive=True)))
        worker.kill()

    threading.Thread(target=kill).start()
    return name


# ------------------------------------------------------------------------------ the same evidence


def test_evidence_is_that_of_a_local_run_though_a_worker_is_killed_in_the_middle(tmp_path):
    copy, stored = forgetful(tmp_path / "copy")
    local, killed = run_here(copy, stored), []

    def hear(line):
        if "runs RO-0011 in current, repro.py" in line and not killed:
            killed.append(kill_when_it_trains(dask_cluster, line))

    with workers(copy, 2, threads=3) as dask_cluster:
        told = verified(copy, [*SOME], dask_cluster.scheduler_address, hear, missing=True)
    assert told.differences == [], told
    assert killed and any("has gone" in line for line in told.lines), told.lines
    assert sum("runs RO-0011 in current, repro.py" in line for line in told.lines) == 2, told.lines
    assert_same(stored, local)


def test_a_worker_runs_one_task_at_a_time_whatever_its_threads():
    def at_work():
        started = time.monotonic()
        time.sleep(0.5)
        return get_worker().address, started, time.monotonic()

    with workers(ROOT, 1, threads=4) as dask_cluster, Client(dask_cluster) as client:
        client.register_plugin(cluster._one_at_a_time())
        client.register_plugin(cluster._one_at_a_time())  # a second client's
        futures = [client.submit(at_work, resources={cluster.LAUNCH: 1}, pure=False) for _ in range(8)]
        dask_cluster.scale(2)
        client.wait_for_workers(2, timeout=PATIENCE)  # one that comes later takes its part, by the same rule
        futures += [client.submit(at_work, resources={cluster.LAUNCH: 1}, pure=False) for _ in range(4)]
        spans = sorted(client.gather(futures))
    assert len({address for address, _, _ in spans}) == 2
    for (address, _, ended), (after, started, _) in itertools.pairwise(spans):
        assert address != after or started >= ended


# ------------------------------------------------------------------------------ what cannot be run


def test_what_no_worker_can_run_leaves_its_evidence_and_is_told(toy):
    root, before = toy
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), workers(root, 1) as dask_cluster:

        def hear(line):
            if "runs RO-0902" in line:
                kill_when_it_trains(dask_cluster, line)

        told = verified(root, ["RO-0902"], dask_cluster.scheduler_address, hear)
    assert len(told.differences) == 1 and "RO-0902 in current, repro.py: not run on tcp" in told.differences[0]
    assert "its stored evidence is as it was. KilledWorker" in told.differences[0]
    assert bytes_of(root / "snippets") == before
    until(lambda: not launched(), launched)


def test_where_no_worker_is_left_it_is_told_after_the_time_that_dask_is_given(toy):
    root, before = toy
    with dask.config.set({"distributed.scheduler.no-workers-timeout": "3s"}), workers(root, 1) as dask_cluster:

        def hear(line):
            if "runs RO-0902" in line:
                threading.Thread(target=dask_cluster.scale, args=(0,)).start()

        told = verified(root, ["RO-0902"], dask_cluster.scheduler_address, hear)
    assert len(told.differences) == 1 and "its stored evidence is as it was. NoWorker" in told.differences[0], told
    assert bytes_of(root / "snippets") == before


def test_a_full_disk_of_a_worker_leaves_the_evidence_and_is_told(toy, tmp_path, monkeypatch):
    """On a real one, of 16 MB. What another file of the same run shows is stored."""
    root, before = toy
    monkeypatch.setattr(cluster, "RETRIES", 0)
    (small := tmp_path / "small").mkdir()
    prepare = f"mount -t tmpfs -o size=16m none {small}"
    if subprocess.run([*MOUNTING, prepare], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a disk of his own")
    with workers(root, 0) as dask_cluster:
        work = f"{prepare} && exec {sys.executable} -m dask worker {dask_cluster.scheduler_address}"
        worker = subprocess.Popen(
            [*MOUNTING, f"{work} --no-nanny --nthreads 1 --no-dashboard --local-directory {tmp_path}/dask"],
            env=os.environ | {"READYONCE_ROOT": str(root), "TMPDIR": str(small)},
            stderr=subprocess.DEVNULL,
        )
        try:
            dask_cluster.wait_for_workers(1, timeout=PATIENCE)
            told = verified(root, ["RO-0903", "RO-0901"], dask_cluster.scheduler_address)
        finally:
            worker.terminate()
            worker.wait(PATIENCE)
    assert len(told.differences) == 1 and told.differences[0].startswith("RO-0903 in current, repro.py: not run on")
    assert "No space left on device, so this run says nothing" in told.differences[0]
    after = bytes_of(root / "snippets")
    assert [name for name in after if after[name] != before.get(name)] == ["RO-0901/evidence/current.json"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_lost_scheduler_leaves_the_evidence_and_is_told(toy, tmp_path, monkeypatch, number):
    """Of one that is frozen the connection stays open: who waits asks whether it still answers."""
    root, before = toy
    told_in = tmp_path / "scheduler.json"
    started = subprocess.Popen(
        [*DASK, "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", told_in, "--no-dashboard"],
        stderr=subprocess.DEVNULL,
    )
    worker = subprocess.Popen(
        [
            *DASK,
            "worker",
            "--scheduler-file",
            told_in,
            "--nthreads",
            "1",
            "--no-dashboard",
            "--death-timeout",
            str(PATIENCE),
        ],
        env=os.environ | {"READYONCE_ROOT": str(root)},
        cwd=root.parent,
        stderr=subprocess.DEVNULL,
    )
    try:
        with Client(scheduler_file=str(told_in), timeout=PATIENCE) as client:  # which waits for the file
            client.wait_for_workers(1, timeout=PATIENCE)
            address = client.scheduler.address

        def hear(line):
            if "runs RO-0902" in line:
                started.send_signal(number)
                monkeypatch.setattr(scheduler, "PATIENCE", 1)

        with dask.config.set({"distributed.comm.timeouts.connect": 3}):
            told = verified(root, ["RO-0902"], address, hear)
        assert len(told.differences) == 1 and "its stored evidence is as it was" in told.differences[0], told
        assert bytes_of(root / "snippets") == before
        started.kill()
        worker.wait(PATIENCE)  # it ends with its scheduler
        until(lambda: not launched(), launched)
    finally:
        for process in (worker, started):
            process.kill()
            process.wait()


def test_who_leaves_ends_what_runs_for_him(toy):
    root, before = toy
    with workers(root, 1) as dask_cluster:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "readyonce.cli.main",
                "verify",
                "RO-0902",
                "--write",
                "--on",
                dask_cluster.scheduler_address,
            ],
            env=os.environ | {"READYONCE_ROOT": str(root)},
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=as_in_a_terminal,
        )
        assert "runs RO-0902 in current, repro.py" in process.stderr.readline()
        until(launched)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 130 and "Traceback" not in said, said
        until(lambda: not launched(), lambda: "it trains for nobody")
        with Client(dask_cluster) as client:
            assert client.submit(lambda: 1).result(timeout=PATIENCE) == 1, "the worker is there for the next"
    assert bytes_of(root / "snippets") == before


def test_bad_usage(toy, monkeypatch, port):
    root, _ = toy
    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "PATIENCE", 1)
        with pytest.raises(inputs.Unusable, match=f"no Dask scheduler at tcp://127.0.0.1:{port}"):
            verified(root, ["RO-0901"], f"tcp://127.0.0.1:{port}")
    with workers(root, 0) as dask_cluster:
        with Client(dask_cluster) as client, monkeypatch.context() as patch:
            patch.setattr(scheduler, "PATIENCE", 1)  # of a worker: the scheduler has answered
            with pytest.raises(inputs.Unusable, match="has no workers: start some"):
                cluster._require_ready(client, dask_cluster.scheduler_address, "")
        dask_cluster.scale(1)
        dask_cluster.wait_for_workers(1, timeout=PATIENCE)
        (root / "snippets" / "RO-0901" / "repro.py").write_text(REPRO + "# mended\n")
        verify_it = ("verify", "RO-0901", "--environment", "current", "--on", dask_cluster.scheduler_address)
        elsewhere = Path(shutil.copytree(root, root.parent / "elsewhere"))
        (elsewhere / "snippets" / "RO-0901" / "repro.py").write_text(REPRO)
        told = command(*verify_it, root=elsewhere)
        assert told.returncode == 2 and f"{root} is not in the state of the project here" in told.stderr, told.stderr
        assert "1 of the scheduler and workers" in told.stderr


# ------------------------------------------------------------------------------ the page


def test_the_commands_of_the_page_work_as_they_stand(toy, tmp_path, port):
    root, before = toy
    script = (ROOT / "snippets" / "cluster" / "here.sh").read_text(encoding="utf-8")
    for word, ours in {
        "8786": str(port),
        ".venv/bin/": f"{Path(sys.executable).parent}/",
        "RO-0001": "RO-0901",
    }.items():
        assert word in script
        script = script.replace(word, ours)
    with (tmp_path / "said.txt").open("w") as said:
        process = subprocess.Popen(
            ["sh", "-c", script],
            env=os.environ | {"READYONCE_ROOT": str(root)},
            cwd=tmp_path,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            assert process.wait(PATIENCE) == 0, (tmp_path / "said.txt").read_text()
        finally:
            os.killpg(process.pid, signal.SIGTERM)
    assert "As declared." in (tmp_path / "said.txt").read_text()
    after = bytes_of(root / "snippets")
    assert [name for name in after if after[name] != before.get(name)] == ["RO-0901/evidence/current.json"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_shows_what_is_tested(language):
    """`make test-cluster` runs the two files for Slurm, the test above the commands; all others are commands of ours."""
    page = (ROOT / "docs" / language / "cluster.md").read_text(encoding="utf-8")
    shown = re.findall(r'8<-- "cluster/([^":]+)', page)
    assert sorted({*shown}) == ["here.sh", "jobqueue.yaml", "kubernetes.yaml", "slurm.py"]
    commands = re.findall(r"^(?:python slurm.py 4 )?readyonce (.*)$", page, re.M)
    assert len(commands) == 3
    for words in commands:
        assert main.parser().parse_args([*shlex.split(words), *(["tcp://x"] if words.endswith("--on") else [])]).on
    settings = yaml.safe_load((ROOT / "snippets" / "cluster" / "jobqueue.yaml").read_text(encoding="utf-8"))
    known = yaml.safe_load((Path(dask_jobqueue.__file__).parent / "jobqueue.yaml").read_text(encoding="utf-8"))
    assert settings["jobqueue"]["slurm"].keys() <= known["jobqueue"]["slurm"].keys()
    for name in settings["distributed"]["scheduler"]:
        assert dask.config.get(f"distributed.scheduler.{name}", "") != ""


def test_two_hosts_are_as_one_and_each_family_was_tried():
    """What was stored of them, and what the page shows of it; tests/cluster/ runs it again."""
    stored = {
        (incident.id, run.variant): (run, incident.run(run.variant, "current"))
        for incident in KNOWN.incidents.values()
        for evidence in incident.elsewhere.values()
        if evidence.environment.hosts == 2
        for run in evidence.runs
    }
    assert all((run.outcome, run.error) == (one.outcome, one.error) for run, one in stored.values())
    repros = [
        it
        for it in KNOWN.observed
        if it.environment == "current" and not it.variant.is_command and not it.incident.short
        if it.variant.processes == 2 and it.variant.launcher == "torchrun"
    ]
    assert {run.error for run, _ in stored.values()} == {it.run.error for it in repros}
    for outcome in ("match", "diverge", "still"):
        tried = {id for (id, _), (run, _) in stored.items() if run.outcome == outcome}
        assert tried == {it.incident.id for it in repros if it.run.outcome == outcome}
    for language in ("en", "zh"):
        page = (ROOT / "docs" / language / "cluster.md").read_text(encoding="utf-8")
        assert re.search(rf"\b{len(stored)}\b", page) and '--8<-- "two-hosts.md"' in page
        rows = re.findall(
            r"\| (\d+) / (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", Overview(KNOWN, language).two_hosts()
        )
        assert sum(int(same) for same, *_ in rows) == sum(int(of) for _, of, *_ in rows) == len(stored)
        assert all(int(same) == sum(map(int, ended)) for same, _, *ended in rows)
