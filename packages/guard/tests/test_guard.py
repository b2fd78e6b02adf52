"""The guard: what it says of every run, of wrong and of harmless loops, and of bad input."""

import ast
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from readyonce.data.words import of, say
from readyonce.lab import processes, venvs, verify
from readyonce.pages import guard
from support.patience import PATIENCE
from support.project import KNOWN, ROOT, selected

SCRIPT = ROOT / guard.FOLDER / guard.SCRIPT
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(SCRIPT.parent))
import loops  # noqa: E402
import readyonce_guard  # noqa: E402
import stalls  # noqa: E402

CASES = re.findall(r"^@(?:alone|together)\ndef (\w+)", (HERE / "cases.py").read_text(encoding="utf-8"), re.MULTILINE)
WATCHED = [
    pytest.param(incident, run, id=f"{incident.id}/{run.variant}")
    for incident in KNOWN.incidents.values()
    for run in (incident.evidence[guard.ENVIRONMENT].runs if guard.ENVIRONMENT in incident.evidence else ())
    if not incident.variants[run.variant].is_command and run.outcome != "hang"
]
LATER = [param for param in WATCHED if param.values[1].guard and (param.values[1].guard.step or 0) > 0]


# ------------------------------------------------------------------------------ what it said of every run


@pytest.mark.parametrize("incident, run", WATCHED)
def test_silent_runs_are_flagged_and_right_ones_are_not(incident, run):
    assert run.guard, "not run with the guard: readyonce verify --guard --write --environment current"
    if run.outcome in guard.SILENT:
        assert run.guard.codes or any(
            fnmatchcase(f"{incident.id}/{run.variant}", it) for it in guard.let_through(KNOWN)
        )
    elif run.outcome == "match" and run.guard.codes:
        assert f"{incident.id}/{run.variant}" in guard.exceptions(KNOWN)


def test_no_exception_is_left_over():
    flagged = {f"{i.id}/{r.variant}" for i, r in guard.watched(KNOWN) if r.outcome == "match" and r.guard.codes}
    assert flagged == set(guard.exceptions(KNOWN))
    for pattern in guard.let_through(KNOWN):
        assert guard.unflagged(KNOWN, pattern), f"{pattern} in missed.yml fits no silent run"


def test_every_silent_run_was_put_before_the_other_checks():
    stored = json.loads((ROOT / guard.FOLDER / "others.json").read_text(encoding="utf-8"))
    silent = {
        f"{incident.id}/{variant.script} {run.variant}"
        for incident, run in guard.watched(KNOWN)
        if run.outcome in guard.SILENT
        and (variant := incident.variants[run.variant]).launcher == "torchrun"
        and variant.processes == 2
    }
    assert silent == stored["checks"]["none"].keys() - set(stored["right"]), "packages/guard/tests/others.py FILE"


# How many steps a repro takes.
STEPS = (
    (r"^(STEPS\b.* = )3\b", r"\g<1>{}"),
    (r'in settings\["batches"\]:', 'in settings["batches"][:{}]:'),
    (r'settings\["steps"\]', "{}"),
)


def test_what_is_flagged_later_was_right_until_then(tmp_path):
    """Flagged before step k + 1: after k steps the parameters still equal those of one process.

    Not so where no optimizer holds a parameter: another one may step later, so it is told once all have stepped. And nan
    is told in the very step in which it appears.
    """
    jobs = {}
    for incident, run in (param.values for param in LATER):
        if run.outcome in guard.SILENT and not set(run.guard.codes) <= {"optimizer", "nan"}:
            jobs.setdefault((incident.id, run.guard.step), []).append(run.variant)
    assert jobs
    for (id, steps), variants in jobs.items():
        folder = tmp_path / f"{id}-{steps}"
        incident = replace(KNOWN.incidents[id], folder=folder)
        shutil.copytree(KNOWN.incidents[id].folder, folder)
        for name in {incident.variants[v].script for v in variants}:
            text = shorter = (folder / name).read_text(encoding="utf-8")
            for pattern, by in STEPS:
                shorter = re.sub(pattern, by.format(steps), shorter, flags=re.MULTILINE)
            assert shorter != text
            (folder / name).write_text(shorter, encoding="utf-8")
        python = venvs.interpreter(ROOT, "current")
        for seen in processes.together(KNOWN, incident, [(incident.variants[v], 1) for v in variants], python):
            assert seen.outcome == "match", (id, seen)


def test_what_the_guard_watched_is_watched_again_when_it_is_written_anew(tmp_path, monkeypatch):
    """Also outside `current`, whose runs alone are watched before they were ever asked for."""
    incident, environment = KNOWN.incidents["RO-0005"], "deepspeed-0.14.4"
    stored = next(run for run in incident.evidence[environment].runs if run.guard and run.outcome == "diverge")
    variant = incident.variants[stored.variant]
    folder = tmp_path / incident.folder.relative_to(ROOT)
    shutil.copytree(incident.folder, folder)
    shutil.copytree(SCRIPT.parent, tmp_path / guard.FOLDER)
    monkeypatch.setattr(venvs, "interpreter", lambda *_: Path(sys.executable))  # it ends alike with this release
    small = replace(incident, folder=folder, variants={variant.name: variant})
    known = replace(KNOWN, root=tmp_path, incidents={incident.id: small})
    assert not list(verify.differences(known, [small], [environment], verify.Wanted(write=True)))
    (run,) = json.loads((folder / "evidence" / f"{environment}.json").read_text(encoding="utf-8"))["runs"]
    assert run["guard"] == stored.guard.model_dump()


# ------------------------------------------------------------------------------ wrong and harmless loops


@pytest.fixture(scope="module")
def faults(request):
    import inject

    return inject.launch(sorted({it["change"] for it in selected(request, "faults")}))


@pytest.mark.parametrize("change", loops.WRONG)
def test_a_wrong_change_is_caught(faults, change):
    expected = loops.WRONG[change][3]
    assert (expected is None) == (change in loops.MISSED)
    assert expected in faults[change]["codes"] if expected else not faults[change]["codes"]


@pytest.mark.parametrize("change", loops.HARMLESS)
def test_a_harmless_change_is_let_through(faults, change):
    assert not faults[change]["codes"] and faults[change]["outcome"] == "match"


def test_the_table_shows_what_was_run():
    stored = json.loads((ROOT / guard.FOLDER / "faults.json").read_text(encoding="utf-8"))["loops"]
    assert set(stored) == {*loops.WRONG, *loops.HARMLESS}
    for name, told in stored.items():
        assert told["missed"] == loops.MISSED.get(name)
        if name in loops.WRONG:
            assert told["outcome"] != "match" and bool(told["codes"]) == (name not in loops.MISSED)
            assert loops.WRONG[name][3] in (told["codes"] or [None]), name
        else:
            assert told["outcome"] == "match" and not told["codes"]
    assert {f"guard-missed.{why}" for why in loops.MISSED.values()} == {
        key for key in of("zh") if key.startswith("guard-missed.")
    }
    assert len(loops.WRONG) >= 40 and len(loops.HARMLESS) >= 40


@pytest.mark.parametrize("language", ["en", "zh"])
def test_on_a_gpu_the_guard_says_the_same(language):
    import inject

    stored = json.loads((ROOT / guard.FOLDER / "faults.json").read_text(encoding="utf-8"))
    here = {name: told for name, told in stored["loops"].items() if told["loop"] in inject.ON_GPU}
    there = stored["gpu"]["loops"]
    assert len(there) > 100 and there.keys() <= here.keys()  # loops that were added since ran on CPU only
    same = {name for name, told in there.items() if told == {key: here[name][key] for key in ("codes", "step")}}
    assert all(set(told["codes"]) < set(here[name]["codes"]) for name, told in there.items() if name not in same)
    text = guard.includes(KNOWN, language)["guard/faults-gpu.md"]
    assert len(same) > 100 and str(len(there)) in text and str(len(same)) in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_shows_cost_and_other_checks_from_what_was_stored(language):
    made = guard.includes(KNOWN, language)
    page = (ROOT / "docs" / language / "guard-evidence.md").read_text(encoding="utf-8")
    assert '--8<-- "guard/cost.md"' in page and '--8<-- "guard/others.md"' in page
    stored = json.loads((ROOT / guard.FOLDER / "cost.json").read_text(encoding="utf-8"))
    runs = [run["rows"] for run in stored if run["device"].startswith("cpu")]
    for rows in runs:  # what the page says of all of them
        assert [(row["strategy"], row["size"]) for row in rows] == [
            (strategy, size) for strategy in ("ddp", "zero-3", "fsdp2") for size in ("2 M", "16 M", "100 M")
        ]
        assert all(not row["left"] and row["memory_bytes"] <= 1 << 19 and 0.02 < row["spread"] < 0.24 for row in rows)
    assert "7.5" in page and f"{max(100 * row['hooks'] for rows in runs for row in rows):.1f}" == "7.5"
    assert len(runs) == 4 and all(1200 < row["sent_bytes"] < 1400 for rows in runs for row in rows)
    shown = re.findall(r"^\| (?!---)(.*) \|$", made["guard/cost.md"], re.MULTILINE)[1:]
    for line, same in zip(shown, zip(*runs, strict=True), strict=True):
        hooks, all_of_it, spread = (statistics.median(row[key] for row in same) for key in ("hooks", "all", "spread"))
        assert hooks <= 0.031 and all_of_it <= 0.1 and 0.02 < spread < 0.16
        assert f"| 4 | {statistics.median(row['step_ms'] for row in same):.0f} ms |" in line
        assert f"| {100 * hooks:+.1f} % | {100 * all_of_it:+.1f} % |" in line
    on_gpu = [row for run in stored if not run["device"].startswith("cpu") for row in run["rows"]]
    assert '--8<-- "guard/cost-gpu.md"' in page
    assert {(row["strategy"], row["size"]) for row in on_gpu} == {
        (strategy, size) for strategy in ("ddp", "zero-3") for size in ("2 M", "16 M", "100 M")
    }
    for row in on_gpu:  # 1 to 3 ms, and 0.5 MB
        assert not row["left"] and row["hooks"] <= 0.03 and row["all"] <= 0.15
        assert 1 <= row["comparison_ms"] < 3 and row["memory_bytes"] <= 0.55e6
    stored = json.loads((ROOT / guard.FOLDER / "others.json").read_text(encoding="utf-8"))
    right, plain = set(stored["right"]), stored["checks"]["none"]
    flagged = {f"{i.id}/{i.variants[r.variant].script} {r.variant}" for i, r in guard.watched(KNOWN) if r.guard.codes}
    assert all(plain[name]["outcome"] == "match" for name in right) and len(plain) > 200
    assert all(it["outcome"] in guard.SILENT for name, it in plain.items() if name not in right)
    for check, differs in stored["checks"].items():
        told = plain | differs
        stopped = {name for name, it in told.items() if it["outcome"].startswith("stopped: ")}
        crashed = {name for name, it in told.items() if it["outcome"].startswith(("crashed", "not asked"))}
        same = told.keys() - stopped - crashed
        # Anomaly mode ends a run at nan in a backward, also where DeepSpeed leaves that step out; the page says so.
        nan = {name for name in told if name.startswith("RO-0016/") and "anomaly" in check}
        assert all(told[name]["outcome"] == plain[name]["outcome"] for name in same) and not (stopped & right) - nan, (
            check
        )
        assert stopped <= flagged if check == "the guard" else len(stopped - nan) <= 1, check
        assert not crashed - nan or "DETAIL" in check
        if check != "none":
            name = say("guard.guard", language) if check == "the guard" else f"`{check}`"
            assert f"\n| {name} | {len(stopped - right)} / {len(plain.keys() - right)}" in made["guard/others.md"]


@pytest.mark.parametrize("language, yes", [("en", "yes"), ("zh", "有")])
def test_the_page_shows_what_traincheck_said_of_the_same_runs(language, yes):
    stored = json.loads((ROOT / guard.FOLDER / "traincheck.json").read_text(encoding="utf-8"))["runs"]
    checks = json.loads((ROOT / guard.FOLDER / "others.json").read_text(encoding="utf-8"))["checks"]
    assert len(stored) == 6 and all(checks["none"][name]["outcome"] in guard.SILENT for name in stored)
    text = (ROOT / "docs" / language / "guard-evidence.md").read_text(encoding="utf-8")
    made = guard.includes(KNOWN, language)["guard/traincheck.md"]
    assert '--8<-- "guard/traincheck.md"' in text and made.count("\n| ") == len(stored) + 1
    assert made.count(f"| {yes} |") == sum(told.get("equal_parameters", False) for told in stored.values()) > 0
    for told in stored.values():
        assert "unusable" in told or told["only"] <= told["violated"] <= told["invariants"]
    one, two = [told["only"] for name, told in stored.items() if name.startswith("RO-0001/repro")]
    assert f"{one}" in text and f"{two}" in text


def test_the_frameworks_own_commands_stop_where_they_are_wrong_only():
    stored = json.loads((ROOT / guard.FOLDER / "commands.json").read_text(encoding="utf-8"))["runs"]
    assert {name.rpartition(" ")[2].rpartition("-")[0] for name in stored} >= {"ms-swift", "flagembedding"}
    outcomes = set()
    for name, told in stored.items():
        run, _, environment = name.rpartition(" ")
        id, _, variant = run.partition("/")
        known = KNOWN.incidents.get(id)
        outcome = known.evidence[environment].by_variant[variant].outcome if known else "match"
        outcomes.add(outcome)
        assert told["watching"].startswith("watching ") and outcome in ("match", "diverge")
        sure = [code for code in told["codes"] if readyonce_guard.CODES[code][3] == "sure"]
        assert bool(sure) == bool(told["exit"]) == (outcome == "diverge"), name
    assert outcomes == {"match", "diverge"}
    for language in ("en", "zh"):
        page = (ROOT / "docs" / language / "guard-evidence.md").read_text(encoding="utf-8")
        assert '--8<-- "guard/commands.md"' in page
        assert guard.includes(KNOWN, language)["guard/commands.md"].count("\n| ") == len(stored) + 1


# ------------------------------------------------------------------------------ bad input


@pytest.fixture(scope="module")
def answers(request, tmp_path_factory):
    wanted = [it["case"] for it in selected(request, "answers")]
    results = tmp_path_factory.mktemp("guard") / "results.jsonl"
    command = [*processes.torchrun(Path(sys.executable), 2), HERE / "cases.py", results, *wanted]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(part) for part in command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE * len(wanted),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = {}
    for line in results.read_text().splitlines():
        record = json.loads(line)
        said.setdefault(record["name"], []).append(record["error"])
    return said


@pytest.mark.parametrize("case", CASES)
def test_bad_input_has_an_answer(answers, case):
    assert case in answers
    assert not any(answers[case]), next(filter(None, answers[case]))


def test_a_first_step_that_moves_every_second_weight_only_is_not_still():
    """LoRA: B starts at zero, so that no A has a gradient. Every second parameter, as an even choice takes, is all A."""
    import torch

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.A, self.B = torch.nn.Parameter(torch.randn(4, 2)), torch.nn.Parameter(torch.zeros(2, 4))

        def forward(self, x):
            return x + x @ self.A @ self.B

    model = torch.nn.Sequential(*(Layer() for _ in range(16)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with readyonce_guard.watch(model, on_finding="record") as guarded:
        for _ in range(3):
            model(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert guarded.step == 3 and not guarded.findings


# ------------------------------------------------------------------------------ the command, the file, the page


def _command(*arguments, **options):
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **options,
    )


@pytest.mark.parametrize("variant, code", [("find-unused-false-stack-twice", "twice"), ("non-reentrant", None)])
def test_the_command_watches_a_launch(variant, code):
    repro = ROOT / "snippets" / "RO-0001" / "repro.py"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", repro, variant]
    done = _command("--steps", "2", "--", *map(str, launch))
    assert "readyonce guard: watching DDP, 2 ranks, 8 trainable parameters of 23, for 2 optimizer steps" in done.stderr
    if code:
        assert done.returncode and "RESULT" not in done.stdout
        assert f"[{code}] before optimizer step 1" in done.stderr
    else:
        assert done.returncode == 0 and '"outcome": "match"' in done.stdout
        assert "2 optimizer steps watched, no findings; removed" in done.stderr


@pytest.mark.frameworks
def test_lightnings_callback_stops_a_wrong_fit_and_leaves_nothing():
    launch = [*processes.torchrun(venvs.interpreter(ROOT, "frameworks"), 2), HERE / "lightning_ddp.py"]
    done = subprocess.run(list(map(str, launch)), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and done.stdout.count("DONE") == 2, done.stderr[-4000:]


def test_the_command_leaves_what_it_starts_alone(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('theirs', flush=True)\n")
    done = _command("--", sys.executable, "-c", "import sys; print('torch' in sys.modules); sys.exit(7)", cwd=tmp_path)
    assert done.returncode == 7 and done.stdout.splitlines()[-1] == "False"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, SCRIPT, "--", sys.executable, "-c", "print(1)"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.split() == ["theirs", "theirs", "1"]  # in ours, and in the one that we stood in front of


REFUSED = [
    ([], "name the command to run"),
    (["--"], "name the command to run"),
    (["--steps", "0", "--", "true"], "--steps is at least 1, not 0"),
    (["--steps", "many", "--", "true"], "invalid int value: 'many'"),
    (["--timeout", "0", "--", "true"], "--timeout is a number of seconds above 0, not 0"),
    (["--timeout", "nan", "--", "true"], "--timeout is a number of seconds above 0, not nan"),
    (["--stall", "0", "--", "true"], "--stall is a number of seconds above 0, not 0"),
    (["--stall", "inf", "--", "true"], "--stall is a number of seconds above 0, not inf"),
    (["--stall", "long", "--", "true"], "invalid float value: 'long'"),
    (["--fast", "--", "true"], "unrecognized arguments: --fast"),
    (["--", "no-such-program-here"], "no such command: no-such-program-here"),
    (["--", "torchrun train.py"], "name its words one by one"),
    (["--", "train.py"], "python -m readyonce_guard -- python train.py"),
    (["--", "./"], "./ cannot be run: Permission denied"),
]


@pytest.mark.parametrize("arguments, says", REFUSED)
def test_a_command_that_cannot_run_is_refused(arguments, says):
    done = _command(*arguments)
    assert done.returncode == 2 and "usage:" in done.stderr and "Traceback" not in done.stderr
    assert says in done.stderr


TRAINS = "import torch, sys; m = torch.nn.Linear(1, 1); o = torch.optim.SGD(m.parameters()); m(torch.ones(1)).backward(); o.step()"
LAUNCHES = f"""
import subprocess, sys, torch
sys.exit(subprocess.run([sys.executable, "-I", "-c", {TRAINS!r}]).returncode)
"""
WRAPS = """
import torch, torch.distributed as dist
{group}
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
loss = ddp(torch.ones(1))
"""
ONE_RANK = "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)"
TWO_RANKS = """
import torch.testing._internal.distributed.fake_pg as it
dist.init_process_group('fake', store=it.FakeStore(), rank=0, world_size=2)
"""
UNSEEN = [  # command, its WORLD_SIZE, the furthest that the guard came, exit code
    (["true"], "2", None, 90),
    ([sys.executable, "-I", "-c", "import torch"], "2", None, 90),
    ([sys.executable, "-c", "pass"], "2", "python", 90),
    ([sys.executable, "-c", "import torch"], "2", "torch", 90),
    ([sys.executable, "-c", LAUNCHES], "2", "torch", 90),
    ([sys.executable, "-c", TRAINS], "1", "alone", 0),
    ([sys.executable, "-c", TRAINS], "2", "ranks", 90),
    ([sys.executable, "-c", f"{TRAINS}; sys.exit(3)"], "2", "ranks", 3),
    ([sys.executable, "-c", WRAPS.format(group=TWO_RANKS)], "1", "model", 90),
]


@pytest.mark.parametrize("command, ranks, furthest, code", UNSEEN)
def test_a_command_that_shows_it_nothing_is_said_to(command, ranks, furthest, code, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", ranks)
    done = _command("--", *command)
    assert done.returncode == code and f"nothing was watched: {readyonce_guard.UNSEEN[furthest]}" in done.stderr
    if furthest in ("alone", "ranks"):
        says = {"1": "one process, and no model", "2": "2 ranks, and no model was called"}[ranks]
        assert f"readyonce guard: {says} under DDP" in done.stderr


def test_a_training_that_ends_early_is_said_to():
    code = WRAPS.format(group=ONE_RANK) + "loss.backward(); torch.optim.SGD(ddp.parameters()).step()"
    done = _command("--", sys.executable, "-c", code)
    assert done.returncode == 0 and "1 of 3 optimizer steps watched, no findings; removed" in done.stderr
    assert "nothing was watched" not in done.stderr


@pytest.mark.parametrize("language", ["en", "zh"])
def test_page_and_help_name_the_exit_code_and_the_signals(language):
    page = (ROOT / "docs" / language / "guard.md").read_text(encoding="utf-8")
    for text in (page, " ".join(_command("--help").stdout.split())):
        assert re.search(rf"\b{readyonce_guard.UNWATCHED}\b", text) and "128 + n" in text
    assert all(name in page for name in readyonce_guard.PASSED_ON)


def test_it_comes_along_where_somebody_asks_for_torch_before_the_import():
    """As transformers does: it looks whether torch is there."""
    code = "import importlib.util as it; it.find_spec('torch'); it.find_spec('torch'); import torch"
    assert readyonce_guard.UNSEEN["torch"] in _command("--", sys.executable, "-c", code).stderr


# A training that saves at a signal: the signal goes to the guard alone.
SIGNALLED = """
import os, signal, sys, time
number = int(sys.argv[1])
if sys.argv[2] == "ignores":
    sys.exit(7 if signal.getsignal(number) == signal.SIG_IGN else 1)
if sys.argv[2] == "saves":
    signal.signal(number, lambda *_: sys.exit(7))
os.kill(os.getppid(), number)
time.sleep(300)  # ended long before
"""


def _heed_signals():
    """Who runs the tests in the background may have them ignored."""
    for name in readyonce_guard.PASSED_ON:
        signal.signal(signal.Signals[name], signal.SIG_DFL)


def _signalled(number, training, folder, *before):
    done = subprocess.run(
        [*before, sys.executable, SCRIPT, "--", sys.executable, "-c", SIGNALLED, str(int(number)), training],
        capture_output=True,
        env=os.environ | {"TMPDIR": str(folder)},
        preexec_fn=_heed_signals,
        timeout=PATIENCE,
    )
    assert not list(folder.iterdir())
    return done.returncode


@pytest.mark.parametrize("name", readyonce_guard.PASSED_ON)
def test_a_signal_reaches_the_training(name, tmp_path):
    assert _signalled(signal.Signals[name], "saves", tmp_path) == 7


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_signal_ends_the_command_as_in_a_shell(name, tmp_path):
    number = signal.Signals[name]
    assert _signalled(number, "does not", tmp_path) == 128 + number


def test_a_signal_that_is_to_be_ignored_stays_ignored(tmp_path):
    assert _signalled(signal.SIGHUP, "ignores", tmp_path, "nohup") == 7


def test_the_first_process_of_a_container_passes_signals_on(tmp_path):
    alone = ["unshare", "--pid", "--fork"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("a process namespace of its own is not permitted here")
    assert _signalled(signal.SIGTERM, "saves", tmp_path, *alone) == 7


# It has the guard pass on another signal, behind which nothing of the first is left.
TYPED = """
import os, signal, time
came, ended = [], []
signal.signal(signal.SIGUSR1, lambda *_: ended.append(1))
signal.signal(signal.SIGINT, lambda *_: came.append(1) or os.kill(os.getppid(), signal.SIGUSR1))
signal.alarm(300)
print("ready", flush=True)
while not ended:
    time.sleep(0.01)
print("came", len(came), flush=True)
"""


def test_what_is_typed_in_a_terminal_comes_once():
    """A terminal sends Ctrl-C to all that runs in front; the guard adds no second one."""
    import pty

    process, terminal = pty.fork()
    if not process:
        _heed_signals()
        os.execv(sys.executable, [sys.executable, str(SCRIPT), "--", sys.executable, "-c", TYPED])
    said = b""
    while b"ready" not in said:
        said += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    while not (came := re.search(rb"came (\d+)\r\n", said)):
        said += os.read(terminal, 1024)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == readyonce_guard.UNWATCHED and came[1] == b"1"
    os.close(terminal)


# ------------------------------------------------------------------------------ a training that hangs


class _Training:
    """stalls.py as it runs, behind the guard's command or with `watch(..., stall=2)` in it."""

    def __init__(self, how, ranks, folder, by_command, stall):
        self.folder, self.log = folder / stalls.FOLDER, folder / "log"
        guard = [sys.executable, SCRIPT, "--stall", stall, "--stall-folder", stalls.FOLDER, "--"] if by_command else []
        command = [*guard, *processes.torchrun(Path(sys.executable), ranks), HERE / "stalls.py", how]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdout=log,
                stderr=log,
                cwd=folder,
                env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)},
                preexec_fn=_heed_signals,
            )

    @property
    def said(self):
        return self.log.read_text(encoding="utf-8")

    def until(self, pattern):
        limit = time.monotonic() + PATIENCE
        while not re.search(pattern, self.said):
            assert self.process.poll() is None and time.monotonic() < limit, self.said[-4000:]
            time.sleep(0.1)
        return self.said

    def written(self):
        return {told["rank"]: told for _, told in readyonce_guard._files(self.folder)}


@contextlib.contextmanager
def _training(how, ranks, folder, by_command=True, stall="2"):
    training = _Training(how, ranks, folder, by_command, stall)
    try:
        yield training
    finally:
        if training.process.poll() is None:
            training.process.terminate()  # reaches torchrun, which ends the ranks; else their own alarm does
        training.process.wait(PATIENCE)


HUNG = [  # how, ranks, what is said of them; the name of the file before each number of a line
    (
        "skips",
        4,
        r"ranks 0-2 wait in `all_reduce` at F:\d+ in average; 3 .*\n  rank 3 waits in `barrier` at F:\d+ in train;",
    ),
    (
        "fewer",
        3,
        r"ranks 0-1 stand in `Tensor.backward` at F:\d+ in train; 2 .*\n  rank 2 waits in `barrier` at F:\d+ in train;",
    ),
    (
        "saves",
        2,
        r"rank 0 waits in `barrier` at F:\d+ in save; 2 .*\n  rank 1 stands in `Tensor.backward` at F:\d+ in train;",
    ),
]


@pytest.mark.parametrize("how, ranks, says", HUNG)
def test_a_training_that_hangs_is_told_where_each_rank_stands(how, ranks, says, tmp_path):
    says = says.replace("F:", rf"{re.escape(str(HERE))}/stalls\.py:")
    with _training(how, ranks, tmp_path) as training:
        said = training.until(rf"{says}[^$]*?guard/#hangs")
        written = training.written()
        training.process.send_signal(signal.SIGTERM)
        code = training.process.wait(PATIENCE)
    assert code == 1 and len(re.findall(says, training.said)) == 1  # as torchrun ends; told once
    assert sorted(written) == list(range(ranks)) and str(training.folder) in said
    for rank, told in written.items():
        assert not os.path.exists(f"/proc/{told['pid']}")
        text = max(training.folder.glob(f"rank-{rank}-stall-*.txt")).read_text(encoding="utf-8")
        assert text.startswith(f"rank {rank} on ") and "Current thread" in text and "stalls.py" in text
    report = max(training.folder.glob("report-*.txt"))
    assert report.read_text(encoding="utf-8").rstrip() in said
    if how == "saves":  # not where they stand, but where their ways part
        assert re.search(
            r"they part at \S+stalls.py:\d+ in train \(rank 0\), \S+stalls.py:\d+ in train \(rank 1\)", said
        )


@pytest.mark.parametrize("how", ["slow", "watched-slow"])
def test_a_stall_that_ends_by_itself_is_told_once_and_said_to_have_ended(how, tmp_path):
    with _training(how, 2, tmp_path, by_command=how == "slow") as training:
        assert training.process.wait(PATIENCE) == 0
    said = training.said
    stands = r"rank 0 stands in `Tensor.backward` .*\n  rank 1 stands at .* in wait_for_a_report;"
    assert len(re.findall(stands, said)) == 1 and said.count("has trained") == 2
    # A machine that is busy enough takes a step for a stall; each is said to have ended.
    ended = said.count("the stall ended by itself: ranks 0-1 took a step again")
    assert said.count("no optimizer step") == ended == len(list(training.folder.glob("report-*.txt"))) >= 1


@pytest.mark.parametrize("how", ["healthy", "stopped"])
def test_a_training_that_steps_or_is_stopped_by_a_signal_is_no_stall(how, tmp_path):
    with _training(how, 2, tmp_path, stall="7") as training:
        assert training.process.wait(PATIENCE) == 0
    assert "no optimizer step" not in training.said and not training.folder.exists()
    assert training.said.count("has trained") == 2


def test_a_rank_that_died_is_named(tmp_path):
    with _training("dies", 2, tmp_path) as training:
        training.until(r"rank 0 stands at .* in wait_for_a_report;.*\n  rank 1 wrote nothing here: ended, ")


def test_on_a_full_disk_the_report_is_lost_and_the_training_is_not(tmp_path):
    (tmp_path / stalls.FOLDER).mkdir()
    (tmp_path / stalls.FOLDER / "rank-0.part").symlink_to("/dev/full")
    with _training("slow", 2, tmp_path) as training:
        assert training.process.wait(PATIENCE) == 0
    said = training.said
    assert re.search(r"rank 0: no optimizer step for \d+ s, 2 done; it stands in .* No space left on device\n", said)
    assert "the stall ended by itself: rank 0 goes on" in said and said.count("has trained") == 2


def test_where_the_folder_cannot_be_written_each_rank_says_where_it_stands(tmp_path):
    (tmp_path / stalls.FOLDER).write_text("a file")
    with _training("late", 2, tmp_path) as training:
        assert training.process.wait(PATIENCE) == 0
    said = training.said
    for rank in range(2):
        assert re.search(rf"rank {rank}: no optimizer step for \d+ s, 2 done; it stands .* cannot be written to ", said)
        assert f"the stall ended by itself: rank {rank} goes on" in said
    assert said.count("has trained") == 2


def _told(rank, *stack, ranks=8, collectives=341):
    """What a rank writes; its stack is given as "own data.py:41 in read", the innermost last."""
    frames = [re.fullmatch(r"(\w+) (.*):(\d+) in (.*)", frame).groups() for frame in reversed(stack)]
    stack = [(file, int(line), name, whose) for whose, file, line, name in frames]
    return {"rank": rank, "ranks": ranks, "waited": 300.2, "steps": 112, "collectives": collectives, "stack": stack}


REDUCES = "torch torch/distributed/distributed_c10d.py:3252 in all_reduce"


def test_the_page_shows_a_stall_as_it_is_printed():
    main, wraps = (
        "own train.py:12 in <module>",
        "torch torch/distributed/c10d_logger.py:83 in _exception_logger.<locals>.wrapper",
    )
    waits = [
        _told(rank, main, "own train.py:71 in train", "own train.py:88 in mean_loss", wraps, REDUCES)
        for rank in range(7)
    ]
    reads = _told(7, main, "own train.py:60 in train", "own data.py:41 in read_shard", collectives=340)
    text = readyonce_guard._grouped([reads, *waits], "/home/you/readyonce-stall-20261129-142152-4711")
    assert f"readyonce guard: {text}\n" == (SCRIPT.parent / "stall.txt").read_text(encoding="utf-8")
    for language in ("en", "zh"):
        page = (ROOT / "docs" / language / "symptoms.md").read_text(encoding="utf-8")
        assert "{#hangs}" in page and '--8<-- "guard/stall.txt"' in page and readyonce_guard.STALL in page


def test_ranks_are_parted_by_what_calls_a_framework_and_by_how_many_collectives_they_began():
    library = "package /venv/lib/site-packages/accelerate/utils/operations.py:33 in reduce"
    written = [
        _told(0, "own train.py:5 in train", library, REDUCES, ranks=4),
        _told(1, "own train.py:9 in evaluate", library, REDUCES, ranks=4),
        _told(3, "own train.py:9 in evaluate", library, REDUCES, ranks=4, collectives=340),
    ]
    said = readyonce_guard._grouped(written, "here")
    for ranks, place, begun in (
        ("rank 0", "5 in train", 341),
        ("rank 1", "9 in evaluate", 341),
        ("rank 3", "9 in evaluate", 340),
    ):
        waits = f"{ranks} waits in `all_reduce` at accelerate/utils/operations.py:33 in reduce (from train.py:{place})"
        assert f"  {waits}; 112 steps done, {begun} collectives begun\n" in said
    assert "  rank 2 wrote nothing here: " in said
    assert readyonce_guard._ranges([9, 0, 2, 1, 4]) == "0-2, 4, 9"


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "soon"])
def test_a_stall_of_no_sensible_length_is_refused(given, monkeypatch):
    import torch

    monkeypatch.setenv(readyonce_guard.STALL, given)
    with pytest.raises(ValueError, match="stall is a number of seconds above 0"):
        readyonce_guard.watch(torch.nn.Linear(1, 1), on_finding="record")
    assert not readyonce_guard._guards
    done = _command("--", "true")
    assert done.returncode == 2 and "--stall" in done.stderr and "Traceback" not in done.stderr


def test_a_stall_is_watched_as_the_environment_says_until_the_guard_is_removed(monkeypatch):
    import torch
    from torch.optim import optimizer

    monkeypatch.setenv(readyonce_guard.STALL, "600")
    with readyonce_guard.watch(torch.nn.Linear(1, 1), on_finding="record") as guarded:
        stall = guarded.stalls
        assert stall.seconds == 600 and stall.thread.is_alive()
    assert not stall.thread.is_alive() and stall.handle.id not in optimizer._global_optimizer_post_hooks


def test_the_file_needs_torch_only():
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {alias.name.split(".")[0] for node in top if isinstance(node, ast.Import) for alias in node.names} | {
        node.module.split(".")[0] for node in top if isinstance(node, ast.ImportFrom)
    } <= set(sys.stdlib_module_names)
    inside = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    allowed = {"torch", "transformers", "lightning", "pytorch_lightning", "deepspeed"}  # each where it is asked for
    assert inside <= {*sys.stdlib_module_names, *allowed}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_names_every_code(language):
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    (codes,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "CODES"
    )
    page, findings = (
        (ROOT / "docs" / language / f"{name}.md").read_text(encoding="utf-8") for name in ("guard", "guard-findings")
    )
    # A finding leads to its own row, and the row to its section, which says what to change.
    rows = re.findall(r"^\| `(\w+)`\{ #\1 \} \| .+ \| .*\]\(guard-findings\.md#\1\).* \|$", page, re.MULTILINE)
    assert sorted(rows) == (known := sorted(key.value for key in codes.keys))
    sections = re.findall(r"^#+ .*\{#(\w+)\}\n\n(?=(.+))", findings, re.MULTILINE)
    assert set(known) <= {anchor for anchor, words in sections if len(words) > 20}


def test_the_page_shows_a_finding_as_it_is_printed():
    seen = readyonce_guard.Finding("start", 0, ("linear.bias",), "sizes differ by up to 7.7e-01", ("linear (Linear)",))
    assert f"{seen}\n" == (SCRIPT.parent / "finding.txt").read_text(encoding="utf-8")


def test_a_published_wiki_hands_out_a_file_that_leads_back_to_it(monkeypatch):
    monkeypatch.setenv("SITE_URL", "https://wiki.example.com")
    text = guard.files(KNOWN)[guard.SCRIPT]
    space = {"__name__": "published"}
    exec(compile(text, "readyonce_guard.py", "exec"), space)  # dataclasses look the module up by name
    assert space["_page"]("guard/#start", "Guard") == "https://wiki.example.com/guard/#start"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_pages_count_what_was_watched(language):
    told = json.loads((ROOT / guard.FOLDER / "commands.json").read_text(encoding="utf-8"))["runs"]
    silent = [run for runs in guard.silent(KNOWN, told).values() for run in runs]
    watched = [flagged for _, flagged in silent if flagged is not None]
    assert len(silent) > len(watched)  # else the words beside the table are to be changed
    assert watched.count(False) == len(guard.unflagged(KNOWN))
    made = guard.includes(KNOWN, language)
    assert str(len(silent)) in made["guard/watched.md"] and str(len(watched)) in made["guard/watched.md"]
    already = (ROOT / "docs" / language / "already-trained.md").read_text(encoding="utf-8")
    assert '--8<-- "guard/watched.md"' in already


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_shows_the_noise_of_replay(language):
    stored = json.loads((ROOT / guard.FOLDER / "noise.json").read_text(encoding="utf-8"))
    rows = [row for run in stored for row in run["rows"]]
    made = guard.includes(KNOWN, language)["guard/noise.md"]
    assert {row["precision"] for row in rows} == set(guard.PRECISIONS)
    assert made.count("\n| ") == 1 + len(rows)
    for run in stored:
        device = run["device"].replace("cpu", "CPU")
        assert all(f"| {row['precision']} | {device} |" in made for row in run["rows"])
    for row in rows:  # what the limits stand on
        limit = readyonce_guard.LIMITS[row["precision"].replace("bf16", "bfloat16").removesuffix(" autocast")]
        assert row["two_replays"] <= limit
        assert row["difference"][1] <= limit if row["setting"] == "non-reentrant" else row["difference"][0] > limit


@pytest.mark.parametrize("folder", ["guard", "zh/guard"])
def test_the_page_hands_out_the_file(built, folder):
    assert (built / folder / SCRIPT.name).read_bytes() == SCRIPT.read_bytes()
    assert f'href="{SCRIPT.name}"' in (built / folder / "index.html").read_text(encoding="utf-8")


def test_the_examples_parse():
    compile((ROOT / guard.FOLDER / "examples.py").read_text(encoding="utf-8"), "examples.py", "exec")
