"""What `diagnose`, `lint`, `explain` and `list` read: compiled from the project, or carried by the wheel where there is none.

Loads nothing but what it must, so that `diagnose` starts at once.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from readyonce import project
from readyonce.project import LANGUAGES, Language

HERE = Path(__file__).parent
DATA = HERE / "data"  # in a wheel only: written by `write_data`


def rules(fresh: bool = False) -> str | None:
    """The compiled rules of `diagnose`, as JSON: the wheel's own, else the project's, compiled again when a source is newer,
    or with `fresh`.

    The compiler's own code is a source, and so are the folders, whose time changes when a file goes.
    """
    return _compiled("rules.json", ["diagnose.yml"], ["rules.py"], _compile, fresh)


def lint_rules(fresh: bool = False) -> str | None:
    """The compiled rules of `lint`, in the same way; their sources are the evidence too."""
    more = ["decision.yml", "facts.yml", "RO-*/evidence", "RO-*/evidence/*.json"]
    code = ["lint/rules.py", "lint/launch.py", "lint/shell.py", "rules.py", "conditions.py", "facts.py"]
    return _compiled("lint.json", more, code, _compile_lint, fresh)


def listing() -> dict[str, str] | None:
    """What `list` prints: language → lines, and `json` → the same for programs."""
    patterns, code = ["errors/*.yml", "RO-*/evidence", "RO-*/evidence/*.json"], ["api.py", "pages/terminal.py"]
    text = _compiled("listing.json", patterns, code, _compile_listing)
    return None if text is None else json.loads(text)


def article(id: str, language: Language) -> str | None:
    """An article as text for a terminal, in colour. What it says rests on the runs of all incidents."""
    ours = (path for path in HERE.rglob("*") if path.is_file() and path.suffix != ".pyc")  # templates too
    code = [path.relative_to(HERE).as_posix() for path in ours if DATA not in path.parents]
    everything = ["**/*", f"../docs/{language}/incidents/{id}.md", f"../docs/{language}/incidents/{id}/evidence.md"]
    return _compiled(f"{id}.{language}.txt", everything, code, lambda root: _compile_article(root, id, language))


def incidents() -> list[str]:
    """The ids of all that there are articles of."""
    carried, root = {path.name[:7] for path in DATA.glob("RO-*.txt")}, project.find()
    here = {path.name for path in (root / "snippets").glob("RO-*")} if root else set()
    return sorted(carried or here)


def _compiled(
    name: str, more: list[str], code: list[str], compiler: Callable[[Path], str], fresh: bool = False
) -> str | None:
    """The text that the wheel carries, else the project's, made again when one of its sources is newer."""
    if not fresh and (carried := DATA / name).is_file():
        return carried.read_text(encoding="utf-8")
    if (root := project.find()) is None:
        return None
    compiled, snippets = root / "build" / name, root / "snippets"
    patterns = ["errors", "errors/*.yml", "frameworks", "frameworks/*.yml", "frameworks/run/*.py", "RO-*/incident.yml"]
    sources = [snippets, *(path for pattern in patterns + more for path in snippets.glob(pattern))]
    sources += [HERE / file for file in ("reading.py", "schema.py", "catalog.py", "frameworks.py", *code)]
    with contextlib.suppress(OSError):
        if not fresh and compiled.stat().st_mtime > max(source.stat().st_mtime for source in sources):
            return compiled.read_text(encoding="utf-8")
    text = compiler(root)
    with contextlib.suppress(OSError):  # a folder that cannot be written to is no reason to fail
        compiled.parent.mkdir(exist_ok=True)
        project.write_whole(compiled, text)
    return text


def write_data(root: Path, folder: Path) -> None:
    """What a wheel must carry for `diagnose`, `lint`, `explain` and `list`."""
    from readyonce import catalog, words

    folder.mkdir(parents=True, exist_ok=True)
    addresses = [os.environ.get(name) for name in ("SITE_URL", "REPO_URL")]
    (folder / "rules.json").write_text(_compile(root, *addresses), encoding="utf-8")
    (folder / "lint.json").write_text(_compile_lint(root, addresses[0]), encoding="utf-8")
    for language in LANGUAGES:
        (folder / words.name(language)).write_text(json.dumps(words.of(language), ensure_ascii=False), encoding="utf-8")
    (folder / "listing.json").write_text(_compile_listing(root), encoding="utf-8")
    for id in catalog.load(root).require_sound().incidents:
        for language in LANGUAGES:
            (folder / f"{id}.{language}.txt").write_text(_compile_article(root, id, language), encoding="utf-8")


def _compile(root: Path, site: str | None = None, repo: str | None = None) -> str:
    from readyonce import catalog
    from readyonce import rules as compiler

    return compiler.to_json(compiler.compile_rules(catalog.load(root).require_sound(), site, repo))


def _compile_lint(root: Path, site: str | None = None) -> str:
    from readyonce import catalog
    from readyonce import rules as compiler
    from readyonce.lint import rules as lint

    return compiler.to_json(lint.compile_rules(catalog.load(root).require_sound(), site))


def _compile_article(root: Path, id: str, language: Language) -> str:
    from readyonce import catalog
    from readyonce.pages.terminal import for_terminal

    return for_terminal(catalog.load(root).require_sound(), id, language, colour=True)


def _compile_listing(root: Path) -> str:
    from readyonce import api, catalog
    from readyonce.pages.terminal import listing

    known = catalog.load(root).require_sound()
    texts = {language: listing(known, language) for language in LANGUAGES}
    return json.dumps(texts | {"json": api.to_json(api.incidents_json(known))}, ensure_ascii=False)
