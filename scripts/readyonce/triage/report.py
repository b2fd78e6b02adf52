"""The answers for a terminal, and as JSON lines."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

from readyonce.data import inputs
from readyonce.data.project import Language
from readyonce.data.scheduler import HOW
from readyonce.data.terminal import printable
from readyonce.data.words import say
from readyonce.diagnose.engine import Rules
from readyonce.triage import stands, transport
from readyonce.triage.groups import Group, said
from readyonce.triage.stands import Standing
from readyonce.triage.verdict import Answer, Rank

ORDER = ("failed", "unclear", "recovered", "dumped", "fine", "empty")
SHOWN = 20  # ranks that are named one by one


def exit_code(answers: list[Answer]) -> int:
    """1 where a job failed."""
    return int(any(answer.outcome == "failed" for answer in answers))


def jsonl(answers: list[Answer], groups: list[Group]) -> str:
    """A line for each job. `said` is what an unknown failure is grouped by, `group` its template."""
    templates = {job: group for group in groups for job in group.jobs}
    lines = []
    for answer in answers:
        group = templates.get(answer.job)
        more: dict[str, Any] = {"said": said(answer.first) if answer.first else None}
        more |= {"group": group and group.template, "new": bool(group and group.new)}
        lines.append(json.dumps(answer.to_json() | more, ensure_ascii=False, separators=(",", ":")))
    return "".join(line + "\n" for line in lines)


def parquet(answers: list[Answer], groups: list[Group]) -> bytes:
    """A row for each job, with the columns of `jsonl`. Raises inputs.Unusable where pyarrow is not installed."""
    try:
        import pyarrow
        from pyarrow.parquet import write_table
    except ImportError:
        raise inputs.Unusable(f"--format parquet needs pyarrow. Install it: {HOW}") from None
    rows = [json.loads(line) for line in jsonl(answers, groups).encode("utf-8", "replace").splitlines()]
    for row in rows:
        row["fix"] = row["fix"] and row["fix"]["text"]  # its forms differ from family to family
    made = io.BytesIO()
    write_table(pyarrow.Table.from_pylist(rows), made)
    return made.getvalue()


def text(rules: Rules, answers: list[Answer], groups: list[Group], language: Language, colour: bool = False) -> str:
    bold, faint, off = ("\033[1m", "\033[2m", "\033[0m") if colour else ("", "", "")
    lines = [f"{bold}{total(answers, language)}{off}"]
    counted = Counter(answer.outcome for answer in answers)
    lines += [f"{counted[outcome]:6}  {say(f'triage.{outcome}', language)}" for outcome in ORDER if counted[outcome]]
    for known, title in ((True, "known"), (False, "others")):
        if listed := [group for group in groups if (group.family is not None) == known]:
            lines += ["", f"{bold}{say(f'triage.{title}', language)}{off}"]
            lines += [
                f"{len(group.jobs):6}  {printable(name(rules, group))}{mark(group, language)}" for group in listed
            ]
    told = shown(answers)
    if told:
        lines += ["", f"{bold}{say('triage.jobs', language)}{off}"]
    for failure in told:
        lines += [f"{bold}{printable(failure.job)}{off}  {say(f'triage.{failure.outcome}', language)}"]
        lines += [f"    {printable(row)}" for row in told_of(rules, failure, language)]
        if failure.first and failure.first.file:
            lines += [f"    {faint}{printable(failure.first.file)}:{failure.first.line}{off}"]
    return "\n".join([*lines, "", say("triage.footer", language)])


def total(answers: list[Answer], language: Language) -> str:
    size = float(sum(answer.size for answer in answers))
    unit = next(unit for unit in ("B", "KB", "MB", "GB", "TB") if (size := size / 1000) < 1 or unit == "TB")
    return say(
        "triage.total", language, len(answers), sum(answer.files for answer in answers), f"{size * 1000:.3g} {unit}"
    )


def name(rules: Rules, group: Group) -> str:
    if group.family is None:
        return group.template or ""
    return f"{group.family}  {rules.families[group.family]['title']}"


def mark(group: Group, language: Language) -> str:
    return f"  ({say('triage.new', language)})" if group.new else ""


def shown(answers: list[Answer]) -> list[Answer]:
    """The jobs of which there is more to say than that they are fine."""
    found = [answer for answer in answers if answer.first or answer.standing or answer.transport]
    return sorted(found, key=lambda answer: ORDER.index(answer.outcome))


def told_of(rules: Rules, answer: Answer, language: Language) -> list[str]:
    """The rows for a job that failed, of what NCCL and HCCL said, and of one whose processes were dumped."""
    rows = _failure(rules, answer, language) if answer.first else []
    known = answer.first is not None and answer.first.how not in ("followed", "hung", "lost", "exited")
    rows += transported(answer.transport, known, language)
    return rows + (standing(answer.standing, language) if answer.standing else [])


def transported(sets: list[transport.Said], known: bool, language: Language) -> list[str]:
    """What NCCL and HCCL said first, who did, and what that shows. `known`: another rank is known to have failed first."""
    rows = [say("triage.sets", language, len(sets))] if len(sets) > 1 else []
    for it in sets[:SHOWN]:
        told = it.first or it.warned[0]
        if it.first:
            rows.append(say("triage.noticed", language, it.library, process(it.first, language), told.said))
        else:
            rows.append(say("triage.noticed-unknown", language, it.library, len(it.warned), told.said))
        if it.own:
            named = say("triage.and", language).join(process(one, language) for one in it.own[:SHOWN])
            rows.append(say("triage.of-its-own", language, named))
        else:
            rows.append(say(f"triage.{'network' if told.kind == 'net' else 'consequence'}", language))
            if it.quiet and not known:
                rows.append(say("triage.quiet" if it.ranks else "triage.quiet-members", language, some(it.quiet)))
            elif not (it.quiet or it.unnamed or it.mixed or known) and told.size:
                rows.append(say("triage.all-speak", language))
        if it.mixed:
            rows.append(say("triage.mixed", language))
        elif any(one.rank is None and not one.size for one in it.warned):
            rows.append(say("triage.not-named", language))
        if it.unnamed:
            rows.append(say("triage.unnamed", language, it.unnamed))
        if it.peers:
            rows.append(say("triage.peers", language, ", ".join(it.peers[:SHOWN])))
    return [*rows, "..."] if len(sets) > SHOWN else rows


def process(it: transport.Process, language: Language) -> str:
    """Its rank, as far as that is known, and the process and device that the lines name."""
    if it.rank is not None:
        subject = say("triage.rank", language, it.rank)
    elif it.member is not None:
        subject = say("triage.member", language, it.member, it.size)
    else:
        subject = say("triage.no-rank", language)
    return f"{subject} ({it.shown})"


def standing(it: Standing, language: Language) -> list[str]:
    """Where its processes stand, and where they part."""
    rows = [f"{processes(group, language)}: {where(group, language)}" for group in it.groups[:SHOWN]]
    rows += ["..."] if len(it.groups) > SHOWN else []
    if len(it.groups) == 1:
        rows.append(say("triage.together", language))
    elif parts := [group for group in it.groups[:SHOWN] if group.parts and group.parts != group.place.at]:
        of = say("triage.and", language).join(f"{group.parts} ({processes(group, language)})" for group in parts)
        rows.append(say("triage.part", language, of))
    if it.missing:
        rows.append(say("triage.missing", language, some(it.missing)))
    if it.apart:
        rows.append(say("triage.apart", language, processes(it.apart, language)))
    elif len(it.groups) > 1:
        rows.append(say("triage.not-apart", language))
    same = min(group.same for group in it.groups)
    return [*rows, say("triage.same", language, same) if same > 1 else say("triage.again", language)]


def processes(group: stands.Group, language: Language) -> str:
    names = ([say("triage.rank", language, some(group.ranks))] if group.ranks else []) + group.names[:SHOWN]
    return ", ".join(names) + (" ..." if len(group.names) > SHOWN else "")


def where(group: stands.Group, language: Language) -> str:
    """In which call, where that stands in the training's code."""
    place, stand = group.place, group.stand
    words = []
    if stand.call:
        key = "triage.done" if stand.over else "triage.begun"
        words.append(say(key, language, stand.call, stand.begun, stand.group, stand.sizes))
    elif place.call:
        words.append(say("triage.waits" if place.waits else "triage.in", language, place.call))
    if place.at:
        words.append(say("triage.at", language, place.at))
    words += [say("triage.within", language, place.within)] if place.within else []
    if not stand.call and stand.begun is not None:
        words.append(say("triage.collectives", language, stand.begun))
    return say("triage.and", language).join(words) or say("triage.nowhere", language)


def _failure(rules: Rules, answer: Answer, language: Language) -> list[str]:
    assert answer.first
    rows = [who(answer.first, answer.alike, language)]
    if answer.why == "unknown" and not _all_alike(answer):
        rows[0] += "; " + say("triage.unknown", language)
    if answer.first.family:
        incidents = ", ".join(entry["id"] for entry in (answer.first.answer or {}).get("incidents", []))
        rows.append(
            f"{rules.families[answer.first.family]['title']} ({answer.first.family}){incidents and ' · ' + incidents}"
        )
        if fix := (answer.first.answer or {}).get("fix"):
            rows.append(f"{say('triage.fix', language)}: {fix['text'].replace('`', '').replace('**', '')}")
    elif answer.first.message:
        rows.append(answer.first.message)
    json_ = answer.to_json()
    more = [
        say(f"triage.{key}", language, some(json_[of]))
        for key, of in (("follow", "followed"), ("silent", "silent"))
        if json_[of]
    ]
    more += [say("triage.restarts", language, answer.restarts)] if answer.restarts else []
    more += [say("triage.nodes", language, ", ".join(answer.nodes[:SHOWN]))] if len(answer.nodes) > 1 else []
    return [*rows, " · ".join(more)] if more else rows


def _all_alike(answer: Answer) -> bool:
    """Whether all that failed by themselves failed alike: then any of them is the first."""
    assert answer.first
    return all(peer.rank in answer.alike for peer in answer.ranks if peer.how == answer.first.how)


def who(first: Rank, alike: list[int], language: Language) -> str:
    subject = say("triage.no-rank", language) if first.rank is None else say("triage.rank", language, first.rank)
    subject = say("triage.launcher", language) if first.how == "stopped" else subject
    subject += say("triage.on", language, first.node) if first.node else ""
    code = -first.code if first.code and first.code < 0 else first.code
    text = f"{subject} {say(f'triage.{first.how}', language, code)}"
    return text + (f"; {say('triage.alike', language, some(alike))}" if len(alike) > 1 else "")


def some(ranks: list[int]) -> str:
    """Ranks, as ranges."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in runs]
    return ", ".join(texts[:SHOWN]) + (" ..." if len(texts) > SHOWN else "")
