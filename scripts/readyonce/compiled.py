"""What `diagnose`, `lint` and `explain` read: compiled from the project, or carried by the wheel where there is none.

Loads nothing but what it must, so that `diagnose` starts at once.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from readyonce import project
from readyonce.project import LANGUAGES

DATA = Path(__file__).with_name("data")  # in a wheel only: written by `write_data`


def rules(fresh: bool = False) -> str | None:
    """The compiled rules of `diagnose`, as JSON: the wheel's own, else the project's, compiled again when a source is newer,
    or with `fresh`.

    The compiler's own code is a source, and so are the folders, whose time changes when a file goes.
    """
    return _compiled("rules.json", ["diagnose.yml"], ["rules.py"], _compile, fresh)


def lint_rules(fresh: bool = False) -> str | None:
    """The compiled rules of `lint`, in the same way; their sources are the evidence too."""
    more = ["decision.yml", "facts.yml", "RO-*/evidence", "RO-*/evidence/*.json"]
    return _compiled(
        "lint.json", more, ["lint/rules.py", "rules.py", "conditions.py", "facts.py"], _compile_lint, fresh
    )


def _compiled(name: str, more: list[str], code: list[str], compiler: Callable[[Path], str], fresh: bool) -> str | None:
    if not fresh and (carried := DATA / name).is_file():
        return carried.read_text(encoding="utf-8")
    if (root := project.find()) is None:
        return None
    compiled, snippets = root / "build" / name, root / "snippets"
    patterns = ["errors", "errors/*.yml", "frameworks", "frameworks/*.yml", "frameworks/run/*.py", "RO-*/incident.yml"]
    sources = [snippets, *(path for pattern in patterns + more for path in snippets.glob(pattern))]
    sources += [
        Path(__file__).parent / file for file in ("reading.py", "schema.py", "catalog.py", "frameworks.py", *code)
    ]
    with contextlib.suppress(OSError):
        if not fresh and compiled.stat().st_mtime > max(source.stat().st_mtime for source in sources):
            return compiled.read_text(encoding="utf-8")
    text = compiler(root)
    with contextlib.suppress(OSError):  # a folder that cannot be written to is no reason to fail
        compiled.parent.mkdir(exist_ok=True)
        project.write_whole(compiled, text)
    return text


def articles() -> dict[str, list[Path]]:
    """The articles that the wheel carries: id → files, one for each language."""
    found: dict[str, list[Path]] = {}
    for path in sorted(DATA.glob("RO-*.txt")):
        found.setdefault(path.name[:7], []).append(path)
    return found


def write_data(root: Path, folder: Path) -> None:
    """What a wheel must carry for `diagnose`, `lint` and `explain`."""
    from readyonce import catalog, words
    from readyonce.pages.terminal import for_terminal

    folder.mkdir(parents=True, exist_ok=True)
    addresses = [os.environ.get(name) for name in ("SITE_URL", "REPO_URL")]
    (folder / "rules.json").write_text(_compile(root, *addresses), encoding="utf-8")
    (folder / "lint.json").write_text(_compile_lint(root, addresses[0]), encoding="utf-8")
    for language in LANGUAGES:
        (folder / words.name(language)).write_text(json.dumps(words.of(language), ensure_ascii=False), encoding="utf-8")
    known = catalog.load(root).require_sound()
    for id in known.incidents:
        for language in LANGUAGES:
            text = for_terminal(known, id, language, colour=True)
            (folder / f"{id}.{language}.txt").write_text(text, encoding="utf-8")


def _compile(root: Path, site: str | None = None, repo: str | None = None) -> str:
    from readyonce import catalog
    from readyonce import rules as compiler

    return compiler.to_json(compiler.compile_rules(catalog.load(root).require_sound(), site, repo))


def _compile_lint(root: Path, site: str | None = None) -> str:
    from readyonce import catalog
    from readyonce import rules as compiler
    from readyonce.lint import rules as lint

    return compiler.to_json(lint.compile_rules(catalog.load(root).require_sound(), site))
