"""Rules of the scripts beside `incident.yml`: the minimal repro, the copies of `compare`, counts, what is left to do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from readyonce.data import articles
from readyonce.data.catalog import MINIMAL, MINIMAL_RUNS, SETTINGS, Catalog, Incident
from readyonce.data.project import LANGUAGES
from readyonce.data.reading import CatalogError, Problem
from readyonce.data.schema import BASELINE
from readyonce.lab import counts, minimal, printed, settings
from readyonce.pages.committed import COPIED, with_compare


def skeleton_left(catalog: Catalog) -> Iterator[Problem]:
    """A file of an incident still has a `TODO` of the skeleton.

    `readyonce new` writes one wherever only the author knows what belongs there.
    Remedy: replace it.
    """
    for incident in catalog.incidents.values():
        pages = [catalog.root / "docs" / language / "incidents" / f"{incident.id}.md" for language in LANGUAGES]
        files = [incident.folder / name for name in sorted(os.listdir(incident.folder)) if "." in name]
        for path in [*files, *filter(Path.is_file, pages)]:
            text = catalog.text(path)
            for number, line in enumerate(text.splitlines() if "TODO" in text else (), 1):
                if "TODO" in line:
                    yield catalog.problem(path, number, "a TODO of the skeleton is left", "Replace it.")


def compare_of_its_own(catalog: Catalog) -> Iterator[Problem]:
    """A repro has a `compare` that is no copy of the one in `compare.py`, or an old copy.

    `match` has to mean the same in every incident, and a reader copies one file only.
    Remedy: write the mark of a copy above the function, and run `readyonce render`.
    """
    for incident in catalog.incidents.values():
        for script in incident.scripts:
            before, defined, _ = (text := catalog.text(script)).partition("def compare(")
            line = before.count("\n") + 1
            if defined and COPIED + "LIMIT" not in text:
                what = "it has a `compare` of its own, so its `match` may mean another thing than that of the others"
                remedy = (
                    f"Put `{COPIED.strip()}` above a line `LIMIT = 0` and the function, and run `readyonce render`."
                )
                yield catalog.problem(script, line, what, remedy)
            elif defined and with_compare(text) != text:
                what = "its `compare` is not that of compare.py"
                yield catalog.problem(script, line, what, "Run `readyonce render`.")


def _minimal(catalog: Catalog) -> Iterator[tuple[Incident, Path, str]]:
    for incident in catalog.incidents.values():
        path = incident.folder / MINIMAL
        if path.is_file():
            yield incident, path, catalog.text(path)


def minimal_too_long(catalog: Catalog) -> Iterator[Problem]:
    """The minimal repro of an incident has more lines than it may have.

    A reader has to see at a glance that nothing else could be the cause.
    Remedy: make it shorter; blank lines and marks of sections do not count.
    """
    for _, path, text in _minimal(catalog):
        count = sum(1 for line in text.splitlines() if line.strip() and "--8<--" not in line)
        limit = minimal.LINES_WITH_A_LIBRARY if minimal.LIBRARIES.search(text) else minimal.LINES
        if count > limit:
            remedy = f"At most {limit}, blank lines and marks of sections aside."
            yield catalog.problem(path, 1, f"it has {count} lines", remedy)


def minimal_without_sections(catalog: Catalog) -> Iterator[Problem]:
    """The minimal repro does not mark one to three lines that fail, or one to three that mend them.

    The article shows these lines side by side.
    Remedy: mark the sections `fails` and `fixed`.
    """
    for _, path, text in _minimal(catalog):
        for name in minimal.SECTIONS:
            count = 0
            with contextlib.suppress(articles.MissingSection):
                count = len(articles.section(text, name).splitlines())
            if not 0 < count <= minimal.SECTION_LINES:
                remedy = f"Mark one to three: # --8<-- [start:{name}] ... # --8<-- [end:{name}]"
                yield catalog.problem(path, 1, f"its section `{name}` has {count} lines", remedy)


def minimal_not_proven(catalog: Catalog) -> Iterator[Problem]:
    """How the minimal repro ended is not stored, is stored of another file, or is not how the incident ends.

    It has to fail as the incident does, and to train right with `--fixed`. How it ends with `--fixed` under other settings is
    stored too, in `settings.json`.
    Remedy: run `readyonce verify ID --environment current --stale --write`, or mend the script.
    """
    for incident, path, _ in _minimal(catalog):
        remedy = f"Run `readyonce verify {incident.id} --environment current --stale --write`."
        stored = path.with_name(MINIMAL_RUNS)
        if not incident.minimal:
            yield catalog.problem(path, 1, f"there is no {MINIMAL_RUNS} that tells how it ended", remedy)
        elif minimal.is_stale(catalog, incident):
            what = "it was stored with another file or environment"
            yield catalog.problem(stored, ("made_from",), what, remedy)
        elif not _names_no_error(catalog, incident):
            for fault in minimal.faults(incident, incident.minimal.fails, incident.minimal.fixed):
                yield catalog.problem(stored, (), fault, remedy)
            if not settings.can_be_set(catalog, incident):
                continue
            if not incident.settings:
                yield catalog.problem(
                    path, 1, f"there is no {SETTINGS} that tells how it ends with other settings", remedy
                )
            elif settings.is_stale(catalog, incident):
                what = "it was stored with another file or environment"
                yield catalog.problem(path.with_name(SETTINGS), ("made_from",), what, remedy)


def printed_not_stored(catalog: Catalog) -> Iterator[Problem]:
    """What other scripts of an incident print is not stored, or is stored of other files or calls.

    Its pages report those lines.
    Remedy: run `readyonce verify ID --environment NAME --stale --write`, or delete what no call is named for.
    """
    for incident in catalog.incidents.values():
        for environment in printed.stale(catalog, incident):
            remedy = f"Run `readyonce verify {incident.id} --environment {environment} --stale --write`."
            record = incident.printed_record(environment)
            if environment not in incident.printed_calls:
                what, remedy = "no call of incident.yml is named for this environment", "Delete it."
                yield catalog.problem(record, (), what, remedy)
            elif environment in incident.printed:
                what = "it was stored with another file, call or environment"
                yield catalog.problem(record, ("made_from",), what, remedy)
            else:
                what = f"there is no {record.relative_to(incident.folder)} that tells what these print"
                where = ("printed",) if environment == "current" else ("printed_in", environment)
                yield catalog.problem(incident.folder / "incident.yml", where, what, remedy)


def _names_no_error(catalog: Catalog, incident: Incident) -> bool:
    """Whether the incident leaves its error out, or names one that there is not: other rules say so."""
    reported = incident.meta.variants.get(BASELINE)
    left_out = not incident.meta.errors and reported is not None and reported.error is not None
    return left_out or not catalog.families.keys() >= set(incident.meta.errors)


def count_otherwise(catalog: Catalog) -> Iterator[Problem]:
    """A count under `snippets/concepts/` cannot be read, is not stored, or is none where the file says that it is some.

    Pages show the counts, and say in words what they show.
    Remedy: run `readyonce count NAME --write`, or mend `some:` and what pages say.
    """
    try:
        files, stored = counts.files(catalog), counts.evidence(catalog)
    except CatalogError as error:
        yield from error.problems
        return
    for name, file in files.items():
        path, run = catalog.root / counts.FOLDER / f"{name}.yml", f"Run `readyonce count {name} --write`."
        for environment in file.environments:
            for setting, declared in file.settings.items():
                count = stored[environment].count(name, setting) if environment in stored else None
                if file.runs_in(setting, environment) != (count is not None):
                    what = f"`{setting}` in `{environment}` is " + ("stored, not declared" if count else "not stored")
                    yield catalog.problem(path, ("settings", setting), what, run)
                elif count and (count.count > 0) != (environment in declared.some):
                    what = f"`{setting}` in `{environment}` counted {count.count} of {count.of}"
                    remedy = "Mend `some:`, and what pages say."
                    yield catalog.problem(path, ("settings", setting, "some"), what, remedy)
