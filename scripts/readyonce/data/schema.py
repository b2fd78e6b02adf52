"""The schema: what stands in the files below `snippets/`, as typed models.

One model for each kind of file; its fields are the keys that a contributor writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from readyonce.data.facts import Condition, Query, Value, Where
from readyonce.data.project import Language

BASELINE = "reported"  # the variant that shows the incident as it was reported
SILENT = ("diverge", "still")  # the outcomes that train wrong without a word

Outcome = Literal["error", "match", "diverge", "still", "hang"]
MATCH = 1e-3  # the largest gradient error of a `match`; `LIMIT` in compare.py
Level = Literal["judged", "reproduced", "noted"]  # of an incident: how far it is proven
Verdict = Literal["holds", "fails", "depends", "open"]
NonEmpty = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Plain = Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^[^<>]+$")]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
OURS = "RO"  # the prefix of the public incidents; a team has its own
INCIDENT_ID = r"[A-Z][A-Z0-9]*-[0-9]{4}"
IncidentId = Annotated[str, StringConstraints(pattern=f"^{INCIDENT_ID}$")]
# Names become paths: none of them leads out of its folder.
FileName = Annotated[str, StringConstraints(pattern=r"^\w[\w.-]*$")]
EnvironmentName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
Quantity = Literal["seconds_per_step", "peak_memory"]
Prediction = Annotated[str, StringConstraints(pattern=r"^(match|diverge|still|hang|error(:[a-z0-9]+(-[a-z0-9]+)*)?)$")]
Setting = Literal["checkpointing", "find-unused", "zero-input"]  # what frameworks/ tells how to set
SourceLink = Annotated[str, StringConstraints(pattern=r"^([\w.-]+/[\w.-]+(#\d+|@[^\s:]+:\S+)|https://\S+)$")]
Checkpointing = Literal["reentrant", "non-reentrant", "none"]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Text(Model):
    """The same words in both languages; a text without languages stands for both."""

    en: NonEmpty
    zh: NonEmpty

    @model_validator(mode="before")
    @classmethod
    def _of_both(cls, given: Any) -> Any:
        return {"en": given, "zh": given} if isinstance(given, str) else given

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        return {"anyOf": [{"type": "string"}, handler(core)]}

    def __getitem__(self, language: Language) -> str:
        text: str = getattr(self, language)
        return text


class Title(Text):
    """The theme writes titles as they are, outside the article: markup there would be the page's own."""

    en: Plain
    zh: Plain


class Source(Model):
    """A place upstream and what it says. A link is `owner/repo#123`, `owner/repo@tag:path` or a URL."""

    link: SourceLink
    """`owner/repo#123`, `owner/repo@tag:path` or a URL."""
    zh: SourceLink | None = None
    """The same text in Chinese, where upstream has it."""
    says: Text
    """What it says, in our words."""

    @property
    def url(self) -> str:
        return address_of(self.link)

    def place(self, language: Language) -> SourceLink:
        return self.zh if self.zh and language == "zh" else self.link


def address_of(link: SourceLink) -> str:
    if link.startswith("https://"):
        return link
    if "@" in link:
        repository, rest = link.split("@", 1)
        tag, path = rest.split(":", 1)
        return f"https://github.com/{repository}/blob/{tag}/{path}"
    return "https://github.com/{}/issues/{}".format(*link.split("#"))


class Declaration(Model):
    """The outcome a run is expected to have; `error` names the family when it is `error`."""

    outcome: Outcome
    """How the run is expected to end."""
    error: Slug | None = None
    """The error family it ends in, where `outcome` is `error`."""

    def __str__(self) -> str:
        return f"error ({self.error})" if self.error else self.outcome


class VariantEntry(Declaration):
    file: FileName = "repro.py"
    """The repro that has it, or the `launch.sh` that is run."""
    text: Text
    """What is set, as pages name it."""
    processes: int = Field(2, ge=1)
    """How many ranks."""
    launcher: Literal["torchrun", "python"] = "torchrun"
    """`python` starts without torchrun."""
    shows: list[NonEmpty] = []
    """What its message contains, beyond the family's wording."""
    lines: dict[str, str] = {}
    """Of a `launch.sh`: option to what stands in place of its line; empty takes the line out."""
    only: list[EnvironmentName] | None = None
    """The environments it runs in, where they are not all of its file's."""
    differs: dict[EnvironmentName, Declaration] = {}
    """Environment to the outcome there, where it is another."""
    unusable: dict[EnvironmentName, Text] = {}
    """Environment to the reason why what it does there says nothing."""


class MatrixCase(Declaration):
    variants: list[str] = Field(min_length=1)
    """Globs over the names, perhaps with `@environment`."""


class Matrix(Model):
    """Every combination of one word per axis is a variant, named by joining the words."""

    file: FileName
    """The repro that has these variants."""
    axes: list[dict[Slug, Text]] = Field(min_length=2)
    """Two or more lists of words, each with its text; a variant takes one of each, and is named by joining them."""
    only: dict[EnvironmentName, list[str]] = {}
    """Environment to globs: what runs there, where it is not all."""
    cases: list[MatrixCase]
    """The outcomes; exactly one fits each variant."""
    chart: list[Quantity] = []
    """What is drawn as bars: a row for each word of the first axis, a bar for each of the second."""

    def names(self) -> Iterator[tuple[str, ...]]:
        return itertools.product(*self.axes)


class Measured(Model):
    """A figure of one variant against another: the ratio of `quantity`."""

    variant: str
    """The variant that is measured."""
    against: str
    """The variant it is compared with."""
    quantity: Quantity
    """Of what the ratio is taken."""


class Case(Model):
    """What the runs that fit `where` show, if a claim is true."""

    where: Query = {}
    """A query: the runs that it is about."""
    outcome: Prediction
    """How they end, perhaps `error:FAMILY`."""


class When(Model):
    """The condition under which a claim is right: a query, and its words."""

    where: Query
    """A query that fits exactly the runs that came out right."""
    text: Text
    """The same condition in words."""


Advice = Literal["yes", "only if", "no"]  # in the order in which an article gives them
ADVICE: tuple[Advice, ...] = get_args(Advice)


class Row(Model):
    """A claim as its article says it: what to do, and its one condition."""

    do: Text
    """What to do, or not to do: an instruction, without a stop at its end."""
    only_if: Text | None = None
    """Under which condition, in at most twelve words."""


class Claim(Model):
    """Advice or an explanation in circulation, written as a prediction about every run that fits its scope.

    Of several cases the first that fits a run predicts its outcome.
    """

    text: Text
    """The advice or explanation, as it circulates."""
    basis: Literal["run", "source", "measured", "inferred"]
    """What decides it: runs, a source, something measured, or inference."""
    scope: Query | None = None
    """A query: the runs of all incidents that decide it."""
    predicts: Prediction | list[Case] | None = None
    """How those runs end if it is true."""
    otherwise: list[Case] = []
    """Of an explanation: what runs would show if it were false."""
    explanation: bool = False
    """It explains; nobody can follow it, so it has no `advice`."""
    supports: Literal["holds", "fails", "depends"] | None = None
    """What the sources support, where `basis` is `source`."""
    measured: list[Measured] = []
    """The measurements behind it."""
    sources: list[Source] = []
    """Where it is said, or what decides it."""
    advice: Advice | None = None
    """Whether to follow it."""
    note: Text
    """What to do, and the cost."""
    when: When | None = None
    """The condition under which it is right, where it depends."""
    why: Text | None = None
    """Why nothing decides it yet, where it is open."""
    row: Row | None = None
    """Its line on the article; without it, the claim stands on the page of all claims only."""


class Affected(Model):
    """Releases that are affected: typed, or those in which a framework checkpoints reentrantly unless told otherwise."""

    default: Slug | None = None
    """A framework under `snippets/frameworks/`, whose package and range are those of its `defaults`."""
    where: Where = {}
    """Which of those defaults, by facts."""
    package: NonEmpty | None = None
    """The package, where its range is typed."""
    introduced: NonEmpty | None = None
    """The first release that is affected; not the oldest that was run."""
    fixed: NonEmpty | None = None
    """The first release that is not."""
    text: Text
    """What is affected, in words."""
    basis: Literal["run", "source", "inferred"]
    """How that is known."""
    sources: list[Source] = []
    """Where upstream says so."""

    @model_validator(mode="after")
    def _typed_or_named(self) -> Affected:
        if (self.default is None) == (self.package is None):
            raise ValueError("write `package:` with its range, or `default:` with a framework")
        if self.default and (self.introduced or self.fixed):
            raise ValueError("the range of a `default:` stands in snippets/frameworks/")
        if self.where and not self.default:
            raise ValueError("`where:` belongs to a `default:`")
        return self


class Fix(Model):
    """An option of a command, or a change of code: one of the two, ready to be copied; of a short incident it is the
    section `fixed` of its minimal.py, if neither is named."""

    option: NonEmpty | None = None
    """What to add to the command line."""
    command: NonEmpty | None = None
    """The command it belongs to, as in `commands`."""
    code: Annotated[str, StringConstraints(pattern=r"^[\w.-]+\.py:[\w-]+$")] | None = None
    """`FILE:SECTION` of a repro, where the fix is a change of code."""
    variant: NonEmpty | None = None
    """The variant that proves it; of a short incident its minimal.py does."""
    text: Text
    """What to do, in one sentence."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Fix:
        named = (self.option is not None) + (self.code is not None)
        if named + (self.variant is None) == 0 or named > 1 or (self.option is None) != (self.command is None):
            raise ValueError("write `option:` with its `command:`, or `code:`")
        return self

    @property
    def language(self) -> str:
        return "bash" if self.option else "python"


class Hint(Model):
    """What else in a log speaks for this incident: any of these strings."""

    any: list[NonEmpty] = Field(min_length=1)
    """One of these strings stands in the log."""
    weight: int = Field(1, ge=1)
    """How much that speaks for this incident."""
    cause: bool = False
    """Whether they show the code that this incident's own fix mends: its model, its task or its line. Only then does that
    fix come first, else the error's. A strategy, a framework, hardware or a number shows no cause."""
    why: Text
    """What the reader is told."""


class Look(Model):
    """What in code belongs to this incident, where no error tells: strings in the order in which they stand near each other."""

    all: list[NonEmpty] = Field(min_length=2)
    """Strings in the order in which they stand near each other in code."""
    none: list[NonEmpty] = []
    """None of these may stand near."""
    why: Text
    """What the reader is told to look at."""


class LaunchSign(Model):
    """What a launch shows of this incident: an option, words, the strategy and releases. A place to look, no verdict."""

    any: list[NonEmpty] = Field(min_length=1)
    """One of these options is given, named as in a framework's rules."""
    is_: Condition | None = Field(None, alias="is")
    """Its value or several; without it the option is given, and not switched off."""
    unless: list[NonEmpty] = []
    """None of these options is given beside it."""
    words: list[NonEmpty] = []
    """One of these stands in the command or in the value of an option, in small letters."""
    frameworks: list[NonEmpty] = []
    """It is a launch of one of these frameworks, named as their files are; of those built on each other the outermost counts."""
    where: Where = {}
    """Facts that the launch tells, and releases. A release that is not known is said as a condition."""
    text: Text
    """What may go wrong, and what the launch does not tell."""
    sources: list[Source] = []
    """Where a framework's code says what its option does."""


class Reported(Model):
    date: Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    """When, `YYYY-MM-DD`."""
    source: SourceLink
    """Where, as a link."""
    hardware: Text
    """On what, as the report says."""


class Tags(Model):
    framework: list[NonEmpty]
    """Frameworks."""
    strategy: list[NonEmpty]
    """DDP, ZeRO-3, FSDP …"""
    hardware: list[NonEmpty]
    """GPU, NPU …"""
    symptom: list[Text]
    """What one sees, as people search for it."""

    def kind(self, name: str, language: Language) -> list[str]:
        return [symptom[language] for symptom in self.symptom] if name == "symptom" else getattr(self, name)

    def all(self, language: Language) -> list[str]:
        return [tag for name in type(self).model_fields for tag in self.kind(name, language)]


class MinimalFacts(Model):
    """What the two launches of `minimal.py` are, in the words of `facts.yml`; with them they judge claims as all runs do."""

    fails: dict[str, Value]
    """As it is."""
    fixed: dict[str, Value]
    """With `--fixed`."""


class IncidentFile(Model):
    """`incident.yml`, as written. Without variants the incident is a short one, and its `minimal.py` is its proof."""

    id: IncidentId
    """The same as the folder's name; for ever."""
    status: Literal["active", "withdrawn"]
    """A withdrawn incident keeps its page."""
    title: Text
    """The title of its page."""
    short: Title
    """A short title, for the navigation."""
    summary: Text
    """One sentence for lists and search engines, of at most 160 columns; a Chinese character takes two."""
    tags: Tags
    """What it is found by."""
    reported: Reported
    """Where it was first reported."""
    errors: list[Slug]
    """The error families; none, where it fails without an error."""
    wrong: Literal["gradients", "updates"] = "gradients"
    """What is wrong where it trains wrong without an error: `updates`, if the gradients are right."""
    fix: Fix
    """The one fix to try first."""
    affected: list[Affected] = []
    """Which releases."""
    facts: MinimalFacts | None = None
    """Of a short incident: the facts of its two runs."""
    printed: list[NonEmpty] = []
    """Calls of its other scripts, `causes.py ddp-save`, of which pages report the lines that begin with `=> `."""
    printed_in: dict[EnvironmentName, list[NonEmpty]] = {}
    """The same, of calls that run in another environment than the current one."""
    files: dict[FileName, list[EnvironmentName]] = {}
    """Which repro runs in which environments, the first of them the current one."""
    commands: dict[str, list[EnvironmentName]] = {}
    """Framework commands whose options are recorded, and in which environments."""
    reference: dict[str, str] = {}
    """`lines` that turn checkpointing off: what a command's run is compared with."""
    time_limit: int = Field(120, ge=1)
    """Seconds for one variant."""
    variants: dict[Slug, VariantEntry] = {}
    """Name to what it sets and how it ends; none in a short incident."""
    matrices: list[Matrix] = []
    """Variants by combination."""
    setting: Where = {}
    """What is usual for its readers, by facts: in it the rows of its article are judged."""
    claims: dict[Slug, Claim] = {}
    """Name to a piece of advice or an explanation in circulation."""
    hints: list[Hint] = []
    """For Diagnose, to rank incidents that share an error."""
    boost: float = Field(1.25, gt=0)
    """How much its article weighs in the search."""
    look: list[Look] = []
    """For Diagnose, where a text holds code and no error."""
    launches: list[LaunchSign] = []
    """For the lint: the launches that this incident may concern."""


class Environment(Model):
    name: EnvironmentName
    date: str
    python: str
    platform: str
    device: str = ""  # this and the next are unknown where nothing ran
    backend: str = ""
    gloo_threads: int | None = None  # of each process group; torch's own number is two
    world_size: int
    hosts: int = 1
    versions: dict[str, str]

    @property
    def elsewhere(self) -> bool:
        """Whether it is `current` once more, at another place: one process on a GPU, or two hosts."""
        return self.world_size == 1 or self.hosts > 1


GUARD = "packages/guard/readyonce_guard.py"


class Guard(Model):
    """What the guard said of a run that it only recorded: its codes, and the optimizer steps taken before the first."""

    codes: list[Slug]
    step: int | None


class Run(Model):
    """What one variant did; figures are medians over its repeats.

    `gradient_error` and `rank_spread` are max|p - q| of a trained tensor, against one process and against rank 0, divided
    by how far one process moved that tensor: the largest of any tensor, on the worst rank (compare.py). Each tensor shows
    an error above 0.1 %, but for those of `unjudged`. `peak_memory` is in bytes.
    """

    variant: Slug
    outcome: Outcome
    facts: dict[str, Value] = {}
    error: Slug | None = None
    message: str | None = None
    gradient_error: float | None = None
    rank_spread: float | None = None
    worst: str | None = None  # the tensor with that gradient error
    unmoved: list[str] = []  # tensors that did not move in one process: no error of theirs is known
    unjudged: dict[str, float] = {}  # tensors that moved little, and the smallest error that each can show
    repeats: int
    alone: bool  # whether a launch of its own, as a reader would start it, showed the same; of repros one of each kind
    seconds: float
    seconds_per_step: float | None = None
    peak_memory: float | None = None
    guard: Guard | None = None

    @property
    def declaration(self) -> Declaration:
        return Declaration(outcome=self.outcome, error=self.error)


class Evidence(Model):
    environment: Environment
    made_from: dict[str, str] | None = None  # each input that decides how the runs end, and its hash; None: not known
    commit: str | None = None  # that has those files, for evidence that cannot be run again here
    options: dict[str, list[str]] = {}  # command -> the options its own parser knows
    runs: list[Run]
    unusable: list[Run] = []  # how they ended is recorded, and judges nothing
    not_run: str | None = None  # why nothing could be run in it

    @cached_property
    def by_variant(self) -> dict[str, Run]:
        return {run.variant: run for run in self.runs}


class MinimalRun(Model):
    """How a launch of `minimal.py` ended: with the error of a family, or with weights that are or are not one process's."""

    outcome: Literal["error", "diverge", "match"]
    error: Slug | None = None  # its family
    said: NonEmpty  # the error that ended it, or its last line


class MinimalRuns(Model):
    """`minimal.json`: both launches of an incident's `minimal.py`."""

    environment: Environment
    made_from: dict[str, str]  # as evidence has it
    fails: MinimalRun
    fixed: MinimalRun  # with --fixed


class TrainingSetting(Model):
    """What the mended minimal repro is also run with."""

    adapters: bool  # LoRA on each linear layer, all else frozen
    precision: Literal["float32", "bf16", "autocast", "accelerate"]  # bf16: of the weights; accelerate: its autocast
    optimizer: Literal["sgd", "adamw"]  # adamw: with clipping
    terms: Literal[1, 2]  # of the loss
    frozen: bool = False  # the first half of what trains
    buffers: bool = False  # in linear layers, changed by no batch


class SettingRun(Model):
    """How it ended under a setting, which has one term of the loss where the script can have no second one."""

    setting: TrainingSetting
    outcome: Literal["error", "diverge", "match", "unmet"]
    """`unmet`: no linear layer of the script's model runs as a module, so that LoRA trains nothing."""
    said: NonEmpty | None = None  # the error
    apart: list[float] = []
    """At each step, how far the gradient is from that of one process, as a part of that one's length."""
    rounding: list[float] = []
    """At each step, how far one process's gradient is from its own in float32; none in float32."""


class SettingRuns(Model):
    """`settings.json`: the mended `minimal.py` of an incident under other settings."""

    environment: Environment
    made_from: dict[str, str]  # as evidence has it
    runs: list[SettingRun] = Field(min_length=1)


class PrintedLines(Model):
    """`printed.json`, and `printed/NAME.json` of another environment: what other scripts print that pages report."""

    environment: Environment
    made_from: dict[str, str]  # as evidence has it
    lines: dict[str, list[str]]  # by call, `causes.py ddp-save`


class Wording(Model):
    """Literal strings that occur in this order in the text of an error, white space ignored."""

    all: list[NonEmpty] = Field(min_length=1)
    """Literal strings in this order, white space ignored."""
    none: list[NonEmpty] = []
    """None of these stands in it."""
    needs: list[NonEmpty] = []
    """For Diagnose: one of these must stand somewhere in the log."""
    without: list[NonEmpty] = []
    """For Diagnose: none of these stands in the log; of one above 1 MiB, in no part of it up to that of the text."""
    strategy: Slug | None = None
    """For Diagnose: the log shows this strategy, by the strings of `diagnose.yml`; beside it no `needs`."""
    frame: list[NonEmpty] = []
    """For Diagnose: one of these must stand in the traceback's frame nearest above the text: its file, function or source
    line. Frames of `torch/nn/functional.py` do not count."""
    bare: bool = False
    """For Diagnose: where no frame stands above it, the text alone is enough."""
    text: Text
    """Where and since when it reads so."""


class Question(Model):
    """Tells the cases of an error apart; `then` may hold links, as seen from errors/."""

    ask: Text
    """A question that a reader can answer."""
    then: Text
    """What a yes means; links as seen from `errors/`."""


class Step(Model):
    """What to do next, and a command that can be pasted."""

    text: Text
    """What the command is for; may hold links, as seen from the family's page."""
    code: NonEmpty
    """A command of a shell."""


class Elsewhere(Model):
    """For Diagnose: a log that shows that the fix of most is not its own."""

    any: list[NonEmpty] = Field(min_length=1)
    """One of these stands in the log,"""
    none: list[NonEmpty] = Field(min_length=1)
    """and none of these."""
    text: Text
    """What is said in place of the fix, above the questions."""


class ErrorCase(Model):
    """One way to an error. Each stored run that ended in it is of a case; without `where` the case was not run."""

    text: Text
    """One way to the error."""
    where: Query | None = None
    """A query: its runs. Without it the case was not run."""


class Card(Model):
    """What the home page says of an error."""

    fix: Text
    """What helps, in a few words."""


class FamilyFile(Model):
    family: Slug
    """The same as the file's name."""
    title: Text
    """The error, as it is called."""
    page: Literal["own", "look-alikes"]
    """A page of its own, or one among the look-alikes."""
    card: Card | None = None
    """What the home page says of it."""
    # Beside the text of another family, the other counts. A consequence also yields to any earlier exception,
    # a warning to any exception at all and to training that goes on.
    yields: Literal["warning", "consequence"] | None = None
    """Beside the text of another family, the other counts. A consequence also yields to any earlier exception, a
    warning to any exception at all and to training that goes on."""
    search: float = Field(default=1, gt=0, le=1)
    """What its page weighs in the site's search: less than 1 where its words are those of many pages."""
    text: Text
    """How to tell it apart."""
    steps: list[Step] = []
    """What to do, in this order; the page of a look-alike shows them below the text."""
    fix: Text | None = None
    """What helps in all its cases."""
    elsewhere: Elsewhere | None = None
    """Which logs get the questions alone."""
    settings: list[Setting] = []
    """What of `frameworks/` makes the fix, the first first."""
    questions: list[Question] = []
    """Asked in this order."""
    otherwise: Text | None = None
    """After a no to each; may hold links, too."""
    cases: list[ErrorCase] = []
    """The ways to it; each stored run that ended in it is of one."""
    wordings: list[Wording] = Field(min_length=1)
    """Its texts."""
    sources: list[Source] = []
    """Where upstream says what it means."""

    @property
    def source(self) -> str:
        """Where it is described, as a link below `errors/`."""
        return f"{self.family}.md" if self.page == "own" else f"look-alikes/{self.family}.md"

    @property
    def path(self) -> str:
        """The same as an address of the site."""
        return "errors/" + self.source.replace(".md", "/")

    def matches(self, message: str) -> bool:
        return any(_wording_matches(wording, message) for wording in self.wordings)


def _wording_matches(wording: Wording, message: str) -> bool:
    text = _squeeze(message)
    if any(_squeeze(unwanted) in text for unwanted in wording.none):
        return False
    position = 0
    for literal in map(_squeeze, wording.all):
        position = text.find(literal, position)
        if position < 0:
            return False
        position += len(literal)
    return True


@lru_cache(4096)  # the same wordings are looked for in every message
def _squeeze(text: str) -> str:
    return " ".join(text.split())


class Slice(Model):
    """A part of a row, or a column, of the decision table: the runs that fit `where`."""

    text: Text
    """Its heading."""
    where: Where
    """A query without alternatives: its runs."""


class Column(Slice):
    """A setting, as a column of the decision table."""

    advised: bool = True
    """`false`: the page shows its runs and recommends it nowhere, also where all that were run train right."""


class Remedy(Model):
    """A change of code that trains right where no setting does; an incident proves it."""

    text: Text
    """What to do, in one sentence."""
    incident: IncidentId
    """The incident whose runs prove it."""
    page: Annotated[str, StringConstraints(pattern=r"^[\w/-]+\.md(#[\w-]+)?$")]
    """The page that says how, and its section."""
    variants: list[NonEmpty] = Field(min_length=1)
    """The variants that prove it, or patterns of their names; it is told for the strategies that they train with."""


class Use(Slice):
    """How modules are used, as a row of the decision table."""

    remedies: list[Remedy] = []
    """What to do where no setting trains right in all runs; the first that was proven with a strategy is told for it."""


class DecisionFile(Model):
    """`decision.yml`: columns are settings, a row is a strategy and how modules are used; a cell is all runs that fit."""

    columns: dict[Slug, Column]
    """Settings."""
    strategies: list[str]
    """How one trains."""
    uses: dict[Slug, Use]
    """How modules are used; with a strategy it makes a row."""
    launches: Query = {}
    """A query: which runs stand for a framework's launch, for the lint."""

    @property
    def rows(self) -> dict[tuple[str, str], Where]:
        """The query of each strategy and use; some have no run."""
        pairs = itertools.product(self.strategies, self.uses)
        return {(strategy, use): {"strategy": strategy, **self.uses[use].where} for strategy, use in pairs}


class RunsTable(Model):
    """An entry of `tables.yml`: a table on pages, of every run that fits `where`."""

    where: Query
    """A query: every run that fits becomes a row."""


class Change(Model):
    """An entry of `changes.yml`, which is written by commands: on one day one thing came, or became another."""

    date: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\d$")]
    claim: Slug | None = None
    """Whose verdict turned."""
    run: str | None = None
    """`VARIANT@ENVIRONMENT`: which run ends in another way."""
    before: Verdict | Outcome | None = None
    """What it was; nothing where nobody had judged it."""
    after: Verdict | Outcome | None = None
    """What it is."""
    fix: str | None = None
    """The option, or the code, that a reader is told to take."""
    affected: str | None = None
    """A package, and its range."""
    runs: EnvironmentName | None = None
    """Where runs came that had not been there."""
    new: dict[Outcome, int] = {}
    """How they ended."""


class Fact(Model):
    """A word of the vocabulary: what may be said of a run."""

    text: Text
    """What it is called."""
    values: dict[str, Text] = {}
    """Value to its words."""
    kind: Literal["value", "number", "version", "word"] = "value"
    """What its values are; `word` has no list of them."""
    usually: str | None = None
    """What a query means that does not name it."""
    optional: bool = False
    """A run that says nothing of it has nothing of the kind."""


class Rule(Model):
    """What a launch tells of a run where its words, its option and its versions fit. None: what one cannot read from it."""

    text: str = ""
    """Words that stand in the launch."""
    option: str | None = None
    """Its name without dashes, `_` for `-`, and `a.b` for a value inside JSON, YAML or a file that the option names."""
    is_: Condition | None = Field(None, alias="is")
    """Its value or several; without it the option is given, and not switched off."""
    without: str | None = None
    """An option that is not given beside it."""
    where: Query = {}
    """A query over versions and facts known so far."""
    facts: dict[str, Value | None]
    """What it tells; `null` where one cannot read it from a launch."""
    sources: list[Source] = []
    """Where the framework's code or documentation says so."""


class Phrase(Text):
    """Words that are put together with others: spaces count."""

    en: str
    zh: str


class Marks(Model):
    """How a log shows something."""

    any: list[NonEmpty]
    """One of these strings stands in it."""
    none: list[NonEmpty] = []
    """None of these does."""


class ErrorClass(Model):
    """What the words of an exception of no known family tell: its kind, and where to look next."""

    name: Slug = Field(alias="class")
    any: list[NonEmpty]
    """One of these stands in the exception; the last class has none, and is for all others."""
    next: Text


class SilentSign(Model):
    """Words or logged numbers of training that goes wrong without an error."""

    any: list[NonEmpty] = []
    """One of these stands in a line, in letters of any case; ` … ` stands for up to 60 bytes of anything."""
    numbers: list[NonEmpty] = []
    """Or of the numbers logged under one of these names"""
    values: list[NonEmpty] = []
    """so many in a row are among these; where none is named: are the same, and not 0"""
    times: int = Field(default=1, ge=1)
    failing: bool = False
    """Words for a failure: told only of a short text that holds no error, and in which training did not go on."""
    text: Text
    page: NonEmpty
    """The page's address, with an anchor."""


class Door(Model):
    """Where to begin if nothing was found in a text."""

    text: Text
    page: NonEmpty
    """The page's address, with an anchor."""


class Sections(Model):
    """Names of the parts of a text that explains an error."""

    complaints: list[NonEmpty]
    """Above the error's text"""
    remedies: list[NonEmpty]
    """behind it"""
    unsolved: list[NonEmpty]
    """The first words of such a part that explains nothing."""


class DiagnoseFile(Model):
    """`diagnose.yml`: the strings that belong to no family, and the words of the answers."""

    strategies: dict[Slug, Marks]
    launcher: list[NonEmpty]
    launcher_errors: list[NonEmpty]
    consequences: list[NonEmpty]
    progress: list[NonEmpty]
    unset: list[NonEmpty]
    guides: list[NonEmpty]
    notes: list[str]  # spaces count here and in the next
    remarks: list[str]
    sections: Sections
    classes: list[ErrorClass]
    silent: list[SilentSign]
    doors: list[Door]
    words: dict[Slug, Phrase]


# ------------------------------------------------------------------------------ frameworks


class Versions(Model):
    package: NonEmpty | None = None
    """Whose versions these are, where it is not the framework's own."""
    since: NonEmpty | None = None
    """From this release on."""
    before: NonEmpty | None = None
    """Below this release."""
    when: Text | None = None
    """What else must hold."""

    @property
    def range(self) -> str:
        return ", ".join(f"{sign} {release}" for sign, release in (("≥", self.since), ("<", self.before)) if release)


class Form(Versions):
    """How one setting is written. Without anything to write it cannot be set, and `reaches` is what one gets."""

    setting: Setting
    """Which setting."""
    code: Annotated[str, StringConstraints(pattern=r"^[\w./-]+\.py:[\w-]+$")] | None = None
    """`FILE:SECTION` of a script under `run/`."""
    option: NonEmpty | None = None
    """The option of a command."""
    yaml: NonEmpty | None = None
    """What stands in its YAML file."""
    reaches: Checkpointing | None = None
    """What one gets, where it cannot be set."""
    text: Text | None = None
    """What is to be said of it."""
    run: NonEmpty | None = None
    """A key of `runs.json`, or a run of an incident, `RO-0001/VARIANT@ENVIRONMENT`."""
    sources: list[Source] = []
    """Where the framework says so."""

    @model_validator(mode="after")
    def _shown_once_and_proven(self) -> Form:
        shown = [snippet for snippet in (self.code, self.option, self.yaml) if snippet]
        if len(shown) > 1 or (not shown and not self.text):
            raise ValueError("write one of `code:`, `option:` and `yaml:`, or `text:` where it cannot be set")
        if not self.run and not self.sources:
            raise ValueError("it has neither `run:` nor `sources:`")
        return self

    @property
    def language(self) -> str:
        return "python" if self.code else "bash" if self.option else "yaml"


class Default(Versions):
    """Which checkpointing one gets who says nothing."""

    value: Checkpointing
    """Which checkpointing one gets who says nothing."""
    where: Where = {}
    """Facts of the run for which it holds."""
    text: Text | None = None
    """What is to be said of it."""
    run: NonEmpty | None = None
    """A key of `runs.json`."""
    sources: list[Source] = Field(min_length=1)
    """Where the framework says so."""


class FrameworkFile(Model):
    """`snippets/frameworks/<name>.yml`. With several in a log, the one with the highest `order` is the reader's."""

    framework: Slug
    """The same as the file's name."""
    title: Title
    """Its name."""
    order: int
    """With several in a log, the highest is the reader's."""
    package: NonEmpty | None = None
    """As its registry names it."""
    product: Title | None = None
    """What the package is called, if the title names a part of it."""
    logs: list[NonEmpty] = []
    """By any of these a log shows it."""
    commands: list[NonEmpty] = []
    """How its commands begin."""
    forms: list[Form] = Field(min_length=1)
    """How each setting is written."""
    defaults: list[Default] = []
    """Which checkpointing one gets who says nothing."""
    base: Slug | None = None
    """The framework whose options it takes too."""
    keys: list[NonEmpty] = []
    """By all of these a YAML file is known to be its own."""
    marks: list[NonEmpty] = []
    """By any of these options a script is known to take its arguments."""
    foreign: list[NonEmpty] = []
    """Options of other programs: a script that is given one, and not the first of `marks`, does not take its arguments."""
    processes: NonEmpty | None = None
    """The variable that says how many; where it is not set, one."""
    options_since: dict[NonEmpty, NonEmpty] = {}
    """Options that a release of `package` brought: a command that is given one needs it, or a newer one."""
    launch: list[Rule] = []
    """What a command tells of a run; of each fact the first rule that fits counts."""


class FirstGradient(Model):
    """A script's gradient of the first step in two processes beside that of one process that is given both ranks' batches.

    Lengths are relative to the gradient of the one process; `readyonce_compare` measures them.
    """

    distance: float
    """Between the two processes' gradient and the one's."""
    ratio: float
    """Of their lengths."""
    noise: float
    """Between two runs of the one process, which take the ranks' batches in another order."""
    limit: float
    """Up to this distance they count as alike."""
    alike: bool


class Seen(Model):
    """What a script in `run/` did. With an environment, the tests run it again."""

    date: str
    made_from: dict[str, str] = {}
    """What decides it: a hash of the script, of those that it imports, and of the environment."""
    gradient: FirstGradient | None = None
    """None where the script failed, or could not be compared."""
    not_compared: NonEmpty | None = None
    """Why not."""
    environment: EnvironmentName | None = None
    processes: int = 2
    checkpointing: Checkpointing
    find_unused_parameters: bool | None
    error: NonEmpty | None = None  # its first line, where the script failed
    versions: dict[str, str]


class RunsFile(Model):
    runs: dict[str, Seen]
