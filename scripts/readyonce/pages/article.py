"""An incident's article: id and error, the fix, the claims, the versions."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

from readyonce.data import articles
from readyonce.data.catalog import MINIMAL, Observed
from readyonce.data.conditions import in_words, part_in_words, parts
from readyonce.data.links import run_address, run_id
from readyonce.data.markup import chip, cite_all, code, number, table
from readyonce.data.schema import ADVICE, BASELINE, Affected, MinimalRun, Row, Source, address_of
from readyonce.data.verdicts import Judgement, judge
from readyonce.pages.page import IncidentPage, Page, lead_from

IN_COLUMN = 90  # characters of a line of output in half a page
SHOWN = 5  # runs below a claim; of more, those that came out otherwise


class Article(IncidentPage):
    """Methods without an underscore are the article's includes."""

    def lead(self) -> str:
        """The id and the error, for the eye and for the search."""
        level = f"[{self.say('level-' + self.incident.level)}](../concepts/glossary.md#levels)"
        return f"{chip(self.incident.id, 'id')} {' · '.join([*self.you_see(), level])}\n"

    def header(self) -> str:
        """The fix, ready to be copied; which versions it is for, how it ended, and where it was run."""
        reported = self.incident.meta.reported
        environment = self.incident.ran_in
        run = self.incident.run(self.incident.meta.fix.variant or "", "current")
        ended = run.outcome if run else "match" if self.incident.level == "reproduced" else ""
        return self.fill(
            "header.md",
            incident=self.incident,
            fix=articles.fix_of(self.catalog, self.incident),
            verified=self.verified(environment, ended=ended) if environment else "",
            source=Source.model_validate({"link": reported.source, "says": self.incident.meta.title}),
        )

    def minimal(self) -> str:
        """The minimal repro: the lines that fail and those that mend them, each with what it says; below it the whole."""
        if not (stored := self.incident.minimal):
            return ""
        versions = stored.environment.versions
        return self.fill(
            "minimal.md",
            incident=self.incident,
            pair={"fails": stored.fails, "fixed": stored.fixed},
            seen=stored.fails.said,
            environment=stored.environment,
            versions=", ".join(f"{name} {versions[name]}" for name in self.imported([MINIMAL], stored.environment)),
        )

    def settings(self) -> str:
        """How the mended minimal repro ended under each other setting."""
        if not (stored := self.incident.settings):
            return ""
        rows = [self.head("setting-column", "seen", "setting-apart", "setting-rounding")]
        for run in stored.runs:
            it = run.setting
            words = [f"adapters-{'lora' if it.adapters else 'none'}", it.precision, it.optimizer, f"terms-{it.terms}"]
            words += ["frozen"] * it.frozen + ["buffers"] * it.buffers
            parts = (self.say(f"setting-{word}") for word in words)
            setting = self.joined("between", (part for part in parts if part))
            ended = self.say("setting-unmet") if run.outcome == "unmet" else self.chip(run.outcome)
            ended += f" {code(_cut(run.said))}" if run.said else ""
            rows.append(
                [
                    setting,
                    ended,
                    *(_distance(it, bool(run.rounding)) for it in (run.apart, run.rounding)),
                ]
            )
        return table(rows)

    def right_settings(self) -> str:
        """In how many of them it trains right."""
        runs = [it for it in self.incident.settings.runs if it.outcome != "unmet"] if self.incident.settings else []
        return self.say("settings-right", right=sum(run.outcome == "match" for run in runs), of=len(runs))

    def of_minimal(self, section: str | None = None) -> str:
        """A section of the minimal repro, or all of it, without marks."""
        return articles.section(self.catalog.text(self.incident.folder / MINIMAL), section).strip()

    def briefly(self, run: MinimalRun) -> str:
        """What it said, in a narrow column."""
        first, *more = [line for line in run.said.splitlines() if line]
        telling = more[:1] if first.endswith(":") else [line for line in more if line.startswith("Greatest relative")]
        shown = [first, *telling]
        return "\n".join(map(_cut, shown))

    def claims(self) -> str:
        """The claims as instructions, at most four with a condition and four that say what not to do; all of them folded."""
        claims = self.incident.meta.claims
        rows = {
            kind: [(name, it.row) for name, it in claims.items() if it.row and it.advice == kind] for kind in ADVICE
        }
        judged = {name: judge(self.catalog, claim) for name, claim in claims.items()}
        return self.fill("claims.md", rows=rows, judged=judged, to=f"{self.incident.id}/claims.md")

    def all_claims(self) -> str:
        """All claims with their runs: what to do first, then what has conditions, what not to do, and what is only said."""
        groups: dict[str, dict[str, Judgement]] = {kind: {} for kind in (*ADVICE, "said")}
        for name, claim in self.incident.meta.claims.items():
            groups[claim.advice or "said"][name] = judge(self.catalog, claim)
        return lead_from(self.fill("all-claims.md", groups=groups), f"../{self.incident.id}.md", "..")

    def row(self, row: Row) -> str:
        """A claim as an instruction."""
        do = row.do[self.language]
        return self.say("row-only-if", do, row.only_if[self.language]) if row.only_if else self.say("row-plain", do)

    def why(self, judgement: Judgement) -> str:
        """Under which condition, for which reason, at what cost."""
        claim = judgement.claim
        return self.joined(
            "next", (part[self.language] for part in (claim.when and claim.when.text, claim.why, claim.note) if part)
        )

    def ratios(self, judgement: Judgement) -> Iterator[str]:
        """What was measured, as sentences."""
        for measured in judgement.claim.measured:
            runs = [self.incident.run(name, "current") for name in (measured.variant, measured.against)]
            one, other = (getattr(run, measured.quantity, None) for run in runs)
            if one and other:
                yield self.say(
                    f"ratio-{measured.quantity}",
                    device=self.incident.evidence["current"].environment.device.upper(),
                    variant=measured.variant,
                    against=measured.against,
                    ratio=f"{one / other:.2g}",
                )

    def scope(self, judgement: Judgement) -> str:
        """The runs that a verdict rests on: how many, and what they have in common."""
        scope = in_words(self.catalog, judgement.claim.scope or {}, self.language) or self.say("every-run")
        count = self.say("deciding-runs" if judgement.claim.explanation else "runs-of", len(judgement.runs))
        return self.say("judged-on", runs=count, scope=scope)

    def proof(self, judgement: Judgement) -> str:
        """The runs behind a verdict: all where there are few, what tells them apart, or those that differ."""
        runs = judgement.runs
        if judgement.verdict == "depends":
            return runs_table(self, runs)
        shown = runs if len(runs) <= SHOWN else runs - judgement.right
        rows = [self._judged(judgement, observed) for observed in itertools.islice(shown, SHOWN)]
        if not rows:
            return ""
        others = len(runs) - len(rows)
        right = len(judgement.right - shown)  # of those that are not shown
        note = self.say("others", others, right) if others else ""
        rows.insert(0, self.head("variant", "environment", "predicted", "seen"))
        return "\n".join(part for part in (table(rows), note) if part)

    def _judged(self, judgement: Judgement, observed: Observed) -> list[str]:
        predicted = judgement.predicted_for(observed)
        name = (
            observed.run.variant
            if observed.incident is self.incident
            else f"{observed.incident.id} {observed.run.variant}"
        )
        return [
            f"[`{name}`]({_address(observed)})",
            observed.environment,
            self.say(predicted.partition(":")[0]) if predicted else "–",
            self.chip(observed.run.outcome),
        ]

    def sources(self, judgement: Judgement) -> str:
        return cite_all(judgement.claim.sources, self.language)

    def affected(self) -> str:
        """The versions of each package, what holds there, and how that is known."""
        return self.fill("affected.md", affected=self.incident.meta.affected)

    def basis(self, entry: Affected) -> str:
        places = (source.place(self.language) for source in entry.sources)
        named = self.joined("between", (f"[{_in_short(place)}]({address_of(place)})" for place in places))
        return self.after(self.say(entry.basis), named) if named else self.say(entry.basis)

    def strip(self) -> str:
        """Which versions fail and which recover: as reported and with the fix, in each environment; what was not run."""
        rows = [self.head("versions", "ran", "before", "after")]
        for environment in self.incident.environments:
            recorded = self.incident.evidence.get(environment)
            for file, *pair in self._pairs():
                if environment not in self.incident.meta.files[file]:
                    continue
                versions = self._main_versions(file, environment)
                if self.ran(environment):
                    rows.append([versions, f"`{file}`", *(self._strip_cell(name, environment) for name in pair)])
                elif recorded and recorded.not_run:
                    rows.append([versions, f"`{file}`", self.say("not-run"), self.not_run(recorded.not_run)])
        rows.append([self.incident.meta.reported.hardware[self.language], "", *[self.say("not-run")] * 2])
        return table(rows, "ro-matrix")

    def _pairs(self) -> Iterator[tuple[str, str, str]]:
        """(file, variant as reported, variant with the fix) for the repro and for each framework's command."""
        fixed, variants = self.incident.meta.fix.variant, self.incident.variants
        if fixed and variants[fixed].script == variants[BASELINE].script:
            yield variants[fixed].script, BASELINE, fixed
        for file in self.incident.meta.files:
            commands = [variant for variant in variants.values() if variant.script == file and variant.is_command]
            before = [variant.name for variant in commands if variant.name.endswith(f"-{BASELINE}")]
            after = [variant.name for variant in commands if not variant.lines]
            if before and after:
                yield file, before[0], after[0]

    def _main_versions(self, file: str, environment: str) -> str:
        if environment not in self.incident.evidence:
            return f"`{environment}`"
        recorded = self.incident.evidence[environment].environment
        named = [name for name in self.imported([file], recorded) if name not in ("peft", "trl", "accelerate")]
        return self.joined("between", (f"{name} {recorded.versions[name]}" for name in named))

    def _strip_cell(self, name: str, environment: str) -> str:
        variant, run = self.incident.variants[name], self.incident.run(name, environment)
        if environment in variant.unusable:
            return self.unusable(variant, environment)
        if run is None:
            return self.say("not-run")
        cell = f"[{self.chip(run.outcome)}](#{run_id(run.variant, environment)})"
        return f"{cell} {number(run)}" if run.outcome == "diverge" else cell


def _distance(apart: list[float], first: bool) -> str:
    """At the first step, or the largest; without steps in which nothing has a gradient."""
    if not any(it == it for it in apart):
        return "–"
    return f"{apart[0] if first else max(it for it in apart if it == it):.1g}".replace("e-0", "e-")


def _in_short(place: str) -> str:
    """A source's name in a line: of a file in a repository, the file and the release."""
    _, at, rest = place.partition("@")
    release, _, path = rest.partition(":")
    return f"{path.partition('#')[0].rpartition('/')[2]} {release}" if at and path else place


def _cut(line: str) -> str:
    """The beginning of a line, as wide as the column: to a word's end, or within a path that takes most of it."""
    line = " ".join(line.split())
    if len(line) <= IN_COLUMN:
        return line
    begin = line[: IN_COLUMN - 2]
    words = begin.rpartition(" ")[0]
    return f"{words if len(words) > IN_COLUMN // 2 else begin} …"


def runs_table(page: Page, runs: Collection[Observed], to: str = "") -> str:
    """How runs ended, and what tells the outcomes apart; `to` leads to the incidents' folder."""
    rows = [page.head("seen", "apart", "runs-count")]
    for part in parts(page.catalog, runs):
        condition = part_in_words(page.catalog, part, page.language)
        rows.append([_label(page, part.label), condition, f"[{len(part.runs)}]({to}{_address(part.runs[0])})"])
    return table(rows)


def _address(observed: Observed) -> str:
    """Of a run, as seen from an article."""
    return run_address(observed.incident.id, observed.run.variant, observed.environment)


def _label(page: Page, label: str) -> str:
    """An outcome in words; of an error, which."""
    outcome, _, error = label.partition(":")
    family = page.catalog.families.get(error)
    return f"{page.chip(outcome)} {family.title[page.language]}" if family else page.chip(outcome)
