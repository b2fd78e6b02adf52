"""The newest releases are installed, run and compared; what changed is said, and nothing is stored."""

import hashlib
import json
import re
import shlex
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from readyonce.cli import main
from readyonce.data import catalog, schema
from readyonce.lab import canary, framework_probe, processes, venvs
from support.project import edit

# Commands that need no torch: they fail in known words.
INCIDENT = """
id: RO-0900
status: active
title: &t {en: x, zh: x}
short: *t
summary: *t
tags: {framework: [x], strategy: [x], hardware: [x], symptom: [*t]}
reported: {date: "2026-01-01", source: "a/b#1", hardware: *t}
errors: [ddp-ready-twice]
fix: {option: --x, command: x, variant: fails, text: *t}
affected: []
files: {launch.sh: [tiny, older]}
commands: {python -m json.tool: [tiny]}
reference: {}
time_limit: 8
variants:
  fails: {file: launch.sh, text: *t, outcome: error, error: ddp-ready-twice}
  other: {file: other.sh, text: *t, outcome: match}
claims: {}
"""
SAID = "RuntimeError: Expected to mark a variable ready only once. Parameter at index {} {}"
LISTS = {
    "tiny": "# One that is small.\niniconfig==1.1.1\n",
    "older": "iniconfig==1.1.1\n",
    "impossible": "iniconfig<0.1\n",
}


class Toy:
    """A project with one incident, whose evidence the test writes."""

    def __init__(self, root: Path, known):
        self.root, self.folder = root, root / "snippets" / "RO-0900"
        for name in ("environments", "errors", "RO-0900/evidence"):
            (root / "snippets" / name).mkdir(parents=True)
        for path in ("diagnose.yml", "errors/ddp-ready-twice.yml"):
            (root / "snippets" / path).write_bytes((known.root / "snippets" / path).read_bytes())
        for name, content in LISTS.items():
            (root / "snippets" / "environments" / f"{name}.txt").write_text(content)
        (self.folder / "incident.yml").write_text(INCIDENT)
        (self.folder / "tiny.py").write_text('print(\'{"variables": {}, "arguments": []}\')')
        self.says(SAID.format(27, "with name x"))
        self.stored(SAID.format(3, "with name x"))

    def says(self, message: str) -> None:
        name, _, words = message.partition(": ")
        program = f"raise {name}({words!r})" if name else "pass"
        (self.folder / "launch.sh").write_text(f"python -c {shlex.quote(program)}\n")
        (self.folder / "other.sh").write_text("exit 0\n")

    def stored(self, message: str, options=("--indent", "--sort-keys")) -> None:
        run = {"variant": "fails", "outcome": "error", "error": "ddp-ready-twice", "message": message}
        self.ran("tiny", run, options={"python -m json.tool": list(options)})

    def ran(self, environment: str, run: dict, **more) -> Path:
        versions = {"name": environment, "date": "2026-01-01", "python": "3.11", "platform": "x", "device": "cpu"}
        evidence = {
            "environment": versions | {"backend": "gloo", "world_size": 2, "versions": {}},
            "runs": [run | {"repeats": 3, "alone": True, "seconds": 1.0}],
        }
        path = self.folder / "evidence" / f"{environment}.json"
        path.write_text(json.dumps(evidence | more))
        return path

    def with_impossible(self) -> None:
        edit(self.folder / "incident.yml", "[tiny, older]", "[tiny, older], other.sh: [impossible]")

    def watch(self) -> canary.Report:
        loaded = catalog.load(self.root).require_sound()
        return canary.watch(loaded, loaded.incidents.values(), say=lambda line: None)


@pytest.fixture
def toy(tmp_path, known):
    return Toy(tmp_path / "toy", known)


def contents(folder: Path) -> dict[str, str]:
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


def test_nothing_changed_but_the_releases(toy):
    before = contents(toy.root / "snippets")
    report = toy.watch()
    assert not report.changes
    (then, now), *more = report.releases["tiny"].values()
    assert then == "1.1.1" and now.startswith("2.") and not more
    assert contents(toy.root / "snippets") == before
    assert "as declared and stored" in canary.text(report) and f"iniconfig {then} -> {now}" in canary.text(report)
    assert f"- `iniconfig` `{then}` → `{now}`" in canary.markdown(report)


def test_a_bound_behind_a_pin_holds(toy):
    (toy.root / "snippets" / "environments" / "tiny.txt").write_text("iniconfig==1.1.0,<2  # the last of its kind\n")
    report = toy.watch()
    assert not report.changes and report.releases["tiny"] == {"iniconfig": ("1.1.0", "1.1.1")}


def test_what_a_list_holds(toy):
    listed = toy.root / "snippets" / "environments" / "tiny.txt"
    listed.write_text("# One.\na_b.c==1.0.post1\nd[e,f]==2.0,<3  # why\ng<4\nh==5; sys_platform == 'linux'\n")
    assert venvs.pins(toy.root, "tiny") == {"a_b.c": "1.0.post1", "d[e,f]": "2.0", "g": "", "h": "5"}
    listed.write_text("a==1\n-r other.txt\n")
    with pytest.raises(processes.LabError, match=r"tiny\.txt:2: `-r other\.txt` is no requirement: write"):
        venvs.pins(toy.root, "tiny")


def test_a_changed_message(toy):
    toy.says(SAID.format(3, "of layer x"))
    (change,) = toy.watch().changes
    assert change.subject == "RO-0900/fails" and change.what == "the message reads otherwise"
    then, now = change.details.splitlines()
    assert then == "- " + SAID.format(3, "with name x") and now == "+ " + SAID.format(3, "of layer x")


def test_a_changed_outcome(toy):
    toy.says("ValueError: something else")
    (change,) = toy.watch().changes
    assert change.what == "declared: error (ddp-ready-twice); now: error (of no known family)"
    assert change.details == "ValueError: something else"


def test_a_command_that_ends_well_but_trains_nothing(toy):
    toy.says("")
    (change,) = toy.watch().changes
    assert change.what == "could not be run" and "checkpoints" in change.details


def test_options_that_vanished(toy):
    toy.stored(SAID.format(3, "with name x"), options=("--indent", "--gone"))
    (change,) = toy.watch().changes
    assert change.subject == "python -m json.tool" and change.details == "--gone"


def test_a_default_that_moved(toy, monkeypatch):
    """What reaches torch from a framework's settings is asked again of the newest releases."""
    stored = {
        "date": "2026-01-01",
        "environment": "tiny",
        "checkpointing": "non-reentrant",
        "find_unused_parameters": None,
    }
    known = catalog.load(toy.root)
    seen = schema.Seen.model_validate({**stored, "versions": {}})
    elsewhere = seen.model_copy(update={"environment": None})
    known.stack_runs = {"same.py": seen, "moved.py unset": seen, "failed.py": seen, "elsewhere.py": elsewhere}
    told = {
        "same.py": {"checkpointing": "non-reentrant", "find_unused_parameters": None},
        "moved.py": {"checkpointing": "reentrant", "find_unused_parameters": None, "error": "RuntimeError: no"},
    }

    def run(root, python, script, *words):
        if script not in told:
            raise processes.LabError(f"{script} told nothing")
        return told[script]

    monkeypatch.setattr(framework_probe, "run", run)
    changes = canary.watch(known, []).changes
    assert [(it.subject, it.what) for it in changes] == [
        ("moved.py unset", "checkpointing that reaches torch then: non-reentrant; now: reentrant"),
        ("moved.py unset", "it ends otherwise"),
        ("failed.py", "could not be run"),
    ]
    assert {it.environment for it in changes} == {"tiny"}


def test_a_set_that_does_not_resolve_stops_nothing(toy):
    toy.with_impossible()
    report = toy.watch()
    (change,) = report.changes
    assert change.environment == "impossible" and "does not install" in change.what
    assert "iniconfig<0.1" in change.details and "No solution found" in change.details
    assert list(report.releases) == ["tiny"]


def test_what_counts_as_the_same():
    def differs(then, now) -> bool:
        declared = schema.Declaration(outcome="error", error="x")
        run = schema.Run(variant="v", outcome="error", error="x", message=then, repeats=1, alone=True, seconds=1)
        return canary.difference(declared, run, processes.Observation("v", "error", "x", message=now)) is not None

    assert not differs("at 0x7f3a, rank 0: 1 2 3\n in /tmp/a/b.py", "at 0xdead, rank 1: 6 7\n\n in  /var/b.py")
    assert differs("Multiple gradient reduction is", "Multiple gradient reductions are")
    assert not differs("The parameter layers.1.linear.weight has", "The parameter layers.3.linear.bias has")
    assert differs("in a.py", "in b.py") and differs("torch.utils.checkpoint", "torch.checkpoint")


@pytest.mark.parametrize("now, said", [(0.209, None), (0.23, ("gradient error then: 0.2; now: 0.23", ""))])
def test_a_moved_gradient_error(now, said):
    declared = schema.Declaration(outcome="diverge")
    run = schema.Run(variant="v", outcome="diverge", gradient_error=0.2, repeats=5, alone=True, seconds=1)
    seen = processes.Observation("v", "diverge", gradient_error=now)
    assert canary.difference(declared, run, seen) == said


def test_what_messages_hold_stays_in_code():
    hostile = "\x1b[31m~~~\n# Heading\n~~~~\n```\n<script>alert(1)</script> @everyone [x](https://example.com)\r\n"
    report = canary.Report(
        {"a`b": {"p": ("1", "``2<b>")}}, [canary.Change("a`b", "RO-0900/x", "could not be run", hostile)]
    )
    tokens = MarkdownIt("commonmark").parse(canary.markdown(report))
    (fence,) = [token for token in tokens if token.type == "fence"]
    assert fence.content.rstrip() == re.sub(r"\x1b\[31m|\r", "", hostile).rstrip()
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inline} <= {"text", "code_inline", "softbreak"}
    assert "``2<b>" in [child.content for child in inline if child.type == "code_inline"]
    assert "\x1b" not in canary.text(report)


def test_a_report_fits_into_an_issue():
    changes = [canary.Change("tiny", f"RO-0900/{n}", "could not be run", "x" * 10_000) for n in range(100)]
    body = canary.markdown(canary.Report({}, changes))
    assert len(body) < 65_536 and "100 things changed" in body and re.search(r"\d+ more do not fit here", body)


def test_the_command(toy, monkeypatch, capsys):
    monkeypatch.setenv("READYONCE_ROOT", str(toy.root))
    written = toy.root / "changes.md"
    assert main.main(["verify", "RO-0900", "--environment", "newest", "--report", str(written)]) == 0
    assert "## What changed" not in written.read_text()
    toy.with_impossible()
    assert main.main(["verify", "--environment", "newest", "--report", str(written)]) == 1
    assert "## What changed" in written.read_text() and "impossible" in capsys.readouterr().out


def test_an_environment_that_cannot_be_made_is_recorded_but_takes_no_evidence(toy, monkeypatch, capsys):
    monkeypatch.setenv("READYONCE_ROOT", str(toy.root))
    toy.with_impossible()
    verify = ["verify", "RO-0900", "--environment", "impossible", "--write"]
    assert main.main(verify) == 1 and "No solution found" in capsys.readouterr().err
    recorded = json.loads((toy.folder / "evidence" / "impossible.json").read_text())
    assert not recorded["runs"] and "No solution found" in recorded["not_run"]
    assert main.main(verify) == 0  # known, and so no difference
    ran = toy.ran("impossible", {"variant": "other", "outcome": "match", "gradient_error": 0.0})
    before = ran.read_bytes()
    assert main.main(verify) == 1 and ran.read_bytes() == before


@pytest.mark.parametrize(
    "arguments, remedy",
    [
        (["--environment", "newest", "--write"], "leave out --write"),
        (["--report", "x.md"], "--environment newest"),
    ],
)
def test_bad_usage(arguments, remedy, capsys):
    with pytest.raises(SystemExit) as stopped:
        main.main(["verify", "RO-0001", *arguments])
    assert stopped.value.code == 2 and remedy in capsys.readouterr().err
