"""What public examples hit: the launches of snippets/lint/examples.json, judged by the runs of today when the site is made."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from readyonce.catalog import Catalog
from readyonce.lint.judge import LEVELS, Finding, Judged, judge
from readyonce.lint.launch import Launch, Option
from readyonce.markup import table
from readyonce.project import Language
from readyonce.reading import parse_yaml
from readyonce.words import say

LINKED = 5  # launches of a row; of more, their number


@dataclass(frozen=True)
class Example:
    """A launch of a public repository, and what is found of it with the versions of its release."""

    repository: str
    release: str
    commit: str
    place: str
    findings: list[Finding]

    @property
    def level(self) -> str:
        return self.findings[0].level if self.findings else "right"

    @property
    def link(self) -> str:
        path, _, line = self.place.rpartition(":")
        quoted = path.replace(" ", "%20").replace("(", "%28").replace(")", "%29")
        return f"[{path}:{line}](https://github.com/{self.repository}/blob/{self.commit}/{quoted}#L{line})"


NAMES = ("lint/examples-counts.md", "lint/examples-stop.md", "lint/examples-depend.md")


def includes(catalog: Catalog, rules: dict[str, Any], language: Language) -> dict[str, str]:
    public = examples(catalog, rules, language)
    stopped, depending = (_listed(public, levels, language) for levels in (("error", "warning"), ("note",)))
    return dict(zip(NAMES, (_counts(catalog, public, language), stopped, depending), strict=True))


def examples(catalog: Catalog, rules: dict[str, Any], language: Language = "en") -> list[Example]:
    """What public launches hit. What they set is stored; what is said of it is judged here, by the runs of today."""
    found = []
    stored = json.loads(catalog.text(catalog.root / "snippets" / "lint" / "examples.json"))
    for repository, releases in _releases(catalog).items():
        answered: dict[str, dict[Hashable, list[Judged]]] = {}
        for release, about in releases.items():
            for record in stored.get(repository, {}).get(release, []):
                options = {name: Option(value, "", 0) for name, value in record["options"].items()}
                launch = Launch(record["command"], "", 0, options, frameworks=record["frameworks"])
                launch.processes, launch.blind = record.get("processes"), record.get("blind", False)
                launch.unread = record.get("unread", [])
                judged = judge(rules, launch, about["versions"], language, answered.setdefault(release, {}))
                found += [Example(repository, release, about["commit"], place, judged) for place in record["places"]]
    return found


def _releases(catalog: Catalog) -> dict[str, dict[str, dict[str, Any]]]:
    read: dict[str, dict[str, dict[str, Any]]] = parse_yaml(
        catalog.text(catalog.root / "snippets" / "lint" / "examples.yml")
    )
    return read


def _counts(catalog: Catalog, public: list[Example], language: Language) -> str:
    columns = (*LEVELS[:3], "right", "not-covered")
    rows = [[say(f"lint-examples.{column}", language) for column in ("repository", "launches", *columns)]]
    for repository, releases in _releases(catalog).items():
        for release, about in releases.items():
            here = Counter(
                example.level for example in public if (example.repository, example.release) == (repository, release)
            )
            pinned = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if version != release)
            name = f"[{repository} {release}](https://github.com/{repository}/tree/{about['commit']})"
            name += f"<br>{say('lint-examples.with', language, pinned)}" if pinned else ""
            rows.append([name, str(here.total()), *(str(here[column]) for column in columns)])
    return table(rows)


def _listed(public: list[Example], levels: tuple[str, ...], language: Language) -> str:
    """A row for what several launches of a release have in common."""
    alike: dict[tuple[str, str, tuple[tuple[str, str, str], ...]], list[Example]] = {}
    for example in public:
        if example.level in levels:
            said = tuple((one.versions, one.what, one.page) for one in example.findings if one.level in levels)
            alike.setdefault((example.repository, example.release, said), []).append(example)
    rows = [[say(f"lint-examples.{column}", language) for column in ("repository", "launch", "happens")]]
    for (repository, release, said), here in alike.items():
        launches = [example.link for example in here[:LINKED]]
        if (more := len(here) - LINKED) > 0:
            launches.append(say("lint-examples.more", language, more))
        one = len({what for _, what, _ in said}) == 1  # with all versions
        lines = dict.fromkeys(
            f"[{what if one or not versions else say('lint-examples.versions', language, versions, what)}]({_source(page)})"
            for versions, what, page in said
        )
        rows.append([f"{repository} {release}", "<br>".join(launches), "<br>".join(lines)])
    return table(rows) if len(rows) > 1 else say("lint-examples.none", language) + "\n"


def _source(page: str) -> str:
    """`decision/#ddp-once` → `decision.md#ddp-once`: the page's own file."""
    return re.sub(r"/(?=#|$)", ".md", page, count=1)
