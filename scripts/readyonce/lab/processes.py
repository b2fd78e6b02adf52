"""Starts launches and reads what they show. What stands here and in `worker.py` decides how a run ends, so evidence names both.

A variant runs *alone*, in a launch of its own as a reader would start it, or *together* with
others in one launch, because imports are nearly all the cost. Both must show the same outcome.
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from readyonce.data.catalog import Catalog, Incident, Variant
from readyonce.data.schema import GUARD, Declaration, Outcome
from readyonce.lab import cleanup, operators

WORKER = Path(__file__).with_name("worker.py")
START_LIMIT = 180  # seconds for imports
AFTER_A_FAILURE = (
    15  # seconds in which the other ranks may fail, too, before they are taken to wait for the one that did
)
FIGURES = ("gradient_error", "rank_spread", "seconds_per_step", "peak_memory")  # of a run that finishes
# Below this release DeepSpeed waits for the last of several gathers only, and with two threads gloo may end it first:
# docs/en/concepts/zero3-early-gather.md. With one thread it cannot.
WAITS_FOR_ALL = (0, 19, 8)
TRACEBACK = "Traceback (most recent call last)"
ONE_GLOO_THREAD = Path(__file__).parents[3] / "snippets" / "concepts" / "one-gloo-thread"


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
    worst: str | None = None  # the tensor with that gradient error
    unmoved: tuple[str, ...] = ()
    unjudged: dict[str, float] = field(default_factory=dict)
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


def together(
    catalog: Catalog,
    incident: Incident,
    jobs: Iterable[tuple[Variant, int]],
    python: Path,
    progress: Callable[[Observation], None] = lambda observation: None,
    guard: Path | None = None,
    environment: str | None = None,
) -> list[Observation]:
    """Run each (variant, repeats) in one launch, beside a guard if one is named; one observation per repeat.

    A shared launch saves imports and decides nothing: what stalls or kills it runs alone, each time, and so does what ends
    in it in another way than is declared for the `environment`. The rest goes on in a new launch.
    """
    observations = []
    for variant, ranks in _each(incident, _interleave(list(jobs)), python, guard):
        seen = _from_ranks(catalog, variant, ranks) if ranks else None
        if not seen or (environment and not seen.agrees_with(variant.declared[environment])):
            seen = alone(catalog, incident, variant, python)
        observations.append(seen)
        progress(seen)
    return observations


def guarded(
    catalog: Catalog, incident: Incident, variants: Iterable[Variant], python: Path
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Of each variant what the guard says, which only records; None where the launch stalled or died.

    Nothing where the project has no guard.
    """
    if (guard := catalog.root / GUARD).is_file():
        for variant, ranks in _each(incident, list(variants), python, guard):
            yield variant.name, ranks[0].get("guard") if ranks else None


def _interleave(jobs: list[tuple[Variant, int]]) -> list[Variant]:
    rounds = max((repeats for _, repeats in jobs), default=0)
    return [variant for turn in range(rounds) for variant, repeats in jobs if turn < repeats]


def _by_group(variants: list[Variant]) -> list[Variant]:
    """The order in which the worker takes them: fewest processes first."""
    return sorted(variants, key=lambda v: 0 if v.launcher == "python" else v.processes)


def _each(
    incident: Incident, variants: list[Variant], python: Path, guard: Path | None = None
) -> Iterator[tuple[Variant, list[dict[str, Any]] | None]]:
    """(variant, its ranks' records) in as few launches as that takes; None for each repeat of what stalled or killed one."""
    pending = _by_group(variants)
    while pending:
        launch = _Launch(incident, pending, python, guard)
        for variant, ranks in launch.results():
            pending.remove(variant)
            yield variant, ranks
        if pending and not launch.to_go_on:
            stalled = pending[0]
            for variant in [variant for variant in pending if variant == stalled]:
                pending.remove(variant)
                yield variant, None


class _Launch:
    """One launch of the worker, of variants in the order in which it takes them."""

    to_go_on = False  # whether it ended because a variant's error broke its group: the rest is none the worse for it

    def __init__(self, incident: Incident, variants: list[Variant], python: Path, guard: Path | None):
        self.incident, self.variants, self.python, self.guard = incident, list(variants), python, guard

    def results(self) -> Iterator[tuple[Variant, list[dict[str, Any]]]]:
        """(variant, its ranks' records) until it ends or stalls. Of ranks that wait for one that failed there is no record."""
        with cleanup.folder() as scratch:
            results, plan = Path(scratch) / "results.jsonl", Path(scratch) / "plan.json"
            results.touch()
            plan.write_text(json.dumps(self._plan(results)), encoding="utf-8")
            command = [*torchrun(self.python, max(v.processes for v in self.variants)), WORKER, plan]
            with running(command, self.python, scratch) as process, results.open() as lines:
                limit, since, partial, failed = START_LIMIT, time.monotonic(), "", None
                while True:
                    ended = process.poll() is not None
                    partial += lines.read()
                    *whole, partial = partial.split("\n")
                    for result in map(json.loads, whole):
                        self._refuse_unknown(result)
                        self.to_go_on |= "again" in result
                        if "ranks" in result:
                            yield self.variants[result["item"]], result["ranks"]
                            limit, since, failed = self.incident.meta.time_limit, time.monotonic(), None
                        elif "failed" in result and not failed:
                            limit, since, failed = AFTER_A_FAILURE, time.monotonic(), result
                    if ended or time.monotonic() - since > limit:
                        log_of(scratch)
                        if failed:  # as under torchrun alone, which ends the others
                            self.to_go_on = True
                            yield self.variants[failed["item"]], [failed["failed"]]
                        return
                    time.sleep(0.02)

    def _plan(self, results: Path) -> dict[str, Any]:
        items = [
            {
                "file": str(self.incident.folder / v.script),
                "variant": v.name,
                "processes": v.processes,
                "launcher": v.launcher,
            }
            for v in self.variants
        ]
        return {
            "results": str(results),
            "items": items,
            "guard": self.guard and str(self.guard),
            "folder": str(self.incident.folder),
            "known": [path.name for path in self.incident.needed_by(self.variants)],
        }

    def _refuse_unknown(self, result: dict[str, Any]) -> None:
        if "unknown" in result:
            raise LabError(
                f"{self.incident.id}: a run opened {result['unknown']}, and no script of its names that file: write "
                "its whole name where it is opened, so that evidence tells when it changes"
            )


def _from_ranks(catalog: Catalog, variant: Variant, ranks: list[dict[str, Any]]) -> Observation:
    seconds = max(rank["seconds"] for rank in ranks)
    if failed := [rank for rank in ranks if "error" in rank]:
        message = _first(
            catalog, [rank["error"] for rank in sorted(failed, key=lambda rank: rank["at"])], failed[0]["error"]
        )
        return Observation(variant.name, "error", catalog.family_of(message), message, seconds=seconds)
    return finished(variant, ranks[0], seconds)


def _first(catalog: Catalog, messages: list[str], of_lowest: str) -> str:
    """Of ranks' errors in the order in which they failed the first; the lowest rank's where that is of the same family."""
    return of_lowest if catalog.family_of(of_lowest) == catalog.family_of(messages[0]) else messages[0]


def finished(variant: Variant, result: dict[str, Any], seconds: float, log: str = "") -> Observation:
    """What `compare` told of a run that finished."""
    figures = {key: result.get(key) for key in FIGURES}
    unjudged = result.get("unjudged", {})
    return Observation(
        variant.name,
        result["outcome"],
        seconds=seconds,
        log=log,
        worst=result.get("worst"),
        unmoved=tuple(result.get("unmoved", ())),
        unjudged=unjudged,
        **figures,
    )


def alone(catalog: Catalog, incident: Incident, variant: Variant, python: Path) -> Observation:
    """Run one variant as a reader would: `torchrun repro.py NAME`, or `python repro.py NAME`."""
    launcher = [python] if variant.launcher == "python" else torchrun(python, variant.processes)
    with cleanup.folder() as scratch:
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
        return finished(variant, json.loads(results[-1]), seconds, log)
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
        cleanup.kill(token)


def message_in(log: str) -> str:
    """The error that ends the traceback of the rank that failed first, from a launcher's log; "" when there is none.

    The first to be printed is the first that failed. Of ranks that raised the same error, numbers aside, the lowest counts.
    """
    ranks: dict[str, list[str]] = {}
    begun: dict[str, int] = {}
    for number, line in enumerate(log.splitlines()):
        prefix = re.match(r"\[rank(\d+)\]: ", line)
        rank, text = (prefix[1], line[prefix.end() :]) if prefix else ("", line)
        ranks.setdefault(rank, []).append(text)
        if text.startswith(TRACEBACK):
            begun[rank] = number
    named = [rank for rank in begun if rank]
    found = {rank: _error_of(ranks[rank]) for rank in sorted(named or begun, key=begun.__getitem__)}
    first = next(iter(found.values()), "")
    return next(
        (found[rank] for rank in sorted(found) if _apart_from_numbers(found[rank]) == _apart_from_numbers(first)), ""
    )


def _error_of(lines: list[str]) -> str:
    """The message of the last traceback in one rank's lines; a bare assertion is told by its source line."""
    starts = [i for i, line in enumerate(lines) if line.startswith(TRACEBACK)]
    frames, start = [], starts[-1] + 1
    while start < len(lines) and (lines[start].startswith(" ") or not lines[start]):
        if lines[start].strip(" ^~"):
            frames.append(lines[start].strip())
        start += 1
    message = "\n".join(lines[start:]).strip()
    return message if ":" in message.split("\n")[0] or not frames else f"{frames[-1]}\n{message}"


def _apart_from_numbers(message: str) -> str:
    return re.sub(r"\d+", "", message)


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
        operators.compile_once(python, running)
    token = uuid.uuid4().hex
    _under_way.add(token)
    operators.sweep_shared_memory()
    with (
        open(Path(scratch) / "log.txt", "wb") as log,
        operators.extensions(python.parent, token) as extensions,
        operators.locks_told(extensions),
        cleanup.watched(token),
    ):
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=scratch,
            # Its temporary files lie with the log: torchrun, when killed, leaves a folder.
            env=environment_of(python.parent)
            | {"TMPDIR": str(scratch), "TORCH_EXTENSIONS_DIR": str(extensions)}
            | (variables or {})
            | {cleanup.TOKEN: token},
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
            cleanup.kill(token)
            process.wait()
            _under_way.discard(token)


def environment_of(bin_folder: Path) -> dict[str, str]:
    """The environment of a run: one thread a rank, no writes beside the repro, its own caches; of gloo's, see above."""
    # Unbuffered, a rank writes each argument of a `print` alone, and lines of two ranks mix.
    unwanted = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "PYTHONPATH", "PYTHONUNBUFFERED")
    # accelerate reads settings from variables too: with ACCELERATE_USE_CPU it trains under DDP what asks for DeepSpeed.
    kept = {
        key: value for key, value in os.environ.items() if key not in unwanted and not key.startswith("ACCELERATE_")
    }
    kept["PATH"] = f"{bin_folder}{os.pathsep}{kept.get('PATH', '')}"
    if any(release < WAITS_FOR_ALL for release in operators.deepspeeds(bin_folder)):
        kept["PYTHONPATH"] = str(ONE_GLOO_THREAD)
    return kept | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPYCACHEPREFIX": str(bin_folder.parent / "pycache"),
        "PYTHONDONTWRITEBYTECODE": "",
        "HF_HUB_OFFLINE": "1",
    }
