"""Compiles what the lint needs of the catalogue: the frameworks' options, the cells of the decision table, the fixes."""

from __future__ import annotations

from typing import Any

from readyonce.data import conditions, models
from readyonce.data.catalog import Catalog, Incident, Observed
from readyonce.data.facts import Leaf, Where
from readyonce.data.frameworks import shown
from readyonce.data.links import run_id
from readyonce.data.project import LANGUAGES
from readyonce.data.schema import FrameworkFile
from readyonce.launches import reader, shell
from readyonce.launches.reader import SETTINGS, options_of
from readyonce.rules.diagnose import look_at


def stacks(catalog: Catalog) -> dict[str, dict[str, Any]]:
    """How each framework's launches are known, and what their options tell."""
    return {
        name: {
            "title": framework.title.en,
            "package": framework.package,
            "commands": framework.commands,
            "base": framework.base,
            "keys": framework.keys,
            "marks": framework.marks,
            "foreign": framework.foreign,
            "processes": framework.processes,
            "options_since": framework.options_since,
            "launch": [
                _spelled(rule.model_dump(by_alias=True, exclude={"sources"}, exclude_defaults=True))
                for rule in framework.launch
            ],
        }
        for name, framework in catalog.frameworks.items()
    }


def _spelled(rule: dict[str, Any]) -> dict[str, Any]:
    """With `is: true` in all spellings that argument parsers and YAML take."""
    asked = rule.get("is")
    values = asked if isinstance(asked, list) else [asked]
    if not any(isinstance(value, bool) for value in values):
        return rule
    spelled = {True: [True, "1", "yes", "on"], False: [False, "0", "no", "off"]}
    return rule | {"is": [it for value in values for it in (spelled[value] if isinstance(value, bool) else [value])]}


def of_launch(stacks: dict[str, dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """The rules of a framework and of those it is based on. The strategy comes first: others ask for it."""
    rules = [rule for name in names for rule in stacks[name]["launch"]]
    return sorted(rules, key=lambda rule: "strategy" not in rule["facts"])


def compile_rules(catalog: Catalog, site: str | None = None) -> dict[str, Any]:
    """Everything that `judge` needs, as JSON takes it."""
    decision = catalog.require_decision()
    meant = catalog.fitting(decision.launches)[0]
    of_frameworks = stacks(catalog)
    read = reader.Reader(of_frameworks)
    return {
        "site": (site or "").rstrip("/"),
        "stacks": of_frameworks,
        "models": models.named(catalog),
        "names": {
            "speaking": sorted(shell.SPEAKING),
            "launchers": sorted(reader.LAUNCHERS),
            "starters": reader.STARTERS,
            "ranked": sorted(reader.RANKED),
            "processes": reader.PROCESSES,
            "machines": reader.NODES,
            "totals": reader.TOTALS,
            "configs": reader.CONFIGS,
            "aliases": reader.ALIASES,
            "stage_name": reader.STAGE_NAME.pattern,
            "distributed": reader.DISTRIBUTED,
            "models": reader.MODELS,
            "settings": SETTINGS,
            "switched": reader.SWITCHED,
            "one_rank": reader.ONE_RANK,
            "configurations": reader.CONFIGURATIONS,
            "nodes": reader.MACHINES,
            "engines": reader.ENGINES,
            "megatron": reader.MEGATRON,
            "stages": [stage.pattern for stage in reader.STAGES],
            "hints": sorted(read.hints),
            "looks": read.looks.pattern,
        },
        "forms": {name: _forms(catalog, framework) for name, framework in catalog.frameworks.items()},
        "versions": [name for name, fact in catalog.vocabulary.items() if fact.kind == "version"],
        "optional": [name for name, fact in catalog.vocabulary.items() if fact.optional],
        "uses": {name: {"where": use.where, "text": use.text.model_dump()} for name, use in decision.uses.items()},
        "strategies": {name: text.model_dump() for name, text in catalog.vocabulary["strategy"].values.items()},
        "incidents": [
            {"id": id, "look": looks}
            for id, incident in catalog.incidents.items()
            if incident.meta.status == "active" and (looks := look_at(incident))
        ],
        "signs": [
            _spelled(sign.model_dump(by_alias=True, exclude={"sources"}))
            | {"id": id, "runs": max(1, _failed(incident))}
            for id, incident in catalog.incidents.items()
            if incident.meta.status == "active"
            for sign in incident.meta.launches
        ],
        "families": {
            name: {"title": family.title.en, "path": family.path} for name, family in catalog.families.items()
        },
        "cells": [
            {
                "strategy": strategy,
                "use": use,
                "column": name,
                "where": column.where,
                "parts": [_part(catalog, leaf, here, where) for leaf, here in catalog.parted(runs)],
            }
            for (strategy, use), where in decision.rows.items()
            for name, column in decision.columns.items()
            if (runs := catalog.fitting(where)[0] & meant & catalog.telling(column.where)[0])
        ],
    }


def _failed(incident: Incident) -> int:
    """How many stored runs of an incident did not train right."""
    return sum(run.outcome != "match" for evidence in incident.evidence.values() for run in evidence.runs)


def _part(catalog: Catalog, leaf: Leaf, here: list[Observed], row: Where) -> dict[str, Any]:
    names = dict.fromkeys(name for name, _, _ in leaf.path)
    asked = [name for name in names if catalog.vocabulary[name].kind != "version" and name not in row]
    worst = max(here, key=lambda observed: (observed.label != "match", observed.run.gradient_error or 0))
    return {
        "path": [list(step) for step in leaf.path],
        # What a launch would have to tell beside its releases.
        "when": {it: conditions.common(catalog, asked, here, it) for it in LANGUAGES}
        if asked and "match" not in leaf.labels
        else None,
        "outcomes": dict(leaf.labels),
        "incident": worst.incident.id,
        "run": run_id(worst.run.variant, worst.environment),
        "gradient_error": max(
            (observed.run.gradient_error or 0 for observed in here if observed.run.outcome == "diverge"), default=None
        ),
    }


def _forms(catalog: Catalog, framework: FrameworkFile) -> list[dict[str, Any]]:
    """The options that make checkpointing non-reentrant, by version, however they are written."""
    found = []
    for form in framework.forms:
        settings = options_of(shown(catalog, form), form.language) if form.setting == "checkpointing" else {}
        settings = {name: value.lower() for name, value in settings.items() if name in SETTINGS and value}
        versions = {"package": form.package or framework.package, "since": form.since, "before": form.before}
        if settings and (one := {**versions, "in_file": form.language == "yaml", "settings": settings}) not in found:
            found.append(one)
    return found
