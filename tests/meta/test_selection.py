"""What a change calls for is run, a sample of the rest too, and nobody gets round it without a word."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from readyonce.lab.made_from import LAUNCH, STALE
from support import selection
from support.project import KNOWN, ROOT, TESTS
from support.selection import Selection, Unusable, base, drawn

DAY = 86400
COMMITS = [f"{number:040x}" for number in range(300)]


def commit(folder, when, **files):
    """A commit at this second, with these files; its hash."""
    for name, text in files.items():
        path = folder / name.replace("_", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    author = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    dated = os.environ | author | {"GIT_COMMITTER_DATE": f"@{when} +0000", "GIT_AUTHOR_DATE": f"@{when} +0000"}
    for words in (["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-C", folder, *words], check=True, env=dated)
    return selection.git(folder, "rev-parse", "HEAD").strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.delenv("READYONCE_BASE", raising=False)  # which a forge sets for its own
    folder = tmp_path / "project"
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


def test_base_counts_once_no_submission_can_have_written_it_for_itself(repository):
    proven = commit(repository, DAY, a="1")
    assert base(repository) is None  # nobody said what was proven
    (repository / ".ci").mkdir()
    (repository / ".ci" / "base").write_text(f"# why\n{proven}\n")
    commit(repository, 2 * DAY, a="2")
    assert base(repository) is None
    later = commit(repository, 2 * DAY + selection.LONGEST_SUBMISSION, a="3")
    assert base(repository) == proven
    (repository / ".ci" / "base").write_text(f"{later}\n")  # it names its own changes: they are run all the same
    commit(repository, 2 * DAY + selection.LONGEST_SUBMISSION + 60, a="4")
    assert base(repository) == proven


def test_base_that_a_forge_knows(repository, monkeypatch):
    first = commit(repository, DAY, a="1")
    commit(repository, DAY + 1, a="2")
    monkeypatch.setenv("READYONCE_BASE", first)
    assert base(repository) == first
    monkeypatch.setenv("READYONCE_BASE", "0" * 40)  # of a branch that is new
    assert base(repository) is None
    monkeypatch.setenv("READYONCE_BASE", "f" * 40)
    with pytest.raises(Unusable, match="rev-parse"):
        base(repository)


def test_shallow_clone_says_what_to_do(repository, tmp_path):
    for number in range(3):
        commit(repository, DAY + number, a=str(number))
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "1", repository.as_uri(), clone], check=True)
    with pytest.raises(Unusable, match="git fetch --unshallow"):
        base(clone)


def test_each_is_drawn_at_some_commit_and_none_draws_nothing():
    chosen = Selection(ROOT, "", "base")
    met = set()
    for head in COMMITS:
        chosen.head = head
        found = chosen.runs(KNOWN)
        assert found and set(found.values()) == {"drawn"}
        met |= set(found)
    assert met == {
        (incident.id, incident.variants[run.variant].script)
        for incident in KNOWN.incidents.values()
        for run in (() if incident.short else incident.evidence["current"].runs)
    }


def test_a_draw_keeps_to_its_budget_and_is_the_same_each_time():
    names = {f"{number}": 30.0 for number in range(20)} | {"large": 1000.0}
    for head in COMMITS:
        found = drawn(head, names, 100.0)
        assert found == drawn(head, dict(reversed(names.items())), 100.0)
        assert found == ["large"] or sum(names[name] for name in found) <= 100.0 or found[0] == "large"


@pytest.mark.parametrize(
    "changed, wanted, others",
    [
        (["docs/en/decision.md", "snippets/RO-0001/incident.yml"], set(), {"lab", "guard", "triage", "book"}),
        (["scripts/readyonce/lab/processes.py"], {"lab", "guard", "canary", "cluster"}, {"triage"}),
        (["scripts/readyonce/triage/reading.py"], {"triage"}, {"lab", "guard"}),
        (["packages/guard/readyonce_guard.py"], {"guard", "compare", "browser"}, {"lab", "triage"}),
        (["packages/guard/tests/stalls.py"], {"guard"}, {"lab", "compare", "browser"}),
        (["tests/support/fleet.py"], {"triage"}, {"lab", "guard"}),
        (["tests/runs/test_canary.py"], {"canary", "suite"}, {"lab", "guard"}),
    ],
)
def test_lanes_that_a_change_calls_for(changed, wanted, others):
    chosen = Selection(ROOT, "", "base", changed)
    assert set(chosen.called) >= wanted and not set(chosen.called) & others
    assert set(chosen.called.values()) <= set(changed) and not chosen.whole
    fit = sum(chosen.lanes[name]["seconds"] for name in chosen.called) <= selection.OF_LANES
    assert (chosen.why == chosen.called) == fit


# The lanes that a change can call for; the others only ALL=1 runs.
BY_CHANGE = {name for name, lane in Selection(ROOT, "", "base").lanes.items() if not lane.get("seldom")}


@pytest.mark.parametrize("path", ["Makefile", "requirements.txt", ".ci/run", "something/new.txt"])
def test_change_of_what_nobody_named_calls_for_every_lane(monkeypatch, path):
    chosen = Selection(ROOT, COMMITS[0], "base", ["docs/en/decision.md", path])
    items = [SimpleNamespace(path=TESTS / "runs/test_lab.py")]
    assert chosen.called.keys() == BY_CHANGE and not chosen.whole
    assert any(path in reason for reason in chosen.called.values())
    monkeypatch.setattr(selection, "OF_LANES", 1e9)
    assert selection.choose(items, chosen, KNOWN) == (items, [])


def test_lanes_that_a_change_calls_for_are_run_as_far_as_the_budget_goes():
    """One that changed alone always; of all together some, and by the next commits each."""
    called = Selection(ROOT, "", "base", ["Makefile"]).called  # which takes a second, and is the same for each
    chosen = [Selection(ROOT, commit, "base") for commit in COMMITS[:60]]
    for it in chosen:
        it.called = called
        assert sum(it.lanes[name]["seconds"] for name in it.why) <= selection.OF_LANES and it.why.keys() < BY_CHANGE
    assert set().union(*(it.why for it in chosen)) == BY_CHANGE
    assert max(lane["seconds"] for lane in chosen[0].lanes.values() if not lane.get("seldom")) < selection.OF_LANES


def test_what_all_tests_share_calls_for_every_lane():
    chosen = Selection(ROOT, "", "base", ["conftest.py"])
    assert chosen.called.keys() == BY_CHANGE and not chosen.whole


@pytest.mark.parametrize(
    "line, another",
    [('"lint | triage",', False), ('requires-python = ">=3.11"', True)],
    ids=["linter", "project"],
)
def test_of_the_project_file_what_only_linters_read_calls_for_nothing(monkeypatch, line, another):
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert line in text
    monkeypatch.setattr(selection, "git", lambda root, *arguments: text.replace(line, line.replace("e", "", 1)))
    assert bool(Selection(ROOT, "", "base", ["pyproject.toml"]).unknown) == another


@pytest.mark.parametrize(
    "path, wanted",
    [
        ("snippets/RO-0003/minimal.py", {"RO-0003"}),
        ("snippets/RO-0003/minimal.json", {"RO-0003"}),
        ("snippets/RO-0003/settings.json", {"RO-0003"}),
        ("scripts/readyonce/lab/setting_worker.py", set(KNOWN.incidents)),
        ("scripts/readyonce/lab/minimal.py", set(KNOWN.incidents)),
    ],
)
def test_minimal_repros_that_changed_are_launched_and_some_that_are_drawn(path, wanted):
    chosen = [Selection(ROOT, commit, "base", [path]).minimal(KNOWN.incidents) for commit in COMMITS[:60]]
    most = (selection.CHANGED_MINIMAL + selection.OF_MINIMAL) / selection.EACH_MINIMAL
    if len(wanted) == 1:
        assert all(it > wanted for it in chosen)
    assert max(map(len, chosen)) <= most and min(map(len, chosen)) > 1
    assert set().union(*chosen) == set(KNOWN.incidents)


def test_of_what_a_test_repeats_all_is_repeated_that_changed_and_one_that_is_drawn():
    names, files = ["a", "b", "c"], ["snippets/RO-0004/printed.json"]
    assert Selection(ROOT, COMMITS[0], COMMITS[1], files).some(names, files) == names
    assert Selection(ROOT, "", None).some(names, files) == names
    drawn_of = [Selection(ROOT, head, COMMITS[1], ["README.md"]).some(names, files) for head in COMMITS]
    assert {len(some) for some in drawn_of} == {1} and {name for (name,) in drawn_of} == set(names)


def test_lanes_name_tests_that_are_there():
    for lane in Selection(ROOT, "", "base").lanes.values():
        assert lane["tests"] and all((ROOT / test).is_file() for test in lane["tests"])


def changed_to(monkeypatch, change) -> Selection:
    """A selection whose base had another evidence of RO-0003 in `current`: as it is here, changed."""
    path = "snippets/RO-0003/evidence/current.json"
    before = json.loads((ROOT / path).read_bytes())
    change(before)
    monkeypatch.setattr(Selection, "_at_base", lambda self, path: before)
    return Selection(ROOT, COMMITS[7], "base", [path])


def of_its_own(found) -> set[str]:
    return {script for (id, script), why in found.items() if why != "drawn" and id == "RO-0003"}


ALL_SCRIPTS = {"repro.py", "zero.py", "lora.py", "memory.py"}


@pytest.mark.parametrize(
    "key, scripts",
    [
        ("zero.py", {"zero.py"}),
        ("ds_stage0.json", {"zero.py"}),
        ("launches", ALL_SCRIPTS),
        ("environment", ALL_SCRIPTS),
    ],
)
def test_evidence_of_other_files_is_run_again(monkeypatch, key, scripts):
    chosen = changed_to(monkeypatch, lambda before: before["made_from"].update({key: "sha256:other"}))
    assert of_its_own(chosen.runs(KNOWN)) == scripts


def test_evidence_that_was_edited_by_hand_is_run_again_though_its_address_was_kept(monkeypatch):
    chosen = changed_to(monkeypatch, lambda before: before["runs"][0].update(outcome="still"))
    assert of_its_own(chosen.runs(KNOWN)) == ALL_SCRIPTS


def test_facts_and_what_the_guard_says_call_for_no_run(monkeypatch):
    def change(before):
        before["made_from"].update(facts="sha256:other", guard="sha256:other")
        before["runs"][0].update(facts={}, guard=None)

    assert of_its_own(changed_to(monkeypatch, change).runs(KNOWN)) == set()


def test_evidence_that_is_new_is_run(monkeypatch):
    def gone(self, *arguments):
        raise Unusable("it is new")

    monkeypatch.setattr(selection, "git", gone)
    chosen = Selection(ROOT, COMMITS[7], "base", ["snippets/RO-0003/evidence/current.json"])
    assert of_its_own(chosen.runs(KNOWN)) == ALL_SCRIPTS


OLDER = [(id, name) for id, it in KNOWN.incidents.items() for name in it.evidence if name != "current"]


def test_evidence_of_older_releases_is_run_again_as_far_as_the_budget_goes(monkeypatch):
    path = "snippets/RO-0009/evidence/flagembedding-1.4.2.json"
    stored = json.loads((ROOT / path).read_bytes())
    before = stored | {"runs": [run | {"outcome": "still"} for run in stored["runs"]]}
    monkeypatch.setattr(Selection, "_at_base", lambda self, path: before)
    name = ("RO-0009", "flagembedding-1.4.2")
    chosen = [Selection(ROOT, commit, "base", [path]).older(KNOWN, OLDER) for commit in COMMITS[:20]]
    assert all(name in it and len(it) > 1 for it in chosen if it != {name}) and len(set().union(*chosen)) > 5
    monkeypatch.setattr(selection, "CHANGED_OLDER", 1.0)
    assert not all(name in Selection(ROOT, commit, "base", [path]).older(KNOWN, OLDER) for commit in COMMITS[:20])


def test_nothing_that_was_to_run_is_left_out_without_a_word(monkeypatch):
    chosen = changed_to(monkeypatch, lambda before: before["made_from"].update(launches="sha256:other"))
    item = SimpleNamespace(path=TESTS / "runs/test_runs.py")  # all others were lost, to a filter say
    with pytest.raises(pytest.UsageError, match="nothing runs .*RO-0003"):
        selection.choose([item], chosen, KNOWN)


def grown(folder) -> list[str]:
    """What was added to the list of stale evidence since it is there, by commits that changed nothing of how runs are started."""
    added, starts = [], ("scripts/readyonce/lab/worker.py", "scripts/readyonce/lab/processes.py")
    commits = selection.git(folder, "log", "--format=%H", "--", STALE).split()
    for commit, before in zip(commits, commits[1:], strict=False):
        now, then = (set(selection.git(folder, "show", f"{it}:{STALE}").splitlines()) for it in (commit, before))
        if not selection.git(folder, "diff", "--name-only", before, commit, "--", *starts):
            added += [line for line in now - then if not line.startswith("#")]
    return added


def test_list_of_stale_evidence_only_shrinks(repository):
    assert not grown(ROOT)
    commit(repository, DAY, snippets_stale="# why\na\nb\n")
    (repository / "snippets" / "stale").rename(repository / STALE)
    commit(repository, DAY)
    (repository / STALE).write_text("# another word\nb\n")
    commit(repository, DAY)
    assert not grown(repository)
    (repository / STALE).write_text("b\nc\n")
    commit(repository, DAY)
    assert grown(repository) == ["c"]


def test_the_longest_page_of_each_kind_is_opened_and_each_other_at_some_commit():
    names = [
        "",
        "guard/",
        *(f"{language}incidents/RO-{number:04}/" for language in ("", "zh/") for number in range(1, 14)),
    ]
    chosen, met = Selection(ROOT, "", "base"), set()
    for head in COMMITS:
        chosen.head = head
        found = chosen.pages(names, lambda name: 9 if "0007" in name else 1)
        assert {"", "guard/", "incidents/RO-0007/", "zh/incidents/RO-0007/"} <= set(found)
        met |= set(found)
    assert met == set(names) and len(found) < len(names) / 2
    assert Selection(ROOT, "", None).pages(names, len) == names


def test_suite_runs_what_was_chosen():
    pytest_alone = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    collected = subprocess.run(
        [*pytest_alone, "--collect-only", "-q", "unit", "runs", "meta", "../packages"],
        cwd=TESTS,
        env=os.environ | {"SELECT": "changed", "READYONCE_BASE": "HEAD", "ALL": ""},
        capture_output=True,
        text=True,
    )
    assert collected.returncode == 0, collected.stdout + collected.stderr
    files = set(re.findall(r"^([\w/]+\.py): ", collected.stdout, re.MULTILINE))
    assert {"tests/unit/test_check.py", "tests/runs/test_runs.py"} <= files
    if not selection.git(ROOT, "status", "--porcelain").strip():
        assert not files & {test for lane in Selection.of(ROOT).lanes.values() for test in lane["tests"]}


def test_where_only_what_starts_runs_changed_a_part_of_them_is_drawn_within_a_budget(monkeypatch):
    """Each at some commit, never more than the budget allows; what changed otherwise is run whole beside it."""
    chosen, met = Selection(ROOT, "", "base"), set()
    starts = {(id, "current"): {LAUNCH} for id, incident in KNOWN.incidents.items() if not incident.short}
    chosen.evidence = starts | {("RO-0003", "current"): {"*"}}
    for head in COMMITS:
        chosen.head = head
        found = chosen.runs(KNOWN)
        assert {script for id, script in found if id == "RO-0003"} == set(scripts_of("RO-0003"))
        started = [key for key, why in found.items() if why == "what starts it changed"]
        assert started and sum(seconds_of(*key) for key in started) <= selection.OF_LAUNCH
        met |= set(started)
    assert {id for id, _ in met} == {id for id, _ in starts} - {"RO-0003"}


def scripts_of(id):
    incident = KNOWN.incidents[id]
    return {incident.variants[run.variant].script for run in incident.evidence["current"].runs}


def seconds_of(id, script):
    incident = KNOWN.incidents[id]
    runs = incident.evidence["current"].runs
    return selection.START + sum(run.seconds for run in runs if incident.variants[run.variant].script == script)
