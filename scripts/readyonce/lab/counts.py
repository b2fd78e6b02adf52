"""Scripts under `snippets/concepts/` that count something in several environments; the only writer of their evidence.

`NAME.yml` beside `NAME.py` says in which settings and environments it runs; its last line is
`RESULT {"count": ..., "of": ...}`.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path

from readyonce.data.catalog import Catalog, understood_all
from readyonce.data.markup import table
from readyonce.data.project import Language, write_whole
from readyonce.data.schema import Environment, EnvironmentName, Model, Slug, Text
from readyonce.data.words import say

FOLDER = Path("snippets", "concepts")


class Setting(Model):
    text: Text
    arguments: list[str] = []
    one_gloo_thread: bool = False
    only: list[EnvironmentName] | None = None  # where it can be set, if not everywhere
    some: list[EnvironmentName] = []  # where it counts at least one; elsewhere it counts none


class CountFile(Model):
    processes: int
    environments: list[EnvironmentName]
    settings: dict[Slug, Setting]

    def runs_in(self, setting: str, environment: str) -> bool:
        only = self.settings[setting].only
        return environment in self.environments and (only is None or environment in only)


class Count(Model):
    setting: Slug
    count: int
    of: int


class CountEvidence(Model):
    environment: Environment
    scripts: dict[Slug, list[Count]]

    def count(self, script: str, setting: str) -> Count | None:
        return next((count for count in self.scripts.get(script, []) if count.setting == setting), None)


def files(catalog: Catalog) -> dict[str, CountFile]:
    return understood_all(catalog, (catalog.root / FOLDER).glob("*.yml"), CountFile)


def evidence(catalog: Catalog) -> dict[str, CountEvidence]:
    return understood_all(catalog, (catalog.root / FOLDER / "evidence").glob("*.json"), CountEvidence)


def measure(catalog: Catalog, name: str, file: CountFile, environment: str, python: Path) -> list[Count]:
    """Run a script once in each setting that there is in an environment."""
    return [
        _run(catalog, name, file, setting, python) for setting in file.settings if file.runs_in(setting, environment)
    ]


def _run(catalog: Catalog, name: str, file: CountFile, setting: str, python: Path) -> Count:
    from readyonce.lab import operators
    from readyonce.lab import processes as launches

    declared = file.settings[setting]
    # Here the setting decides how many threads gloo has, and not the environment.
    variables = {"PYTHONPATH": str(launches.ONE_GLOO_THREAD) if declared.one_gloo_thread else ""}
    command = [*launches.torchrun(python, file.processes), catalog.root / FOLDER / f"{name}.py", *declared.arguments]
    with tempfile.TemporaryDirectory(prefix="readyonce-") as scratch:
        with launches.running(command, python, scratch, variables) as process:
            try:
                process.wait(operators.COMPILE_LIMIT)
            except subprocess.TimeoutExpired:
                raise launches.LabError(f"{name}, {setting}: did not end") from None
        log = launches.log_of(scratch)
    results = re.findall(r"^RESULT (\{.*\})$", log, re.MULTILINE)
    if process.returncode or not results:
        raise launches.LabError(f"{name}, {setting}: failed\n{log[-3000:]}")
    return Count(setting=setting, **json.loads(results[-1]))


def write(catalog: Catalog, name: str, environment: str, python: Path, counts: list[Count]) -> Path:
    from readyonce.lab import venvs

    stored = evidence(catalog).get(environment)
    # The settings say how many threads gloo had.
    described = venvs.describe(environment, python).model_copy(update={"gloo_threads": None})
    fresh = CountEvidence(environment=described, scripts={**(stored.scripts if stored else {}), name: counts})
    path = catalog.root / FOLDER / "evidence" / f"{environment}.json"
    path.parent.mkdir(exist_ok=True)
    write_whole(path, json.dumps(fresh.model_dump(mode="json"), indent=1) + "\n")
    return path


def includes(catalog: Catalog, language: Language) -> dict[str, str]:
    """A table for each script: a row for each environment, a column for each setting."""
    stored = evidence(catalog)
    return {f"concepts/{name}.md": _table(name, file, stored, language) for name, file in files(catalog).items()}


def _table(name: str, file: CountFile, stored: dict[str, CountEvidence], language: Language) -> str:
    rows = [[say("versions", language), *(setting.text[language] for setting in file.settings.values())]]
    for environment in file.environments:
        if environment in stored:
            versions = stored[environment].environment.versions
            row = [
                say("between", language).join(f"{package} {versions[package]}" for package in ("deepspeed", "torch"))
            ]
            for setting in file.settings:
                count = stored[environment].count(name, setting)
                row.append(f"{count.count} / {count.of}" if count else "–")
            rows.append(row)
    return table(rows, "ro-matrix")
