"""The facts of variants, and evidence, of which this is the only writer."""

from __future__ import annotations

import ast
import datetime
import json
import platform
import statistics
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from readyonce.data import project
from readyonce.data.catalog import Catalog, Incident, Variant
from readyonce.data.facts import Value, of_command
from readyonce.data.schema import MATCH, Environment, Evidence, Run
from readyonce.lab import processes, venvs
from readyonce.lab.processes import LabError, Observation
from readyonce.launches.reader import Reader
from readyonce.rules import lint as lint_rules

REPEATS = {"error": 3, "match": 5, "diverge": 5, "still": 5, "hang": 1}
TOLERANCE = 0.10  # how far a re-run's gradient error may be from the stored one


def not_run(root: Path, environment: str, reason: str) -> Evidence:
    """The record of an environment in which nothing could be run."""
    pinned = venvs.pins(root, environment)
    wanted = Environment(
        name=environment,
        date=datetime.date.today().isoformat(),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        world_size=2,
        versions={name: pinned[name] for name in venvs.SHOWN if name in pinned},
    )
    return Evidence(environment=wanted, runs=[], not_run=reason)


def on_one_device(catalog: Catalog, incident: Incident, name: str, python: Path) -> Evidence:
    """Each repro's variants once with one process: with NCCL on the GPU, where there is one."""
    variants = [v for v in incident.variants.values() if not v.is_command and "current" in v.declared]
    jobs = [(replace(variant, processes=1), 1) for variant in variants]
    environment = venvs.describe(name, python, world_size=1)
    facts = facts_of(catalog, incident, variants, python, environment.versions)
    runs, _ = summarise(processes.together(catalog, incident, jobs, python), {}, facts)
    return Evidence(environment=environment, runs=runs)


# ------------------------------------------------------------------------------ evidence


def facts_of(
    catalog: Catalog, incident: Incident, variants: Iterable[Variant], python: Path, versions: dict[str, str]
) -> dict[str, dict[str, Value]]:
    """The facts of each variant: a repro tells its own, a command's are read from its words and the versions."""
    variants = list(variants)
    files = sorted({str(incident.folder / v.script) for v in variants if not v.is_command})
    values = {}
    if files:
        done = subprocess.run(
            [python, processes.WORKER, "--facts", *files],
            capture_output=True,
            text=True,
            env=processes.environment_of(python.parent),
        )
        if done.returncode:
            raise LabError(f"{incident.id}: its repros do not tell their facts\n{done.stderr[-3000:]}")
        values = json.loads(done.stdout.splitlines()[-1])
    return {
        v.name: facts_of_command(catalog, incident, v, versions)
        if v.is_command
        else values[str(incident.folder / v.script)].get(v.name, {})
        for v in variants
    }


def facts_of_command(
    catalog: Catalog, incident: Incident, variant: Variant, versions: dict[str, str]
) -> dict[str, Value]:
    """By the rules of the framework (`snippets/frameworks/`), after those of the tiny model (`FACTS` in tiny.py)."""
    script = with_lines((incident.folder / variant.script).read_text(encoding="utf-8"), variant.lines)
    stacks = lint_rules.stacks(catalog)
    found = [launch for launch in Reader(stacks).script(variant.script, script, incident.folder) if launch.frameworks]
    if not found:
        raise LabError(f"{incident.id}/{variant.script} runs no command of snippets/frameworks/")
    options = {name: option.value for name, option in found[0].options.items()}
    rules = lint_rules.of_launch(stacks, found[0].frameworks)
    source = ast.parse((incident.folder / "tiny.py").read_text(encoding="utf-8"))
    for node in source.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "FACTS":
            rules = ast.literal_eval(node.value) + rules
    facts = of_command(script, rules, {name.lower(): release for name, release in versions.items()}, options)
    return {name: value for name, value in facts.items() if value is not None}


def with_lines(script: str, lines: dict[str, str]) -> str:
    """The script with, for each option, another line in place of the one that has it; none where that is empty."""
    changed = script.splitlines()
    for option, line in lines.items():
        places = [i for i, words in enumerate(map(str.split, changed)) if option in words and words[0] != "#"]
        if len(places) != 1:
            raise LabError(f"`{option}` stands in {len(places)} lines of launch.sh, not in one")
        changed[places[0] : places[0] + 1] = [f"    {line} \\"] if line else []
    return "\n".join(changed) + "\n"


def summarise(
    shared: list[Observation], single: dict[str, Observation], facts: dict[str, dict[str, Value]]
) -> tuple[list[Run], list[str]]:
    """Runs for the evidence, and a line for each variant whose repeats or launches disagree.

    A framework's command runs alone only: it has no repeats."""
    runs, faults = [], []
    for name in dict.fromkeys([*(observation.variant for observation in shared), *single]):
        repeats = [o for o in shared if o.variant == name]
        observed = [*repeats, *([single[name]] if name in single else [])]
        outcomes = {(o.outcome, o.error) for o in observed}
        first = observed[0]
        figures: dict[str, Any] = {
            key: _median(getattr(o, key) for o in repeats or observed) for key in processes.FIGURES
        }
        if len(outcomes) > 1 or first.outcome == "teardown":
            faults.append(f"{name}: its runs disagree, or end in teardown: {sorted(map(str, outcomes))}")
            continue
        runs.append(
            Run(
                variant=name,
                outcome=first.outcome,
                facts=facts.get(name, {}),
                error=first.error,
                message=first.message,
                repeats=len(repeats),
                alone=name in single,
                worst=first.worst,
                unmoved=list(first.unmoved),
                unjudged={tensor: _three_digits(error) for tensor, error in first.unjudged.items()},
                seconds=_three_digits(statistics.median(o.seconds for o in repeats or observed)),
                **figures,
            )
        )
    return runs, faults


def same_gradient_error(stored: float, observed: float) -> bool:
    """Within 10 % of each other. Below the limit of `match` both are rounding, which may differ."""
    if max(stored, observed) <= MATCH:
        return True
    return abs(observed - stored) <= TOLERANCE * abs(stored)


def write(incident: Incident, evidence: Evidence) -> Path:
    """Store evidence beside the incident."""
    path = incident.folder / "evidence" / f"{evidence.environment.name}.json"
    path.parent.mkdir(exist_ok=True)
    content = evidence.model_dump(mode="json", exclude_defaults=False)
    project.write_whole(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


def _median(values: Iterable[float | None]) -> float | None:
    """The median to three digits; None where there is nothing to measure."""
    measured = [value for value in values if value is not None]
    return _three_digits(statistics.median(measured)) if measured else None


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")
