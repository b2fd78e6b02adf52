"""One run of each error family on two hosts: two network namespaces with a link of their own, one rank in each.

python tests/cluster/two_hosts.py writes what it showed to snippets/cluster/two-hosts.json and .md. It needs root.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from readyonce import catalog, ending, lab, project

STORED = Path("snippets", "cluster", "two-hosts.json")
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


def chosen(known: catalog.Catalog) -> dict[str, str]:
    """Of each family that a repro shows with two ranks in the current environment the first run: family → its name."""
    runs = [
        it
        for it in known.observed
        if it.environment == "current" and not it.variant.is_command and it.run.outcome == "error"
        if it.variant.processes == 2 and it.variant.launcher == "torchrun"
    ]
    return {it.run.error: it.name for it in reversed(runs) if it.run.error}


def run(known: catalog.Catalog, name: str, names: list[str]) -> dict[str, str | float | None]:
    """What a run showed on these hosts: the outcome, with its error family and gradient error."""
    observed = known.run_named(name)
    assert observed
    incident, variant, python = observed.incident, observed.variant, lab.interpreter(known.root, "current")
    logs, codes = [], []
    with ExitStack() as stack:
        started = []
        for number, host in enumerate(names):
            scratch = stack.enter_context(ending.folder())
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
            started.append((scratch, stack.enter_context(lab.running(command, python, scratch, on))))
        for scratch, process in started:
            code = None
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(incident.meta.time_limit + lab.START_LIMIT)
            codes.append(code)
            logs.append(lab.log_of(scratch))
    told: dict[str, str | float | None] = {"outcome": "error", "error": None, "gradient_error": None}
    results = re.findall(r"^RESULT (\{.*\})$", logs[0], re.MULTILINE)
    if None in codes:
        return told | {"outcome": "hang"}
    if results and codes == [0, 0]:
        result = json.loads(results[-1])
        return told | {key: result.get(key) for key in ("outcome", "gradient_error")}
    families = {known.family_of(lab.message_in(log)) for log in logs} - {None}
    return told | {
        "error": families.pop() if len(families) == 1 else f"of {len(families)} families: {sorted(families)}"
    }


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the `with`, which takes the namespaces away
    known = catalog.load(catalog.find_root()).require_sound()
    described = lab.describe("current", lab.interpreter(known.root, "current"))
    runs = {}
    with hosts() as names:
        for family, name in sorted(chosen(known).items()):
            runs[family] = {"run": name} | run(known, name, names)
            print(f"{family}: {runs[family]}", flush=True)
    environment = {
        "date": datetime.date.today().isoformat(),
        "hosts": "two network namespaces of one machine, a rank in each",
        "backend": described.backend,
        "versions": described.versions,
    }
    text = json.dumps({"environment": environment, "runs": runs}, indent=1) + "\n"
    project.write_whole(known.root / STORED, text)
    project.write_whole(known.root / STORED.with_suffix(".md"), rows(runs))


def rows(runs: dict[str, dict[str, str | float | None]]) -> str:
    """Of the page's table: the family of one host, the run, and how it ended on two."""
    return "".join(
        f"| `{family}` | `{it['run'].replace('/', ' ')}` | `{it['error'] or it['outcome']}` |\n"
        for family, it in runs.items()
    )


if __name__ == "__main__":
    sys.exit(main())
