"""The page "Which setting works": its tables, and the answers of the picker above them. Both are queries over all runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from html import escape

from readyonce import frameworks, guard
from readyonce.catalog import Catalog, Observed
from readyonce.conditions import Part, part_in_words, parts, value_in_words
from readyonce.links import run_address
from readyonce.markup import chip
from readyonce.project import Language
from readyonce.schema import SILENT
from readyonce.words import say

ANY = "any"  # in the picker: whatever it is


def includes(catalog: Catalog, language: Language) -> dict[str, str]:
    if catalog.decision is None:
        return {}
    return {"decision.md": tables(catalog, language), "decision-picker.md": picker(catalog, language)}


def cells(catalog: Catalog) -> dict[tuple[str, str], dict[str, list[Observed]]]:
    """The runs of each strategy and use, by column; what no run fits is left out."""
    columns = catalog.require_decision().columns.items()
    found = {}
    for row, where in catalog.require_decision().rows.items():
        runs = catalog.fitting(where)[0]
        by_column = {name: [it for it in runs if catalog.fits(column.where, it)] for name, column in columns}
        if any(by_column.values()):
            found[row] = {name: runs for name, runs in by_column.items() if runs}
    return found


def row_id(strategy: str, use: str) -> str:
    return f"{strategy}-{use}"


# ------------------------------------------------------------------------------ the tables


def tables(catalog: Catalog, language: Language) -> str:
    """A table for strategies that have the same columns, with a head for each strategy."""
    found = cells(catalog)
    strategies = dict.fromkeys(strategy for strategy, _ in found)

    def columns(strategy: str) -> tuple[str, ...]:
        has = set().union(*(found[row] for row in found if row[0] == strategy))
        return tuple(name for name in catalog.require_decision().columns if name in has)

    made = []
    for names, group in itertools.groupby(strategies, key=columns):
        heads = [f'<th scope="col" markdown="span">{_head(catalog, name, language)}</th>' for name in names]
        made += ['<table markdown="1">', '<thead markdown="1">', '<tr markdown="1">']
        made += [f'<th scope="col">{say("training", language)}</th>', *heads, "</tr>", "</thead>"]
        for strategy in group:
            title = value_in_words(catalog, "strategy", strategy, language)
            made += ['<tbody markdown="1">', '<tr class="ro-group">']
            made += [f'<th scope="rowgroup" colspan="{len(names) + 1}" id="{strategy}">{title}</th>', "</tr>"]
            for (_, use), by_column in ((row, runs) for row, runs in found.items() if row[0] == strategy):
                text = catalog.require_decision().uses[use].text[language]
                made += ['<tr markdown="1">', f'<th scope="row" id="{row_id(strategy, use)}">{text}</th>']
                for name in names:
                    column = catalog.require_decision().columns[name].text[language].replace("`", "")
                    cell = _breakable(outcomes(catalog, by_column.get(name, []), language))
                    made.append(f'<td data-column="{escape(column)}" markdown="span">{cell}</td>')
                made.append("</tr>")
            made.append("</tbody>")
        made.append("</table>\n")
    return '<div class="ro-decision" markdown="1">\n\n' + "\n".join(made) + "\n</div>\n"


def _head(catalog: Catalog, name: str, language: Language) -> str:
    text = _breakable(catalog.require_decision().columns[name].text[language])
    first = name == next(iter(catalog.require_decision().columns))
    return f"{text}<br>{chip(say('recommended', language), 'holds')}" if first else text


def _breakable(text: str) -> str:
    """Code that may break between its words: columns are narrow."""
    return re.sub(r"`(.+?)`", lambda code: f"<code>{re.sub('(?<=[_=(])', '<wbr>', escape(code[1]))}</code>", text)


def outcomes(catalog: Catalog, runs: Sequence[Observed], language: Language) -> str:
    """Each outcome among the runs, with how many and, where there are several, the conditions of each but the right one."""
    lines = [say("not-run", language)] if not runs else []
    by_label = _by_label(catalog, runs)
    for label, alike in by_label.items():
        lines.append(_outcome(catalog, label, alike, language, len(by_label) > 1))
    return "<br>".join(lines)


def _by_label(catalog: Catalog, runs: Sequence[Observed]) -> dict[str, list[Part]]:
    """The runs in parts that came out alike; those that train right first."""
    by_label: dict[str, list[Part]] = {}
    for part in parts(catalog, runs):
        by_label.setdefault(part.label, []).append(part)
    return dict(sorted(by_label.items(), key=lambda item: (item[0] != "match", item[0])))


def _outcome(catalog: Catalog, label: str, alike: list[Part], language: Language, several: bool) -> str:
    runs = [it for part in alike for it in part.runs]
    worst = max(runs, key=lambda it: it.run.gradient_error or 0)
    target = "incidents/" + run_address(worst.incident.id, worst.run.variant, worst.environment)
    outcome = label.partition(":")[0]
    text = f"[{chip(say(outcome, language), outcome)}]({target}) {len(runs)}"
    if several and outcome != "match":
        conditions = dict.fromkeys(part_in_words(catalog, part, language) for part in alike)
        text += say("colon", language) + say("or-else", language).join(conditions)
    return text


# ------------------------------------------------------------------------------ the picker


def picker(catalog: Catalog, language: Language) -> str:
    """What one can choose, each answer once, with the choices that it is for, and the option in each stack.

    A script shows the one answer that is asked for.
    """
    found = cells(catalog)
    answers: dict[str, list[str]] = {answer(catalog, {}, "", language): []}
    for choice, by_column in choices(catalog).items():
        answers.setdefault(answer(catalog, by_column, row_id(*choice[:2]), language), []).append("/".join(choice))
    words = {
        "strategy": {strategy: value_in_words(catalog, "strategy", strategy, language) for strategy, _ in found},
        "use": {use: it.text[language] for use, it in catalog.require_decision().uses.items()},
        "tuning": {ANY: say("any", language)}
        | {value: text[language] for value, text in catalog.vocabulary["tuning"].values.items()},
        "version": {ANY: say("any", language)}
        | {
            f"{name}={value}": value_in_words(catalog, name, value, language)
            for name, value in dict.fromkeys(it for row in found for it in versions(catalog, found[row]))
        },
    }
    made = ['<div class="ro-pick" hidden data-search-exclude markdown="1">', '<div class="ro-pick-ask">']
    for name, options in words.items():
        listed = "".join(f'<option value="{value}">{escape(text)}</option>' for value, text in options.items())
        hidden = " hidden" if name == "version" else ""  # until it decides something
        made.append(f'<label{hidden}>{say(f"pick-{name}", language)} <select name="{name}">{listed}</select></label>')
    made += ["</div>", '<p class="ro-pick-answer" role="status"></p>', '<ul hidden markdown="1">']
    made += [f'<li data-for="{" ".join(keys)}" markdown="span">{text}</li>' for text, keys in answers.items()]
    option = frameworks.tabs(catalog, ["checkpointing"], language, "", first=True)
    return "\n".join([*made, "</ul>", "", option, "</div>"]) + "\n"


def choices(catalog: Catalog) -> dict[tuple[str, str, str, str], dict[str, list[Observed]]]:
    """Strategy, use, tuning and version → the runs by column, of all that some run fits."""
    found = {}
    for row, by_column in cells(catalog).items():
        for tuning in (ANY, *catalog.vocabulary["tuning"].values):
            for version in (None, *versions(catalog, by_column)):
                fit = {
                    name: [
                        it
                        for it in runs
                        if tuning in (ANY, it.facts.get("tuning"))
                        and (version is None or it.facts.get(version[0]) == version[1])
                    ]
                    for name, runs in by_column.items()
                }
                if any(fit.values()):
                    found[(*row, tuning, "=".join(version) if version else ANY)] = fit
    return found


def versions(catalog: Catalog, by_column: dict[str, list[Observed]]) -> list[tuple[str, str]]:
    """Package and version, of packages whose version tells outcomes apart here."""
    names = {name for runs in by_column.values() for part in parts(catalog, runs) for name in part.names}
    return [
        (name, value)
        for name in catalog.vocabulary
        if name in names and catalog.vocabulary[name].kind == "version"
        for value in sorted({str(it.facts[name]) for runs in by_column.values() for it in runs if name in it.facts})
    ]


def answer(catalog: Catalog, by_column: dict[str, list[Observed]], row: str, language: Language) -> str:
    """A sentence on the column that is recommended; where it never trained right, or was not run, one on the others."""
    first, *others = catalog.require_decision().columns
    runs = by_column.get(first, [])
    lead, kind = _right(catalog, first, runs, "pick-runs" if runs else "pick-not-run", language)
    sentences, by_label = [f"**{lead}**{{ .ro-{kind} }}"], _by_label(catalog, runs)
    if bad := {label: alike for label, alike in by_label.items() if label != "match"}:
        each = (_outcome(catalog, label, alike, language, len(by_label) > 1) for label, alike in bad.items())
        sentences.append(say("pick-others", language) + say("semicolon", language).join(each) + say("stop", language))
    also = [_right(catalog, it, by_column[it], "pick-other", language)[0] for it in others if by_column.get(it)]
    if also and kind in ("open", "error"):
        sentences.append(say("pick-also", language, say("semicolon", language).join(also)))
    silent = any(it.run.outcome in SILENT for alike in by_column.values() for it in alike)
    # What was chosen does not settle it, or a neighbour of it fails without a word.
    if (kind == "depends" or silent) and guard.files(catalog):
        sentences.append(say("pick-guard", language))
    if row:
        sentences.append(f"[{say('pick-row', language)}](#{row})")
    return say("next", language).join(sentences)


def _right(catalog: Catalog, column: str, runs: list[Observed], key: str, language: Language) -> tuple[str, str]:
    """How many of these runs train right, in words, and the colour for it."""
    right = sum(it.label == "match" for it in runs)
    kind = "open" if not runs else "match" if right == len(runs) else "depends" if right else "error"
    return say(key, language, catalog.require_decision().columns[column].text[language], right, len(runs)), kind
