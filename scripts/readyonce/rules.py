"""Compiles the signatures under `snippets/` into one rule set for both engines of `diagnose`."""

from __future__ import annotations

import json
from typing import Any

from readyonce.catalog import Catalog, Text


def compile_rules(catalog: Catalog, site: str | None = None, repo: str | None = None) -> dict[str, Any]:
    """Everything an engine needs: literals, conditions, the words of the answers, the addresses for its links."""
    general = catalog.diagnose
    return {
        "site": (site or "").rstrip("/"),
        "repo": (repo or "").rstrip("/"),
        "families": [
            {
                "family": family.family,
                "title": family.title.en,
                "page": family.page,
                "yields": family.yields,
                "text": _both(family.text),
                "wordings": [
                    {"all": wording.all, "none": wording.none, "needs": wording.needs} for wording in family.wordings
                ],
            }
            for family in catalog.families.values()
        ],
        "incidents": [
            {
                "id": incident.id,
                "errors": incident.file.errors,
                "short": _both(incident.file.short),
                "fix": _both(incident.file.fix.text),
                "option": incident.file.fix.option,
                "hints": [
                    {"any": hint.any, "weight": hint.weight, "why": _both(hint.why)} for hint in incident.file.hints
                ],
            }
            for incident in catalog.incidents.values()
            if incident.file.status == "active"
        ],
        "launcher": general.launcher,
        "launcherErrors": general.launcher_errors,
        "consequences": general.consequences,
        "progress": general.progress,
        "guides": general.guides,
        "notes": general.notes,
        "remarks": general.remarks,
        "words": {key: _both(text) for key, text in general.words.items()},
    }


def _both(text: Text) -> dict[str, str]:
    return {"en": text.en, "zh": text.zh}


def to_json(rules: dict[str, Any]) -> str:
    return json.dumps(rules, ensure_ascii=False, separators=(",", ":"))


def to_script(rules: dict[str, Any]) -> str:
    """The same as a script: from a local folder nothing can be fetched."""
    return f"window.readyonceRules = {to_json(rules)};\n"
