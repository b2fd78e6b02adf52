"""Reads many files at once, by Dask: on this machine's cores, or on a cluster that runs already."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import lru_cache

from readyonce import diagnose, inputs, scheduler
from readyonce.fleet import layout, sources
from readyonce.fleet.reading import Reading, read
from readyonce.project import Language

LEAST, MOST = 4 << 20, 256 << 20  # bytes of one task


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
        return _flat(bag.compute(scheduler=here))
    with scheduler.connected(address) as client:
        # Asked before: what cannot be unpickled over there ends workers, or is tried again for a minute.
        lacks = {"scheduler": client.run_on_scheduler(_lacks()), **client.run(_lacks())}
        if len(lacks) == 1:
            raise inputs.Unusable(f"the Dask scheduler at {address} has no workers: start some")
        if who := [name for name, lack in lacks.items() if lack]:
            raise inputs.Unusable(
                f"{len(who)} of the scheduler and workers at {address} cannot import triage ({lacks[who[0]]}). On each: {scheduler.HOW}"
            )
        return _flat(client.compute(bag, sync=True))


def _lacks() -> Callable[[], str]:
    """What tells why a process cannot read logs, else nothing; it goes there by value, since it needs nothing of ours."""

    def lacks() -> str:
        try:
            import readyonce.fleet.engine  # noqa: F401
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
def _rules(text: str) -> diagnose.Rules:
    return diagnose.load(text)


def each(names: list[str], rules: str, language: Language) -> list[Reading]:
    """The readings of these files. What cannot be read is told in `fault`, and costs the others nothing."""
    found: list[Reading] = []
    for name in names:
        try:
            for inner, blocks in sources.files(name):
                reading = read(_rules(rules), iter(blocks), inner, layout.place(inner), language)
                reading.fault = reading.fault or (
                    blocks.fault and f"it is cut or damaged ({blocks.fault}): read as far as it goes"
                )
                found.append(reading)
        except Exception as error:  # each store and each form of packing has errors of its own
            found.append(Reading(name, fault=sources.reason(error)))
    return found
