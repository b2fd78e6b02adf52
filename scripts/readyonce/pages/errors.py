"""The pages of errors: a family's parts, and the look-alikes."""

from __future__ import annotations

from readyonce.data.links import run_address
from readyonce.data.markup import cite_all, code, sections, table
from readyonce.data.schema import FamilyFile
from readyonce.pages.page import IN_ONE_LIST, Page


class ErrorPage(Page):
    def _told(self, wording: str, where: str) -> str:
        """A wording as it is printed, and where it comes from; where it ends in a colon, that one is enough."""
        return f"{code(wording)} {where}" if wording.endswith(":") else self.after(code(wording), where)

    def parts(self, family: FamilyFile) -> str:
        """The sections of a family's page: `wordings`, `incidents`, `questions`, `cases`."""
        wordings = ((["<br>".join(map(code, wording.all)), wording.text[self.language]]) for wording in family.wordings)
        return sections(
            wordings=table([self.head("wording", "where"), *wordings]),
            incidents=self._incidents(family),
            # readyonce.css draws it as a flowchart: a yes leads to the right, a no down.
            questions=self.fill("questions.md", family=family),
            cases=self._cases(family),
        )

    def _incidents(self, family: FamilyFile) -> str:
        incidents = self.catalog.about(family.family)
        if len(incidents) > IN_ONE_LIST:
            return f"[{self.say('all', len(incidents))}](../incidents/index.md#{family.family})\n"
        rows = (
            [
                self.joined("between", incident.meta.tags.framework),
                f"[{incident.id}](../incidents/{incident.id}.md) {incident.meta.title[self.language]}",
            ]
            for incident in incidents
        )
        return table([self.head("framework", "incident"), *rows])

    def _cases(self, family: FamilyFile) -> str:
        """How many of the runs that ended in an error are of each of its cases."""
        if not family.cases:
            return ""
        ended = self.catalog.ended_in(family.family)
        fit = {
            case.text[self.language]: ended & self.catalog.telling(case.where)[0]
            for case in family.cases
            if case.where is not None
        }
        counted = [self.say("of-case", text, len(runs)) for text, runs in fit.items()]
        sentences = [self.say("cases", count=len(ended), cases=self.joined("semicolon", counted))]
        if sum(map(len, fit.values())) > len(ended):
            sentences.append(self.say("cases-overlap"))
        if not_run := [case.text[self.language] for case in family.cases if case.where is None]:
            sentences.append(self.say("cases-not-run", self.joined("between", not_run)))
        return self.joined("next", sentences) + "\n"

    def look_alikes(self) -> str:
        """Two sections of links: errors that runs here ended in, and those known from sources only.

        Each has the anchor that it had when the page held all of them.
        """
        parts: dict[str, list[str]] = {"run": [], "source": []}
        for family in self.catalog.listed("look-alikes"):
            kind = "run" if self.seen_in(family, "") else "source"
            parts[kind].append(f"- [{family.title[self.language]}]({family.source}){{ #{family.family} }}\n")
        return sections(**{kind: "".join(links) for kind, links in parts.items()})

    def look_alike(self, family: FamilyFile) -> str:
        """What a look-alike is, the shortest message that a run ended with, where it was seen, and its sources."""
        runs = [observed for observed in self.catalog.ended_in(family.family) if observed.run.message]
        shown = min(
            runs,
            key=lambda observed: (len(observed.run.message or ""), observed.incident.id, observed.run.variant),
            default=None,
        )
        address = run_address(shown.incident.id, shown.run.variant, shown.environment) if shown else ""
        wordings = (self._told(" … ".join(wording.all), wording.text[self.language]) for wording in family.wordings)
        return self.fill(
            "look-alike.md",
            family=family,
            shown=shown,
            address=address,
            wordings=list(wordings),
            seen=self.seen_in(family, "../../"),
            sources=cite_all(family.sources, self.language),
        )
