"""What tells of all incidents: tables, the claims in circulation, what changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from operator import itemgetter

from readyonce.data.catalog import Incident
from readyonce.data.conditions import value_in_words
from readyonce.data.frameworks import versions_of
from readyonce.data.links import run_address
from readyonce.data.markup import chip, code, columns, number, percent, sections, table, without_links
from readyonce.data.schema import SILENT, Change, Default
from readyonce.data.verdicts import judge
from readyonce.pages.lab_book import wrong
from readyonce.pages.page import IN_ONE_LIST, Page, lead_from

REPEATED = "repeated"  # of the decision table: the use that reentrant checkpointing does not bear
LATELY = 20  # rows on the page of what changed
LONGEST_CONDITION = 50  # columns below a claim in the list of all; a longer one stands at the claim alone


class Overview(Page):
    @property
    def many(self) -> bool:
        return len(self.catalog.incidents) > IN_ONE_LIST

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

    def frameworks(self) -> str:
        """Two sections, by framework and version: how runs ended where a checkpointed module runs more than once; and a table of
        what one gets who sets nothing, and of the incidents that affect the framework."""
        rows, told = [], set[str]()
        for framework in self.catalog.frameworks.values():
            base = self.catalog.frameworks.get(framework.base or "")
            first = framework.package not in told
            incidents = list(self._affecting(framework.package)) if framework.package and first else []
            told |= {framework.package} if framework.package else set()
            if base:
                incidents.append(self.say("affected-too", base.title[self.language]))
            defaults = [self._default(default) for default in framework.defaults]
            if not defaults and base:
                defaults.append(self.say("affected-as", base.title[self.language]))
            if defaults or incidents:
                name = (framework.product or framework.title)[self.language]
                rows.append([name, "<br>".join(defaults), "<br>".join(incidents)])
        listed = table([self.head("framework", "affected-default", "affected-by"), *rows], "ro-stack ro-wide-2")
        return sections(runs=self._repeated(), table=listed)

    def _affecting(self, package: str) -> Iterator[str]:
        """The incidents that name a package, with its versions."""
        for incident in self.catalog.incidents.values():
            page = self.of(incident)
            for entry in incident.meta.affected:
                if entry.package and entry.package.lower() == package.lower():
                    yield f"[{incident.id}]({incident.id}.md) {page.range(entry)}"

    def _default(self, default: Default) -> str:
        value = self.say(f"checkpointing-{default.value}")
        text = self.say("aside", value, default.text[self.language]) if default.text else value
        safe = not self._ends(default.value)["silent"]
        risk = chip(self.say("affected-safe"), "match") if safe else chip(self.say("affected-risk"), "diverge")
        return f"{risk} {self.after(versions_of(default, self.language), text)}"

    def _repeated(self) -> str:
        """A line for each kind of checkpointing: with which strategies such runs ended how."""
        lines = []
        for value in ("reentrant", "non-reentrant"):
            ends = ((self.joined("between", names), end) for end, names in self._ends(value).items() if names)
            told = self.joined("semicolon", (self.say(f"affected-{end}", names) for names, end in ends))
            if told:
                lines.append(f"- {self.say('affected-with', self.say(f'checkpointing-{value}'), told)}\n")
        return "".join(lines)

    def _ends(self, checkpointing: str) -> dict[str, list[str]]:
        """The strategies by the worst that their runs came to where a checkpointed module runs more than once."""
        ends: dict[str, list[str]] = {"silent": [], "stops": [], "right": []}
        decision = self.catalog.decision
        if decision is None or REPEATED not in decision.uses:
            return ends
        for strategy in decision.strategies:
            where = {**decision.uses[REPEATED].where, "strategy": strategy, "checkpointing": checkpointing}
            outcomes = {observed.run.outcome for observed in self.catalog.fitting(where)[0]}
            if outcomes:
                end = "silent" if outcomes & set(SILENT) else "right" if outcomes == {"match"} else "stops"
                ends[end].append(value_in_words(self.catalog, "strategy", strategy, self.language))
        return ends

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

    def first_errors(self) -> str:
        """For the home page: the errors with a page of their own that most readers come with, and what mends each."""
        listed = [(name, family.card) for name, family in self.catalog.families.items() if family.card]
        return "".join(
            f"- {self.after(self.family_link(name, 'errors/'), card.fix[self.language])}\n" for name, card in listed
        )

    def errors(self) -> str:
        """Two sections of links: errors with their meaning and incidents, and their look-alikes."""
        return self.fill("errors.md", own=self.catalog.listed("own"), others=self.catalog.listed("look-alikes"))

    def changes(self) -> str:
        """What changed lately for readers, a row for each day and incident."""
        days: dict[tuple[str, str], list[Change]] = {}
        for id in self.catalog.incidents:
            for change in self.catalog.changes.get(id, []):
                days.setdefault((change.date, id), []).append(change)
        rows = [
            [f"<time>{day}</time>", f"[{id}](incidents/{id}.md)", "<br>".join(self._changed(id, days[day, id]))]
            for day, id in sorted(days, key=itemgetter(0), reverse=True)[:LATELY]
        ]
        return table([self.head("date", "incident", "change"), *rows])

    def _changed(self, id: str, changes: list[Change]) -> Iterator[str]:
        """What one day changed of one incident."""
        meta = self.catalog.incidents[id].meta
        if new := changes[0] is self.catalog.changes[id][0]:
            yield self.say("news-incident", meta.title[self.language])
        elif fixes := [change.fix for change in changes if change.fix]:
            yield self.say("news-fix", code(fixes[-1]))
        if not new and (ranges := [code(change.affected) for change in changes if change.affected]):
            yield self.say("news-affected", self.joined("semicolon", ranges))
        judged = [change for change in changes if change.claim in meta.claims]
        for change in judged:
            if change.claim and change.before:
                text = (
                    f"[{meta.claims[change.claim].text[self.language]}](incidents/{id}/claims.md#claim-{change.claim})"
                )
                yield self.say("news-verdict", text, self.say(change.before), self.say(change.after or ""))
        if count := sum(change.before is None for change in judged):
            yield self.say("news-claims", count)
        for change in changes:
            if change.runs:
                ended = self.joined("between", (f"{self.say(o)} {n}" for o, n in sorted(change.new.items())))
                yield self.say("news-runs", sum(change.new.values()), code(change.runs), ended)
            if change.run:
                variant, environment = change.run.split("@")
                run = f"[{code(variant)}](incidents/{run_address(id, variant, environment)})"
                yield self.say(
                    "news-turned", run, code(environment), self.say(change.before or ""), self.say(change.after or "")
                )

    def advice(self) -> str:
        """Every claim, a section each: never follow it, follow it only if, it is true, or nothing settles it; folded by incident.

        A row that may be followed says under which condition or at what cost, an open one what would settle it. The reasons
        and the runs are its incident's.
        """
        parts: dict[str, dict[str, list[str]]] = {kind: {} for kind in ("fails", "depends", "no", "open")}
        for incident in self.catalog.incidents.values():
            for name, entry in incident.meta.claims.items():
                judgement = judge(self.catalog, entry)
                kind: str = judgement.verdict
                if kind == "depends" and entry.advice == "no":
                    kind = "fails"
                if kind == "holds":
                    kind = "depends" if entry.advice == "only if" else "no"
                cost = entry.note if kind == "depends" else None
                given = entry.when.text if entry.when else entry.why or cost
                text = given[self.language] if given and kind in ("depends", "open") else ""
                if text and entry.row and entry.row.only_if:  # the same in a few words
                    text = self.say("only-if", entry.row.only_if[self.language])
                proof = f"incidents/{incident.id}/claims.md#claim-{name}"
                verdict = self.fitting(judgement, proof, "fitting")
                if judgement.verdict != {"no": "holds"}.get(kind, kind):
                    verdict = f"{self.chip(judgement.verdict)} {verdict}"
                condition = first_sentence(text)
                claim = self.fill(
                    "advice.md",
                    text=entry.text[self.language],
                    id=f"{incident.id}-claim-{name}",
                    verdict=verdict,
                    under=condition if columns(without_links(condition)) <= LONGEST_CONDITION else "",
                )
                claim = lead_from(claim, f"incidents/{incident.id}.md", "incidents")
                parts[kind].setdefault(incident.id, []).append(claim)
        return sections(**{kind: self._folded(kind, of_incidents) for kind, of_incidents in parts.items()})

    def _folded(self, kind: str, of_incidents: dict[str, list[str]]) -> str:
        """Claims of one kind, a fold for each incident."""
        folds = []
        for id, claims in of_incidents.items():
            short = self.catalog.incidents[id].meta.short[self.language]
            folds.append(
                f'<details class="ro-said" id="{kind}-{id}" markdown>\n<summary>{id} · {short} · {len(claims)}</summary>\n\n'
                f"{chr(10).join(claims)}\n</details>\n"
            )
        return '<div class="ro-saids" markdown>\n\n' + "\n".join(folds) + "\n</div>\n"

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
