"""Rules of `snippets/frameworks/`: what a form shows is there, and what it rests on says so."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from readyonce.data.catalog import Catalog
from readyonce.data.facts import bounds, of_command, version
from readyonce.data.frameworks import ADAPTED, WANTED, code_of
from readyonce.data.reading import Keys, Problem
from readyonce.data.schema import Default, FrameworkFile
from readyonce.lab import framework_probe


def _files(catalog: Catalog) -> Iterator[tuple[Path, FrameworkFile]]:
    for name, framework in catalog.frameworks.items():
        yield catalog.root / "snippets" / "frameworks" / f"{name}.yml", framework


def form_without_section(catalog: Catalog) -> Iterator[Problem]:
    """`code: FILE:SECTION` of a form names a section that the script does not have.

    Pages show that section as what to write.
    Remedy: mark the section in the script.
    """
    for path, framework in _files(catalog):
        for index, form in enumerate(framework.forms):
            if form.code:
                file, section = code_of(catalog, form.code)
                if not file.is_file() or f"[start:{section}]" not in catalog.text(file):
                    what = f"there is no section `{section}` in {file.name}"
                    remedy = f"Mark it there: # --8<-- [start:{section}] ... # --8<-- [end:{section}]"
                    yield catalog.problem(path, ("forms", index, "code"), what, remedy)


def form_not_proven(catalog: Catalog) -> Iterator[Problem]:
    """The run of a form is not there, did not train right, or showed another setting than the form is for.

    A form counts as a fix only where runs show it, as it is printed and in bfloat16 with LoRA, AdamW and clipping.
    Remedy: name a run that shows it, or mend the form: the run is right.
    """
    for path, framework in _files(catalog):
        for index, form in enumerate(framework.forms):
            keys = ("forms", index, "run")
            if form.run and form.run.startswith("RO-"):
                found = catalog.run_named(form.run)
                if not found:
                    remedy = "Name it as RO-0001/VARIANT@ENVIRONMENT."
                    yield catalog.problem(path, keys, f"no run fits `{form.run}`", remedy)
                elif found.run.outcome != "match":
                    remedy = "A fix counts only when the gradients are right. Name a run that shows it."
                    yield catalog.problem(path, keys, f"`{form.run}` did not train right", remedy)
            elif form.run:
                key, wanted = WANTED.get(form.setting, ("checkpointing", None))
                problems = list(_not_reached(catalog, path, keys, form.run, key, form.reaches or wanted))
                problems += _not_right(catalog, path, keys, form.run)
                if not problems and not form.reaches:
                    adapted = f"{form.run} {ADAPTED}"
                    problems += _not_reached(catalog, path, keys, adapted, key, wanted)
                    problems += _not_right(catalog, path, keys, adapted)
                yield from problems


def default_not_proven(catalog: Catalog) -> Iterator[Problem]:
    """The run of a default is not there, failed, or showed another default.

    The table of defaults says what somebody gets who writes nothing.
    Remedy: name a run that shows it, or mend the default: the run is right.
    """
    for path, framework in _files(catalog):
        for index, default in enumerate(framework.defaults):
            if default.run:
                keys = ("defaults", index, "run")
                yield from _not_reached(catalog, path, keys, default.run, "checkpointing", default.value)


def _not_reached(catalog: Catalog, path: Path, keys: Keys, run: str, key: str, wanted: object) -> Iterator[Problem]:
    """Of a stored run that has to have ended well and to have shown what is wanted."""
    stored = catalog.stack_runs.get(run)
    if stored is None:
        remedy = f"Run it: python -m readyonce.lab.framework_probe ENVIRONMENT {run}"
        yield catalog.problem(path, keys, f"there is no stored run `{run}`", remedy)
        return
    if stored.error:
        yield catalog.problem(path, keys, f"`{run}` failed: {stored.error}", "Name a run that ended well.")
    if (shown := getattr(stored, key)) != wanted:
        what = f"`{run}` showed {key}: {json.dumps(shown)}, not {json.dumps(wanted)}"
        yield catalog.problem(path, keys, what, "The run is right. Mend the form.")


def _not_right(catalog: Catalog, path: Path, keys: Keys, run: str) -> Iterator[Problem]:
    """Of a stored run whose first gradient has to be one process's."""
    stored = catalog.stack_runs.get(run)
    if stored and not stored.error and not (stored.gradient and stored.gradient.alike):
        remedy = "A fix counts only when the gradients are right. Name a run that shows it."
        yield catalog.problem(path, keys, f"the gradient of `{run}` is not known to be one process's", remedy)


def default_and_launch_disagree(catalog: Catalog) -> Iterator[Problem]:
    """`launch:` tells another default of checkpointing than `defaults:` for the same release.

    `readyonce lint` reads the one, pages show the other.
    Remedy: give both the same range of releases.
    """
    for path, framework in _files(catalog):
        chain = [framework]
        while chain[-1].base in catalog.frameworks and len(chain) <= len(catalog.frameworks):
            chain.append(catalog.frameworks[chain[-1].base])
        rules = [
            rule.model_dump(by_alias=True, exclude={"sources"}, exclude_defaults=True)
            for base in chain
            for rule in base.launch
        ]
        rules = [rule for rule in rules if "strategy" not in rule["facts"]]
        for index, default in enumerate(framework.defaults if framework.launch else []):
            if default.when and not default.where:
                continue  # in words alone
            package = default.package or framework.package
            asked = default.where.get("strategy", "ddp")
            strategies = asked if isinstance(asked, list) else [asked]
            for release, strategy in itertools.product(_releases(default, rules, package), strategies):
                known = ({package: release} if package else {}) | {"strategy": str(strategy)}
                fact = of_command("", rules, known, {"gradient_checkpointing": "true"}).get("checkpointing")
                if fact not in (None, default.value):
                    what = f"with {package} {release} a launch is told to be {fact}, `defaults:` say {default.value}"
                    yield catalog.problem(path, ("defaults", index), what, "Give both the same range.")


def _releases(default: Default, rules: list[dict[str, Any]], package: str | None) -> list[str]:
    """The first release of a default, and those within it at which a rule turns."""
    wheres = [where for rule in rules if isinstance(where := rule.get("where", {}), dict)]
    turns = {bound for where in wheres if package in where for _, bound in bounds(where[package])}
    inside = [
        release
        for release in turns
        if (not default.since or version(release) > version(default.since))
        and (not default.before or version(release) < version(default.before))
    ]
    return [default.since or "0", *sorted(inside)]


def framework_run_stale(catalog: Catalog) -> Iterator[Problem]:
    """A stored run of a framework is of other files or another environment than today's.

    It may show what they no longer do.
    Remedy: run `python -m readyonce.lab.framework_probe ENVIRONMENT`.
    """
    folder = catalog.root / "snippets" / "frameworks"
    for key, seen in catalog.stack_runs.items():
        if not (folder / "run" / key.split()[0]).is_file():
            continue
        today = framework_probe.address(catalog, key, seen.environment)
        if differ := sorted(
            name for name in {**today, **seen.made_from} if today.get(name) != seen.made_from.get(name)
        ):
            named = seen.environment or f"PYTHON {key}"
            what = (
                f"it was stored with another {', '.join(differ)}" if seen.made_from else "it does not say what made it"
            )
            remedy = f"Run it again: python -m readyonce.lab.framework_probe {named}"
            yield catalog.problem(folder / "runs.json", ("runs", key), what, remedy)


def framework_run_without_script(catalog: Catalog) -> Iterator[Problem]:
    """A stored run of a framework names a script that does not exist.

    Nobody could repeat it.
    Remedy: put the script into `snippets/frameworks/run/`, or take the run out.
    """
    folder = catalog.root / "snippets" / "frameworks"
    for key in catalog.stack_runs:
        if not (folder / "run" / key.split()[0]).is_file():
            what = f"there is no script run/{key.split()[0]}"
            yield catalog.problem(folder / "runs.json", ("runs", key), what, "Put it there, or take the run out.")
