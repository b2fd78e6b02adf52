"""Whom a part is written for, and the words and templates that it is made of."""

from __future__ import annotations

import datetime
import functools
import os
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jinja2

from readyonce.data.catalog import MINIMAL, Catalog, Incident, Variant, imports
from readyonce.data.facts import version as version_key
from readyonce.data.markup import chip, code
from readyonce.data.project import Language
from readyonce.data.schema import Affected, Environment, FamilyFile
from readyonce.data.verdicts import Judgement
from readyonce.data.words import say

STALE_AFTER = 180  # days until a page says that its evidence is old
IN_ONE_LIST = 100  # incidents; where there are more, the index page lists them by error, and other pages lead there
IN_CELL = 20  # incidents in a cell of a table; the others are counted


@functools.cache
def _templates() -> jinja2.Environment:
    """Of Markdown, so nothing is escaped; a name that is not given is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )


@dataclass(frozen=True)
class Page:
    """The catalog that a page tells of, and its language."""

    catalog: Catalog
    language: Language

    def say(self, key: str, *values: object, **named: object) -> str:
        return say(key, self.language, *values, **named)

    def head(self, *keys: str) -> list[str]:
        """The first row of a table."""
        return [self.say(key) for key in keys]

    def joined(self, key: str, parts: Iterable[str]) -> str:
        """Parts, with this language's comma, stop or space between them."""
        return self.say(key).join(parts)

    def after(self, what: str, text: str) -> str:
        """`what`, a colon, and the text."""
        return f"{what}{self.say('colon')}{text}"

    def chip(self, word: str, id: str = "") -> str:
        """An outcome or a verdict in its colour."""
        return chip(self.say(word), word, id)

    def fill(self, template: str, **values: object) -> str:
        """A template of `templates/`; it has this page as `page`."""
        filled = _templates().get_template(f"{template}.jinja").render(page=self, **values)
        return filled.rstrip("\n") + "\n"

    def family_link(self, name: str | None, to: str) -> str:
        family = self.catalog.families.get(name or "")
        if family is None:
            return f"`{name}`"  # `readyonce check` says so; here it must not hide the other problems
        return f"[{family.title[self.language]}]({to}{family.source})"

    def seen_in(self, family: FamilyFile, up: str) -> str:
        """Links to the incidents that an error belongs to, that a run of theirs ended in, or that a script of theirs prints."""
        incidents, printed = self.catalog.incidents.values(), self.catalog.printed.get(family.family, set())
        found = [
            f"[{incident.id}]({up}incidents/{incident.id}.md)"
            for incident in incidents
            if family.family in incident.shows or incident.id in printed
        ]
        more = self.say("more", len(found) - IN_CELL) if len(found) > IN_CELL else ""
        return self.joined("between", found[:IN_CELL]) + more

    def of(self, incident: Incident) -> IncidentPage:
        return IncidentPage(self.catalog, self.language, incident)

    def verdict(self, judgement: Judgement, proof: str | None = None) -> str:
        """In one word, and the runs that fit; with `proof`, they lead there."""
        return f"{self.chip(judgement.verdict)} {self.fitting(judgement, proof)}".rstrip()

    def fitting(self, judgement: Judgement, proof: str | None = None, words: str = "count") -> str:
        """How many of the runs that fit are as the claim says; with `proof`, the words lead there."""
        count = self.say(words, len(judgement.right), len(judgement.runs)) if judgement.runs else ""
        if proof:
            return f"[{count or self.say('its-proof')}]({proof})"
        return count


@dataclass(frozen=True)
class IncidentPage(Page):
    """What all that tells of one incident has in common."""

    incident: Incident

    def you_see(self) -> list[str]:
        """Its errors; where there is none, how the reported run ends."""
        if not self.incident.silent:
            return [self.family_link(name, "../errors/") for name in self.incident.meta.errors]
        return [f"[{self.say('no-error', self.chip_of(self.incident.outcome))}](../already-trained.md)"]

    def chip_of(self, outcome: str) -> str:
        """How a run of this incident ended, in its colour."""
        return chip(self.say(self.incident.word_for(outcome)), outcome)

    def range(self, entry: Affected) -> str:
        """The versions that are affected; where there is no bound, those that were run."""
        bounds = [f"{sign} {at}" for sign, at in (("≥", entry.introduced), ("<", entry.fixed)) if at]
        if bounds:
            return self.joined("bounds", bounds)
        ran = self.versions_run(entry.package or "")
        return self.say("no-bounds-run", self.joined("between", ran)) if ran else self.say("no-bounds")

    def versions_run(self, package: str) -> list[str]:
        """The versions of a package that the incident's evidence was made with, oldest first."""
        names = {package, package.lower().replace("_", "-")}
        found = {
            version.partition("+")[0]  # which build of it says nothing here
            for evidence in self.incident.evidence.values()
            for name, version in evidence.environment.versions.items()
            if evidence.runs and names & {name, name.lower().replace("_", "-")}
        }
        return sorted(found, key=version_key)

    def affected_packages(self) -> str:
        return self.joined(
            "semicolon", (f"{entry.package} {self.range(entry)}" for entry in self.incident.meta.affected)
        )

    def verified(self, environment: Environment, up: str = "../", ended: str = "") -> str:
        """Date, versions and device, and how it ended. Of the versions, those that the repros run there import, if any are."""
        files = [name for name, where in self.incident.meta.files.items() if environment.name in where]
        files = files or [MINIMAL]
        versions = (f"{name} {environment.versions[name]}" for name in self.imported(files, environment))
        figures = environment.model_dump(exclude={"versions"}) | {"device": environment.device.upper()}
        how = self.chip(ended) if ended else self.say("verified")
        parts = [self.say("ended-on", ended=how, versions=self.joined("between", versions), **figures)]
        if environment.gloo_threads == 1:
            parts.append(self.say("one-gloo-thread", f"{up}concepts/zero3-early-gather.md"))
        return self.joined("next", parts)

    def imported(self, files: list[str], environment: Environment) -> list[str]:
        """The packages that these repros import; all that are recorded, where none is imported: a framework's command."""
        sources = (self.catalog.text(self.incident.folder / name) for name in files)
        imported = frozenset().union(*map(imports, sources))
        return [name for name in environment.versions if name in imported] or list(environment.versions)

    @property
    def stale(self) -> bool:
        """Whether the evidence is old at the build's date (SOURCE_DATE_EPOCH, where set)."""
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        today = datetime.datetime.fromtimestamp(int(epoch), datetime.UTC).date() if epoch else datetime.date.today()
        ran = self.incident.ran_in
        return ran is not None and (today - datetime.date.fromisoformat(ran.date)).days > STALE_AFTER

    def ran(self, environment: str) -> bool:
        return environment in self.incident.evidence and environment not in self.incident.not_run

    def not_run(self, why: str) -> str:
        """Why nothing could be run: the last line of what was said."""
        return code(why.strip().splitlines()[-1])

    def unusable(self, variant: Variant, environment: str) -> str:
        return self.after(self.say("unusable"), variant.unusable[environment][self.language])


def lead_from(text: str, page: str, folder: str) -> str:
    """Text of an incident's article, for another page: its links lead from there, where the article is `page` and the other
    articles lie in `folder`, to where they led."""

    def target(found: re.Match[str]) -> str:
        link = found[1]
        if link.startswith("#"):
            return f"]({page}{link})"
        if re.match(r"[a-z]+:|incidents/", link):
            return found[0]
        return f"]({posixpath.normpath(posixpath.join(folder, link))})"

    return re.sub(r"\]\(([^)]+)\)", target, text)
