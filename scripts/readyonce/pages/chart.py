"""Draws a measured matrix as bars, from its evidence: SVG that works in dark mode and in print."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from readyonce.data.catalog import Incident
from readyonce.data.project import Language
from readyonce.data.schema import Matrix, Quantity, Run
from readyonce.data.words import say

WIDTH, LABEL, BAR, GAP, ROW, TOP = 360, 108, 16, 6, 26, 34  # user units; fits a telephone's screen


def bars(incident: Incident, matrix: Matrix, environment: str, language: Language) -> str:
    """A panel for each quantity; in it a group for each word of the first axis, a bar for each of the second.

    Bars are as long as their ratio to the first bar of their group, which is what a reader compares.
    """
    first, second = matrix.axes
    evidence = incident.evidence[environment]
    runs = {run.variant: run for run in evidence.runs}
    parts, texts, y = [], [], 0
    for quantity in matrix.chart:
        y += 20
        parts.append(f'<text x="0" y="{y}" font-weight="700" font-size="15">{escape(say(quantity, language))}</text>')
        y += TOP - 20
        for word, text in first.items():
            group = {key: runs[f"{word}-{key}"] for key in second if f"{word}-{key}" in runs}
            figures = {key: getattr(run, quantity) for key, run in group.items() if getattr(run, quantity)}
            if not figures:
                continue
            base = next(iter(figures.values()))
            scale = (WIDTH - LABEL - 122) / max(1.0, *(value / base for value in figures.values()))
            y += 16
            parts.append(f'<text x="0" y="{y}" font-weight="600">{escape(text[language])}</text>')
            y += GAP
            for key, value in figures.items():
                label, ratio = escape(second[key][language]), f"{value / base:.2f}×"
                length = value / base * scale
                parts.append(
                    f'<text class="ro-fig-faint" x="{LABEL - 8}" y="{y + 12}" text-anchor="end">{label}</text>'
                )
                parts.append(f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" opacity=".75"/>')
                parts.append(
                    f'<text x="{LABEL + length + 6:.1f}" y="{y + 12}">{_readable(quantity, value)}'
                    f'<tspan class="ro-fig-faint" dx="6">{ratio}</tspan></text>'
                )
                comma, colon = say("comma", language), say("colon", language)
                bar = comma.join([say(quantity, language), text[language], second[key][language]])
                texts.append(f"{bar}{colon}{_readable(quantity, value)}{comma}{ratio}")
                y += BAR + GAP
            y += GAP
        y += ROW - GAP
    title = say(
        "chart",
        language,
        quantities=say("between", language).join(say(quantity, language) for quantity in matrix.chart),
        file=matrix.file,
        device=evidence.environment.device.upper(),
        repeats=_repeats(runs, first, second),
    )
    name = f"ro-chart-{incident.id}-{matrix.file.removesuffix('.py')}"
    return (
        f'<svg class="ro-fig ro-chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - ROW + GAP}" role="img"'
        f' aria-labelledby="{name}-title {name}-desc" fill="currentColor" font-size="12">\n'
        f'<title id="{name}-title">{escape(title)}</title>\n'
        f'<desc id="{name}-desc">{escape(say("semicolon", language).join(texts))}</desc>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _readable(quantity: Quantity, value: float) -> str:
    if quantity == "peak_memory":
        return f"{value / 2**20:.0f} MiB"
    return f"{1000 * value:.0f} ms" if value >= 0.01 else f"{1000 * value:.1f} ms"


def _repeats(runs: dict[str, Run], first: Iterable[str], second: Iterable[str]) -> int:
    return min(runs[f"{a}-{b}"].repeats for a in first for b in second if f"{a}-{b}" in runs)
