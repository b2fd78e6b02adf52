"""The command `triage`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from readyonce.cli.output import ended, usage
from readyonce.data import project
from readyonce.publish import rule_cache
from readyonce.triage import engine, page, report


def triage(options: argparse.Namespace) -> int:
    if options.format == "parquet" and not options.out:
        raise usage("--format parquet is no text: name a file, --out report.parquet")
    rules, text = rule_cache.rules(), rule_cache.RULES.text()
    answers, alike, faults = engine.triage(text, options.paths, options.lang, options.on, options.since)
    colour = options.out is None and sys.stdout.isatty()
    forms: dict[str, Callable[[], str | bytes]] = {
        "text": lambda: report.text(rules, answers, alike, options.lang, colour),
        "jsonl": lambda: report.jsonl(answers, alike),
        "html": lambda: page.html(rules, answers, alike, options.lang),
        "parquet": lambda: report.parquet(answers, alike),
    }
    made = forms[options.format]()
    # A file's name may hold bytes that are no UTF-8.
    data = made if isinstance(made, bytes) else made.encode("utf-8", "backslashreplace")
    if options.out:
        project.write_whole(Path(options.out), data)
    else:
        text = data.decode()
        print(text, end="" if text.endswith("\n") else "\n", flush=True)
    return ended(report.exit_code(answers), faults)
