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

from readyonce.catalog import Catalog, add, read
from readyonce.markup import table
from readyonce.project import Language
from readyonce.schema import Environment, EnvironmentName, Model, Slug, Text
from readyonce.words import say

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
    found = {path.stem: read(catalog, path, CountFile) for path in sorted((catalog.root / FOLDER).glob("*.yml"))}
    return {name: file for name, file in found.items() if file}


def evidence(catalog: Catalog) -> dict[str, CountEvidence]:
    paths = sorted((catalog.root / FOLDER / "evidence").glob("*.json"))
    found = {path.stem: read(catalog, path, CountEvidence) for path in paths}
    return {name: stored for name, stored in found.items() if stored}


def measure(catalog: Catalog, name: str, file: CountFile, environment: str, python: Path) -> list[Count]:
    """Run a script once in each setting that there is in an environment."""
    return [
        _run(catalog, name, file, setting, python) for setting in file.settings if file.runs_in(setting, environment)
    ]


def _run(catalog: Catalog, name: str, file: CountFile, setting: str, python: Path) -> Count:
    from readyonce import launches, operators

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
    from readyonce import lab

    stored = evidence(catalog).get(environment)
    # The settings say how many threads gloo had.
    described = lab.describe(environment, python).model_copy(update={"gloo_threads": None})
    fresh = CountEvidence(environment=described, scripts={**(stored.scripts if stored else {}), name: counts})
    path = catalog.root / FOLDER / "evidence" / f"{environment}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(fresh.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
    return path


def check(catalog: Catalog) -> None:
    """Every count that is declared is stored, and is none exactly where the file says so."""
    stored = evidence(catalog)
    for name, file in files(catalog).items():
        path, run = catalog.root / FOLDER / f"{name}.yml", f"Run `readyonce count {name} --write`."
        for environment in file.environments:
            for setting, declared in file.settings.items():
                count = stored[environment].count(name, setting) if environment in stored else None
                if file.runs_in(setting, environment) != (count is not None):
                    what = f"`{setting}` in `{environment}` is " + ("stored, not declared" if count else "not stored")
                    add(catalog, path, ("settings", setting), what, run)
                elif count and (count.count > 0) != (environment in declared.some):
                    what = f"`{setting}` in `{environment}` counted {count.count} of {count.of}"
                    add(catalog, path, ("settings", setting, "some"), what, "Mend `some:`, and what pages say.")


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
