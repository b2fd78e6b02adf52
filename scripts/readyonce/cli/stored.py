"""The commands that show what is stored, from compiled data: `list`, `explain`, `facts`, `link`."""

from __future__ import annotations

import argparse
import re
import sys

from readyonce.cli.output import GOOD, count, project_root, say, usage
from readyonce.data import links
from readyonce.data.stored_runs import condition
from readyonce.publish import rule_cache


def list_(options: argparse.Namespace) -> int:
    print(rule_cache.listing("json" if options.json else options.lang), end="")
    return GOOD


def explain(options: argparse.Namespace) -> int:
    there = rule_cache.incidents()
    if options.id in there:
        text = rule_cache.article(options.id, options.lang)
        print(text if sys.stdout.isatty() else re.sub(r"\x1b\[[0-9;]*m", "", text))
        return GOOD
    from readyonce.diagnose import report  # most calls need none

    rules = rule_cache.rules()
    if options.id not in rules.families:
        errors = f"Errors are named as in `readyonce diagnose`, for example {next(iter(rules.families))}."
        raise usage(f"there is no incident or error {options.id}. There are: {', '.join(there)}. {errors}")
    print(report.error(rules, options.id, options.lang))
    return GOOD


def facts(options: argparse.Namespace) -> int:
    if options.write:
        return _write_facts()
    runs = rule_cache.stored_runs()
    found, undecided = runs.fitting(runs.query(options.query))
    for leaf, names in runs.separate(found):
        labels = ", ".join(f"{label} {number}" for label, number in leaf.labels.most_common())
        print(f"{labels}   where {condition(leaf) or 'any'}", *(f"    {name}" for name in names), sep="\n")
    print(f"{count(len(found), 'run')} fit; {undecided} do not tell.")
    return GOOD


def _write_facts() -> int:
    root = project_root("facts --write")
    from readyonce.data import catalog
    from readyonce.lab import verify

    verify.rewrite_facts(catalog.load(root).require_sound(), say)
    return GOOD


def link(options: argparse.Namespace) -> int:
    if options.id not in (there := rule_cache.incidents()):
        raise usage(f"there is no incident {options.id}. There are: {', '.join(there)}")
    if not (site := links.site_url()):
        raise usage(
            "a link needs the wiki's public address. Set it: SITE_URL=https://wiki.example.com/ readyonce link ..."
        )
    compiled = rule_cache.link_targets(options.id)
    if not (target := links.target(compiled, options.id, options.section, options.lang, site)):
        known = "\n  ".join(compiled["sections"][options.lang])
        raise usage(f"{options.id} has no section `{options.section}`. It has:\n  {known}")
    label, address = target
    print(links.link(links.FORMS[options.tracker], label, address) if options.tracker else address)
    return GOOD
