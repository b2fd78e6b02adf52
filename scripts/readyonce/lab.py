"""Runs variants and says what happened; the only writer of evidence.

A variant runs *alone*, in a launch of its own as a reader would start it, or *together* with
others in one launch, because imports are nearly all the cost. Both must show the same outcome.
"""

from __future__ import annotations

import ast
import datetime
import errno
import importlib.util
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from readyonce import ending, project
from readyonce.catalog import Catalog, Incident, Variant
from readyonce.facts import Value, of_command
from readyonce.lint import rules as lint_rules
from readyonce.lint.launch import Reader
from readyonce.schema import GUARD, MATCH, Declaration, Environment, Evidence, Outcome, Run

WORKER = Path(__file__).with_name("worker.py")
START_LIMIT = 180  # seconds for imports
COMPILE_LIMIT = 1800  # seconds for DeepSpeed's own compilation, once per environment
SILENCE = 5  # seconds that an operator may be compiled before a line says so
REPEATS = {"error": 3, "match": 5, "diverge": 5, "still": 5, "hang": 1}
# Whose versions evidence names, the most telling first.
SHOWN = ("ms-swift", "FlagEmbedding", "transformers", "peft", "trl", "liger-kernel", "accelerate", "deepspeed", "torch")
FIGURES = ("gradient_error", "rank_spread", "seconds_per_step", "peak_memory")  # of a run that finishes
TOLERANCE = 0.10  # how far a re-run's gradient error may be from the stored one
# Below this release DeepSpeed waits for the last of several gathers only, and with two threads gloo may end it first:
# docs/en/concepts/zero3-early-gather.md. With one thread it cannot.
WAITS_FOR_ALL = (0, 19, 8)
COMPILE = """
import os, torch
if not torch.accelerator.is_available():
    os.environ["DS_ACCELERATOR"] = "cpu"
    from deepspeed.accelerator import get_accelerator
    get_accelerator().create_op_builder("ShareMemCommBuilder").load()
"""
ONE_GLOO_THREAD = Path(__file__).parents[2] / "snippets" / "concepts" / "one-gloo-thread"


class LabError(Exception):
    """The lab itself could not work: no torch, an environment that does not install ..."""


@dataclass(frozen=True)
class Observation:
    """One run. `outcome` is an Outcome, or `teardown`: it crashed after its result was printed."""

    variant: str
    outcome: Outcome | Literal["teardown"]
    error: str | None = None  # the family; None with outcome `error` when no family has the message
    message: str | None = None
    gradient_error: float | None = None
    rank_spread: float | None = None
    seconds: float = 0.0
    seconds_per_step: float | None = None
    peak_memory: float | None = None
    log: str = ""

    @property
    def short(self) -> str:
        if self.outcome == "error":
            return f"error ({self.error or 'of no known family'})"
        if self.gradient_error is not None:
            return f"{self.outcome}, gradient error {self.gradient_error:.2g}"
        return self.outcome

    def agrees_with(self, declared: Declaration) -> bool:
        return (self.outcome, self.error) == (declared.outcome, declared.error)


# ------------------------------------------------------------------------------ environments


def interpreter(root: Path, environment: str, say: Callable[[str], None] = print) -> Path:
    """The Python of an environment: this one for `current`, else one built from its pinned list."""
    if environment == "current":
        if importlib.util.find_spec("torch") is None:
            raise LabError("torch is not installed here. `make test` installs all that runs need.")
        return Path(sys.executable)
    requirements = _list(root, environment)
    place = folder(root, environment)
    lock = requirements.with_name("locks") / requirements.name  # of all that the list brings with it
    without = requirements.with_name("without") / requirements.name  # what must not come along
    constraints: list[str | Path] = ["--constraint", lock] if lock.is_file() else []
    excludes: list[str | Path] = ["--excludes", without] if without.is_file() else []
    lists = [requirements, *(path for path in (lock, without) if path.is_file())]
    wanted = "".join(path.read_text(encoding="utf-8") for path in lists)
    stamp = place / "installed.txt"
    with _one_at_a_time(place):
        if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
            say(f"Installing environment {environment} (once) ...")
            torch = [f"{name}=={version}" for name, version in pins(root, environment).items() if name == "torch"]
            _install(place, [*torch, *excludes], "--requirements", requirements, *constraints, *excludes)
            stamp.write_text(wanted, encoding="utf-8")
    return place / "bin" / "python"


@contextmanager
def _one_at_a_time(place: Path) -> Iterator[None]:
    """Of the processes that share this folder, on one machine or on several, one makes it; the others wait."""
    import fcntl  # not on Windows, where there is no lab

    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back with the file, however its holder ends
        yield


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
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line := line.split("#")[0].strip():
            read = re.fullmatch(r"(\w[\w.-]*(?:\[[\w,.-]+\])?)(?:==([^,;\s]+),?)?(.*)", line)
            if not read:
                raise LabError(f"{path.relative_to(root)}:{number}: `{line}` is no requirement: write name==release")
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
    path = root / "snippets" / "environments" / f"{environment}.txt"
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
        env=environment_of(python.parent),
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
    runs, _ = summarise(together(catalog, incident, jobs, python), {}, facts)
    return Evidence(environment=environment, runs=runs)


def options_of(python: Path, command: str) -> list[str]:
    """Every `--option` that a command's own parser lists under `--help`."""
    program, *arguments = command.split()
    result = subprocess.run(
        [python.with_name(program), *arguments, "--help"],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment_of(python.parent),
    )
    options = sorted(set(re.findall(r"(?<![\w-])--[A-Za-z][\w-]*", result.stdout)))
    if result.returncode or not options:
        raise LabError(f"`{command} --help` lists no options:\n{result.stderr[-2000:]}")
    return options


# ------------------------------------------------------------------------------ together


def together(
    catalog: Catalog,
    incident: Incident,
    jobs: Iterable[tuple[Variant, int]],
    python: Path,
    progress: Callable[[Observation], None] = lambda observation: None,
    guard: Path | None = None,
) -> list[Observation]:
    """Run each (variant, repeats) in one launch, beside a guard if one is named; one observation per repeat.

    A variant that stalls or kills the launch is run alone, and the rest goes on in a new launch. What is to run alone
    runs so, each time.
    """
    jobs = list(jobs)
    pending = _interleave([job for job in jobs if not job[0].alone])
    observations = []

    def done(observation: Observation) -> None:
        observations.append(observation)
        progress(observation)

    while pending:
        for variant, ranks in _launch(incident, list(pending), python, guard):
            pending.remove(variant)
            done(_from_ranks(catalog, variant, ranks))
        if pending:
            # The launch stalled or died at the next variant in its order: alone tells how.
            variant = _by_group(pending)[0]
            pending.remove(variant)
            done(alone(catalog, incident, variant, python))
    for variant, repeats in jobs:
        for _ in range(repeats if variant.alone else 0):
            done(alone(catalog, incident, variant, python))
    return observations


def guarded(
    catalog: Catalog, incident: Incident, variants: Iterable[Variant], python: Path
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Of each variant what the guard says, which only records; None where the launch stalled or died.

    Nothing where the project has no guard.
    """
    pending = _by_group(list(variants)) if (catalog.root / GUARD).is_file() else []
    while pending:
        for variant, ranks in _launch(incident, list(pending), python, guard=catalog.root / GUARD):
            pending.remove(variant)
            yield variant.name, ranks[0]["guard"]
        if pending:
            yield pending.pop(0).name, None


def _interleave(jobs: list[tuple[Variant, int]]) -> list[Variant]:
    rounds = max((repeats for _, repeats in jobs), default=0)
    return [variant for turn in range(rounds) for variant, repeats in jobs if turn < repeats]


def _by_group(variants: list[Variant]) -> list[Variant]:
    """The order in which the worker takes them: fewest processes first."""
    return sorted(variants, key=lambda v: 0 if v.launcher == "python" else v.processes)


def _launch(
    incident: Incident, variants: list[Variant], python: Path, guard: Path | None = None
) -> Iterator[tuple[Variant, list[dict[str, Any]]]]:
    """One launch of the worker; yields (variant, its ranks' records) until it ends or stalls."""
    with ending.folder() as scratch:
        results, plan = Path(scratch) / "results.jsonl", Path(scratch) / "plan.json"
        results.touch()
        items = [
            {
                "file": str(incident.folder / v.script),
                "variant": v.name,
                "processes": v.processes,
                "launcher": v.launcher,
            }
            for v in variants
        ]
        plan.write_text(
            json.dumps({"results": str(results), "items": items, "guard": guard and str(guard)}), encoding="utf-8"
        )
        processes = max(v.processes for v in variants)
        with running([*torchrun(python, processes), WORKER, plan], python, scratch) as process, results.open() as lines:
            limit, since, partial = START_LIMIT, time.monotonic(), ""
            while True:
                ended = process.poll() is not None
                partial += lines.read()
                *whole, partial = partial.split("\n")
                for line in whole:
                    result = json.loads(line)
                    yield variants[result["item"]], result["ranks"]
                    limit, since = incident.meta.time_limit, time.monotonic()
                if ended or time.monotonic() - since > limit:
                    log_of(scratch)
                    return
                time.sleep(0.02)


def _from_ranks(catalog: Catalog, variant: Variant, ranks: list[dict[str, Any]]) -> Observation:
    seconds = max(rank["seconds"] for rank in ranks)
    if failed := [rank["error"] for rank in ranks if "error" in rank]:
        return Observation(variant.name, "error", catalog.family_of(failed[0]), failed[0], seconds=seconds)
    return _finished(variant, ranks[0], seconds)


def _finished(variant: Variant, result: dict[str, Any], seconds: float, log: str = "") -> Observation:
    figures = {key: result.get(key) for key in FIGURES}
    return Observation(variant.name, result["outcome"], seconds=seconds, log=log, **figures)


# ------------------------------------------------------------------------------ alone


def alone(catalog: Catalog, incident: Incident, variant: Variant, python: Path) -> Observation:
    """Run one variant as a reader would: `torchrun repro.py NAME`, or `python repro.py NAME`."""
    launcher = [python] if variant.launcher == "python" else torchrun(python, variant.processes)
    with ending.folder() as scratch:
        started = time.monotonic()
        with running([*launcher, incident.folder / variant.script, variant.name], python, scratch) as process:
            try:
                code = process.wait(incident.meta.time_limit + START_LIMIT)
            except subprocess.TimeoutExpired:
                code = None
        seconds = time.monotonic() - started
        log = log_of(scratch)
    results = re.findall(r"^RESULT (\{.*\})$", log, re.MULTILINE)
    if results and code == 0:
        return _finished(variant, json.loads(results[-1]), seconds, log)
    if code is None:
        return Observation(variant.name, "hang", seconds=seconds, log=log)
    if results:
        return Observation(variant.name, "teardown", seconds=seconds, log=log)
    message = message_in(log)
    return Observation(variant.name, "error", catalog.family_of(message), message, seconds=seconds, log=log)


def each_alone(
    catalog: Catalog, incident: Incident, variants: Iterable[Variant], python: Path
) -> Iterator[Observation]:
    """Run each alone, as they end. Two launches at a time: a launch is mostly imports, one core at work."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        running = [pool.submit(alone, catalog, incident, variant, python) for variant in variants]
        try:
            yield from (done.result() for done in as_completed(running))
        finally:  # interrupted: end what is under way, or leaving would wait for it
            pool.shutdown(wait=False, cancel_futures=True)
            end_launches()


def end_launches() -> None:
    """End the launches that this process has under way."""
    for token in list(_under_way):
        ending.kill(token)


def message_in(log: str) -> str:
    """The error that a rank's traceback ends with, from a launcher's log; "" when there is none."""
    ranks: dict[str, list[str]] = {}
    for line in log.splitlines():
        prefix = re.match(r"\[rank(\d+)\]: ", line)
        ranks.setdefault(prefix[1] if prefix else "", []).append(line[prefix.end() :] if prefix else line)
    for _, lines in sorted((rank, lines) for rank, lines in ranks.items() if rank) or ranks.items():
        starts = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
        if not starts:
            continue
        frames, start = [], starts[-1] + 1
        while start < len(lines) and (lines[start].startswith(" ") or not lines[start]):
            if lines[start].strip(" ^~"):
                frames.append(lines[start].strip())
            start += 1
        message = "\n".join(lines[start:]).strip()
        return message if ":" in message.split("\n")[0] or not frames else f"{frames[-1]}\n{message}"
    return ""


def torchrun(python: Path, processes: int) -> list[str | Path]:
    # --standalone: a free port, in torch releases too where plain torchrun takes 29500. --no-python: torchrun itself
    # starts a rank unbuffered; see `environment_of`.
    options: list[str | Path] = ["--standalone", "--nproc-per-node", str(processes), "--no-python"]
    return [python, "-m", "torch.distributed.run", *options, python]


def log_of(scratch: Path | str) -> str:
    """What a launch said. On a full disk it tells nothing of the variant: then this raises `OSError`."""
    path = Path(scratch) / "log.txt"
    text, full = path.read_text(encoding="utf-8", errors="replace"), os.strerror(errno.ENOSPC)
    with suppress(OSError), path.open("ab") as file:
        file.write(bytes(4096))
        if full not in text:  # what filled it may be gone by now
            return text
    raise OSError(errno.ENOSPC, f"{full}, so this run says nothing", str(path.parent))


_under_way: set[str] = set()  # the tokens of the launches that run now


@contextmanager
def running(
    command: Sequence[str | Path],
    python: Path,
    scratch: str,
    variables: dict[str, str] | None = None,
    compiled: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its output in `scratch`/log.txt; on leaving, it and all it started are gone."""
    if not compiled:
        _compile_once(python)
    token = uuid.uuid4().hex
    _under_way.add(token)
    _sweep_shared_memory()
    with (
        open(Path(scratch) / "log.txt", "wb") as log,
        _extensions(python.parent, token) as extensions,
        _locks_told(extensions),
        ending.watched(token),
    ):
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=scratch,
            # Its temporary files lie with the log: torchrun, when killed, leaves a folder.
            env=environment_of(python.parent)
            | {"TMPDIR": str(scratch), "TORCH_EXTENSIONS_DIR": str(extensions)}
            | (variables or {})
            | {ending.TOKEN: token},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
            if process.poll() is None and (locks := list(extensions.glob("*/lock"))):
                raise LabError(
                    f"it still waits for an operator to be compiled, at {locks[0]}: give it more time or cores"
                )
        finally:
            ending.kill(token)
            process.wait()
            _under_way.discard(token)


def _compile_once(python: Path) -> None:
    """Have an environment's DeepSpeed compile its operator before the first launch, whose time that would take."""
    kept = python.parent.parent / "torch-extensions" / "whole"
    if kept.is_dir() or not _deepspeeds(python.parent):
        return
    with _one_at_a_time(kept), ending.folder() as scratch:
        if kept.is_dir():
            return
        run = running([python, "-c", COMPILE], python, scratch, compiled=True)
        with run as process, suppress(subprocess.TimeoutExpired):
            process.wait(COMPILE_LIMIT)
        kept.mkdir(parents=True, exist_ok=True)  # where it did not compile, launches say so


@contextmanager
def _extensions(bin_folder: Path, token: str) -> Iterator[Path]:
    """A folder of this launch alone for what DeepSpeed compiles; the environment keeps what it compiled whole.

    torch locks such a folder even to load from it, a launch that is killed leaves its lock, and the next one
    would wait for it for ever, without a word.
    """
    place = bin_folder.parent / "torch-extensions"
    kept, own = place / "whole", place / "launches" / token
    with ending.watched(str(own)):
        own.mkdir(parents=True)
        for left in own.parent.iterdir():  # by a machine that was switched off
            if left.stat().st_mtime < time.time() - 86400:
                shutil.rmtree(left, ignore_errors=True)
        try:
            for folder in {library.parent for library in kept.glob("*/*.so")}:
                try:  # with their times: by these ninja sees that there is nothing to do
                    shutil.copytree(folder, own / folder.name, ignore=shutil.ignore_patterns("lock"))
                except OSError:  # another launch is replacing it: this one compiles its own
                    shutil.rmtree(own / folder.name, ignore_errors=True)
            given = {library: _changed(library) for library in own.glob("*/*.so")}
            yield own
            kept.mkdir(parents=True, exist_ok=True)
            for library in own.glob("*/*.so"):
                known = kept / library.parent.name
                newest = max(given.get(library, 0), _changed(known / library.name))
                if (library.parent / "lock").exists() or _changed(library) <= newest:
                    continue
                shutil.rmtree(known, ignore_errors=True)  # of an older torch or DeepSpeed
                with suppress(OSError):  # another launch was faster
                    library.parent.rename(known)
        finally:
            shutil.rmtree(own, ignore_errors=True)


@contextmanager
def _locks_told(extensions: Path) -> Iterator[None]:
    """Meanwhile, a line when the launch waits for an operator to be compiled: of itself it says nothing."""
    ended = threading.Event()

    def look() -> None:
        since: dict[Path, float] = {}
        while not ended.wait(SILENCE / 5):
            for lock in extensions.glob("*/lock"):
                if time.monotonic() - since.setdefault(lock, time.monotonic()) >= SILENCE:
                    print(f"Waiting for an operator to be compiled, at {lock} ...", file=sys.stderr, flush=True)
                    return

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _sweep_shared_memory() -> None:
    """Remove the buffers that DeepSpeed's CPU op leaves in /dev/shm, 66 MiB a rank, once nobody maps them."""
    old = time.time() - 60  # a younger one may be about to be opened
    mine = f"deepspeed_allreduce_buffer_{os.getuid()}_*"
    left, mapped = [], ""
    for path in Path("/dev/shm").glob(mine):
        with suppress(OSError):  # gone meanwhile
            if path.stat().st_mtime < old:
                left.append(path)
    for maps in Path("/proc").glob("[0-9]*/maps") if left else ():
        with suppress(OSError):  # ended meanwhile, or somebody else's
            mapped += maps.read_text()
    for path in left:
        if path.name not in mapped:
            path.unlink(missing_ok=True)


def environment_of(bin_folder: Path) -> dict[str, str]:
    """The environment of a run: one thread a rank, no writes beside the repro, its own caches; of gloo's, see above."""
    # Unbuffered, a rank writes each argument of a `print` alone, and lines of two ranks mix.
    unwanted = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "PYTHONPATH", "PYTHONUNBUFFERED")
    # accelerate reads settings from variables too: with ACCELERATE_USE_CPU it trains under DDP what asks for DeepSpeed.
    kept = {
        key: value for key, value in os.environ.items() if key not in unwanted and not key.startswith("ACCELERATE_")
    }
    kept["PATH"] = f"{bin_folder}{os.pathsep}{kept.get('PATH', '')}"
    if any(release < WAITS_FOR_ALL for release in _deepspeeds(bin_folder)):
        kept["PYTHONPATH"] = str(ONE_GLOO_THREAD)
    return kept | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPYCACHEPREFIX": str(bin_folder.parent / "pycache"),
        "PYTHONDONTWRITEBYTECODE": "",
        "HF_HUB_OFFLINE": "1",
    }


def _deepspeeds(bin_folder: Path) -> list[tuple[int, ...]]:
    """The release of an environment's DeepSpeed, if it has one."""
    found = bin_folder.parent.glob("lib/python*/site-packages/deepspeed-*.dist-info")
    return [tuple(map(int, re.findall(r"\d+", path.name)[:3])) for path in found]


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
            [python, WORKER, "--facts", *files], capture_output=True, text=True, env=environment_of(python.parent)
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
    launches = [
        launch for launch in Reader(stacks).script(variant.script, script, incident.folder) if launch.frameworks
    ]
    if not launches:
        raise LabError(f"{incident.id}/{variant.script} runs no command of snippets/frameworks/")
    options = {name: option.value for name, option in launches[0].options.items()}
    rules = lint_rules.of_launch(stacks, launches[0].frameworks)
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
        figures: dict[str, Any] = {key: _median(getattr(o, key) for o in repeats or observed) for key in FIGURES}
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
