"""Makes the files of a new incident, and of a new error, from `skeleton/`."""

from __future__ import annotations

import re
from pathlib import Path

from readyonce.reading import CatalogError, Problem

SKELETON = Path(__file__).with_name("skeleton")
PLACES = {
    "incident.yml": "snippets/{id}/incident.yml",
    "minimal.py": "snippets/{id}/minimal.py",
    "repro.py": "snippets/{id}/repro.py",
    "launch.sh": "snippets/{id}/launch.sh",
    "article.en.md": "docs/en/incidents/{id}.md",
    "article.zh.md": "docs/zh/incidents/{id}.md",
    "evidence.en.md": "docs/en/incidents/{id}/evidence.md",
    "evidence.zh.md": "docs/zh/incidents/{id}/evidence.md",
}
ERROR = "snippets/errors/{error}.yml"


def next_id(root: Path) -> str:
    """The one after the highest: an id is never used again."""
    taken = [int(path.name[3:]) for path in (root / "snippets").glob("RO-[0-9][0-9][0-9][0-9]")]
    return f"RO-{max(taken, default=0) + 1:04}"


def create(root: Path, id: str, error: str | None = None) -> list[str]:
    """Write every file an incident needs, and that of its new error; nothing where a name is none or a file is there."""
    if not re.fullmatch(r"RO-[0-9]{4}", id):
        raise CatalogError([Problem(id, 1, "this is no id", "An id is RO- and four digits: RO-0042.")])
    if error is not None and not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", error):
        raise CatalogError([Problem(error, 1, "this is no name", "Small letters and digits, joined by `-`.")])
    targets = {name: root / place.format(id=id) for name, place in PLACES.items()}
    if error:
        targets["error.yml"] = root / ERROR.format(error=error)
    there = [path for path in targets.values() if path.exists()]
    if there:
        raise CatalogError(
            [
                Problem(
                    str(path.relative_to(root)),
                    1,
                    "the file is there already",
                    "Names are never reused: take another, or leave the id out and get the next free one.",
                )
                for path in there
            ]
        )
    filled = {"RO-0000": id, "ro-0000": id.lower()}
    if error:
        filled |= {"an-error": error, "ddp-ready-twice": error}
    for name, path in targets.items():
        text = (SKELETON / name).read_text(encoding="utf-8")
        for old, new in filled.items():
            text = text.replace(old, new)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".sh":
            path.chmod(0o755)
    return [str(path.relative_to(root)) for path in targets.values()]
