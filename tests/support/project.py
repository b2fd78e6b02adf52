"""The project under test, its catalog, its runs, and copies of it."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from readyonce.data import catalog, facts, frameworks

EPOCH = "1790000000"
REPOSITORY = "https://forge.example.com/team/readyonce"
TESTS = Path(__file__).resolve().parents[1]
PACKAGES = TESTS.parent / "packages"  # each with its tests and its bench beside it
ROOT = catalog.find_root()  # $READYONCE_ROOT, so that the sabotage tests can aim this suite at a copy
KNOWN = catalog.load(ROOT)
RUNS = [
    pytest.param(incident.id, variant.name, environment, id=f"{incident.id}/{variant.name}@{environment}")
    for incident in KNOWN.incidents.values()
    for variant in incident.variants.values()
    for environment in variant.declared
    if not variant.is_command
]
REPROS = [
    pytest.param(i.id, name, id=f"{i.id}/{name}")
    for i in KNOWN.incidents.values()
    for name in i.meta.files
    if name.endswith(".py")
]


def as_in_a_terminal() -> None:
    """For `preexec_fn`: nohup and a shell's background have signals ignored, and so would their children."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


OPTIONAL = frozenset(name for name, fact in KNOWN.vocabulary.items() if fact.optional)


def fits(query: facts.Query, observed: catalog.Observed) -> bool | None:
    """As one run says it, without the index of all."""
    return facts.fits(query, observed.filled, OPTIONAL)


def selected(request, fixture: str) -> list[dict]:
    """The parameters of each selected test that uses the fixture; a parameter of the same name is another thing."""
    items = [item for item in request.session.items if fixture in getattr(item, "fixturenames", ())]
    return [item.callspec.params for item in items if fixture not in item.callspec.params]


def apart_at_most(script: str) -> float:
    """How far `concepts/right-gradients#frameworks` says that the gradient of a framework's script is from one process's."""
    return 0.004 if script.endswith(frameworks.ADAPTED) else 1e-6


def suite() -> list[Path]:
    """Each file of Python of the suite: below tests/, beside a package, and what they share."""
    beside = (path for folder in ("tests", "bench") for path in PACKAGES.glob(f"*/{folder}/*.py"))
    return sorted([*TESTS.rglob("*.py"), TESTS.parent / "conftest.py", *beside])


def copy_of(root: Path, target: Path) -> Path:
    for name in ("docs", "snippets", "scripts", "packages"):
        shutil.copytree(
            root / name, target / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for path in (*root.glob("mkdocs*.yml"), *(root / n for n in ("requirements.txt", "pyproject.toml", "README.md"))):
        if path.is_file():
            shutil.copy(path, target)
    (target / "tests").mkdir()
    shutil.copy(root / "tests" / "requirements.txt", target / "tests")  # the lock of the current environment
    return target


def bytes_of(folder: Path) -> dict[str, str]:
    """Each file below → its digest."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def edit(path: Path, find: str, replace: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert find in text, f"{path} has no {find!r}: the fixture is out of date"
    path.write_text(text.replace(find, replace, 1), encoding="utf-8")


# Runs a line of `sh` in a namespace in which an ordinary user may mount.
MOUNTING = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]


def command(
    *arguments: str, root: Path = ROOT, environment: Mapping[str, str] = {}, **options
) -> subprocess.CompletedProcess:
    """Run `readyonce`, as a user would, on a project."""
    return subprocess.run(
        [sys.executable, "-m", "readyonce.cli.main", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"READYONCE_ROOT": str(root)} | environment,
        **options,
    )
