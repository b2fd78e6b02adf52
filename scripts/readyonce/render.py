"""Writes what is generated: the includes that pages show, the JSON, front matter and navigation.

Includes go to `build/includes/<language>/`; a page names the same include in both languages.
Front matter, navigation and the lists of tags are committed, since the site's builder reads them; `write` mends
them and `write(only_check=True)` says which are out of date.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from readyonce import api, counts, decision, feed, frameworks, guard, keys, rules
from readyonce.catalog import Catalog
from readyonce.lint import page as lint
from readyonce.pages import incident as of_incident
from readyonce.pages.article import runs_table
from readyonce.pages.committed import committed
from readyonce.pages.errors import ErrorPage
from readyonce.pages.overview import Overview
from readyonce.project import LANGUAGES, Language


def write(catalog: Catalog, only_check: bool = False) -> list[str]:
    """Write everything; returns the committed files that were out of date."""
    stale = []
    for path, text in committed(catalog).items():
        if not path.is_file() or catalog.text(path) != text:
            stale.append(str(path.relative_to(catalog.root)))
            if not only_check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if not only_check:
        build = catalog.root / "build"
        fresh = {
            f"includes/{lang}/{name}": text for lang in LANGUAGES for name, text in includes(catalog, lang).items()
        }
        fresh |= {f"api/v1/{name}": text for name, text in api.files(catalog).items()}
        fresh |= {f"schema/{name}": text for name, text in keys.schemas().items()}
        fresh |= {f"beside/{name}": text for name, text in feed.files(catalog).items()}
        fresh |= {f"guard/{name}": text for name, text in guard.files(catalog).items()}
        compiled = rules.compile_rules(catalog, os.environ.get("SITE_URL"), os.environ.get("REPO_URL"))
        compiled["launches"] = lint.starts(catalog)
        fresh |= {f"javascripts/{lang}/rules.js": rules.to_script(compiled, lang) for lang in LANGUAGES}
        launches = lint.compiled(catalog)
        fresh |= {f"javascripts/{lang}/lint-rules.js": lint.to_script(launches, lang) for lang in LANGUAGES}
        _replace(build, ("includes", "api", "schema", "beside", "guard", "javascripts"), fresh)
    return stale


def _replace(build: Path, folders: Iterable[str], fresh: dict[str, str]) -> None:
    # Only what differs is written, so that a watcher sees only what changed.
    wanted = {f"{build}{os.sep}{os.path.normpath(name)}": text.encode() for name, text in fresh.items()}
    for path, data in wanted.items():
        try:
            with open(path, "rb", buffering=0) as file:
                same = file.read() == data
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            same = False
        if not same:
            with open(path, "wb") as file:
                file.write(data)
    for folder in folders:
        for place, _, names in os.walk(build / folder):
            for name in names:
                if os.path.join(place, name) not in wanted:
                    os.unlink(os.path.join(place, name))


def includes(catalog: Catalog, language: Language, whole: bool = True) -> dict[str, str]:
    """Every generated include of one language: name → Markdown or plain text.

    Not `whole`: for a check of names, sections and ids what takes long and has only its name is left empty.
    """
    overview, errors = Overview(catalog, language), ErrorPage(catalog, language)
    files = {
        # The tables stand on pages at two depths, so their links are made for each.
        "cards.md": overview.cards(),
        "incidents-here.md": (
            overview.incidents_by_error() if overview.many else overview.incident_table(overview.with_error)
        ),
        "incidents-silent.md": overview.incident_table(overview.silent),
        "errors.md": overview.errors(),
        "advice.md": overview.advice(overview.with_error),
        "advice-silent.md": overview.advice(overview.silent),
        "silent.md": overview.silent_runs(),
        "look-alikes.md": errors.look_alikes(),
        "changes.md": overview.changes() if whole else "",
        "two-hosts.md": overview.two_hosts(),
        "keys.md": keys.manual(language),
        "diagnose-links.md": diagnose_links(catalog),
        "diagnose-box.md": (catalog.root / "snippets" / "diagnose" / f"{language}.md").read_text(encoding="utf-8"),
        **counts.includes(catalog, language),
        **decision.includes(catalog, language),
        **frameworks.includes(catalog, language),
        **guard.includes(catalog, language),
        **lint.includes(catalog, language, whole),
    }
    files |= {f"errors/{family.family}.md": errors.parts(family) for family in catalog.listed("own")}
    files |= {f"errors/{family.source}": errors.look_alike(family) for family in catalog.listed("look-alikes")}
    for name, of_runs in catalog.tables.items():
        files[f"tables/{name}.md"] = runs_table(overview, catalog.fitting(of_runs.where)[0], "../incidents/")
    for incident in catalog.incidents.values():
        files |= of_incident.includes(catalog, incident, language)
    return files


def diagnose_links(catalog: Catalog) -> str:
    """Every page that a diagnosis may lead to; the script takes the addresses from here, as this build has them."""
    targets = {id: f"incidents/{id}.md" for id in catalog.incidents}
    targets |= {name: f"errors/{family.source}" for name, family in catalog.families.items()}
    targets |= {"errors": "errors/index.md", "decision": "decision.md"}
    if guard.files(catalog):
        targets["guard"] = "guard.md"
    return "".join(f'- [{name}]({target}){{ data-ro-to="{name}" }}\n' for name, target in targets.items())
