"""Failures that are alike: those of a known family by its name, the others by the template of their words (Drain)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from readyonce.data import inputs
from readyonce.data.scheduler import HOW
from readyonce.triage.verdict import Answer, Rank


@dataclass
class Group:
    """`family` or `template`, never both; `new`: no job of the last report had it."""

    family: str | None
    template: str | None
    jobs: list[str] = field(default_factory=list)
    new: bool = False


def said(first: Rank) -> str:
    """What a failure without a family is grouped by: its message, else how it ended."""
    return first.message if first.how in ("raised", "followed") else f"<{first.how} {first.code or ''}".rstrip() + ">"


def last_report(path: str) -> str:
    inputs.names([path], True, [])  # it raises `Unusable` for a pipe or a device, which may never end
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise inputs.Unusable(f"{path} is no report of triage: write it with --format jsonl --out") from None


def groups(answers: Iterable[Answer], last: str | None = None) -> list[Group]:
    """Known families first, each by how many jobs it has. `last` is the last report, as JSON lines.

    Raises inputs.Unusable where Drain is not installed, or `last` is no such report.
    """
    before = list(_before(last)) if last is not None else []
    known: dict[str, Group] = {}
    others: list[tuple[str | None, str]] = [(None, text) for family, text in before if family is None]
    for answer in answers:
        if answer.first and answer.first.family:
            known.setdefault(answer.first.family, Group(answer.first.family, None)).jobs.append(answer.job)
        elif answer.first:
            others.append((answer.job, said(answer.first)))
    families = {family for family, _ in before}
    for name, group in known.items():
        group.new = last is not None and name not in families
    found = sorted(known.values(), key=lambda grouped: -len(grouped.jobs))
    return found + sorted(_by_template(others, last is not None), key=lambda grouped: -len(grouped.jobs))


def _by_template(texts: list[tuple[str | None, str]], compared: bool) -> list[Group]:
    if not texts:
        return []
    try:
        from drain3 import TemplateMiner
        from drain3.masking import MaskingInstruction
        from drain3.template_miner_config import TemplateMinerConfig
    except ImportError:
        raise inputs.Unusable(f"triage groups failures by Drain (the package drain3). Install it: {HOW}") from None
    config = TemplateMinerConfig()
    config.masking_instructions = [
        MaskingInstruction(r"(?<![\w.])/[^\s'\",:)]+", "path"),
        MaskingInstruction(r"(?<![A-Za-z])\d[\d.:_]*", "n"),
    ]
    miner = TemplateMiner(config=config)
    numbers = [miner.add_log_message(text)["cluster_id"] for _, text in texts]
    groups: dict[int, Group] = {
        cluster.cluster_id: Group(None, cluster.get_template()) for cluster in miner.drain.clusters
    }
    old = {number for number, (job, _) in zip(numbers, texts) if job is None}
    for number, (job, _) in zip(numbers, texts):
        if job is not None:
            groups[number].jobs.append(job)
            groups[number].new = compared and number not in old
    return [grouped for grouped in groups.values() if grouped.jobs]


def _before(text: str) -> Iterator[tuple[str | None, str]]:
    """(family, what it is grouped by) of each failure in a report."""
    for number, line in enumerate(
        io.StringIO(text), 1
    ):  # which parts lines at line feeds alone: a name may hold other ends
        try:
            record = json.loads(line)
            if record["first"]:
                family, said_ = record["error"], record["said"]
                if not isinstance(said_, str) or not isinstance(family, str | None):
                    raise TypeError
                yield family, said_
        except (ValueError, KeyError, TypeError, RecursionError):
            raise inputs.Unusable(
                f"line {number} of the last report is none of triage's: write it with --format jsonl --out"
            ) from None
