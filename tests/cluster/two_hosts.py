"""Runs on two hosts: two network namespaces with a link of their own, one rank in each.

python tests/cluster/two_hosts.py writes what they showed, as evidence of the environment `two-hosts`. It needs root.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from readyonce.data import catalog
from readyonce.data.schema import Evidence
from readyonce.lab import cleanup, made_from, processes, recording, venvs

ENVIRONMENT = "two-hosts"
PORT = 29500  # each pair has its own network


@contextmanager
def hosts() -> Iterator[list[str]]:
    """The names of two namespaces, 10.0.0.1 and 10.0.0.2; they are gone on leaving."""
    names = [f"readyonce-{os.getpid()}-{number}" for number in (0, 1)]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    with ExitStack() as leaving:
        for name in names:
            ip("netns", "add", name)
            leaving.callback(ip, "netns", "del", name)
        ip("link", "add", "host0", "netns", names[0], "type", "veth", "peer", "name", "host1", "netns", names[1])
        for number, name in enumerate(names):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "address", "add", f"10.0.0.{number + 1}/24", "dev", f"host{number}")
            ip("-n", name, "link", "set", f"host{number}", "up")
        yield names


def chosen(known: catalog.Catalog) -> list[catalog.Observed]:
    """Of the repros' runs with two ranks in `current`: the first of each error family, and of each incident the first that
    trains right and the first that trains wrong without a word."""
    found: dict[tuple[str, ...], catalog.Observed] = {}
    for it in known.observed:
        if it.environment != "current" or it.variant.is_command or it.run.outcome == "hang":
            continue
        if (it.variant.processes, it.variant.launcher) == (2, "torchrun"):
            key = (it.run.error,) if it.run.error else (it.incident.id, it.run.outcome)
            found.setdefault(key, it)
    return list(found.values())


def run(known: catalog.Catalog, observed: catalog.Observed, names: list[str]) -> processes.Observation:
    """What a run showed on these hosts."""
    incident, variant, python = observed.incident, observed.variant, venvs.interpreter(known.root, "current")
    logs, codes = [], []
    with ExitStack() as stack:
        started = []
        for number, host in enumerate(names):
            scratch = stack.enter_context(cleanup.folder())
            launcher: list[str | Path] = [
                python,
                "-m",
                "torch.distributed.run",
                "--nnodes",
                "2",
                "--nproc-per-node",
                "1",
            ]
            launcher += ["--node-rank", str(number), "--master-addr", "10.0.0.1", "--master-port", str(PORT)]
            command = ["ip", "netns", "exec", host, *launcher, incident.folder / variant.script, variant.name]
            on = {"GLOO_SOCKET_IFNAME": f"host{number}"}
            started.append((scratch, stack.enter_context(processes.running(command, python, scratch, on))))
        for scratch, process in started:
            code = None
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(incident.meta.time_limit + processes.START_LIMIT)
            codes.append(code)
            logs.append(processes.log_of(scratch))
    results = re.findall(r"^RESULT (\{.*\})$", logs[0], re.MULTILINE)
    seen = processes.Observation(variant.name, "error", log="\n".join(logs))
    if None in codes:
        return replace(seen, outcome="hang")
    if results and codes == [0, 0]:
        result = json.loads(results[-1])
        return replace(seen, **{key: result.get(key) for key in ("outcome", "gradient_error", "rank_spread")})
    by_family = {known.family_of(message): message for message in map(processes.message_in, logs)}
    # What the other rank says of the lost one is no cause; of two causes it is none.
    families = [family for family in by_family if family]
    causes = [family for family in families if known.families[family].yields != "consequence"] or families
    family = causes[0] if len(causes) == 1 else None
    return replace(
        seen, error=family, message=by_family[family] if family in by_family else "\n".join(by_family.values())
    )


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the `with`, which takes the namespaces away
    known = catalog.load(catalog.find_root()).require_sound()
    described = venvs.describe("current", venvs.interpreter(known.root, "current"))
    environment = described.model_copy(update={"name": ENVIRONMENT, "hosts": 2})
    seen: dict[str, dict[str, processes.Observation]] = {}
    with hosts() as names:
        for it in chosen(known):
            seen.setdefault(it.incident.id, {})[it.run.variant] = run(known, it, names)
            print(f"{it.name}: {seen[it.incident.id][it.run.variant].short}", flush=True)
    for id, runs in seen.items():
        incident = known.incidents[id]
        facts = {name: here.facts for name in runs if (here := incident.run(name, "current"))}
        evidence = Evidence(environment=environment, runs=recording.summarise([], runs, facts)[0])
        recording.write(incident, made_from.addressed(known, incident, evidence))


if __name__ == "__main__":
    main()
