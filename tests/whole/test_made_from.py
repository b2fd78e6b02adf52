"""Evidence of other files than today's is told, with the file, the reason and the command; what decides nothing is not told.

Each case edits a copy of the project. That CI runs again what was edited by hand is in meta/test_sabotage.py.
"""

import json
import re
from pathlib import Path

import pytest

from readyonce.check import evidence
from readyonce.data import catalog, hashes
from readyonce.data.reading import Problem
from readyonce.lab import made_from, verify
from readyonce.pages.lab_book import LabBook
from support.project import KNOWN, copy_of, edit
from support.selection import git

CURRENT = "snippets/RO-0003/evidence/current.json"
RUN = "Run `readyonce verify RO-0003 --environment current --stale --write`, and look at what changed."


@pytest.fixture(scope="module")
def one(tmp_path_factory, root):
    return copy_of(root, tmp_path_factory.mktemp("made-from") / "copy")


@pytest.fixture
def edited(one, root):
    """A function that edits a file of the copy, which is as it was afterwards."""
    files = {}

    def change(name: str, find: str, replace: str) -> None:
        files.setdefault(name, (one / name).read_bytes())
        edit(one / name, find, replace)

    yield change
    for name, data in files.items():
        (one / name).write_bytes(data)


def problems(root: Path) -> list[Problem]:
    known = catalog.load(root).require_sound()
    return [*evidence.release_is_not_the_pinned_one(known), *evidence.evidence_is_stale(known)]


def told(root: Path) -> dict[str, tuple[str, str]]:
    """What is told of evidence: the file → what, remedy."""
    return {problem.file: (problem.what, problem.remedy) for problem in problems(root)}


def everywhere(root: Path) -> set[str]:
    """The evidence of runs that has an address and that can be run again here."""
    incidents = catalog.load(root).require_sound().incidents.values()
    stored = {
        incident.record(name).relative_to(root).as_posix(): evidence
        for incident in incidents
        for name, evidence in incident.evidence.items()
    }
    return {name for name, evidence in stored.items() if evidence.runs and evidence.made_from}


def test_nothing_is_told_of_what_is_here(one):
    assert told(one) == {} and len(everywhere(one)) >= 13


def test_constant_of_a_repro(one, edited):
    edited("snippets/RO-0003/lora.py", "= 3", "= 4")
    assert told(one) == {CURRENT: ("it was stored with another lora.py", RUN)}


def test_file_that_a_repro_reads(one, edited):
    """`zero.py`, and a command that has it as an option."""
    edited("snippets/RO-0003/ds_stage0.json", '"stage": 0', '"stage": 1')
    other = "flagembedding-1.4.2-transformers-5"
    what = "it was stored with another ds_stage0.json"
    assert told(one) == {
        CURRENT: (what, RUN),
        f"snippets/RO-0003/evidence/{other}.json": (what, RUN.replace("current", other)),
    }


def test_comments_and_docstrings_decide_nothing(one, edited):
    edited("snippets/RO-0003/repro.py", '"""', '"""Another word. ')
    edited("snippets/RO-0003/repro.py", "\nimport ", "\n# a comment\nimport ")
    edited("scripts/readyonce/lab/worker.py", '"""', '"""Another word. ')
    assert told(one) == {}


def test_how_a_variant_is_started(one, edited):
    edited("snippets/RO-0013/incident.yml", "processes: 1", "processes: 2")
    assert told(one)["snippets/RO-0013/evidence/current.json"][0] == "it was stored with another variants"


def test_pin(one, edited):
    edited("snippets/environments/current.txt", "deepspeed==0.19.8", "deepspeed==0.17.0")
    said = {(problem.file, problem.what) for problem in problems(one)}
    pinned = "it was run with deepspeed 0.19.8; snippets/environments/current.txt pins 0.17.0"
    stored = "it was stored with another environment"
    assert {(CURRENT, pinned), (CURRENT, stored)} <= said
    assert {file for file, what in said if what == stored} == {it for it in everywhere(one) if "current" in it}


def test_hash_in_the_lock(one, edited):
    lock = (one / "tests/requirements.txt").read_text(encoding="utf-8")
    entry = lock[lock.index("\ndeepspeed==") :]
    hashed = entry[entry.index("sha256:") :][:71]
    edited("tests/requirements.txt", hashed, "sha256:" + "0" * 64)
    assert told(one)[CURRENT] == ("it was stored with another environment", RUN)


@pytest.mark.parametrize(
    "name, find, replace",
    [
        ("lab/worker.py", "set_num_threads(1)", "set_num_threads(2)"),
        ("lab/processes.py", '"OMP_NUM_THREADS": "1"', '"OMP_NUM_THREADS": "2"'),  # a variable that each run is given
        ("lab/processes.py", '"PYTHONUNBUFFERED")', '"PYTHONUNBUFFERED", "LANG")'),
    ],
)
def test_what_starts_runs(one, edited, name, find, replace):
    edited(f"scripts/readyonce/{name}", find, replace)
    assert set(told(one)) == everywhere(one)
    assert told(one)[CURRENT] == ("it was stored with another launches", RUN)


def test_address_of_a_neighbour(one, edited):
    neighbour = json.loads((one / "snippets/RO-0002/evidence/current.json").read_bytes())["made_from"]
    own = json.loads((one / CURRENT).read_bytes())["made_from"]
    edited(CURRENT, own["repro.py"], neighbour["repro.py"])
    assert told(one) == {CURRENT: ("it was stored with another repro.py", RUN)}


def test_no_address(one, edited):
    text = (one / CURRENT).read_text(encoding="utf-8")
    start = text.index(' "made_from": {')
    edited(CURRENT, text[start : text.index("}", start) + 1], ' "made_from": null')
    assert told(one) == {CURRENT: ("it has no address", RUN)}


def test_unknown_input(one, edited):
    edited(CURRENT, '"made_from": {', '"made_from": {"gone.py": "sha256:00",')
    assert told(one) == {CURRENT: ("it was stored with another gone.py", RUN)}


def test_word_of_the_vocabulary_needs_no_run(one, edited):
    edited(
        "snippets/facts.yml", "    tower: {en: vision", "    turret: {en: a turret, zh: 炮塔}\n    tower: {en: vision"
    )
    assert set(told(one).values()) == {("it was stored with another facts", "Run `readyonce facts --write`.")}


def test_facts_are_read_anew_in_the_releases_that_the_runs_had(one, edited, monkeypatch):
    """A repro's settings may come to something else in another release; what did not change is not read."""
    old, word = "transformers-4.46.3", "average_tokens:\n"
    vocabulary = (one / "snippets/facts.yml").read_text(encoding="utf-8").partition(f"\n{word}")[2]
    first = next(line for line in vocabulary.splitlines() if line.startswith("    "))
    edited("snippets/facts.yml", first + "\n", f"{first}\n    third: {{en: a third way, zh: 第三种}}\n")
    known, asked, written = catalog.load(one).require_sound(), [], []
    stale = {
        (incident.id, name)
        for incident in known.incidents.values()
        for name, stored in incident.evidence.items()
        if made_from.FACTS in made_from.differences(known, incident, stored)
    }
    assert ("RO-0007", old) in stale and ("RO-0001", "current") not in stale

    def facts_of(_, incident, variants, python, versions):
        name = next(name for name, it in incident.evidence.items() if it.environment.versions == versions)
        return {variant.name: incident.run(variant.name, name).facts for variant in variants}

    monkeypatch.setattr(verify.venvs, "interpreter", lambda root, name, say: asked.append(name) or Path(name))
    monkeypatch.setattr(verify.recording, "facts_of", facts_of)
    monkeypatch.setattr(verify.recording, "write", lambda incident, it: written.append(it) or incident.record("x"))
    verify.rewrite_facts(known)
    assert sorted(asked) == sorted(name for _, name in stale) and len(written) == len(stale)


def test_word_that_no_run_tells(one, edited):
    edited(
        "snippets/facts.yml",
        "\nstrategy:",
        "\nnew:\n  text: {en: a new one, zh: 新的}\n  values: {a: {en: a, zh: 甲}}\nstrategy:",
    )
    assert told(one) == {}


def test_guard_stales_what_it_says_only(one, edited):
    edited("packages/guard/readyonce_guard.py", "\nimport ", "\nimport this\nimport ")
    said = told(one)
    assert set(said) == {it for it in everywhere(one) if it.endswith("/current.json")}
    remedy = "Run `readyonce verify RO-0003 --environment current --guard --write`."
    assert said[CURRENT] == ("it was stored with another guard", remedy)


def test_new_runs_leave_what_is_told_of_the_stored_ones_as_old_as_it_is(one, edited):
    edited("packages/guard/readyonce_guard.py", "\nimport ", "\nimport this\nimport ")
    known = catalog.load(one)
    incident = known.incidents["RO-0003"]
    stored = incident.evidence["current"]
    assert made_from.differences(known, incident, stored) == [made_from.WATCHED]
    fresh = stored.model_copy(update={"made_from": made_from.beside(known, incident, stored, stored)})
    assert made_from.differences(known, incident, fresh) == [made_from.WATCHED]


def test_the_launch_code_of_old_releases_is_the_projects_else_ours(one, edited):
    where = "snippets/concepts/one-gloo-thread/sitecustomize.py"
    edited(where, "\nimport ", "\nimport this\nimport ")
    assert "it was stored with another launches" in {what for what, _ in told(one).values()}
    (one / where).unlink()
    assert told(one) == {}


def test_list_of_what_has_no_address(one, edited):
    listed = CURRENT.removeprefix("snippets/")
    edited("snippets/stale.txt", "# `readyonce", f"{listed}\n# `readyonce")
    assert told(one)["snippets/stale.txt"] == ("RO-0003 in `current` is of the files of today", "Delete this line.")
    with_address = (one / CURRENT).read_text(encoding="utf-8")
    edited(CURRENT, with_address, json.dumps(json.loads(with_address) | {"made_from": None}))
    assert told(one) == {}
    edited("snippets/stale.txt", f"{listed}\n", "")
    assert told(one)[CURRENT][0] == "it has no address"


def test_list_names_what_is_there(one, edited):
    edited("snippets/stale.txt", "# `readyonce", "RO-0003/evidence/nowhere.json\n# `readyonce")
    assert told(one) == {
        "snippets/stale.txt": ("there is no evidence `RO-0003/evidence/nowhere.json`", "Delete this line.")
    }


@pytest.mark.parametrize("environment", ["two-hosts", "nvidia-h100-80gb-hbm3"])
def test_what_is_not_run_again_leads_to_the_files_that_it_was_run_with(one, edited, environment, monkeypatch):
    """It is stale for nobody: the lab book names the older file, and the commit that has it."""

    def shown() -> str:
        known = catalog.load(one).require_sound()
        incident = known.incidents["RO-0002"]
        return "\n".join(LabBook(known, "en", incident).compared(incident.elsewhere[environment]))

    monkeypatch.delenv("REPO_URL", raising=False)
    path, commit = "snippets/RO-0002/repro.py", KNOWN.incidents["RO-0002"].elsewhere[environment].commit
    edited(path, "\nimport ", "\nCHANGED = 1\nimport ")
    assert not [name for name in told(one) if environment in name]
    assert "An older version was used of: " in shown() and f"`repro.py` (`git show {commit[:10]}:{path}`)" in shown()
    monkeypatch.setenv("REPO_URL", "https://forge.example/team/readyonce")
    assert f"[`repro.py`](https://forge.example/team/readyonce/blob/{commit}/{path})" in shown()


def test_a_commit_that_evidence_names_has_the_files_of_its_address(root, tmp_path):
    stored = [(incident, one) for incident in KNOWN.incidents.values() for one in incident.elsewhere.values()]
    assert stored and all(one.commit and one.made_from for _, one in stored)
    for incident, one in stored:
        for name in one.made_from.keys() & {path.name for path in incident.folder.iterdir()}:
            then = tmp_path / name
            then.write_text(git(root, "show", f"{one.commit}:snippets/{incident.id}/{name}"), encoding="utf-8")
            assert hashes.of_file(then) == one.made_from[name], (incident.id, name)


def test_no_module_of_the_lab_is_called_as_a_library_of_an_environment(root):
    """The worker's folder stands first on the path of what it runs: `requests.py` in it would hide the library."""
    locks = [*(root / "snippets/environments/locks").glob("*.txt"), root / "tests/requirements.txt"]
    libraries = {re.split(r"[=\[ ]", line)[0] for path in locks for line in path.read_text("utf-8").splitlines()}
    assert "requests" in libraries
    assert not {path.stem for path in (root / "scripts/readyonce/lab").glob("*.py")} & libraries
