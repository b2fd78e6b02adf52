"""A stored run that is added or taken away changes all that rests on it."""

import json

import pytest

from readyonce.check import check
from readyonce.data import catalog
from readyonce.data.verdicts import judge
from readyonce.pages import decision
from support.project import edit


def _contradict(copy, incident: str, variant: str) -> catalog.Catalog:
    """The project with one more run, of the same facts but for the batch size, that came out otherwise."""
    path = copy / "snippets" / incident / "evidence" / "current.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    run = next(run for run in data["runs"] if run["variant"] == variant)
    wrong = run | {"variant": f"{variant}-once-more", "outcome": "diverge", "gradient_error": 0.5, "message": None}
    wrong |= {"error": None, "facts": run["facts"] | {"batch_size": 64}}
    data["runs"].append(wrong)
    path.write_text(json.dumps(data), encoding="utf-8")
    declared = f"variants:\n  {wrong['variant']}:\n    text: {{en: x, zh: x}}\n    outcome: diverge\n"
    edit(path.parent.parent / "incident.yml", "variants:\n", declared)
    return catalog.load(copy)


@pytest.mark.parametrize("incident, variant", [("RO-0001", "non-reentrant"), ("RO-0005", "zero-input-first-unused")])
def test_one_run_against_it_anywhere_changes_every_claim_and_cell_that_it_touches(copy, incident, variant):
    before = catalog.load(copy).require_sound()
    after = _contradict(copy, incident, variant).require_sound()
    added = next(it for it in after.observed if it.run.variant == f"{variant}-once-more")
    told = "\n".join(map(str, check.problems(after)))
    touched = 0
    for owner in after.incidents.values():
        for name in owner.meta.claims:
            was, now = (judge(known, known.incidents[owner.id].meta.claims[name]) for known in (before, after))
            if added not in now.runs:
                assert [it.name for it in was.runs] == [it.name for it in now.runs]
                continue
            touched += 1
            came_true = added in now.right
            assert len(now.runs) == len(was.runs) + 1
            changed = now.verdict != was.verdict or (len(now.right), len(now.runs)) != (len(was.right), len(was.runs))
            assert changed or f"claim `{name}`" in told, f"{owner.id}/{name}"
            if was.verdict == "holds" and not came_true:
                assert now.verdict == "depends" and f"claim `{name}` has verdict `depends`" in told
    assert touched > 1
    cells = 0
    was, now = (decision.cells(known) for known in (before, after))
    for row in now:
        for column, runs in now[row].items():
            if added in runs:
                cells += 1
                assert decision.outcomes(before, was[row][column], "en") != decision.outcomes(after, runs, "en")
    assert cells


def test_without_its_runs_a_short_incident_is_noted_and_check_asks_for_them(copy):
    (copy / "snippets/RO-0014/minimal.json").unlink()
    known = catalog.load(copy)
    assert known.incidents["RO-0014"].level == "noted"
    assert any(it.file == "snippets/RO-0014/minimal.py" and "minimal.json" in it.what for it in check.problems(known))
