"""A diagnosis for people: in a terminal, or as a comment in an issue. docs/theme/javascripts/diagnose.js has the comment too."""

from __future__ import annotations

import re
from typing import Any

from readyonce import links
from readyonce.diagnose import Answer, Rules
from readyonce.project import Language
from readyonce.terminal import printable


def text(rules: Rules, answer: Answer, language: Language, colour: bool = False) -> str:
    bold, faint, off = ("\033[1m", "\033[2m", "\033[0m") if colour else ("", "", "")
    kind, family = answer.json["kind"], rules.families.get(answer.json["error"] or "")
    colon, semicolon = say(rules, "colon", language), say(rules, "semicolon", language)
    lines = []
    if not family:
        named = [rules.families[name] for name in answer.json["words_of"]]
        titles = [candidate["title"] for candidate in named]
        lines += [line.replace("`", "") for line in _without_answer(rules, answer, language, titles)]
        if kind == "unknown" and (form := issue_form(rules, answer)):
            lines += ["", say(rules, "send", language, form)]
    else:
        lines += [f"{bold}{family['title']}{off}  ({answer.json['error']})"]
        if kind == "look-alike":
            lines += [say(rules, "look-alike", language)]
        lines += ["", family["text"][language].replace("`", "")]
    lines += [""] if answer.around else []
    for number, line in answer.around:
        mark, style = (">", bold) if number == answer.json["line"] else (" ", faint)
        lines.append(f"{mark}{number:7}  {style}{printable(line).expandtabs(4)[:160]}{off}")
    if answer.json["also"]:
        lines += ["", say(rules, "also-known", language) + colon.rstrip()]
        for entry in answer.json["also"]:
            where = say(rules, "at-line", language, entry["line"])
            lines.append(f"  {rules.families[entry['name']]['title']}{say(rules, 'brackets', language, where)}")
    if answer.json["incidents"]:
        lines += ["", say(rules, "incidents", language) + colon.rstrip()]
        for entry in answer.json["incidents"]:
            incident = incident_of(rules, entry["id"])
            lines.append(f"  {bold}{entry['id']}{off}  {incident['short'][language]}")
            lines.append(
                "           " + (semicolon.join(entry["why"]).replace("`", "") or say(rules, "nothing", language))
            )
    lines += [""] if answer.json["look"] else []
    for entry in answer.json["look"]:
        where = say(rules, "brackets", language, say(rules, "at-line", language, entry["line"]))
        lines.append(f"  {bold}{entry['id']}{off}  {incident_of(rules, entry['id'])['short'][language]}{where}")
        lines += ["           " + entry["why"].replace("`", ""), f"           readyonce explain {entry['id']}"]
    if answer.json["fix"]:
        lines += ["", *_steps(rules, answer.json["fix"], language)]
    prefix = _prefix(rules, language)
    if kind == "fragment" and prefix:
        lines += ["", *(f"{say(rules, 'more', language)}{colon}{prefix}{candidate['path']}" for candidate in named)]
    elif kind == "unknown" and answer.note in (None, "look") and prefix:
        lines += ["", f"{say(rules, 'doubt', language)}{colon}{prefix}guard/"]
    elif answer.note == "not-covered" and prefix:
        lines += ["", f"{say(rules, 'all-errors', language)}{colon}{prefix}errors/"]
    if family:
        path = family["path"] + ("#cases" if kind == "known" else "")
        if prefix:
            lines.append(f"{say(rules, 'cases' if kind == 'known' else 'more', language)}{colon}{prefix}{path}")
    return "\n".join(lines)


def markdown(rules: Rules, answer: Answer, language: Language) -> str:
    prefix = _prefix(rules, language)
    kind, error, line, incidents = (answer.json[key] for key in ("kind", "error", "line", "incidents"))
    colon, semicolon = say(rules, "colon", language), say(rules, "semicolon", language)

    def link(words: str, path: str) -> str:
        return f"[{words}]({prefix}{path})" if prefix else words

    lines = []
    if not error:
        named = [rules.families[name] for name in answer.json["words_of"]]
        lines += _without_answer(
            rules,
            answer,
            language,
            [link(f"`{candidate['title'].replace('`', '')}`", candidate["path"]) for candidate in named],
        )
    else:
        family = rules.families[error]
        where = say(rules, "brackets", language, say(rules, "at-line", language, line))
        lines += [f"**{link('`' + family['title'] + '`', family['path'])}**{where}", ""]
        for number, shown in answer.around:
            if number == line:
                shown = shown.strip()[:300]
                # No run of backticks inside may end the block.
                fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", f"{shown} {printable(shown)}"))])
                lines += [f"{fence}text", shown, fence, ""]
        if kind == "look-alike":
            lines += [say(rules, "look-alike", language), ""]
        lines.append(family["text"][language])
        if incidents:
            lines += ["", say(rules, "incidents", language) + colon.rstrip(), ""]
            for entry in incidents:
                title = f"{entry['id']} · {incident_of(rules, entry['id'])['short'][language]}"
                why = semicolon.join(entry["why"]) or say(rules, "nothing", language)
                lines.append(f"- {link(title, 'incidents/' + entry['id'] + '/')}{colon}{why}")
        if answer.json["fix"]:
            lines += ["", *_steps_markdown(rules, answer.json["fix"], language)]
        if incidents:
            lines += ["", f"{say(rules, 'cases', language)}{colon}{link(f'errors/{error}', family['path'] + '#cases')}"]
    for entry in answer.json["look"]:
        title = f"{entry['id']} · {incident_of(rules, entry['id'])['short'][language]}"
        where = say(rules, "brackets", language, say(rules, "at-line", language, entry["line"]))
        lines += ["", f"- {link(title, 'incidents/' + entry['id'] + '/')}{where}{colon}{entry['why']}"]
    if answer.json["also"]:
        lines += ["", say(rules, "also-known", language) + colon.rstrip(), ""]
        for entry in answer.json["also"]:
            other = rules.families[entry["name"]]
            where = say(rules, "brackets", language, say(rules, "at-line", language, entry["line"]))
            lines.append(f"- {link('`' + other['title'] + '`', other['path'])}{where}")
    return "\n".join([*lines, "", f"<sub>ReadyOnce. {say(rules, 'footer', language)}</sub>", ""])


def _steps(rules: Rules, fix: dict[str, Any], language: Language) -> list[str]:
    """The fix for a terminal: an incident's own, or the family's in each framework, and the questions."""
    lines = [f"{_first(rules, fix, language)}{fix['text']}".replace("`", "")]
    for number, (form, whole) in enumerate(shown := _forms(fix)):
        if not whole and shown[number - 1][1]:
            lines += ["", say(rules, "stacks", language) + say(rules, "colon", language).rstrip()]
        lines += [] if fix["incident"] else ["", "  " + _head(rules, form, fix, language)]
        lines += [f"      {line}" for line in (form["code"] or "").splitlines()]
        if form["text"] and (whole or not form["code"]):
            lines.append("      " + form["text"].replace("`", ""))
    if fix["questions"]:
        lines += ["", say(rules, "cases", language) + say(rules, "colon", language).rstrip()]
        lines += [f"  {number}. {question}".replace("`", "") for number, question in enumerate(fix["questions"], 1)]
    if fix["incident"]:
        lines += [
            "",
            f"{say(rules, 'more', language)}{say(rules, 'colon', language)}readyonce explain {fix['incident']}",
        ]
    return lines


def _steps_markdown(rules: Rules, fix: dict[str, Any], language: Language) -> list[str]:
    colon = say(rules, "colon", language)
    lines = [f"**{_first(rules, fix, language).removesuffix(colon)}**{colon}{fix['text']}"]
    folded = False
    for form, whole in _forms(fix):
        if not whole and not folded:
            lines += ["", f"<details><summary>{say(rules, 'stacks', language)}</summary>"]
            folded = True
        lines += [] if fix["incident"] else ["", f"**{_head(rules, form, fix, language)}**"]
        if form["code"]:
            lines += ["", f"```{form['language']}", form["code"], "```"]
        if form["text"] and (whole or not form["code"]):
            lines += ["", form["text"]]
    lines += ["", "</details>"] if folded else []
    if fix["questions"]:
        lines += ["", *(f"{number}. {question}" for number, question in enumerate(fix["questions"], 1))]
    return lines


def _first(rules: Rules, fix: dict[str, Any], language: Language) -> str:
    named = fix["incident"] and say(rules, "brackets", language, fix["incident"])
    return (say(rules, "first", language) + named if named else say(rules, "fix", language)) + say(
        rules, "colon", language
    )


def _forms(fix: dict[str, Any]) -> list[tuple[dict[str, Any], bool]]:
    """(form, whether it is shown in full): all of the log's own framework, or of PyTorch; of each other the first."""
    first = fix["stack"] or next((form["stack"] for form in fix["forms"]), None)
    own = [(form, True) for form in fix["forms"] if form["stack"] == first]
    rest: dict[str, dict[str, Any]] = {}
    for form in fix["forms"]:
        if form["stack"] != first and form["setting"] == fix["forms"][0]["setting"]:
            rest.setdefault(form["stack"], form)
    return own + [(form, False) for form in rest.values()]


def _head(rules: Rules, form: dict[str, Any], fix: dict[str, Any], language: Language) -> str:
    title = next(stack["title"][language] for stack in rules.data["frameworks"] if stack["name"] == form["stack"])
    if form["stack"] == fix["stack"]:
        title += say(rules, "brackets", language, say(rules, "in-log", language))
    proof = say(rules, f"proof-{form['proof']}", language)
    also = say(rules, "also", language) if form["setting"] == "find-unused" else None
    return say(rules, "comma", language).join(
        part for part in (title, form["versions"], form["when"], also, proof) if part
    )


def say(rules: Rules, key: str, language: Language, *values: object) -> str:
    sentence: str = rules.data["words"][key][language]
    return sentence.format(*values)


def incident_of(rules: Rules, id: str) -> dict[str, Any]:
    known: list[dict[str, Any]] = rules.data["incidents"]
    return next(incident for incident in known if incident["id"] == id)


def issue_form(rules: Rules, answer: Answer) -> str | None:
    """The address of a new issue, filled in with the exception's line."""
    if not rules.data["issue"]:
        return None
    from urllib.parse import quote

    line = next((line.strip()[:200] for number, line in answer.around if number == answer.line), "")
    return str(rules.data["issue"]).replace("{}", quote(line, safe=""))


def _without_answer(rules: Rules, answer: Answer, language: Language, words_of: list[str]) -> list[str]:
    if answer.json["kind"] != "wrapper-only":
        key = "fragment" if words_of else answer.note or "not-known"
        sentence = say(rules, key, language, say(rules, "or", language).join(words_of))
        return [sentence, "", say(rules, f"{key}-next", language)]
    rank = "" if answer.rank is None else say(rules, "wrapper-rank", language, answer.rank)
    return [
        say(rules, "wrapper", language),
        "",
        say(rules, "wrapper-up", language, rank),
        "",
        say(rules, "wrapper-file", language),
    ]


def _prefix(rules: Rules, language: Language) -> str | None:
    site = rules.data["site"]
    return links.address(f"{site}/", "", language) if site else None
