"""Which class of transformers a model's name stands for, and what a training step of that class does with its modules.

`snippets/models.yml` has the names. What the classes do is what `RO-0001/forwards.py` printed, in each release of
transformers that it was run with.
"""

from __future__ import annotations

import itertools
import re

from readyonce.data.catalog import Catalog

SCRIPT = "forwards.py"
ONCE = "each module once, each parameter in one place"


def printed(catalog: Catalog) -> dict[str, list[str]]:
    """Class → what the script printed of it, an entry for each environment."""
    found: dict[str, list[str]] = {}
    for incident in catalog.incidents.values():
        for record in incident.printed.values():
            for line in record.lines.get(SCRIPT, []):
                kind, _, said = line.partition(": ")
                found.setdefault(kind, []).append(said)
    return found


def named(catalog: Catalog) -> dict[str, str]:
    """Name → class, of the classes that run each module once in every release that was run."""
    said = printed(catalog)
    known = {kind: names for kind, names in catalog.models.items() if set(said.get(kind, [])) == {ONCE}}
    return {name: kind for kind, patterns in known.items() for pattern in patterns for name in expanded(pattern)}


def expanded(pattern: str) -> list[str]:
    """`a-{1,2}{,-b}` → `a-1`, `a-1-b`, `a-2`, `a-2-b`."""
    parts = re.split(r"\{([^{}]*)\}", pattern)
    choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]
