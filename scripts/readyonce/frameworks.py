"""The fix in the reader's own stack: the tabs made from `snippets/frameworks/`, and whether runs prove what they say."""

from __future__ import annotations

import itertools
import json
import textwrap
from pathlib import Path
from typing import Any

from readyonce import articles
from readyonce.catalog import Catalog, add
from readyonce.facts import bounds, of_command, version
from readyonce.links import run_address
from readyonce.markup import cite_all, code, table
from readyonce.project import Language
from readyonce.reading import Keys
from readyonce.schema import (
    Default,
    Form,
    FrameworkFile,
    Setting,
    Versions,
)
from readyonce.words import say

WANTED: dict[Setting, tuple[str, object]] = {  # what a run must show
    "checkpointing": ("checkpointing", "non-reentrant"),
    "find-unused": ("find_unused_parameters", True),
}


# ------------------------------------------------------------------------------ showing


def shown(catalog: Catalog, form: Form) -> str:
    """The lines to write; from a script that is run, where it is Python."""
    if not form.code:
        return (form.option or form.yaml or "").rstrip()
    path, section = _code(catalog, form.code)
    try:
        return textwrap.dedent(articles.section(catalog.text(path), section)).rstrip()
    except (OSError, articles.MissingSection):
        return ""  # `readyonce check` says so; here it must not hide the other problems


def _code(catalog: Catalog, code: str) -> tuple[Path, str]:
    file, section = code.split(":")
    folder = catalog.root / "snippets"
    return (folder / file if "/" in file else folder / "frameworks" / "run" / file), section


def includes(catalog: Catalog, language: Language) -> dict[str, str]:
    """Tabs for each error with settings, for pages beside it; the same for pages at the top; the table of defaults."""
    files = {
        f"frameworks/{name}.md": tabs(catalog, family.settings, language, "../")
        for name, family in catalog.families.items()
        if family.settings
    }
    # An article has little room: of each framework the first form. The error's page, linked from there, has all.
    files |= {
        f"frameworks/{name}-first.md": tabs(catalog, family.settings[:1], language, "../", first=True)
        for name, family in catalog.families.items()
        if family.settings
    }
    both: list[Setting] = ["checkpointing", "find-unused"]
    files["frameworks/settings.md"] = tabs(catalog, both, language, "")
    files["frameworks/defaults.md"] = defaults(catalog, language)
    return files


def tabs(catalog: Catalog, settings: list[Setting], language: Language, up: str, first: bool = False) -> str:
    """A tab for each framework that has one of these settings; with `first` its first form alone, without proof."""
    parts = []
    for framework in catalog.frameworks.values():
        lines = []
        for setting in settings:
            forms = [form for form in framework.forms if form.setting == setting]
            if forms and setting != settings[0]:
                lines += [say(f"set-{setting}", language), ""]
            for form in forms[:1] if first else forms:
                lines += _form(catalog, framework, form, language, None if first else up)
        if lines:
            parts += [f'=== "{framework.title[language]}"', "", textwrap.indent("\n".join(lines), "    "), ""]
    return "\n".join(parts) + "\n"


def _form(catalog: Catalog, framework: FrameworkFile, form: Form, language: Language, up: str | None) -> list[str]:
    """Versions, code, words and proof; without `up`, from where the proof's links lead, the first two."""
    parts = (_versions(framework, form), form.when and form.when[language])
    head = say("comma", language).join(part for part in parts if part)
    lines = [f"**{head}**", ""] if head else []
    if lines_of_code := shown(catalog, form):
        lines += [f"```{form.language}", lines_of_code, "```", ""]
    if up is None:
        return lines + ([form.text[language], ""] if form.text and not lines_of_code else [])
    if form.text:
        lines += [form.text[language], ""]
    return [*lines, proof(catalog, form, language, up), "{ .ro-small }", ""]


def _versions(framework: FrameworkFile, versions: Versions) -> str:
    package = versions.package or framework.package
    return f"{package} {versions.range}" if package and versions.range else ""


def proof(catalog: Catalog, form: Form | Default, language: Language, up: str) -> str:
    """On what a form rests: a run, with its versions, or sources."""
    parts = []
    if form.run and form.run in catalog.stack_runs:
        run = catalog.stack_runs[form.run]
        versions = say("between", language).join(f"{name} {version}" for name, version in run.versions.items())
        parts.append(
            say(
                "stack-run",
                language,
                script=f"`snippets/frameworks/run/{form.run}`",
                date=run.date,
                versions=versions,
                count=run.processes,
            )
        )
    elif form.run and (found := catalog.run_named(form.run)):
        variant = found.run.variant
        link = f"[`{variant}`]({up}incidents/{run_address(found.incident.id, variant, found.environment)})"
        parts.append(say("stack-evidence", language, link=link, environment=code(found.environment)))
    if form.sources:
        parts.append(say("stack-source", language, cite_all(form.sources, language)))
    return say("next", language).join(parts)


def defaults(catalog: Catalog, language: Language) -> str:
    """Which checkpointing one gets who says nothing, by library and version."""
    rows = [[say(key, language) for key in ("library", "versions", "default", "sources")]]
    for framework in catalog.frameworks.values():
        for default in framework.defaults:
            where = [default.range, default.when and default.when[language]]
            value = say(f"checkpointing-{default.value}", language)
            text = say("aside", language, value, default.text[language]) if default.text else value
            name = framework.package or framework.title[language]
            cells = (
                name,
                say("comma", language).join(part for part in where if part) or say("all-versions", language),
                text,
            )
            rows.append(
                [*cells, proof(catalog, default, language, "") if default.run else cite_all(default.sources, language)]
            )
    return table(rows)


def compiled(catalog: Catalog) -> list[dict[str, Any]]:
    """What an engine of `diagnose` needs of it."""
    return [
        {
            "name": name,
            "title": framework.title.model_dump(),
            "logs": framework.logs,
            "forms": [
                {
                    "setting": form.setting,
                    "versions": _versions(framework, form),
                    "when": form.when.model_dump() if form.when else None,
                    "language": form.language,
                    "code": shown(catalog, form),
                    "text": form.text.model_dump() if form.text else None,
                    "proof": "run" if form.run else "source",
                }
                for form in framework.forms
            ],
        }
        for name, framework in catalog.frameworks.items()
    ]


def stack_of(catalog: Catalog, command: str | None) -> str | None:
    """The framework that a command belongs to."""
    for name, framework in catalog.frameworks.items():
        if any(
            f"{command} ".startswith(f"{begin} ") or f"{command}".startswith(f"{begin}.")
            for begin in framework.commands
        ):
            return name
    return None


# ------------------------------------------------------------------------------ checking


def check(catalog: Catalog) -> None:
    """Every form shows what is there, and what it rests on says what it says."""
    folder = catalog.root / "snippets" / "frameworks"
    for name, framework in catalog.frameworks.items():
        path = folder / f"{name}.yml"
        for index, form in enumerate(framework.forms):
            where = ("forms", index)
            if form.code:
                file, section = _code(catalog, form.code)
                if not file.is_file() or f"[start:{section}]" not in catalog.text(file):
                    remedy = f"Mark it there: # --8<-- [start:{section}] ... # --8<-- [end:{section}]"
                    add(catalog, path, (*where, "code"), f"there is no section `{section}` in {file.name}", remedy)
            if form.run:
                _check_run(catalog, path, (*where, "run"), form, form.run)
        for index, default in enumerate(framework.defaults):
            if default.run:
                _check_reached(catalog, path, ("defaults", index, "run"), default.run, "checkpointing", default.value)
    _check_launches(catalog, folder)
    for key in catalog.stack_runs:
        if not (folder / "run" / key.split()[0]).is_file():
            remedy = "Put it there, or take the run out."
            add(catalog, folder / "runs.json", ("runs", key), f"there is no script run/{key.split()[0]}", remedy)


def _check_launches(catalog: Catalog, folder: Path) -> None:
    """What a launch that says nothing is told to be, is what `defaults:` say: the two ranges are one."""
    for name, framework in catalog.frameworks.items():
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
                    add(catalog, folder / f"{name}.yml", ("defaults", index), what, "Give both the same range.")


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


def _check_run(catalog: Catalog, path: Path, where: Keys, form: Form, run: str) -> None:
    if run.startswith("RO-"):
        found = catalog.run_named(run)
        if not found:
            add(catalog, path, where, f"no run fits `{run}`", "Name it as RO-0001/VARIANT@ENVIRONMENT.")
        elif found.run.outcome != "match":
            what = f"`{run}` did not train right"
            add(catalog, path, where, what, "A fix counts only when the gradients are right. Name a run that shows it.")
        return
    key, wanted = WANTED.get(form.setting, ("checkpointing", None))
    _check_reached(catalog, path, where, run, key, form.reaches or wanted)


def _check_reached(catalog: Catalog, path: Path, where: Keys, run: str, key: str, wanted: object) -> None:
    """A stored run that ended well, and showed what is said."""
    stored = catalog.stack_runs.get(run)
    if stored is None:
        remedy = f"Run it: python -m readyonce.stack_runs ENVIRONMENT {run}"
        add(catalog, path, where, f"there is no stored run `{run}`", remedy)
        return
    if stored.error:
        add(catalog, path, where, f"`{run}` failed: {stored.error}", "Name a run that ended well.")
    if getattr(stored, key) != wanted:
        what = f"`{run}` showed {key}: {json.dumps(getattr(stored, key))}, not {json.dumps(wanted)}"
        add(catalog, path, where, what, "The run is right. Mend the form.")
