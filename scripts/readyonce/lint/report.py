"""Findings as text, JSON, SARIF 2.1.0 and annotations of GitHub's workflows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from readyonce import __version__
from readyonce.data.project import Language
from readyonce.data.terminal import printable
from readyonce.data.words import say
from readyonce.launches.forms import Branch
from readyonce.lint.judge import LEVELS, Answer, Finding, is_alone

LOUD = ("error", "warning")  # what makes the command fail
_SARIF = {"error": "error", "warning": "warning", "note": "note", "not-covered": "note"}
_GITHUB = {"error": "error", "warning": "warning", "note": "notice", "not-covered": "notice"}


def shown(findings: Sequence[Finding], everything: bool, in_terminal: bool = False) -> list[Finding]:
    """Without `everything` no notes; but in a terminal those that runs have shown, with the command that would tell."""
    return [it for it in findings if everything or it.level != "note" or (in_terminal and it.runs)]


def exit_code(findings: Sequence[Finding]) -> int:
    """1 where there is an error or a warning."""
    return int(any(finding.level in LOUD for finding in findings))


def terminal(answers: Sequence[Answer], looks: Sequence[Finding], everything: bool, language: Language = "en") -> str:
    """Of each launch what it will do and what is known of it, then what tells the rest; at last, places in Python."""
    lines = [line for answer in answers for line in _of_launch(answer, everything, language)]
    lines += [line for finding in shown(looks, everything, True) for line in _lines(finding, language)]
    if any(answer.does and not is_alone(answer.launch) for answer in answers):
        lines += (printable(say(f"lint-report.{key}", language)) for key in ("unknown", "run-guard", "run-compare"))
    return "\n".join(lines)


def _of_launch(answer: Answer, everything: bool, language: Language) -> list[str]:
    found = shown(answer.findings, everything, True)
    if found:
        does = [f"    {say('lint-report.does', language, answer.does)}"] * bool(answer.does)
        first, *others = [_lines(finding, language) for finding in found]
        lines = [first[0], *map(printable, does), *first[1:], *(line for lines in others for line in lines)]
        return [line for number, line in enumerate(lines) if line not in lines[:number] or not line.startswith("    ")]
    key = "alone" if is_alone(answer.launch) else "known"
    place = f"{answer.launch.file}:{answer.launch.line}"
    return [printable(f"{place}: {answer.does}: {say(f'lint-report.{key}', language)}")]


def _lines(finding: Finding, language: Language) -> list[str]:
    """A line that editors can follow, then what to do."""
    level = "note" if finding.level == "not-covered" else finding.level  # words that editors know
    lines = [f"{finding.place}: {level}: {_what(finding, language)} [{finding.code}]"]
    if finding.option and finding.level != "not-covered":
        lines.append(f"    {say('lint-report.option', language, finding.option)}")
    if finding.fix:
        lines.append(f"    {_to_do(finding, language)}")
        lines += [f"        {line}" for line in finding.fix.splitlines()]
    if finding.versions and finding.level != "not-covered":
        named = [f"--with {part.split()[0]}==..." for part in finding.versions.split("; ")]
        lines.append(f"    {say('lint-report.versions', language, ' '.join(dict.fromkeys(named)))}")
    if finding.level != "not-covered":
        lines.append(f"    {say('lint-report.why', language, finding.page)}")
    return [printable(line) for line in lines]


def _to_do(finding: Finding, language: Language) -> str:
    """What to do with the fix."""
    keep = "keep" if finding.option else "add"
    return say(f"lint-report.{keep if finding.change == 'add' else 'replace'}", language)


def _message(finding: Finding) -> str:
    """For a machine that shows it to a reader: what happens, what to do, and the page."""
    lines = [_what(finding)]
    if finding.fix:
        lines += [say("lint-report.option", "en", finding.option)] * bool(finding.option)
        lines.append(f"{_to_do(finding, 'en')} {finding.fix}")
    return "\n".join((*lines, finding.page))


def _what(finding: Finding, language: Language = "en") -> str:
    return say("lint-report.with", language, finding.versions, finding.what) if finding.versions else finding.what


def summary(
    answers: Sequence[Answer],
    looks: Sequence[Finding],
    files: int,
    everything: bool,
    language: Language = "en",
    not_read: int = 0,  # files, and places in them
) -> str:
    """One line; it says what was not judged and what was not read, so that silence is not taken for a pass."""
    findings = [finding for answer in answers for finding in answer.findings] + [*looks]
    counts = Counter(finding.level for finding in findings)
    said = [_count(level, counts[level], language) for level in LEVELS if counts[level]]
    if len(shown(findings, everything, True)) < len(findings):
        said[-1 - bool(counts["not-covered"])] += say("lint-report.all", language)
    single = sum(is_alone(answer.launch) for answer in answers)
    # A launch that branches of its script make several is one.
    branches = {(it.launch.file, it.launch.line) for it in answers if isinstance(it.launch, Branch)}
    read = sum(not isinstance(it.launch, Branch) and not it.launch.unseen for it in answers) + len(branches)
    if not said and read != single:
        said = [say("lint-report.right", language)]
    said += [say("lint-report.single", language, single)] * bool(single)
    said += [say("lint-report.not-read", language, not_read)] * bool(not_read)
    text = say("lint-report.next", language).join(said) or say("lint-report.nothing", language)
    places = _count("launch", read, language), _count("file", files, language)
    return say("lint-report.found", language, *places, text)


def _count(word: str, number: int, language: Language) -> str:
    return say(f"lint-report.{word}" if number == 1 else f"lint-report.{word}s", language, number)


def as_json(findings: Sequence[Finding]) -> str:
    return "\n".join(json.dumps(finding._asdict(), ensure_ascii=False) for finding in findings)


def github(findings: Sequence[Finding]) -> str:
    return "\n".join(
        f"::{_GITHUB[finding.level]} file={_escaped(finding.file, True)},line={finding.line},title={finding.code}::"
        + _escaped(_message(finding))
        for finding in findings
    )


def _escaped(text: str, in_property: bool = False) -> str:
    for sign, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"), *((":", "%3A"), (",", "%2C")) * in_property):
        text = text.replace(sign, code)
    return text


def sarif(findings: Sequence[Finding], site: str) -> str:
    codes = sorted({finding.code for finding in findings})
    run = {
        "tool": {
            "driver": {
                "name": "readyonce",
                "version": __version__,
                **({"informationUri": f"{site}/lint/"} if site else {}),
                "rules": [{"id": code, "shortDescription": {"text": code}} for code in codes],
            }
        },
        "results": [
            {
                "ruleId": finding.code,
                "ruleIndex": codes.index(finding.code),
                "level": _SARIF[finding.level],
                "message": {"text": _message(finding)},
                "locations": [
                    {
                        "physicalLocation": {
                            "artifactLocation": {"uri": finding.file.replace("\\", "/")},
                            "region": {"startLine": finding.line},
                        }
                    }
                ],
            }
            for finding in findings
        ],
    }
    return json.dumps(
        {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]},
        ensure_ascii=False,
        indent=1,
    )
