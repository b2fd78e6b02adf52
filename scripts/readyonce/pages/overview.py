"""What tells of all incidents: cards, tables, the claims in circulation, what changed."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Iterator

from readyonce import history, news
from readyonce.catalog import Incident
from readyonce.links import run_address
from readyonce.markup import code, number, percent, sections, table
from readyonce.pages.lab_book import wrong
from readyonce.pages.page import IN_NAVIGATION, Page
from readyonce.schema import SILENT
from readyonce.verdicts import judge

LATELY = 20  # rows on the page of what changed


class Overview(Page):
    @property
    def many(self) -> bool:
        return len(self.catalog.incidents) > IN_NAVIGATION

    @property
    def silent(self) -> list[Incident]:
        return [incident for incident in self.catalog.incidents.values() if incident.silent]

    @property
    def with_error(self) -> list[Incident]:
        return [incident for incident in self.catalog.incidents.values() if not incident.silent]

    def incident_table(self, incidents: Iterable[Incident]) -> str:
        """A row for those that show the same and have the same fix; nothing where there is none."""
        groups: dict[tuple[str, str], list[str]] = {}
        for incident in incidents:
            meta, page = incident.meta, self.of(incident)
            fix = f"`{meta.fix.option}`" if meta.fix.option else meta.fix.text[self.language]
            link = f"[{meta.id}]({meta.id}.md) {meta.short[self.language]}"
            symptom = "<br>".join(page.you_see())
            groups.setdefault((symptom, fix), []).append(f"{link}<br>{page.affected_packages()}")
        rows = [[symptom, "<br>".join(links), fix] for (symptom, fix), links in groups.items()]
        return table([self.head("you-see", "incident-affects", "fix"), *rows], "ro-stack") if rows else ""

    def two_hosts(self) -> str:
        """Of what ran on two hosts: how many runs came out as on one, and how those did."""
        outcomes = ("error", "match", "diverge", "still")
        rows = [self.head("incident", "as-on-one", *outcomes)]
        for incident in self.catalog.incidents.values():
            for evidence in incident.elsewhere.values():
                if evidence.environment.hosts > 1:
                    pairs = incident.beside_current(evidence)
                    same = [run for run, one in pairs if (run.outcome, run.error) == (one.outcome, one.error)]
                    ended = [str(sum(run.outcome == outcome for run in same)) for outcome in outcomes]
                    link = f"[{incident.id}](incidents/{incident.id}/evidence.md)"
                    rows.append([link, f"{len(same)} / {len(evidence.runs)}", *ended])
        return table(rows)

    def incidents_by_error(self) -> str:
        """A section for each error, with its incidents: one with two errors stands in both."""
        return "\n".join(
            f"## {family.title[self.language]} {{ #{name} }}\n\n{self.incident_table(found)}"
            for name, family in self.catalog.families.items()
            if (found := self.catalog.about(name))
        )

    def cards(self) -> str:
        """The errors for the home page: text, strategy, fix, and the incidents, or where there are many their number.

        The last card is for what fails without an error.
        """
        cards = []
        for name, family in self.catalog.families.items():
            if family.card:
                fix = self.after(f"**{self.say('fix')}**", family.card.fix[self.language])
                text = f"{family.card.strategy[self.language]}<br>{fix}"
                cards.append((self.family_link(name, "errors/"), text, self._on_card(self.catalog.about(name), name)))
        if self.silent:
            head = f"[{self.say('silent')}](symptoms.md)"
            cards.append((head, self.say("by-symptom"), self._on_card(self.silent, "silent")))
        return self.fill("cards.md", cards=cards)

    def _on_card(self, incidents: list[Incident], anchor: str) -> str:
        if self.many:
            return f"[{self.say('all', len(incidents))}](incidents/index.md#{anchor})"
        return "<br>".join(
            f"[{incident.id}](incidents/{incident.id}.md){{ .ro-id }} {incident.meta.short[self.language].partition(' · ')[0]}"
            for incident in incidents
        )

    def errors(self) -> str:
        """Two sections of links: errors with their meaning and incidents, and their look-alikes."""
        return self.fill("errors.md", own=self.catalog.listed("own"), others=self.catalog.listed("look-alikes"))

    def changes(self) -> str:
        """What changed lately for readers, a row for each day and incident."""
        if history.changes(self.catalog.root) is None:
            return f"{self.say('no-history')}\n"
        rows = [
            [
                f"<time>{change.day}</time>",
                f"[{change.incident}](incidents/{change.incident}.md)",
                "<br>".join(self._told(change)),
            ]
            for change in itertools.islice(news.news(self.catalog.root), LATELY)
            if change.incident in self.catalog.incidents
        ]
        return table([self.head("date", "incident", "change"), *rows]) if rows else f"{self.say('no-news')}\n"

    def _told(self, change: news.News) -> Iterator[str]:
        incident = self.catalog.incidents[change.incident]
        if change.before is None:
            yield self.say("news-incident", incident.meta.title[self.language])
        if change.fixed:
            yield self.say("news-fix", code(change.after.fix.option or change.after.fix.code or ""))
        if change.affected and change.before:
            ranges = (f"{code(entry.package or '')} {self.range(entry)}" for entry in change.affected)
            yield self.say("news-affected", self.joined("semicolon", ranges))
        judged = {name: pair for name, pair in change.verdicts.items() if name in incident.meta.claims}
        for name, (before, after) in judged.items():
            if before:
                text = (
                    f"[{incident.meta.claims[name].text[self.language]}](incidents/{change.incident}.md#claim-{name})"
                )
                yield self.say("news-verdict", text, self.say(before), self.say(after))
        if count := sum(before is None for before, _ in judged.values()):
            yield self.say("news-claims", count)
        for environment, outcomes in change.runs.items():
            ended = self.joined("between", (f"{self.say(o)} {n}" for o, n in sorted(outcomes.items())))
            yield self.say("news-runs", outcomes.total(), code(environment), ended)
        for (environment, variant), (was, is_now) in change.turned.items():
            run = f"[{code(variant)}](incidents/{run_address(change.incident, variant, environment)})"
            yield self.say("news-turned", run, code(environment), self.say(was), self.say(is_now))

    def advice(self, incidents: Iterable[Incident]) -> str:
        """Every claim of these incidents, a section each: never follow it, follow it only if, it is true, or nothing settles it.

        A row says under which condition or at what cost, or why nothing settles it; the reasons and the runs are its incident's.
        """
        parts: dict[str, list[str]] = {"fails": [], "depends": [], "no": [], "open": []}
        for incident in incidents:
            page, headed = f"incidents/{incident.id}.md", set()
            for name, entry in incident.meta.claims.items():
                judgement = judge(self.catalog, entry)
                kind: str = judgement.verdict
                if kind == "depends" and entry.advice == "no":
                    kind = "fails"
                if kind == "holds":
                    kind = "depends" if entry.advice == "only if" else "no"
                if kind not in headed:
                    headed.add(kind)
                    title = f"[{incident.id}]({page}) · {incident.meta.short[self.language]}"
                    parts[kind].append(f"### {title} {{ #{kind}-{incident.id} }}\n")
                cost = entry.note if kind == "depends" else None
                given = entry.when.text if entry.when else entry.why or cost
                text = given[self.language] if given and kind != "no" else ""
                claim = self.fill(
                    "advice.md",
                    text=entry.text[self.language],
                    id=f"{incident.id}-claim-{name}",
                    verdict=self.verdict(judgement, f"{page}#claim-{name}"),
                    under=first_sentence(text) if kind == "open" else text,
                    settled=kind == "no",
                )
                parts[kind].append(_from_root(claim, page))
        return sections(**{kind: "\n".join(claims) for kind, claims in parts.items()})

    def silent_runs(self) -> str:
        """Two sections: how many runs trained wrong without a word, and all of them."""
        return sections(count=self.silent_count(), runs=self.silent_table())

    def silent_count(self) -> str:
        """How far off the least and the worst of them was, and in how many nothing moved."""
        off = wrong(observed.run for observed in self.catalog.observed)
        texts = [self.say("silent-count", len(off), percent(off[0]), percent(off[-1]))] if off else []
        if still := sum(observed.run.outcome == "still" for observed in self.catalog.observed):
            texts.append(self.say("still-count", still))
        return self.joined("next", texts) + "\n" if texts else ""

    def silent_table(self) -> str:
        """Every run that finished and trained wrong, for a page at the top."""
        rows = [self.head("variant", "what", "off", "ranks")]
        for incident in self.catalog.incidents.values():
            for environment, evidence in sorted(incident.evidence.items()):
                for run in evidence.runs:
                    if run.outcome in SILENT:
                        name = run.variant + ("" if environment == "current" else f"@{environment}")
                        target = "incidents/" + run_address(incident.id, run.variant, environment)
                        text = incident.variants[run.variant].text[self.language]
                        if run.rank_spread is None:
                            spread = self.say("not-measured")
                        else:
                            spread = percent(run.rank_spread) if run.rank_spread else self.say("equal")
                        off = self.say("still") if run.outcome == "still" else number(run)
                        rows.append([f"{incident.id}<br>[`{name}`]({target})", text, off, spread])
        return table(rows)


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s|(?<=[。！？])", text, maxsplit=1)[0]


def _from_root(text: str, page: str) -> str:
    """Text of an incident's page, for a page at the top: its links lead from here to where they led."""

    def target(found: re.Match[str]) -> str:
        link = found[1]
        if link.startswith("#"):
            return f"]({page}{link})"
        if re.match(r"[a-z]+:|incidents/", link):
            return found[0]
        return f"]({posixpath.normpath(posixpath.join('incidents', link))})"

    return re.sub(r"\]\(([^)]+)\)", target, text)
