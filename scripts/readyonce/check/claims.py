"""Rules of claims: what a claim says beside its verdict follows from the same runs."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from readyonce.check.evidence import VERIFY
from readyonce.check.words import some, unknown_words
from readyonce.data.catalog import Catalog, Incident, RunSet
from readyonce.data.facts import Query
from readyonce.data.markup import without_links
from readyonce.data.reading import Problem
from readyonce.data.schema import ADVICE, Claim
from readyonce.data.verdicts import Judgement, judge


@dataclass(frozen=True)
class Stated:
    """A claim, and where it stands."""

    catalog: Catalog
    incident: Incident
    name: str
    claim: Claim

    def problem(self, key: str, what: str, remedy: str) -> Problem:
        keys = ("claims", self.name, *([key] if key else []))
        return self.catalog.problem(self.incident.file, keys, f"claim `{self.name}` {what}", remedy)

    def unknown_words(self) -> Iterator[Problem]:
        claim = self.claim
        cases = [("predicts", case) for case in claim.predicts or [] if not isinstance(case, str)]
        cases += [("otherwise", case) for case in claim.otherwise]
        queries: list[tuple[str, Query | None]] = [("scope", claim.scope), *((key, case.where) for key, case in cases)]
        queries += [("when", claim.when.where)] if claim.when else []
        for key, query in queries:
            if query is not None:
                yield from unknown_words(self.catalog, self.incident.file, ("claims", self.name, key), query)

    def apart(self, judgement: Judgement) -> str:
        """What separates the runs that came true, computed."""
        ways = [
            " and ".join(f"{'' if holds else 'not '}{name} {condition}" for name, condition, holds in leaf.path)
            for leaf in judgement.separating(list(self.catalog.vocabulary))
            if leaf.labels.most_common(1)[0][0] == "right"
        ]
        return "right where " + "; or ".join(ways[:6]) + "."


def _stated(catalog: Catalog) -> Iterator[Stated]:
    for incident in catalog.incidents.values():
        for name, claim in incident.meta.claims.items():
            yield Stated(catalog, incident, name, claim)


@functools.lru_cache(1)
def _sound(catalog: Catalog) -> list[Stated]:
    """The claims whose queries the vocabulary understands; of the others nothing more is said."""
    return [stated for stated in _stated(catalog) if not any(stated.unknown_words())]


@functools.lru_cache(1)
def _judged(catalog: Catalog) -> list[tuple[Stated, Judgement]]:
    """The claims with a verdict: a verdict on no runs asks for nothing."""
    judged = [(stated, judge(catalog, stated.claim)) for stated in _sound(catalog)]
    return [(stated, judgement) for stated, judgement in judged if stated.claim.scope is None or judgement.runs]


def claim_in_unknown_words(catalog: Catalog) -> Iterator[Problem]:
    """A query of a claim asks for a fact or a value that the vocabulary does not have.

    No run could fit it.
    Remedy: write a fact and a value of `snippets/facts.yml`.
    """
    for stated in _stated(catalog):
        yield from stated.unknown_words()


def claim_predicts_unknown_error(catalog: Catalog) -> Iterator[Problem]:
    """A claim predicts an error family that does not exist.

    No run could end so.
    Remedy: name a family of `snippets/errors/`.
    """
    for stated in _sound(catalog):
        claim = stated.claim
        cases = [case for case in claim.predicts or [] if not isinstance(case, str)] + claim.otherwise
        predictions = [claim.predicts] if isinstance(claim.predicts, str) else []
        for prediction in (*predictions, *(case.outcome for case in cases)):
            family = prediction.partition(":")[2]
            if family and family not in catalog.families:
                what = f"predicts `{family}`, which is no error family"
                yield stated.problem("predicts", what, "Name one of snippets/errors/.")


def claim_without_prediction(catalog: Catalog) -> Iterator[Problem]:
    """A claim that rests on runs has no `scope:` or no `predicts:`.

    Without both no run can refute it.
    Remedy: say which runs decide it, and how they end if it is true.
    """
    for stated in _sound(catalog):
        if stated.claim.basis in ("run", "inferred"):
            for key in ("scope", "predicts"):
                if getattr(stated.claim, key) is None:
                    remedy = "`scope:` says which runs decide it, `predicts:` how they end if it is true."
                    yield stated.problem("", f"has no `{key}`", remedy)


def claim_without_runs(catalog: Catalog) -> Iterator[Problem]:
    """No run fits the scope of a claim, or none could refute an explanation.

    Its verdict would be open for ever.
    Remedy: widen the scope, say under `otherwise:` what would be seen if it were false, or give a source.
    """
    for stated in _sound(catalog):
        if stated.claim.scope is not None and not judge(catalog, stated.claim).runs:
            if stated.claim.explanation:
                what = "is an explanation that no run could refute"
                remedy = "Under `otherwise:`, say what runs in its scope would show if it were false; or give a source."
            else:
                what = "has a scope that no run fits"
                remedy = "Widen it: `readyonce facts` says what runs there are."
            yield stated.problem("scope", what, remedy)


def claim_predicts_nothing_for_a_run(catalog: Catalog) -> Iterator[Problem]:
    """A run fits the scope of a claim, and none of its predictions.

    A claim may leave no run of its scope out.
    Remedy: add a case that fits, or narrow the scope.
    """
    for stated, judgement in _judged(catalog):
        if missed := functools.reduce(RunSet.__sub__, judgement.predicted.values(), judgement.runs):
            remedy = "Add a case that fits, or narrow the scope."
            yield stated.problem("predicts", f"predicts nothing for {some(missed)}", remedy)


def explanation_with_advice(catalog: Catalog) -> Iterator[Problem]:
    """An explanation has `advice:`.

    An explanation says why; a reader cannot follow it.
    Remedy: take `advice:` out, or `explanation:`.
    """
    for stated, _ in _judged(catalog):
        if stated.claim.explanation and stated.claim.advice:
            remedy = "Take `advice:` out, or `explanation:`."
            yield stated.problem("advice", "is an explanation, and one cannot follow it", remedy)


def when_and_verdict_disagree(catalog: Catalog) -> Iterator[Problem]:
    """A claim that depends does not say on what, or one that does not depend says `when:`.

    Verdicts are computed from the runs: the words beside one must fit it.
    Remedy: write `when:` with the verdict `depends`, and with no other.
    """
    for stated, judgement in _judged(catalog):
        when, verdict = stated.claim.when, judgement.verdict
        if (verdict == "depends") != (when is not None):
            decides = f" and does not say what decides: {stated.apart(judgement)}" if when is None else ""
            what = f"has verdict `{verdict}`" + (decides or ", and `when` says it depends")
            remedy = (
                "`when:` goes with verdict `depends`, always, and with no other. The verdict follows from the runs."
            )
            yield stated.problem("when", what, remedy)


def why_and_verdict_disagree(catalog: Catalog) -> Iterator[Problem]:
    """A claim that is open does not say why, or one that is decided says `why:` it is open.

    Verdicts are computed from the runs: the words beside one must fit it.
    Remedy: write `why:` with the verdict `open`, and with no other.
    """
    for stated, judgement in _judged(catalog):
        why, verdict = stated.claim.why, judgement.verdict
        if (verdict == "open") != (why is not None):
            what = f"has verdict `{verdict}`" + (
                " and does not say why" if why is None else ", and `why` says it is open"
            )
            remedy = "`why:` goes with verdict `open`, always, and with no other. The verdict follows from the runs."
            yield stated.problem("why", what, remedy)


def when_does_not_separate(catalog: Catalog) -> Iterator[Problem]:
    """`when:` of a claim takes in a run that did not come true, or leaves out one that did.

    A reader decides by it whether the claim is true for them.
    Remedy: separate the runs by the facts that the problem names.
    """
    for stated, judgement in _judged(catalog):
        if judgement.verdict != "depends" or not stated.claim.when:
            continue
        inside, unclear = catalog.telling(stated.claim.when.where)
        wrong = (judgement.runs & inside) - judgement.right
        left_out = judgement.right - inside - unclear
        parts = [f"does not come true for {some(wrong)}, which its `when` takes in"] if wrong else []
        parts += [f"comes true for {some(left_out)}, which its `when` leaves out"] if left_out else []
        if parts:
            remedy = f"Its `where:` must separate them. The runs do so: {stated.apart(judgement)}"
            yield stated.problem("when", " and ".join(parts), remedy)


def advice_that_fails(catalog: Catalog) -> Iterator[Problem]:
    """A claim fails, and its advice is `yes`.

    Advice that does not work cannot be given.
    Remedy: write `advice: no`.
    """
    for stated, judgement in _judged(catalog):
        if judgement.verdict == "fails" and stated.claim.advice == "yes":
            remedy = "Advice that does not work cannot be given. Write `no`."
            yield stated.problem("advice", "fails, and its advice is `yes`", remedy)


def claim_without_source(catalog: Catalog) -> Iterator[Problem]:
    """A claim rests on a source and names none.

    Every statement has a run or a source.
    Remedy: add `sources:` with a link and what it says.
    """
    for stated in _sound(catalog):
        if stated.claim.basis == "source" and not stated.claim.sources:
            remedy = "Add `sources:` with a link and what it says."
            yield stated.problem("sources", "rests on a source and names none", remedy)


def claim_measures_nothing(catalog: Catalog) -> Iterator[Problem]:
    """A claim measures a variant that does not exist, or a quantity that the variant's run does not have.

    The page shows the measured numbers.
    Remedy: name a variant, or let the repro's `run` return the quantity and run it again.
    """
    for stated in _sound(catalog):
        for measured in stated.claim.measured:
            for variant in (measured.variant, measured.against):
                if variant not in stated.incident.variants:
                    yield stated.problem("measured", f"measures `{variant}`, which is no variant", "Name a variant.")
                elif (run := stated.incident.run(variant, "current")) and getattr(run, measured.quantity) is None:
                    what = f"measures {measured.quantity} of `{variant}`, and its run has none"
                    again = VERIFY.format(stated.incident.id)
                    yield stated.problem(
                        "measured", what, f"Let the repro's `run` return `{measured.quantity}`. {again}"
                    )


MOST_ROWS, MOST_WORDS, MOST_CHARACTERS = 4, 12, 30  # of a kind; of a condition in English, and in Chinese


def row_that_is_no_instruction(catalog: Catalog) -> Iterator[Problem]:
    """An article has more lines of a kind than a reader takes in, a condition that is too long, or a line without advice.

    A reader in trouble follows a line only if its condition is in sight.
    Remedy: keep the four that readers need most, and say each condition in a few words.
    """
    for incident in catalog.incidents.values():
        claims = incident.meta.claims.items()
        rows = [Stated(catalog, incident, name, claim) for name, claim in claims if claim.row]
        for kind in ADVICE:
            for stated in [stated for stated in rows if stated.claim.advice == kind][MOST_ROWS:]:
                yield stated.problem("row", f"is the fifth line or more of advice `{kind}`", "Take its `row:` out.")
        for stated in rows:
            only_if = stated.claim.row.only_if if stated.claim.row else None
            if stated.claim.advice is None:
                yield stated.problem("row", "has a line and no `advice:`", "Take `row:` out, or say the advice.")
            elif (stated.claim.advice == "only if") != (only_if is not None):
                remedy = "A line has `only_if:` where its advice is `only if`, and nowhere else."
                yield stated.problem("row", f"has advice `{stated.claim.advice}`, and its line another", remedy)
            elif only_if and (
                len(_seen(only_if["en"]).split()) > MOST_WORDS or len(_seen(only_if["zh"])) > MOST_CHARACTERS
            ):
                remedy = f"At most {MOST_WORDS} words in English, and {MOST_CHARACTERS} characters in Chinese."
                yield stated.problem("row", "has a long condition", remedy)


def _seen(text: str) -> str:
    """What a reader sees of a text: without the targets of its links, and with a piece of code as one character."""
    return re.sub("`[^`]*`", "码", without_links(text))


def row_that_fails_in_its_setting(catalog: Catalog) -> Iterator[Problem]:
    """In the setting of its incident, what a line says to do does not hold in every run, or what it warns of does.

    A reader follows the line as it stands.
    Remedy: say another line, or name the condition.
    """
    for stated, _ in _judged(catalog):
        advice = stated.claim.advice
        if stated.claim.row is None or advice == "only if":
            continue
        verdict = judge(catalog, stated.claim, stated.incident.meta.setting).verdict
        if verdict in (("depends", "fails") if advice == "yes" else ("holds",)):
            what = f"has verdict `{verdict}` in the setting of {stated.incident.id}, and its line says `{advice}`"
            yield stated.problem("row", what, "Say another line, name the condition, or make `setting:` narrower.")
