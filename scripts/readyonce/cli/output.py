"""What all commands share: their exit codes, and how they write to the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from readyonce.data import project
from readyonce.data.terminal import printable

GOOD, DIFFERENT, USAGE = 0, 1, 2


def usage(message: str) -> SystemExit:
    """The end of a command that cannot do what it was asked for; the message says what to do."""
    print(f"readyonce: {printable(message)}", file=sys.stderr)
    return SystemExit(USAGE)


def ended(code: int, faults: list[str]) -> int:
    """The exit code of a command, which names what it could not read."""
    for fault in faults:
        print(f"readyonce: {printable(fault)}", file=sys.stderr)
    return USAGE if faults else code


def project_root(command: str, carries: bool = False) -> Path:
    """The project's folder. Where there is none, commands that make a wiki take what the wheel carries; others end."""
    if root := project.find():
        return root
    if carries and (root := project.carried()):
        say(f"No checkout is here: the wiki that this release carries is in {root}.")
        os.environ["READYONCE_ROOT"] = str(root)
        return root
    raise usage(
        f"`readyonce {command}` works on the project's files, and there are none here. "
        "Run it in a checkout of the project, or name one: READYONCE_ROOT=/path/to/checkout"
    )


@contextlib.contextmanager
def composed(root: Path, folder: str) -> Iterator[Path]:
    """The tree of the project and a team's folder, with what is generated; what is wrong with the folder is told.

    No other command makes that tree anew meanwhile."""
    from readyonce.data import catalog, overlay
    from readyonce.publish import render

    if not Path(folder).is_dir():
        raise usage(
            f"there is no folder {folder}: `readyonce new ACME-0001 --in {folder}` makes it, with a first incident"
        )
    with project.one_at_a_time(
        root / overlay.PLACE, lambda: say(f"Another command works in {overlay.PLACE}; this one waits for it.")
    ):
        tree = overlay.compose(root, Path(folder).resolve())
        if not (known := catalog.load(tree)).problems:  # else the command tells them
            render.write(known)
        yield tree


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
