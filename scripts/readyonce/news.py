"""What changed for the readers of an incident: its verdicts, its fix, the versions it was run with and is seen in.

The files of each day are read out of git and judged by today's program, so nothing here is written by hand. Days whose
files this program cannot read any more, and all before them, are left out.
"""

from __future__ import annotations

import io
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path

from readyonce import catalog, history
from readyonce.schema import Affected, Fix, Outcome, Verdict
from readyonce.verdicts import judge

DAYS = 40  # looked back at most; each takes about a quarter of a second


@dataclass(frozen=True)
class State:
    """Of one incident on one day, what its readers rely on."""

    fix: Fix
    affected: tuple[Affected, ...]
    verdicts: dict[str, Verdict]  # of its claims
    outcomes: dict[tuple[str, str], Outcome]  # of its runs, by environment and variant


@dataclass(frozen=True)
class News:
    """What one day changed of one incident; `before` is None where the day brought it."""

    day: str
    incident: str
    before: State | None
    after: State

    @property
    def verdicts(self) -> dict[str, tuple[Verdict | None, Verdict]]:
        """Claim → before, after; None before where nobody had judged it."""
        old = self.before.verdicts if self.before else {}
        return {
            name: (old.get(name), verdict) for name, verdict in self.after.verdicts.items() if old.get(name) != verdict
        }

    @property
    def fixed(self) -> bool:
        """Whether what a reader is told to type is another."""
        steps = [
            (state.fix.option, state.fix.command, state.fix.code) for state in (self.before or self.after, self.after)
        ]
        return steps[0] != steps[1]

    @property
    def affected(self) -> list[Affected]:
        """Packages whose range is another, or that are named now."""
        old = {_range(entry) for entry in self.before.affected} if self.before else set()
        return [entry for entry in self.after.affected if _range(entry) not in old]

    @property
    def runs(self) -> dict[str, Counter[Outcome]]:
        """Environment → how the runs ended that had not been there."""
        old = self.before.outcomes if self.before else {}
        found: dict[str, Counter[Outcome]] = {}
        for (environment, variant), outcome in sorted(self.after.outcomes.items()):
            if (environment, variant) not in old:
                found.setdefault(environment, Counter())[outcome] += 1
        return found

    @property
    def turned(self) -> dict[tuple[str, str], tuple[Outcome, Outcome]]:
        """Environment and variant of each run that ends in another way than it did → before, after."""
        old = self.before.outcomes if self.before else {}
        return {
            run: (old[run], outcome) for run, outcome in self.after.outcomes.items() if old.get(run, outcome) != outcome
        }

    def __bool__(self) -> bool:
        return bool(self.verdicts or self.fixed or self.affected or self.runs or self.turned)


def news(root: Path) -> Iterator[News]:
    """The newest day first, its incidents in their order; none where the history is not all there."""
    days = history.days(root)
    states = (_states(root, commit) for _, commit in days[:DAYS])
    after = next(states, None)
    before_all: list[dict[str, State]] = [{}] if len(days) <= DAYS else []
    for (day, _), before in zip(days, chain(states, before_all)):
        if after is None or before is None:
            return
        for id, state in after.items():
            if entry := News(day, id, before.get(id), state):
                yield entry
        after = before


# Lines that files had until November 28, 2026, and that decide nothing.
RETIRED = re.compile(r"^    alone: .*\n", re.MULTILINE)


@lru_cache(maxsize=DAYS)  # a commit stays what it is: the other language asks for the same, and `serve` again and again
def _states(root: Path, commit: str) -> dict[str, State] | None:
    """Of all incidents at a commit; None where today's program does not understand all of its files."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(history.archive(root, commit, "snippets"))) as packed:
            packed.extractall(folder, filter="data")
        for file in Path(folder).glob("snippets/RO-*/incident.yml"):
            file.write_text(RETIRED.sub("", file.read_text(encoding="utf-8")), encoding="utf-8")
        known = catalog.load(Path(folder))
        if any(problem.file.startswith(("snippets/RO-", "snippets/facts.yml")) for problem in known.problems):
            return None
        return {
            incident.id: State(
                incident.meta.fix,
                tuple(incident.meta.affected),
                {name: judge(known, claim).verdict for name, claim in incident.meta.claims.items()},
                {
                    (environment, run.variant): run.outcome
                    for environment, evidence in incident.evidence.items()
                    for run in evidence.runs
                },
            )
            for incident in known.incidents.values()
        }


def _range(entry: Affected) -> tuple[str | None, str | None, str | None]:
    return entry.package, entry.introduced, entry.fixed
