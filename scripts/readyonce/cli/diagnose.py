"""The command `diagnose`."""

from __future__ import annotations

import argparse
import sys

from readyonce.cli.output import ended, usage
from readyonce.data.inputs import shown
from readyonce.data.terminal import printable
from readyonce.diagnose import inputs, report
from readyonce.diagnose.engine import Answer, Rules
from readyonce.publish import rule_cache


def diagnose(options: argparse.Namespace) -> int:
    if sys.stdout is None:
        raise usage("standard output is closed: there is nowhere to write the answer")
    rules = rule_cache.rules()
    faults: list[str] = []
    if options.github_event:
        answers = iter([inputs.event(rules, options.github_event, options.lang)])
    else:
        answers = inputs.answers(rules, options.files, options.lang or "en", faults, _say)
    kinds = set()
    for answer in answers:
        _show(rules, answer, options)
        kinds.add(answer.json["kind"])
    return ended(report.exit_code(kinds), faults)


def _say(line: str) -> None:
    print(f"readyonce: {line}", file=sys.stderr)


def _show(rules: Rules, answer: Answer, options: argparse.Namespace) -> None:
    name = answer.json["file"]
    form = options.format or ("markdown" if options.github_event else "text")
    if form == "json":
        print(answer.to_json(), flush=True)
    elif form == "text":
        head = "" if [name] == options.files or name == "-" else f"== {printable(shown(name))}\n"
        print(head + report.text(rules, answer, answer.language, colour=sys.stdout.isatty()) + "\n", flush=True)
    elif options.github_event and not report.is_known(answer):
        print("Nothing known in this issue: no comment.", file=sys.stderr)
    else:
        print(printable(report.markdown(rules, answer, answer.language)), flush=True)
