"""What the page of the lint shows: its answer for an example, and which launches it knows. Both are made when the site is."""

from __future__ import annotations

from readyonce.catalog import Catalog, Language
from readyonce.lint.judge import judge
from readyonce.lint.launch import Reader
from readyonce.lint.report import shown, summary, text
from readyonce.lint.rules import compile_rules
from readyonce.words import code, say, table

EXAMPLE = "lint/example.sh"  # under snippets/


def includes(catalog: Catalog, language: Language) -> dict[str, str]:
    rules = compile_rules(catalog)
    launches = Reader(rules["stacks"]).script("train.sh", catalog.text(catalog.root / "snippets" / EXAMPLE))
    found = [it for launch in launches for it in judge(rules, launch, {}, language)]
    told = [f"{text(shown(found, False), language)}", summary(found, len(launches), 1, False, language)]
    rows = [[say("library", language), say("commands", language)]]
    for framework in catalog.frameworks.values():
        if framework.commands and framework.launch:
            rows.append([framework.title[language], "<br>".join(map(code, framework.commands))])
    return {"lint/example.md": "\n".join(["```text", *told, "```", ""]), "lint/commands.md": table(rows)}
