"""The command `lint`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from readyonce.cli.output import ended
from readyonce.launches.reader import Reader
from readyonce.lint import inputs, judge, report
from readyonce.lint.judge import Finding
from readyonce.publish import rule_cache


def lint(options: argparse.Namespace) -> int:
    rules = rule_cache.lint_rules()
    faults: list[str] = []
    versions = inputs.releases(options.python, options.with_)
    reader = Reader(rules["stacks"], rules["models"])
    launches, files = inputs.launches(reader, options.files, options.words, faults)
    answers = judge.answers(rules, launches, versions, options.lang)
    looks = judge.look(rules, reader.code(), options.lang)
    findings = [finding for answer in answers for finding in answer.findings] + looks
    if options.format == "text":
        if said := report.terminal(answers, looks, options.all, options.lang):
            print(said)
        print(report.summary(answers, looks, files, options.all, options.lang, len(faults)))
        return ended(report.exit_code(findings), faults)
    shown = report.shown(findings, options.all)
    forms: dict[str, Callable[[list[Finding]], str]] = {
        "json": report.as_json,
        "github": report.github,
        "sarif": partial(report.sarif, site=rules["site"]),
    }
    if shown or options.format == "sarif":  # a file of SARIF has something to say of nothing, too
        print(forms[options.format](shown))
    return ended(report.exit_code(findings), faults)
