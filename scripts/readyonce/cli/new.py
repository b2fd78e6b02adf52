"""Makes the files of a new incident, and of a new error, from `skeleton/`: of a short one, of a judged one, of a team's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from readyonce.data.inputs import Unusable
from readyonce.data.project import INCIDENT_FOLDERS, Language
from readyonce.data.reading import CatalogError, Problem
from readyonce.data.schema import INCIDENT_ID, OURS
from readyonce.diagnose import engine, inputs

SKELETON = Path(__file__).with_name("skeleton")
Form = Literal["short", "noted", "judged"]
PLACES: dict[Form, dict[str, str]] = {
    "short": {
        "incident.short.yml": "snippets/{id}/incident.yml",
        "minimal.py": "snippets/{id}/minimal.py",
        "article.short.md": "docs/{language}/incidents/{id}.md",
    },
    "noted": {
        "incident.short.yml": "snippets/{id}/incident.yml",
        "article.noted.md": "docs/{language}/incidents/{id}.md",
    },
    "judged": {
        "incident.yml": "snippets/{id}/incident.yml",
        "minimal.py": "snippets/{id}/minimal.py",
        "repro.py": "snippets/{id}/repro.py",
        "launch.sh": "snippets/{id}/launch.sh",
        "article.en.md": "docs/en/incidents/{id}.md",
        "article.zh.md": "docs/zh/incidents/{id}.md",
        "evidence.en.md": "docs/en/incidents/{id}/evidence.md",
        "evidence.zh.md": "docs/zh/incidents/{id}/evidence.md",
    },
}
# In a team's folder all files of an incident lie in one.
THEIRS = {"snippets/{id}/": "{id}/", "docs/{language}/incidents/{id}.md": "{id}/{language}.md"}


@dataclass(frozen=True)
class Seen:
    """What a log shows."""

    family: str | None  # of the error, where it is known
    text: str | None  # the exception that ended it, where it is of no known family


def seen_in(rules: engine.Rules, log: str) -> Seen:
    """Which error a log shows, as `diagnose` reads it. Raises `Unusable` where it cannot be read."""
    faults: list[str] = []
    answer = inputs.diagnose(rules, log, "en", faults)
    if answer is None:
        raise Unusable(faults[0])
    exception = answer.json["exception"]
    return Seen(answer.json["error"], exception["text"] if exception else None)


def next_id(folder: Path, prefix: str = OURS) -> str:
    """The one after the highest below `folder`: an id is never used again."""
    taken = [int(path.name[-4:]) for path in folder.glob(INCIDENT_FOLDERS) if path.name.startswith(f"{prefix}-")]
    return f"{prefix}-{max(taken, default=0) + 1:04}"


def their_next_id(folder: Path) -> str:
    """The next one of a team's folder, which must hold an incident already."""
    prefixes = {path.name.rpartition("-")[0] for path in folder.glob(INCIDENT_FOLDERS)}
    if len(prefixes) != 1:
        raise Unusable(f"{folder} has {len(prefixes) or 'no'} prefixes of ids: name the new id, for example ACME-0001")
    return next_id(folder, prefixes.pop())


def create(
    root: Path,
    id: str,
    error: str | None = None,
    form: Form = "short",
    seen: Seen | None = None,
    language: Language = "en",
    theirs: bool = False,
) -> list[str]:
    """Write every file that an incident needs below `root`, the project or a team's folder, and that of its new error; nothing
    where a name is none, or a file is there. Returns their names."""
    if not re.fullmatch(INCIDENT_ID, id, re.ASCII) or theirs == id.startswith(f"{OURS}-"):
        remedy = "Take a prefix of your own: ACME-0001." if theirs else "An id is RO- and four digits: RO-0042."
        raise CatalogError([Problem(id, 1, "this is no id", remedy)])
    if error is not None and not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", error):
        raise CatalogError([Problem(error, 1, "this is no name", "Small letters and digits, joined by `-`.")])
    if error and seen and seen.family:
        what = f"the log shows an error that is known: `{seen.family}`"
        raise CatalogError([Problem(error, 1, what, "Leave --error out; the incident then names that family.")])
    if seen and seen.text and not (seen.family or error):
        remedy = (
            "Name a new family for it: --error, and small letters and digits joined by `-`. It gets the error's text."
        )
        raise CatalogError([Problem(id, 1, "the log shows an error that no family has", remedy)])
    targets = {}
    for name, place in PLACES[form].items():
        for ours, place_of_theirs in THEIRS.items() if theirs else ():
            place = place.replace(ours, place_of_theirs)
        targets[name] = root / place.format(id=id, language=language)
    if error:
        targets["error.yml"] = root / ("" if theirs else "snippets") / "errors" / f"{error}.yml"
    there = [str(path.relative_to(root)) for path in targets.values() if path.exists()]
    if there:
        remedy = "Names are never reused: take another, or leave the id out and get the next free one."
        raise CatalogError([Problem(path, 1, "the file is there already", remedy) for path in there])
    filled = {"RO-0000": id, "ro-0000": id.lower()}
    if error:
        filled |= {"an-error": error, "ddp-ready-twice": error}
    elif seen:
        filled["[ddp-ready-twice]"] = f"[{seen.family or ''}]"
    if seen and seen.text:
        filled["TODO text"] = yaml.safe_dump(seen.text, width=10_000, allow_unicode=True).split("\n")[0]
    for name, path in targets.items():
        text = (SKELETON / name).read_text(encoding="utf-8")
        for old, new in filled.items():
            text = text.replace(old, new)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".sh":
            path.chmod(0o755)
    return [str(path.relative_to(root)) for path in targets.values()]
