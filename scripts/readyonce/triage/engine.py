"""Reads many files at once, by Dask: on this machine's cores, or on a cluster that runs already."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from readyonce.data import inputs, scheduler
from readyonce.data.project import Language
from readyonce.diagnose import engine
from readyonce.triage import groups, layout, sources, verdict
from readyonce.triage.groups import Group
from readyonce.triage.reading import Reading, read
from readyonce.triage.verdict import Answer

LEAST, MOST = 4 << 20, 256 << 20  # bytes of one task


def triage(
    rules: str, given: list[str], language: Language, address: str | None = None, since: str | None = None
) -> tuple[list[Answer], list[Group], list[str]]:
    """Of many jobs the answers, what is alike, and what could not be read; on the cluster at `address`, or here.

    `since` names the last report. Raises inputs.Unusable where nothing can be read, or a package is not installed.
    """
    faults: list[str] = []
    last = groups.last_report(since) if since else None
    found = readings(rules, sources.expand(given, faults), language, address)
    answers = verdict.answers(found)
    alike = groups.groups(answers, last)
    faults += [f"{inputs.shown(reading.file)}: {reading.fault}" for reading in found if reading.fault]
    return answers, alike, faults


def readings(rules: str, sizes: dict[str, int], language: Language, address: str | None = None) -> list[Reading]:
    """What every file holds, archives' members too. Raises inputs.Unusable where there is no Dask, or no cluster."""
    try:
        import dask.bag
    except ImportError:
        raise inputs.Unusable(f"triage needs Dask. Install it: {scheduler.HOW}") from None
    tasks = _tasks(sizes, (os.cpu_count() or 1) if address is None else 64)
    bag = dask.bag.from_sequence(tasks, npartitions=len(tasks)).map(each, rules, language)
    if address is None:
        here = "synchronous" if len(tasks) == 1 else "processes"  # processes take a second to start
        return _flat(bag.compute(scheduler=here, initializer=_end_with_the_command))
    with scheduler.connected(address) as client:
        # Asked before: what cannot be unpickled over there ends workers, or is tried again for a minute.
        lacks = {"scheduler": client.run_on_scheduler(_lacks()), **client.run(_lacks())}
        if len(lacks) == 1:
            raise inputs.Unusable(f"the Dask scheduler at {address} has no workers: start some")
        if who := [name for name, lack in lacks.items() if lack]:
            raise inputs.Unusable(
                f"{len(who)} of the scheduler and workers at {address} cannot import triage ({lacks[who[0]]}). On each: {scheduler.HOW}"
            )
        return _flat(_result(client, bag, address))


def _result(client: Any, bag: Any, address: str) -> Iterable[list[Reading]]:
    """What the cluster makes of it. Raises inputs.Unusable where it loses its scheduler, or all of its workers."""
    future = client.compute(bag)
    while True:
        try:
            found: Iterable[list[Reading]] = future.result(scheduler.PATIENCE)
            return found
        except TimeoutError:  # Dask waits without end for new workers
            if not client.scheduler_info()["workers"]:
                raise inputs.Unusable(f"the Dask scheduler at {address} has lost its workers: start some") from None
        except Exception as error:
            raise inputs.Unusable(f"the Dask cluster at {address} gave no answer: {inputs.words(error)}") from None


def _end_with_the_command() -> None:
    """In each worker: who kills the command with a signal that it cannot pass on leaves no worker behind."""

    def wait() -> None:
        command = multiprocessing.parent_process()
        if command:
            command.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _lacks() -> Callable[[], str]:
    """What tells why a process cannot read logs, else nothing; it goes there by value, since it needs nothing of ours."""

    def lacks() -> str:
        try:
            import readyonce.triage.engine  # noqa: F401
        except ImportError as error:
            return str(error)
        return ""

    return lacks


def _flat(parts: Iterable[list[Reading]]) -> list[Reading]:
    return [reading for part in parts for reading in part]


def _tasks(sizes: dict[str, int], workers: int) -> list[list[str]]:
    """Files in groups of about the same size, some for each worker; large ones first, so that none is left for last."""
    room = min(MOST, max(LEAST, sum(sizes.values()) // (8 * workers)))
    tasks: list[list[str]] = []
    left = 0
    for name, size in sorted(sizes.items(), key=lambda file: -file[1]):
        if left < size or not tasks or len(tasks[-1]) >= 500:
            tasks.append([])
            left = room
        tasks[-1].append(name)
        left -= size
    return tasks


@lru_cache(1)
def _rules(text: str) -> engine.Rules:
    return engine.load(text)


def each(names: list[str], rules: str, language: Language) -> list[Reading]:
    """The readings of these files. What cannot be read is told in `fault`, and costs the others nothing."""
    found: list[Reading] = []
    for name in names:
        try:
            for inner, blocks in sources.files(name):
                reading = read(_rules(rules), iter(blocks), inner, layout.place(inner), language)
                reading.fault = reading.fault or (
                    blocks.fault and f"it {inputs.damage(blocks.fault)}: read as far as it goes"
                )
                found.append(reading)
        except Exception as error:  # each store and each form of packing has errors of its own
            found.append(Reading(name, fault=sources.reason(error)))
    return found
