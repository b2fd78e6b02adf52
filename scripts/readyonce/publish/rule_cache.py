"""What `diagnose`, `triage`, `lint`, `explain`, `list`, `facts` and `link` read: compiled from the project, or carried by the
wheel where there is none.

Loads nothing but what it must, so that `diagnose` starts at once.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from readyonce.data import links, project
from readyonce.data.inputs import Unusable
from readyonce.data.project import INCIDENT_FOLDERS, LANGUAGES, PACKED, Language

if TYPE_CHECKING:
    from readyonce.data.catalog import Catalog
    from readyonce.data.stored_runs import StoredRuns
    from readyonce.diagnose.engine import Rules

T = TypeVar("T")
PACKAGE = Path(__file__).parents[1]
# The folders are sources, too: their time changes when a file goes.
SOURCES = ["errors", "errors/*.yml", "frameworks", "frameworks/*.yml", "frameworks/run/*.py"]
SOURCES += [f"{INCIDENT_FOLDERS}/{name}" for name in ("incident.yml", "minimal.json", "evidence", "evidence/*.json")]
CODE = [
    f"data/{name}.py" for name in ("reading", "schema", "catalog", "frameworks", "conditions", "facts", "stored_runs")
]


class Compiled(NamedTuple):
    """A text that is compiled from the catalogue, once for as long as none of its sources is newer."""

    name: str
    compile: Callable[[Catalog], str]
    code: Iterable[str]  # which compiles it, in the package, beside `CODE`
    sources: Iterable[str] = ()  # below `snippets/`, beside `SOURCES`
    only: str | None = None  # the one incident that it is of

    def read(self, load: Callable[[str], T]) -> T:
        """What `load` makes of the text; one that was damaged on the disk is compiled anew."""
        try:
            return load(self.text())
        except (ValueError, KeyError, TypeError, AttributeError):
            return load(self.text(fresh=True))

    def text(self, fresh: bool = False) -> str:
        """The text that the wheel carries, else the project's. Raises `Unusable` where there is neither."""
        if not (fresh or project.is_named()) and (carried := PACKED / self.name).is_file():
            return carried.read_text(encoding="utf-8")
        if (root := project.find()) is None:
            raise Unusable("there is nothing to read here. Run it in the project's folder, or install the wheel")
        compiled = root / "build" / self.name
        with contextlib.suppress(OSError):
            if not fresh and compiled.stat().st_mtime > max(source.stat().st_mtime for source in self._sources(root)):
                return compiled.read_text(encoding="utf-8")
        text = self.compile(_known(root, self.only))
        with contextlib.suppress(OSError):  # a folder that cannot be written to is no reason to fail
            compiled.parent.mkdir(exist_ok=True)
            project.write_whole(compiled, text)
        return text

    def _sources(self, root: Path) -> Iterator[Path]:
        yield root / "snippets"
        for pattern in (*SOURCES, *self.sources):
            yield from (root / "snippets").glob(pattern)
        yield from (PACKAGE / file for file in (*CODE, *self.code))


def _known(root: Path, only: str | None = None) -> Catalog:
    from readyonce.data import catalog

    return catalog.load(root, only).require_sound()


# ------------------------------------------------------------------------------ as the commands read it


def rules() -> Rules:
    """The rules of `diagnose`, with the addresses of the pages and of new issues that the environment names."""
    from readyonce.diagnose import engine

    loaded = RULES.read(engine.load)
    loaded.data["site"] = _site(loaded.data["site"])
    if repository := os.environ.get("REPO_URL"):
        loaded.data["issue"] = links.new_issue(repository)
    return loaded


def lint_rules() -> dict[str, Any]:
    """The rules of `lint`, with the address of the pages that the environment names."""
    loaded = LINT.read(_json_with("site", "cells", "stacks", "incidents", "signs"))
    return loaded | {"site": _site(loaded["site"])}


def listing(form: str) -> str:
    """What `list` prints: the lines in a language, or `json`, the same for programs."""
    lines: str = LISTING.read(_json_with(form))[form]
    return lines


def article(id: str, language: Language) -> str:
    """An article as text for a terminal, in colour."""
    return _article(id, language).text()


def stored_runs() -> StoredRuns:
    """The runs that `facts` asks."""
    from readyonce.data.stored_runs import StoredRuns

    return FACTS.read(StoredRuns)


def link_targets(id: str) -> dict[str, Any]:
    """The sections of an incident that `link` leads to."""
    return _link_targets(id).read(_json_with("short", "sections"))


def incidents() -> list[str]:
    """The ids of all that there are articles of."""
    packed = () if project.is_named() else PACKED.glob(f"{INCIDENT_FOLDERS}.*.txt")
    carried, root = {path.name.partition(".")[0] for path in packed}, project.find()
    here = {path.name for path in (root / "snippets").glob(INCIDENT_FOLDERS)} if root else set()
    if not carried and not here:
        raise Unusable("there are no incidents here. Run it in the project's folder, or install the wheel")
    return sorted(carried or here)


def _site(compiled: str) -> str:
    return os.environ.get("SITE_URL", compiled).rstrip("/")


def _json_with(*keys: str) -> Callable[[str], dict[str, Any]]:
    """Loads a JSON text; a `KeyError` where it lacks one of these keys."""

    def load(text: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(text)
        return loaded | {key: loaded[key] for key in keys}

    return load


# ------------------------------------------------------------------------------ what is compiled


def _compile_rules(known: Catalog, site: str | None = None, repo: str | None = None) -> str:
    from readyonce.rules import diagnose

    return diagnose.to_json(diagnose.compile_rules(known, site, repo))


def _compile_lint(known: Catalog, site: str | None = None) -> str:
    from readyonce.rules import diagnose, lint

    return diagnose.to_json(lint.compile_rules(known, site))


def _compile_facts(known: Catalog) -> str:
    from readyonce.rules import diagnose, facts

    return diagnose.to_json(facts.compile_runs(known))


def _compile_listing(known: Catalog) -> str:
    from readyonce.pages.terminal import listing
    from readyonce.publish import api

    texts = {language: listing(known, language) for language in LANGUAGES}
    return json.dumps(texts | {"json": api.to_json(api.incidents_json(known))}, ensure_ascii=False)


RULES = Compiled("rules.json", _compile_rules, ["rules/diagnose.py", "diagnose/matching.toml"], ["diagnose.yml"])
LINT = Compiled(
    "lint.json",
    _compile_lint,
    ["rules/lint.py", "rules/diagnose.py", "launches/reader.py", "launches/shell.py", "data/models.py"],
    [
        "decision.yml",
        "facts.yml",
        "models.yml",
        f"{INCIDENT_FOLDERS}/printed.json",
        f"{INCIDENT_FOLDERS}/printed/*.json",
    ],
)
FACTS = Compiled("facts.json", _compile_facts, ["rules/facts.py"], ["facts.yml", f"{INCIDENT_FOLDERS}/*"])
LISTING = Compiled("listing.json", _compile_listing, ["publish/api.py", "pages/terminal.py"])


def _article(id: str, language: Language) -> Compiled:
    """An article; what it says rests on the runs of all incidents, and on templates."""

    def compile(known: Catalog) -> str:
        from readyonce.pages.terminal import for_terminal

        return for_terminal(known, id, language, colour=True)

    ours = (path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    code = (path.relative_to(PACKAGE).as_posix() for path in ours if PACKED not in path.parents)
    return Compiled(f"{id}.{language}.txt", compile, code, ["**/*", *_pages(id, language)])


def _link_targets(id: str) -> Compiled:
    def compile(known: Catalog) -> str:
        from readyonce.pages.link_targets import compile_targets

        return json.dumps(compile_targets(known, id), ensure_ascii=False)

    code = ["data/articles.py", "pages/link_targets.py"]
    return Compiled(f"{id}.link.json", compile, code, _pages(id, "*"), only=id)


def _pages(id: str, language: str) -> list[str]:
    return [f"../docs/{language}/incidents/{id}.md", f"../docs/{language}/incidents/{id}/evidence.md"]


def write_data(root: Path, folder: Path) -> None:
    """What a wheel must carry for the commands that read compiled data."""
    import tarfile

    from readyonce.data import overlay, words

    known = _known(root)
    site, repository = (os.environ.get(name) for name in ("SITE_URL", "REPO_URL"))
    texts = {RULES.name: _compile_rules(known, site, repository), LINT.name: _compile_lint(known, site)}
    texts |= {words.name(language): json.dumps(words.of(language), ensure_ascii=False) for language in LANGUAGES}
    articles = [_article(id, language) for id in known.incidents for language in LANGUAGES]
    for compiled in (FACTS, LISTING, *articles, *map(_link_targets, known.incidents)):
        texts[compiled.name] = compiled.compile(known)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    with tarfile.open(folder / project.PROJECT.name, "w:xz", preset=9) as archive:
        for path in sorted(overlay.shared(root)):
            entry = archive.gettarinfo(path, path.relative_to(root).as_posix())
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""  # the same bytes each time
            with path.open("rb") as file:
                archive.addfile(entry, file)
