"""Rules of stored runs: each is declared, ends as declared, and was made from the files of today."""

from __future__ import annotations

from collections.abc import Iterator

from readyonce.check.words import is_value
from readyonce.data.catalog import Catalog, Incident, Observed, Variant
from readyonce.data.facts import Value
from readyonce.data.reading import Keys, Problem
from readyonce.lab import made_from, venvs
from readyonce.pages import guard

FACTS = "Run `readyonce facts --write`."
VERIFY = "Run `readyonce verify {} --write`, and look at what changed."


def message_of_another_family(catalog: Catalog) -> Iterator[Problem]:
    """The stored message of a run does not fit the wordings of the family that the run is stored with.

    A reader with this message would not be led to the page. What a family lost is said once, not for each run.
    Remedy: mend the wordings in `snippets/errors/`, or run the variant again.
    """
    lost: dict[str, list[tuple[Incident, str, int, str]]] = {}
    for incident in catalog.incidents.values():
        for environment, evidence in incident.evidence.items():
            for index, run in enumerate(evidence.runs):
                if run.outcome == "error" and run.error and catalog.family_of(run.message or "") != run.error:
                    lost.setdefault(run.error, []).append((incident, environment, index, run.variant))
    for family, runs in lost.items():
        incident, environment, index, variant = runs[0]
        more = f", and of {len(runs) - 1} more runs" if len(runs) > 1 else ""
        what = f"the message of `{variant}`{more} does not fit the wordings of `{family}`"
        remedy = f"Mend snippets/errors/{family}.yml, or: {VERIFY.format(incident.id)}"
        yield catalog.problem(incident.record(environment), ("runs", index, "message"), what, remedy)


def _declared(catalog: Catalog) -> Iterator[tuple[Incident, Variant, Keys]]:
    """Each variant, and where `incident.yml` declares it."""
    for incident in catalog.incidents.values():
        for variant in incident.variants.values():
            keys: Keys = ("variants", variant.name) if variant.name in incident.meta.variants else ("matrices",)
            yield incident, variant, keys


def run_missing_or_otherwise(catalog: Catalog) -> Iterator[Problem]:
    """A declared variant has no stored run, or its run ends otherwise than declared or does not show the text of `shows:`.

    Pages show what is declared, so it must be what was seen.
    Remedy: the run is right; run the variant again, and declare what it shows.
    """
    for incident, variant, keys in _declared(catalog):
        remedy = VERIFY.format(incident.id)
        for environment, declared in variant.declared.items():
            run = incident.run(variant.name, environment)
            if environment in incident.not_run:
                continue
            if run is None:
                what = f"variant `{variant.name}` has no run in `{environment}`"
                yield catalog.problem(incident.file, keys, what, remedy)
            elif missing := [literal for literal in variant.shows if literal not in (run.message or "")]:
                what = f"the message of `{variant.name}` in `{environment}` does not show `{missing[0]}`"
                yield catalog.problem(incident.file, (*keys, "shows"), what, f"The run is right. {remedy}")
            elif run.declaration != declared:
                what = f"variant `{variant.name}` is declared {declared}"
                what += f", and its run in `{environment}` shows {run.declaration}"
                yield catalog.problem(incident.file, keys, what, f"The run is right. {remedy}")


def unusable_declared_and_stored_differ(catalog: Catalog) -> Iterator[Problem]:
    """`unusable:` names an environment in which the variant could be run, or leaves out one in which it could not.

    A variant is left out of an environment only where a stored attempt shows why.
    Remedy: the stored attempt is right; declare it, or run the variant again.
    """
    for incident, variant, keys in _declared(catalog):
        stored = {
            name
            for name, evidence in incident.evidence.items()
            if variant.name in {run.variant for run in evidence.unusable}
        }
        for environment in stored ^ variant.unusable.keys():
            which = "stored, not declared" if environment in stored else "declared, not stored"
            what = f"that `{variant.name}` is unusable in `{environment}` is {which}"
            remedy = f"The run is right. {VERIFY.format(incident.id)}"
            yield catalog.problem(incident.file, (*keys, "unusable"), what, remedy)


def run_not_declared(catalog: Catalog) -> Iterator[Problem]:
    """A stored run is of a variant that is not declared for this environment.

    Such a run would be judged, and no page would say what it is.
    Remedy: declare the variant, or store the runs anew.
    """
    for incident in catalog.incidents.values():
        for environment, evidence in incident.evidence.items():
            for index, run in enumerate(evidence.runs):
                ran = incident.variants.get(run.variant)
                if ran is None or environment not in ran.declared:  # what is unusable stands in a list of its own
                    what = f"a run of `{run.variant}`, which is not declared for `{environment}`"
                    remedy = f"Declare it in incident.yml, or: {VERIFY.format(incident.id)}"
                    yield catalog.problem(incident.record(environment), ("runs", index, "variant"), what, remedy)


def options_not_recorded(catalog: Catalog) -> Iterator[Problem]:
    """The options of a command that `commands:` names are not recorded in an environment.

    The options in code blocks are compared with the recorded ones.
    Remedy: run `readyonce verify ID --environment NAME --write`.
    """
    for incident in catalog.incidents.values():
        for command, environments in incident.meta.commands.items():
            for index, environment in enumerate(environments):
                known = (catalog.root / "snippets" / "environments" / f"{environment}.txt").is_file()
                if known and command not in getattr(incident.evidence.get(environment), "options", {}):
                    what = f"the options of `{command}` are not recorded in `{environment}`"
                    remedy = VERIFY.format(f"{incident.id} --environment {environment}")
                    yield catalog.problem(incident.file, ("commands", command, index), what, remedy)


def requirement_without_release(catalog: Catalog) -> Iterator[Problem]:
    """A line in the list of an environment pins no release.

    What is not pinned is another release tomorrow, and the stored runs could not be repeated.
    Remedy: write `name==release`.
    """
    for name in _environments(catalog):
        try:
            venvs.pins(catalog.root, name)
        except venvs.NoRequirement as error:
            yield catalog.problem(venvs.lists(catalog.root, name)[0], error.line, error.what, "Write name==release.")


def _environments(catalog: Catalog) -> list[str]:
    """The environments with evidence that have a list."""
    names = sorted({name for incident in catalog.incidents.values() for name in incident.evidence})
    return [name for name in names if venvs.lists(catalog.root, name)[0].is_file()]


def release_is_not_the_pinned_one(catalog: Catalog) -> Iterator[Problem]:
    """Evidence was stored with another release of a package than its environment pins today.

    Pages name the pinned release beside the run.
    Remedy: run the incident again in that environment.
    """
    pinned: dict[str, dict[str, str]] = {}
    for name in _environments(catalog):
        try:
            pinned[name] = venvs.pins(catalog.root, name)
        except venvs.NoRequirement:
            continue  # `requirement_without_release` says so
    for incident in catalog.incidents.values():
        for environment, evidence in incident.evidence.items():
            pins = pinned.get(environment, {})
            for name, version in evidence.environment.versions.items():
                if pins.get(name, version) not in (version, version.partition("+")[0]):
                    what = f"it was run with {name} {version}; "
                    what += f"snippets/environments/{environment}.txt pins {pins[name]}"
                    remedy = VERIFY.format(f"{incident.id} --environment {environment}")
                    keys = ("environment", "versions", name)
                    yield catalog.problem(incident.record(environment), keys, what, remedy)


def evidence_is_stale(catalog: Catalog) -> Iterator[Problem]:
    """Evidence was stored with other files than those of today, or does not say with which.

    It may show what the files of today no longer do. `snippets/stale.txt` lists evidence that was stored before it had
    an address; the list only shrinks.
    Remedy: run the command that the problem names, or delete the line of the list.
    """
    listed = made_from.listed(catalog)
    for incident in catalog.incidents.values():
        for environment, evidence in incident.evidence.items():
            known = listed.pop(made_from.name_of(incident, evidence), None)
            if known and not evidence.made_from:
                continue
            differ = made_from.differences(catalog, incident, evidence)
            if known and not differ:
                what = f"{incident.id} in `{environment}` is of the files of today"
                yield catalog.problem(catalog.root / made_from.STALE, known, what, "Delete this line.")
            elif differ and not known:
                of = f"{incident.id} --environment {environment}"
                remedy = FACTS if made_from.FACTS in differ else f"Run `readyonce verify {of} --guard --write`."
                remedy = VERIFY.format(f"{of} --stale") if set(differ) - made_from.WITHOUT_A_RUN else remedy
                what = f"it was stored with another {' and another '.join(differ)}"
                what = what if evidence.made_from else "it has no address"
                yield catalog.problem(incident.record(environment), ("made_from",), what, remedy)
    for name, line in listed.items():
        what = f"there is no evidence `{name}`"
        yield catalog.problem(catalog.root / made_from.STALE, line, what, "Delete this line.")


def guard_run_unknown(catalog: Catalog) -> Iterator[Problem]:
    """`packages/guard/commands.json` names a run that is not stored.

    A page would lead to a run that does not exist.
    Remedy: run the program in `packages/guard/tests/` that writes the file, or take the file back from Git.
    """
    for name in (guard.stored(catalog, "commands.json") or {"runs": {}})["runs"]:
        run, _, environment = name.rpartition(" ")
        id, _, variant = run.partition("/")
        if incident := catalog.incidents.get(id):
            evidence = incident.evidence.get(environment)
            if evidence is None or variant not in evidence.by_variant:
                path = catalog.root / guard.FOLDER / "commands.json"
                yield catalog.problem(path, ("runs", name), f"there is no stored run {name}", guard.RECORDED)


def fact_of_no_vocabulary(catalog: Catalog) -> Iterator[Problem]:
    """A run tells no facts, or a fact that the vocabulary does not have.

    Claims and tables ask for runs by their facts: such a run would be found by none.
    Remedy: add the fact to `snippets/facts.yml`, or mend the repro's `facts`; then run `readyonce facts --write`.
    """
    known: set[tuple[str, type, Value]] = set()  # runs tell the same facts again and again; 1 is not True
    for observed in catalog.observed:
        variant = observed.run.variant
        if not observed.run.facts:
            yield _of_run(catalog, observed, (), f"the run of `{variant}` has no facts", FACTS)
        for name, value in observed.run.facts.items():
            if (told := (name, type(value), value)) in known:
                continue
            fact = catalog.vocabulary.get(name)
            if fact and is_value(fact, value):
                known.add(told)
            else:
                what = f"the run of `{variant}` says `{name}: {value}`, which is no fact of the vocabulary"
                remedy = f"Add it to snippets/facts.yml, or mend the repro's `facts`. {FACTS}"
                yield _of_run(catalog, observed, ("facts", name), what, remedy)


def equal_facts_end_differently(catalog: Catalog) -> Iterator[Problem]:
    """Two runs tell equal facts and ended differently.

    Then something decides that no fact tells, and no claim could say when it holds.
    Remedy: add the fact that separates them to `snippets/facts.yml` and to the repro's `facts`.
    """
    alike: dict[bytes, Observed] = {}
    for observed, told in zip(catalog.observed, catalog.told, strict=True):
        other = alike.setdefault(told, observed)
        if other.label != observed.label:
            what = f"no fact separates `{observed.name}` ({observed.label}) from `{other.name}` ({other.label})"
            remedy = "A fact is missing: add it to snippets/facts.yml and to the repro's `facts`."
            yield _of_run(catalog, observed, (), what, remedy)


def _of_run(catalog: Catalog, observed: Observed, keys: Keys, what: str, remedy: str) -> Problem:
    if observed.incident.short:  # its facts stand in its incident.yml
        return catalog.problem(observed.incident.file, ("facts",), what, remedy)
    runs = observed.incident.evidence[observed.environment].runs
    index = next(number for number, run in enumerate(runs) if run is observed.run)
    return catalog.problem(observed.record, ("runs", index, *keys), what, remedy)
