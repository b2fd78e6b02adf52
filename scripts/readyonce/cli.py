"""The command: `readyonce --help` is the map."""

from __future__ import annotations

import argparse
import errno
import itertools
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from readyonce import __version__, compiled, links, project
from readyonce.terminal import printable

if TYPE_CHECKING:  # each command reads in what it needs: the catalogue costs more than a whole diagnosis
    from readyonce.catalog import Catalog, Incident, Variant
    from readyonce.diagnose import Answer, Rules
    from readyonce.facts import Condition, Leaf
    from readyonce.launches import Observation
    from readyonce.lint.judge import Finding, Judged
    from readyonce.lint.launch import Launch
    from readyonce.schema import Declaration

GOOD, DIFFERENT, USAGE, WRAPPER = 0, 1, 2, 3
NOTHING_HERE = "there are no incidents here. Run it in the project's folder, or install the wheel"
SPACE = "Free some space, or name a folder for temporary files that has it: TMPDIR=/path/to/folder"
RIGHTS = "Let this user read and write there, or work in a copy of the project that he may write to."
REMEDIES = {getattr(errno, name): SPACE for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)}
REMEDIES |= dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), RIGHTS)
ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def main(arguments: list[str] | None = None) -> int:
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may be no text
    given = sys.argv[1:] if arguments is None else list(arguments)
    # What `lint` judges after `--` has options of its own.
    end = given.index("--") if given[:1] == ["lint"] and "--" in given else len(given)
    options = _parser().parse_args(given[:end])
    options.words = given[end + 1 :]
    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # else it is to be ignored
            signal.signal(number, _end)
    try:
        code: int = options.command(options)
        return code
    except SystemExit:
        raise
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
        from readyonce import check as checks
        from readyonce.reading import CatalogError

        if not isinstance(error, CatalogError):
            error = checks.or_raise(project.find(), error)
        print(printable(str(error)), file=sys.stderr)
        print(f"\n{_count(len(error.problems), 'problem')}.", file=sys.stderr)
        return DIFFERENT


def _end(number: int, frame: FrameType | None) -> None:
    """Leave through every `finally`, which ends what was started. Once: a second Ctrl-C must not cut that short."""
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


# ------------------------------------------------------------------------------ commands


def list_(options: argparse.Namespace) -> int:
    listing = compiled.listing()
    if listing is None:
        raise _usage(NOTHING_HERE)
    print(listing["json" if options.json else options.lang], end="")
    return GOOD


def explain(options: argparse.Namespace) -> int:
    there = compiled.incidents()
    if options.id not in there:
        raise _usage(f"there is no incident {options.id}. There are: {', '.join(there)}" if there else NOTHING_HERE)
    text = compiled.article(options.id, options.lang) or ""
    print(text if sys.stdout.isatty() else re.sub(r"\x1b\[[0-9;]*m", "", text))
    return GOOD


def diagnose(options: argparse.Namespace) -> int:
    from readyonce import inputs

    if sys.stdout is None:
        raise _usage("standard output is closed: there is nowhere to write the answer")
    rules = _rules()
    rules.data["site"] = os.environ.get("SITE_URL", rules.data["site"]).rstrip("/")
    if repository := os.environ.get("REPO_URL"):
        rules.data["issue"] = links.new_issue(repository)
    faults: list[str] = []
    kinds = set()
    try:
        if options.github_event:
            kinds.add(_show(rules, inputs.event(rules, options.github_event, options.lang), options))
        else:
            terminal = sys.stdin is not None and sys.stdin.isatty()
            for name in inputs.names(options.files, terminal, faults):
                if answer := inputs.diagnose(rules, name, options.lang or "en", faults):
                    kinds.add(_show(rules, answer, options))
    except inputs.Unusable as error:
        missing = isinstance(error, inputs.Missing)
        read = inputs.pasted(rules, options.files, options.lang or "en") if missing else None
        if not read:
            raise _usage(str(error)) from None
        print("readyonce: there is no such file: read as the text of an error", file=sys.stderr)
        kinds.add(_show(rules, read, options))
    for fault in faults:
        print(f"readyonce: {printable(fault)}", file=sys.stderr)
    return (
        USAGE
        if faults
        else DIFFERENT
        if kinds & {"unknown", "fragment"}
        else WRAPPER
        if "wrapper-only" in kinds
        else GOOD
    )


def _rules() -> Rules:
    from readyonce import diagnose as engine

    for fresh in (False, True):  # a rule set that was damaged on the disk is compiled anew
        try:
            text = compiled.rules(fresh)
            if text is None:
                raise _usage("there are no rules here. Run it in the project's folder, or install the wheel")
            return engine.load(text)
        except (ValueError, KeyError, TypeError, AttributeError):
            if fresh:
                raise
    raise AssertionError


def _show(rules: Rules, answer: Answer, options: argparse.Namespace) -> str:
    """Print one answer; returns its kind."""
    from readyonce import inputs, report

    kind: str = answer.json["kind"]
    name = answer.json["file"]
    form = options.format or ("markdown" if options.github_event else "text")
    if form == "json":
        print(answer.to_json(), flush=True)
    elif form == "text":
        head = "" if [name] == options.files or name == "-" else f"== {printable(inputs.shown(name))}\n"
        print(head + report.text(rules, answer, answer.language, colour=sys.stdout.isatty()) + "\n", flush=True)
    elif options.github_event and kind in ("unknown", "fragment"):
        print("Nothing known in this issue: no comment.", file=sys.stderr)
    else:
        print(printable(report.markdown(rules, answer, answer.language)), flush=True)
    return kind


def triage(options: argparse.Namespace) -> int:
    from readyonce import inputs
    from readyonce.fleet import engine, groups, page, report, sources, verdict

    rules = _rules()
    faults: list[str] = []
    if options.format == "parquet" and not options.out:
        raise _usage("--format parquet is no text: name a file, --out report.parquet")
    try:
        last = Path(options.since).read_text(encoding="utf-8") if options.since else None
        sizes = sources.expand(options.paths, faults)
        found = engine.readings(compiled.rules() or "", sizes, options.lang, options.on)
        answers = verdict.answers(found)
        alike = groups.groups(answers, last)
        if options.format == "parquet":
            report.parquet(answers, alike, options.out)
    except inputs.Unusable as error:
        raise _usage(str(error)) from None
    except UnicodeDecodeError:
        raise _usage(f"{options.since} is no report of triage: write it with --format jsonl --out") from None
    if options.format != "parquet":
        colour = options.out is None and sys.stdout.isatty()
        forms: dict[str, Callable[[], str]] = {
            "text": lambda: report.text(rules, answers, alike, options.lang, colour),
            "jsonl": lambda: report.jsonl(answers, alike),
            "html": lambda: page.html(rules, answers, alike, options.lang),
        }
        # A file's name may hold bytes that are no UTF-8.
        text = forms[options.format]().encode("utf-8", "backslashreplace").decode()
        if options.out:
            project.write_whole(Path(options.out), text)
        else:
            print(text, end="" if text.endswith("\n") else "\n", flush=True)
    faults += [f"{inputs.shown(reading.file)}: {reading.fault}" for reading in found if reading.fault]
    for fault in faults:
        print(f"readyonce: {printable(fault)}", file=sys.stderr)
    failed = any(answer.outcome == "failed" for answer in answers)
    return USAGE if faults else DIFFERENT if failed else GOOD


def lint(options: argparse.Namespace) -> int:
    from readyonce import inputs
    from readyonce.lint import judge, launch, report, shell

    rules = _lint_rules()
    rules["site"] = os.environ.get("SITE_URL", rules["site"]).rstrip("/")
    faults: list[str] = []
    launches: list[Launch] = []
    findings: list[Finding] = []
    files = 0
    try:
        versions = launch.installed(options.python) if options.python else {}
        versions |= dict(map(_release, options.with_))
        reader = launch.Reader(rules["stacks"])
        if options.words:
            words = [shell.Word(word, 1, written=shlex.quote(word)) for word in options.words]
            launches += filter(None, [reader.words("command line", words, os.environ)])
        names = inputs.names(options.files, True, faults) if options.files or not options.words else []
        folders = [name for name in options.files if os.path.isdir(name)]
        for name in names:
            if any(name.startswith(folder) for folder in folders) and not launch.readable(name):
                continue
            files += 1
            try:
                launches += reader.file(name)
            except launch.Unreadable as error:
                faults.append(f"{inputs.shown(name)}:{error.line}: {error}")
            except OSError as error:
                faults.append(f"{inputs.shown(name)} cannot be read: {error.strerror or error}")
    except (inputs.Unusable, launch.Unreadable) as error:
        raise _usage(str(error)) from None
    answered: dict[Hashable, list[Judged]] = {}
    for planned in launches:
        findings += judge.judge(rules, planned, versions, options.lang, answered)
    findings += judge.look(rules, reader.code(), options.lang)
    shown = report.shown(findings, options.all)
    form = options.format
    if form == "sarif":
        print(report.sarif(shown, rules["site"]))
    elif shown:
        forms: dict[str, Callable[[list[Finding]], str]] = {
            "text": partial(report.text, language=options.lang),
            "json": report.as_json,
            "github": report.github,
        }
        print(forms[form](shown))
    if form == "text":
        print(report.summary(findings, launches, files, options.all, options.lang))
    for fault in faults:
        print(f"readyonce: {printable(fault)}", file=sys.stderr)
    return USAGE if faults else DIFFERENT if any(finding.level in report.LOUD for finding in findings) else GOOD


def _lint_rules() -> dict[str, Any]:
    import json

    for fresh in (False, True):
        text = compiled.lint_rules(fresh)
        if text is None:
            raise _usage("there are no rules here. Run it in the project's folder, or install the wheel")
        try:
            rules: dict[str, Any] = json.loads(text)
            (
                rules["cells"],
                rules["stacks"],
                rules["incidents"],
            )  # a rule set that was damaged on the disk is compiled anew
            return rules
        except (ValueError, KeyError, TypeError):
            if fresh:
                raise
    raise AssertionError


def _release(text: str) -> tuple[str, str]:
    name, sign, release = text.partition("==")
    if not sign or not re.match(r"\d", release):
        raise _usage(f"--with {text}: write a package and its release, as in transformers==4.57.1")
    return name.strip().lower().replace("_", "-"), release.strip()


def run(options: argparse.Namespace) -> int:
    from readyonce import launches

    try:
        return _run(options)
    except launches.LabError as error:
        raise _usage(str(error)) from None


def _run(options: argparse.Namespace) -> int:
    from readyonce import catalog, lab, launch, launches

    root = catalog.find_root()
    _known(root, [options.id])
    known = catalog.load(root).require_sound()
    incident = known.incidents[options.id]
    environment = options.environment
    variants = {n: v for n, v in incident.variants.items() if environment in v.declared}
    if options.variant and options.variant not in variants:
        raise _usage(
            f"{options.id} has no variant `{options.variant}` in `{environment}`. It has:\n  " + "\n  ".join(variants)
        )
    python = lab.interpreter(root, environment, _say)
    if options.variant:
        variant = variants[options.variant]
        if variant.is_command:
            with launch.Commands(known, incident, python) as commands:
                result = commands.run(variant)
        else:
            result = launches.alone(known, incident, variant, python)
        whole = options.log or result.error is None and result.outcome == "error"
        print(printable(result.log if whole else result.message or ""))
        print(_sentence(result, variant))
        return _as_declared(result, variant.declared[environment])
    width = max(map(len, variants))
    good = True

    def show(observation: Observation) -> None:
        nonlocal good
        declared = variants[observation.variant].declared[environment]
        agrees = observation.agrees_with(declared)
        good &= agrees
        mark = "as declared" if agrees else f"DECLARED: {declared}"
        print(f"{observation.variant:{width}}  {observation.short:34}  {mark}", flush=True)

    repros = [variant for variant in variants.values() if not variant.is_command]
    if repros:
        print(f"{_count(len(repros), 'variant')} in one launch ...", flush=True)
        launches.together(known, incident, [(variant, 1) for variant in repros], python, show)
    with launch.Commands(known, incident, python) as commands:
        for variant in variants.values():
            if variant.is_command:
                show(commands.run(variant))
    return GOOD if good else DIFFERENT


def facts(options: argparse.Namespace) -> int:
    from readyonce import catalog

    root = catalog.find_root()
    known = catalog.load(root).require_sound()
    if options.write:
        from readyonce import verify

        verify.rewrite_facts(known, _say)
        return GOOD
    query: dict[str, Condition] = {}
    for part in options.query:
        name, _, value = part.partition("=")
        if name not in known.vocabulary or not value:
            raise _usage(f"`{part}` is no FACT=VALUE. The facts: {', '.join(known.vocabulary)}")
        query[name] = value if value[0] in "<>" else value.split(",")
    found, undecided = known.fitting(query)
    for leaf, here in known.parted(found):
        how = ", ".join(f"{label} {count}" for label, count in leaf.labels.most_common())
        print(f"{how}   where {_path(leaf) or 'any'}")
        for fitting in here:
            print(f"    {fitting.name}")
    print(f"{_count(len(found), 'run')} fit; {undecided} do not tell.")
    return GOOD


def _path(leaf: Leaf) -> str:
    return " and ".join(
        f"{'' if inside else 'not '}{name} {'told' if condition is None else condition}"
        for name, condition, inside in leaf.path
    )


def verify_(options: argparse.Namespace) -> int:
    from readyonce import catalog, inputs, minimal, verify

    root = catalog.find_root()
    known = catalog.load(root).require_sound()
    incidents = [known.incidents[id] for id in _known(root, options.ids) or known.incidents]
    if options.environment == "newest":
        return _verify_newest(known, incidents, options)
    if options.report:
        raise _usage("--report belongs to `--environment newest`")
    environments = list(dict.fromkeys(name for incident in incidents for name in incident.environments))
    if options.environment and options.environment not in environments:
        of = incidents[0].id if len(incidents) == 1 else "No incident of these"
        raise _usage(f"{of} is not run in `{options.environment}`, but in: {', '.join(environments)}")
    environments = [options.environment] if options.environment else environments
    wanted = verify.Wanted(
        options.write, options.isolated, options.missing, options.stale, options.guard, _say, _progress
    )
    if options.on:
        from readyonce import cluster

        found = cluster.differences(known, incidents, environments, wanted, options.on)
    else:
        found = verify.differences(known, incidents, environments, wanted)
    if "current" in environments and not (wanted.guard or wanted.missing or options.on):
        found = itertools.chain(found, minimal.differences(known, incidents, "current", wanted))
    count = 0
    try:
        for difference in found:
            print(printable(difference), file=sys.stderr, flush=True)
            count += 1
    except inputs.Unusable as error:
        raise _usage(str(error)) from None
    print("As declared." if not count else f"{_count(count, 'difference')}.")
    return DIFFERENT if count else GOOD


def count(options: argparse.Namespace) -> int:
    from readyonce import catalog, counts, lab

    root = catalog.find_root()
    known = catalog.load(root).require_sound()
    for name, file in counts.files(known).items():
        for environment in file.environments if options.name in (None, name) else ():
            if options.environment in (None, environment):
                python = lab.interpreter(root, environment, _say)
                found = counts.measure(known, name, file, environment, python)
                differences = ", ".join(f"{counted.setting} {counted.count} of {counted.of}" for counted in found)
                print(f"{name} in {environment}: {differences}", flush=True)
                if options.write:
                    print(
                        f"wrote {counts.write(known, name, environment, python, found).relative_to(root)}", flush=True
                    )
    return GOOD


def _verify_newest(known: Catalog, incidents: list[Incident], options: argparse.Namespace) -> int:
    from readyonce import canary

    if options.write or options.isolated or options.on:
        raise _usage(
            "`--environment newest` stores nothing and runs each variant once, here: leave out --write, --isolated and --on"
        )
    report = canary.watch(known, incidents, _say, _progress)
    _progress("")
    print(canary.text(report))
    if options.report:
        Path(options.report).write_text(canary.markdown(report), encoding="utf-8")
    return DIFFERENT if report.changes else GOOD


def _keep_all() -> None:
    """For a command that is over in a second or two: looking for garbage takes a fifth of that, and finds none."""
    import gc

    gc.disable()


def check(options: argparse.Namespace) -> int:
    from readyonce import check as checks

    _keep_all()
    from readyonce import catalog
    from readyonce.reading import CatalogError

    root = catalog.find_root()
    known = catalog.load(root)
    problems = checks.problems(known)
    if problems:
        raise CatalogError(problems)
    print(
        f"{_count(len(known.incidents), 'incident')}, {_count(len(known.families), 'error family', 'error families')}: nothing to mend."
    )
    return GOOD


def render_(options: argparse.Namespace) -> int:
    from readyonce import render

    _keep_all()
    from readyonce import catalog

    known = catalog.load(catalog.find_root()).require_sound()
    stale = render.write(known, only_check=options.check)
    for path in stale:
        print(f"{path}: {'out of date: run `readyonce render`' if options.check else 'written'}")
    return DIFFERENT if stale and options.check else GOOD


def new(options: argparse.Namespace) -> int:
    from readyonce import catalog, render, scaffold

    root = catalog.find_root()
    id = options.id or scaffold.next_id(root)
    for path in scaffold.create(root, id, options.error):
        print(f"wrote {path}")
    for path in render.write(catalog.load(root).require_sound()):
        print(f"brought {path} up to date")
    print(f"\nReplace every TODO, then: readyonce verify {id} --write && readyonce check")
    return GOOD


def link(options: argparse.Namespace) -> int:
    from readyonce import articles, catalog

    root = catalog.find_root()
    _known(root, [options.id])
    if not links.site_url():
        raise _usage(
            "a link needs the wiki's public address. Set it: SITE_URL=https://wiki.example.com/ readyonce link ..."
        )
    incident = catalog.load(root, only=options.id).require_sound().incidents[options.id]
    folder = root / "docs" / options.lang / "incidents"
    headings: dict[str, tuple[str, str]] = {}  # id -> the page that has it, and its text
    for name in (options.id, f"{options.id}/evidence"):
        for heading in articles.read(folder / f"{name}.md").headings:
            if heading.level > 1 and heading.id:
                headings.setdefault(heading.id, (name, heading.text))
    for name, claim in incident.meta.claims.items():
        headings[f"claim-{name}"] = (options.id, claim.text[options.lang])
    if options.section and options.section not in headings:
        raise _usage(f"{options.id} has no section `{options.section}`. It has:\n  " + "\n  ".join(headings))
    page, title = headings.get(options.section, (options.id, None))
    target = links.address(links.site_url(), f"incidents/{page}/", options.lang, options.section)
    text = links.label(options.id, incident.meta.short[options.lang], title and title.replace("`", ""))
    print(links.link(links.FORMS[options.tracker], text, target) if options.tracker else target)
    return GOOD


def site(options: argparse.Namespace) -> int:
    from readyonce import catalog
    from readyonce import site as builder

    return builder.build(catalog.find_root())


def serve(options: argparse.Namespace) -> int:
    from readyonce import catalog
    from readyonce import site as builder

    return builder.serve(catalog.find_root(), options.port, open_browser=options.open)


# ------------------------------------------------------------------------------ words


def _sentence(result: Observation, variant: Variant) -> str:
    match result.outcome:
        case "error":
            return f"It failed: {result.error}." if result.error else "It failed, with an error of no known family."
        case "match":
            other = "the same launch without checkpointing" if variant.is_command else "a single process"
            return f"It trained right: the parameters equal those of {other} (difference {result.gradient_error:.2g})."
        case "diverge":
            name = f"`{result.worst}` is" if result.worst else "the parameters are"
            return f"It finished, on WRONG gradients: {name} off by {result.gradient_error:.2g} of how far they should move."
        case "still":
            return "It finished, and NOTHING MOVED: the trained parameters equal their start."
        case "hang":
            return "It hung and was ended at its time limit."
    return "It trained, printed its result, and then crashed while shutting down: a fault of the repro."


def _as_declared(result: Observation, declared: Declaration) -> int:
    if result.agrees_with(declared):
        print("That is the declared outcome.")
        return GOOD
    print(f"The declared outcome is another: {declared}.")
    return DIFFERENT


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _known(root: Path, ids: list[str]) -> list[str]:
    there = sorted(folder.name for folder in (root / "snippets").glob("RO-*"))
    for id in ids:
        if id not in there:
            raise _usage(f"there is no incident {id}. There are: {', '.join(there)}")
    return ids


def _usage(message: str) -> SystemExit:
    print(f"readyonce: {printable(message)}", file=sys.stderr)
    return SystemExit(USAGE)


# ------------------------------------------------------------------------------ the parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def _port(text: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"`{text}` is no port: write a number up to 65535")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="readyonce",
        description="Distributed-training failures, reproduced, and their fixes, proven.",
        epilog="Start with: readyonce diagnose train.log · readyonce list · readyonce explain RO-0001",
    )
    parser.add_argument("--version", action="version", version=f"readyonce {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, function: Callable[[argparse.Namespace], int], summary: str, *examples: str
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=summary,
            description=summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog="examples:\n" + "\n".join(f"  readyonce {name} {example}".rstrip() for example in examples),
        )
        added.set_defaults(command=function)
        return added

    def language(to: argparse.ArgumentParser) -> None:
        to.add_argument("--lang", choices=project.LANGUAGES, default="en", help="language of the words (default: en)")

    subparser = command("list", list_, "Lists the incidents.", "", "--lang zh", "--json")
    subparser.add_argument("--json", action="store_true", help="everything, for programs")
    language(subparser)

    subparser = command("explain", explain, "Shows an article in the terminal.", "RO-0001", "RO-0001 --lang zh")
    subparser.add_argument("id", metavar="ID")
    language(subparser)

    subparser = command(
        "diagnose",
        diagnose,
        "Finds the error in a log, and what to do first. Nothing is sent anywhere.",
        "train.log",
        "logs/ 'rank*.log.gz' --format json",
        "- < train.log",
        "train.log --format markdown --lang zh",
        "--github-event event.json",
    )
    subparser.epilog = f"{subparser.epilog}" + (
        "\n\nexit codes: 0 a known error (or a look-alike) in every input, 1 something unknown, or"
        "\nno more than part of an error's text, 2 bad usage, or something that cannot be read (the rest is answered),"
        "\n3 nothing unknown, but only a launcher's report in at least one"
    )
    subparser.add_argument(
        "files", metavar="FILE", nargs="*", help="files, folders, globs, .gz; `-` or none: standard input"
    )
    subparser.add_argument(
        "--format", choices=("text", "json", "markdown"), help="json: one object for each input, a line each"
    )
    subparser.add_argument(
        "--lang", choices=project.LANGUAGES, help="language of the words (default: en; of an issue, its own)"
    )
    subparser.add_argument(
        "--github-event", metavar="FILE", help="an event of a newly opened issue: prints the comment for it"
    )

    subparser = command(
        "triage",
        triage,
        "Finds in the logs of many jobs which rank failed first, with what, and which jobs failed alike. Nothing is sent anywhere.",
        "logs/",
        "'runs/*/console.log' logs.tar.gz --format html --out triage.html",
        "/var/log/pods --format jsonl --out today.jsonl --since yesterday.jsonl",
        "/shared/logs --on tcp://scheduler:8786",
    )
    subparser.epilog = f"{subparser.epilog}" + (
        "\n\nknown layouts: torchrun --log-dir, Slurm (%j_%t), Kubernetes pods, ms-swift's folders, rank_3.log, and single files"
        "\nwhose lines begin with [rank3]:, [default3]: or 3:. All cores are used; --on names a Dask cluster that runs already."
        "\nIt needs more than the other commands do: pip install 'readyonce[cluster]'"
        "\nexit codes: 0 no job failed, 1 some did, 2 bad usage, or a file that cannot be read (the rest is answered)"
    )
    subparser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        help="folders, globs, files, .gz, .zst, .tar, .zip, addresses that fsspec knows. s3:// and oss:// need s3fs or ossfs "
        "installed beside it; s3:// is tested against moto's S3 server, oss:// was not run",
    )
    subparser.add_argument(
        "--format", choices=("text", "jsonl", "html", "parquet"), default="text", help="default: text"
    )
    subparser.add_argument("--out", metavar="FILE", help="write there, not to standard output")
    subparser.add_argument(
        "--on",
        metavar="ADDRESS",
        help="of a Dask scheduler: read on its workers, which must see the same paths, and need the same package",
    )
    subparser.add_argument("--since", metavar="FILE", help="the last report, as jsonl: marks what is new")
    language(subparser)

    subparser = command(
        "lint",
        lint,
        "Judges a launch before it starts, by the stored runs: scripts, configurations, a command line. Runs nothing of it.",
        "train.sh",
        "train.sh ds_config.json --with transformers==4.57.1 --with deepspeed==0.19.2",
        "scripts/ --python .venv/bin/python --all",
        "--format sarif train.sh > lint.sarif",
        "-- torchrun --nproc-per-node 8 train.py --gradient_checkpointing True --use_lora True",
    )
    subparser.epilog = f"{subparser.epilog}" + (
        "\n\nlevels: error, no run that fits trains right; warning, so with some versions, or because the framework's own code"
        "\nruns a module twice; note (--all), it depends on what a launch cannot show. What is not covered is said."
        "\nexit codes: 0 neither error nor warning, 1 some, 2 bad usage, or a file that cannot be read (the rest is judged)"
    )
    subparser.add_argument(
        "files", metavar="FILE", nargs="*", help="shell, YAML, JSON, Python or Markdown files, folders, globs"
    )
    subparser.add_argument(
        "--with", dest="with_", metavar="PKG==V", action="append", default=[], help="a release it will run with"
    )
    subparser.add_argument(
        "--python", metavar="PATH", help="read the releases beside this interpreter; it is not started"
    )
    subparser.add_argument("--all", action="store_true", help="notes too")
    language(subparser)
    subparser.add_argument(
        "--format", choices=("text", "json", "sarif", "github"), default="text", help="default: text"
    )

    subparser = command(
        "run",
        run,
        "Runs a variant as a reader would, or all of them, and says what happened.",
        "RO-0001 reported",
        "RO-0001 non-reentrant --log",
        "RO-0001",
    )
    subparser.add_argument("id", metavar="ID")
    subparser.add_argument("variant", metavar="VARIANT", nargs="?")
    subparser.add_argument("--log", action="store_true", help="show the whole log")
    subparser.add_argument(
        "--environment", metavar="NAME", default="current", help="a list under snippets/environments/"
    )

    subparser = command(
        "verify",
        verify_,
        "Runs every variant with repeats and compares with the declared outcomes.",
        "",
        "RO-0001",
        "RO-0001 --write",
        "RO-0001 --stale --write",
        "RO-0001 --isolated",
        "RO-0001 --environment deepspeed-0.19.2",
        "--write --on tcp://scheduler:8786",
        "--environment newest --report changes.md",
    )
    subparser.add_argument("ids", metavar="ID", nargs="*")
    subparser.add_argument(
        "--write", action="store_true", help="store the evidence (runs one variant of each kind alone as well)"
    )
    subparser.add_argument(
        "--missing", action="store_true", help="only what has no run yet; with --write, added to the stored"
    )
    subparser.add_argument(
        "--stale",
        action="store_true",
        help="only what was stored with another script, environment or launch than today's",
    )
    subparser.add_argument(
        "--isolated", action="store_true", help="one launch for each variant; beside --write as well as a shared one"
    )
    subparser.add_argument("--guard", action="store_true", help="run each once with the guard, which only records")
    subparser.add_argument(
        "--environment", metavar="NAME", help="only this one (default: all that the incident names); newest: see below"
    )
    subparser.add_argument(
        "--on",
        metavar="ADDRESS",
        help="of a Dask scheduler: run on its workers, which need the same project; judge and store here",
    )
    subparser.add_argument(
        "--report", metavar="FILE", help="with `--environment newest`: write what changed as Markdown too"
    )
    subparser.epilog = f"{subparser.epilog}" + (
        "\n\n`--environment newest` takes the lists that stand for today, each package in its newest release, runs every"
        "\nvariant once, what differs once more, and says what changed against what is declared and stored. It stores nothing."
    )

    subparser = command(
        "facts",
        facts,
        "Which runs fit a query over their facts, how they ended, and what separates them.",
        "",
        "strategy=ddp checkpointing=reentrant find_unused=false",
        "strategy=zero-3 'deepspeed=< 0.19.3' runs=last,early",
        "--write",
    )
    subparser.add_argument("query", metavar="FACT=VALUE", nargs="*", help="all must fit; several values: any of them")
    subparser.add_argument(
        "--write", action="store_true", help="read the facts of every stored run anew, and store them"
    )

    subparser = command(
        "count", count, "Runs what the concept pages count, in each environment.", "", "zero3-early-gather --write"
    )
    subparser.add_argument("name", metavar="NAME", nargs="?")
    subparser.add_argument("--environment", metavar="NAME", help="only this one")
    subparser.add_argument("--write", action="store_true", help="store the counts")

    command("check", check, "Checks metadata, articles, includes, links, translations and claims; runs nothing.", "")

    subparser = command(
        "render", render_, "Writes what is generated: includes, front matter, navigation.", "", "--check"
    )
    subparser.add_argument(
        "--check", action="store_true", help="write nothing; fail when something committed is out of date"
    )

    subparser = command(
        "new", new, "Makes the files of a new incident, in both languages.", "", "RO-0042", "--error nccl-closed"
    )
    subparser.add_argument("id", metavar="ID", nargs="?", help="without it the next free one")
    subparser.add_argument(
        "--error", metavar="NAME", help="makes the file of a new error too, and names it in the incident"
    )

    subparser = command(
        "link",
        link,
        "Prints a link to an incident or one of its sections; SITE_URL names the public address.",
        "RO-0003",
        "RO-0003 --section fix --for github",
        "RO-0003 --section fix --for jira --lang zh",
    )
    subparser.add_argument("id", metavar="ID")
    subparser.add_argument("--section", metavar="NAME", help="a heading's id: error, fix, cause ...")
    subparser.add_argument("--for", dest="tracker", choices=links.FORMS, help="its form (default: the address)")
    language(subparser)

    command("site", site, "Builds the wiki, both languages, with the book and the offline copy, into site/.", "")

    subparser = command(
        "serve", serve, "Builds the wiki, serves it on this machine, and rebuilds what changes.", "", "--port 8001"
    )
    subparser.add_argument("--port", type=_port, default=8000, help="0 takes a free one (default: 8000)")
    subparser.add_argument("--open", action="store_true", help="open it in the browser, where there is a screen")
    return parser


if __name__ == "__main__":
    sys.exit(main())
