"""The files under `faults/`: each says what to do to a copy of the project, and what must be said of it then.

A fault file says `edit` with `find` and `replace`, `remove`, `remove_tree`, or `link` and `to`; and all that must be said: first
`says`, in `file` (the edited one), at `line`, or where the text `near` begins; then what stands under `also`, in its order, and
nothing else. `remedy` is a part of the first remedy. `rule` names the function of `readyonce.check` that finds it, or `loading`.
"""

import contextlib
import shutil
from pathlib import Path

from readyonce.data import reading
from support.project import ROOT, TESTS, edit

FAULTS = sorted((TESTS / "faults").glob("*.yml"))


def read(path: Path) -> dict:
    return reading.parse_yaml(path.read_text(encoding="utf-8"))


def expected(fault: dict) -> list[dict]:
    """Each problem that must be told: its `file`, and what it `says`."""
    return [{"file": fault.get("file") or fault["edit"], "says": fault["says"]}, *fault.get("also", [])]


def is_told(wanted: dict, problem: reading.Problem) -> bool:
    return problem.file == wanted["file"] and wanted["says"] in problem.what


def judge(copy: Path, fault: dict, found: list[reading.Problem]) -> None:
    wanted = expected(fault)
    # What a script or a rule says is in the address of evidence, so a fault in it makes that stale, too: test_made_from.py.
    found = [one for one in found if not one.what.startswith("it was stored with another")]
    said = [is_told(it, one) for one, it in zip(found, wanted)]
    assert len(found) == len(wanted) and all(said), "\n".join(map(str, found)) or "nothing was found"
    assert all(problem.remedy for problem in found) and fault.get("remedy", "") in found[0].remedy
    if near := fault.get("near"):
        text = (copy / wanted[0]["file"]).read_text(encoding="utf-8")
        assert found[0].line == text[: text.index(near)].count("\n") + 1, found[0]
    if line := fault.get("line"):
        assert found[0].line == int(line), found[0]


def touched(fault: dict) -> list[str]:
    return [fault[how] for how in ("edit", "remove", "remove_tree", "link") if how in fault]


@contextlib.contextmanager
def committed(copy: Path, fault: dict):
    try:
        commit(copy, fault)
        yield
    finally:
        for name in touched(fault):
            if (copy / name).is_symlink() or (copy / name).is_file():
                (copy / name).unlink()
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name)
            elif (ROOT / name).is_file():
                shutil.copy(ROOT / name, copy / name)


def commit(copy: Path, fault: dict) -> None:
    if "edit" in fault:
        edit(path := copy / fault["edit"], fault["find"], fault["replace"])
        if "encoding" in fault:
            path.write_text(path.read_text(encoding="utf-8"), encoding=fault["encoding"])
    if "remove" in fault:
        (copy / fault["remove"]).unlink()
    if "remove_tree" in fault:
        shutil.rmtree(copy / fault["remove_tree"])
    if "link" in fault:
        (copy / fault["link"]).symlink_to(fault["to"])
