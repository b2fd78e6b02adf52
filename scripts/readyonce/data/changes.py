"""What changed for the readers of incidents: lines are added to `snippets/changes.yml`, and stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import yaml

from readyonce.data import catalog as reading
from readyonce.data.catalog import Catalog, Incident
from readyonce.data.project import write_whole
from readyonce.data.schema import Affected, Change
from readyonce.data.verdicts import judge

FILE = Path("snippets", "changes.yml")
Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
HEAD = "# Written by `readyonce verify --write`, and by `readyonce render` where no run was needed. Lines are added only.\n"


def note(before: Catalog) -> None:
    """Add what the evidence that was written since `before` was read changed; a project without the file has no such page."""
    if not (before.root / FILE).is_file():
        return
    now = reading.load(before.root)
    ran = {id: list(_runs(before.incidents.get(id), incident)) for id, incident in now.incidents.items()}
    fresh = text(now, ran)
    if fresh != now.text(now.root / FILE):
        write_whole(now.root / FILE, fresh)


def text(catalog: Catalog, ran: dict[str, list[Change]] | None = None) -> str:
    """The file as it should be: with a line for each verdict, fix and range of versions that it does not tell yet."""
    lines = {id: list(noted) for id, noted in catalog.changes.items()}
    for id, incident in catalog.incidents.items():
        lines.setdefault(id, []).extend([*(ran or {}).get(id, []), *_untold(catalog, incident)])
    return HEAD + "".join(f"{id}:\n{''.join(map(_line, lines[id]))}" for id in sorted(lines) if id in catalog.incidents)


def _line(change: Change) -> str:
    told = change.model_dump(exclude_defaults=True)
    text: str = yaml.dump(
        told, Dumper=Dumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=1 << 30
    )
    return f"- {text}"


def _untold(catalog: Catalog, incident: Incident) -> Iterator[Change]:
    noted = catalog.changes.get(incident.id, [])
    verdicts = {change.claim: change.after for change in noted if change.claim}
    for name, claim in incident.meta.claims.items():
        if (verdict := judge(catalog, claim).verdict) != (before := verdicts.get(name)):
            yield Change(date=_today(), claim=name, before=before, after=verdict)
    fix = incident.meta.fix.option or incident.meta.fix.code
    if [change.fix for change in noted if change.fix][-1:] != [fix]:
        yield Change(date=_today(), fix=fix)
    for entry in incident.meta.affected:
        if (range := _range(entry)) not in {change.affected for change in noted}:
            yield Change(date=_today(), affected=range)


def _runs(before: Incident | None, now: Incident) -> Iterator[Change]:
    """The runs that were not there, and those that end in another way than they did."""
    for environment, evidence in now.evidence.items():
        old = before.evidence.get(environment) if before else None
        stored = old.by_variant if old else {}
        if new := Counter(run.outcome for run in evidence.runs if run.variant not in stored):
            yield Change(date=_today(), runs=environment, new=dict(new))
        for run in evidence.runs:
            if (was := stored.get(run.variant)) and was.outcome != run.outcome:
                yield Change(date=_today(), run=f"{run.variant}@{environment}", before=was.outcome, after=run.outcome)


def _range(entry: Affected) -> str:
    bounds = [f"{sign} {release}" for sign, release in ((">=", entry.introduced), ("<", entry.fixed)) if release]
    return f"{entry.package} {', '.join(bounds)}".strip()


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
