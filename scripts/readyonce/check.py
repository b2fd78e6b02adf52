"""Finds words that disagree with runs, with each other or with the other language. Runs nothing."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

from readyonce import articles, counts, decision, frameworks, lab, launches, links, made_from, minimal, render
from readyonce.articles import Block, Include, Page
from readyonce.catalog import Catalog, Incident, Observed, RunSet, Variant, add, load
from readyonce.facts import Query, Value, Where, bounds
from readyonce.pages.committed import COPIED, with_compare
from readyonce.pages.committed import committed as committed_files
from readyonce.project import LANGUAGES, Language
from readyonce.reading import CatalogError, Keys, Problem, in_order, parse_yaml
from readyonce.schema import BASELINE, SILENT, Claim, Fact, FamilyFile, Tags, address_of
from readyonce.verdicts import Judgement, judge
from readyonce.words import say

Recorded = dict[str, dict[str, list[str]]]  # command -> environment -> the options that its parser has there
FACTS = "Run `readyonce facts --write`."
VERIFY = "Run `readyonce verify {} --write`, and look at what changed."


def problems(catalog: Catalog) -> list[Problem]:
    """Every problem of the catalog and of the pages, in the order of files and lines.

    One mistake, one answer: where a file did not load, nothing is said of what rests on it.
    """
    _encodings(catalog)
    pages = {language: _read_all(catalog, language) for language in LANGUAGES}
    _without_incident(catalog, pages["en"])
    if catalog.unsound:
        _each_page(catalog, pages, None)
        return in_order(catalog.problems)
    _facts(catalog)
    _decision(catalog)
    _tables(catalog)
    _cases(catalog)
    counts.check(catalog)
    minimal.check(catalog)
    frameworks.check(catalog)
    _strategies(catalog)
    _messages(catalog)
    _tags(catalog)
    for incident in catalog.incidents.values():
        _families(catalog, incident)
        _files(catalog, incident)
        _runs(catalog, incident)
        _claims(catalog, incident)
        _environments(catalog, incident)
        _filled(catalog, incident)
    _stale(catalog)
    try:
        made = render.includes(catalog, "en", whole=False)  # names, sections and ids are the same in both languages
        committed = committed_files(catalog)
    except Exception:
        if not catalog.problems:
            raise
        made = None  # what is told above must be mended before anything can be made of it
    _pages(catalog, pages, made)
    if not catalog.problems:  # `render` needs a catalog without a fault, and would be in vain before
        _generated(catalog, committed)
    return in_order(catalog.problems)


def or_raise(root: Path | None, error: Exception) -> CatalogError:
    """Where a command stumbled: what is wrong with its sources, or, where nothing is, the error itself."""
    try:
        found = problems(load(root)) if root else []
    except Exception:  # then the first error tells more
        found = []
    if not found:
        raise error
    return CatalogError(found)


def _encodings(catalog: Catalog) -> None:
    """Told first, with their lines, and read all the same: the other rules see what can be read."""
    root = catalog.root
    places = (root.glob("*.md"), root.glob("*.yml"), (root / "docs").rglob("*.md"), (root / "snippets").rglob("*.*"))
    for path in itertools.chain(*places):
        if path.is_file() and not path.is_symlink() and path.suffix != ".pyc":
            catalog.text_or_problem(path)


# ------------------------------------------------------------------------------ metadata and runs


def _strategies(catalog: Catalog) -> None:
    """A strategy that a wording asks a log for is one of which `diagnose.yml` says how a log shows it."""
    known = catalog.diagnose.strategies if catalog.diagnose else {}
    for family in catalog.families.values():
        for index, wording in enumerate(family.wordings):
            if wording.strategy and wording.strategy not in known:
                path = catalog.root / "snippets" / "errors" / f"{family.family}.yml"
                what = f"snippets/diagnose.yml does not say how a log shows `{wording.strategy}`"
                add(catalog, path, ("wordings", index, "strategy"), what, f"Write one of: {', '.join(known)}.")


def _messages(catalog: Catalog) -> None:
    """A stored message has the wordings of its family; what a family lost is said once, not for each run."""
    lost: dict[str, list[tuple[Incident, str, int, str]]] = {}
    for incident in catalog.incidents.values():
        for environment, evidence in incident.evidence.items():
            for index, run in enumerate(evidence.runs):
                if run.outcome == "error" and run.error and catalog.family_of(run.message or "") != run.error:
                    lost.setdefault(run.error, []).append((incident, environment, index, run.variant))
    for family, runs in lost.items():
        incident, environment, index, variant = runs[0]
        more = f", and of {len(runs) - 1} more runs" if len(runs) > 1 else ""
        add(
            catalog,
            incident.folder / "evidence" / f"{environment}.json",
            ("runs", index, "message"),
            f"the message of `{variant}`{more} does not fit the wordings of `{family}`",
            f"Mend snippets/errors/{family}.yml, or: {VERIFY.format(incident.id)}",
        )


def _tags(catalog: Catalog) -> None:
    """The page of all tags has a part for each kind, and a tag has one address there."""
    met: dict[str, tuple[str, str]] = {}
    for incident in catalog.incidents.values():
        for kind in Tags.model_fields:
            for tag in incident.meta.tags.kind(kind, "en"):
                of, where = met.setdefault(tag.lower(), (kind, incident.id))
                if of != kind:
                    add(
                        catalog,
                        incident.folder / "incident.yml",
                        ("tags", kind),
                        f"the tag `{tag}` stands under `{kind}` here, and under `{of}` in {where}",
                        "Keep it under one of them.",
                    )


def _families(catalog: Catalog, incident: Incident) -> None:
    path = incident.folder / "incident.yml"

    def known(name: str | None, where: Keys) -> None:
        if name is not None and name not in catalog.families:
            add(
                catalog,
                path,
                where,
                f"there is no error family `{name}`",
                f"Add snippets/errors/{name}.yml, or write one of: {', '.join(catalog.families)}.",
            )

    def fits(outcome: str, error: str | None, where: Keys) -> None:
        if (outcome == "error") != (error is not None):
            add(
                catalog,
                path,
                where,
                f"outcome `{outcome}` " + ("names no error family" if error is None else "names an error family"),
                "`error:` goes with `outcome: error`, always, and with no other.",
            )

    for index, name in enumerate(incident.meta.errors):
        known(name, ("errors", index))
    baseline = incident.meta.variants.get(BASELINE)
    if baseline and baseline.error and not incident.meta.errors:
        add(
            catalog,
            path,
            ("errors",),
            f"`{BASELINE}` ends in `{baseline.error}`, and no error is named",
            f"Write `errors: [{baseline.error}]`; `errors: []` is for what fails without an error.",
        )
    for name, entry in incident.meta.variants.items():
        known(entry.error, ("variants", name, "error"))
        fits(entry.outcome, entry.error, ("variants", name, "outcome"))
        for environment, declared in entry.differs.items():
            known(declared.error, ("variants", name, "differs", environment, "error"))
            fits(declared.outcome, declared.error, ("variants", name, "differs", environment, "outcome"))
        for key in ("only", "differs"):
            for environment in getattr(entry, key) or ():
                if environment not in incident.meta.files.get(entry.file, []):
                    add(
                        catalog,
                        path,
                        ("variants", name, key),
                        f"{entry.file} does not run in `{environment}`",
                        "Add the environment under `files:`, or take it out here.",
                    )
    for i, matrix in enumerate(incident.meta.matrices):
        for j, case in enumerate(matrix.cases):
            known(case.error, ("matrices", i, "cases", j, "error"))
            fits(case.outcome, case.error, ("matrices", i, "cases", j, "outcome"))
            for k, pattern in enumerate(case.variants):
                _used(catalog, incident, pattern, ("matrices", i, "cases", j, "variants", k), labels=True)
        for environment, patterns in matrix.only.items():
            for k, pattern in enumerate(patterns):
                _used(catalog, incident, pattern, ("matrices", i, "only", environment, k))


def _used(catalog: Catalog, incident: Incident, pattern: str, where: Keys, labels: bool = False) -> None:
    names = set(incident.variants)
    if labels:
        names |= {f"{v.name}@{environment}" for v in incident.variants.values() for environment in v.declared}
    if pattern not in names and not any(fnmatchcase(name, pattern) for name in names):
        add(
            catalog,
            incident.folder / "incident.yml",
            where,
            f"no variant fits `{pattern}`",
            "Mend the pattern, or take it out.",
        )


def _files(catalog: Catalog, incident: Incident) -> None:
    path = incident.folder / "incident.yml"
    named = {variant.script for variant in incident.variants.values()}
    for name in sorted(named - set(incident.meta.files)):
        add(catalog, path, ("files",), f"`files` does not say where {name} runs", f"Add `{name}: [current]`.")
    for name in incident.meta.files:
        if not (incident.folder / name).is_file():
            add(
                catalog,
                path,
                ("files", name),
                f"there is no file {name}",
                f"Put it into {incident.folder.name}/, or take the line out.",
            )
        if name not in named:
            add(
                catalog, path, ("files", name), f"no variant uses {name}", "Declare its variants, or take the line out."
            )
    for variant in incident.variants.values():
        if variant.is_command:
            _command(catalog, incident, variant)
    for script in incident.scripts:
        if "def compare(" in (text := catalog.text(script)):
            line = text.partition("def compare(")[0].count("\n") + 1
            if COPIED + "LIMIT" not in text:
                what = "it has a `compare` of its own, so its `match` may mean another thing than that of the others"
                remedy = (
                    f"Put `{COPIED.strip()}` above a line `LIMIT = 0` and the function, and run `readyonce render`."
                )
                add(catalog, script, line, what, remedy)
            elif with_compare(text) != text:
                add(catalog, script, line, "its `compare` is not that of compare.py", "Run `readyonce render`.")
    if BASELINE not in incident.variants:
        add(
            catalog,
            path,
            ("variants",),
            f"there is no variant `{BASELINE}`",
            "It shows the incident as it was reported.",
        )
    if code := incident.meta.fix.code:
        file, section = code.split(":")
        source = incident.folder / file
        if not source.is_file() or f"[start:{section}]" not in catalog.text(source):
            add(
                catalog,
                path,
                ("fix", "code"),
                f"there is no section `{section}` in {file}",
                f"Mark it in {incident.folder.name}/{file}: # --8<-- [start:{section}] ... # --8<-- [end:{section}]",
            )
    fix = incident.variants.get(incident.meta.fix.variant)
    if not fix or any(declared.outcome != "match" for declared in fix.declared.values()):
        add(
            catalog,
            path,
            ("fix", "variant"),
            f"the fix is not proven: `{incident.meta.fix.variant}` is no variant with outcome match",
            "A fix counts only when the gradients are right. Name a variant that shows it.",
        )


def _command(catalog: Catalog, incident: Incident, variant: Variant) -> None:
    """A framework's command has a tiny model, and its variants change lines that are there."""
    path = incident.folder / "incident.yml"
    if not (incident.folder / "tiny.py").is_file():
        add(
            catalog,
            path,
            ("files", variant.script),
            f"{variant.script} has no tiny model to run with",
            f"Add {incident.folder.name}/tiny.py; contributing says what it prints.",
        )
    try:
        script = catalog.text(incident.folder / variant.script)
        lab.with_lines(script, variant.lines | incident.meta.reference)
    except OSError:
        return  # said already
    except launches.LabError as error:
        add(catalog, path, ("variants", variant.name), str(error), "Name an option of the script, as it stands there.")


def _environments(catalog: Catalog, incident: Incident) -> None:
    path = incident.folder / "incident.yml"
    for part in ("files", "commands"):
        for name, environments in getattr(incident.meta, part).items():
            for index, environment in enumerate(environments):
                if not (catalog.root / "snippets" / "environments" / f"{environment}.txt").is_file():
                    add(
                        catalog,
                        path,
                        (part, name, index),
                        f"there is no environment `{environment}`",
                        f"Add snippets/environments/{environment}.txt with pinned requirements.",
                    )
                elif part == "commands" and name not in getattr(incident.evidence.get(environment), "options", {}):
                    add(
                        catalog,
                        path,
                        (part, name, index),
                        f"the options of `{name}` are not recorded in `{environment}`",
                        VERIFY.format(f"{incident.id} --environment {environment}"),
                    )


def _stale(catalog: Catalog) -> None:
    """Each evidence was made from the files of today, in the releases that its environment pins.

    What was stored before evidence had an address stands on a list, which only shrinks.
    """
    listed, pinned = made_from.listed(catalog), dict[str, dict[str, str]]()
    for name in sorted({name for incident in catalog.incidents.values() for name in incident.evidence}):
        pinned[name], (path, *_) = {}, lab.lists(catalog.root, name)
        if path.is_file():
            try:
                pinned[name] = lab.pins(catalog.root, name)
            except lab.NoRequirement as error:
                add(catalog, path, error.line, error.what, "Write name==release.")
    for incident in catalog.incidents.values():
        for environment, evidence in incident.evidence.items():
            path = incident.folder / "evidence" / f"{environment}.json"
            of, pins = f"{incident.id} --environment {environment}", pinned[environment]
            for name, version in evidence.environment.versions.items():
                if pins.get(name, version) not in (version, version.partition("+")[0]):
                    what = (
                        f"it was run with {name} {version}; snippets/environments/{environment}.txt pins {pins[name]}"
                    )
                    add(catalog, path, ("environment", "versions", name), what, VERIFY.format(of))
            known = listed.pop(made_from.name_of(incident, evidence), None)
            if known and not evidence.made_from:
                continue
            differ = made_from.differences(catalog, incident, evidence)
            if known and not differ:
                what, remedy = f"{incident.id} in `{environment}` is of the files of today", "Delete this line."
                add(catalog, catalog.root / made_from.STALE, known, what, remedy)
            elif differ and not known:
                anew = f"Run `readyonce verify {of} --guard --write`."
                remedy = FACTS if made_from.FACTS in differ else anew
                remedy = VERIFY.format(f"{of} --stale") if set(differ) - made_from.WITHOUT_A_RUN else remedy
                what = f"it was stored with another {' and another '.join(differ)}"
                add(catalog, path, ("made_from",), what if evidence.made_from else "it has no address", remedy)
    for name, line in listed.items():
        add(catalog, catalog.root / made_from.STALE, line, f"there is no evidence `{name}`", "Delete this line.")


def _runs(catalog: Catalog, incident: Incident) -> None:
    """Every declared variant has a run, and the run shows what is declared."""
    path = incident.folder / "incident.yml"
    for variant in incident.variants.values():
        where = ("variants", variant.name) if variant.name in incident.meta.variants else ("matrices",)
        for environment, declared in variant.declared.items():
            run = incident.run(variant.name, environment)
            if environment in incident.not_run:
                continue
            if run is None:
                add(
                    catalog,
                    path,
                    where,
                    f"variant `{variant.name}` has no run in `{environment}`",
                    VERIFY.format(incident.id),
                )
            elif missing := [literal for literal in variant.shows if literal not in (run.message or "")]:
                add(
                    catalog,
                    path,
                    (*where, "shows"),
                    f"the message of `{variant.name}` in `{environment}` does not show `{missing[0]}`",
                    f"The run is right. {VERIFY.format(incident.id)}",
                )
            elif run.declaration != declared:
                add(
                    catalog,
                    path,
                    where,
                    f"variant `{variant.name}` is declared {declared}, and its run in `{environment}` shows {run.declaration}",
                    f"The run is right. {VERIFY.format(incident.id)}",
                )
        recorded = {
            name
            for name, evidence in incident.evidence.items()
            if variant.name in {run.variant for run in evidence.unusable}
        }
        for environment in recorded ^ variant.unusable.keys():
            what = f"that `{variant.name}` is unusable in `{environment}` is " + (
                "stored, not declared" if environment in recorded else "declared, not stored"
            )
            add(catalog, path, (*where, "unusable"), what, f"The run is right. {VERIFY.format(incident.id)}")
    for environment, evidence in incident.evidence.items():
        record = incident.folder / "evidence" / f"{environment}.json"
        for index, run in enumerate(evidence.runs):
            ran = incident.variants.get(run.variant)
            if ran is None or environment not in ran.declared:  # what is unusable stands in a list of its own
                add(
                    catalog,
                    record,
                    ("runs", index, "variant"),
                    f"a run of `{run.variant}`, which is not declared for `{environment}`",
                    f"Declare it in incident.yml, or: {VERIFY.format(incident.id)}",
                )


def _filled(catalog: Catalog, incident: Incident) -> None:
    pages = [catalog.root / "docs" / language / "incidents" / f"{incident.id}.md" for language in LANGUAGES]
    files = [incident.folder / name for name in sorted(os.listdir(incident.folder)) if "." in name]
    for path in [*files, *filter(Path.is_file, pages)]:
        text = catalog.text(path)
        for number, line in enumerate(text.splitlines() if "TODO" in text else (), 1):
            if "TODO" in line:
                add(catalog, path, number, "a TODO of the skeleton is left", "Replace it.")


def _claims(catalog: Catalog, incident: Incident) -> None:
    path = incident.folder / "incident.yml"
    for name, claim in incident.meta.claims.items():

        def fault(key: str, what: str, remedy: str, name: str = name) -> None:
            add(catalog, path, ("claims", name, *([key] if key else [])), f"claim `{name}` {what}", remedy)

        where = ("claims", name)
        cases = [("predicts", case) for case in claim.predicts or [] if not isinstance(case, str)]
        cases += [("otherwise", case) for case in claim.otherwise]
        queries = [("scope", claim.scope), *((key, case.where) for key, case in cases)]
        queries += [("when", claim.when.where)] if claim.when else []
        sound = [_query(catalog, path, (*where, key), query) for key, query in queries if query is not None]  # all told
        if not all(sound):
            continue
        predictions = [claim.predicts] if isinstance(claim.predicts, str) else []
        for prediction in (*predictions, *(case.outcome for _, case in cases)):
            family = prediction.partition(":")[2]
            if family and family not in catalog.families:
                fault("predicts", f"predicts `{family}`, which is no error family", "Name one of snippets/errors/.")
        if claim.basis in ("run", "inferred"):
            for key in ("scope", "predicts"):
                if getattr(claim, key) is None:
                    fault(
                        "",
                        f"has no `{key}`",
                        "`scope:` says which runs decide it, `predicts:` how they end if it is true.",
                    )
        _judged(catalog, incident, claim, fault, judge(catalog, claim))
        if claim.basis == "source" and not claim.sources:
            fault("sources", "rests on a source and names none", "Add `sources:` with a link and what it says.")
        for measured in claim.measured:
            for variant in (measured.variant, measured.against):
                if variant not in incident.variants:
                    fault("measured", f"measures `{variant}`, which is no variant", "Name a variant.")
                elif (run := incident.run(variant, "current")) and getattr(run, measured.quantity) is None:
                    fault(
                        "measured",
                        f"measures {measured.quantity} of `{variant}`, and its run has none",
                        f"Let the repro's `run` return `{measured.quantity}`. {VERIFY.format(incident.id)}",
                    )


def _judged(
    catalog: Catalog, incident: Incident, claim: Claim, fault: Callable[[str, str, str], None], judgement: Judgement
) -> None:
    """What a claim says beside its verdict follows from the same runs."""
    verdict, runs = judgement.verdict, judgement.runs
    if claim.scope is not None and not runs:
        what = "is an explanation that no run could refute" if claim.explanation else "has a scope that no run fits"
        remedy = "Under `otherwise:`, say what runs in its scope would show if it were false; or give a source."
        fault("scope", what, remedy if claim.explanation else "Widen it: `readyonce facts` says what runs there are.")
        return  # a verdict on nothing asks for nothing
    if missed := functools.reduce(RunSet.__sub__, judgement.predicted.values(), runs):
        fault("predicts", f"predicts nothing for {_some(missed)}", "Add a case that fits, or narrow the scope.")
    if claim.explanation and claim.advice:
        fault("advice", "is an explanation, and one cannot follow it", "Take `advice:` out, or `explanation:`.")
    if (verdict == "depends") != (claim.when is not None):
        fault(
            "when",
            f"has verdict `{verdict}`"
            + (
                f" and does not say what decides: {_apart(catalog, judgement)}"
                if claim.when is None
                else ", and `when` says it depends"
            ),
            "`when:` goes with verdict `depends`, always, and with no other. The verdict follows from the runs.",
        )
    if (verdict == "open") != (claim.why is not None):
        fault(
            "why",
            f"has verdict `{verdict}`"
            + (" and does not say why" if claim.why is None else ", and `why` says it is open"),
            "`why:` goes with verdict `open`, always, and with no other. The verdict follows from the runs.",
        )
    if verdict == "depends" and claim.when:
        inside, unclear = catalog.telling(claim.when.where)
        wrong = (runs & inside) - judgement.right
        left_out = judgement.right - inside - unclear
        if wrong or left_out:
            what = f"does not come true for {_some(wrong)}, which its `when` takes in" if wrong else ""
            what += f"{' and ' if wrong and left_out else ''}" + (
                f"comes true for {_some(left_out)}, which its `when` leaves out" if left_out else ""
            )
            fault("when", what, f"Its `where:` must separate them. The runs do so: {_apart(catalog, judgement)}")
    if verdict == "fails" and claim.advice == "yes":
        fault("advice", "fails, and its advice is `yes`", "Advice that does not work cannot be given. Write `no`.")


def _some(runs: RunSet) -> str:
    names = [observed.name for observed in itertools.islice(runs, 3)]
    return ", ".join(names) + (f" and {len(runs) - len(names)} more" if len(runs) > len(names) else "")


def _apart(catalog: Catalog, judgement: Judgement) -> str:
    """What separates the runs that came true, computed."""
    ways = [
        " and ".join(f"{'' if holds else 'not '}{name} {condition}" for name, condition, holds in leaf.path)
        for leaf in judgement.separating(list(catalog.vocabulary))
        if leaf.labels.most_common(1)[0][0] == "right"
    ]
    return "right where " + "; or ".join(ways[:6]) + "."


def _query(catalog: Catalog, path: Path, where: Keys, query: Query) -> bool:
    """Whether a query speaks the vocabulary."""
    before = len(catalog.problems)
    for part in query if isinstance(query, list) else [query]:
        for name, condition in part.items():
            fact = catalog.vocabulary.get(name)
            if fact is None:
                known = ", ".join(catalog.vocabulary)
                add(catalog, path, where, f"there is no fact `{name}`", f"snippets/facts.yml has: {known}.")
                continue
            for value in condition if isinstance(condition, list) else [condition]:
                if not _value_fits(fact, value) and not (bounds(value) and fact.kind in ("number", "version")):
                    add(catalog, path, where, f"`{value}` is no value of the fact `{name}`", _values(fact))
    return len(catalog.problems) == before


def _value_fits(fact: Fact, value: Value) -> bool:
    match fact.kind:
        case "value":
            return str(value).lower() in fact.values
        case "number":
            return isinstance(value, int) and not isinstance(value, bool)
        case "version":
            return re.fullmatch(r"\d[\w.]*", str(value)) is not None
    return isinstance(value, str)


def _values(fact: Fact) -> str:
    if fact.values:
        return f"Write one of: {', '.join(fact.values)}."
    return 'Write a number, or a comparison such as "< 0.19.3".' if fact.kind != "word" else "Write a word."


def _facts(catalog: Catalog) -> None:
    """Every run tells its facts in the words of the vocabulary, and runs with equal facts ended alike."""
    alike: dict[frozenset[tuple[str, Value]], Observed] = {}
    known: set[tuple[str, type, Value]] = set()  # runs tell the same facts again and again; 1 is not True

    def fault(observed: Observed, what: str, remedy: str, *keys: str) -> None:
        path = observed.incident.folder / "evidence" / f"{observed.environment}.json"
        runs = observed.incident.evidence[observed.environment].runs
        index = next(number for number, run in enumerate(runs) if run is observed.run)
        add(catalog, path, ("runs", index, *keys), what, remedy)

    for observed in catalog.observed:
        if not observed.run.facts:
            fault(observed, f"the run of `{observed.run.variant}` has no facts", FACTS)
        for name, value in observed.run.facts.items():
            if (told := (name, type(value), value)) in known:
                continue
            fact = catalog.vocabulary.get(name)
            if fact and _value_fits(fact, value):
                known.add(told)
            else:
                what = f"the run of `{observed.run.variant}` says `{name}: {value}`, which is no fact of the vocabulary"
                fault(
                    observed, what, f"Add it to snippets/facts.yml, or mend the repro's `facts`. {FACTS}", "facts", name
                )
        other = alike.setdefault(frozenset(observed.facts.items()), observed)
        if other.label != observed.label:
            what = f"no fact separates `{observed.name}` ({observed.label}) from `{other.name}` ({other.label})"
            fault(observed, what, "A fact is missing: add it to snippets/facts.yml and to the repro's `facts`.")


def _decision(catalog: Catalog) -> None:
    """Strategies, uses and columns of decision.yml are queries in the words of the vocabulary, and have runs."""
    path = catalog.root / "snippets" / "decision.yml"
    if catalog.decision is None:
        return
    asked: dict[Keys, Where] = {
        **{("columns", name, "where"): column.where for name, column in catalog.decision.columns.items()},
        **{("uses", name, "where"): use.where for name, use in catalog.decision.uses.items()},
        **{("strategies", n): {"strategy": strategy} for n, strategy in enumerate(catalog.decision.strategies)},
    }
    sound = [_query(catalog, path, where, query) for where, query in asked.items()]  # all told
    if not all(sound):
        return
    rows = decision.cells(catalog)
    for index, strategy in enumerate(catalog.decision.strategies):
        if not any(row[0] == strategy for row in rows):
            add(catalog, path, ("strategies", index), "no run fits this strategy", "Mend it, or take it out.")
    for name in catalog.decision.uses:
        if not any(row[1] == name for row in rows):
            add(catalog, path, ("uses", name, "where"), "no run fits this row", "Mend it, or take it out.")


def _tables(catalog: Catalog) -> None:
    """Tables on pages are queries too."""
    path = catalog.root / "snippets" / "tables.yml"
    for name, table in catalog.tables.items():
        if _query(catalog, path, (name, "where"), table.where) and not catalog.fitting(table.where)[0]:
            add(catalog, path, (name, "where"), "no run fits this table", "Mend it, or take it out.")


def _cases(catalog: Catalog) -> None:
    """The cases of an error are queries, and cover all runs that ended in it."""
    for family in catalog.families.values():
        path = catalog.root / "snippets" / "errors" / f"{family.family}.yml"
        ended = left = catalog.ended_in(family.family)
        cases = [(index, case.where) for index, case in enumerate(family.cases) if case.where is not None]
        empty = False  # then its runs are left over by that
        for index, where in cases:
            place = ("cases", index, "where")
            fit = ended & catalog.telling(where)[0]
            left -= fit
            if _query(catalog, path, place, where) and not fit:
                empty = True
                add(
                    catalog,
                    path,
                    place,
                    "no run that ended in this error fits this case",
                    "Mend it, or leave `where` out.",
                )
        if family.cases and left and not empty:
            what = f"runs that ended in this error and are of none of its cases: {_some(left)}"
            add(catalog, path, ("cases",), what, "A case is missing, or one is too narrow.")


# ------------------------------------------------------------------------------ pages


Pages = dict[Language, dict[str, Page]]  # by their path below docs/en/ or docs/zh/


def _without_incident(catalog: Catalog, pages: dict[str, Page]) -> None:
    """An article whose incident is not there: links into it say nothing more."""
    for name, page in pages.items():
        found = re.fullmatch(r"incidents/(RO-[0-9]{4})\.md", name)
        if found and not (catalog.root / "snippets" / found[1]).exists():
            what = f"there is no snippets/{found[1]}/incident.yml"
            add(catalog, page.path, 1, what, f"`readyonce new {found[1]}` makes it.")
            catalog.unsound = True


def _each_page(catalog: Catalog, pages: Pages, made: dict[str, str] | None) -> None:
    """What is wrong on a page itself. `made`: the generated includes; None where none could be made, so that
    nothing is said of them."""
    recorded = _recorded(catalog)
    twins = {
        str(catalog.root / "docs" / one / name): page
        for one, other in (LANGUAGES, reversed(LANGUAGES))
        for name, page in pages[other].items()
    }
    for language in LANGUAGES:
        places = articles.places(catalog.root, language)
        by_path = {str(page.path): page for page in pages[language].values()}
        for page in pages[language].values():
            _headings(catalog, page)
            if page.path.stem not in catalog.incidents:  # an article's is generated
                _front_matter(catalog, page)
            if made is not None:
                for include in page.includes:
                    _include(catalog, page, include, made, places)
            for block in page.blocks:
                _block(catalog, page, block, recorded)
            for line, target in page.links:
                _link(catalog, page, line, target, made, by_path, twins)
    for incident in catalog.incidents.values():
        for name in sorted(os.listdir(incident.folder)):
            if name.endswith(".sh"):
                _options(catalog, incident.folder / name, 1, catalog.text(incident.folder / name), recorded)


def _pages(catalog: Catalog, pages: Pages, made: dict[str, str] | None) -> None:
    for language, name in ((language, name) for language in LANGUAGES for name in _wanted(catalog)):
        if name not in pages[language]:
            add(
                catalog,
                catalog.root / "docs" / language / name,
                (),
                "the page is missing",
                "Write it; the other language has the same sections.",
            )
    _each_page(catalog, pages, made)
    for id, incident in catalog.incidents.items():
        for language in LANGUAGES:
            if page := pages[language].get(f"incidents/{id}.md"):
                _article(catalog, incident, page, language)
            if page := pages[language].get(f"incidents/{id}/evidence.md"):
                title = links.label(id, say("lab-book", language))
                _outline(catalog, page, title, articles.LAB_BOOK, "A lab book")
    cited: list[Incident | FamilyFile] = [*catalog.incidents.values(), *catalog.families.values()]
    known = {source.zh: source.url for entry in cited for source in entry.sources if source.zh}
    translated = {address_of(chinese): english for chinese, english in known.items()}
    faulty = {problem.file for problem in catalog.problems}
    for name, page in pages["en"].items():
        if other := pages["zh"].get(name):
            files = (str(article.path.relative_to(catalog.root)) for article in (page, other))
            if faulty.isdisjoint(files):  # else they differ by that
                _parity(catalog, page, other, translated)
        else:
            add(
                catalog,
                catalog.root / "docs" / "zh" / name,
                (),
                "the page is missing in Chinese",
                "Both languages have the same pages.",
            )
    for name in sorted(set(pages["zh"]) - set(pages["en"])):
        add(
            catalog,
            catalog.root / "docs" / "en" / name,
            (),
            "the page is missing in English",
            "Both languages have the same pages.",
        )


def _read_all(catalog: Catalog, language: str) -> dict[str, Page]:
    folder = catalog.root / "docs" / language
    return {
        path.relative_to(folder).as_posix(): articles.read(path, catalog.text(path))
        for path in sorted(folder.rglob("*.md"), key=str)
        if not path.is_symlink() and not catalog.is_generated(path)  # told already; `_generated` compares these
    }


def _wanted(catalog: Catalog) -> Iterator[str]:
    for id in catalog.incidents:
        yield from (f"incidents/{id}.md", f"incidents/{id}/evidence.md")
    yield from (f"errors/{family.family}.md" for family in catalog.listed("own"))
    if catalog.decision:
        yield "decision.md"
    if catalog.listed("look-alikes"):
        yield "errors/look-alikes.md"


def _headings(catalog: Catalog, page: Page) -> None:
    seen: set[str] = set()
    for heading in page.headings:
        if heading.id is None:
            add(
                catalog,
                page.path,
                heading.line,
                f"heading `{heading.text}` has no id",
                "End it with {#id}: the same id in both languages.",
            )
        elif heading.id in seen:
            add(
                catalog,
                page.path,
                heading.line,
                f"id `{heading.id}` stands here twice",
                "Give one of the headings another id.",
            )
        seen.add(heading.id or "")


def _front_matter(catalog: Catalog, page: Page) -> None:
    try:
        matter = articles.matter(catalog, page)
    except CatalogError as error:
        catalog.problems += error.problems
        return
    if "<" in str(matter.get("title", "")):
        add(
            catalog,
            page.path,
            1,
            "the title has markup",
            "Write it without `<`: the theme puts titles into every page as they are.",
        )


def _article(catalog: Catalog, incident: Incident, page: Page, language: Language) -> None:
    _outline(catalog, page, incident.meta.title[language], articles.SECTIONS, "An article")
    wrong = any(declared.outcome in SILENT for v in incident.variants.values() for declared in v.declared.values())
    if wrong and "already-trained" not in page.ids:
        add(
            catalog,
            page.path,
            1,
            "a variant trains wrong without an error, and no section {#already-trained} says how to tell and what to do",
            "Add it: readers may have trained this way.",
        )


def _outline(catalog: Catalog, page: Page, title: str, wanted: tuple[str, ...], kind: str) -> None:
    """The title, and the sections with their order."""
    titles = [heading for heading in page.headings if heading.level == 1]
    if [heading.text for heading in titles] != [title]:
        line = titles[0].line if titles else 1
        add(catalog, page.path, line, "the title is not that of incident.yml", f"Write: # {title}")
    sections = [heading.id for heading in page.headings if heading.level == 2]
    for id in wanted:
        if id not in sections:
            remedy = f"{kind} has, in this order: {', '.join(wanted)}."
            add(catalog, page.path, 1, f"section {{#{id}}} is missing", remedy)
    if [id for id in sections if id in wanted] != [id for id in wanted if id in sections]:
        add(catalog, page.path, 1, "the sections are out of order", f"The order is: {', '.join(wanted)}.")


def _include(catalog: Catalog, page: Page, include: Include, made: dict[str, str], places: list[Path]) -> None:
    text = made.get(include.path)
    if text is None and (path := articles.find(include, places)):
        text = catalog.text(path)
    if text is None:
        leads_out = include.path.startswith("/") or ".." in include.path.split("/")
        add(
            catalog,
            page.path,
            include.line,
            f"the include {include.path} leads out of its folder"
            if leads_out
            else f"there is no {include.path} to include",
            "It is looked for in snippets/, among what `readyonce render` writes, and in docs/theme/figures/.",
        )
        return
    try:
        if include.section:
            articles.section(text, include.section)
    except articles.MissingSection:
        there = re.findall(r"--8<-- \[start:([\w-]+)\]", text)
        add(
            catalog,
            page.path,
            include.line,
            f"{include.path} has no section `{include.section}`",
            f"It has: {', '.join(there)}." if there else "It has none.",
        )


def _block(catalog: Catalog, page: Page, block: Block, recorded: Recorded) -> None:
    def fault(what: str, remedy: str) -> None:
        add(catalog, page.path, block.line, what, remedy)

    match block.language:
        case "python" | "nginx" | "console" | "text":
            if not block.is_include:
                fault(
                    f"a {block.language} block that is no include",
                    'Show the tested file or the stored output: --8<-- "path:section".',
                )
        case "bash":
            if not block.is_include:
                _options(catalog, page.path, block.line + 1, block.content, recorded)
        case "json":
            try:
                block.is_include or json.loads(block.content)
            except json.JSONDecodeError as error:
                fault(f"the block is not JSON: {error.msg}", f"Mend its line {error.lineno}.")
            except RecursionError:
                fault("the block is nested too deep", "Write it flatter.")
        case "yaml":
            try:
                block.is_include or parse_yaml(block.content)
            except yaml.YAMLError as error:
                fault(f"the block is not YAML: {getattr(error, 'problem', error)}", "Mend it.")
        case language:
            fault(
                f"a block with language `{language}`" if language else "a block without a language",
                "Fence it as python, bash, json, yaml, nginx, console or text: those are tested.",
            )


def _options(catalog: Catalog, path: Path, first: int, script: str, recorded: Recorded) -> None:
    """Each `--option` exists in every recorded parser of the command that it is given to. Line `first` starts the script."""
    for words in commands(script):
        for command, environments in recorded.items():
            if words[: len(command.split())] != command.split():
                continue
            for option in (word.partition("=")[0] for word in words if word.startswith("--")):
                if lacking := [f"`{name}`" for name, known in environments.items() if option not in known]:
                    found = re.search(rf"{re.escape(option)}(?![\w-])", script)
                    before = script[: found.start()] if found else ""  # none, where it is written in other quotes
                    add(
                        catalog,
                        path,
                        first + before.count("\n"),
                        f"`{command}` has no option `{option}` in {', '.join(lacking)}",
                        "Write one that the framework has, or say on the page from which version on, and include it from a file.",
                    )


def commands(script: str) -> Iterator[list[str]]:
    """The simple commands of a script that are given options, as words, without leading assignments.

    `torchrun ... -m MODULE ...` is two: the launcher with its options, and `python -m MODULE ...`.
    """
    for line in script.replace("\\\n", " ").splitlines():
        if "--" not in line:
            continue
        try:
            # Most lines have nothing that quotes; shlex is slow.
            words = shlex.split(line, comments=True) if re.search(r"[\"'\\#]", line) else line.split()
        except ValueError:
            continue  # `bash -n` in the tests says it better
        while words and re.match(r"\w+=", words[0]):
            words = words[1:]
        if words[:1] == ["torchrun"] and "-m" in words:
            module = words.index("-m")
            yield words[:module]
            words = ["python", *words[module:]]
        if words:
            yield words


def _recorded(catalog: Catalog) -> Recorded:
    recorded: Recorded = {}
    for incident in catalog.incidents.values():
        for environment, evidence in incident.evidence.items():
            for command, options in evidence.options.items():
                recorded.setdefault(command, {})[environment] = options
    return recorded


def _link(
    catalog: Catalog,
    page: Page,
    line: int,
    target: str,
    made: dict[str, str] | None,
    pages: dict[str, Page],
    twins: dict[str, Page],
) -> None:
    """`pages`, `twins`: by path, each page in this language, and in the other one; they are texts, since links are many.

    A page or an anchor that the twin has was lost here, which is said there.
    """
    if re.match(r"[a-z]+:", target):
        return
    name, _, anchor = target.partition("#")
    path = os.path.normpath(f"{os.path.dirname(page.path)}/{name}") if name else str(page.path)
    if path not in pages and not os.path.isfile(path):
        if path in twins:
            return
        add(
            catalog,
            page.path,
            line,
            f"the link goes to {name}, which is not there",
            "Mend it. Links go to .md files, relative to the page.",
        )
    elif anchor and (
        not _has(pages[path], anchor, made) and not ((twin := twins.get(path)) and anchor in twin.ids)
        if path in pages
        else catalog.is_generated(Path(path)) and f"{{#{anchor}}}" not in catalog.text(Path(path))
    ):
        add(
            catalog,
            page.path,
            line,
            f"the link goes to #{anchor}, which is not on {os.path.basename(path)}",
            "Mend the anchor, or give the heading that id.",
        )


def _has(target: Page, anchor: str, made: dict[str, str] | None) -> bool:
    if anchor in target.ids or made is None:
        return True
    return any(anchor in _ids(made.get(include.path, "")) for include in target.includes)


@functools.lru_cache(1 << 14)  # a page is led to by many
def _ids(included: str) -> frozenset[str]:
    return frozenset(re.findall(r'(?:\{ ?#|id=")([^\s"{}]+)', included))


def _parity(catalog: Catalog, page: Page, other: Page, translated: dict[str, str]) -> None:
    """`translated`: the Chinese text of a source → the English one."""

    def compare(what: str, one: list[tuple[int, str]], two: list[tuple[int, str]], remedy: str) -> None:
        """Each a list of (line, thing): the first difference is what a translator needs to see."""
        for index in range(max(len(one), len(two))):
            a = one[index] if index < len(one) else None
            b = two[index] if index < len(two) else None
            if a is None or b is None or a[1] != b[1]:
                add(
                    catalog,
                    other.path,
                    b[0] if b else max((line for line, _ in two), default=1),
                    f"{what}: {f'`{b[1]}`' if b else 'nothing'} here, {f'`{a[1]}` in English' if a else 'nothing in English'}",
                    remedy,
                )
                return

    same = "Both languages have the same, in the same order."
    compare(
        "heading ids differ",
        [(h.line, f"{'#' * h.level} {h.id}") for h in page.headings],
        [(h.line, f"{'#' * h.level} {h.id}") for h in other.headings],
        same,
    )
    compare(
        "includes differ", [(i.line, str(i)) for i in page.includes], [(i.line, str(i)) for i in other.includes], same
    )
    compare(
        "code blocks differ",
        [(b.line, f"{b.language}: {b.content}") for b in page.blocks],
        [(b.line, f"{b.language}: {b.content}") for b in other.blocks],
        "Code is not translated. " + same,
    )
    ours, theirs = (
        [(line, target) for target, line in sorted((translated.get(target, target), line) for line, target in p.links)]
        for p in (page, other)
    )
    compare(
        "links differ",
        ours,
        theirs,
        "Both languages link to the same places, or to what a source names as its Chinese text (`zh:`).",
    )


def _generated(catalog: Catalog, committed: dict[Path, str]) -> None:
    for path, text in committed.items():
        if not path.is_file() or catalog.text(path) != text:
            add(catalog, path, 1, "the generated part is out of date", "Run `readyonce render`.")
