"""The commands that run experiments: `run`, `verify`, `count`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from readyonce.cli.output import DIFFERENT, GOOD, count, progress, say, usage
from readyonce.data import catalog, changes, overlay
from readyonce.data.catalog import Catalog, Incident, Variant
from readyonce.data.terminal import printable
from readyonce.lab import counts, tasks, venvs, verify
from readyonce.lab.processes import LabError, Observation


@contextmanager
def _told_in_a_sentence() -> Iterator[None]:
    """What the lab cannot do is bad usage: its error says what to do."""
    try:
        yield
    except LabError as error:
        raise usage(str(error)) from None


def _known() -> Catalog:
    return catalog.load(catalog.find_root()).require_sound()


@_told_in_a_sentence()
def run(options: argparse.Namespace) -> int:
    known = _known()
    (incident,) = tasks.incidents(known, [options.id])
    variants = tasks.variants(incident, options.environment, options.variant)
    python = venvs.interpreter(known.root, options.environment, say)
    if options.variant:
        return _run_one(known, incident, variants[options.variant], python, options)
    width = max(map(len, variants))
    good = True

    def show(observation: Observation) -> None:
        nonlocal good
        declared = variants[observation.variant].declared[options.environment]
        agrees = observation.agrees_with(declared)
        good &= agrees
        mark = "as declared" if agrees else f"DECLARED: {declared}"
        print(f"{observation.variant:{width}}  {observation.short:34}  {mark}", flush=True)

    if repros := sum(not variant.is_command for variant in variants.values()):
        print(f"{count(repros, 'variant')} in one launch ...", flush=True)
    tasks.run_all(known, incident, variants.values(), python, show)
    return GOOD if good else DIFFERENT


def _run_one(known: Catalog, incident: Incident, variant: Variant, python: Path, options: argparse.Namespace) -> int:
    result, declared = tasks.run(known, incident, variant, python), variant.declared[options.environment]
    unexplained = result.error is None and result.outcome == "error"
    print(printable(result.log if options.log or unexplained else result.message or ""))
    print(tasks.sentence(result, variant))
    agrees = result.agrees_with(declared)
    print("That is the declared outcome." if agrees else f"The declared outcome is another: {declared}.")
    return GOOD if agrees else DIFFERENT


@_told_in_a_sentence()
def verify_(options: argparse.Namespace) -> int:
    known = _known()
    incidents = tasks.incidents(known, options.ids)
    if options.environment == "newest":
        return _verify_newest(known, incidents, options)
    if options.report:
        raise usage("--report belongs to `--environment newest`")
    environments = tasks.environments(incidents, options.environment)
    wanted = verify.Wanted(
        options.write, options.isolated, options.missing, options.stale, options.guard, say, progress
    )
    number = 0
    for difference in tasks.differences(known, incidents, environments, wanted, options.on):
        print(printable(difference), file=sys.stderr, flush=True)
        number += 1
    if options.write:
        changes.note(known)
    if options.overlay:
        for path in overlay.store(known.root, Path(options.overlay)):
            print(f"wrote {path}")
    print(f"{count(number, 'difference')}." if number else "As declared.")
    return DIFFERENT if number else GOOD


def _verify_newest(known: Catalog, incidents: list[Incident], options: argparse.Namespace) -> int:
    from readyonce.lab import canary

    if options.write or options.isolated or options.on:
        raise usage(
            "`--environment newest` stores nothing and runs each variant once, here: leave out --write, --isolated and --on"
        )
    report = canary.watch(known, incidents, say, progress)
    progress("")
    print(canary.text(report))
    if options.report:
        Path(options.report).write_text(canary.markdown(report), encoding="utf-8")
    return DIFFERENT if report.changes else GOOD


@_told_in_a_sentence()
def count_(options: argparse.Namespace) -> int:
    known = _known()
    for name, environment, python, found in tasks.counted(known, options.name, options.environment, say):
        numbers = ", ".join(f"{counted.setting} {counted.count} of {counted.of}" for counted in found)
        print(f"{name} in {environment}: {numbers}", flush=True)
        if options.write:
            path = counts.write(known, name, environment, python, found)
            print(f"wrote {path.relative_to(known.root)}", flush=True)
    return GOOD
