"""A new incident: made by `new`, filled, run, checked, built. No change of code."""

import shutil

from readyonce import catalog, check, site
from support.project import command

WORDS = {"TODO：": "", "TODO: ": "", "--todo": "--standalone", "0.0.0": "1.0.0", "owner/repository#1": "a/b#1"}


def test_new_incident_from_skeleton_to_page(copy):
    made = command("new", "RO-0042", root=copy)
    assert made.returncode == 0, made.stderr
    files = [copy / line.removeprefix("wrote ") for line in made.stdout.splitlines() if line.startswith("wrote ")]
    assert len(files) == 7

    told = [str(problem) for problem in check.problems(catalog.load(copy))]
    assert any("a TODO of the skeleton is left" in line for line in told)

    for path in files:
        text = path.read_text(encoding="utf-8")
        for old, new in WORDS.items():
            text = text.replace(old, new)
        path.write_text(text.replace(" # TODO", "").replace("TODO", "something"), encoding="utf-8")
    written = command("verify", "RO-0042", "--write", root=copy)
    assert written.returncode == 0, written.stderr
    command("render", root=copy)
    assert check.problems(catalog.load(copy)) == []
    assert command("verify", "RO-0042", root=copy).returncode == 0

    assert site.build(copy, take_along=False) == 0
    for page in ("site/incidents/RO-0042/evidence/index.html", "site/zh/incidents/RO-0042/evidence/index.html"):
        assert "ro-match" in (copy / page).read_text(encoding="utf-8")
    shutil.rmtree(copy / "site")


def test_new_refuses_what_is_there_and_what_is_no_id(copy):
    before = sorted(copy.rglob("*"))
    assert "the file is there already" in command("new", "RO-0001", root=copy).stderr
    for no_id in ("RO-42", "RO-０００１", "RO-٠٠٠١", "RO-0042/..", "ro-0042"):
        assert "this is no id" in command("new", no_id, root=copy).stderr
    assert sorted(copy.rglob("*")) == before
