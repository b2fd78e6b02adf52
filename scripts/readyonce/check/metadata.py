"""Rules of `incident.yml`: the variants, the files they run, the environments, and the fix."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from readyonce.check.words import unknown_words
from readyonce.data.catalog import Catalog, Incident
from readyonce.data.reading import Keys, Problem
from readyonce.data.schema import BASELINE, Tags
from readyonce.lab import processes, recording


def tag_of_two_kinds(catalog: Catalog) -> Iterator[Problem]:
    """The same tag stands under two kinds, for example under `framework` and under `strategy`.

    The page of all tags has a part for each kind, and a tag has one address there.
    Remedy: keep the tag under one kind.
    """
    met: dict[str, tuple[str, str]] = {}
    for incident in catalog.incidents.values():
        for kind in Tags.model_fields:
            for tag in incident.meta.tags.kind(kind, "en"):
                of, where = met.setdefault(tag.lower(), (kind, incident.id))
                if of != kind:
                    what = f"the tag `{tag}` stands under `{kind}` here, and under `{of}` in {where}"
                    yield catalog.problem(incident.file, ("tags", kind), what, "Keep it under one of them.")


def _outcomes(incident: Incident) -> Iterator[tuple[Keys, str, str | None]]:
    """Each outcome that `incident.yml` declares, with its keys and its error family."""
    for name, entry in incident.meta.variants.items():
        yield ("variants", name), entry.outcome, entry.error
        for environment, declared in entry.differs.items():
            yield ("variants", name, "differs", environment), declared.outcome, declared.error
    for i, matrix in enumerate(incident.meta.matrices):
        for j, case in enumerate(matrix.cases):
            yield ("matrices", i, "cases", j), case.outcome, case.error


def unknown_error_family(catalog: Catalog) -> Iterator[Problem]:
    """An incident names an error family that does not exist.

    Pages link from the incident to the page of the error, which would be missing.
    Remedy: add `snippets/errors/NAME.yml`, or name a family that exists.
    """
    for incident in catalog.incidents.values():
        named: list[tuple[Keys, str | None]] = [(("errors", i), name) for i, name in enumerate(incident.meta.errors)]
        named += [((*where, "error"), error) for where, _, error in _outcomes(incident)]
        for keys, name in named:
            if name is not None and name not in catalog.families:
                remedy = f"Add snippets/errors/{name}.yml, or write one of: {', '.join(catalog.families)}."
                yield catalog.problem(incident.file, keys, f"there is no error family `{name}`", remedy)


def outcome_and_error_disagree(catalog: Catalog) -> Iterator[Problem]:
    """The outcome `error` names no error family, or another outcome names one.

    What a run ended in is told by both together.
    Remedy: write `error:` with `outcome: error`, and with no other outcome.
    """
    for incident in catalog.incidents.values():
        for keys, outcome, error in _outcomes(incident):
            if (outcome == "error") != (error is not None):
                named = "names no error family" if error is None else "names an error family"
                remedy = "`error:` goes with `outcome: error`, always, and with no other."
                yield catalog.problem(incident.file, (*keys, "outcome"), f"outcome `{outcome}` {named}", remedy)


def error_not_named(catalog: Catalog) -> Iterator[Problem]:
    """The reported variant ends in an error, and `errors:` names none.

    `errors:` leads from the error's page to the incident; empty, it says that the incident fails silently.
    Remedy: name the error family under `errors:`.
    """
    for incident in catalog.incidents.values():
        baseline = incident.meta.variants.get(BASELINE)
        if baseline and baseline.error and not incident.meta.errors:
            what = f"`{BASELINE}` ends in `{baseline.error}`, and no error is named"
            remedy = f"Write `errors: [{baseline.error}]`; `errors: []` is for what fails without an error."
            yield catalog.problem(incident.file, ("errors",), what, remedy)


def environment_of_another_file(catalog: Catalog) -> Iterator[Problem]:
    """A variant's `only:` or `differs:` names an environment in which its file does not run.

    The entry would have no effect.
    Remedy: add the environment under `files:`, or take it out of the variant.
    """
    for incident in catalog.incidents.values():
        for name, entry in incident.meta.variants.items():
            for key in ("only", "differs"):
                for environment in getattr(entry, key) or ():
                    if environment not in incident.meta.files.get(entry.file, []):
                        what = f"{entry.file} does not run in `{environment}`"
                        remedy = "Add the environment under `files:`, or take it out here."
                        yield catalog.problem(incident.file, ("variants", name, key), what, remedy)


def pattern_without_variant(catalog: Catalog) -> Iterator[Problem]:
    """A pattern of a matrix fits no variant.

    The case or the `only:` that it stands under would have no effect.
    Remedy: mend the pattern, or take it out.
    """
    for incident in catalog.incidents.values():
        names = set(incident.variants)
        labels = {f"{v.name}@{environment}" for v in incident.variants.values() for environment in v.declared}
        used: list[tuple[Keys, str, set[str]]] = []
        for i, matrix in enumerate(incident.meta.matrices):
            for j, case in enumerate(matrix.cases):
                keys: Keys = ("matrices", i, "cases", j, "variants")
                used += [((*keys, k), pattern, names | labels) for k, pattern in enumerate(case.variants)]
            for environment, patterns in matrix.only.items():
                keys = ("matrices", i, "only", environment)
                used += [((*keys, k), pattern, names) for k, pattern in enumerate(patterns)]
        for keys, pattern, known in used:
            if pattern not in known and not any(fnmatchcase(name, pattern) for name in known):
                remedy = "Mend the pattern, or take it out."
                yield catalog.problem(incident.file, keys, f"no variant fits `{pattern}`", remedy)


def files_and_variants_disagree(catalog: Catalog) -> Iterator[Problem]:
    """`files:` leaves out a file that a variant uses, or names one that does not exist or that no variant uses.

    `files:` says in which environments each file runs.
    Remedy: add or remove the line under `files:`, the file, or the variant.
    """
    for incident in catalog.incidents.values():
        named = {variant.script for variant in incident.variants.values()}
        for name in sorted(named - set(incident.meta.files)):
            what = f"`files` does not say where {name} runs"
            yield catalog.problem(incident.file, ("files",), what, f"Add `{name}: [current]`.")
        for name in incident.meta.files:
            if not (incident.folder / name).is_file():
                remedy = f"Put it into {incident.folder.name}/, or take the line out."
                yield catalog.problem(incident.file, ("files", name), f"there is no file {name}", remedy)
            if name not in named:
                remedy = "Declare its variants, or take the line out."
                yield catalog.problem(incident.file, ("files", name), f"no variant uses {name}", remedy)


def command_that_cannot_run(catalog: Catalog) -> Iterator[Problem]:
    """A framework's command has no `tiny.py`, or a variant replaces a line that the command does not have.

    The command runs with a tiny model, which `tiny.py` makes; a variant changes lines that stand in the script.
    Remedy: add `tiny.py`, or name an option as it stands in the script.
    """
    for incident in catalog.incidents.values():
        for variant in (variant for variant in incident.variants.values() if variant.is_command):
            if not (incident.folder / "tiny.py").is_file():
                what = f"{variant.script} has no tiny model to run with"
                remedy = f"Add {incident.folder.name}/tiny.py; contributing says what it prints."
                yield catalog.problem(incident.file, ("files", variant.script), what, remedy)
            try:
                script = catalog.text(incident.folder / variant.script)
                recording.with_lines(script, variant.lines | incident.meta.reference)
            except OSError:
                continue  # `files_and_variants_disagree` says so
            except processes.LabError as error:
                remedy = "Name an option of the script, as it stands there."
                yield catalog.problem(incident.file, ("variants", variant.name), str(error), remedy)


def reported_variant_missing(catalog: Catalog) -> Iterator[Problem]:
    """An incident has no variant `reported`.

    That variant shows the incident as somebody met it; the others are compared with it.
    Remedy: declare the variant `reported`.
    """
    for incident in catalog.incidents.values():
        if BASELINE not in incident.variants and not incident.short:
            remedy = "It shows the incident as it was reported."
            yield catalog.problem(incident.file, ("variants",), f"there is no variant `{BASELINE}`", remedy)


def fix_without_section(catalog: Catalog) -> Iterator[Problem]:
    """`fix: {code: FILE:SECTION}` names a section that the file does not have.

    The article shows that section as the fix.
    Remedy: mark the section in the file.
    """
    for incident in catalog.incidents.values():
        if (code := incident.meta.fix.code) and not incident.short:  # of a minimal repro another rule sees to
            file, section = code.split(":")
            source = incident.folder / file
            if not source.is_file() or f"[start:{section}]" not in catalog.text(source):
                mark = f"# --8<-- [start:{section}] ... # --8<-- [end:{section}]"
                remedy = f"Mark it in {incident.folder.name}/{file}: {mark}"
                yield catalog.problem(
                    incident.file, ("fix", "code"), f"there is no section `{section}` in {file}", remedy
                )


def fix_not_proven(catalog: Catalog) -> Iterator[Problem]:
    """The variant that `fix:` names is not declared with the outcome `match` in every environment.

    A fix that only removes the error may train wrong.
    Remedy: name a variant whose gradients are right.
    """
    for incident in catalog.incidents.values():
        if incident.short:  # its minimal repro proves it
            continue
        fix = incident.variants.get(incident.meta.fix.variant or "")
        if not fix or any(declared.outcome != "match" for declared in fix.declared.values()):
            what = f"the fix is not proven: `{incident.meta.fix.variant}` is no variant with outcome match"
            remedy = "A fix counts only when the gradients are right. Name a variant that shows it."
            yield catalog.problem(incident.file, ("fix", "variant"), what, remedy)


def environment_unknown(catalog: Catalog) -> Iterator[Problem]:
    """`files:` or `commands:` names an environment that does not exist.

    An environment is a list of pinned requirements.
    Remedy: add `snippets/environments/NAME.txt`.
    """
    for incident in catalog.incidents.values():
        for part in ("files", "commands"):
            for name, environments in getattr(incident.meta, part).items():
                for index, environment in enumerate(environments):
                    if not (catalog.root / "snippets" / "environments" / f"{environment}.txt").is_file():
                        what = f"there is no environment `{environment}`"
                        remedy = f"Add snippets/environments/{environment}.txt with pinned requirements."
                        yield catalog.problem(incident.file, (part, name, index), what, remedy)


def launch_sign_in_unknown_words(catalog: Catalog) -> Iterator[Problem]:
    """`launches:` asks for a fact, a value or a framework that there is not.

    No launch would ever fit, and the lint would stay silent.
    Remedy: use a name and a value of `snippets/facts.yml`, and a file's name of `snippets/frameworks/`.
    """
    for incident in catalog.incidents.values():
        for index, sign in enumerate(incident.meta.launches):
            yield from unknown_words(catalog, incident.file, ("launches", index, "where"), sign.where)
            for name in sorted({*sign.frameworks} - {*catalog.frameworks}):
                remedy = "use a file's name of snippets/frameworks/"
                yield catalog.problem(incident.file, ("launches", index), f"there is no framework `{name}`", remedy)
