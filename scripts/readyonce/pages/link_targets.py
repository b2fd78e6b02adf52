"""Compiles what the command `link` needs of an incident: its sections and claims, and the pages that have them."""

from __future__ import annotations

from typing import Any

from readyonce.data import articles
from readyonce.data.catalog import Catalog
from readyonce.data.project import LANGUAGES, Language


def compile_targets(catalog: Catalog, id: str) -> dict[str, Any]:
    """What `links.target` reads."""
    return {
        "short": catalog.incidents[id].meta.short.model_dump(),
        "sections": {language: _sections(catalog, id, language) for language in LANGUAGES},
    }


def _sections(catalog: Catalog, id: str, language: Language) -> dict[str, tuple[str, str]]:
    """Anchor → the page that has it, and its text."""
    folder = catalog.root / "docs" / language / "incidents"
    found: dict[str, tuple[str, str]] = {}
    for page in (id, f"{id}/evidence"):  # a short incident has no lab book
        path = folder / f"{page}.md"
        for heading in articles.read(path).headings if path.is_file() else ():
            if heading.level > 1 and heading.id:
                found.setdefault(heading.id, (page, heading.text.replace("`", "")))
    for name, claim in catalog.incidents[id].meta.claims.items():
        found[f"claim-{name}"] = (f"{id}/claims", claim.text[language].replace("`", ""))
    return found
