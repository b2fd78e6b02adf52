"""The fix in the reader's own stack: `snippets/frameworks/`, the tabs made from it, and the runs that prove it.

Each form of a setting is run, or stands in a source. `run/` holds the scripts; `run/watch.py` tells what reached torch, and
`python -m readyonce.frameworks ENVIRONMENT SCRIPT [WORD]` stores that in `runs.json`.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from readyonce import articles
from readyonce.catalog import (
    Affected,
    Catalog,
    EnvironmentName,
    Keys,
    Language,
    Model,
    NonEmpty,
    Rule,
    Setting,
    Slug,
    Source,
    Text,
    Title,
    add,
    read,
)
from readyonce.facts import Where, bounds, fits, of_command, version
from readyonce.words import WORDS, cite_all, code, run_address, say, table

Checkpointing = Literal["reentrant", "non-reentrant", "none"]
WANTED: dict[Setting, tuple[str, object]] = {  # what a run must show
    "checkpointing": ("checkpointing", "non-reentrant"),
    "find-unused": ("find_unused_parameters", True),
}
TIME_LIMIT = 600  # seconds for one script


class Versions(Model):
    package: NonEmpty | None = None  # whose versions these are, where it is not the framework's own
    since: NonEmpty | None = None
    before: NonEmpty | None = None
    when: Text | None = None  # what else must hold

    @property
    def range(self) -> str:
        return ", ".join(f"{sign} {it}" for sign, it in (("≥", self.since), ("<", self.before)) if it)


class Form(Versions):
    """How one setting is written. Without anything to write it cannot be set, and `reaches` is what one gets."""

    setting: Setting
    code: Annotated[str, StringConstraints(pattern=r"^[\w./-]+\.py:[\w-]+$")] | None = None  # FILE:SECTION
    option: NonEmpty | None = None
    yaml: NonEmpty | None = None
    reaches: Checkpointing | None = None
    text: Text | None = None
    run: NonEmpty | None = None  # a key of runs.json, or a run of an incident: RO-0001/VARIANT@ENVIRONMENT
    sources: list[Source] = []

    @model_validator(mode="after")
    def _shown_once_and_proven(self) -> Form:
        shown = [it for it in (self.code, self.option, self.yaml) if it]
        if len(shown) > 1 or (not shown and not self.text):
            raise ValueError("write one of `code:`, `option:` and `yaml:`, or `text:` where it cannot be set")
        if not self.run and not self.sources:
            raise ValueError("it has neither `run:` nor `sources:`")
        return self

    @property
    def language(self) -> str:
        return "python" if self.code else "bash" if self.option else "yaml"


class Default(Versions):
    """Which checkpointing one gets who says nothing."""

    value: Checkpointing
    where: Where = {}  # facts of the run for which it holds
    text: Text | None = None
    run: NonEmpty | None = None  # a key of runs.json
    sources: list[Source] = Field(min_length=1)


class FrameworkFile(Model):
    """`snippets/frameworks/<name>.yml`. With several in a log, the one with the highest `order` is the reader's."""

    framework: Slug
    title: Title
    order: int
    package: NonEmpty | None = None  # as its registry names it
    logs: list[NonEmpty] = []  # by any of these a log shows it
    commands: list[NonEmpty] = []  # how its commands begin
    forms: list[Form] = Field(min_length=1)
    defaults: list[Default] = []
    base: Slug | None = None  # the framework whose options it takes too
    keys: list[NonEmpty] = []  # by all of these a YAML file is known to be its own
    marks: list[NonEmpty] = []  # by any of these options a script is known to take its arguments
    processes: NonEmpty | None = None  # the variable that says how many; where it is not set, one
    launch: list[Rule] = []  # what a command tells of a run


class Seen(Model):
    """What a script in `run/` did. With an environment, the tests run it again."""

    date: str
    environment: EnvironmentName | None = None
    processes: int = 2
    checkpointing: Checkpointing
    find_unused_parameters: bool | None
    error: NonEmpty | None = None  # its first line, where the script failed
    versions: dict[str, str]


class RunsFile(Model):
    runs: dict[str, Seen]


def load(catalog: Catalog) -> tuple[dict[str, FrameworkFile], dict[str, Seen]]:
    """The files in their order, and the stored runs."""
    folder = catalog.root / "snippets" / "frameworks"
    found = {}
    for path in sorted(folder.glob("*.yml")):
        if file := read(catalog, path, FrameworkFile):
            if file.framework != path.stem:
                what = f"framework `{file.framework}` stands in {path.name}"
                add(catalog, path, ("framework",), what, f"Write `framework: {path.stem}`, or rename the file.")
            found[path.stem] = file
    runs = read(catalog, folder / "runs.json", RunsFile) if found else None
    ordered = dict(sorted(found.items(), key=lambda item: item[1].order))
    return ordered, runs.runs if runs else {}


def resolve(catalog: Catalog, path: Path, index: int, entry: Affected) -> Affected:
    """With `default:`, the package and the range in which that framework's default is reentrant."""
    if entry.default is None:
        return entry
    framework = catalog.frameworks.get(entry.default)
    facts = {name: value for name, value in entry.where.items() if not isinstance(value, list)}
    fitting = [it for it in framework.defaults if fits(it.where, facts)] if framework else []
    found = [it for it in fitting if it.value == "reentrant"]
    what = ""
    if framework is None:
        what = f"there is no framework `{entry.default}`"
    elif not found:
        what = f"no default of `{entry.default}` that fits is reentrant"
    elif any(one.before != other.since for one, other in itertools.pairwise(found)):
        what = f"the reentrant defaults of `{entry.default}` that fit are no single range"
    if framework is None or what:
        remedy = "Name a framework of snippets/frameworks/ with such `defaults:`, or write `package:` and its range."
        add(catalog, path, ("affected", index, "default"), what, remedy)
        return entry.model_copy(update={"package": entry.default})
    package = found[0].package or framework.package
    return entry.model_copy(update={"package": package, "introduced": found[0].since, "fixed": found[-1].before})


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


def _versions(framework: FrameworkFile, it: Versions) -> str:
    package = it.package or framework.package
    return f"{package} {it.range}" if package and it.range else ""


def proof(catalog: Catalog, form: Form | Default, language: Language, up: str) -> str:
    """On what a form rests: a run, with its versions, or sources."""
    parts = []
    if form.run and form.run in catalog.stack_runs:
        seen = catalog.stack_runs[form.run]
        versions = say("between", language).join(f"{name} {version}" for name, version in seen.versions.items())
        parts.append(
            WORDS["stack-run"][language].format(
                script=f"`snippets/frameworks/run/{form.run}`", date=seen.date, versions=versions, count=seen.processes
            )
        )
    elif form.run and (found := catalog.run_named(form.run)):
        variant = found.run.variant
        link = f"[`{variant}`]({up}incidents/{run_address(found.incident.id, variant, found.environment)})"
        parts.append(WORDS["stack-evidence"][language].format(link=link, environment=code(found.environment)))
    if form.sources:
        parts.append(WORDS["stack-source"][language].format(cite_all(form.sources, language)))
    return say("next", language).join(parts)


def defaults(catalog: Catalog, language: Language) -> str:
    """Which checkpointing one gets who says nothing, by library and version."""
    rows = [[say(key, language) for key in ("library", "versions", "default", "sources")]]
    for framework in catalog.frameworks.values():
        for it in framework.defaults:
            where = [it.range, it.when and it.when[language]]
            value = say(f"checkpointing-{it.value}", language)
            told = WORDS["aside"][language].format(value, it.text[language]) if it.text else value
            name = framework.package or framework.title[language]
            cells = (
                name,
                say("comma", language).join(part for part in where if part) or say("all-versions", language),
                told,
            )
            rows.append([*cells, proof(catalog, it, language, "") if it.run else cite_all(it.sources, language)])
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
            for it in chain
            for rule in it.launch
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
                told = of_command("", rules, known, {"gradient_checkpointing": "true"}).get("checkpointing")
                if told not in (None, default.value):
                    what = f"with {package} {release} a launch is told to be {told}, `defaults:` say {default.value}"
                    add(catalog, folder / f"{name}.yml", ("defaults", index), what, "Give both the same range.")


def _releases(default: Default, rules: list[dict[str, Any]], package: str | None) -> list[str]:
    """The first release of a default, and those within it at which a rule turns."""
    wheres = [where for rule in rules if isinstance(where := rule.get("where", {}), dict)]
    turns = {bound for where in wheres if package in where for _, bound in bounds(where[package])}
    inside = [
        it
        for it in turns
        if (not default.since or version(it) > version(default.since))
        and (not default.before or version(it) < version(default.before))
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
    seen = catalog.stack_runs.get(run)
    if seen is None:
        remedy = f"Run it: python -m readyonce.frameworks ENVIRONMENT {run}"
        add(catalog, path, where, f"there is no stored run `{run}`", remedy)
        return
    if seen.error:
        add(catalog, path, where, f"`{run}` failed: {seen.error}", "Name a run that ended well.")
    if getattr(seen, key) != wanted:
        what = f"`{run}` showed {key}: {json.dumps(getattr(seen, key))}, not {json.dumps(wanted)}"
        add(catalog, path, where, what, "The run is right. Mend the form.")


# ------------------------------------------------------------------------------ running


def run(root: Path, python: Path, script: str, *words: str) -> dict[str, Any]:
    """Run a script under `watch.py` in two processes; returns what reached torch."""
    from readyonce import lab

    folder = root / "snippets" / "frameworks" / "run"
    command = [*lab.torchrun(python, 2), folder / "watch.py", folder / script, *words]
    with tempfile.TemporaryDirectory() as scratch:
        running = lab.running(command, python, scratch, {"CUDA_VISIBLE_DEVICES": ""})
        with running as process, suppress(subprocess.TimeoutExpired):
            process.wait(TIME_LIMIT)
        said = lab.log_of(scratch)
    if found := re.search(r"RESULT (\{.*\})$", said, re.MULTILINE):
        told: dict[str, Any] = json.loads(found[1])
        return told
    raise RuntimeError(f"{script} {' '.join(words)} told nothing: {lab.message_in(said) or said[-3000:]}")


def main(environment: str, script: str, *words: str) -> None:
    """`environment` is one of snippets/environments/, or the Python of one that is no list here."""
    from readyonce import catalog, lab

    root = catalog.find_root()
    listed = os.path.sep not in environment
    python = lab.interpreter(root, environment) if listed else Path(environment)
    path = root / "snippets" / "frameworks" / "runs.json"
    stored = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.is_file() else {}
    told = {"date": datetime.date.today().isoformat(), "environment": environment if listed else None, "processes": 2}
    told |= run(root, python, script, *words)
    stored[" ".join((script, *words))] = told
    path.write_text(json.dumps({"runs": dict(sorted(stored.items()))}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
