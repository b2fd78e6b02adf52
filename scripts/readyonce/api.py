"""The JSON under `/api/v1/`, for programs; `schema.json` says what stands in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from readyonce.catalog import Catalog, Incident
from readyonce.schema import Claim, FamilyFile
from readyonce.verdicts import judge

SCHEMA = Path(__file__).with_name("schema.json")


def files(catalog: Catalog) -> dict[str, str]:
    """File name → text of everything that is published; the names are `NAMES`."""
    lists = {f"{name}.json": to_json(make(catalog)) for name, make in _LISTS.items()}
    return lists | {SCHEMA.name: SCHEMA.read_text(encoding="utf-8")}


def errors_json(catalog: Catalog) -> list[dict[str, Any]]:
    return [_error_json(catalog, family) for family in catalog.families.values()]


def _error_json(catalog: Catalog, family: FamilyFile) -> dict[str, Any]:
    return {
        "id": family.family,
        "title": family.title.model_dump(),
        "text": family.text.model_dump(),
        "page": family.path,
        "yields": bool(family.yields),
        "wordings": [{"all": wording.all, "none": wording.none} for wording in family.wordings],
        "incidents": [i.id for i in catalog.incidents.values() if family.family in i.meta.errors],
        "runs": [
            f"{incident.id}/{run.variant}@{environment}"
            for incident in catalog.incidents.values()
            for environment, evidence in sorted(incident.evidence.items())
            for run in evidence.runs
            if run.error == family.family
        ],
        "sources": [source.url for source in family.sources],
    }


def incidents_json(catalog: Catalog) -> list[dict[str, Any]]:
    return [
        {
            "id": incident.id,
            "status": incident.meta.status,
            "title": incident.meta.title.model_dump(),
            "errors": incident.meta.errors,
            "tags": incident.meta.tags.model_dump(),
            "fix": incident.meta.fix.model_dump(include={"option", "text", "variant"}),
            "affected": [
                entry.model_dump(include={"package", "introduced", "fixed", "basis"})
                for entry in incident.meta.affected
            ],
            "environments": sorted(incident.evidence),
        }
        for incident in catalog.incidents.values()
    ]


def claims_json(catalog: Catalog) -> list[dict[str, Any]]:
    return [
        _claim_json(catalog, incident, name, claim)
        for incident in catalog.incidents.values()
        for name, claim in incident.meta.claims.items()
    ]


def _claim_json(catalog: Catalog, incident: Incident, name: str, claim: Claim) -> dict[str, Any]:
    judgement = judge(catalog, claim)
    labelled = {
        f"{observed.incident.id}/{observed.run.variant}@{observed.environment}": observed for observed in judgement.runs
    }
    evidence = {f"snippets/{observed.incident.id}/evidence/{observed.environment}.json" for observed in judgement.runs}
    return {
        "id": f"{incident.id}/{name}",
        "incident": incident.id,
        "text": claim.text.model_dump(),
        "verdict": judgement.verdict,
        "basis": claim.basis,
        "advice": claim.advice,
        "scope": claim.scope,
        "when": {"where": claim.when.where, "text": claim.when.text.model_dump()} if claim.when else None,
        "predicted": {label: judgement.predicted_for(observed) for label, observed in labelled.items()},
        "observed": {label: observed.run.outcome for label, observed in labelled.items()},
        "untold": judgement.undecided,
        "evidence": sorted(evidence),
        "sources": [source.url for source in claim.sources],
    }


_LISTS = {"incidents": incidents_json, "errors": errors_json, "claims": claims_json}
NAMES = (*(f"{name}.json" for name in _LISTS), SCHEMA.name)


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
