"""Verifies on a Dask cluster that runs already: its workers run, this process judges and writes.

What is queued, where it goes and what is tried again is Dask's. A worker has the same project, and makes environments in its
own `build/`, as a local run does.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from readyonce.data import catalog, inputs, project, scheduler
from readyonce.data.catalog import Catalog, Incident
from readyonce.data.schema import GUARD
from readyonce.lab import processes, verify
from readyonce.lab.processes import LabError
from readyonce.lab.verify import Measured, Task, Wanted

LOOK = 1  # seconds until a worker sees that nobody waits for its task any more
RETRIES = 2  # of what failed for a reason of the machine's, such as a full disk
LAUNCH = "readyonce-launch"  # a worker has one, a task takes it: one at a time, whatever the threads


def differences(
    known: Catalog, incidents: list[Incident], environments: Iterable[str], wanted: Wanted, address: str
) -> Iterator[str]:
    """As `verify.differences`, but run by the workers of the Dask scheduler at `address`, each file a task.

    Of what no worker could run the evidence stays as it is, and a text says so. Raises `inputs.Unusable` where there is no
    Dask, no cluster, or one of another state of the project.
    """
    with scheduler.connected(address) as client, ExitStack() as leaving:
        from distributed import as_completed

        state = state_of(known.root)
        _require_ready(client, address, state)
        client.register_plugin(_one_at_a_time())
        token = uuid.uuid4().hex[:8]
        watching = asyncio.run_coroutine_threadsafe(_given_up_when_silent(client), client.loop.asyncio_loop)
        leaving.callback(watching.cancel)
        leaving.callback(client.unsubscribe_topic, "all")  # or the scheduler writes to who has gone
        client.subscribe_topic("all", _left(wanted))
        client.subscribe_topic(token, _heard(wanted))
        whole = list(verify.tasks(known, incidents, environments, wanted))
        parts = [(incident, task, part) for incident, task in whole for part in task.by_file(incident)]
        # The longest first, so that none is left for last.
        parts.sort(key=lambda job: _expected(*job[::2]), reverse=True)
        sent = replace(wanted, say=print, progress=print)  # what they do here, a worker cannot
        futures = {
            client.submit(
                run,
                part,
                sent,
                state,
                token,
                key=f"{part.label}, {token}",
                resources={LAUNCH: 1},
                retries=RETRIES,
                pure=False,
            ): (incident, task, part)
            for incident, task, part in parts
        }
        open_ = {task: set(task.by_file(incident)) for incident, task in whole}
        ended: dict[Task, dict[Task, Measured | LabError]] = defaultdict(dict)
        for future in as_completed(list(futures)):
            incident, task, part = futures.pop(future)
            open_[task].discard(part)
            try:
                ended[task][part] = future.result()
            except Exception as error:  # of the run, of its worker, of the way there: Dask has tried what it can
                words = " ".join(f"{type(error).__name__}: {error}".split())
                yield f"{part.label}: not run on {address}, its stored evidence is as it was. {words}"
            del future  # the cluster need not keep it
            wanted.say(f"{part.label}: ended; {len(futures)} of {len(parts)} to go")
            if not open_[task]:
                yield from _conclude(known, incident, task, ended.pop(task, {}), wanted)


async def _given_up_when_silent(client: Any) -> None:
    """Ends the connection to a scheduler that no longer answers: a frozen host's stays open, and Dask would wait without end."""
    answers = True
    while answers:
        await asyncio.sleep(scheduler.PATIENCE)
        try:
            await asyncio.wait_for(client.scheduler.identity(), 3 * scheduler.PATIENCE)
        except Exception:  # it did not answer, or the connection is lost already
            answers = False
    if client.scheduler_comm:
        client.scheduler_comm.comm.abort()


def _conclude(
    known: Catalog, incident: Incident, task: Task, ended: dict[Task, Measured | LabError], wanted: Wanted
) -> Iterator[str]:
    """Judge and write, as a local run does, when every part of the task has ended well."""
    came = [ended[part] for part in task.by_file(incident) if part in ended]
    if errors := [result for result in came if isinstance(result, LabError)]:
        yield from verify.not_run(known, incident, task.environment, errors[0], wanted)
    elif len(came) == len(task.by_file(incident)):
        yield from verify.conclude(
            known, incident, task.environment, [result for result in came if isinstance(result, Measured)], wanted
        )


def _expected(incident: Incident, part: Task) -> float:
    """Seconds, by the runs that are stored."""
    runs = [incident.run(name, part.environment) for name in (*part.variants, *part.unusable)]
    return sum(stored.seconds * max(1, stored.repeats) for stored in runs if stored)


def _require_ready(client: Any, address: str, state: str) -> None:
    """Asked before: what cannot be unpickled over there ends workers, or is tried again for a minute."""
    try:
        client.wait_for_workers(1, timeout=scheduler.PATIENCE)
    except TimeoutError:
        raise inputs.Unusable(f"the Dask scheduler at {address} has no workers: start some") from None
    lacks = {"scheduler": client.run_on_scheduler(_lacks(), None), **client.run(_lacks(), state)}
    if who := [name for name, lack in lacks.items() if lack]:
        raise inputs.Unusable(
            f"{len(who)} of the scheduler and workers at {address} cannot verify ({who[0]}: {lacks[who[0]]})"
        )


def _lacks() -> Callable[[str | None], str]:
    """What tells why a process cannot run tasks, else nothing; it goes there by value, since it needs nothing of ours."""

    def lacks(state: str | None) -> str:
        try:
            from readyonce.lab import cluster
        except ImportError as error:
            return str(error)
        return cluster.lack(state) if state else ""

    return lacks


def _one_at_a_time() -> Any:
    """What gives each worker, those that come later too, the one launch that a task takes."""
    from distributed import WorkerPlugin

    class OneAtATime(WorkerPlugin):  # type: ignore[misc]  # its types are not read
        name = LAUNCH

        async def setup(self, worker: Any) -> None:
            await worker.set_resources(**{LAUNCH: 1})

    return OneAtATime()


def _heard(wanted: Wanted) -> Callable[[tuple[float, dict[str, str]]], None]:
    """Hands on what workers say."""

    def heard(event: tuple[float, dict[str, str]]) -> None:
        message = event[1]
        if message["how"] == "say":
            wanted.say(f"{message['where']}: {message['line']}")
        else:
            wanted.progress(message["line"] and f"{message['line']}  at {message['where']}")

    return heard


def _left(wanted: Wanted) -> Callable[[tuple[float, dict[str, Any]]], None]:
    """Says which worker has gone. Whether that is for good, Dask knows: it gives what it ran to another, or waits for one."""
    since = time.time()

    def left(event: tuple[float, dict[str, Any]]) -> None:
        if event[0] >= since and event[1].get("action") == "remove-worker":
            wanted.say(f"{event[1]['worker']}: this worker has gone")

    return left


# ------------------------------------------------------------------------------ on a worker


def lack(state: str) -> str:
    """Why this process cannot run tasks of a project in this state; "" where it can."""
    root = project.find()
    if root is None:
        return "no ReadyOnce project there. Start it in one, or set READYONCE_ROOT"
    return "" if state_of(root) == state else f"{root} is not in the state of the project here. Bring it there, restart"


def state_of(root: Path) -> str:
    """A digest of what is run and of what runs it: `snippets/` without evidence, the guard, and this package as it was loaded."""
    digest = hashlib.sha256(_code().encode())
    for path in (*_files(root / "snippets"), *filter(Path.is_file, [root / GUARD])):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@lru_cache(1)
def _code() -> str:
    digest, package = hashlib.sha256(), Path(__file__).parents[1]
    for path in _files(package):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for place, below, names in os.walk(folder):
        below[:] = sorted(set(below) - {"evidence", "__pycache__"})
        yield from (Path(place, name) for name in sorted(names) if not name.endswith(".new"))


@lru_cache(1)
def _catalog(root: Path, state: str) -> Catalog:
    return catalog.load(root).require_sound()


def run(task: Task, wanted: Wanted, state: str, topic: str) -> Measured | LabError:
    """Run a task here, on a worker, and tell under `topic` what goes on. A `LabError` is an answer: elsewhere it is the same.

    What else is raised (a full disk, another state of the project) is this machine's, and Dask's to try again.
    """
    from distributed import get_worker
    from distributed.worker import thread_state

    worker, key = get_worker(), thread_state.key
    where = f"{worker.name} on {socket.gethostname()}"

    def tell(how: str, line: str) -> None:
        worker.log_event(topic, {"how": how, "where": where, "line": line})

    def go_on(line: str) -> None:
        if unwanted.is_set():
            raise LabError("nobody waits for it any more")
        tell("progress", line)

    def look() -> None:
        """Dask cannot end a function that runs. When its client has gone, end what it has launched."""
        while not over.wait(LOOK):
            running = worker.state.tasks.get(key)
            if running is None or running.state != "executing":
                unwanted.set()
                processes.end_launches()

    if lacking := lack(state):
        raise RuntimeError(lacking)
    over, unwanted = threading.Event(), threading.Event()
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    tell("say", f"runs {task.label}")
    try:
        known = _catalog(project.find() or Path(), state)
        return verify.measure(known, task, replace(wanted, say=lambda line: tell("say", line), progress=go_on))
    except LabError as error:
        return error
    finally:
        over.set()
        looking.join()
