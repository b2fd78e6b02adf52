"""A diagnosis for people: in a terminal, or as a comment in an issue. docs/theme/javascripts/diagnose.js has the comment too."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any

from readyonce.data import links
from readyonce.data.project import Language
from readyonce.data.terminal import printable
from readyonce.diagnose.engine import Answer, Rules, fix_of

UNKNOWN = frozenset({"unknown", "fragment"})


def exit_code(kinds: Set[str]) -> int:
    """0: every answer is of a known error, or a look-alike; 1: one is of none; 3: one is of a launcher's report only."""
    return 1 if kinds & UNKNOWN else 3 if "wrapper-only" in kinds else 0


def is_known(answer: Answer) -> bool:
    """Whether there is anything to say: more than that nothing, or only part of an error's text, was found."""
    return answer.json["kind"] not in UNKNOWN


def text(rules: Rules, answer: Answer, language: Language, colour: bool = False) -> str:
    bold, faint, off = ("\033[1m", "\033[2m", "\033[0m") if colour else ("", "", "")
    kind, family = answer.json["kind"], rules.families.get(answer.json["error"] or "")
    colon, semicolon = say(rules, "colon", language), say(rules, "semicolon", language)
    prefix = _prefix(rules, language)
    lines = []
    if not family:
        named = [rules.families[name] for name in answer.json["words_of"]]
        titles = [candidate["title"] for candidate in named]
        lines += [line.replace("`", "") for line in _without_answer(rules, answer, language, titles)]
        if kind == "unknown" and answer.note is None:
            for door in rules.data["doors"]:
                lines.append(f"  - {door['text'][language]}" + (f" {prefix}{_page(door['page'])}" if prefix else ""))
        if kind == "unknown" and (form := issue_form(rules, answer)):
            lines += ["", say(rules, "send", language, form)]
    else:
        lines += [f"{bold}{family['title']}{off}  ({answer.json['error']})"]
        if kind == "look-alike" and not answer.json["incidents"]:
            lines += [say(rules, "look-alike", language)]
        lines += ["", _advice(rules, family, language).replace("`", "")]
    lines += [""] if answer.around else []
    for number, line in answer.around:
        mark, style = (">", bold) if number == answer.line else (" ", faint)
        lines.append(f"{mark}{number:7}  {style}{printable(line).expandtabs(4)[:160]}{off}")
    if answer.json["also"]:
        lines += ["", say(rules, "also-known", language) + colon.rstrip()]
        for entry in answer.json["also"]:
            lines.append(f"  {rules.families[entry['name']]['title']}{_at(rules, entry['line'], language)}")
    if answer.json["incidents"]:
        lines += ["", say(rules, "incidents", language) + colon.rstrip()]
        for entry in answer.json["incidents"]:
            incident = incident_of(rules, entry["id"])
            lines.append(f"  {bold}{entry['id']}{off}  {incident['short'][language]}")
            lines.append(
                "           " + (semicolon.join(entry["why"]).replace("`", "") or say(rules, "nothing", language))
            )
    for entry in answer.json["silent"]:
        where = _at(rules, entry["line"], language)
        lines += ["", f"  {entry['text']}{where}".replace("`", "")]
        lines += [f"  {say(rules, 'more', language)}{colon}{prefix}{_page(entry['page'])}"] if prefix else []
    lines += [""] if answer.json["look"] else []
    for entry in answer.json["look"]:
        where = _at(rules, entry["line"], language)
        lines.append(f"  {bold}{entry['id']}{off}  {incident_of(rules, entry['id'])['short'][language]}{where}")
        lines += ["           " + entry["why"].replace("`", ""), f"           readyonce explain {entry['id']}"]
    if answer.json["fix"]:
        lines += ["", *_steps(rules, answer.json["fix"], language)]
    if kind == "fragment":
        places = [prefix + it["path"] if prefix else f"readyonce explain {it['family']}" for it in named]
        lines += ["", *(f"{say(rules, 'more', language)}{colon}{place}" for place in places)]
    elif kind == "unknown" and answer.note in (None, "look", "silent") and prefix:
        lines += ["", f"{say(rules, 'doubt', language)}{colon}{prefix}guard/"]
    elif answer.note == "not-covered" and prefix:
        lines += ["", f"{say(rules, 'all-errors', language)}{colon}{prefix}errors/"]
    if family:
        path = family["path"] + ("#cases" if kind == "known" else "")
        more = say(rules, "cases" if kind == "known" else "more", language)
        lines.append(f"{more}{colon}{prefix + path if prefix else 'readyonce explain ' + family['family']}")
    return "\n".join(lines)


def error(rules: Rules, name: str, language: Language) -> str:
    """An error family for a terminal: what it means, its texts, what to do, and which case is whose."""
    known = rules.families[name]
    colon = say(rules, "colon", language)
    lines = [f"{known['title']}  ({name})", "", _advice(rules, known, language).replace("`", ""), ""]
    lines += [f"  {' … '.join(wording['all'])}" for wording in known["wordings"]]
    about = [incident for incident in rules.data["incidents"] if name in incident["errors"]]
    lines += ["", say(rules, "incidents", language) + colon.rstrip()] if about else []
    lines += [f"  {incident['id']}  {incident['short'][language]}" for incident in about]
    if known["fix"]:
        lines += ["", *_steps(rules, fix_of(rules, name, [], set(), language), language)]
    if prefix := _prefix(rules, language):
        lines += ["", f"{say(rules, 'more', language)}{colon}{prefix}{known['path']}"]
    return printable("\n".join(lines))


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
        if kind == "unknown" and answer.note is None:
            doors = ((door["text"][language], _page(door["page"])) for door in rules.data["doors"])
            lines += ["", *(f"- {link(words, page)}" for words, page in doors)]
        if answer.line and kind != "wrapper-only":
            lines += ["", say(rules, "at-line", language, answer.line) + colon.rstrip(), "", *_quote(answer)]
    else:
        family = rules.families[error]
        where = _at(rules, line, language)
        lines += [f"**{link('`' + family['title'] + '`', family['path'])}**{where}", ""]
        lines += [*_quote(answer), ""]
        if kind == "look-alike" and not incidents:
            lines += [say(rules, "look-alike", language), ""]
        lines.append(_advice(rules, family, language))
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
    for entry in answer.json["silent"]:
        where = _at(rules, entry["line"], language)
        page = link(f"`{entry['page']}`", _page(entry["page"]))
        lines += ["", f"- {entry['text']}{where}", "", f"  {say(rules, 'more', language)}{colon}{page}"]
    for entry in answer.json["look"]:
        title = f"{entry['id']} · {incident_of(rules, entry['id'])['short'][language]}"
        where = _at(rules, entry["line"], language)
        lines += ["", f"- {link(title, 'incidents/' + entry['id'] + '/')}{where}{colon}{entry['why']}"]
    if answer.json["also"]:
        lines += ["", say(rules, "also-known", language) + colon.rstrip(), ""]
        for entry in answer.json["also"]:
            other = rules.families[entry["name"]]
            where = _at(rules, entry["line"], language)
            lines.append(f"- {link('`' + other['title'] + '`', other['path'])}{where}")
    return "\n".join([*lines, "", f"<sub>ReadyOnce. {say(rules, 'footer', language)}</sub>", ""])


def _quote(answer: Answer) -> list[str]:
    """The line that decided, as a block: an exception's own words where it is one of no known family."""
    row = next((shown.strip() for number, shown in answer.around if number == answer.line), "")
    shown = (answer.json["exception"] or {"text": row})["text"][:300]
    # No run of backticks inside may end the block.
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", f"{shown} {printable(shown)}"))])
    return [f"{fence}text", shown, fence]


def _advice(rules: Rules, family: dict[str, Any], language: Language) -> str:
    """What an error means and what to do, and whether a run here showed it."""
    text: str = family["text"][language]
    between = " " if language == "en" else ""
    return text if family["run"] else f"{text}{between}{say(rules, 'not-run', language)}"


def _at(rules: Rules, line: int | None, language: Language) -> str:
    return say(rules, "brackets", language, say(rules, "at-line", language, line))


def _page(page: str) -> str:
    """The address of a page below the site's, from `page#anchor`."""
    return page.replace("#", "/#")


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
        key = answer.note or ("fragment" if words_of else "not-known")
        sentence = say(rules, key, language, say(rules, "or", language).join(words_of))
        exception = answer.json["exception"]
        return [sentence, "", say(rules, f"{key}-next", language, exception["next"] if exception else "")]
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
