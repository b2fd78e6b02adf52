"""Bad input gets an error that names file, line and remedy; `faults/` has one file for each fault.

A fault file says what to do to a copy of the project (`edit` with `find` and `replace`, `remove`,
`remove_tree`, or `link` and `to`), and what must be said: `says`, in `file` (the edited one), at
`line`, or where the text `near` begins.
"""

import json
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, command, edit

from readyonce import catalog, check, lab, render

FAULTS = sorted((Path(__file__).parent / "faults").glob("*.yml"))


def test_nothing_to_mend():
    found = check.problems(catalog.load(ROOT))
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("path", FAULTS, ids=lambda path: path.stem)
def test_fault(copy, path):
    fault = catalog.parse_yaml(path.read_text(encoding="utf-8"))
    commit(copy, fault)
    found = check.problems(catalog.load(copy))
    file = fault.get("file") or fault["edit"]
    told = [problem for problem in found if problem.file == file and fault["says"] in problem.what]
    assert told, "\n".join(map(str, found)) or "nothing was found"
    assert told[0].remedy
    if near := fault.get("near"):
        text = (copy / file).read_text(encoding="utf-8")
        assert told[0].line == text[: text.index(near)].count("\n") + 1, told[0]
    if line := fault.get("line"):
        assert told[0].line == int(line), told[0]


def commit(copy: Path, fault: dict) -> None:
    if "edit" in fault:
        edit(copy / fault["edit"], fault["find"], fault["replace"])
    if "remove" in fault:
        (copy / fault["remove"]).unlink()
    if "remove_tree" in fault:
        shutil.rmtree(copy / fault["remove_tree"])
    if "link" in fault:
        (copy / fault["link"]).symlink_to(fault["to"])


def test_all_faults_in_one_go(copy):
    names = ("heading-without-id", "dead-link", "unknown-error-family", "symlink-under-snippets")
    faults = [catalog.parse_yaml((FAULTS[0].parent / f"{name}.yml").read_text(encoding="utf-8")) for name in names]
    for fault in faults:
        commit(copy, fault)
    told = command("check", root=copy)
    assert told.returncode == 1
    for fault in faults:
        assert fault["says"] in told.stderr


def test_a_module_under_torchrun_has_options_of_its_own():
    script = 'N=4 torchrun --nproc-per-node "$N" -m some.module --epochs 1'
    launcher, module = check.commands(script)
    assert launcher == ["torchrun", "--nproc-per-node", "$N"]
    assert module == ["python", "-m", "some.module", "--epochs", "1"]


def test_evidence_of_one_gpu_is_shown_and_judges_nothing(copy):
    folder = copy / "snippets" / "RO-0004" / "evidence"
    record = json.loads((folder / "current.json").read_text(encoding="utf-8"))
    record["environment"] |= {"name": "nvidia-test", "device": "cuda", "backend": "nccl", "world_size": 1}
    record["runs"] = [run for run in record["runs"] if run["outcome"] == "match"][:2]
    before = catalog.load(copy).require_sound()
    (folder / "nvidia-test.json").write_text(json.dumps(record), encoding="utf-8")
    after = catalog.load(copy).require_sound()
    assert after.incidents["RO-0004"].evidence == before.incidents["RO-0004"].evidence
    shown = render.incident_includes(after, after.incidents["RO-0004"], "en")["RO-0004/evidence.md"]
    assert "CUDA (nccl, world size 1)" in shown and "of 2 variants 2 came out as with two" in shown


@pytest.mark.parametrize("name", ["snippets/RO-0001/incident.yml", "snippets/RO-0001/evidence/current.json"])
@pytest.mark.parametrize(
    "bomb", ['"\x1b[2J"', "[" * 100_000, "[" * 900 + "]" * 900, "- " * 5000, '{"a":' * 20_000, "1" * 5000]
)
def test_what_would_crash_a_parser_is_refused(copy, name, bomb):
    (copy / name).write_text(bomb)
    told = command("list", root=copy, timeout=60)
    assert told.returncode == 1 and "Traceback" not in told.stderr, told.stderr
    assert f"{name}:1: " in told.stderr and "\n    " in told.stderr and len(told.stderr) < 1000


def test_nothing_is_shown_from_outside(copy):
    """Neither the terminal nor the site follows an include out of its folder, in any of its forms."""
    (copy / "secret.txt").write_text("do not show")
    page = copy / "docs/en/incidents/RO-0001.md"
    text = page.read_text(encoding="utf-8")
    forms = ('--8<-- "../secret.txt"', f'--8<-- "{copy}/secret.txt"', "--8<--\n../secret.txt\n--8<--")
    for include in forms:
        page.write_text(f"{text}\n{include}\n", encoding="utf-8")
        told = command("explain", "RO-0001", root=copy)
        assert told.returncode == 0 and "do not show" not in told.stdout
    built = command("site", root=copy)
    assert built.returncode == 1 and "../secret.txt" in built.stderr and "Traceback" not in built.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "snippets" / "environments").glob("*.txt")), ids=lambda path: path.stem)
def test_a_lock_holds_what_its_list_pins(path):
    if path.stem == "current":  # its pins stand in tests/requirements.txt
        locked = (ROOT / "tests" / "requirements.txt").read_text(encoding="utf-8")
        locked += path.read_text(encoding="utf-8")
    else:
        locked = (path.parent / "locks" / path.name).read_text(encoding="utf-8")
    names = {line.lower().replace("_", "-").split(" ")[0] for line in locked.splitlines()}
    for name, release in lab.pins(ROOT, path.stem).items():
        assert f"{name}=={release}".lower().replace("_", "-") in names, "make lock"
