"""The commands of files that are no shell script, as the shell would get them, each in its own line.

`reader` and `shell` read shell scripts. Here a Dockerfile, a notebook, a compose or Kubernetes file, a Python file that starts a
command and a here-document become shell text first. What is not read at all is named, so that silence is not taken for a pass.
"""

from __future__ import annotations

import ast
import bisect
import itertools
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from readyonce.launches import reader as reading
from readyonce.launches import shell
from readyonce.launches.reader import Launch, Reader, Unreadable

if TYPE_CHECKING:
    import yaml

SCRIPTS = (".zsh", ".pbs", ".lsf", ".sge", ".job")  # shell scripts, beside those that the reader knows
NOT_READ = {".ps1": "PowerShell", ".fish": "fish", ".bat": "a Windows batch file", ".cmd": "a Windows batch file"}
NOT_READ[".toml"] = "TOML"
# What wraps a model, by the option that says so; and what may wrap it out of sight.
WRAPS = {
    "python.ddp": re.compile(r"\b(?:DDP|DistributedDataParallel)\("),
    "fsdp 1": re.compile(r"\b(?:FSDP|FullyShardedDataParallel)\("),
    "fsdp 2": re.compile(r"\bfully_shard\("),
    "deepspeed": re.compile(r"\bdeepspeed\.initialize\("),
}
WRAPPERS = re.compile(
    r"\bAccelerator\(|\bfrom[ \t]+transformers\b[^\n]*\bTrainer\b|\bhvd\.DistributedOptimizer|^[ \t]*(?:from|import)[ \t]+"
    r"(?:lightning|pytorch_lightning|colossalai|mmengine|xtuner|ignite|torch_xla|composer|trl|fairscale\.nn\.data_parallel)\b",
    re.MULTILINE,
)
TELLS = {"python.ddp", "python.accelerator", "fsdp", "fsdp_config", "deepspeed", "megatron", "train_engine"}
PACKAGE = 250  # files of a package that are read
REMEDY = "Give the command itself: readyonce lint -- COMMAND, or write it into a .sh file"
SUBMITS = re.compile(
    r"[ \t]*(?:\w+=\S*[ \t]+|nohup[ \t]+|sudo[ \t]+)*(ssh|pdsh|tmux|ray job submit|ray submit|sky launch|sky exec)[ \t]"
)
# What starts processes and is none of the launchers that the reader knows.
STARTERS = re.compile(
    r"(?:^|;)[ \t]*(?:\w+=\S*[ \t]+)*(?:(?:exec|nohup|time|poetry run|uv run|bash|sh|srun \S+)[ \t]+)*"
    r"(composer(?=[ \t].{0,2000}\.py)|colossalai run|xtuner train|litgpt (?:finetune|pretrain)\w*|tune run|fairseq-train|(?:\S*/)?torchrun\.sh|"
    r"(?:lightning|fabric) run|horovodrun|(?:srun|mpirun|mpiexec)(?=\s(?:.{0,2000}[\s'\"])?python[\d.]*\s)"
    r"|python[\d.]*[ \t]+(?:-m[ \t]+)?\S*swift[./]cli[./][\w.]+)",
    re.MULTILINE,
)
# Options by which a script that starts its processes itself is told how many.
COUNTS = (
    *("num_nodes", "nnodes", "num_gpus", "gpus", "n_gpus", "n_gpu", "num_processes", "nproc_per_node", "world_size"),
    *("num_learners_per_node", "actor_num_gpus_per_node", "ngpus"),
)
COUNTED = re.compile(r"--(?:num[_-]nodes|nnodes|num[_-]gpus|gpus|gpus[_-]per[_-]node|world[_-]size)[= ](?!1\b|0\b)\S")
CALLS = {"run", "call", "check_call", "check_output", "Popen", "system", "popen", "getoutput", "getstatusoutput"}
TRAINS = {"sft_main", "rlhf_main", "pt_main", "run_exp", "notebook_launcher"}  # that train, given arguments in Python
ENVIRONMENT = ("env", "environment", "envs", "variables")
COMMANDS = ("entrypoint", "command", "args")
SCRIPT_KEYS = ("run", "script", "before_script", "setup", "cmd", "cmds", "commands")
# A variable that is called by what it starts, where a command begins: `"${TORCHRUN_BIN}" --nproc_per_node 8`.
CALLED_LAUNCHER = re.compile(
    r"(?<!\\\n)^([ \t]*(?:[A-Za-z_]\w*=\S*[ \t]+)*)\"?\$\{?((?:[A-Z]+_)?(TORCHRUN|ACCELERATE|DEEPSPEED|PYTHON)(?:_(?:BIN|CMD|EXE|PATH))?)\}?\"?"
    r"(?=[ \t]+\S)",
    re.MULTILINE,
)
# What such a variable is set to, where it is nothing but that program: its name, a path, a default, what a search finds.
PROGRAM = re.compile(
    r"[\"']?(?:[^\s\"']*(?:torchrun|accelerate|deepspeed|python[\d.]*)\}?|\$\{\w+:?-\}|\$\((?:command -v|which) [^()]*\))[\"']?"
)
# What a page leaves to its reader, in words: `--data_path <path to your data>`.
IN_WORDS = re.compile(r"<(?=[A-Za-z])[^<>\n]*[^<>\s]>(?=[\s\"']|$)", re.MULTILINE)
INLINE = re.compile(r"(?<!`)`([^`\s][^`]*)`(?!`)")  # code within a line of Markdown
NAMES_A_FILE = re.compile(r"\.(?:py|ya?ml|json)\b|\s-m\s")
HEREDOC = re.compile(r"<<-?[ \t]*(\\?['\"]?)([A-Za-z_]\w*)['\"]?")
TO_SHELL = re.compile(r"(?:^|[\s/;&|(])(?:bash|sh|zsh|dash|ksh|sbatch|qsub|bsub)(?:\s+[^<>|;&]*)?$")
WRITES = re.compile(r">>?[ \t]*(\S+)|\btee[ \t]+(?:-a[ \t]+)?(\S+)")
READ = re.compile(r"\bread\s+(?:-\w+\s+|''\s+|\"\"\s+)*([A-Za-z_]\w*)\s*$")
# `source env.sh`, `. "$(dirname "$0")/env.sh"`
SOURCED = re.compile(
    r"^([ \t]*)(?:source|\.)[ \t]+"
    r"(\"?\$\((?:[^()\n]|\([^)\n]*\))*\)[^\s;&|]*|\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|]+)[ \t]*(?=$|[;&|#])",
    re.MULTILINE,
)
SETS = re.compile(
    r"^[ \t]*((?:export\s+)?[A-Za-z_]\w*=(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|#]*))[ \t]*(?:#.*)?$", re.MULTILINE
)
NO_COUNT = re.compile(r"activate|conda\.sh|bashrc|profile|/etc/|set_?vars|setvars|module", re.IGNORECASE)
BRANCHES = 4  # values of a variable that are tried
# What asks whether a variable is empty: `[ -z "$NAME" ]`, `[ "$NAME" == "" ]`.
EMPTY = r"\[[ \t]+(?:-z[ \t]+\"?\$\{?NAME\b|\"?\$\{?NAME\}?\"?[ \t]*==?[ \t]*\"\")"
# Options whose value a branch of the script may set: they tell the strategy.
BRANCHED = ("deepspeed", "launch.config_file", "deepspeed_config", "launch.deepspeed_config_file", "zero_stage")
MOST_LINES = 200  # of one command whose quotes are open


class Found(NamedTuple):
    launches: list[Launch]
    not_read: list[tuple[int, str]]  # line, and what stands there


def readable(name: str) -> bool:
    """Whether a file in a folder can hold a launch, by its name."""
    suffix = Path(name).suffix.lower()
    return (
        reading.readable(name)
        or _is_dockerfile(name)
        or suffix in (*SCRIPTS, ".ipynb", *NOT_READ)
        and suffix != ".toml"
    )


def file(reader: Reader, name: str) -> Found:
    """The launches of a file of any form. Raises `Unreadable` where nothing of it can be read."""
    suffix = Path(name).suffix.lower()
    if suffix in NOT_READ:
        if not _hinted(reader, reading._text(name, shell.SIZE)):
            return Found([], [])
        raise Unreadable(f"{NOT_READ[suffix]} is not read. {REMEDY}")
    if suffix in (".yaml", ".yml", ".json"):
        found = reader.file(name)
        if any(not launch.unseen for launch in found):
            return Found(found, [])
        parts = _of_containers(reading._text(name))
        return _pieces(reader, name, parts, found)
    if suffix == ".py":
        found = reader.file(name)
        parts, not_read = _of_python(reading._text(name))
        told = _pieces(reader, name, parts, [])
        return Found(found + told.launches, not_read + told.not_read)
    if _is_dockerfile(name):
        return _script(reader, name, _of_dockerfile(reading._text(name, shell.SIZE)))
    if suffix == ".ipynb":
        text, not_read = _of_notebook(reading._text(name))
        told = _script(reader, name, text)
        return Found(told.launches, not_read + told.not_read)
    if suffix == ".rst":
        return _script(reader, name, _of_rst(reading._text(name, shell.SIZE)))
    if suffix == ".md":
        text = reading._text(name, shell.SIZE)
        told = _script(reader, name, _closed(reader, _of_markdown(reader, text)))
        beside = _pieces(reader, name, _of_blocks(text), [])
        return Found(told.launches + beside.launches, told.not_read + beside.not_read)
    if suffix in (*reading.SHELLS, *SCRIPTS):
        return _script(reader, name, reading._text(name, shell.SIZE))
    return Found(reader.file(name), [])  # it reads what begins with #!, and says why it does not


def _is_dockerfile(name: str) -> bool:
    base = os.path.basename(name).lower()
    return base.split(".")[0] in ("dockerfile", "containerfile") or base.endswith((".dockerfile", ".containerfile"))


def _script(reader: Reader, name: str, text: str) -> Found:
    """The launches of a shell text; what is submitted to a place that is not read is named."""
    text = text.replace("\r\n", "\n")
    by_sourced = "eval" in text and SOURCED.search(text)  # the command may stand in what it reads
    if not _hinted(reader, text) and not STARTERS.search(text) and not by_sourced:
        return Found([], [])
    text, not_read = _without_submitted(reader, text)
    text = _with_sourced(reader, os.path.dirname(name), plain(text))
    found = reader.script(name, text)
    if not found and (match := STARTERS.search(text)):
        found = [Launch(match[1], name, text.count("\n", 0, match.start(1)) + 1, unseen=match[1])]
    branches = _Branches(reader, name, text)
    found = [one for launch in found for one in branches.of(launch)]
    for launch in found:
        _of_engine(launch, os.path.dirname(name))
        _of_package(reader, launch, os.path.dirname(name))
    lines = text.split("\n")
    counted = cache(lambda number: bool(COUNTED.search(lines[number - 1][: reading.LOOKED])))
    for launch in found:
        told = [launch.options[option].value for option in COUNTS if option in launch.options]
        many = any(value not in ("0", "1", "-1") for value in told) or counted(min(launch.line, len(lines)))
        if launch.processes == 1 and launch.launcher is None and many:
            launch.processes = None  # something else starts them
    return Found(found, not_read)


class Branch(Launch):
    """A launch as it is where a variable, which branches of its script set, has one of its values."""

    def __init__(self, launch: Launch, when: str):
        super().__init__(launch.command, launch.file, launch.line, launch.options, launch.launcher, launch.frameworks)
        self.processes, self.unread, self.blind, self.when = launch.processes, launch.unread, launch.blind, when
        self.is_untold = launch.is_untold


class _Branches:
    """The launches of a script once for each file that its branches put into the variable which names it."""

    def __init__(self, reader: Reader, name: str, text: str):
        self.reader, self.name, self.text = reader, name, text
        self.read: dict[str, list[tuple[str, dict[tuple[int, str], Launch]]]] = {}

    def of(self, launch: Launch) -> list[Launch]:
        for key in BRANCHED:
            option = launch.options.get(key)
            match = re.search(r"\$\{?(\w+)\}?[\"']?$", option.written) if option and option.value is None else None
            if match is None:
                continue
            if match[1] not in self.read:
                self.read[match[1]] = self._each(match[1])
            chosen = [(when, found.get((launch.line, launch.command))) for when, found in self.read[match[1]]]
            if chosen and all(other for _, other in chosen):
                return [Branch(other, when) for when, other in chosen if other]
        return [launch]

    def _each(self, variable: str) -> list[tuple[str, dict[tuple[int, str], Launch]]]:
        """The launches as if each branch set the variable to the same value, for each of a few values.

        An argument of the script sets it too where a branch gives the default: then it is as without that argument.
        """
        value = r"\"([^\"$\n]*)\"|'([^'\n]*)'|([^\s\"'$;]+)|(\"?\$\{?[1-9]\}?\"?)"
        sets = re.compile(rf"^([ \t]*){variable}=(?:{value})[ \t]*$", re.MULTILINE)
        found_sets = list(sets.finditer(self.text))
        values = list(dict.fromkeys(filter(None, (it[2] or it[3] or it[4] for it in found_sets))))
        if any(it[5] for it in found_sets):
            is_read = len(values) == 1 and bool(re.search(EMPTY.replace("NAME", variable), self.text))
        else:
            is_read = 2 <= len(values) <= BRANCHES
        if not is_read or len(self.read) > BRANCHES:
            return []
        texts = [sets.sub(partial(_set_to, variable, value), self.text) for value in values]
        found = [{(it.line, it.command): it for it in self.reader.script(self.name, text)} for text in texts]
        return [(f"{variable}={value}", launches) for value, launches in zip(values, found)]


def _set_to(variable: str, value: str, match: re.Match[str]) -> str:
    return f"{match[1]}{variable}={shlex.quote(value)}"


def _as_it_is(folder: str, script: str) -> tuple[str, int] | None:
    """The path of a script that is at hand, and the number that tells whether it was changed."""
    try:
        path = reading.at_hand(folder, script)
        return (path, os.stat(path).st_mtime_ns) if path else None
    except (OSError, ValueError):  # it is gone, or no path
        return None


def _initialized(path: str, line: int) -> reading.Option:
    return reading.Option(None, path, line, "deepspeed.initialize()", style="python")


@cache
def _called(path: str, _: int) -> tuple[int, frozenset[str]] | None:
    """Where a script calls DeepSpeed itself, and the stages that stand in it; the number tells a file that was changed."""
    try:
        text = reading._text(path)
    except (OSError, Unreadable):
        return None
    match = WRAPS["deepspeed"].search(text)
    stages = re.findall(r"[\"']stage[\"']\s*:\s*([0-3])\b", text)
    return (text.count("\n", 0, match.start()) + 1, frozenset(stages)) if match else None


def _of_engine(launch: Launch, folder: str) -> None:
    """The stage of a script that calls DeepSpeed itself: its launch names no DeepSpeed file, and is not DDP."""
    words = launch.command.split()
    script = next((word for word in words[1:2] if word.endswith(".py")), None)
    if launch.unseen or script is None or {"deepspeed", "train_engine"} & launch.options.keys():
        return
    at = _as_it_is(folder, script)
    if at and (called := _called(*at)):
        launch.options.pop("python.ddp", None)  # what it does without DeepSpeed
        path, (line, stages) = at[0], called
        launch.options["deepspeed"] = _initialized(path, line)
        if len(stages) == 1:
            launch.options["deepspeed.zero_optimization.stage"] = reading.Option(
                next(iter(stages)), path, line, style="python"
            )


@cache
def _package(path: str, _: int) -> tuple[tuple[str, str, int] | None, tuple[str, ...]]:
    """Of what a script imports of its own the one call that wraps a model: its option, file and line. And its first modules.

    The call is None where there is none, or where one of several decides. The number tells a file that was changed.
    """
    found: dict[str, tuple[str, int]] = {}
    paths, first, hidden = [path], 0, False
    for path in paths:
        try:
            text = reading._text(path)
        except (OSError, Unreadable):
            continue
        for option, pattern in WRAPS.items():
            if match := pattern.search(text):
                found.setdefault(option, (path, text.count("\n", 0, match.start()) + 1))
        own = (
            it
            for module, names, alone in reading.IMPORTS.findall(text)
            for it in reading.modules(path, module or alone, names)
        )
        paths += [it for it in dict.fromkeys(own) if it not in paths]
        first = first or len(paths)
        hidden = bool(WRAPPERS.search(text)) or len(paths) > PACKAGE
        if hidden:
            break
    option = next(iter(found), "")
    return ((option, *found[option]) if len(found) == 1 and not hidden else None), tuple(paths[:first])


def _of_package(reader: Reader, launch: Launch, folder: str) -> None:
    """The strategy of a loop of one's own that stands in its package, where neither launch nor script tells it.

    The modules that its script imports are among the Python that was read.
    """
    if launch.unseen or launch.frameworks or launch.processes == 1:
        return
    words = launch.command.split()
    script = words[1] if len(words) > 1 and words[1].endswith(".py") else None
    if words[1:2] == ["-m"] and len(words) > 2:
        script = f"{words[2].replace('.', '/')}.py"
    at = _as_it_is(folder, script) if script else None
    if at is None:
        return
    wraps, modules = _package(*at)
    reader.python |= {os.path.normpath(it): None for it in modules}
    if wraps and not any(it in launch.options or f"launch.{it}" in launch.options for it in TELLS):
        (option, _, version), path, line = wraps[0].partition(" "), *wraps[1:]
        by_script = reading.Option("true", path, line, style="python")
        launch.options[option] = _initialized(path, line) if option == "deepspeed" else by_script
        if version:
            launch.options["fsdp_version"] = by_script._replace(value=version)


def _of_markdown(reader: Reader, text: str) -> str:
    """The commands of a page: its blocks of code, and code within a line that starts a script or a configuration."""

    def beside(line: str) -> str:
        inline = INLINE.findall(line[: reading.LOOKED])
        return "; ".join(it for it in inline if reader.looks.search(it) and NAMES_A_FILE.search(it))

    return IN_WORDS.sub("<value>", reading._fenced(text, beside))


def _of_blocks(text: str) -> list[Part]:
    """What a page's blocks of YAML start: of a cluster's files, as its manual shows them."""
    parts: list[Part] = []
    for block, group in itertools.groupby(enumerate(reading._marked(text)), key=lambda it: it[1][1]):
        if block and block[0] in ("yaml", "yml"):
            lines = [(number, line) for number, (line, _) in group]
            of_block = _of_containers("\n".join(line for _, line in lines))
            parts += [part._replace(line=part.line + lines[0][0]) for part in of_block]
    return parts


def _closed(reader: Reader, text: str) -> str:
    """The commands of a page without the blocks that hold no launch and leave a quote open: prose, with an apostrophe."""
    blocks = re.split(r"(\n{2,})", text)
    return "".join(re.sub(r"[^\n]", "", it) if _is_open(it) and not _hinted(reader, it) else it for it in blocks)


def _hinted(reader: Reader, text: str) -> bool:
    return any(map(text.replace("-", "_").__contains__, reader.hints))


# ------------------------------------------------------------------------------ shell scripts


def plain(text: str) -> str:
    """A script whose here-documents, `--wrap` and spellings of launchers are written as the shell reader takes them."""
    text = re.sub(r"\baccelerate-launch\b", "accelerate launch", text)
    text = _with_launchers(text)
    text = re.sub(r"\bpython[\d.]*[ \t]+-m[ \t]+accelerate\.commands\.launch\b", "accelerate launch", text)
    text = re.sub(r"(?:\bpython[\d.]*[ \t]+)?(?:\$\(which[ \t]+(\w+)\)|`which[ \t]+(\w+)`)", r"\1\2", text)
    text = re.sub(r"(?<=\S[ \t])(?<!python )(?<!python3 )-m[ \t]+swift\.cli\.(sft|rlhf|pt)\b", r"swift/cli/\1.py", text)
    text = re.sub(r"--deepspeed(?:=|[ \t]+)(?:''|\"\")(?=\s|$)", "", text)
    if "sbatch" in text:
        text = re.sub(r"--wrap(?:=|[ \t]+)(?=[\"'$])", "bash -c ", text)
    return _with_documents(text) if "<<" in text else text


def _with_launchers(text: str) -> str:
    """Variables that are called like a launcher as that, unless the script sets them to anything else."""

    @cache
    def is_program(name: str) -> bool:
        values = re.findall(rf"\b{name}=(\"[^\"\n]*\"|'[^'\n]*'|[^\s;]*)", text)
        return all(map(PROGRAM.fullmatch, values))

    return CALLED_LAUNCHER.sub(lambda it: it[1] + it[3].lower() if is_program(it[2]) else it[0], text)


def _with_documents(text: str) -> str:
    """`bash <<EOF` as `bash -c "..."`, `read x <<EOF` as an assignment, and a script that `cat` writes as one that runs."""
    lines, made, at = text.split("\n"), [], 0
    ends: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        ends.setdefault(line.strip(), []).append(number)
    while at < len(lines):
        begin, at = at, at + 1
        line = lines[begin]
        match = None if line.lstrip().startswith("#") else HEREDOC.search(line)
        found = ends.get(match[2], []) if match else []
        end = found[bisect.bisect_right(found, begin)] if found and found[-1] > begin else None
        if match is None or end is None:
            made.append(line)
            continue
        at = end + 1
        opened = _opened(line[: match.start()].rstrip(), line[match.end() :])
        if opened is None or end == begin + 1:
            made += lines[begin:at]
            continue
        body = "\n".join(lines[begin + 1 : end])
        # Without quotes around its mark, the shell that reads it puts its variables in.
        quote = "'" if match[1] else '"'
        body = body.replace("'", "'\\''") if match[1] else re.sub(r'\\?"', _escaped, body)
        if opened.endswith("="):  # where the variable is used, its lines count from there
            made += f"{opened}{quote}{body}{quote}\n\n".split("\n")
        else:
            made += f"{opened}{quote}\n{body}\n{quote}".split("\n")
    return "\n".join(made)


def _opened(head: str, rest: str) -> str | None:
    """What takes the place of a line that opens a here-document; None: its text starts nothing."""
    if variable := READ.search(head):
        return f"{variable[1]}="
    written = WRITES.search(f"{head} {rest}")
    if written and (written[1] or written[2]).strip("\"'").endswith((*reading.SHELLS[:-1], *SCRIPTS)):
        return "bash -c "
    if not TO_SHELL.search(head) or SUBMITS.match(head):
        return None
    return f"{head} bash -c " if re.search(r"\b(?:sbatch|qsub|bsub)\b[^|;&]*$", head) else f"{head} -c "


def _escaped(match: re.Match[str]) -> str:
    return '\\"' if len(match[0]) == 1 else '\\\\\\"'


def _with_sourced(reader: Reader, folder: str, text: str) -> str:
    """`source FILE` as what that file sets; where it is not at hand, how many processes it asks for is not known."""

    @cache
    def sets(path: str) -> str:
        at = reading.at_hand(folder, path) or (os.path.isfile(path) and path) if "$" not in path else None
        if not at:
            return "; ".join(f"export {name}=$(sourced)" for name in sorted(reader.counts))
        sourced = reading._text(at, shell.SIZE).replace("\r\n", "\n").replace("\\\n", " ")
        return "; ".join(it for it in SETS.findall(sourced) if it.count("(") == it.count(")")) or ":"

    def told(match: re.Match[str]) -> str:
        path = re.sub(r"^(?:\$\(.*\)|`.*`|\$\{?\w+\}?)/", "", match[2].strip("\"'"))
        return match[0] if NO_COUNT.search(path) else match[1] + sets(path)

    return SOURCED.sub(told, text)


def _without_submitted(reader: Reader, text: str) -> tuple[str, list[tuple[int, str]]]:
    """Without the commands that ssh, tmux, Ray or SkyPilot are given; of those that launch, the line and the word."""
    lines, not_read, at = text.split("\n"), [], 0
    while at < len(lines):
        begin, at = at, at + 1
        match = SUBMITS.match(f"{lines[begin]} ")
        if match is None:
            continue
        command = lines[begin]
        while at < len(lines) and at - begin < MOST_LINES and (command.endswith("\\") or _is_open(command)):
            command, at = f"{command}\n{lines[at]}", at + 1
        document = HEREDOC.search(command)
        while document and at < len(lines) and at - begin < MOST_LINES and lines[at - 1].strip() != document[2]:
            command, at = f"{command}\n{lines[at]}", at + 1
        if reader.looks.search(command) or any(word in command for word in ("torchrun", ".py")):
            lines[begin:at] = [""] * (at - begin)
            not_read.append((begin + 1, f"what `{match[1]}` starts is not read. {REMEDY}"))
    return "\n".join(lines), not_read


def _is_open(command: str) -> bool:
    """Whether a quote is not closed."""
    bare = re.sub(r"\\.", "", command, flags=re.DOTALL)
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", bare)
    return "'" in bare or '"' in bare


# ------------------------------------------------------------------------------ Dockerfile, reStructuredText, notebook


def _of_dockerfile(text: str) -> str:
    """ENV as export, ARG as an assignment; RUN, CMD and ENTRYPOINT as commands. What ENTRYPOINT starts gets CMD's words."""
    made: list[str] = []
    entry: tuple[int, int, list[str]] | None = None
    at = 0
    lines = text.replace("\r\n", "\n").split("\n")
    while at < len(lines):
        begin, at = at, at + 1
        taken = [lines[begin]]
        while taken[-1].rstrip().endswith("\\") and at < len(lines):
            taken.append(lines[at])
            at += 1
        keyword, _, rest = "\n".join(taken).strip().partition(" ")
        rest, keyword = rest.strip(), keyword.upper()
        if keyword == "FROM":
            entry = None
        words = _exec_form(rest) if keyword in ("RUN", "CMD", "ENTRYPOINT") else None
        if keyword == "ENV":
            name = re.match(r"(\w+)[ \t]+(.*)", rest)  # the older form, ENV NAME VALUE
            rest = (
                f"export {name[1]}={shlex.quote(name[2].strip())}"
                if name and "=" not in name[0].split()[0]
                else f"export {rest}"
            )
        elif keyword == "ENTRYPOINT" and words:
            entry = (begin, len(made), words)
            rest = shlex.join(words)
        elif keyword == "CMD" and words:
            rest = shlex.join(words)
            if entry and len(made) > entry[1]:
                made[entry[1]], rest = shlex.join([*entry[2], *words]), ""
        elif keyword not in ("RUN", "CMD", "ENTRYPOINT", "ARG"):
            rest = ""
        made += (rest.split("\n") + [""] * len(taken))[: len(taken)]
    return "\n".join(made)


def _exec_form(text: str) -> list[str] | None:
    """The words of `["torchrun", "train.py"]`."""
    try:
        words = json.loads(text.replace("\\\n", " ")) if text.startswith("[") else None
    except (ValueError, RecursionError):
        return None
    return words if isinstance(words, list) and words and all(isinstance(word, str) for word in words) else None


def _of_rst(text: str) -> str:
    """The commands of a reStructuredText page; all other lines are empty, so that the numbers stay."""
    made: list[str] = []
    block: int | None = None  # how far its directive is indented
    for line in text.replace("\r\n", "\n").split("\n"):
        indent = len(line) - len(line.lstrip())
        if block is not None and line.strip() and indent <= block:
            block = None
        if block is None:
            match = re.match(r"\s*\.\. (?:code-block|code|sourcecode|prompt)::\s*(\w*)", line)
            if (match and match[1].lower() in ("", "bash", "sh", "shell", "console", "zsh")) or (
                not line.lstrip().startswith("..") and line.rstrip().endswith("::")
            ):
                block = indent
            made.append("")
        else:
            made.append("" if re.match(r"\s*:[\w-]+:", line) else re.sub(r"^\s*\$ ", "", line))
    return "\n".join(made)


def _of_notebook(text: str) -> tuple[str, list[tuple[int, str]]]:
    """`!command`, `%%bash` and `%env` of a notebook's cells, each in its line of the file; and what trains in Python there."""
    try:
        cells = json.loads(text).get("cells", [])
        sources = [cell.get("source", "") for cell in cells if cell.get("cell_type") == "code"]
        parts = [source.splitlines(True) if isinstance(source, str) else [*map(str, source)] for source in sources]
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise Unreadable(
            "no notebook: it is no JSON with a list of cells. Export it as a script, and give that"
        ) from None
    made: dict[int, list[str]] = {}  # the commands of each line of the file
    not_read: list[tuple[int, str]] = []
    at, row, missed = 0, 0, 0
    for part in parts:
        lines = [line for source in part for line in source.split("\n")[: source.count("\n") or None]]
        is_shell = bool(lines) and bool(re.match(r"%%(?:bash|sh|script\s+(?:ba|z)?sh)\b", lines[0]))
        goes_on = False
        for number, line in enumerate(lines):
            forms = dict.fromkeys((json.dumps(line, ensure_ascii=False)[1:-1], json.dumps(line)[1:-1]))
            places = [text.find(form, at) for form in forms] if line and missed < MOST_LINES else [-1]
            found = max(places)
            missed += found < 0 and bool(line)
            if found >= 0:
                row, at = row + text.count("\n", at, found), found
            if (command := _of_cell(line, is_shell, number, goes_on)) is not None:
                made.setdefault(row, []).append(command)
            goes_on = command is not None and not is_shell and line.rstrip().endswith("\\")
            if match := re.search(r"\b(notebook_launcher)\(", "" if is_shell else line):
                not_read.append((row + 1, f"what `{match[1]}` starts is not read. {REMEDY}"))
    # A cell may be one line of the file: then its commands are one line, too.
    joined = {row: re.sub(r"\\; ", " ", "; ".join(commands)) for row, commands in made.items()}
    return "\n".join(joined.get(row, "") for row in range(text.count("\n") + 1)), not_read


def _of_cell(line: str, is_shell: bool, number: int, goes_on: bool) -> str | None:
    """The shell command that a line of a cell is, or None."""
    bare = line.strip()
    if is_shell:
        return line if number else None  # the first names the shell
    if goes_on or bare.startswith("!"):
        return re.sub(r"\{([A-Za-z_]\w*)\}", r"${\1}", line if goes_on else bare.lstrip("!"))
    match = re.match(r"%(?:set_)?env\s+(\w+)(?:\s*=\s*|\s+)(.+)", bare) or re.match(
        r"os\.environ\[['\"](\w+)['\"]\]\s*=\s*['\"]([^'\"]*)['\"]", bare
    )
    return f"export {match[1]}={shlex.quote(match[2])}" if match else None


# ------------------------------------------------------------------------------ containers' YAML, and Python


class Part(NamedTuple):
    line: int
    text: str


def _pieces(reader: Reader, name: str, parts: Sequence[Part], found: list[Launch]) -> Found:
    """The launches of parts that know nothing of each other; `found` is kept where they have none."""
    launches: list[Launch] = []
    not_read: list[tuple[int, str]] = []
    for part in parts:
        if _hinted(reader, part.text) or STARTERS.search(part.text):
            told = _moved(_script(reader, name, part.text), name, part.line - 1)
            launches += told.launches
            not_read += told.not_read
    if not_read and not launches:
        found = []
    return Found(launches or found, not_read)


def _moved(found: Found, name: str, lines: int) -> Found:
    """The same, so many lines further down in the file."""
    for launch in found.launches:
        launch.line += lines
        launch.options = {
            key: option._replace(line=option.line + lines) if option.file == name else option
            for key, option in launch.options.items()
        }
    return Found(found.launches, [(line + lines, what) for line, what in found.not_read])


def _of_containers(text: str) -> list[Part]:
    """What the keys `command`, `args`, `run`, `script` and so on start, with the variables that stand beside and above them."""
    import yaml  # it takes longer to load than most launches to read

    parts: list[Part] = []
    steps = [0]

    def walk(node: yaml.Node | None, exports: str, depth: int) -> None:
        steps[0] += 1
        if steps[0] > reading.KEYS or depth > reading.NESTED:  # an alias may stand for what holds it
            raise Unreadable(reading.TOO_MUCH)
        if isinstance(node, yaml.SequenceNode):
            for value in node.value:
                walk(value, exports, depth + 1)
        if not isinstance(node, yaml.MappingNode):
            return
        keys = {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
        for key in ENVIRONMENT:
            exports += "".join(f"export {it}; " for it in _variables(keys.get(key)))
        words = [word for key in COMMANDS for word in _listed(keys.get(key))]
        if ("module" in keys or "program" in keys) and "args" in keys:  # a launch of VS Code
            started = ["-m", _scalar(keys["module"])] if "module" in keys else [_scalar(keys["program"])]
            words = [(word, keys["args"]) for word in ("python", *filter(None, started))] + _listed(keys["args"])
        if words:
            told = [word for word, _ in words]
            if (
                len(told) > 2
                and told[-2].startswith("-")
                and told[-2].endswith("c")
                and isinstance(words[-1][1], yaml.ScalarNode)
            ):
                parts.append(_part(words[-1][1], exports))
            else:
                parts.append(Part(words[0][1].start_mark.line + 1, exports + shlex.join(told)))
        for key in (*COMMANDS, *SCRIPT_KEYS):
            if isinstance(keys.get(key), yaml.ScalarNode):
                parts.append(_part(keys[key], exports))
            elif key in SCRIPT_KEYS and (listed := _listed(keys.get(key))):  # each item a command, as in GitLab's file
                parts.append(Part(listed[0][1].start_mark.line + 1, exports + "\n".join(text for text, _ in listed)))
        for value in keys.values():
            walk(value, exports, depth + 1)

    try:
        documents = list(yaml.compose_all(text.replace("\t", " "), Loader=reading._loader()))
    except yaml.YAMLError:
        return []  # what the reader says of it is kept
    for document in documents:
        walk(document, "", 0)
    return parts


def _part(node: yaml.Node, exports: str) -> Part:
    line = node.start_mark.line + 1
    if getattr(node, "style", None) == "|":
        return Part(line + 1, exports + node.value)
    return Part(line, exports + re.sub(r"\\\s", " ", node.value))  # folded: one line


def _scalar(node: yaml.Node | None) -> str | None:
    return node.value if node is not None and isinstance(node.value, str) else None


def _listed(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    """The words of a list of words."""
    if node is None or not isinstance(node.value, list) or any(map(_is_pair, node.value)):
        return []
    return [(text, one) for one in node.value if (text := _scalar(one)) is not None]


def _variables(node: yaml.Node | None) -> Iterator[str]:
    """`NAME=value` of `{NAME: value}`, of `[NAME=value]` and of Kubernetes' `[{name: NAME, value: value}]`."""
    for one in node.value if node is not None and isinstance(node.value, list) else ():
        name, value = None, None
        if isinstance(one, tuple):
            name, value = _scalar(one[0]), _scalar(one[1])
        elif isinstance(one.value, str):
            name, _, value = one.value.partition("=")
        elif isinstance(one.value, list):
            keys = {key.value: inner for key, inner in filter(_is_pair, one.value) if isinstance(key.value, str)}
            name, value = _scalar(keys.get("name")), _scalar(keys.get("value"))
        if name and re.fullmatch(r"[A-Za-z_]\w*", name):
            yield f"{name}={shlex.quote(value)}" if value is not None and "$" not in value else f"{name}=$(unknown)"


def _is_pair(one: object) -> bool:
    """Whether it is a key of a mapping with its value, and no item of a list."""
    return isinstance(one, tuple)


def _of_python(text: str) -> tuple[list[Part], list[tuple[int, str]]]:
    """The commands that a Python file starts, and what trains in it by the file's own call."""
    if not re.search(r"subprocess|os\.(?:system|popen|exec)|(?:_main|run_exp|notebook_launcher|TorchTrainer)\(", text):
        return [], []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [], []  # the reader says so
    exports, parts, not_read = "", [], []
    values: dict[str, ast.expr] = {}
    for node in sorted(_nodes(tree), key=lambda it: (it.lineno, it.col_offset)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            if ast.unparse(node.targets[0].value) == "os.environ" and (name := _text_of(node.targets[0].slice)):
                value = _text_of(node.value)
                exports += f"export {name}={'$(unknown)' if value is None else shlex.quote(value)}; "
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
            if called in CALLS or called.startswith("exec"):
                command = _command_of(
                    node.args[-1] if called.startswith("exec") and node.args else node.args[0] if node.args else None,
                    values,
                )
                told = next((it.value for it in node.keywords if it.arg == "env"), None)
                if command:
                    parts.append(Part(node.lineno, exports + _handed(told) + command))
            elif (called in TRAINS and (node.args or node.keywords)) or called == "TorchTrainer":
                not_read.append((node.lineno, f"what `{called}` trains is not read from Python. {REMEDY}"))
    return parts, not_read


def _nodes(tree: ast.AST) -> Iterator[ast.Assign | ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.Call))


def _text_of(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _handed(node: ast.expr | None) -> str:
    """The variables of `env={**os.environ, "A": "1"}` as exports."""
    if not isinstance(node, ast.Dict):
        return ""
    pairs = [(name, _text_of(value)) for key, value in zip(node.keys, node.values) if (name := _text_of(key))]
    return "".join(f"export {name}={'$(unknown)' if value is None else shlex.quote(value)}; " for name, value in pairs)


def _command_of(node: ast.expr | None, values: dict[str, ast.expr], depth: int = 0) -> str | None:
    """The command that an expression is, on one line; what only a run can tell is a variable that nobody sets."""
    if depth > shell.DEPTH or node is None:
        return None
    if isinstance(node, ast.Name):
        return _command_of(values.get(node.id), values, depth + 1)
    if isinstance(node, ast.List | ast.Tuple):
        return " ".join(_word_of(one) for one in node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_command_of(side, values, depth + 1) for side in (node.left, node.right)]
        return " ".join(side if side is not None else "$unknown" for side in sides) if any(sides) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "join" and node.args:
            return _command_of(node.args[0], values, depth + 1)
        if node.func.attr in ("split", "strip", "format") or (node.func.attr == "split" and node.args):
            inner = node.args[0] if ast.unparse(node.func.value) == "shlex" and node.args else node.func.value
            return _command_of(inner, values, depth + 1)
    if isinstance(node, ast.Constant | ast.JoinedStr):
        text = _joined(node)
        return None if text is None else re.sub(r"\\?\n", " ", text)
    return None


def _joined(node: ast.expr) -> str | None:
    """A text, and of an f-string `${name}` for each value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(one) or "$unknown" for one in node.values)
    return _text_of(node)


def _word_of(node: ast.expr) -> str:
    if ast.unparse(node) == "sys.executable":
        return "python"
    text = _text_of(node)
    return "$unknown" if text is None else shlex.quote(text)


__all__ = ["Found", "file", "readable"]
