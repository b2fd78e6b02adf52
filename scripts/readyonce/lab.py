"""The environments of runs, the facts of variants, and evidence, of which this is the only writer."""

from __future__ import annotations

import ast
import datetime
import importlib.util
import json
import platform
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from readyonce import launches, project
from readyonce.catalog import Catalog, Incident, Variant
from readyonce.facts import Value, of_command
from readyonce.launches import LabError, Observation
from readyonce.lint import rules as lint_rules
from readyonce.lint.launch import Reader
from readyonce.schema import MATCH, Environment, Evidence, Run

REPEATS = {"error": 3, "match": 5, "diverge": 5, "still": 5, "hang": 1}
# Whose versions evidence names, the most telling first.
SHOWN = ("ms-swift", "FlagEmbedding", "transformers", "peft", "trl", "liger-kernel", "accelerate", "deepspeed", "torch")
TOLERANCE = 0.10  # how far a re-run's gradient error may be from the stored one


# ------------------------------------------------------------------------------ environments


class NoRequirement(LabError):
    """A line of an environment's list that pins nothing."""

    def __init__(self, file: Path, line: int, text: str):
        self.line, self.what = line, f"`{text}` is no requirement"
        super().__init__(f"{file}:{line}: {self.what}: write name==release")


def interpreter(root: Path, environment: str, say: Callable[[str], None] = print) -> Path:
    """The Python of an environment: this one for `current`, else one built from its pinned list."""
    if environment == "current":
        if importlib.util.find_spec("torch") is None:
            raise LabError("torch is not installed here. `make test` installs all that runs need.")
        return Path(sys.executable)
    place = folder(root, environment)
    requirements, (_, lock, without) = _list(root, environment), lists(root, environment)
    constraints: list[str | Path] = ["--constraint", lock] if lock.is_file() else []
    excludes: list[str | Path] = ["--excludes", without] if without.is_file() else []
    wanted = "".join(
        path.read_text(encoding="utf-8", errors="replace") for path in (requirements, lock, without) if path.is_file()
    )
    stamp = place / "installed.txt"
    with project.one_at_a_time(place):
        if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
            say(f"Installing environment {environment} (once) ...")
            torch = [f"{name}=={version}" for name, version in pins(root, environment).items() if name == "torch"]
            _install(place, [*torch, *excludes], "--requirements", requirements, *constraints, *excludes)
            stamp.write_text(wanted, encoding="utf-8")
    return place / "bin" / "python"


def lists(root: Path, environment: str) -> tuple[Path, Path, Path]:
    """What an environment is made of: what it pins, the lock of all that this brings, and what must not come along.

    The second and the third need not exist; for `current` none need, as where a team keeps its own incidents.
    """
    pinned = root / "snippets" / "environments" / f"{environment}.txt"
    return pinned, pinned.with_name("locks") / pinned.name, pinned.with_name("without") / pinned.name


def folder(root: Path, environment: str) -> Path:
    """Where an environment is made."""
    return root / "build" / "environments" / environment


def newest(root: Path, environment: str, say: Callable[[str], None] = print) -> Path:
    """The Python of an environment made afresh, of the newest releases of what its list pins that go together."""
    say(f"Installing the newest releases of environment {environment} ...")
    place = folder(root, f"newest-of-{environment}")
    wanted = {name: name + bound for name, _, bound in _requirements(root, environment)}
    _install(place, [wanted[name] for name in wanted if name == "torch"], *wanted.values())
    return place / "bin" / "python"


def pins(root: Path, environment: str) -> dict[str, str]:
    """The packages that its list names, each with the release it pins."""
    return {name: pin for name, pin, _ in _requirements(root, environment)}


def _requirements(root: Path, environment: str) -> list[tuple[str, str, str]]:
    """(name, pin, bound) of each line: `transformers==4.57.6,<5` is the release pinned, and how far newer ones may go."""
    path, found = _list(root, environment), []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if line := line.split("#")[0].strip():
            read = re.fullmatch(r"(\w[\w.-]*(?:\[[\w,.-]+\])?)(?:==([^,;\s]+),?)?(.*)", line)
            if not read:
                raise NoRequirement(path.relative_to(root), number, line)
            found.append((read[1], read[2] or "", read[3]))
    return found


def installed(python: Path, names: Iterable[str]) -> dict[str, str | None]:
    """The releases of these packages that an environment has."""
    script = (
        "import importlib.metadata as m, json, sys\n"
        "def version(name):\n"
        "    try: return m.version(name)\n"
        "    except m.PackageNotFoundError: return None\n"
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    )
    result = subprocess.run([python, "-c", script, *names], capture_output=True, text=True, check=True)
    releases: dict[str, str | None] = json.loads(result.stdout)
    return releases


def _list(root: Path, environment: str) -> Path:
    path, *_ = lists(root, environment)
    if not path.is_file():
        raise LabError(f"there is no environment `{environment}`: add {path.relative_to(root)}")
    return path


def _install(folder: Path, torch: Sequence[str | Path], *wanted: str | Path) -> None:
    """Make an environment. uv links what it shares with the others, and resolves at once what pip tries one by one.

    torch comes first: DeepSpeed's setup imports it, and 0.14.4 stops without, so it is built where torch is.
    """
    shutil.rmtree(folder, ignore_errors=True)
    uv = [sys.executable, "-m", "uv", "--quiet"]
    install: list[str | Path] = [*uv, "pip", "install", "--python", folder, "--no-build-isolation-package", "deepspeed"]
    steps: list[list[str | Path]] = [[*uv, "venv", "--python", sys.executable, folder], [*install, *wanted]]
    if torch:
        steps.insert(1, [*install, *torch, "setuptools"])
    for step in steps:
        if (done := subprocess.run(step, stderr=subprocess.PIPE, text=True)).returncode:
            raise LabError(f"environment `{folder.name}` does not install. uv says:\n{done.stderr.strip()}")


def describe(environment: str, python: Path, world_size: int = 2) -> Environment:
    """Versions, device and backend of an environment, asked from its own interpreter."""
    script = (
        "import json, platform, sys, torch, torch.distributed as dist\n"
        "enough = torch.accelerator.device_count() >= int(sys.argv[1])\n"
        "d = torch.accelerator.current_accelerator() if enough else torch.device('cpu')\n"
        "backend, threads = dist.get_default_backend_for_device(d), None\n"
        "if backend == 'gloo': threads = dist.ProcessGroupGloo(dist.HashStore(), 0, 1).options._threads\n"
        "print(json.dumps({'device': d.type, 'backend': backend, 'gloo_threads': threads,"
        " 'python': platform.python_version()}))"
    )
    result = subprocess.run(
        [python, "-c", script, str(world_size)],
        capture_output=True,
        text=True,
        check=True,
        env=launches.environment_of(python.parent),
    )
    return Environment(
        name=environment,
        date=datetime.date.today().isoformat(),
        platform=f"{platform.system()} {platform.machine()}",
        world_size=world_size,
        versions={name: version for name, version in installed(python, SHOWN).items() if version},
        **json.loads(result.stdout.splitlines()[-1]),
    )


def not_run(root: Path, environment: str, reason: str) -> Evidence:
    """The record of an environment in which nothing could be run."""
    pinned = pins(root, environment)
    wanted = Environment(
        name=environment,
        date=datetime.date.today().isoformat(),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        world_size=2,
        versions={name: pinned[name] for name in SHOWN if name in pinned},
    )
    return Evidence(environment=wanted, runs=[], not_run=reason)


def gpu() -> str | None:
    """The name of the GPU at hand, as a file name; None where there is none."""
    import torch

    if not torch.cuda.is_available():
        return None
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower()).strip("-")


def on_one_device(catalog: Catalog, incident: Incident, name: str, python: Path) -> Evidence:
    """Each repro's variants once with one process: with NCCL on the GPU, where there is one."""
    variants = [v for v in incident.variants.values() if not v.is_command and "current" in v.declared]
    jobs = [(replace(variant, processes=1), 1) for variant in variants]
    environment = describe(name, python, world_size=1)
    facts = facts_of(catalog, incident, variants, python, environment.versions)
    runs, _ = summarise(launches.together(catalog, incident, jobs, python), {}, facts)
    return Evidence(environment=environment, runs=runs)


def options_of(python: Path, command: str) -> list[str]:
    """Every `--option` that a command's own parser lists under `--help`."""
    program, *arguments = command.split()
    result = subprocess.run(
        [python.with_name(program), *arguments, "--help"],
        capture_output=True,
        text=True,
        timeout=300,
        env=launches.environment_of(python.parent),
    )
    options = sorted(set(re.findall(r"(?<![\w-])--[A-Za-z][\w-]*", result.stdout)))
    if result.returncode or not options:
        raise LabError(f"`{command} --help` lists no options:\n{result.stderr[-2000:]}")
    return options


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
            [python, launches.WORKER, "--facts", *files],
            capture_output=True,
            text=True,
            env=launches.environment_of(python.parent),
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
            key: _median(getattr(o, key) for o in repeats or observed) for key in launches.FIGURES
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
