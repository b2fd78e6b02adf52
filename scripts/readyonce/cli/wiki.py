"""The commands that make and serve the wiki: `render`, `new`, `site`, `serve`."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from readyonce.cli import new as scaffold
from readyonce.cli.output import DIFFERENT, GOOD
from readyonce.data import catalog, overlay
from readyonce.data.terminal import printable
from readyonce.publish import render, rule_cache
from readyonce.publish import site as builder


def render_(options: argparse.Namespace) -> int:
    gc.disable()
    known = catalog.load(catalog.find_root()).require_sound()
    stale = render.write(known, only_check=options.check)
    for path in stale:
        print(f"{path}: {'out of date: run `readyonce render`' if options.check else 'written'}")
    return DIFFERENT if stale and options.check else GOOD


def new(options: argparse.Namespace) -> int:
    root, seen = catalog.find_root(), None
    if options.log:
        seen = scaffold.seen_in(rule_cache.rules(), options.log)
        print(printable(f"The log shows {_said(seen)}"))
    if options.inside:
        return _new_of_theirs(options, seen)
    id = options.id or scaffold.next_id(root / "snippets")
    form: scaffold.Form = "judged" if options.judged else "short"
    for path in scaffold.create(root, id, options.error, form, seen, options.lang):
        print(f"wrote {path}")
    for path in render.write(catalog.load(root).require_sound()):
        print(f"brought {path} up to date")
    print(f"\nReplace every TODO, then: readyonce verify {id} --write && readyonce check")
    return GOOD


def _said(seen: scaffold.Seen) -> str:
    if seen.family:
        return f"`{seen.family}`."
    return f"an error of no family yet: {seen.text}" if seen.text else "no error."


def _new_of_theirs(options: argparse.Namespace, seen: scaffold.Seen | None) -> int:
    folder = Path(options.inside)
    id = options.id or scaffold.their_next_id(folder)
    for path in scaffold.create(folder, id, options.error, "theirs", seen, options.lang):
        print(f"wrote {folder / path}")
    print(
        f"\nReplace every TODO, then: readyonce verify {id} --write --with {folder} && readyonce check --with {folder}"
    )
    return GOOD


def site(options: argparse.Namespace) -> int:
    code = builder.build(catalog.find_root())
    if options.overlay:
        print(f"Both are one wiki in {overlay.PLACE / 'site'}.")
    return code


def serve(options: argparse.Namespace) -> int:
    tree = catalog.find_root()
    if options.overlay:
        overlay.follow(tree, Path(options.overlay).resolve())
    return builder.serve(tree, options.port, open_browser=options.open)
