"""A new incident: made by `new`, filled, run, checked, built. No change of code."""

import re
import shutil

from readyonce.check import check
from readyonce.cli import new as scaffold
from readyonce.data import catalog
from readyonce.publish import site
from support.project import ROOT, command

WORDS = {"TODO：": "", "TODO: ": "", "--todo": "--standalone", "0.0.0": "1.0.0", "owner/repository#1": "a/b#1"}


def test_new_incident_from_skeleton_to_page(copy):
    id = scaffold.next_id(copy / "snippets")
    made = command("new", "--judged", root=copy)
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

    assert site.build(copy, take_along=()) == 0
    for page in (f"site/incidents/{id}/evidence/index.html", f"site/zh/incidents/{id}/evidence/index.html"):
        assert "ro-match" in (copy / page).read_text(encoding="utf-8")
    shutil.rmtree(copy / "site")


def test_new_makes_the_file_of_a_new_error_too(copy):
    made = command("new", "RO-0042", "--judged", "--error", "a-new-text", root=copy)
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


LOG = """\
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    model(batch)
RuntimeError: {}
"""


def test_a_short_incident_from_a_log_to_its_page(copy):
    """Of an error that is known, in one language: three files, run, checked, and found by Diagnose."""
    log = LOG.format(
        "Expected to mark a variable ready only once. This error is caused by one of the following reasons"
    )
    made = command("new", "--log", "-", root=copy, input=log)
    assert made.returncode == 0 and "The log shows `ddp-ready-twice`." in made.stdout, made.stderr
    files = [copy / line.removeprefix("wrote ") for line in made.stdout.splitlines() if line.startswith("wrote ")]
    assert len(files) == 3 and "errors: [ddp-ready-twice]" in files[0].read_text(encoding="utf-8")
    lines = 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        lines += len([line for line in text.splitlines() if line.strip()])
        for old, new in WORDS.items():
            text = text.replace(old, new)
        path.write_text(re.sub(" # TODO.*", "", text).replace("TODO", "something"), encoding="utf-8")
    assert lines <= 150
    id = files[0].parent.name
    written = command("verify", id, "--stale", "--write", root=copy)
    assert written.returncode == 0, written.stderr
    command("render", root=copy)
    known = catalog.load(copy)
    assert check.problems(known) == [] and known.incidents[id].level == "reproduced"
    assert id in command("diagnose", "-", root=copy, input=log).stdout


def test_an_error_of_no_family_is_taken_from_the_log(copy):
    log = LOG.format("the flux capacitor of rank 3 is cold")
    made = command("new", "--log", "-", "--error", "flux-capacitor", root=copy, input=log)
    assert made.returncode == 0 and "of no family yet" in made.stdout, made.stderr
    known = catalog.load(copy)
    (wording,) = known.families["flux-capacitor"].wordings
    assert wording.all == ["RuntimeError: the flux capacitor of rank 3 is cold"]


def test_an_error_of_no_family_asks_for_a_name_before_anything_is_made(copy):
    before = {*(copy / "snippets").iterdir()}
    refused = command("new", "--log", "-", root=copy, input=LOG.format("the flux capacitor of rank 4 is cold"))
    assert refused.returncode == 1 and "--error" in refused.stderr, refused.stderr
    assert {*(copy / "snippets").iterdir()} == before


def test_a_new_family_with_the_words_of_another_is_refused_and_names_it(copy):
    log = LOG.format("element 0 of tensors does not require grad and does not have a grad_fn")
    refused = command("new", "--log", "-", "--error", "my-error", root=copy, input=log)
    assert refused.returncode == 1 and "`no-grad-fn`" in refused.stderr and "Leave --error out" in refused.stderr
    assert not (copy / "snippets/errors/my-error.yml").exists()


def test_a_teams_own_incident_beside_ours(copy, tmp_path):
    theirs = tmp_path / "theirs"
    made = command("new", "ACME-0001", "--in", str(theirs), root=copy)
    assert made.returncode == 0, made.stderr
    assert {path.name for path in (theirs / "ACME-0001").iterdir()} == {"incident.yml", "minimal.py", "en.md"}
    again = command("new", "--in", str(theirs), "--lang", "zh", root=copy)
    assert again.returncode == 0 and (theirs / "ACME-0002/zh.md").is_file(), again.stderr
    for folder in theirs.iterdir():
        for path in folder.iterdir():
            text = path.read_text(encoding="utf-8")
            for old, new in WORDS.items():
                text = text.replace(old, new)
            path.write_text(re.sub(" # TODO.*", "", text).replace("TODO", "something"), encoding="utf-8")
    beside = ("--with", str(theirs))
    ran = command("verify", "ACME-0001", "ACME-0002", "--stale", "--write", *beside, root=copy)
    assert ran.returncode == 0 and (theirs / "ACME-0002/minimal.json").is_file(), ran.stderr
    checked = command("check", *beside, root=copy)
    assert checked.returncode == 0, checked.stderr
    assert not list((copy / "snippets").glob("ACME-*"))


def test_where_a_team_has_no_incident_yet_the_id_is_asked_for(copy, tmp_path):
    asked = command("new", "--in", str(tmp_path / "theirs"), root=copy)
    assert asked.returncode == 2 and "ACME-0001" in asked.stderr
    nowhere = command("check", "--with", str(tmp_path / "nowhere"), root=copy)
    assert nowhere.returncode == 2 and "there is no folder" in nowhere.stderr and "readyonce new" in nowhere.stderr
    ours = command("new", "RO-0099", "--in", str(tmp_path / "theirs"), root=copy)
    assert ours.returncode == 1 and "prefix of your own" in ours.stderr


def test_new_refuses_what_is_there_and_what_is_no_id(copy):
    before = sorted(copy.rglob("*"))
    assert "the file is there already" in command("new", "RO-0001", root=copy).stderr
    for no_id in ("RO-42", "RO-０００１", "RO-٠٠٠١", "RO-0042/..", "ro-0042"):
        assert "this is no id" in command("new", no_id, root=copy).stderr
    for no_name in ("A-B", "a_b", "../a", "a-"):
        assert "this is no name" in command("new", "--error", no_name, root=copy).stderr
    assert "the file is there already" in command("new", "--error", "ddp-ready-twice", root=copy).stderr
    assert sorted(copy.rglob("*")) == before


def test_what_is_noted_needs_a_source_and_no_script(copy, tmp_path):
    """Ours and a team's: of cause and fix from sources, every command tells that nothing was run."""
    folder = tmp_path / "ours"
    ours, theirs = (
        command("new", "--noted", root=copy),
        command("new", "ACME-0001", "--noted", "--in", folder, root=copy),
    )
    assert ours.returncode == theirs.returncode == 0, ours.stderr + theirs.stderr
    assert "verify" not in ours.stdout + theirs.stdout  # there is nothing to run
    id = scaffold.next_id(ROOT / "snippets")
    for files in (
        (copy / f"snippets/{id}/incident.yml", copy / f"docs/en/incidents/{id}.md"),
        (folder / "ACME-0001").iterdir(),
    ):
        for path in files:
            text = path.read_text(encoding="utf-8").replace("owner/repository#1", "a/b#1")
            path.write_text(re.sub("TODO:? ?", "Words ", re.sub(" # TODO.*", "", text)), encoding="utf-8")
    command("render", root=copy)
    told = command("check", "--with", folder, root=copy)
    assert told.returncode == 1 and told.stderr.count("the section {#cause} links no source") == 3, told.stderr
    assert f"{folder}/ACME-0001/en.md:13: " in told.stderr  # in their file once, in ours once for each language
    for path in (copy / f"docs/en/incidents/{id}.md", folder / "ACME-0001/en.md"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("three sentences.", "[three](https://example.com/) sentences."), encoding="utf-8")
    command("render", root=copy)
    assert command("check", "--with", folder, root=copy).returncode == 0
    log = tmp_path / "train.log"
    log.write_text("RuntimeError: Expected to mark a variable ready only once.", encoding="utf-8")
    site = {"SITE_URL": "https://wiki.example/"}
    for arguments, says in (
        (("list",), "ACME-0001  Words short (noted, not run here)"),
        (("explain", "ACME-0001"), "Nothing was run here: cause and fix are from sources."),
        (("diagnose", log), "ACME-0001"),
        (("link", "ACME-0001"), "https://wiki.example/incidents/ACME-0001/"),
    ):
        plain = command(*arguments, root=copy, environment=site)
        assert says not in plain.stdout, plain.stdout
        both = command(*arguments, "--with", folder, root=copy, environment=site)
        assert says in both.stdout, both.stdout + both.stderr
