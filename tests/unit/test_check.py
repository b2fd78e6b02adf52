"""Bad input gets an error that names file, line and remedy; `faults/` has one file for each fault.

Here the rule that a fault file names finds it. What the whole check says of it: `whole/test_faults.py`.
"""

import json
import re

import pytest
from pydantic import ValidationError

from readyonce.check import blocks, check
from readyonce.data import catalog, reading, schema
from readyonce.lab import venvs
from readyonce.pages import incident, rule_docs
from readyonce.publish import site
from support.faults import FAULTS, committed, expected, is_told, read
from support.project import ROOT, TESTS, edit

RULES = {rule.__name__: rule for rule in check.rules(*check.KINDS)}


def test_nothing_to_mend():
    found = check.problems(catalog.load(ROOT))
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("path", FAULTS, ids=lambda path: path.stem)
def test_its_rule_finds_a_fault(shared_copy, remembered, path):
    fault = read(path)
    with committed(shared_copy, fault):
        known = catalog.load(shared_copy)
        found = known.problems if fault["rule"] == "loading" else RULES[fault["rule"]](known)
        assert any(is_told(it, problem) for problem in found for it in expected(fault)), "another rule finds it"


def test_each_rule_has_a_fault():
    named = {read(path)["rule"] for path in FAULTS}
    assert named == {*RULES, "loading"}


def test_each_rule_says_what_it_finds_why_and_what_to_do():
    explained = rule_docs.explained()
    assert set(explained) == set(RULES)
    for name, (sentence, why, remedy) in explained.items():
        assert all(text.endswith(".") for text in (sentence, why, remedy)), name


def test_a_wrong_kind_of_value_is_told_in_our_words():
    path = ROOT / "snippets/RO-0005/incident.yml"
    data = reading.parse_yaml(path.read_text(encoding="utf-8"))
    known = schema.IncidentFile.model_json_schema()
    keys = {key for model in (known, *known["$defs"].values()) for key in model.get("properties", ())}
    told = set()
    for within, key in places(data, keys).values():
        right = within[key]
        for wrong in ([], "", 5, {"a": 1}):
            within[key] = wrong
            try:
                schema.IncidentFile.model_validate(data)
            except ValidationError as error:
                told |= {(what, remedy) for _, what, remedy in reading.explained(error.errors())}
        within[key] = right
    assert len(told) > 100
    assert not [it for it in told if re.search(r"Input|Value error|something else|Field|valid ", "".join(it))]


def places(data, known: set[str], way: tuple = ()) -> dict[tuple, tuple]:
    """One value of each kind, by the keys that lead to it, of which those of the author's own are one: what holds it, and
    its key there."""
    keys = data if isinstance(data, dict) else range(min(len(data), 1)) if isinstance(data, list) else ()
    found = {}
    for key in keys:
        here = (*way, key if key in known else "")
        found |= {here: (data, key)} | places(data[key], known, here)
    return found


def test_a_module_under_torchrun_has_options_of_its_own():
    script = 'N=4 torchrun --nproc-per-node "$N" -m some.module --epochs 1'
    launcher, module = blocks.commands(script)
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
    shown = incident.includes(after, after.incidents["RO-0004"], "en")["RO-0004/evidence.md"]
    assert "CUDA (nccl, world size 1)" in shown and "of 2 variants 2 came out as with two" in shown


@pytest.mark.parametrize("path", sorted((ROOT / "snippets" / "environments").glob("*.txt")), ids=lambda path: path.stem)
def test_a_lock_holds_what_its_list_pins(path):
    """With hashes. torch and torchvision have none, and stand in no lock: which build is right, the machine decides."""
    if path.stem == "current":  # its pins stand in tests/requirements.txt
        locked = (TESTS / "requirements.txt").read_text(encoding="utf-8")
        locked += path.read_text(encoding="utf-8")
    else:
        locked = (path.parent / "locks" / path.name).read_text(encoding="utf-8")
        entries = re.sub(r" \\\n", "", locked).splitlines()
        assert all(" --hash=sha256:" in entry for entry in entries), "make lock"
    names = {line.lower().replace("_", "-").split(" ")[0] for line in locked.splitlines()}
    for name, release in venvs.pins(ROOT, path.stem).items():
        assert name in ("torch", "torchvision") or f"{name}=={release}".lower().replace("_", "-") in names, "make lock"


def test_a_title_is_no_place_for_markup(copy):
    """The theme writes it into every page as it is."""
    script = "<script>window.broken = 1</script>"
    edit(copy / "docs/en/contributing.md", "title: ", f"title: {script}")
    assert "the title has markup" in {problem.what for problem in check.problems(catalog.load(copy))}
    edit(copy / "snippets/RO-0001/incident.yml", "  en: Swift GRPO", f"  en: {script}Swift GRPO")
    with pytest.raises(reading.CatalogError, match="incident.yml:8: .* is no value"):
        site.build(copy, take_along=())
