"""A new incident: made by `new`, filled, run, checked, built. No change of code."""

import shutil

from readyonce import catalog, check, scaffold, site
from support.project import command

WORDS = {"TODO：": "", "TODO: ": "", "--todo": "--standalone", "0.0.0": "1.0.0", "owner/repository#1": "a/b#1"}


def test_new_incident_from_skeleton_to_page(copy):
    id = scaffold.next_id(copy)
    made = command("new", root=copy)
    assert made.returncode == 0, made.stderr
    files = [copy / line.removeprefix("wrote ") for line in made.stdout.splitlines() if line.startswith("wrote ")]
    assert len(files) == 8 and all(id in str(path) for path in files)

    told = [str(problem) for problem in check.problems(catalog.load(copy))]
    assert any("a TODO of the skeleton is left" in line for line in told)

    for path in files:
        text = path.read_text(encoding="utf-8")
        for old, new in WORDS.items():
            text = text.replace(old, new)
        path.write_text(text.replace(" # TODO", "").replace("TODO", "something"), encoding="utf-8")
    written = command("verify", id, "--write", root=copy)
    assert written.returncode == 0, written.stderr
    command("render", root=copy)
    assert check.problems(catalog.load(copy)) == []
    assert command("verify", id, root=copy).returncode == 0

    assert site.build(copy, take_along=False) == 0
    for page in (f"site/incidents/{id}/evidence/index.html", f"site/zh/incidents/{id}/evidence/index.html"):
        assert "ro-match" in (copy / page).read_text(encoding="utf-8")
    shutil.rmtree(copy / "site")


def test_new_makes_the_file_of_a_new_error_too(copy):
    made = command("new", "RO-0042", "--error", "a-new-text", root=copy)
    assert made.returncode == 0 and "wrote snippets/errors/a-new-text.yml" in made.stdout, made.stderr
    known = catalog.load(copy).require_sound()
    incident = known.incidents["RO-0042"]
    assert incident.meta.errors == [incident.meta.variants["reported"].error] == ["a-new-text"]
    assert (copy / "docs/zh/errors/look-alikes/a-new-text.md").is_file()  # its page is made, too
    told = check.problems(known)
    assert {it.what for it in told if "TODO" not in it.what} == {
        "variant `reported` has no run in `current`",
        "variant `fixed` has no run in `current`",
        "there is no minimal.json that tells how it ended",
    }
    draft = copy / "build/includes/zh/RO-0042"  # what was not run is told so, and the rest can be looked at
    assert (draft / "messages/reported.txt").read_text(encoding="utf-8") == "还没有运行\n"
    assert "还没有运行" in (draft / "numbers.md").read_text(encoding="utf-8")


def test_new_refuses_what_is_there_and_what_is_no_id(copy):
    before = sorted(copy.rglob("*"))
    assert "the file is there already" in command("new", "RO-0001", root=copy).stderr
    for no_id in ("RO-42", "RO-０００１", "RO-٠٠٠١", "RO-0042/..", "ro-0042"):
        assert "this is no id" in command("new", no_id, root=copy).stderr
    for no_name in ("A-B", "a_b", "../a", "a-"):
        assert "this is no name" in command("new", "--error", no_name, root=copy).stderr
    assert "the file is there already" in command("new", "--error", "ddp-ready-twice", root=copy).stderr
    assert sorted(copy.rglob("*")) == before
