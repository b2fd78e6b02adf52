"""The guard: what it says of every run, of wrong and of harmless loops, and of bad input."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import KNOWN, ROOT, selected

from readyonce import guard, lab

SCRIPT = ROOT / guard.FOLDER / guard.SCRIPT
HERE = Path(__file__).parent / "guard"
sys.path.insert(0, str(HERE))
import loops  # noqa: E402

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
        assert run.guard.codes
    elif run.outcome == "match" and run.guard.codes:
        assert f"{incident.id}/{run.variant}" in guard.exceptions(KNOWN)


def test_no_exception_is_left_over():
    flagged = {f"{i.id}/{r.variant}" for i, r in guard.watched(KNOWN) if r.outcome == "match" and r.guard.codes}
    assert flagged == set(guard.exceptions(KNOWN))


# How many steps a repro takes.
STEPS = (
    (r"^(STEPS\b.* = )3\b", r"\g<1>{}"),
    (r'in settings\["batches"\]:', 'in settings["batches"][:{}]:'),
    (r'settings\["steps"\]', "{}"),
)


def test_what_is_flagged_later_was_right_until_then(tmp_path):
    """Flagged before step k + 1: after k steps the parameters still equal those of one process."""
    jobs = {}
    for incident, run in (param.values for param in LATER):
        if run.outcome in guard.SILENT:
            jobs.setdefault((incident.id, run.guard.step), []).append(run.variant)
    assert jobs
    for (id, steps), variants in jobs.items():
        folder = tmp_path / f"{id}-{steps}"
        incident = replace(KNOWN.incidents[id], folder=folder)
        shutil.copytree(KNOWN.incidents[id].folder, folder)
        for name in {incident.variants[v].file for v in variants}:
            text = shorter = (folder / name).read_text(encoding="utf-8")
            for pattern, by in STEPS:
                shorter = re.sub(pattern, by.format(steps), shorter, flags=re.MULTILINE)
            assert shorter != text
            (folder / name).write_text(shorter, encoding="utf-8")
        python = lab.interpreter(ROOT, "current")
        for seen in lab.together(KNOWN, incident, [(incident.variants[v], 1) for v in variants], python):
            assert seen.outcome == "match", (id, seen)


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
        else:
            assert told["outcome"] == "match" and not told["codes"]
    assert set(loops.MISSED.values()) == set(guard.MISSED_ZH)
    assert len(loops.WRONG) >= 40 and len(loops.HARMLESS) >= 40


# ------------------------------------------------------------------------------ bad input


@pytest.fixture(scope="module")
def answers(request, tmp_path_factory):
    wanted = [it["case"] for it in selected(request, "answers")]
    results = tmp_path_factory.mktemp("guard") / "results.jsonl"
    command = [*lab.torchrun(Path(sys.executable), 2), HERE / "cases.py", results, *wanted]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True, timeout=400)
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


# ------------------------------------------------------------------------------ the command, the file, the page


def _command(*arguments, **options):
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        **options,
    )


@pytest.mark.parametrize("variant, code", [("find-unused-false-stack-twice", "twice"), ("non-reentrant", None)])
def test_the_command_watches_a_launch(variant, code):
    repro = ROOT / "snippets" / "RO-0001" / "repro.py"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", repro, variant]
    done = _command("--steps", "2", "--", *map(str, launch))
    assert "readyonce guard: watching DDP, 2 ranks, 8 trainable parameters, for 2 optimizer steps" in done.stderr
    if code:
        assert done.returncode and "RESULT" not in done.stdout
        assert f"[{code}] before optimizer step 1" in done.stderr
    else:
        assert done.returncode == 0 and '"outcome": "match"' in done.stdout
        assert "2 optimizer steps watched, no findings; removed" in done.stderr


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


@pytest.mark.parametrize("arguments", [[], ["--"], ["--steps", "0", "--", "true"], ["--", "no-such-program-here"]])
def test_a_command_that_cannot_run_is_refused(arguments):
    done = _command(*arguments)
    assert done.returncode == 2 and "usage:" in done.stderr


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
    page = (ROOT / "docs" / language / "guard.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) and sorted(
        re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    ) == sorted(key.value for key in codes.keys)


@pytest.mark.parametrize("folder", ["guard", "zh/guard"])
def test_the_page_hands_out_the_file(built, folder):
    assert (built / folder / SCRIPT.name).read_bytes() == SCRIPT.read_bytes()
    assert f'href="{SCRIPT.name}"' in (built / folder / "index.html").read_text(encoding="utf-8")


def test_the_examples_parse():
    compile((ROOT / guard.FOLDER / "examples.py").read_text(encoding="utf-8"), "examples.py", "exec")
