"""The commands that make and serve the wiki: `render`, `new`, `site`, `book`, `serve`."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from readyonce.cli import new as scaffold
from readyonce.cli.output import DIFFERENT, GOOD, usage
from readyonce.data import catalog, overlay, project
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
    for path in scaffold.create(root, id, options.error, _form(options), seen, options.lang):
        print(f"wrote {path}")
    for path in render.write(catalog.load(root).require_sound()):
        print(f"brought {path} up to date")
    print(f"\nReplace every TODO, then: {_then(options, id)}readyonce check")
    return GOOD


def _form(options: argparse.Namespace) -> scaffold.Form:
    return "judged" if options.judged and not options.inside else "noted" if options.noted else "short"


def _then(options: argparse.Namespace, id: str, overlay: str = "") -> str:
    """The command that proves it; of what is only noted nothing is run."""
    return "" if options.noted else f"readyonce verify {id} --write{overlay} && "


def _said(seen: scaffold.Seen) -> str:
    if seen.family:
        return f"`{seen.family}`."
    return f"an error of no family yet: {seen.text}" if seen.text else "no error."


def _new_of_theirs(options: argparse.Namespace, seen: scaffold.Seen | None) -> int:
    folder = Path(options.inside)
    id = options.id or scaffold.their_next_id(folder)
    for path in scaffold.create(folder, id, options.error, _form(options), seen, options.lang, theirs=True):
        print(f"wrote {folder / path}")
    overlay = f" --with {folder}"
    print(f"\nReplace every TODO, then: {_then(options, id, overlay)}readyonce check{overlay}")
    return GOOD


def site(options: argparse.Namespace) -> int:
    root = catalog.find_root()
    code = builder.build(root)
    if options.overlay:
        print(f"Both are one wiki in {root / 'site'}.")
    return code


def book(options: argparse.Namespace) -> int:
    known = catalog.load(catalog.find_root()).require_sound()
    for named in options.ids:
        if not any(_is_named(id, named) for id in known.incidents):
            raise usage(f"there is no incident {named}. There are: {', '.join(known.incidents)}")
    ids = [id for id in known.incidents if any(_is_named(id, named) for named in options.ids)]
    if (made := builder.book_of(known, ids, options.lang)) is None:
        return DIFFERENT
    project.write_whole(Path(options.out), made.read_bytes())
    print(f"{options.out}: {', '.join(ids)}")
    return GOOD


def _is_named(id: str, named: str) -> bool:
    return id == named or id.rpartition("-")[0] == named


def serve(options: argparse.Namespace) -> int:
    tree = catalog.find_root()
    if options.overlay:
        overlay.follow(tree, Path(options.overlay).resolve())
    return builder.serve(tree, options.port, open_browser=options.open)
