"""Compiles the signatures under `snippets/` into one rule set for both engines of `diagnose`."""

from __future__ import annotations

import json
from typing import Any

from readyonce.data import articles, frameworks, links
from readyonce.data.catalog import Catalog, Incident
from readyonce.data.markup import without_links
from readyonce.data.project import LANGUAGES, Language
from readyonce.data.schema import FamilyFile, Question
from readyonce.diagnose.engine import MATCHING


def compile_rules(catalog: Catalog, site: str | None = None, repo: str | None = None) -> dict[str, Any]:
    """Everything an engine needs: literals, conditions, the words of the answers, the addresses for its links."""
    general = catalog.diagnose
    assert general  # a whole catalogue without problems has it
    return {
        "site": (site or "").rstrip("/"),
        "issue": links.new_issue(repo or ""),
        "families": [
            {
                "family": family.family,
                "title": family.title.en,
                "page": family.page,
                "path": family.path,
                "yields": family.yields,
                "run": catalog.was_run(family.family),
                "text": _without_links(family.text.model_dump()),
                "fix": family.fix.model_dump() if family.fix else None,
                "settings": family.settings,
                "elsewhere": family.elsewhere.model_dump() if family.elsewhere else None,
                "questions": _without_links([*map(_question, family.questions), *_otherwise(family)]),
                "wordings": [
                    wording.model_dump(exclude={"text"}, exclude_defaults=True) for wording in family.wordings
                ],
            }
            for family in catalog.families.values()
        ],
        "incidents": [
            {
                "id": incident.id,
                "errors": incident.meta.errors,
                "titles": [incident.meta.title[language] for language in LANGUAGES],
                "short": {language: incident.named(language) for language in LANGUAGES},
                "fix": incident.meta.fix.text.model_dump(),
                "code": articles.fix_of(catalog, incident),
                "language": incident.meta.fix.language,
                "stack": frameworks.stack_of(catalog, incident.meta.fix.command),
                "hints": [
                    {"any": hint.any, "weight": hint.weight, "why": hint.why.model_dump()}
                    | ({"cause": True} if hint.cause else {})
                    for hint in incident.meta.hints
                ],
                "look": look_at(incident),
            }
            for incident in catalog.incidents.values()
            if incident.meta.status == "active"
        ],
        "frameworks": frameworks.compiled(catalog),
        "strategies": {name: marks.model_dump() for name, marks in general.strategies.items()},
        "matching": MATCHING,
        "launcher": general.launcher,
        "launcherErrors": general.launcher_errors,
        "consequences": general.consequences,
        "progress": general.progress,
        "unset": general.unset,
        "classes": [each.model_dump(by_alias=True) for each in general.classes],
        "silent": [sign.model_dump() for sign in general.silent],
        "doors": [door.model_dump() for door in general.doors],
        "guides": general.guides,
        "notes": general.notes,
        "remarks": general.remarks,
        "sections": general.sections.model_dump(),
        "words": {key: text.model_dump() for key, text in general.words.items()},
    }


def look_at(incident: Incident) -> list[dict[str, Any]]:
    """The code that can be an incident's, where no error tells."""
    return [look.model_dump(include={"all", "none"}) | {"why": look.why.model_dump()} for look in incident.meta.look]


def _question(question: Question) -> dict[str, str]:
    return {lang: f"{question.ask[lang]} {question.then[lang]}" for lang in LANGUAGES}


def _otherwise(family: FamilyFile) -> list[dict[str, str]]:
    return [family.otherwise.model_dump()] if family.otherwise else []


def _without_links(value: Any) -> Any:
    """Texts without links and bold print: an answer stands outside the pages."""
    if isinstance(value, str):
        return without_links(value).replace("**", "")
    if isinstance(value, list):
        return [_without_links(each) for each in value]
    return {key: _without_links(each) for key, each in value.items()} if isinstance(value, dict) else value


def to_json(rules: dict[str, Any]) -> str:
    return json.dumps(rules, ensure_ascii=False, separators=(",", ":"))


def to_script(rules: dict[str, Any], language: Language) -> str:
    """The same as a script, since from a local folder nothing can be fetched; with the words of one language."""
    return f"window.readyonceRules = {to_json(only(rules, language))};\n"


def only(value: Any, language: Language) -> Any:
    """Texts in one language."""
    if isinstance(value, list):
        return [only(each, language) for each in value]
    if isinstance(value, dict):
        return {key: only(each, language) for key, each in value.items() if key == language or key not in LANGUAGES}
    return value
