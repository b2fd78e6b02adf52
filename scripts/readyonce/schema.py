"""The schema: what stands in the files below `snippets/`, as typed models.

One model for each kind of file; its fields are the keys that a contributor writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from readyonce.facts import Condition, Query, Value, Where
from readyonce.project import Language

BASELINE = "reported"  # the variant that shows the incident as it was reported
SILENT = ("diverge", "still")  # the outcomes that train wrong without a word

Outcome = Literal["error", "match", "diverge", "still", "hang"]
MATCH = 1e-5  # the largest gradient error of a `match`
Verdict = Literal["holds", "fails", "depends", "open"]
NonEmpty = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Plain = Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^[^<>]+$")]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
IncidentId = Annotated[str, StringConstraints(pattern=r"^RO-[0-9]{4}$")]
# Names become paths: none of them leads out of its folder.
FileName = Annotated[str, StringConstraints(pattern=r"^\w[\w.-]*$")]
EnvironmentName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
Quantity = Literal["seconds_per_step", "peak_memory"]
Prediction = Annotated[str, StringConstraints(pattern=r"^(match|diverge|still|hang|error(:[a-z0-9]+(-[a-z0-9]+)*)?)$")]
Setting = Literal["checkpointing", "find-unused", "zero-input"]  # what frameworks/ tells how to set
SourceLink = Annotated[str, StringConstraints(pattern=r"^([\w.-]+/[\w.-]+(#\d+|@[^\s:]+:\S+)|https://\S+)$")]
Checkpointing = Literal["reentrant", "non-reentrant", "none"]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Text(Model):
    """The same words in both languages."""

    en: NonEmpty
    zh: NonEmpty

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
    zh: SourceLink | None = None  # the same text in Chinese, where upstream has it
    says: Text

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
    error: Slug | None = None

    def __str__(self) -> str:
        return f"error ({self.error})" if self.error else self.outcome


class VariantEntry(Declaration):
    file: FileName = "repro.py"
    text: Text
    processes: int = Field(2, ge=1)
    launcher: Literal["torchrun", "python"] = "torchrun"
    shows: list[NonEmpty] = []  # what its message contains, beyond the family's wording
    lines: dict[str, str] = {}  # of a launch.sh: option -> what stands in place of its line; "" is no line
    only: list[EnvironmentName] | None = None  # the environments it runs in, where they are not all of its file's
    differs: dict[EnvironmentName, Declaration] = {}  # environment -> the outcome there, where it is another
    unusable: dict[EnvironmentName, Text] = {}  # environment -> why what it does there says nothing


class MatrixCase(Declaration):
    variants: list[str] = Field(min_length=1)  # globs over the names, perhaps with @environment


class Matrix(Model):
    """Every combination of one word per axis is a variant, named by joining the words."""

    file: FileName
    axes: list[dict[Slug, Text]] = Field(min_length=2)
    only: dict[EnvironmentName, list[str]] = {}  # environment -> globs: what runs there, where it is not all
    alone: list[str] = []  # globs: what runs in a launch of its own only; what ran before it decides how it ends
    cases: list[MatrixCase]
    chart: list[Quantity] = []  # drawn as bars: a row for each word of the first axis, a bar for each of the second

    def names(self) -> Iterator[tuple[str, ...]]:
        return itertools.product(*self.axes)


class Measured(Model):
    """A figure of one variant against another: the ratio of `quantity`."""

    variant: str
    against: str
    quantity: Quantity


class Case(Model):
    """What the runs that fit `where` show, if a claim is true."""

    where: Query = {}
    outcome: Prediction


class When(Model):
    """The condition under which a claim is right: a query, and its words."""

    where: Query
    text: Text


class Claim(Model):
    """Advice or an explanation in circulation, written as a prediction about every run that fits its scope.

    Of several cases the first that fits a run predicts its outcome.
    """

    text: Text
    basis: Literal["run", "source", "measured", "inferred"]
    scope: Query | None = None
    predicts: Prediction | list[Case] | None = None
    otherwise: list[Case] = []  # explanations: what runs would show if it were false
    explanation: bool = False
    supports: Literal["holds", "fails", "depends"] | None = None  # what the sources support
    measured: list[Measured] = []
    sources: list[Source] = []
    advice: Literal["yes", "no", "only if"] | None = None  # for what one can do; an explanation has none
    note: Text  # what to do, and the cost
    when: When | None = None  # for `depends`
    why: Text | None = None  # for `open`: why nothing decides it yet


class Affected(Model):
    """Releases that are affected: typed, or those in which a framework checkpoints reentrantly unless told otherwise."""

    default: Slug | None = None  # a framework under snippets/frameworks/: package and range are those of its `defaults`
    where: Where = {}  # which of those, by facts
    package: NonEmpty | None = None
    introduced: NonEmpty | None = None  # not the oldest that was run: `text` tells that
    fixed: NonEmpty | None = None
    text: Text
    basis: Literal["run", "source", "inferred"]
    sources: list[Source] = []

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
    """An option of a command, or a change of code: one of the two, ready to be copied."""

    option: NonEmpty | None = None  # what to add to the command line
    command: NonEmpty | None = None  # the command it belongs to, as in `commands`
    code: Annotated[str, StringConstraints(pattern=r"^[\w.-]+\.py:[\w-]+$")] | None = None  # FILE:SECTION
    variant: NonEmpty  # the variant that proves it
    text: Text

    @model_validator(mode="after")
    def _one_of_two(self) -> Fix:
        if (self.option is None) == (self.code is None) or (self.option is None) != (self.command is None):
            raise ValueError("write `option:` with its `command:`, or `code:`")
        return self


class Hint(Model):
    """What else in a log speaks for this incident: any of these strings."""

    any: list[NonEmpty] = Field(min_length=1)
    weight: int = Field(1, ge=1)
    why: Text


class Look(Model):
    """What in code belongs to this incident, where no error tells: strings in the order in which they stand near each other."""

    all: list[NonEmpty] = Field(min_length=2)
    none: list[NonEmpty] = []  # none of these may stand near
    why: Text


class Reported(Model):
    date: Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    source: SourceLink
    hardware: Text


class Tags(Model):
    framework: list[NonEmpty]
    strategy: list[NonEmpty]
    hardware: list[NonEmpty]
    symptom: list[Text]

    def kind(self, name: str, language: Language) -> list[str]:
        return [symptom[language] for symptom in self.symptom] if name == "symptom" else getattr(self, name)

    def all(self, language: Language) -> list[str]:
        return [tag for name in type(self).model_fields for tag in self.kind(name, language)]


class IncidentFile(Model):
    """`incident.yml`, as written."""

    id: IncidentId
    status: Literal["active", "withdrawn"]
    title: Text
    short: Title  # for the navigation
    summary: Text
    tags: Tags
    reported: Reported
    errors: list[Slug]  # none, where it fails without an error
    fix: Fix
    affected: list[Affected]
    files: dict[FileName, list[EnvironmentName]]  # which repro runs in which environments
    commands: dict[str, list[EnvironmentName]] = {}  # whose options are recorded in which environments
    reference: dict[str, str] = {}  # `lines` that turn checkpointing off: what a command's run is compared with
    time_limit: int = Field(120, ge=1)  # seconds for one variant
    variants: dict[Slug, VariantEntry]
    matrices: list[Matrix] = []
    claims: dict[Slug, Claim]
    hints: list[Hint] = []  # for `diagnose`, to rank incidents that share an error
    look: list[Look] = []  # for `diagnose`, where a text holds code and no error


class Environment(Model):
    name: EnvironmentName
    date: str
    python: str
    platform: str
    device: str = ""  # this and the next are unknown where nothing ran
    backend: str = ""
    gloo_threads: int | None = None  # of each process group; torch's own number is two
    world_size: int
    versions: dict[str, str]


GUARD = "snippets/guard/readyonce_guard.py"


class Guard(Model):
    """What the guard said of a run that it only recorded: its codes, and the optimizer steps taken before the first."""

    codes: list[Slug]
    step: int | None


class Run(Model):
    """What one variant did; figures are medians over its repeats.

    `gradient_error` and `rank_spread` are max|p - q| / max|q| over the trainable tensors, on the
    worst rank, against one process and against rank 0. `peak_memory` is in bytes.
    """

    variant: Slug
    outcome: Outcome
    facts: dict[str, Value] = {}
    error: Slug | None = None
    message: str | None = None
    gradient_error: float | None = None
    rank_spread: float | None = None
    repeats: int
    alone: bool  # whether a launch of its own, as a reader would start it, showed the same
    seconds: float
    seconds_per_step: float | None = None
    peak_memory: float | None = None
    guard: Guard | None = None

    @property
    def declaration(self) -> Declaration:
        return Declaration(outcome=self.outcome, error=self.error)


class Evidence(Model):
    environment: Environment
    options: dict[str, list[str]] = {}  # command -> the options its own parser knows
    runs: list[Run]
    unusable: list[Run] = []  # how they ended is recorded, and judges nothing
    not_run: str | None = None  # why nothing could be run in it

    @cached_property
    def by_variant(self) -> dict[str, Run]:
        return {run.variant: run for run in self.runs}


class Wording(Model):
    """Literal strings that occur in this order in the text of an error, white space ignored."""

    all: list[NonEmpty] = Field(min_length=1)
    none: list[NonEmpty] = []
    needs: list[NonEmpty] = []  # for `diagnose`: one of these must stand somewhere in the log
    text: Text  # where and since when it reads so


class Question(Model):
    """Tells the cases of an error apart; `then` may hold links, as seen from errors/."""

    ask: Text
    then: Text


class ErrorCase(Model):
    """One way to an error. Each stored run that ended in it is of a case; without `where` the case was not run."""

    text: Text
    where: Query | None = None


class Card(Model):
    """What the home page says of an error."""

    strategy: Text
    fix: Text


class FamilyFile(Model):
    family: Slug
    title: Text
    page: Literal["own", "look-alikes"]
    card: Card | None = None
    # Beside the text of another family, the other counts. A consequence also yields to any earlier exception,
    # a warning to any exception at all and to training that goes on.
    yields: Literal["warning", "consequence"] | None = None
    text: Text  # how to tell it apart
    fix: Text | None = None  # of all its cases
    settings: list[Setting] = []  # what of frameworks/ makes the fix, the first first
    questions: list[Question] = []  # asked in this order
    otherwise: Text | None = None  # after a no to each; may hold links, too
    cases: list[ErrorCase] = []
    wordings: list[Wording] = Field(min_length=1)
    sources: list[Source] = []

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
    where: Where


class DecisionFile(Model):
    """`decision.yml`: columns are settings, a row is a strategy and how modules are used; a cell is all runs that fit."""

    columns: dict[Slug, Slice]
    strategies: list[str]
    uses: dict[Slug, Slice]
    launches: Query = {}  # which runs stand for a framework's launch, for `lint`

    @property
    def rows(self) -> dict[tuple[str, str], Where]:
        """The query of each strategy and use; some have no run."""
        pairs = itertools.product(self.strategies, self.uses)
        return {(strategy, use): {"strategy": strategy, **self.uses[use].where} for strategy, use in pairs}


class RunsTable(Model):
    """An entry of `tables.yml`: a table on pages, of every run that fits `where`."""

    where: Query


class Fact(Model):
    """A word of the vocabulary: what may be said of a run."""

    text: Text
    values: dict[str, Text] = {}
    kind: Literal["value", "number", "version", "word"] = "value"
    usually: str | None = None  # what a query means that does not name it
    optional: bool = False  # a run that says nothing of it has nothing of the kind


class Rule(Model):
    """What a launch tells of a run where its words, its option and its versions fit. None: what one cannot read from it."""

    text: str = ""
    option: str | None = None  # without dashes, `_` for `-`
    is_: Condition | None = Field(None, alias="is")  # without it: given, and not switched off
    where: Query = {}
    facts: dict[str, Value | None]
    sources: list[Source] = []


class Phrase(Text):
    """Words that are put together with others: spaces count."""

    en: str
    zh: str


class DiagnoseFile(Model):
    """`diagnose.yml`: the strings that belong to no family, and the words of the answers."""

    launcher: list[NonEmpty]
    launcher_errors: list[NonEmpty]
    consequences: list[NonEmpty]
    progress: list[NonEmpty]
    guides: list[NonEmpty]
    notes: list[str]  # spaces count here and in the next
    remarks: list[str]
    words: dict[Slug, Phrase]


# ------------------------------------------------------------------------------ frameworks


class Versions(Model):
    package: NonEmpty | None = None  # whose versions these are, where it is not the framework's own
    since: NonEmpty | None = None
    before: NonEmpty | None = None
    when: Text | None = None  # what else must hold

    @property
    def range(self) -> str:
        return ", ".join(f"{sign} {it}" for sign, it in (("≥", self.since), ("<", self.before)) if it)


class Form(Versions):
    """How one setting is written. Without anything to write it cannot be set, and `reaches` is what one gets."""

    setting: Setting
    code: Annotated[str, StringConstraints(pattern=r"^[\w./-]+\.py:[\w-]+$")] | None = None  # FILE:SECTION
    option: NonEmpty | None = None
    yaml: NonEmpty | None = None
    reaches: Checkpointing | None = None
    text: Text | None = None
    run: NonEmpty | None = None  # a key of runs.json, or a run of an incident: RO-0001/VARIANT@ENVIRONMENT
    sources: list[Source] = []

    @model_validator(mode="after")
    def _shown_once_and_proven(self) -> Form:
        shown = [it for it in (self.code, self.option, self.yaml) if it]
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
    where: Where = {}  # facts of the run for which it holds
    text: Text | None = None
    run: NonEmpty | None = None  # a key of runs.json
    sources: list[Source] = Field(min_length=1)


class FrameworkFile(Model):
    """`snippets/frameworks/<name>.yml`. With several in a log, the one with the highest `order` is the reader's."""

    framework: Slug
    title: Title
    order: int
    package: NonEmpty | None = None  # as its registry names it
    logs: list[NonEmpty] = []  # by any of these a log shows it
    commands: list[NonEmpty] = []  # how its commands begin
    forms: list[Form] = Field(min_length=1)
    defaults: list[Default] = []
    base: Slug | None = None  # the framework whose options it takes too
    keys: list[NonEmpty] = []  # by all of these a YAML file is known to be its own
    marks: list[NonEmpty] = []  # by any of these options a script is known to take its arguments
    processes: NonEmpty | None = None  # the variable that says how many; where it is not set, one
    launch: list[Rule] = []  # what a command tells of a run


class Seen(Model):
    """What a script in `run/` did. With an environment, the tests run it again."""

    date: str
    environment: EnvironmentName | None = None
    processes: int = 2
    checkpointing: Checkpointing
    find_unused_parameters: bool | None
    error: NonEmpty | None = None  # its first line, where the script failed
    versions: dict[str, str]


class RunsFile(Model):
    runs: dict[str, Seen]
