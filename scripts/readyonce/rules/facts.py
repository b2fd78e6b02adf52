"""Compiles what the command `facts` needs of the catalogue: every run with its facts and its outcome."""

from __future__ import annotations

from typing import Any

from readyonce.data.catalog import Catalog


def compile_runs(catalog: Catalog) -> dict[str, Any]:
    """What `data.stored_runs.StoredRuns` reads."""
    return {
        "vocabulary": list(catalog.vocabulary),
        "usual": catalog.usual,
        "optional": [name for name, fact in catalog.vocabulary.items() if fact.optional],
        "names": [observed.name for observed in catalog.observed],
        "told": [[observed.facts, observed.label] for observed in catalog.observed],
    }
