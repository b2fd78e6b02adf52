"""The page "Which setting works": its tables, and the answers of the picker above them. Both are queries over all runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from html import escape

from readyonce.data import frameworks
from readyonce.data.catalog import Catalog, Observed
from readyonce.data.conditions import Part, part_in_words, parts, value_in_words
from readyonce.data.facts import version as version_key
from readyonce.data.links import run_address
from readyonce.data.markup import chip
from readyonce.data.project import Language
from readyonce.data.schema import SILENT, Remedy, Setting
from readyonce.data.words import say
from readyonce.pages import guard

ANY = "any"  # in the picker: whatever it is
ByColumn = dict[str, list[Observed]]
Choice = tuple[str, str, str, str]  # strategy, use, tuning, version
Choices = dict[Choice, ByColumn]


def includes(catalog: Catalog, language: Language) -> dict[str, str]:
    if catalog.decision is None:
        return {}
    return {"decision.md": tables(catalog, language), "decision-picker.md": picker(catalog, language)}


def cells(catalog: Catalog) -> dict[tuple[str, str], ByColumn]:
    """The runs of each strategy and use, by column; what no run fits is left out."""
    columns = catalog.require_decision().columns.items()
    found = {}
    for row, where in catalog.require_decision().rows.items():
        runs = catalog.fitting(where)[0]
        by_column = {name: list(runs & catalog.telling(column.where)[0]) for name, column in columns}
        if any(by_column.values()):
            found[row] = {name: runs for name, runs in by_column.items() if runs}
    return found


def recommended(catalog: Catalog) -> str:
    """The first column."""
    return next(iter(catalog.require_decision().columns))


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
    return f"{text}<br>{chip(say('recommended', language), 'holds')}" if name == recommended(catalog) else text


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
    runs = [observed for part in alike for observed in part.runs]
    worst = max(runs, key=lambda observed: observed.run.gradient_error or 0)
    target = "incidents/" + run_address(worst.incident.id, worst.run.variant, worst.environment)
    outcome = label.partition(":")[0]
    text = f"[{chip(say(outcome, language), outcome)}]({target}) {len(runs)}"
    if several and outcome != "match":
        conditions = dict.fromkeys(part_in_words(catalog, part, language) for part in alike)
        text += say("colon", language) + say("or-else", language).join(conditions)
    return text


# ------------------------------------------------------------------------------ the picker


def picker(catalog: Catalog, language: Language) -> str:
    """What one can choose, each answer once, with the choices that it is for, and the options that an answer speaks of.

    A script shows the answer that is asked for in place of the first, and its option in each stack.
    """
    found = choices(catalog)
    answers: dict[tuple[str, tuple[Setting, ...]], list[str]] = {(answer(catalog, found, None, language), ()): []}
    for choice, by_column in found.items():
        kind = answer(catalog, found, choice, language), settings_of(catalog, by_column)
        answers.setdefault(kind, []).append("/".join(choice))
    words = {
        "strategy": {
            strategy: value_in_words(catalog, "strategy", strategy, language)
            for strategy in dict.fromkeys(choice[0] for choice in found)
        },
        "use": {use: entry.text[language] for use, entry in catalog.require_decision().uses.items()},
        "tuning": {ANY: say("any", language)}
        | {value: text[language] for value, text in catalog.vocabulary["tuning"].values.items()},
        "version": {ANY: say("any", language)}
        | {
            version: _version_in_words(catalog, version, language)
            for version in dict.fromkeys(choice[3] for choice in found)
            if version != ANY
        },
    }
    made = ['<div class="ro-pick" hidden data-search-exclude markdown="1">', '<div class="ro-pick-ask">']
    for name, values in words.items():
        listed = "".join(f'<option value="{value}">{escape(text)}</option>' for value, text in values.items())
        hidden = " hidden" if name == "version" else ""  # until it decides something
        made.append(f'<label{hidden}>{say(f"pick-{name}", language)} <select name="{name}">{listed}</select></label>')
    first, shown = next(kind for kind, keys in answers.items() if keys)  # for what is chosen to begin with
    made += [
        "</div>",
        f'<p class="ro-pick-answer" role="status" markdown="span">{first}</p>',
        '<ul hidden markdown="1">',
    ]
    made += [
        f'<li data-for="{" ".join(keys)}" data-option="{" ".join(settings)}" markdown="span">{text}</li>'
        for (text, settings), keys in answers.items()
    ]
    made += ["</ul>", ""]
    for settings in filter(None, dict.fromkeys(settings for _, settings in answers)):
        hidden = "" if settings == shown else " hidden"
        stacks = frameworks.tabs(catalog, list(settings), language, "", first=True)
        made += [f'<div data-option="{" ".join(settings)}"{hidden} markdown="1">', "", stacks, "</div>"]
    return "\n".join([*made, "</div>"]) + "\n"


def choices(catalog: Catalog) -> Choices:
    """Strategy, use, tuning and version → the runs by column, of all that some run fits."""
    found = {}
    for row, by_column in cells(catalog).items():
        for tuning in (ANY, *catalog.vocabulary["tuning"].values):
            for version in (None, *versions(catalog, by_column)):
                fit = {
                    name: [
                        observed
                        for observed in runs
                        if tuning in (ANY, observed.facts.get("tuning"))
                        and (version is None or observed.facts.get(version[0]) == version[1])
                    ]
                    for name, runs in by_column.items()
                }
                if any(fit.values()):
                    found[(*row, tuning, "=".join(version) if version else ANY)] = fit
    return found


def versions(catalog: Catalog, by_column: ByColumn) -> list[tuple[str, str]]:
    """Package and version, of packages whose version tells outcomes apart here."""
    names = {name for runs in by_column.values() for part in parts(catalog, runs) for name in part.names}
    return [
        (name, value)
        for name in catalog.vocabulary
        if name in names and catalog.vocabulary[name].kind == "version"
        for value in sorted(
            {str(observed.facts[name]) for runs in by_column.values() for observed in runs if name in observed.facts}
        )
    ]


def answer(catalog: Catalog, found: Choices, choice: Choice | None, language: Language) -> str:
    """A sentence on what to take, the column that comes nearest, what became of its other runs, and what else is to be known.

    The column is the recommended one; where it never trained right, or was not run, the first advised one that always did,
    or at all. Where that one does not always train right, what does leads: a version, or a change of code. A column that is not advised is never named as a way out.
    """
    by_column = found[choice] if choice else {}
    first, taken = recommended(catalog), _taken(catalog, by_column)
    sentences, kind = _outcomes_of(catalog, taken, by_column, language)
    remedy = _remedy(catalog, choice, language) if choice else None
    newer = _in_version(catalog, found, choice, language) if choice else None
    lead = None
    if kind != "match":
        lead = newer or (say("pick-no-setting", language, remedy) if remedy else None)
    if lead:
        sentences = [f"**{lead}**{{ .ro-match }}", *sentences]
    else:
        sentences[0] = f"**{sentences[0]}**{{ .ro-{kind} }}"
    if taken != first:
        sentences += _outcomes_of(catalog, first, by_column, language)[0]
    if taken != first or kind in ("open", "error"):
        rest = [name for name, runs in by_column.items() if name not in (taken, first) and runs]
        good = [name for name in rest if right(by_column[name])]
        if advised := [name for name in good if catalog.require_decision().columns[name].advised]:
            also = (_right(catalog, name, by_column[name], "pick-other", language)[0] for name in advised)
            sentences.append(say("pick-also", language, say("semicolon", language).join(also)))
        elif rest and not good and not lead:
            sentences.append(say("pick-none", language))
    if choice and (others := _otherwise_trained(catalog, found, choice, language)):
        sentences.append(others)
    if newer and not lead:
        sentences.append(newer)
    if remedy and not lead and _fails_somewhere(catalog, by_column):
        sentences.append(say("pick-not-enough", language, remedy))
    silent = any(observed.run.outcome in SILENT for runs in by_column.values() for observed in runs)
    # What was chosen does not settle it, or a neighbour of it fails without a word.
    if (kind == "depends" or silent) and guard.files(catalog):
        sentences.append(say("pick-guard", language))
    if choice:
        sentences.append(f"[{say('pick-row', language)}](#{row_id(*choice[:2])})")
    return say("next", language).join(sentences)


def proving(catalog: Catalog, remedy: Remedy, strategy: str) -> list[Observed]:
    """The runs with this strategy that prove a remedy."""
    return [
        observed
        for observed in catalog.observed
        if observed.incident.id == remedy.incident
        and observed.facts.get("strategy") == strategy
        and any(fnmatchcase(observed.run.variant, pattern) for pattern in remedy.variants)
    ]


def _remedy(catalog: Catalog, choice: Choice, language: Language) -> str | None:
    """The change of code that trains right with this strategy, and in how many runs it did."""
    for remedy in catalog.require_decision().uses[choice[1]].remedies:
        if runs := proving(catalog, remedy, choice[0]):
            return say("pick-remedy", language, remedy.text[language], remedy.page, len(right(runs)), len(runs))
    return None


def _in_version(catalog: Catalog, found: Choices, choice: Choice, language: Language) -> str | None:
    version, first = _version_that_does(catalog, found, choice), recommended(catalog)
    if not version:
        return None
    there = _right(catalog, first, found[(*choice[:3], version)][first], "pick-runs", language)[0]
    return say("pick-elsewhere", language, _version_in_words(catalog, version, language), there)


def _otherwise_trained(catalog: Catalog, found: Choices, choice: Choice, language: Language) -> str | None:
    """The recommended column's runs with something else trained, where none was run with what is chosen."""
    first = recommended(catalog)
    others = found.get((*choice[:2], ANY, choice[3]), {}).get(first, [])
    if found[choice].get(first) or not others:
        return None
    return say("pick-otherwise-trained", language, _right(catalog, first, others, "pick-runs", language)[0])


def _fails_somewhere(catalog: Catalog, by_column: ByColumn) -> bool:
    """Whether a run of an advised column does not train right."""
    columns = catalog.require_decision().columns
    return any(len(right(runs)) < len(runs) for name, runs in by_column.items() if columns[name].advised)


def settings_of(catalog: Catalog, by_column: ByColumn) -> tuple[Setting, ...]:
    """What is to be set for the answer, where it is the recommended column; `find_unused_parameters` where that decides."""
    runs = by_column.get(recommended(catalog), [])
    if not right(runs):
        return ()
    decides = {True} == {it.facts.get("find_unused") for it in right(runs)} and any(
        it.facts.get("find_unused") is False for it in runs
    )
    return ("checkpointing", "find-unused") if decides else ("checkpointing",)


def right(runs: Sequence[Observed]) -> list[Observed]:
    return [observed for observed in runs if observed.label == "match"]


def _taken(catalog: Catalog, by_column: ByColumn) -> str:
    columns = [name for name, column in catalog.require_decision().columns.items() if column.advised]
    good = [name for name in columns if right(by_column.get(name, []))]
    always = [name for name in good if len(right(by_column[name])) == len(by_column[name])]
    return columns[0] if columns[0] in good else [*always, *good, columns[0]][0]


def _version_that_does(catalog: Catalog, found: Choices, choice: Choice) -> str | None:
    """The newest version with which the recommended column always trains right, where with what is chosen it does not."""
    first = recommended(catalog)

    def always(it: Choice) -> bool:
        runs = found.get(it, {}).get(first, [])
        return bool(runs) and len(right(runs)) == len(runs)

    if always(choice) or (choice[3] != ANY and not found[choice].get(first)):
        return None
    packages = {it[3].partition("=")[0] for it in found if choice[3] in (ANY, it[3])} - {ANY}
    others = {it[3] for it in found if it[:3] == choice[:3] and it[3].partition("=")[0] in packages and always(it)}
    return max(others, key=lambda it: version_key(it.partition("=")[2]), default=None)


def _version_in_words(catalog: Catalog, version: str, language: Language) -> str:
    name, _, value = version.partition("=")
    return value_in_words(catalog, name, value, language)


def _outcomes_of(catalog: Catalog, column: str, by_column: ByColumn, language: Language) -> tuple[list[str], str]:
    """How many runs of a column train right, where they can be told apart, and what became of the others; and the colour."""
    runs = by_column.get(column, [])
    by_label = _by_label(catalog, runs)
    good = by_label.get("match", [])
    if len(by_label) > 1 and len(good) == 1 and (when := part_in_words(catalog, good[0], language)):
        key, words = "pick-when", [when]
    else:
        key, words = "pick-runs" if runs else "pick-not-run", []
    lead, kind = _right(catalog, column, runs, key, language, *words)
    sentences = [lead[0].upper() + lead[1:]]
    if bad := {label: alike for label, alike in by_label.items() if label != "match"}:
        each = (_outcome(catalog, label, alike, language, len(by_label) > 1) for label, alike in bad.items())
        sentences.append(say("pick-others", language) + say("semicolon", language).join(each) + say("stop", language))
    return sentences, kind


def _right(
    catalog: Catalog, column: str, runs: list[Observed], key: str, language: Language, *words: str
) -> tuple[str, str]:
    """How many of these runs train right, in words, and the colour for it."""
    count = len(right(runs))
    kind = "open" if not runs else "match" if count == len(runs) else "depends" if count else "error"
    return say(key, language, catalog.require_decision().columns[column].text[language], count, len(runs), *words), kind
