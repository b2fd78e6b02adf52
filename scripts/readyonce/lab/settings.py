"""The mended minimal repro under settings that it does not have: adapters, bfloat16, frozen parts.

Eight launches cover each pair of values. What each came to is stored in `settings.json` beside the script.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from readyonce.data import hashes
from readyonce.data.catalog import MINIMAL, SETTINGS, Catalog, Incident
from readyonce.data.schema import SettingRun, SettingRuns, TrainingSetting
from readyonce.lab import minimal, processes, venvs
from readyonce.lab.verify import Wanted

WORKER = Path(__file__).with_name("setting_worker.py")
COVERING = [
    TrainingSetting.model_validate(dict(zip(TrainingSetting.model_fields, values)))
    for values in [
        (False, "float32", "adamw", 2, False, True),
        (True, "float32", "sgd", 1, True, False),
        (False, "bf16", "sgd", 2, True, False),
        (True, "bf16", "adamw", 1, False, True),
        (False, "autocast", "adamw", 1, True, False),
        (True, "autocast", "sgd", 2, False, True),
        (False, "accelerate", "sgd", 1, False, False),
        (True, "accelerate", "adamw", 2, True, True),
    ]
]
EXACT = 1e-4  # in float32, of a gradient's length; right runs were 2e-6 apart at most
ROUNDING = 3  # times what the precision costs the one process
LAST_PLACE = 2.0**-7  # of bfloat16: where one number trains, it may be rounded to its neighbour


def outcome(apart: Sequence[float], rounding: Sequence[float]) -> Literal["match", "diverge"]:
    """Whether gradients, of which these are the distances at each step, count as those of one process.

    Where the precision rounds, the first step tells: after it the weights themselves are apart. In float32 a step in which
    nothing has a gradient has no distance: 0 of 0. A gradient that is nan makes the weights so, and with them the last one.
    """
    if rounding:
        right = apart[0] <= max(ROUNDING * rounding[0], LAST_PLACE)
    else:
        right = not math.isnan(apart[-1]) and all(math.isnan(one) or one <= EXACT for one in apart)
    return "match" if right else "diverge"


def run(incident: Incident, python: Path, setting: TrainingSetting, *, fixed: bool = True) -> SettingRun:
    """Launch it in two processes. Raises `LabError` where it does not end, or says nothing."""
    given: list[str | Path] = [json.dumps(setting.model_dump()), incident.folder / MINIMAL, *["--fixed"] * fixed]
    command = [*processes.torchrun(python, 2), WORKER, *given]
    _, log = minimal.launched(f"{incident.id}/{MINIMAL}", command, python, 2 * incident.meta.time_limit)
    told = next((json.loads(line[7:]) for line in log.splitlines() if line.startswith("RESULT {")), None)
    if told:
        ended = outcome(told["apart"], told["rounding"]) if told["apart"] else "unmet"
        return SettingRun(**told, outcome=ended)
    if message := processes.message_in(log):
        return SettingRun(setting=setting, outcome="error", said=message)
    raise processes.LabError(f"{incident.id}/{MINIMAL} with {given[0]} said nothing\n{log[-3000:]}")


def address(catalog: Catalog, incident: Incident, environment: str) -> dict[str, str]:
    """What decides how it ends: that of the minimal repro, and what exchanges its setting."""
    return minimal.address(catalog, incident, environment) | {WORKER.name: hashes.of_file(WORKER)}


def can_be_set(catalog: Catalog, incident: Incident) -> bool:
    """Whether its script takes other settings: not where it trains with another optimizer than SGD, which is its point."""
    return incident.ours and incident.has_minimal and "sgd" in catalog.text(incident.folder / MINIMAL).lower()


def is_stale(catalog: Catalog, incident: Incident) -> bool:
    """Whether how it ends is not stored, or is stored of other files."""
    stored = incident.settings
    return not stored or stored.made_from != address(catalog, incident, stored.environment.name)


def differences(known: Catalog, incidents: list[Incident], environment: str, wanted: Wanted) -> Iterator[str]:
    """Run each incident under each setting; yields a text for each run that ends otherwise than is stored."""
    for incident in incidents:
        if not can_be_set(known, incident) or wanted.stale and not is_stale(known, incident):
            continue
        python, label = venvs.interpreter(known.root, environment, wanted.say), f"{incident.id}, {MINIMAL}"
        try:
            runs = [run(incident, python, setting) for setting in COVERING]
        except processes.LabError as error:
            yield f"{label}: {error}"
            continue
        if wanted.write:
            made, described = address(known, incident, environment), venvs.describe(environment, python)
            stored = SettingRuns(environment=described, made_from=made, runs=runs)
            minimal.store(known, incident.folder / SETTINGS, stored)
            continue
        then = incident.settings.runs if incident.settings else []
        for seen, before in zip(runs, then):
            if seen.outcome != before.outcome:
                yield f"{label}: {before.outcome} was stored, and now it is {seen.outcome}, with {seen.setting}"
        print(f"{label}: {len(runs)} settings", flush=True)
