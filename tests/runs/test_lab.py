"""The lab tells hang, teardown and crash apart, and leaves nothing behind."""

import contextlib
import dataclasses
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from readyonce.data import catalog, project, schema
from readyonce.lab import cleanup, operators, processes, recording, venvs
from readyonce.lab import commands as launch
from support.patience import PATIENCE, until
from support.project import MOUNTING, ROOT, as_in_a_terminal, command

MARK = f"READYONCE_TEST_{os.getpid()}"
REPRO = """
import json, os, pathlib, sys, tempfile, time
import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton
NAMES = "fine hangs hangs-on-one-rank dies raises empty-assertion tears-down fills compiles reads imports"
VARIANTS = dict.fromkeys(f"{NAMES} raises-on-one-rank raises-first leaves-a-collective".split())
begun = []
def compile_operator():  # as torch does it
    folder = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"], "an_operator")
    folder.mkdir(exist_ok=True)
    baton = FileBaton(folder / "lock")
    if baton.try_acquire():
        if not (folder / "an_operator.so").exists():
            (folder / "an_operator.so").write_text(os.environ.get("COMPILED_BY", ""))
        baton.release()
    else:
        baton.wait()
    return (folder / "an_operator.so").read_text()
def run(variant):
    rank = dist.get_rank()
    if variant == "compiles":
        print("compiled by", compile_operator(), file=sys.stderr)
    if variant == "hangs" or (variant == "hangs-on-one-rank" and rank == 1):
        time.sleep(3600)
    if variant == "dies":
        os.kill(os.getpid(), 11)
    if variant == "raises":
        raise RuntimeError("Expected to mark a variable ready only once. And more")
    if variant == "fills":
        with tempfile.NamedTemporaryFile(delete=False) as file:
            while True:
                file.write(bytes(4096))
                file.flush()
    if variant == "reads":
        pathlib.Path(__file__).with_name("beside" + ".txt").read_text()
    if variant == "imports":
        sys.path.append(os.path.dirname(__file__))
        __import__("help" + "er")
    if variant == "raises-on-one-rank" or (variant == "raises-first" and rank == 1):
        if rank == 1:
            dist.distributed_c10d._get_default_store().set("raises", "")
            raise RuntimeError("Expected to mark a variable ready only once. And more")
        dist.all_reduce(torch.zeros(1))  # for which rank 0 waits without end
    if variant == "raises-first":
        dist.distributed_c10d._get_default_store().wait(["raises"])
        time.sleep(2)
        raise ValueError("the consequence")
    if variant == "leaves-a-collective":
        begun.extend([dist.all_reduce(torch.zeros(1), async_op=True)] if rank == 0 else [])
        raise RuntimeError("Expected to mark a variable ready only once. And more")
    if variant == "fine":
        sum_of_ranks = torch.full((1,), float(rank))
        dist.all_reduce(sum_of_ranks)
        assert sum_of_ranks.item() == sum(range(dist.get_world_size())), sum_of_ranks
    if variant == "empty-assertion":
        assert len({1, 1}) == 2
    return {"variant": variant, "outcome": "match", "gradient_error": 0.0}
if __name__ == "__main__":
    dist.init_process_group("gloo")
    result = run(sys.argv[1])
    if dist.get_rank() == 0:
        print("RESULT", json.dumps(result), flush=True)
    dist.barrier()
    if sys.argv[1] == "tears-down":
        os.abort()
    dist.destroy_process_group()
"""
# A framework's command: two processes in sessions of their own, as torchrun starts them, a port and a temporary folder.
COMMAND = """
python train.py \\
    --checkpointing true \\
    --behave fine \\
    "$@"
"""
TRAIN = """
import os, signal, socket, subprocess, sys, tempfile, time
behave = sys.argv[sys.argv.index("--behave") + 1]
tempfile.mkdtemp()
listening = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
for rank in range(2):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
if behave == "hangs":
    time.sleep(3600)
if behave == "dies":
    os.kill(os.getpid(), signal.SIGSEGV)
if behave == "fills":
    with open("filled", "wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()
import torch
from safetensors.torch import save_file
for step in (1, 2):
    folder = os.path.join(os.environ["OUTPUT"], f"checkpoint-{step}")
    os.makedirs(folder)
    wrong = behave == "trains-wrong" and "--checkpointing" in sys.argv
    save_file({"weight": torch.full((4,), step + 0.5 * wrong)}, os.path.join(folder, "model.safetensors"))
"""
TINY = 'import json; print(json.dumps({"variables": {}, "arguments": ["--tiny"]}))'
INCIDENT = """
id: RO-0900
status: active
title: &t {en: x, zh: x}
short: *t
summary: *t
tags: {framework: [x], strategy: [x], hardware: [x], symptom: [*t]}
reported: {date: "2026-01-01", source: "a/b#1", hardware: *t}
errors: [ddp-ready-twice]
fix: {option: --x, command: x, variant: fine, text: *t}
affected: []
files: {repro.py: [current], launch.sh: [current]}
reference: {--checkpointing: ""}
time_limit: 5
variants:
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory, known):
    folder = tmp_path_factory.mktemp("lab") / "snippets" / "RO-0900"
    folder.mkdir(parents=True)
    shutil.copy(known.root / "snippets" / "diagnose.yml", folder.parent)
    for name, text in {
        "repro.py": REPRO,
        "launch.sh": COMMAND,
        "train.py": TRAIN,
        "tiny.py": TINY,
        "beside.txt": "",
        "helper.py": "",
    }.items():
        (folder / name).write_text(text)
    names = ("fine", "hangs", "hangs-on-one-rank", "dies", "raises", "empty-assertion", "tears-down", "fills")
    names += ("compiles", "reads", "imports", "raises-on-one-rank", "raises-first", "leaves-a-collective")
    variants = "".join(f"  {name}: {{text: *t, outcome: match}}\n" for name in names)
    for name in ("fine", "trains-wrong", "hangs", "dies", "fills"):
        lines = f"{{--behave: --behave {name}}}"
        variants += f"  command-{name}: {{file: launch.sh, lines: {lines}, text: *t, outcome: match}}\n"
    (folder / "incident.yml").write_text(INCIDENT + variants + "claims: {}\n")
    loaded = catalog.load(folder.parent.parent)
    assert not loaded.problems, loaded.problems
    loaded.families.update(known.families)
    return loaded, loaded.incidents["RO-0900"]


SOON = 5  # seconds: a hang is waited for to its end


@pytest.fixture(autouse=True)
def only_a_hang_has_a_limit(monkeypatch):
    """What has to finish may take as long as a busy machine does."""
    monkeypatch.setattr(processes, "START_LIMIT", PATIENCE)
    monkeypatch.setattr(launch, "START_LIMIT", PATIENCE)
    alone, launch_once = processes.alone, launch.Commands._launch_once

    def alone_(known, incident, variant, python):
        with monkeypatch.context() as patch:
            if "hangs" in variant.name:
                patch.setattr(processes, "START_LIMIT", SOON)
            return alone(known, incident, variant, python)

    def launch_once_(commands, variant, script):
        commands._made()
        with monkeypatch.context() as patch:
            if "hangs" in variant.name:
                patch.setattr(launch, "START_LIMIT", SOON)
            return launch_once(commands, variant, script)

    monkeypatch.setattr(processes, "alone", alone_)
    monkeypatch.setattr(launch.Commands, "_launch_once", launch_once_)


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    monkeypatch.setenv(MARK, MARK)  # other labs may be at work on this machine
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    listening = ports()
    yield
    assert not ours(), "processes are left, and with them their ports"
    assert ports() == listening, "ports are left"
    assert not os.listdir(tmp_path), "folders are left"


def ports() -> set[int]:
    """Those on which this very process listens."""
    found = psutil.Process().net_connections(kind="tcp")
    return {connection.laddr.port for connection in found if connection.status == psutil.CONN_LISTEN}


def ours() -> list[psutil.Process]:
    """What the labs here launched, themselves not among it."""
    found, tests = [], os.environ[cleanup.TOKEN]
    for process in psutil.process_iter():
        try:
            told = process.environ()
            if MARK in told and told.get(cleanup.TOKEN, tests) != tests:
                found.append(process)
        except psutil.Error:
            pass
    return found


def test_file_that_no_script_names_is_told(toy):
    known, incident = toy
    # What is imported is told the second time too, when only its compiled form is opened.
    for variant, file in (("reads", "beside.txt"), ("imports", "helper.py"), ("imports", "helper.py")):
        with pytest.raises(processes.LabError, match=rf"a run opened {file}, and no script of its names that file"):
            processes.together(known, incident, [(incident.variants[variant], 1)], Path(sys.executable))


@pytest.mark.parametrize(
    "name, outcome",
    [("fine", "match"), ("hangs", "hang"), ("raises", "error"), ("dies", "error"), ("tears-down", "teardown")],
)
def test_alone(toy, name, outcome):
    known, incident = toy
    seen = processes.alone(known, incident, incident.variants[name], Path(sys.executable))
    assert seen.outcome == outcome, seen.log
    if name == "raises":
        assert seen.error == "ddp-ready-twice" and seen.message.startswith("RuntimeError: Expected to mark")


@pytest.mark.parametrize(
    "name, outcome", [("fine", "match"), ("trains-wrong", "diverge"), ("hangs", "hang"), ("dies", "error")]
)
def test_command_of_a_framework(toy, name, outcome):
    known, incident = toy
    with launch.Commands(known, incident, Path(sys.executable)) as commands:
        seen = commands.run(incident.variants[f"command-{name}"])
    assert seen.outcome == outcome, seen.log


@pytest.mark.parametrize(
    "script, said, limit",
    [("raise SystemExit('no model')", "no model", PATIENCE), ("while True: 1", "did not end", SOON)],
)
def test_tiny_model_that_cannot_be_made(toy, monkeypatch, script, said, limit):
    known, incident = toy
    monkeypatch.setattr(launch, "START_LIMIT", limit)
    tiny = incident.folder / "tiny.py"
    tiny.write_text(script)
    try:
        commands = launch.Commands(known, incident, Path(sys.executable))
        with commands, pytest.raises(processes.LabError, match=said):
            commands.run(incident.variants["command-fine"])
    finally:
        tiny.write_text(TINY)


def test_together_survives_what_stalls_and_what_dies(toy):
    known, incident = toy
    names = ("raises", "hangs-on-one-rank", "empty-assertion", "dies", "fine")
    seen = {
        o.variant: o
        for o in processes.together(known, incident, [(incident.variants[n], 1) for n in names], Path(sys.executable))
    }
    outcomes = {name: seen[name].outcome for name in names}
    assert outcomes == {
        "raises": "error",
        "hangs-on-one-rank": "hang",
        "empty-assertion": "error",
        "dies": "error",
        "fine": "match",
    }
    assert seen["empty-assertion"].message == "assert len({1, 1}) == 2\nAssertionError"


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("name", ["raises-on-one-rank", "raises-first"])
def test_the_rank_that_failed_first_is_believed(toy, name, alone):
    known, incident = toy
    variant, python = incident.variants[name], Path(sys.executable)
    one = processes.alone(known, incident, variant, python) if alone else None
    seen = one or processes.together(known, incident, [(variant, 1)], python)[0]
    assert (seen.outcome, seen.error) == ("error", "ddp-ready-twice"), (seen.message, seen.log)


def test_an_error_leaves_nothing_to_what_runs_after_it(toy):
    """One rank's error leaves the other in a collective, or begins one that the other never joins."""
    known, incident = toy
    incident = dataclasses.replace(incident, meta=incident.meta.model_copy(update={"time_limit": PATIENCE}))
    names = ("raises-on-one-rank", "fine", "leaves-a-collective", "fine", "raises", "fine")
    launch, counted = processes._Launch, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "_Launch", lambda *given: counted.append(given) or launch(*given))
        jobs = [(incident.variants[name], 1) for name in names]
        seen = processes.together(known, incident, jobs, Path(sys.executable))
    assert sorted((it.variant, it.outcome) for it in seen) == sorted(
        (name, "match" if name == "fine" else "error") for name in names
    )
    assert not any(it.log for it in seen), "none needed a launch of its own"
    assert len(counted) == 3, "`raises` leaves a group that answers"


def test_a_shared_launch_does_not_contradict_what_is_declared(toy):
    known, incident = toy
    variant = dataclasses.replace(
        incident.variants["fine"], declared={"current": schema.Declaration(outcome="diverge", error=None)}
    )
    (seen,) = processes.together(known, incident, [(variant, 1)], Path(sys.executable), environment="current")
    assert seen.log and seen.outcome == "match", "a launch of its own, as a reader starts it, decides"


def test_repeats(toy):
    known, incident = toy
    seen = processes.together(
        known, incident, [(incident.variants["fine"], 3), (incident.variants["raises"], 2)], Path(sys.executable)
    )
    assert [o.variant for o in seen].count("fine") == 3 and len(seen) == 5


def started(toy, variant: str, **options) -> subprocess.Popen:
    """`readyonce run`, as in a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "readyonce.cli.main", "run", "RO-0900", variant],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"READYONCE_ROOT": str(toy[0].root)},
        **options,
    )


def at_work(toy, variant: str) -> subprocess.Popen:
    process = started(toy, variant, preexec_fn=as_in_a_terminal)
    until(lambda: len(ours()) >= 3)  # the launcher and two ranks
    return process


@pytest.mark.parametrize("variant", ["hangs", "command-hangs"])
def test_what_is_killed_leaves_nothing(toy, tmp_path, variant):
    """By kill -9, or by a system that is out of memory."""
    process = at_work(toy, variant)
    extensions = {Path(it.environ()["TORCH_EXTENSIONS_DIR"]) for it in ours()}
    assert os.listdir(tmp_path) and all(map(Path.is_dir, extensions))

    def left():
        return ours(), os.listdir(tmp_path), [path for path in extensions if path.exists()]

    process.kill()
    process.communicate()
    until(lambda: not any(left()), left)


@pytest.mark.parametrize(
    "number, variant",
    [(signal.SIGINT, "hangs")] + [(it, "command-hangs") for it in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
)
def test_what_is_ended_leaves_nothing(toy, number, variant):
    process = at_work(toy, variant)
    process.send_signal(number)
    time.sleep(0.05)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # out of patience: that changes nothing
    said, _ = process.communicate(timeout=PATIENCE)
    codes = {128 + number}
    if number == signal.SIGINT:
        codes.add(-number)  # a shell's 130 too: so Python ends after a Ctrl-C in code that came as a text
    assert process.returncode in codes and "Traceback" not in said, said


@pytest.mark.parametrize("variant", ["fills", "command-fills"])
def test_file_that_grows_too_large_leaves_nothing(toy, variant):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    said, _ = (process := started(toy, variant, preexec_fn=limit)).communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "File too large" in said and "no known family" in said, said


@pytest.mark.parametrize("variant", ["fills", "command-fills"])
def test_full_disk_leaves_nothing_and_is_no_outcome(toy, tmp_path, variant):
    """On a real one, of 1 MB, that an ordinary user may mount in a namespace."""
    small = f"mount -t tmpfs -o size=1m none {tmp_path} && "
    if subprocess.run([*MOUNTING, f"{small} true"], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a disk of his own")
    told = subprocess.run(
        [
            *MOUNTING,
            f"{small} {{ {sys.executable} -m readyonce.cli.main run RO-0900 {variant}; echo $?; ls -A {tmp_path}; }}",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | {"READYONCE_ROOT": str(toy[0].root)},
    )
    assert told.stdout == "2\n", told.stdout + told.stderr
    assert "No space left on device, so this run says nothing" in told.stderr and "TMPDIR" in told.stderr


def test_lines_of_two_ranks_stay_whole(tmp_path, monkeypatch):
    """A `RESULT` that another rank's line cuts in two would count as an error."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    (scratch := tmp_path / "scratch").mkdir()
    (script := scratch / "talks.py").write_text(
        "import sys\nfor _ in range(2000):\n"
        "    print('RESULT', '{', '}', flush=True)\n    print('a', 'warning', file=sys.stderr)\n"
    )
    python = Path(sys.executable)
    with processes.running([*processes.torchrun(python, 2), script], python, str(scratch)) as process:
        process.wait(PATIENCE)
    lines = Counter(processes.log_of(scratch).splitlines())
    shutil.rmtree(scratch)
    assert lines["RESULT { }"] == lines["a warning"] == 4000, lines


@pytest.fixture
def operator():
    """Where the environment keeps an operator that only these tests have."""
    place = Path(sys.executable).parent.parent / "torch-extensions"
    folders = place / "an_operator", place / "whole" / "an_operator"
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)  # a launch beside an earlier test may have kept it
    yield folders
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folders[1].parent.rmdir()  # it may hold what DeepSpeed compiled


def test_lock_that_a_killed_launch_left_stops_nobody(toy, monkeypatch, operator):
    """torch waits for such a lock for ever, without a word."""
    known, incident = toy
    for folder in operator:
        folder.mkdir(parents=True)
        (folder / "lock").touch()
        (folder / "an_operator.so").write_text("nobody")
    seen = processes.alone(known, incident, incident.variants["compiles"], Path(sys.executable))
    assert seen.outcome == "match", seen.log


def test_what_a_launch_compiled_whole_is_kept_for_the_next(toy, monkeypatch, operator):
    known, incident = toy
    monkeypatch.setenv("COMPILED_BY", "the first")
    processes.alone(known, incident, incident.variants["compiles"], Path(sys.executable))
    monkeypatch.setenv("COMPILED_BY", "the second")
    seen = processes.alone(known, incident, incident.variants["compiles"], Path(sys.executable))
    assert "compiled by the first" in seen.log


def test_what_a_launch_was_given_is_not_kept_again(tmp_path, operator):
    """It may have been removed meanwhile, with the torch that it was compiled for."""
    kept = operator[1]
    kept.mkdir(parents=True)
    (kept / "an_operator.so").write_text("given")
    (scratch := tmp_path / "scratch").mkdir()
    script = "import os; print(open(os.environ['TORCH_EXTENSIONS_DIR'] + '/an_operator/an_operator.so').read())"
    with processes.running([sys.executable, "-c", script], Path(sys.executable), str(scratch)) as process:
        process.wait(PATIENCE)
        shutil.rmtree(kept)
    assert processes.log_of(scratch).strip() == "given" and not kept.exists()
    shutil.rmtree(scratch)


def test_launch_that_ends_while_it_compiles_says_so_and_keeps_nothing(toy, monkeypatch, tmp_path, capfd, operator):
    """While it waits too. It is no hang of what was to be run; and each launch compiles in a folder of its own."""
    folders = []
    monkeypatch.setattr(operators, "SILENCE", 0.5)
    script = (
        "import os, pathlib, time; f = pathlib.Path(os.environ['TORCH_EXTENSIONS_DIR'], 'an_operator'); f.mkdir(); "
    )
    script += "(f / 'an_operator.so').touch(); (f / 'lock').touch(); print(f, flush=True); time.sleep(3600)"
    (scratch := tmp_path / "scratch").mkdir()
    running = processes.running([sys.executable, "-c", script], Path(sys.executable), str(scratch))
    with pytest.raises(processes.LabError, match="operator to be compiled, at .*lock"), running:
        folders.append(Path(until((scratch / "log.txt").read_text).strip()))
        heard = [""]
        until(lambda: heard.append(heard[-1] + capfd.readouterr().err) or heard[-1].endswith("\n"))
        assert heard[-1] == f"Waiting for an operator to be compiled, at {folders[0]}/lock ...\n"
    assert not folders[0].exists() and not operator[1].exists()
    shutil.rmtree(scratch)


@pytest.mark.parametrize(
    "release, threads", [("0.14.4", "1"), ("0.19.7", "1"), ("0.19.8", "2"), ("0.20.0", "2"), (None, "2")]
)
def test_gloo_has_one_thread_where_deepspeed_needs_it(tmp_path, release, threads):
    bin_folder = tmp_path / "environment" / "bin"
    if release:
        (bin_folder.parent / f"lib/python3.11/site-packages/deepspeed-{release}.dist-info").mkdir(parents=True)
    script = "import torch.distributed as d; print(d.ProcessGroupGloo(d.HashStore(), 0, 1).options._threads)"
    command = [sys.executable, "-c", script]
    told = subprocess.run(command, capture_output=True, text=True, env=processes.environment_of(bin_folder))
    assert told.stdout.strip() == threads, told.stderr
    shutil.rmtree(bin_folder.parent, ignore_errors=True)


def test_what_accelerate_was_told_elsewhere_does_not_reach_a_run(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")  # with it, it takes DDP where DeepSpeed is asked for
    assert not any(name.startswith("ACCELERATE_") for name in processes.environment_of(Path(sys.executable).parent))


def test_one_device(toy):
    """The path that a GPU takes, on what is at hand; without a GPU nothing claims that there was one."""
    known, incident = toy
    repro = dict(incident.variants)
    for name in set(repro) - {"fine", "raises"}:
        del repro[name]
    small = dataclasses.replace(incident, variants=repro)
    seen = recording.on_one_device(known, small, "a-device", Path(sys.executable))
    assert {run.variant: run.outcome for run in seen.runs} == {"fine": "match", "raises": "error"}
    assert seen.environment.world_size == 1
    import torch

    assert (venvs.gpu() is None) == (not torch.cuda.is_available()) == (seen.environment.device == "cpu")


def test_disagreeing_runs_are_no_evidence(toy):
    _, incident = toy
    good, bad = (
        processes.Observation("fine", "match", gradient_error=0.0),
        processes.Observation("fine", "diverge", gradient_error=0.1),
    )
    assert recording.summarise([good, bad], {}, {})[1]
    assert recording.summarise([good, good], {"fine": bad}, {})[1]
    runs, faults = recording.summarise([good, good], {"fine": good}, {"fine": {"strategy": "ddp"}})
    assert not faults and runs[0].repeats == 2 and runs[0].alone and runs[0].facts == {"strategy": "ddp"}


# A process of its own, and a small one: a fork costs what is copied.
KILLS = """
import os, random, signal, sys, time
from pathlib import Path
from readyonce.data.project import write_whole

chance, path, text = random.Random(20261122), Path(sys.argv[1]), "text" * 4000  # more than is written at once

def writer():
    if process := os.fork():
        return process
    try:
        while True:
            write_whole(path, text)
    finally:
        os._exit(1)

write_whole(path, text)
writers = [writer(), writer()]
for kill in range(2000):
    time.sleep(chance.random() / 2000)
    killed = writers.pop(0)
    os.kill(killed, signal.SIGKILL)
    assert os.waitpid(killed, 0)[1] == signal.SIGKILL, "a writer stumbled"
    assert path.read_text() == text, f"broken by kill {kill}"
    writers.append(writer())
for each in writers:
    os.kill(each, signal.SIGKILL)
    os.waitpid(each, 0)
"""


def test_evidence_is_whole_whoever_writes_it_and_is_killed():
    """Two writers of one file; 2,000 times one of them is killed, at any moment. Nothing is left in the end."""
    environment = {"name": "current", "date": "", "python": "", "platform": "", "world_size": 2, "versions": {}}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # where waiting for the disk takes no time
        path = Path(folder) / "evidence" / "current.json"
        path.parent.mkdir()
        small = [sys.executable, "-S", "-c", KILLS, path]
        told = subprocess.run(
            small, env=os.environ | {"PYTHONPATH": "scripts"}, cwd=ROOT, capture_output=True, text=True
        )
        assert told.returncode == 0, told.stderr
        for left in path.parent.glob("*.new"):
            os.utime(left, (0, 0))
        evidence = schema.Evidence(environment=environment, runs=[])
        assert recording.write(SimpleNamespace(folder=Path(folder)), evidence) == path and json.loads(path.read_bytes())
        assert os.listdir(path.parent) == [path.name]


def test_a_full_disk_leaves_the_evidence_as_it_was(tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    project.write_whole(path := tmp_path / "current.json", "old")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "fsync", full)  # which tells it, where a write does not
        project.write_whole(path, "new")
    assert os.listdir(tmp_path) == [path.name] and path.read_text() == "old"
    path.unlink()


def test_torn_logs_have_their_message():
    log = 'W1 launcher\n[rank1]: Traceback (most recent call last):\n[rank1]:   File "x", line 1\n[rank1]:     f()\n[rank1]: ValueError: a\n[rank1]: b\nE1\n'
    assert processes.message_in(log) == "ValueError: a\nb"
    assert processes.message_in("Signal 11 (SIGSEGV) received") == ""
    later = "[rank0]: Traceback (most recent call last):\n[rank0]: RuntimeError: Connection closed by peer\n"
    assert processes.message_in(log + later) == "ValueError: a\nb"
    assert processes.message_in(log.replace("rank1", "rank7") + log.replace("a", "a 2")) == "ValueError: a\nb"


def test_run_says_in_words_what_happened():
    told = command("run", "RO-0001", "reported")
    assert told.returncode == 0, told.stderr
    assert "It failed: ddp-ready-twice." in told.stdout and "That is the declared outcome." in told.stdout
