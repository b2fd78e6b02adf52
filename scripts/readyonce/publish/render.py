"""Writes what is generated: the includes that pages show, the JSON, front matter and navigation.

Includes go to `build/includes/<language>/`; a page names the same include in both languages.
Front matter, navigation and the lists of tags are committed, since the site's builder reads them; `write` mends
them and `write(only_check=True)` says which are out of date.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from readyonce.data import project
from readyonce.data.catalog import Catalog
from readyonce.data.project import LANGUAGES
from readyonce.pages import guard, includes, lint, schema_docs
from readyonce.pages.committed import committed
from readyonce.publish import api, feed
from readyonce.rules import diagnose


def write(catalog: Catalog, only_check: bool = False) -> list[str]:
    """Write everything; returns the committed files that were out of date."""
    stale = []
    for path, text in committed(catalog).items():
        if not path.is_file() or catalog.text(path) != text:
            stale.append(str(path.relative_to(catalog.root)))
            if not only_check:
                path.parent.mkdir(exist_ok=True)
                project.write_whole(path, text)
    if not only_check:
        build = catalog.root / "build"
        fresh = {
            f"includes/{lang}/{name}": text
            for lang in LANGUAGES
            for name, text in includes.every(catalog, lang).items()
        }
        fresh |= {f"api/v1/{name}": text for name, text in api.files(catalog).items()}
        fresh |= {f"schema/{name}": text for name, text in schema_docs.schemas().items()}
        fresh |= {f"beside/{name}": text for name, text in feed.files(catalog).items()}
        fresh |= {f"guard/{name}": text for name, text in guard.files(catalog).items()}
        compiled = diagnose.compile_rules(catalog, os.environ.get("SITE_URL"), os.environ.get("REPO_URL"))
        compiled["launches"] = lint.starts(catalog)
        fresh |= {f"javascripts/{lang}/rules.js": diagnose.to_script(compiled, lang) for lang in LANGUAGES}
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
