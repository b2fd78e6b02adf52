"""The command: `readyonce --help` is the map, and `table` its source."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from readyonce import __version__
from readyonce.cli.output import DIFFERENT, GOOD, USAGE, composed, count, project_root, usage
from readyonce.cli.table import COMMANDS, IN_A_WHEEL, NEED_THE_PROJECT, READ_FILES, Command
from readyonce.data import project
from readyonce.data.inputs import Unusable
from readyonce.data.terminal import printable

SPACE = "Free some space, or name a folder for temporary files that has it: TMPDIR=/path/to/folder"
RIGHTS = "Let this user read and write there, or work in a copy of the project that he may write to."
REMEDIES = {getattr(errno, name): SPACE for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)}
REMEDIES |= dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), RIGHTS)
ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def main(arguments: list[str] | None = None) -> int:
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may be no text
    options = _options(sys.argv[1:] if arguments is None else list(arguments))
    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # else it is to be ignored
            signal.signal(number, _end)
    try:
        return _run(options)
    except Unusable as error:
        raise usage(str(error)) from None
    except ModuleNotFoundError as error:
        raise _to_install(error, options.command) from None
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `readyonce explain RO-0001 | head`
        sys.stderr.close()
        return GOOD
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0)
        if not remedy and not error.filename:  # not a matter of files
            raise
        place = f"{error.filename}: " if error.filename else ""
        print(printable(f"readyonce: {place}{error.strerror}. {remedy or 'Look at that file.'}"), file=sys.stderr)
        return USAGE
    except Exception as error:
        return _problems(error, getattr(options, "overlay", None))


def _run(options: argparse.Namespace) -> int:
    """Import a command's module only now: the catalogue costs more than a whole diagnosis."""
    with contextlib.ExitStack() as held:
        folder = getattr(options, "overlay", None)
        if folder or options.command in NEED_THE_PROJECT:
            carries = options.command in IN_A_WHEEL or (folder is not None and options.command != "verify")
            root = project_root(options.command, carries)
            if folder:
                os.environ["READYONCE_ROOT"] = str(held.enter_context(composed(root, folder)))
                if options.command == "serve":  # it goes on beside the others, and shows what they bring up to date
                    held.close()
        module, _, function = COMMANDS[options.command].function.partition(".")
        code: int = getattr(importlib.import_module(f"readyonce.cli.{module}"), function)(options)
        return code


def _to_install(error: ModuleNotFoundError, command: str) -> SystemExit:
    lacking = (error.name or "").partition(".")[0]
    if not lacking or lacking == "readyonce":
        raise error
    return usage(
        f"`readyonce {command}` needs the Python module {lacking}, which is not installed. "
        "Install what the project needs: pip install 'readyonce[site]'"
    )


def _problems(error: Exception, folder: str | None) -> int:
    """Tell what is wrong with the project's files, or with those of a team's folder; any other error is raised again."""
    if not (root := project.find()):
        raise error
    from readyonce.check import check as checks
    from readyonce.data.reading import CatalogError

    if not isinstance(error, CatalogError):
        error = checks.or_raise(root, error)
    if folder:
        from readyonce.data import overlay

        error = CatalogError(overlay.as_named(error.problems, root, Path(folder)))
    print(printable(str(error)), file=sys.stderr)
    print(f"\n{count(len(error.problems), 'problem')}.", file=sys.stderr)
    return DIFFERENT


def _end(number: int, frame: FrameType | None) -> None:
    """Leave through every `finally`, which ends what was started. Once: a second Ctrl-C must not cut that short."""
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


# ------------------------------------------------------------------------------ the arguments


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def _options(given: list[str]) -> argparse.Namespace:
    # What `lint` judges after `--` has options of its own.
    end = given.index("--") if given[:1] == ["lint"] and "--" in given else len(given)
    # A shell puts the names of files in place of `*`, and whoever checks what changed names files as they are called.
    if given and given[0] in READ_FILES:
        for name in given[1 : end + 1]:
            if name.startswith("-") and os.path.lexists(name):
                raise usage(f"{name} is a file here and reads as an option: write ./{name}, or call the file otherwise")
    options = parser().parse_args(given[:end])
    options.words = given[end + 1 :]
    return options


def parser() -> argparse.ArgumentParser:
    made = _Parser(
        prog="readyonce",
        description="Distributed-training failures, reproduced, and their fixes, proven.",
        epilog="Start with: readyonce diagnose train.log · readyonce list · readyonce explain RO-0001",
    )
    made.add_argument("--version", action="version", version=f"readyonce {__version__}")
    commands = made.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, command in COMMANDS.items():
        added = commands.add_parser(
            name,
            help=command.summary,
            description=command.summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=_epilog(name, command),
        )
        for argument, settings in command.arguments:
            added.add_argument(argument, **settings)
    return made


def _epilog(name: str, command: Command) -> str:
    examples = "\n".join(f"  readyonce {name} {example}".rstrip() for example in command.examples)
    return f"examples:\n{examples}" + (f"\n\n{command.notes}" if command.notes else "")


if __name__ == "__main__":
    sys.exit(main())
