"""What changed lately: a line for each verdict that turned, each fix and range that is another, and the runs that came."""

import json

import pytest

from readyonce.data import catalog, changes
from readyonce.data.schema import Change
from readyonce.data.verdicts import judge
from readyonce.pages.overview import Overview
from support.project import edit


def added(copy, known) -> dict[str, list[Change]]:
    """What the file of the copy tells more than before, of each incident; what stood there stays."""
    now = catalog.load(copy).require_sound()
    assert all(
        lines[: len(known.changes.get(id, []))] == known.changes.get(id, []) for id, lines in now.changes.items()
    )
    return {id: fresh for id, lines in now.changes.items() if (fresh := lines[len(known.changes.get(id, [])) :])}


def test_nothing_is_added_where_nothing_changed(copy, known):
    changes.note(known)
    assert changes.text(catalog.load(copy)) == (copy / changes.FILE).read_text(encoding="utf-8")
    assert not added(copy, known)


def test_a_stored_run_that_turns_a_verdict_adds_a_line(copy):
    known = catalog.load(copy).require_sound()
    incident = known.incidents["RO-0006"]
    name, claim = next(
        (n, c) for n, c in incident.meta.claims.items() if c.basis == "run" and verdict(known, c) == "holds"
    )
    seen = next(it for it in judge(known, claim).right if it.run.outcome == "match")
    path = seen.incident.folder / "evidence" / f"{seen.environment}.json"
    evidence = json.loads(path.read_text(encoding="utf-8"))
    run = next(it for it in evidence["runs"] if it["variant"] == seen.run.variant)
    run |= {"outcome": "diverge", "gradient_error": 1.0}
    path.write_text(json.dumps(evidence), encoding="utf-8")
    changes.note(known)
    told = added(copy, known)
    now = verdict(catalog.load(copy), claim)
    assert now != "holds"
    assert Change(date=changes._today(), claim=name, before="holds", after=now) in told["RO-0006"]
    turned = f"{seen.run.variant}@{seen.environment}"
    assert Change(date=changes._today(), run=turned, before="match", after="diverge") in told[seen.incident.id]
    row = Overview(catalog.load(copy), "en").changes()
    assert changes._today() in row and f"Verdict: holds → {'depends' if now == 'depends' else 'does not hold'}." in row
    assert f"[`{seen.run.variant}`]" in row and "trains right → wrong gradients" in row


def verdict(known, claim) -> str:
    return judge(known, claim).verdict


def test_runs_that_were_not_there_and_the_first_judgement_are_told(copy, known):
    path = copy / "snippets/RO-0001/evidence/ms-swift-3.5.3.json"
    text = path.read_text(encoding="utf-8")
    path.unlink()
    before = catalog.load(copy)
    path.write_text(text, encoding="utf-8")
    file = copy / changes.FILE
    told = file.read_text(encoding="utf-8")
    file.write_text(told[: told.index("RO-0013:")], encoding="utf-8")
    changes.note(before)
    ran = [run.outcome for run in known.incidents["RO-0001"].evidence["ms-swift-3.5.3"].runs]
    new = {outcome: ran.count(outcome) for outcome in ran}
    fresh = catalog.load(copy)
    assert Change(date=changes._today(), runs="ms-swift-3.5.3", new=new) == fresh.changes["RO-0001"][-1]
    judged = {it.claim: it.after for it in fresh.changes["RO-0013"] if it.claim}
    assert judged == {name: verdict(known, claim) for name, claim in known.incidents["RO-0013"].meta.claims.items()}
    rows = [row for row in Overview(fresh, "en").changes().splitlines() if "RO-0013" in row]
    assert "New: " + known.incidents["RO-0013"].meta.title.en in rows[0]


@pytest.mark.parametrize("kind", ["fix", "affected"])
def test_what_an_author_changes_is_told_by_render(copy, kind):
    find, replace, told = {
        "fix": ("  option: |-\n    --", "  option: |-\n    --other true --", "Fix, now: `--other true --"),
        "affected": ("    introduced: 1.9.0", "    introduced: 1.8.0", "Affected, now: `trl >= 1.8.0"),
    }[kind]
    known, id = catalog.load(copy), {"fix": "RO-0001", "affected": "RO-0006"}[kind]
    edit(copy / "snippets" / id / "incident.yml", find, replace)
    (copy / changes.FILE).write_text(changes.text(catalog.load(copy)), encoding="utf-8")
    assert [bool(getattr(it, kind)) for it in added(copy, known)[id]] == [True]
    assert told in Overview(catalog.load(copy), "en").changes().splitlines()[2]
