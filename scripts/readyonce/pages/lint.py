"""What pages show of the lint: on its own page its answer for an example and which launches it knows; on Diagnose the rules
and the words for docs/theme/javascripts/lint.js, which judges a pasted launch. All are made when the site is."""

from __future__ import annotations

from typing import Any

from readyonce.data.catalog import Catalog
from readyonce.data.markup import code, table
from readyonce.data.project import LANGUAGES, Language
from readyonce.data.words import of, say
from readyonce.launches.reader import LAUNCHERS, Reader
from readyonce.lint import judge as judging
from readyonce.lint import report
from readyonce.rules import diagnose as diagnosis
from readyonce.rules.lint import compile_rules

EXAMPLE = "lint/example.sh"  # under snippets/


def words() -> dict[str, dict[str, str]]:
    """All that the page says of a launch: the engine's own words, the command's where they are the same, and the page's."""
    shared = (
        "add",
        "keep",
        "replace",
        "guard",
        "compare",
        "unknown",
        "run-guard",
        "run-compare",
        "with",
        "right",
        "next",
        *judging.LEVELS,
        *(f"{level}s" for level in judging.LEVELS),
    )
    keys = {f"of-{key}": f"lint-report.{key}" for key in shared}
    keys |= {key.partition(".")[2]: key for key in of(LANGUAGES[0]) if key.startswith(("lint.", "lint-page."))}
    return {name: {language: of(language)[key] for language in LANGUAGES} for name, key in keys.items()}


def compiled(catalog: Catalog) -> dict[str, Any]:
    """The rules of the command and the words of the page. Addresses are those of the page's own links, so `site` is empty."""
    return {**compile_rules(catalog), "words": words(), "incidents": []}  # of code, Diagnose itself says where to look


def to_script(rules: dict[str, Any], language: Language) -> str:
    return f"window.readyonceLintRules = {diagnosis.to_json(diagnosis.only(rules, language))};\n"


def starts(catalog: Catalog) -> list[str]:
    """The words by which a text is told to hold a launch, before the lint is loaded."""
    found = set(LAUNCHERS)
    for framework in catalog.frameworks.values():
        found |= {command.removeprefix("python -m ").split()[0] for command in framework.commands}
        found |= set(framework.keys[-1:])
    return sorted(found)


def includes(catalog: Catalog, language: Language) -> dict[str, str]:
    rules = compile_rules(catalog)
    launches = Reader(rules["stacks"], rules["models"]).script(
        "train.sh", catalog.text(catalog.root / "snippets" / EXAMPLE)
    )
    answers = judging.answers(rules, launches, {}, language)
    texts = [report.terminal(answers, [], False, language), report.summary(answers, [], 1, False, language)]
    rows = [[say("library", language), say("commands", language)]]
    for framework in catalog.frameworks.values():
        if framework.commands and framework.launch:
            rows.append([framework.title[language], "<br>".join(map(code, framework.commands))])
    return {
        "lint/example.md": "\n".join(["```text", *texts, "```", ""]),
        "lint/commands.md": table(rows),
        "lint/models.md": _models(catalog, {*rules["models"].values()}, language),
        "lint/examples.md": catalog.text(catalog.root / "snippets" / "lint" / f"examples.{language}.md"),
    }


def _models(catalog: Catalog, known: set[str], language: Language) -> str:
    """Which names are known, by class: a table."""
    rows = [[say("lint-models.class", language), say("lint-models.names", language)]]
    rows += [[code(kind), "<br>".join(map(code, names))] for kind, names in catalog.models.items() if kind in known]
    return table(rows)
