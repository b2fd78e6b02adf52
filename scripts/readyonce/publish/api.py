"""The JSON under `/api/v1/`, for programs: its items as models, from which `schema.json` beside it is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints
from pydantic.json_schema import models_json_schema

from readyonce.data.catalog import Catalog, Incident
from readyonce.data.facts import Query
from readyonce.data.schema import (
    INCIDENT_ID,
    Claim,
    FamilyFile,
    IncidentId,
    Level,
    Model,
    Outcome,
    Prediction,
    Slug,
    Tags,
    Text,
    Verdict,
)
from readyonce.data.verdicts import judge

Label = Annotated[str, StringConstraints(pattern=rf"^{INCIDENT_ID}/[a-z0-9-]+@[a-z0-9.-]+$")]
Basis = Literal["run", "source", "measured", "inferred"]
Url = Annotated[str, Field(json_schema_extra={"format": "uri"})]
_ONLY_LABELS = Field(json_schema_extra={"additionalProperties": False})


class FixItem(Model):
    option: str | None
    """What to add to the command line; null where the fix is a change of code."""
    variant: Slug | None
    """The run that proves it; null where the fixed minimal script does."""
    text: Text


class AffectedItem(Model):
    package: str
    introduced: str | None
    """null where no release without it is known."""
    fixed: str | None
    basis: Basis


class IncidentItem(Model):
    id: IncidentId
    status: Literal["active", "withdrawn"]
    level: Level
    """How far it is proven: judged by many runs, reproduced by a minimal script, or noted from sources."""
    title: Text
    errors: list[Slug]
    """None: it fails without an error."""
    tags: Tags
    fix: FixItem
    affected: list[AffectedItem]
    environments: list[str]


class WordingItem(Model):
    """A message has this wording when `all` occur in it in this order and `none` does; runs of white space count as one space."""

    all: Annotated[list[str], Field(min_length=1)]
    none: list[str]


class ErrorItem(Model):
    id: Slug
    title: Text
    text: Text
    """How to tell it apart."""
    page: Annotated[str, StringConstraints(pattern=r"^errors/")]
    """Relative to the site's root; Chinese under zh/."""
    yields: bool
    """A warning or a consequence: beside the text of another family, the other counts."""
    wordings: Annotated[list[WordingItem], Field(min_length=1)]
    incidents: list[IncidentId]
    runs: list[Label]
    sources: list[Url]


class WhenItem(Model):
    where: Query
    text: Text


class ClaimItem(Model):
    id: Annotated[str, StringConstraints(pattern=rf"^{INCIDENT_ID}/[a-z0-9]+(-[a-z0-9]+)*$")]
    incident: IncidentId
    text: Text
    verdict: Verdict
    basis: Basis
    advice: Literal["yes", "no", "only if"] | None
    """null for what nobody can follow: explanations, statements of fact."""
    scope: Query | None
    """Which runs decide it, of all incidents: facts and their conditions, all of which must hold, or a list of such, one of
    which must. The facts are in snippets/facts.yml."""
    when: WhenItem | None
    """What decides, where the verdict is `depends`: it comes true for every run in `where`, and for no other."""
    predicted: Annotated[dict[Label, Prediction | None], _ONLY_LABELS]
    """Run → the outcome it has if the claim is true; `error:FAMILY` names which error."""
    observed: Annotated[dict[Label, Outcome], _ONLY_LABELS]
    """Run → the outcome it had."""
    untold: Annotated[int, Field(ge=0)]
    """Runs that do not tell whether they are in its scope."""
    evidence: list[Annotated[str, StringConstraints(pattern=rf"^snippets/{INCIDENT_ID}/")]]
    sources: list[Url]


def files(catalog: Catalog) -> dict[str, str]:
    """File name → text of everything that is published; the names are `NAMES`."""
    lists = {f"{name}.json": to_json(_dumped(make(catalog))) for name, (_, make) in _LISTS.items()}
    return lists | {"schema.json": to_json(schema())}


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the three lists."""
    _, made = models_json_schema([(model, "serialization") for model, _ in _LISTS.values()])
    lists = {
        name: {"type": "array", "items": {"$ref": f"#/$defs/{model.__name__}"}} for name, (model, _) in _LISTS.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ReadyOnce: incidents.json, errors.json and claims.json",
        "description": "Each file is a list; its items are described under $defs: incidents, errors, claims.",
        "$defs": lists | made["$defs"],
    }


def incidents_json(catalog: Catalog) -> list[dict[str, Any]]:
    return _dumped(_incidents(catalog))


def _dumped(items: Sequence[Model]) -> list[dict[str, Any]]:
    return [item.model_dump() for item in items]


def _incidents(catalog: Catalog) -> list[Model]:
    return [
        IncidentItem(
            id=incident.id,
            status=incident.meta.status,
            level=incident.level,
            title=incident.meta.title,
            errors=incident.meta.errors,
            tags=incident.meta.tags,
            fix=FixItem(**incident.meta.fix.model_dump(include={*FixItem.model_fields})),
            affected=[
                AffectedItem(**entry.model_dump(include={*AffectedItem.model_fields}))
                for entry in incident.meta.affected
            ],
            environments=sorted(incident.evidence),
        )
        for incident in catalog.incidents.values()
    ]


def _errors(catalog: Catalog) -> list[Model]:
    return [_error(catalog, family) for family in catalog.families.values()]


def _error(catalog: Catalog, family: FamilyFile) -> ErrorItem:
    return ErrorItem(
        id=family.family,
        title=family.title,
        text=family.text,
        page=family.path,
        yields=bool(family.yields),
        wordings=[WordingItem(all=wording.all, none=wording.none) for wording in family.wordings],
        incidents=[incident.id for incident in catalog.about(family.family)],
        runs=[
            f"{incident.id}/{run.variant}@{environment}"
            for incident in catalog.incidents.values()
            for environment, evidence in sorted(incident.evidence.items())
            for run in evidence.runs
            if run.error == family.family
        ],
        sources=[source.url for source in family.sources],
    )


def _claims(catalog: Catalog) -> list[Model]:
    return [
        _claim(catalog, incident, name, claim)
        for incident in catalog.incidents.values()
        for name, claim in incident.meta.claims.items()
    ]


def _claim(catalog: Catalog, incident: Incident, name: str, claim: Claim) -> ClaimItem:
    judgement = judge(catalog, claim)
    labelled = {
        f"{observed.incident.id}/{observed.run.variant}@{observed.environment}": observed for observed in judgement.runs
    }
    return ClaimItem(
        id=f"{incident.id}/{name}",
        incident=incident.id,
        text=claim.text,
        verdict=judgement.verdict,
        basis=claim.basis,
        advice=claim.advice,
        scope=claim.scope,
        when=WhenItem(where=claim.when.where, text=claim.when.text) if claim.when else None,
        predicted={label: judgement.predicted_for(observed) for label, observed in labelled.items()},
        observed={label: observed.run.outcome for label, observed in labelled.items()},
        untold=judgement.undecided,
        evidence=sorted({observed.record.relative_to(catalog.root).as_posix() for observed in judgement.runs}),
        sources=[source.url for source in claim.sources],
    )


_LISTS: dict[str, tuple[type[Model], Callable[[Catalog], list[Model]]]] = {
    "incidents": (IncidentItem, _incidents),
    "errors": (ErrorItem, _errors),
    "claims": (ClaimItem, _claims),
}
NAMES = (*(f"{name}.json" for name in _LISTS), "schema.json")


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
