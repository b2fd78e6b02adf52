"""What launches a file holds, and what each of them sets: options by name, each with its file and line.

Shell scripts, Markdown with commands, YAML and JSON of frameworks, accelerate and DeepSpeed, literals in Python; one
follows what another names. `gradient_checkpointing_kwargs={"use_reentrant": False}`, its JSON behind an option and its YAML
are one option, `gradient_checkpointing_kwargs.use_reentrant`.
"""

from __future__ import annotations

import ast
import html
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from readyonce.launches import shell
from readyonce.launches.shell import SPEAKING, Unreadable, Word

if TYPE_CHECKING:
    import yaml

DEEP, MANY = 3, 300  # how far below, and in how many folders, a file is looked for that is nowhere above
SIZE = 4 << 20  # bytes of a YAML, JSON or Python file
BLOCK = 1 << 16
LOOKED = 2000  # characters of a line, where no launch could be read
WRITTEN = 400  # characters of an option that is quoted
KEYS = 20_000  # that one of them may hold; aliases count as often as they are used
NESTED = 40
TOO_MUCH = f"it holds more than {KEYS:,} values, or is nested more than {NESTED} deep"
SHELLS = (".sh", ".bash", ".slurm", ".sbatch", ".ksh", "")
SHELL_BLOCKS = ("", "bash", "sh", "shell", "console", "zsh")  # of a page
LAUNCHERS = {"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed"}
# These give even a single process a rank, and DDP wraps its model. accelerate does so only for several.
RANKED = {"torchrun", "torch.distributed.run", "torch.distributed.launch", "deepspeed"}
# Without a count these start one process, if this variable gives none either.
ONE_UNTOLD = RANKED - {"deepspeed"}
COUNT = "PET_NPROC_PER_NODE"
LONE = ("standalone", "use_env", "no_python")  # their options that take no value: what follows may be a count
ONE_RANK = "ddp-ready-twice"  # what a run of one process has shown
# A value that switches on, and the same that switches off, as it is written.
SWITCHED = {
    "true": "false",
    "True": "False",
    "TRUE": "FALSE",
    "1": "0",
    "yes": "no",
    "Yes": "No",
    "on": "off",
    "On": "Off",
}
# What starts each process itself, and the options by which it is told how many.
STARTERS: dict[str, tuple[str, ...]] = {"srun": ("ntasks", "n"), "mpirun": ("np", "n"), "mpiexec": ("np", "n")}
PYTHON = re.compile(r"python[\d.]*")
FLAG = re.compile(r"-[bBdEiIOPqsSuvx]+|-[XW].*", re.DOTALL)  # of Python itself
BEHIND = re.compile(r"\$\{?\w+\}?/([^\s\"'$`*{}]+)[\"'}]*$")  # the end of a path whose folder is not known
DASHED = re.compile(r"--?[A-Za-z]")
INCLUDED = re.compile(r"[\w.-]+:(\d+(?:,\d+)*)")  # the GPUs of one machine, as DeepSpeed takes them
SETTING = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)  # of Hydra, which has no dashes
# The stage in the name of a DeepSpeed file, the surest first: `ds_zero3.json`, `ds_z3_config.json`, `stage3.json`.
STAGES = [
    re.compile(rf"{begin}[-_]?([0-3])(?!\d)")
    for begin in ("zero", r"(?:^|[-_.])z", r"(?:^|[-_.])(?:deepspeed|ds)?stage")
]
STAGE_NAME = re.compile(r"(?:deepspeed_)?zero_?([0-3])(?:_offload)?")  # of a file that a package has
UNSET = re.compile(r"\$\w+|\$\{[^}]*\}|\$\([^(].*\)|`.*`")
# Options of launchers that name the processes of one machine.
PROCESSES = ("nproc_per_node", "num_processes", "num_gpus", "ntasks_per_node", "trainer.n_gpus_per_node")
MEGATRON = "USE_MCA"  # the variable by which LLaMA-Factory trains with Megatron
NAMES_ENGINE = ("config_name", "actor_rollout_ref.actor.strategy")  # verl's options, whose value may say Megatron
MACHINES = "NNODES"  # the variable that ms-swift and LLaMA-Factory hand on
TOTALS = ("num_processes", "ntasks", "n", "np")  # of all machines
NODES = ("nnodes", "num_nodes", "num_machines", "nodes", "N", "trainer.nnodes")
KWARGS = "gradient_checkpointing_kwargs"
# The options that say how activations are checkpointed, the most telling first.
SETTINGS = (
    "use_reentrant",
    f"{KWARGS}.use_reentrant",
    "activation_checkpointing_kwargs.use_reentrant",
    "use_reentrant_gc",
    "gradient_checkpointing",
    "activation_checkpointing",
)
# The options that name the model.
MODELS = (
    *("model_name_or_path", "model", "model_id_or_path", "base_model", "pretrain"),
    *("actor_rollout_ref.model.path", "worker.actor.model.model_path"),
)
# The options that name the configuration of the program itself.
CONFIGURATIONS = ("config", "config_yaml", "yaml_config", "train_args_file")
# Those that name a DeepSpeed file.
# What other programs call the same.
ALIASES = {"enable_deepspeed": "deepspeed", "use_zero_stage": "zero_stage"}
CONFIGS = ("deepspeed", "deepspeed_config", "deepspeed_config_file", "deepspeed_config_path", "ds_config")
# Fields of a script's own arguments whose default decides where the command does not say.
FIELDS = ("gradient_checkpointing", "ddp_find_unused_parameters")
# A block of code as HTML: where it begins, and where it ends.
PRE, PRE_ENDS = re.compile(r"[ \t]*<pre>(?:[ \t]*<code>)?"), re.compile(r"(?:</code>[ \t]*)?</pre>.*")
IMPORTS = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+\(?([\w, \t]*)|import[ \t]+([\w.]+))", re.MULTILINE
)
# What a loop of one's own has, and what speaks against one: the Trainer, and checkpointing as transformers' models do it.
LOOP = re.compile(r"\b(?:DDP|DistributedDataParallel|FSDP|FullyShardedDataParallel|fully_shard)\(|\.backward\(|\.fit\(")
NO_LOOP = re.compile(r"Trainer|TrainingArguments|HfArgumentParser|\btrl\b|gradient_checkpointing_enable")
# Of WeNet's `--train_engine`: with these DeepSpeed's file, which may be named too, is not read.
ENGINES = {"torch_ddp": "python.ddp", "torch_fsdp": "fsdp"}
OF_A_PART = re.compile(
    r"vision|tower|visual|vit\b|audio", re.IGNORECASE
)  # whose checkpointing is not that of the model
# What prepares a quantised model, and may enable checkpointing.
PREPARES = ("prepare_model_for_kbit_training", "prepare_model_for_int8_training")
WRITTEN_AS = (".json", ".conf", ".yaml", ".yml")  # how a DeepSpeed file ends
DISTRIBUTED = {"DEEPSPEED": "deepspeed", "FSDP": "fsdp", "MEGATRON_LM": "megatron"}  # of an accelerate file


class Option(NamedTuple):
    value: str | None  # None: set, but what to is not known
    file: str
    line: int
    written: str = ""  # name and value as they stand there, on one line; empty where that is not known or long
    inside: bool = False  # a variable holds it, with others: there it may be written in other quotes
    style: Literal["bash", "yaml", "json", "python"] = "bash"  # how options are written there


class Launch:
    """One command that trains. `options` without dashes, `_` for `-`; a flag alone is `true`."""

    def __init__(
        self,
        command: str,  # its first words, as they are shown
        file: str,
        line: int,
        options: dict[str, Option] | None = None,
        launcher: str | None = None,
        frameworks: Sequence[str] = (),  # whose rules read it, the most special first
        unseen: str = "",  # the word that looks like a launch, where no launch could be read at all
    ):
        self.command, self.file, self.line, self.options = command, file, line, options or {}
        self.launcher, self.frameworks, self.unseen = launcher, list(frameworks), unseen
        self.processes: int | None = None  # of one machine, where there are several
        self.machines: str | None = None  # how many; None: nothing says that there are several
        self.unread: list[str] = []  # what it names and could not be read
        self.blind = False  # its own configuration is among that
        self.is_own_loop = False  # its script is at hand, and has a loop of its own
        self.is_untold = False  # its launcher is not told how many processes, and starts one
        self.pins: dict[str, tuple[str, str]] = {}  # package -> (release, the file that asks for it)


def readable(name: str) -> bool:
    """Whether a file in a folder can hold a launch, by its name."""
    suffix = Path(name).suffix.lower()
    return suffix in (".yaml", ".yml", ".json", ".py", ".md", ".rst", *SHELLS[:-1])


class Reader:
    """Reads files; `frameworks` are those of the compiled rules, `models` the classes of models by name."""

    def __init__(self, frameworks: Mapping[str, Mapping[str, Any]], models: Mapping[str, str] = {}):
        self.frameworks = frameworks
        self.models = models
        self.commands = [(command, key) for key, framework in frameworks.items() for command in framework["commands"]]
        self.firsts = {command.split()[0] for command, _ in self.commands} - {"python"}
        # Words of which a script that launches anything has one: most scripts have none, and are not read.
        self.hints = {
            *LAUNCHERS,
            *(command.split()[-command.startswith("python")].replace("-", "_") for command, _ in self.commands),
        }
        self.hints |= {mark.partition(".")[0] for mark in frameworks["transformers"]["marks"]}
        self.python: dict[str, None] = {}  # the Python files that were read
        # The variables that say how many processes there are; and all that one wants to know.
        self.counts = {framework["processes"] for framework in frameworks.values() if framework["processes"]}
        self.asked = {*self.counts, MACHINES, MEGATRON, COUNT}

    def file(self, name: str) -> list[Launch]:
        suffix = os.path.splitext(name)[1].lower()
        if suffix in (".yaml", ".yml", ".json"):
            text = _text(name)
            return self._configuration(name, _flat(name, text)) or self._unseen(name, text)
        if suffix == ".py":
            return self._python(name, self._code(name))
        text = _text(name, shell.SIZE)
        if suffix in (".md", ".rst"):
            text = _fenced(text)
        elif suffix not in SHELLS and not text.startswith("#!"):
            raise Unreadable("it is no shell script, YAML, JSON, Python or Markdown file, by its name")
        return self.script(name, text)

    def script(self, name: str, text: str, folder: Path | None = None) -> list[Launch]:
        """The launches of a shell script; what it names is looked for in `folder`, if not in the script's own."""
        if not any(map(text.replace("-", "_").__contains__, self.hints)):
            return []
        found = []
        for command in shell.commands(text, asked=self.asked):
            if launch := self.words(name, command.words, command.environment, folder):
                found.append(launch)
        return found or self._unseen(name, text)

    @cached_property
    def looks(self) -> re.Pattern[str]:
        """What a launch begins with, in a text of which none could be read: behind ssh, in a here-document."""
        starts = sorted(
            re.escape(command).replace("\\ ", "[ \\t]+")
            for command, _ in self.commands
            if not command.startswith("python")
        )
        starts += ["torchrun", r"torch\.distributed\.(?:run|launch)", r"accelerate[ \t]+launch"]
        starts.append(r"deepspeed(?=[ \t].{0,200}(?:\.py|\\)(?:\s|$))")  # and no `pip install deepspeed`
        return re.compile(rf"(?<![\w./-])(?<!-v )(?:{'|'.join(starts)})(?=[ \t]+\S)", re.ASCII)

    def _unseen(self, name: str, text: str) -> list[Launch]:
        """The first word that looks like a launch: silence would read as a pass."""
        for number, line in enumerate(text.split("\n"), 1):
            first = line.strip(" \t").replace("\t", " ").partition(" ")[0]
            if (match := self.looks.search(line[:LOOKED])) and not first.startswith("#") and first not in SPEAKING:
                return [Launch(match[0], name, number, unseen=match[0])]
        return []

    def words(
        self, name: str, words: Sequence[Word], environment: Mapping[str, str | None] = {}, folder: Path | None = None
    ) -> Launch | None:
        """The launch that a simple command is, if it is one."""
        at = next((i for i, word in enumerate(words) if self._starts(words, i)), None)
        if at is None or words[0].text in SPEAKING:
            return None
        ahead, words = words[:at], words[at:]
        launcher, before, rest = self._launched(words)
        if not rest:
            return None
        says = " ".join(_base(word.text) if i == 0 else word.text for i, word in enumerate(rest[:4]))
        own = next((key for command, key in self.commands if _begins(says, command)), None)
        started = 3 if len(rest) > 2 and rest[1].text == "-m" else 2
        options, positional = _options(name, rest[started:])
        launch = Launch(says, name, words[0].line, options, launcher)
        trains = self._trains(launch) or "deepspeed" in options
        if own is None and launcher is None and not (trains and rest[0].text == "python"):
            return None  # python x.py: nothing tells that it trains
        starter = None
        if launcher is None:
            starter = next((i for i, word in enumerate(ahead) if _base(word.text) in STARTERS), None)
        if starter is not None:
            launch.launcher, before = _base(ahead[starter].text), list(ahead[starter + 1 :])
        of_launcher, between = _options(name, before)
        self._processes(launch, of_launcher, environment, own)
        known = all(it.known and it.text != "..." for it in between)
        known &= all(_value(of_launcher, it) == "true" for it in LONE if it in of_launcher)
        counted = COUNT in environment or any(it in of_launcher for it in PROCESSES)
        launch.is_untold = launcher in ONE_UNTOLD and known and not counted
        for key, option in of_launcher.items() if launcher else ():  # accelerate launch --zero_stage 2, --use_fsdp
            launch.options.setdefault(f"launch.{key}", option)
        if environment.get(MEGATRON, "0") not in ("0", "false"):
            launch.options["megatron"] = Option(environment[MEGATRON], name, words[0].line)
        self._follow(launch, [*rest[:started], *positional], os.fspath(folder or os.path.dirname(name)))
        if own and launcher is None and launch.processes is None:
            self._processes(launch, of_launcher, environment, own)  # its configuration may say it
        own = own or self._by_keys(launch.options)
        if "python.accelerator" in launch.options and own is None:  # a loop of its own: nothing is the Trainer's
            return launch
        for word in positional:  # a variable that nobody sets may hold any option
            if word.text == "..." or (not word.known and UNSET.fullmatch(word.text)):
                launch.unread.append(word.text)
                launch.blind = True
        self._told(launch, own)
        return launch

    def _starts(self, words: Sequence[Word], at: int) -> bool:
        text = _base(words[at].text)
        following = words[at + 1].text if at + 1 < len(words) else ""
        if text == "accelerate":
            return following == "launch"
        if PYTHON.fullmatch(text):
            started = _started(words, at)
            return started < len(words) and (words[started].text == "-m" or words[started].text.endswith(".py"))
        return bool(following) and (text in LAUNCHERS or text in self.firsts)

    def _launched(self, words: Sequence[Word]) -> tuple[str | None, list[Word], list[Word]]:
        """The launcher, its own options, and the command that it starts, written as `python -m ...` or `python x.py`."""
        first, launcher, at = _base(words[0].text), None, 1
        python = Word("python", words[0].line)
        if PYTHON.fullmatch(first):
            at = _started(words, 0)
            if words[at].text == "-m" and at + 1 < len(words) and words[at + 1].text in LAUNCHERS:
                launcher, at = words[at + 1].text, at + 2
            else:
                return None, [], [python, *words[at:]]
        elif first in LAUNCHERS:
            launcher, at = first, 2 if first == "accelerate" else 1
        else:
            return None, [], list(words)
        for i in range(at, len(words)):
            text = words[i].text
            if text in ("-m", "--module"):
                return launcher, list(words[at:i]), [python, Word("-m", words[i].line), *words[i + 1 :]]
            if text.endswith(".py"):
                return launcher, list(words[at:i]), [python, *words[i:]]
            if _base(text) in self.firsts:
                return launcher, list(words[at:i]), list(words[i:])
        return launcher, list(words[at:]), []

    def _by_keys(self, options: Mapping[str, Option]) -> str | None:
        """The framework whose own options are all there, however it is started."""
        keys = {key.partition(".")[0] for key in options}
        return next(
            (key for key, framework in self.frameworks.items() if framework["keys"] and set(framework["keys"]) <= keys),
            None,
        )

    def _trains(self, launch: Launch) -> bool:
        return any(key in launch.options for key in self.frameworks["transformers"]["marks"])

    def _is_foreign(self, launch: Launch) -> bool:
        """Whether its script takes options of another program, and not the one that all of the Trainer's take."""
        trainer = self.frameworks["transformers"]
        return trainer["marks"][0] not in launch.options and any(key in launch.options for key in trainer["foreign"])

    def _processes(
        self, launch: Launch, ahead: Mapping[str, Option], environment: Mapping[str, str | None], own: str | None
    ) -> None:
        said = ahead if launch.launcher else launch.options
        if launch.launcher == "deepspeed" and (gpus := INCLUDED.fullmatch(_value(said, "include"))):
            launch.processes = gpus[1].count(",") + 1
            return
        for key in (*STARTERS.get(launch.launcher or "", ()), *PROCESSES):
            if key in said:
                launch.processes = _number(said[key].value)
                machines = next((said[name].value or "" for name in NODES if name in said), "1")
                if key not in TOTALS and machines != "1":
                    launch.machines = machines
                if launch.processes == 1 and launch.machines is not None:
                    launch.processes = None  # one on each of several machines
                return
        if launch.launcher is None and own is None:
            launch.processes = 1  # python x.py
        elif launch.launcher is None and own and (variable := self.frameworks[own]["processes"]):
            launch.processes = _number(environment.get(variable, "1"))
            if (machines := environment.get(MACHINES, "1") or "") != "1":
                launch.machines = machines
                launch.processes = None if launch.processes == 1 else launch.processes

    def _follow(self, launch: Launch, positional: Sequence[Word], folder: str) -> None:
        """The files that it names: its own configuration, accelerate's, DeepSpeed's, and the Python that it starts."""
        named = [word for word in positional if word.text.endswith((".yaml", ".yml", ".json"))]
        named += [
            Word(config.value, config.line)
            for key in CONFIGURATIONS
            if (config := launch.options.get(key)) and config.value
        ]
        for word in named:
            if path := self._found(launch, word, folder):
                for key, setting in _flat(path, _text(path)).items():
                    launch.options.setdefault(key, setting)
            else:
                launch.blind = True
        if option := launch.options.get("launch.config_file"):
            path = self._file_of(launch, option, folder)
            for key, setting in _flat(path, _text(path)).items() if path else ():
                launch.options.setdefault(f"launch.{key}", setting)
            if path is None and (stage := _stage(option.value or "")):
                launch.options.setdefault("deepspeed", option._replace(value=None))
                launch.options.setdefault("deepspeed.stage_by_name", option._replace(value=stage, written=""))
            elif path is None:  # it may say FSDP, or anything else
                launch.options.setdefault("fsdp", option._replace(value=None))
        for key in NAMES_ENGINE:
            if "megatron" in _value(launch.options, key):
                launch.options.setdefault("megatron", launch.options[key])
        _accelerate(launch)
        if nested := next((it for key, it in launch.options.items() if key.startswith("fsdp_config.")), None):
            launch.options.setdefault("fsdp_config", nested._replace(value=None, written=""))  # it switches FSDP on
        for key, meant in ALIASES.items():
            if key in launch.options and _value(launch.options, key).lower() != "false":
                launch.options.setdefault(meant, launch.options[key])
        given = launch.options.get("deepspeed")
        if given and given.value in ("null", "none", "None"):  # as Hydra writes it
            del launch.options["deepspeed"]
        engine = launch.options.get("train_engine")
        if engine and engine.value in ENGINES:
            launch.options[ENGINES[engine.value]] = engine._replace(value="true")
            for key in CONFIGS:
                launch.options.pop(key, None)
        for key in CONFIGS:
            option = launch.options.get(key) or launch.options.get(f"launch.{key}")
            if option is None:
                continue
            if option.value and option.value.lstrip().startswith("{"):
                flat = _flat(option.file, option.value, option.line)
            elif BEHIND.search(option.written) if option.value is None else option.value.endswith(WRITTEN_AS):
                path = self._file_of(launch, option, folder)
                flat = _flat(path, _text(path)) if path else {}
                if path is None and (stage := _stage(option.value or "")):
                    launch.options.setdefault("deepspeed.stage_by_name", option._replace(value=stage, written=""))
            else:
                continue
            launch.options.setdefault("deepspeed", option)
            for name, setting in flat.items():
                launch.options.setdefault(f"deepspeed.{name}", setting)
            if flat:
                launch.options.setdefault("deepspeed.zero_optimization.stage", Option("0", option.file, option.line))
        for word in positional:
            if word.text.endswith(".py") and (path := self._found(launch, word, folder)):
                literal = literals(path, code := self._code(path))
                launch.is_own_loop |= bool(LOOP.search(code)) and not NO_LOOP.search(code)
                for module, _, _ in IMPORTS.findall(code):
                    for beside in modules(path, module) if _holds_arguments(module) else ():
                        literal = {**literals(beside, self._code(beside)), **literal}
                is_on = "gradient_checkpointing" in {**launch.options, **literal}
                for key, setting in literal.items():  # where nothing switches it on, a default decides
                    unknown = key.startswith(KWARGS) and not is_on
                    launch.options.setdefault(key, setting._replace(value=None) if unknown else setting)
        decides = any(key in launch.options and launch.options[key].value != "true" for key in CONFIGS)  # a file
        if (own := launch.options.get("zero_stage")) and "deepspeed" in launch.options and not decides:
            launch.options.setdefault("deepspeed.zero_optimization.stage", own)  # as DeepSpeed-Chat takes it

    def _file_of(self, launch: Launch, option: Option, folder: str) -> str | None:
        """The file that an option names; of a path that begins with a variable nobody sets, the end is looked for."""
        if option.value:
            return self._found(launch, Word(option.value, option.line), folder)
        behind = BEHIND.search(option.written) if option.value is None else None
        return _below([behind[1]], folder) if behind else None

    def _found(self, launch: Launch, word: Word, folder: str) -> str | None:
        """A file that is named: as it stands, from the script's folder, or from one above it.

        Of an absolute path that is not there, the end is looked for: of `/path/to/project/ds/zero2.json` `ds/zero2.json`.
        """
        path = word.text if word.known and len(word.text) < 500 else ""
        if os.path.isfile(path):
            return path
        if os.path.isabs(path):
            parts = path.split("/")
            found = _below(["/".join(parts[at:]) for at in range(2, len(parts) - 1)], folder)
        else:
            found = at_hand(folder, path) or _inside(folder, path) if path else None
        if found is None:
            launch.unread.append(word.text)
        return found

    def _told(self, launch: Launch, own: str | None) -> None:
        names = [own] if own else []
        if own is None and not launch.is_own_loop:
            by_script = "python.trainer" in launch.options
            if by_script and (prepares := launch.options.get("python.prepares")):
                launch.options.setdefault("gradient_checkpointing", prepares._replace(value=None))
            names = ["transformers"] if by_script or (self._trains(launch) and not self._is_foreign(launch)) else []
        given = launch.options.get("deepspeed")
        if own is None and given and given.value and (stage := STAGE_NAME.fullmatch(given.value)):
            launch.options.setdefault("deepspeed.stage_by_name", given._replace(value=stage[1], written=""))
        while names and (base := self.frameworks[names[-1]]["base"]):
            names.append(base)
        launch.frameworks = names
        option = next((launch.options[name] for name in MODELS if name in launch.options), None)
        name = (option.value or "").rstrip("/").rpartition("/")[2].lower() if option else ""
        if option and name in self.models:
            launch.options["model.class"] = option._replace(value=self.models[name], written="")

    def _configuration(self, name: str, flat: dict[str, Option]) -> list[Launch]:
        """A framework's own YAML or JSON, which is a launch; of DeepSpeed's and accelerate's, nothing is one alone."""
        own = self._by_keys(flat)
        if own is None:
            return []
        launch = Launch(self.frameworks[own]["title"], name, 1, flat)
        self._follow(launch, [], os.path.dirname(name))
        self._told(launch, own)
        return [launch]

    def _code(self, path: str) -> str:
        text = _text(path)
        self.python.setdefault(os.path.normpath(path))
        return text

    def code(self) -> Iterator[tuple[str, str]]:
        """(path, text) of each Python file that was read: it is read again, since of a folder's all texts are too many to keep."""
        return ((path, _text(path)) for path in self.python)

    def _python(self, name: str, text: str) -> list[Launch]:
        if not re.search("gradient_checkpointing|DDP|DistributedDataParallel", text):
            return []
        found = literals(name, text)
        if not any(
            key in found
            for key in ("gradient_checkpointing", "gradient_checkpointing_kwargs.use_reentrant", "python.ddp")
        ):
            return []
        launch = Launch(os.path.basename(name), name, 1, found)
        self._follow(launch, [], os.path.dirname(name))
        launch.frameworks = ["transformers"]
        return [launch]


def _accelerate(launch: Launch) -> None:
    """What accelerate's options and file say, in the words of the others."""
    own = {key.removeprefix("launch."): option for key, option in launch.options.items() if key.startswith("launch.")}
    kind = own.get("distributed_type")
    if kind and kind.value:
        name = DISTRIBUTED.get(kind.value.upper())
        if name:
            launch.options.setdefault(name, Option("true", kind.file, kind.line))
        if kind.value.upper() == "NO":
            launch.processes = 1
    for name in ("use_deepspeed", "use_fsdp", "use_megatron_lm"):
        if name in own:
            launch.options.setdefault(name.removeprefix("use_").removesuffix("_lm"), own[name])
    for name in ("zero_stage", "deepspeed_config.zero_stage"):
        if name in own:
            launch.options.setdefault("deepspeed.zero_optimization.stage", own[name])
    if file := own.get("deepspeed_config.deepspeed_config_file"):
        launch.options.setdefault("deepspeed_config_file", file)
    for name in ("fsdp_version", "fsdp_config.fsdp_version"):
        if name in own:
            launch.options.setdefault("fsdp_version", own[name])
    if "num_processes" in own and launch.processes is None:
        launch.processes = _number(own["num_processes"].value)


def _started(words: Sequence[Word], at: int) -> int:
    """Where the `-m` or the script of a Python stands, behind Python's own flags."""
    at += 1
    while at < len(words) and FLAG.fullmatch(words[at].text):
        at += 2 if words[at].text in ("-X", "-W") else 1
    return at


@lru_cache(maxsize=1024)
def _above(folder: str) -> list[Path]:
    return list(Path(folder).resolve().parents)[:4]


def _from(folder: str, path: str) -> Iterator[str]:
    """A path as it would be from a folder, and from those above it."""
    return (os.path.join(base, path) for base in [folder, *map(str, _above(os.path.abspath(folder)))])


def at_hand(folder: str, path: str) -> str | None:
    """The file of this path, from a folder or from one above it."""
    return next(filter(os.path.isfile, _from(folder, path)), None)


@lru_cache(maxsize=1024)
def _folders(folder: str) -> list[str]:
    """The folders within a folder, three deep; none where they are too many to look through."""
    found = [""]
    for path in found:
        if path.count("/") < DEEP:
            with suppress(OSError), os.scandir(os.path.join(folder, path)) as inner:
                found += [f"{path}{it.name}/" for it in inner if it.name[0] != "." and it.is_dir(follow_symlinks=False)]
        if len(found) > MANY:
            return []
    return found


def _inside(folder: str, path: str) -> str | None:
    """The file of a path with a folder in it, as it would be from a folder further down; None where several have one."""
    if "/" not in path or ".." in path.split("/"):
        return None
    found = [at for inner in _folders(folder or ".") if os.path.isfile(at := os.path.join(folder, inner, path))]
    return found[0] if len(found) == 1 else None


def modules(path: str, module: str, names: str = "") -> Iterator[str]:
    """The files of a module that a script imports from a folder of its own, and of those of its names that are modules."""
    folder, dots = os.path.dirname(path), len(module) - len(module.lstrip("."))
    for _ in range(dots - 1):
        folder = os.path.dirname(folder)
    inner = module[dots:].replace(".", "/")
    for at in [os.path.join(folder, inner)] if dots else _from(folder, inner):
        beside = [f"{at}/{name.strip()}.py" for name in names.split(",") if name.strip()]
        if files := [it for it in (f"{at}.py", f"{at}/__init__.py", *beside) if os.path.isfile(it)]:
            yield from files
            return


def _holds_arguments(module: str) -> bool:
    """Whether a script takes its arguments from a module: `from ovis.train.arguments import TrainingArguments`."""
    return "arg" in module.rpartition(".")[2]


def _below(ends: Sequence[str], folder: str) -> str | None:
    """The first of these ends of paths that is there, below a folder or one above it."""
    inside = (end for end in ends if ".." not in end.split("/"))
    return next(filter(os.path.isfile, (path for end in inside for path in _from(folder, end))), None)


def _begins(says: str, command: str) -> bool:
    return f"{says} ".startswith(f"{command} ") or says.startswith(f"{command}.")


def _base(text: str) -> str:
    return text.rsplit("/", 1)[-1]


def _stage(path: str) -> str | None:
    """The stage of ZeRO that the name of a file tells, if it tells one."""
    name = _base(path).lower()
    return next((match[1] for pattern in STAGES if "fsdp" not in name and (match := pattern.search(name))), None)


def _value(options: Mapping[str, Option], name: str) -> str:
    option = options.get(name)
    return (option and option.value) or ""


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 7 else None


def _options(name: str, words: Sequence[Word]) -> tuple[dict[str, Option], list[Word]]:
    """Options by name, and the words that belong to none."""
    found: dict[str, Option] = {}
    positional: list[Word] = []
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if setting := SETTING.fullmatch(word.text):
            option = Option(None, name, word.line, _on_one_line(word.written))
            _put(found, setting[1], setting[2] if word.known else None, "=", option)
            continue
        if not DASHED.match(word.text):
            positional.append(word)
            continue
        key, sign, value = word.text.lstrip("-").partition("=")
        known, parts = word.known, [word]
        if not sign and i < len(words) and not DASHED.match(words[i].text):
            value, known = words[i].text, words[i].known
            parts.append(words[i])
            i += 1
            # Files of data; further configurations are none.
            is_data = value.endswith(".json") and key not in (*CONFIGURATIONS, *CONFIGS)
            while is_data and i < len(words) and words[i].text.endswith(".json") and not DASHED.match(words[i].text):
                i += 1
        inside = not (word.written.startswith("-") and parts[-1].written)
        written = _on_one_line(" ".join(shlex.quote(it.text) if inside else it.written for it in parts))
        option = Option(None, name, word.line, written, inside)
        _put(found, key.replace("-", "_"), value if known else None, sign, option)
    return found, positional


def _put(found: dict[str, Option], key: str, value: str | None, sign: str, option: Option) -> None:
    if value is not None and value.lstrip().startswith("{") and key not in CONFIGS:
        try:
            for inner, setting in _flat(option.file, value, option.line).items():
                found[f"{key}.{inner}"] = option._replace(value=setting.value)
            return
        except Unreadable:
            value = None
    found[key] = option._replace(value="true" if value == "" and not sign else value)


def _on_one_line(written: str) -> str:
    """Empty where it is long, and where it has a comment, which would take along what comes after it."""
    long = len(written) > WRITTEN
    return "" if long or re.search(r"#[^\n]*\n", written) else written.replace("\n", " ")


def _text(path: str, limit: int = SIZE) -> str:
    with open(path, "rb") as file:
        data = file.read(BLOCK)  # to make room for `limit` takes longer than to read a script
        if len(data) == BLOCK:
            data += file.read(limit + 1 - BLOCK)
    if len(data) > limit:
        raise Unreadable(f"it is larger than {limit >> 20} MiB: give the launch alone")
    if b"\0" in data:
        raise Unreadable("it is no text: it holds zero bytes")
    return data.decode("utf-8", "replace").lstrip("\ufeff")


def _marked(text: str) -> Iterator[tuple[str, tuple[str, int] | None]]:
    """The lines of a Markdown page, each with its block of code: the language, and a number. A fence is an empty line."""
    inside: tuple[str, tuple[str, int]] | None = None  # the sign that ends the block
    written = False  # as HTML: <pre>
    for number, line in enumerate(text.split("\n")):
        fence = re.match(r"\s*(`{3,}|~{3,})\s*(\w*)", line)
        if inside is None and (written or PRE.match(line)):
            written = not PRE_ENDS.search(line)
            yield html.unescape(PRE.sub("", PRE_ENDS.sub("", line))), ("", number)
        elif inside is None and fence:
            inside = fence[1][0] * 3, (fence[2].lower(), number)
            yield "", None
        elif inside and line.strip().startswith(inside[0]):
            inside = None
            yield "", None
        else:
            yield line, inside and inside[1]


def _fenced(text: str, beside: Callable[[str], str] = lambda _: "") -> str:
    """The commands of a Markdown page; all other lines are what `beside` makes of them, or empty, so that the numbers stay."""
    return "\n".join(
        beside(line) if block is None else re.sub(r"^\s*\$ ", "", line) if block[0] in SHELL_BLOCKS else ""
        for line, block in _marked(text)
    )


# ------------------------------------------------------------------------------ YAML, JSON and Python


@lru_cache(1)
def _loader() -> Any:
    """PyYAML's loader, in C where there is one, that ends at a depth at which composing would end the process."""
    import yaml  # it takes longer to load than most launches to read

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        depth = 0

        # Called for every node, before what is in it is read.
        def descend_resolver(self, parent: yaml.Node, index: object) -> None:
            self.depth += 1
            if self.depth > NESTED:
                mark: Any = parent.start_mark
                raise yaml.MarkedYAMLError(problem=TOO_MUCH, problem_mark=mark)

        def ascend_resolver(self) -> None:
            self.depth -= 1

    return Loader


def _flat(name: str, text: str, first_line: int | None = None) -> dict[str, Option]:
    """`{a: {b: 1}}` → `a.b`, each with its line. JSON is read as YAML, of which it is a part: that keeps its lines."""
    if text.count("[") + text.count("{") > KEYS:
        raise Unreadable(f"it opens more than {KEYS:,} brackets")
    if first_line and (plain := _plain(name, text, first_line)) is not None:
        return plain
    import yaml  # it takes longer to load than most launches to read

    try:
        text = text.replace("\t", " ")
        documents = list(yaml.compose_all(text, Loader=_loader()))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be read"
        what = TOO_MUCH if problem == TOO_MUCH else f"not YAML: {problem}"
        raise Unreadable(what, first_line or (mark.line + 1 if mark else 1)) from None
    found: dict[str, Option] = {}
    steps = [0]

    def walk(node: yaml.Node | None, prefix: str, depth: int, begin: int = 0) -> None:
        steps[0] += 1
        if steps[0] > KEYS or depth > NESTED:  # an alias may stand for what holds it
            raise Unreadable(TOO_MUCH, first_line or 1)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    inner = f"{prefix}.{key.value}" if prefix else key.value
                    walk(value, inner, depth + 1, key.start_mark.index)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                walk(value, f"{prefix}.{index}", depth + 1, begin)
        elif node is not None and prefix:
            null = node.tag == "tag:yaml.org,2002:null"
            if not null:
                short = node.end_mark.index - begin <= WRITTEN  # a list's many items are no options
                written = _on_one_line(text[begin : node.end_mark.index]) if short else ""
                style: Literal["json", "yaml"] = "json" if text[begin] == '"' else "yaml"
                found[prefix] = Option(node.value, name, first_line or node.start_mark.line + 1, written, style=style)

    for document in documents:
        walk(document, "", 0)
    return found


def _plain(name: str, text: str, line: int) -> dict[str, Option] | None:
    """The same of a plain JSON of texts, numbers and truths, as it stands behind an option; None: it is more than that."""
    if len(text) > 200 or not (text.isascii() and text.isprintable()) or "\\" in text:
        return None
    try:
        value = json.loads(text, parse_int=str, parse_float=str)
    except ValueError:
        return None
    if not isinstance(value, dict) or not all(
        key and isinstance(setting, str | bool) for key, setting in value.items()
    ):
        return None
    return {
        key: Option(setting if isinstance(setting, str) else str(setting).lower(), name, line)
        for key, setting in value.items()
    }


def literals(name: str, text: str) -> dict[str, Option]:
    """What a Python file sets by a literal: arguments of `*Arguments`, `*Config`, DDP, FSDP, and of what enables checkpointing."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(
            f"not Python: {getattr(error, 'msg', None) or error}", getattr(error, "lineno", 1) or 1
        ) from None
    found: dict[str, Option] = {}
    assigned: dict[str, Option] = {}
    segment = _segments(text)
    trainer = False
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "trl":
            found.setdefault("python.trl", Option("true", name, node.lineno, style="python"))
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "attr", None) == KWARGS:
            call = ast.Call(ast.Name("set"), [], [ast.copy_location(ast.keyword(KWARGS, node.value), node)])
            options: dict[str, Option] = {}
            _arguments(options, name, segment, call, "")
            options.setdefault(f"{KWARGS}.use_reentrant", Option(None, name, node.lineno, style="python"))
            for key, option in options.items():  # by a branch one value, by another the other: not known
                same = key not in assigned or assigned[key].value == option.value
                assigned[key] = option if same else Option(None, name, option.line, style="python")
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in FIELDS:
            default = node.value  # or that of `field(default=True)`
            if isinstance(default, ast.Call):
                default = next((it.value for it in default.keywords if it.arg == "default"), None)
            if isinstance(default, ast.Constant) and isinstance(default.value, bool):
                found.setdefault(node.target.id, Option(str(default.value), name, node.lineno, style="python"))
        if not isinstance(node, ast.Call):
            continue
        called: str = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
        if called == "add_argument" and (stage := _stage_by_default(node)) is not None:
            found.setdefault("zero_stage", Option(stage, name, node.lineno, style="python"))
        if called in PREPARES:  # it may enable checkpointing, by its own arguments
            found.setdefault("python.prepares", Option("true", name, node.lineno, style="python"))
        if called == "TrainingArguments" and all(it.arg for it in node.keywords):
            found.setdefault("python.trainer", Option("true", name, node.lineno))
        if called in ("DistributedDataParallel", "DDP"):
            found.setdefault("python.ddp", Option("true", name, node.lineno))
            _arguments(found, name, segment, node, "ddp.")
        elif called == "Accelerator":
            found.setdefault("python.accelerator", Option("true", name, node.lineno))
        elif called in ("FullyShardedDataParallel", "FSDP", "fully_shard"):
            found.setdefault("fsdp", Option("true", name, node.lineno))
            found.setdefault("fsdp_version", Option("2" if called == "fully_shard" else "1", name, node.lineno))
        elif called == "gradient_checkpointing_enable" and not OF_A_PART.search(segment(node.func)):
            enabled = Option("true", name, node.lineno, segment(node), style="python")
            found.setdefault("gradient_checkpointing", enabled)
            _arguments(found, name, segment, node, "")
        elif called.endswith(("TrainingArguments", "Config", "Arguments")):
            _arguments(found, name, segment, node, "")
        trainer |= called.endswith("Trainer")
    if trainer:
        found.pop("python.accelerator", None)
    return {**found, **assigned}


def _stage_by_default(node: ast.Call) -> str | None:
    """The stage of ZeRO that a script takes by default: `add_argument("--zero_stage", default=0)`."""
    named = {
        it.value.lstrip("-").replace("-", "_")
        for it in node.args
        if isinstance(it, ast.Constant) and isinstance(it.value, str)
    }
    values = [it.value.value for it in node.keywords if it.arg == "default" and isinstance(it.value, ast.Constant)]
    return str(values[0]) if named & {"zero_stage", "use_zero_stage"} and values and values[0] is not None else None


def _segments(text: str) -> Callable[[ast.expr | ast.keyword], str]:
    """What stands in a Python file for a node, on one line. `ast.get_source_segment` reads the whole file for each node."""
    data = text.encode(errors="surrogatepass")  # the columns of a node are counted in bytes
    starts = [0, *(end.end() for end in re.finditer(rb"\r\n|\r|\n", data))]

    def segment(node: ast.expr | ast.keyword) -> str:
        if node.end_lineno is None or node.end_col_offset is None:
            return ""
        first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        written = _on_one_line(data[first:last].decode(errors="surrogatepass"))
        try:
            return written or _on_one_line(ast.unparse(node))
        except RecursionError:
            return ""

    return segment


def _arguments(
    found: dict[str, Option],
    name: str,
    segment: Callable[[ast.expr | ast.keyword], str],
    node: ast.Call,
    prefix: str,
) -> None:
    for keyword in node.keywords:
        if keyword.arg is None:
            continue
        try:
            value = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            value = None
            if keyword.arg not in ("gradient_checkpointing", "gradient_checkpointing_kwargs", "deepspeed", "fsdp"):
                continue
        written = segment(keyword) if "checkpointing" in keyword.arg else ""  # of the others nothing is said
        option = Option(None, name, keyword.value.lineno, written, style="python")
        if isinstance(value, dict):
            for key, setting in _pairs(keyword.arg, value):
                found.setdefault(prefix + key, option._replace(value=str(setting)))
        else:
            found.setdefault(prefix + keyword.arg, option._replace(value=None if value is None else str(value)))


def _pairs(prefix: str, value: dict[Any, Any], depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and depth < NESTED:
            yield from _pairs(f"{prefix}.{key}", inner, depth + 1)
        else:
            yield f"{prefix}.{key}", inner


def options_of(code: str, language: str) -> dict[str, str | None]:
    """What some lines of a shell, of YAML or of Python set."""
    if language == "bash":
        found, _ = _options("", [word for command in shell.commands(code) for word in command.words])
    else:
        found = literals("", code) if language == "python" else _flat("", code)
    return {name: option.value for name, option in found.items()}


def installed(python: str) -> dict[str, str]:
    """The packages beside an interpreter and their versions, read from their folders' names: nothing is imported."""
    place = Path(os.path.abspath(python))
    roots = [place.parent.parent] if place.is_file() else [place]
    found = {}
    for root in roots:
        for folder in [*root.glob("lib/python*/site-packages"), *root.glob("Lib/site-packages")]:
            for path in folder.glob("*.dist-info"):
                name, _, version = path.name.removesuffix(".dist-info").rpartition("-")
                found[name.lower().replace("_", "-")] = version
    if not found:
        raise Unreadable(
            f"there are no packages beside {python}: give a Python of a virtual environment, or its folder"
        )
    return found


__all__ = ["SETTINGS", "Launch", "Option", "Reader", "Unreadable", "installed", "options_of"]
