"""The answers as one page that needs nothing else: no script, no network, light and dark."""

from __future__ import annotations

from collections import Counter
from html import escape

from readyonce.data.project import Language
from readyonce.data.terminal import printable
from readyonce.data.words import say
from readyonce.diagnose.engine import Rules
from readyonce.triage import report
from readyonce.triage.groups import Group
from readyonce.triage.verdict import Answer

ROW, WIDE, LEFT = 16, 560, 64  # of the timeline, in pixels
RANKS = 64  # shown in one timeline

STYLE = """
:root { color-scheme: light dark; --line: #8884; --first: #c62828; --follow: #b26a00; --quiet: #5c6bc0; --fine: #2e7d32 }
@media (prefers-color-scheme: dark) { :root { --first: #ff8a80; --follow: #ffb74d; --quiet: #9fa8da; --fine: #81c784 } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100% }
th, td { text-align: start; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid var(--line) }
td:first-child.n { text-align: end; white-space: nowrap }
code { font-size: .9em } details { margin: .6rem 0; border-bottom: 1px solid var(--line) } summary { cursor: pointer }
svg { max-width: 100%; height: auto; font: 11px system-ui, sans-serif } svg text { fill: currentColor }
.first { fill: var(--first); color: var(--first) } .follow { fill: var(--follow) } .quiet { fill: var(--quiet) } .fine { fill: var(--fine) }
"""
_CLASS = {"followed": "follow", "ended": "follow", "silent": "quiet", "hung": "quiet", "lost": "quiet", "clean": "fine"}


def html(rules: Rules, answers: list[Answer], groups: list[Group], language: Language) -> str:
    def words(key: str) -> str:
        return escape(say(f"triage.{key}", language))

    counted = Counter(answer.outcome for answer in answers)
    parts = [
        f'<!doctype html>\n<html lang="{"zh-CN" if language == "zh" else "en"}">',
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{words('title')}</title><style>{STYLE}</style>",
        f"<h1>{words('title')}</h1><p>{escape(report.total(answers, language))}</p>",
        "<table>",
        *(f'<tr><td class="n">{counted[outcome]}<td>{words(outcome)}' for outcome in report.ORDER if counted[outcome]),
        "</table>",
    ]
    for known, title in ((True, "known"), (False, "others")):
        if listed := [grouped for grouped in groups if (grouped.family is not None) == known]:
            parts += [f"<h2>{words(title)}</h2><table><tr><th>{words('count')}<th>{words('error')}<th>{words('jobs')}"]
            for group in listed:
                jobs = ", ".join(map(_clean, group.jobs[:50])) + (" ..." if len(group.jobs) > 50 else "")
                told_name = _clean(report.name(rules, group) + report.mark(group, language))
                parts += [f'<tr><td class="n">{len(group.jobs)}<td><code>{told_name}</code><td>{jobs}']
            parts += ["</table>"]
    failed = report.shown(answers)
    parts += [f"<h2>{words('jobs')}</h2>"] if failed else []
    for failure in failed:
        first, *rest = report.told_of(rules, failure, language)
        parts += [
            f"<details><summary><b>{_clean(failure.job)}</b> · {words(failure.outcome)} · {_clean(first)}</summary>"
        ]
        parts += [f"<p>{_clean(row)}</p>" for row in rest]
        if failure.first and failure.first.file:
            parts += [f"<p><code>{_clean(failure.first.file)}:{failure.first.line}</code></p>"]
        parts += [timeline(failure, language), "</details>"]
    return "\n".join([*parts, f"<p>{words('footer')}</p>", "</html>", ""])


def timeline(answer: Answer, language: Language) -> str:
    """A bar for each rank, from its first moment to its last, on clocks that were set by what ranks have in common."""
    ranks = [rank for rank in answer.ranks if rank.rank is not None and rank.start is not None and rank.end is not None]
    if not ranks:
        return ""
    if len(ranks) > RANKS:  # the first one, and its neighbours in time
        ranks = sorted(
            sorted(ranks, key=lambda rank: (rank is not answer.first, rank.end))[:RANKS],
            key=lambda rank: rank.rank or 0,
        )
    low = min(rank.start or 0 for rank in ranks)
    span = max(rank.end or 0 for rank in ranks) - low or 1
    rows = []
    for number, rank in enumerate(ranks):
        x = LEFT + WIDE * ((rank.start or 0) - low) / span
        wide = max(3.0, WIDE * ((rank.end or 0) - (rank.start or 0)) / span)
        kind = "first" if rank is answer.first else _CLASS.get(rank.how, "first")
        y = number * ROW
        text = f"{say('triage.rank', language, rank.rank)}: {say(f'triage.{rank.how}', language, rank.code) if rank.how in _SAID else rank.how}"
        rows.append(
            f'<text x="0" y="{y + 12}">{escape(say("triage.rank", language, rank.rank))}</text>'
            f'<rect class="{kind}" x="{x:.1f}" y="{y + 3}" width="{wide:.1f}" height="10"><title>{_clean(text)}</title></rect>'
        )
    high = len(ranks) * ROW
    title = escape(say("triage.timeline", language))
    return (
        f'<svg role="img" aria-label="{title}" width="{LEFT + WIDE + 70}" height="{high + 18}" '
        f'viewBox="0 0 {LEFT + WIDE + 70} {high + 18}">{"".join(rows)}'
        f'<text x="{LEFT}" y="{high + 13}">0 s</text><text x="{LEFT + WIDE - 30}" y="{high + 13}">{span:.1f} s</text></svg>'
    )


_SAID = ("raised", "killed", "hung", "lost", "cut", "exited")


def _clean(text: str) -> str:
    return escape(printable(text))
