"""What the tests share: the project under test, its catalog, its runs, its built site."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from readyonce import catalog, lab, site

ROOT = catalog.find_root()  # $READYONCE_ROOT, so that the sabotage tests can aim this suite at a copy
KNOWN = catalog.load(ROOT)
RUNS = [
    pytest.param(incident.id, variant.name, environment, id=f"{incident.id}/{variant.name}@{environment}")
    for incident in KNOWN.incidents.values()
    for variant in incident.variants.values()
    for environment in variant.declared
]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def known() -> catalog.Catalog:
    return KNOWN.require_sound()


@pytest.fixture(scope="session")
def observed(request, known):
    """(incident, variant, environment) → what it did just now; one launch for all that is selected."""
    wanted = {
        tuple(item.callspec.params[key] for key in ("incident", "variant", "environment"))
        for item in request.session.items
        if "observed" in getattr(item, "fixturenames", ()) and "variant" in item.callspec.params
    }
    seen = {}
    for id, environment in sorted({(id, environment) for id, _, environment in wanted}):
        incident = known.incidents[id]
        python = lab.interpreter(known.root, environment, say=lambda line: print(line, file=sys.stderr))
        jobs = [(v, 1) for v in incident.variants.values() if (id, v.name, environment) in wanted]
        for observation in lab.together(known, incident, jobs, python):
            seen[id, observation.variant, environment] = observation
    return seen


@pytest.fixture(scope="session")
def built(root) -> Path:
    """The built wiki: `site/`."""
    assert site.build(root) == 0
    return root / "site"


@pytest.fixture
def copy(tmp_path) -> Path:
    """A copy of the project's sources, to be broken."""
    return copy_of(ROOT, tmp_path / "copy")


def copy_of(root: Path, target: Path) -> Path:
    for name in ("docs", "snippets", "scripts"):
        shutil.copytree(
            root / name, target / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for name in ("mkdocs.yml", "mkdocs.zh.yml", "requirements.txt", "pyproject.toml", "README.md"):
        if (root / name).is_file():
            shutil.copy(root / name, target / name)
    return target


def edit(path: Path, find: str, replace: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert find in text, f"{path} has no {find!r}: the fixture is out of date"
    path.write_text(text.replace(find, replace, 1), encoding="utf-8")


def command(*arguments: str, root: Path = ROOT, **options) -> subprocess.CompletedProcess:
    """Run `readyonce`, as a user would, on a project."""
    import os

    return subprocess.run(
        [sys.executable, "-m", "readyonce.cli", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"READYONCE_ROOT": str(root)},
        **options,
    )
