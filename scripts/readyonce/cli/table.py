"""The commands: of each its function, what it does, examples, arguments. A function's module is imported when it runs."""

from __future__ import annotations

import argparse
import re
from typing import Any, NamedTuple

from readyonce.data.links import FORMS
from readyonce.data.project import LANGUAGES

Argument = tuple[str, dict[str, Any]]  # what `add_argument` takes


class Command(NamedTuple):
    function: str  # in a module of `readyonce.cli`
    summary: str
    examples: list[str]
    arguments: list[Argument]
    notes: str = ""  # below the examples


def _argument(name: str, metavar: str | None, help: str | None = None, **settings: Any) -> Argument:
    return name, {"metavar": metavar, "help": help, **settings}


def _flag(name: str, help: str) -> Argument:
    return name, {"action": "store_true", "help": help}


def _port(text: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"`{text}` is no port: write a number up to 65535")
    return int(text)


READ_FILES = ("diagnose", "triage", "lint")  # any files that are named
# The others read compiled data; beside a team's folder they need the project too.
NEED_THE_PROJECT = ("run", "verify", "count", "check", "render", "new", "site", "serve", "book")

IN_A_WHEEL = ("check", "site", "serve", "book")  # of these, what the wheel carries is enough for

_ID = _argument("id", "ID")
_LANG = _argument("--lang", None, "language of the words (default: en)", choices=LANGUAGES, default="en")
_FORMAT = "default: text"
_WITH = _argument("--with", "FOLDER", "a team's own incidents, as one wiki with these", dest="overlay")

_DIAGNOSE_NOTES = """\
exit codes: 0 a known error (or a look-alike) in every input, 1 something unknown, or
no more than part of an error's text, 2 bad usage, or something that cannot be read (the rest is answered),
3 nothing unknown, but only a launcher's report in at least one"""
_TRIAGE_NOTES = """\
known layouts: torchrun --log-dir, Slurm (%j_%t), Kubernetes pods, ms-swift's folders, rank_3.log, and single files
whose lines begin with [rank3]:, [default3]: or 3:. Of a job that hangs: stacks that py-spy or faulthandler wrote, and
files of torch's Flight Recorder. All cores are used; --on names a Dask cluster that runs already.
It needs more than the other commands do: pip install 'readyonce[cluster]'
exit codes: 0 no job failed, 1 some did, 2 bad usage, or a file that cannot be read (the rest is answered)"""
_LINT_NOTES = """\
levels: error, no run that fits trains right; warning, so with some versions, or because the framework's own code
runs a module twice; note, it depends on what a launch cannot show. What is not covered, or not read, is said.
exit codes: 0 neither error nor warning, 1 some, 2 bad usage, or a file that cannot be read (the rest is judged)"""
_VERIFY_NOTES = """\
`--environment newest` takes the lists that stand for today, each package in its newest release, runs every
variant once, what differs once more, and says what changed against what is declared and stored. It stores nothing."""
_PATHS = (
    "folders, globs, files, .gz, .zst, .tar, .zip, addresses that fsspec knows. s3:// and oss:// need s3fs or ossfs "
    "installed beside it; s3:// is tested against moto's S3 server, oss:// was not run"
)

# fmt: off
COMMANDS = {
    "list": Command("stored.list_", "Lists the incidents.",
        ["", "--lang zh", "--json", "--with ../our-incidents"],
        [_flag("--json", "everything, for programs"), _WITH, _LANG]),
    "explain": Command("stored.explain", "Shows an incident's article, or an error, in the terminal.",
        ["RO-0001", "RO-0001 --lang zh", "ddp-ready-twice", "ACME-0001 --with ../our-incidents"],
        [_ID, _WITH, _LANG]),
    "diagnose": Command("diagnose.diagnose", "Finds the error in a log, and what to do first. Nothing is sent anywhere.",
        ["train.log", "logs/ 'rank*.log.gz' --format json", "- < train.log", "train.log --format markdown --lang zh",
         "train.log --with ../our-incidents", "--github-event event.json"],
        [_argument("files", "FILE", "files, folders, globs, .gz; `-` or none: standard input", nargs="*"),
         _argument("--format", None, "json: one object for each input, a line each", choices=("text", "json", "markdown")),
         _argument("--lang", None, "language of the words (default: en; of an issue, its own)", choices=LANGUAGES),
         _WITH, _argument("--github-event", "FILE", "an event of a newly opened issue: prints the comment for it")],
        _DIAGNOSE_NOTES),
    "triage": Command("triage.triage",
        "Finds in the logs of many jobs which rank failed first, with what, and which jobs failed alike.",
        ["logs/", "'runs/*/console.log' logs.tar.gz --format html --out triage.html",
         "/var/log/pods --format jsonl --out today.jsonl --since yesterday.jsonl", "/shared/logs --on tcp://scheduler:8786"],
        [_argument("paths", "PATH", _PATHS, nargs="+"),
         _argument("--format", None, _FORMAT, choices=("text", "jsonl", "html", "parquet"), default="text"),
         _argument("--out", "FILE", "write there, not to standard output"),
         _argument("--on", "ADDRESS",
             "of a Dask scheduler: read on its workers, which must see the same paths, and need the same package"),
         _argument("--since", "FILE", "the last report, as jsonl: marks what is new"), _WITH, _LANG],
        _TRIAGE_NOTES),
    "lint": Command("lint.lint",
        "Judges a launch before it starts, by the stored runs: scripts, configurations, a command line. Runs nothing of it.",
        ["train.sh", "train.sh ds_config.json --with transformers==4.57.1 --with deepspeed==0.19.2",
         "scripts/ --python .venv/bin/python --all", "--format sarif train.sh > lint.sarif",
         "-- torchrun --nproc-per-node 8 train.py --gradient_checkpointing True --use_lora True"],
        [_argument("files", "FILE", "shell, YAML, JSON, Python or Markdown files, folders, globs", nargs="*"),
         _argument("--with", "PKG==V", "a release it will run with", dest="with_", action="append", default=[]),
         _argument("--python", "PATH", "read the releases beside this interpreter; it is not started"),
         _flag("--all", "places in Python to look at, too; in other formats than text, notes too"), _LANG,
         _argument("--format", None, _FORMAT, choices=("text", "json", "sarif", "github"), default="text")],
        _LINT_NOTES),
    "run": Command("lab.run", "Runs a variant as a reader would, or all of them, and says what happened.",
        ["RO-0001 reported", "RO-0001 non-reentrant --log", "RO-0001"],
        [_ID, _argument("variant", "VARIANT", nargs="?"), _flag("--log", "show the whole log"),
         _argument("--environment", "NAME", "a list under snippets/environments/", default="current")]),
    "verify": Command("lab.verify_", "Runs every variant with repeats and compares with the declared outcomes.",
        ["", "RO-0001", "RO-0001 --write", "ACME-0001 --write --with ../our-incidents", "RO-0001 --stale --write", "RO-0001 --isolated",
         "RO-0001 --environment deepspeed-0.19.2", "--write --on tcp://scheduler:8786",
         "--environment newest --report changes.md"],
        [_argument("ids", "ID", nargs="*"), _WITH,
         _flag("--write", "store the evidence (runs one variant of each kind alone as well)"),
         _flag("--missing", "only what has no run yet; with --write, added to the stored"),
         _flag("--stale", "only what was stored with another script, environment or launch than today's"),
         _flag("--isolated", "one launch for each variant; beside --write as well as a shared one"),
         _flag("--guard", "run each once with the guard, which only records"),
         _argument("--environment", "NAME", "only this one (default: all that the incident names); newest: see below"),
         _argument("--on", "ADDRESS",
             "of a Dask scheduler: run on its workers, which need the same project; judge and store here"),
         _argument("--report", "FILE", "with `--environment newest`: write what changed as Markdown too")],
        _VERIFY_NOTES),
    "facts": Command("stored.facts", "Which runs fit a query over their facts, how they ended, and what separates them.",
        ["", "strategy=ddp checkpointing=reentrant find_unused=false",
         "strategy=zero-3 'deepspeed=< 0.19.3' runs=last,early", "--write"],
        [_argument("query", "FACT=VALUE", "all must fit; several values: any of them", nargs="*"),
         _flag("--write", "read the facts of every stored run anew, and store them")]),
    "count": Command("lab.count_", "Runs what the concept pages count, in each environment.",
        ["", "zero3-early-gather --write"],
        [_argument("name", "NAME", nargs="?"), _argument("--environment", "NAME", "only this one"),
         _flag("--write", "store the counts")]),
    "check": Command("check.check", "Checks metadata, articles, includes, links, translations and claims; runs nothing.",
        ["", "--with ../our-incidents"], [_WITH]),
    "render": Command("wiki.render_", "Writes what is generated: includes, front matter, navigation.",
        ["", "--check"],
        [_flag("--check", "write nothing; fail when something committed is out of date")]),
    "new": Command("wiki.new", "Makes the files of a new incident: a short one, which a script of 40 lines proves.",
        ["", "--log train.log", "--log train.log --error nccl-closed", "ACME-0001 --in ../our-incidents", "--noted", "RO-0042 --judged"],
        [_argument("id", "ID", "without it the next free one", nargs="?"),
         _argument("--log", "FILE", "takes the error from a log; `-`: standard input"),
         _argument("--error", "NAME", "makes the file of a new error too, and names it in the incident"),
         _argument("--in", "FOLDER", "a team's own incident, in a folder of theirs beside the project", dest="inside"),
         _flag("--noted", "one that cannot be run here: cause and fix from sources, no script"),
         _flag("--judged", "one with variants, claims and a lab book, in both languages"), _LANG]),
    "link": Command("stored.link", "Prints a link to an incident or one of its sections; SITE_URL names the public address.",
        ["RO-0003", "RO-0003 --section fix --for github", "RO-0003 --section fix --for jira --lang zh",
         "ACME-0001 --with ../our-incidents"],
        [_ID, _argument("--section", "NAME", "a heading's id: error, fix, cause ..."), _WITH,
         _argument("--for", None, "its form (default: the address)", dest="tracker", choices=FORMS), _LANG]),
    "site": Command("wiki.site", "Builds the wiki, both languages, with the book and the offline copy, into site/.",
        ["", "--with ../our-incidents"], [_WITH]),
    "book": Command("wiki.book", "Sets the pages of some incidents as one PDF, for a private copy or a printer.",
        ["RO-0001 RO-0007", "ACME --with ../our-incidents --lang zh --out ours.pdf"],
        [_argument("ids", "ID", "of an incident, or a prefix: all incidents that have it", nargs="+"), _WITH,
         _argument("--out", "FILE", "write there (default: incidents.pdf)", default="incidents.pdf"), _LANG]),
    "serve": Command("wiki.serve", "Builds the wiki, serves it on this machine, and rebuilds what changes.",
        ["", "--port 8001", "--with ../our-incidents"],
        [_WITH, _argument("--port", None, "0 takes a free one (default: 8000)", type=_port, default=8000),
         _flag("--open", "open it in the browser, where there is a screen")]),
}
# fmt: on
