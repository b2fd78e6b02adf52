"""What `readyonce check` finds, for contributors: read from the docstrings of its rules, which stand above this folder."""

from __future__ import annotations

import ast
from pathlib import Path

from readyonce.data.markup import table

CHECK = Path(__file__).parents[1] / "check"


def explained() -> dict[str, tuple[str, str, str]]:
    """Name of a rule → what it catches, why, and the remedy."""
    found = {}
    for path in sorted(CHECK.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if (
                isinstance(node, ast.FunctionDef)
                and node.name[0] != "_"
                and ast.unparse(node.args) == "catalog: Catalog"
            ):
                sentence, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
                why, _, remedy = rest.partition("Remedy: ")
                if remedy:
                    found[node.name] = (" ".join(sentence.split()), why.strip(), " ".join(remedy.split()))
    return found


def manual() -> str:
    """A table of all rules; English in both languages, as their answers are."""
    rows = [[f"`{name}`", f"{sentence} *Remedy:* {remedy}"] for name, (sentence, _, remedy) in explained().items()]
    return table([["Rule", "What it finds"], *rows])
