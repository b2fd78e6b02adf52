"""Makes the files of a new incident from `skeleton/`."""

from __future__ import annotations

import re
from pathlib import Path

from readyonce.catalog import CatalogError, Problem

SKELETON = Path(__file__).with_name("skeleton")
PLACES = {
    "incident.yml": "snippets/{id}/incident.yml",
    "repro.py": "snippets/{id}/repro.py",
    "launch.sh": "snippets/{id}/launch.sh",
    "article.en.md": "docs/en/incidents/{id}.md",
    "article.zh.md": "docs/zh/incidents/{id}.md",
    "evidence.en.md": "docs/en/incidents/{id}/evidence.md",
    "evidence.zh.md": "docs/zh/incidents/{id}/evidence.md",
}


def create(root: Path, id: str) -> list[str]:
    """Write every file an incident needs; nothing when the id is no id or one of them is there."""
    if not re.fullmatch(r"RO-[0-9]{4}", id):
        raise CatalogError([Problem(id, 1, "this is no id", "An id is RO- and four digits: RO-0042.")])
    targets = {name: root / place.format(id=id) for name, place in PLACES.items()}
    there = [path for path in targets.values() if path.exists()]
    if there:
        raise CatalogError(
            [
                Problem(
                    str(path.relative_to(root)),
                    1,
                    "the file is there already",
                    "Ids are never reused: take the next free one.",
                )
                for path in there
            ]
        )
    for name, path in targets.items():
        text = (SKELETON / name).read_text(encoding="utf-8")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("RO-0000", id).replace("ro-0000", id.lower()), encoding="utf-8")
        if path.suffix == ".sh":
            path.chmod(0o755)
    return [str(path.relative_to(root)) for path in targets.values()]
