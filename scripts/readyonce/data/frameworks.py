"""The fix in the reader's own stack: the tabs made from `snippets/frameworks/`, and whether runs prove what they say."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from readyonce.data import articles
from readyonce.data.catalog import Catalog
from readyonce.data.links import run_address
from readyonce.data.markup import cite_all, code, table
from readyonce.data.project import Language
from readyonce.data.schema import Default, Form, FrameworkFile, Setting, Versions
from readyonce.data.words import say

ADAPTED = "bf16-lora"  # the word for the second setting of a script under `run/`
WANTED: dict[Setting, tuple[str, object]] = {  # what a run must show
    "checkpointing": ("checkpointing", "non-reentrant"),
    "find-unused": ("find_unused_parameters", True),
}


# ------------------------------------------------------------------------------ showing


def shown(catalog: Catalog, form: Form) -> str:
    """The lines to write; from a script that is run, where it is Python."""
    if not form.code:
        return (form.option or form.yaml or "").rstrip()
    path, section = code_of(catalog, form.code)
    try:
        return textwrap.dedent(articles.section(catalog.text(path), section)).rstrip()
    except (OSError, articles.MissingSection):
        return ""  # `readyonce check` says so; here it must not hide the other problems


def code_of(catalog: Catalog, code: str) -> tuple[Path, str]:
    """The script that a form's `code:` names, and the section."""
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
    # An article has little room: of each framework the first form, its own framework's before the others. The error's page,
    # linked from there, has all.
    files |= {
        f"frameworks/{name}-first{f'-{own}' if own else ''}.md": tabs(
            catalog, family.settings[:1], language, "../", first=True, own=own
        )
        for name, family in catalog.families.items()
        if family.settings
        for own in ("", *catalog.frameworks)
    }
    both: list[Setting] = ["checkpointing", "find-unused"]
    files["frameworks/settings.md"] = tabs(catalog, both, language, "")
    files["frameworks/defaults.md"] = defaults(catalog, language)
    return files


def tabs(
    catalog: Catalog, settings: list[Setting], language: Language, up: str, first: bool = False, own: str = ""
) -> str:
    """A tab for each framework that has one of these settings, `own` before the others; with `first` its first form alone,
    without proof."""
    parts = []
    for framework in sorted(catalog.frameworks.values(), key=lambda it: it.framework != own):
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
        adapted = catalog.stack_runs.get(f"{form.run} {ADAPTED}")
        if isinstance(form, Form) and adapted and adapted.gradient and run.gradient:
            link = f"{up}concepts/right-gradients.md#frameworks"
            plain, other = (f"{it.distance:g}" for it in (run.gradient, adapted.gradient))
            parts[-1] += say("stack-right", language, link=link, plain=plain, adapted=other)
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
            value = say(f"checkpointing-{default.value}", language)
            text = say("aside", language, value, default.text[language]) if default.text else value
            name = framework.package or framework.title[language]
            cells = (
                name,
                versions_of(default, language),
                text,
            )
            rows.append(
                [*cells, proof(catalog, default, language, "") if default.run else cite_all(default.sources, language)]
            )
    return table(rows)


def versions_of(default: Default, language: Language) -> str:
    """For which versions it is the default, and under which condition."""
    where = [default.range, default.when and default.when[language]]
    return say("comma", language).join(part for part in where if part) or say("all-versions", language)


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
