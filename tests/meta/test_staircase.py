"""Each step of the tests needs no more than it says, and no test imports a test."""

import ast
import functools
import os
import subprocess
import sys
from importlib import metadata

import pytest

from support.project import ROOT, TESTS, suite
from support.selection import imported

UNIT = [*sorted((TESTS / "unit").glob("test_*.py")), *sorted((TESTS / "whole").glob("test_*.py"))]
ABSENT = """
import sys
{names}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in NAMES:
            raise ModuleNotFoundError(f"not installed here: {{name}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def packages(*lists: str) -> set[str]:
    """The distributions that are pinned in these lists, as PyPI writes them."""
    lines = (line for name in lists for line in (ROOT / name).read_text(encoding="utf-8").splitlines())
    return {line.partition("==")[0].lower() for line in lines if "==" in line and line[0].isalpha()}


@functools.cache
def absent() -> set[str]:
    """What can be imported here and could not after the small install."""
    there = packages("requirements.txt", "tests/quick.txt") | {"readyonce"}
    return {
        name
        for name, owners in metadata.packages_distributions().items()
        if not {owner.lower().replace("_", "-").replace(".", "-") for owner in owners} & there
    } - {"pip", "_distutils_hack", "pkg_resources"}


def test_no_test_imports_a_test():
    paths = suite()
    names = {path.stem for path in paths if path.name.startswith("test_")} | {"conftest"}
    assert len(names) > 40
    for path in paths:
        taken = {name for name in imported(path) if names & set(name.split("."))}
        assert not taken, (path, taken)


def test_names_of_test_files_are_used_once():
    names = [path.name for path in suite() if path.name.startswith("test_")]
    assert len(names) == len(set(names)) and not [*TESTS.glob("test_*.py")]


@pytest.mark.parametrize("path", UNIT, ids=lambda path: path.name)
def test_a_quick_test_imports_nothing_that_the_small_install_lacks(path):
    heavy = {"torch", "deepspeed", "transformers", "peft", "playwright", "pikepdf", "pypdfium2", "numpy"}
    assert heavy <= absent()
    names = imported(path)
    assert not {name for name in names if name.partition(".")[0] in absent()}
    assert not {name for name in names if name.startswith(("support.browser", "support.firefox"))}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            given = {name for it in node.decorator_list if isinstance(it, ast.Call) for name in named(it)}
            asked = {argument.arg for argument in node.args.args} - given
            assert not asked & {"built", "published", "browser", "observed"}, (path.name, node.name)


def named(parametrize: ast.Call) -> list[str]:
    return str(getattr(parametrize.args[0], "value", "")).split(", ") if parametrize.args else []


def test_the_small_install_is_enough_to_collect_and_end_the_quick_tests(tmp_path):
    """What it lacks cannot be imported here either: neither by a test, nor by what the tests share."""
    (tmp_path / "sitecustomize.py").write_text(ABSENT.format(names=f"NAMES = {absent()!r}"), encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", str(ROOT / "scripts"))])
    alone = os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    alone.pop("SELECT", None)  # the choice by change is `make test`'s, which has the whole install
    pytest_alone = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    for asked in ([UNIT[0].parent, "--collect-only"], [TESTS / "unit" / "test_verdicts.py"]):
        told = subprocess.run([*pytest_alone, *asked], cwd=TESTS.parent, env=alone, capture_output=True, text=True)
        assert told.returncode == 0, told.stdout + told.stderr
    (tmp_path / "test_it.py").write_text("import torch", encoding="utf-8")  # else the test above would say little
    told = subprocess.run([*pytest_alone, tmp_path / "test_it.py"], env=alone, capture_output=True, text=True)
    assert told.returncode and "not installed here: torch" in told.stdout, told.stdout
