"""The environments of runs: where each is installed, what is pinned in it, and how it is described."""

from __future__ import annotations

import datetime
import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from readyonce.data import project
from readyonce.data.schema import Environment
from readyonce.lab import processes
from readyonce.lab.processes import LabError

# Whose versions evidence names, the most telling first.
SHOWN = (
    *("ms-swift", "llamafactory", "FlagEmbedding", "lightning", "transformers", "peft", "trl", "liger-kernel"),
    *("accelerate", "deepspeed", "torch"),
)


class NoRequirement(LabError):
    """A line of an environment's list that pins nothing."""

    def __init__(self, file: Path, line: int, text: str):
        self.line, self.what = line, f"`{text}` is no requirement"
        super().__init__(f"{file}:{line}: {self.what}: write name==release")


def interpreter(root: Path, environment: str, say: Callable[[str], None] = print) -> Path:
    """The Python of an environment: this one for `current`, else one built from its pinned list."""
    if environment == "current":
        if importlib.util.find_spec("torch") is None:
            raise LabError("torch is not installed here. `make install` installs all that runs need, in a checkout.")
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
        env=processes.environment_of(python.parent),
    )
    return Environment(
        name=environment,
        date=datetime.date.today().isoformat(),
        platform=f"{platform.system()} {platform.machine()}",
        world_size=world_size,
        versions={name: version for name, version in installed(python, SHOWN).items() if version},
        **json.loads(result.stdout.splitlines()[-1]),
    )


def gpu() -> str | None:
    """The name of the GPU at hand, as a file name; None where there is none."""
    import torch

    if not torch.cuda.is_available():
        return None
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower()).strip("-")


def options_of(python: Path, command: str) -> list[str]:
    """Every `--option` that a command's own parser lists under `--help`."""
    program, *arguments = command.split()
    result = subprocess.run(
        [python.with_name(program), *arguments, "--help"],
        capture_output=True,
        text=True,
        timeout=300,
        env=processes.environment_of(python.parent),
    )
    options = sorted(set(re.findall(r"(?<![\w-])--[A-Za-z][\w-]*", result.stdout)))
    if result.returncode or not options:
        raise LabError(f"`{command} --help` lists no options:\n{result.stderr[-2000:]}")
    return options
