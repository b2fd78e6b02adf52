"""What is known: incidents, error families and evidence, as typed objects.

`load(root)` reads everything below `snippets/`. Bad input never stops at the first fault: every
fault becomes a `Problem` with file, line and remedy, and the rest is still read.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, RootModel, StringConstraints, ValidationError, model_validator

from readyonce import project
from readyonce.facts import Condition, Query, Value, Where, fits, named
from readyonce.project import LANGUAGES as LANGUAGES
from readyonce.project import Language as Language
from readyonce.terminal import printable

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from readyonce.frameworks import FrameworkFile, Seen

BASELINE = "reported"  # the variant that shows the incident as it was reported
SILENT = ("diverge", "still")  # the outcomes that train wrong without a word

Keys = tuple[str | int, ...]  # the way to a value, from the top of its file
Outcome = Literal["error", "match", "diverge", "still", "hang"]
MATCH = 1e-5  # the largest gradient error of a `match`
RECORDED = "Evidence is written by `readyonce verify --write` only: run that."
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


@dataclass(frozen=True, order=True)
class Problem:
    """One fault: where it is (`line` counts from 1), what is wrong, and what to do."""

    file: str
    line: int
    what: str
    remedy: str

    def __str__(self) -> str:
        what = " ".join(self.what.split())  # it may quote a whole block
        return f"{self.file}:{self.line}: {what}\n    {self.remedy}"


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Each once, by file and line; what is under `snippets/` goes before the pages that are made of it."""
    return sorted(set(problems), key=lambda it: (not it.file.startswith("snippets/"), it))


class CatalogError(Exception):
    """Raised where a command cannot go on; carries every `Problem` found."""

    def __init__(self, problems: list[Problem]):
        self.problems = in_order(problems)
        super().__init__("\n".join(map(str, self.problems)))


# ------------------------------------------------------------------------------ the models


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


M = TypeVar("M", bound=BaseModel)


# ------------------------------------------------------------------------------ the catalog


@dataclass(frozen=True)
class Variant:
    """One setting of a repro, with the outcome declared for each environment it runs in."""

    name: str
    file: str
    text: Text
    processes: int
    launcher: str
    declared: dict[str, Declaration]
    shows: tuple[str, ...] = ()
    lines: dict[str, str] = field(default_factory=dict)
    unusable: dict[str, Text] = field(default_factory=dict)  # environment -> why; not among `declared`
    alone: bool = False  # in a launch of its own only

    @property
    def is_command(self) -> bool:
        """Whether it is the framework's own command, not a repro."""
        return self.file.endswith(".sh")


@dataclass(frozen=True)
class Incident:
    file: IncidentFile
    folder: Path
    variants: dict[str, Variant]
    evidence: dict[str, Evidence]
    one_device: dict[str, Evidence] = field(default_factory=dict)  # of a GPU on its own; shown, and judges nothing

    @property
    def id(self) -> str:
        return self.file.id

    @property
    def silent(self) -> bool:
        """Whether it fails without an error text."""
        return not self.file.errors

    @property
    def environments(self) -> list[str]:
        """Where anything of it runs, the current ones first."""
        named = [*self.file.files.values(), *self.file.commands.values()]
        return list(dict.fromkeys(environment for group in named for environment in group))

    @property
    def current(self) -> list[str]:
        """The environments that stand for today: of each file the first that it runs in."""
        return list(dict.fromkeys(first for where in self.file.files.values() for first in where[:1]))

    @property
    def sources(self) -> list[Source]:
        """Of its claims and of the versions that it affects, each link once."""
        named: list[Claim | Affected] = [*self.file.claims.values(), *self.file.affected]
        return list({source.link: source for it in named for source in it.sources}.values())

    def run(self, variant: str, environment: str) -> Run | None:
        evidence = self.evidence.get(environment)
        return evidence.by_variant.get(variant) if evidence else None

    @cached_property
    def shows(self) -> frozenset[str]:
        """The error families that it is about or that a run of it ended in."""
        ran = {run.error for evidence in self.evidence.values() for run in evidence.runs if run.error}
        return frozenset({*self.file.errors, *ran})

    @property
    def not_run(self) -> set[str]:
        """The environments of which it is recorded why nothing could be run there."""
        return {name for name, evidence in self.evidence.items() if evidence.not_run}


@dataclass(frozen=True)
class Observed:
    """A run and its facts."""

    incident: Incident
    variant: Variant
    environment: str
    run: Run
    facts: dict[str, Value]

    @property
    def name(self) -> str:
        return f"{self.incident.id}/{self.run.variant}" + (
            "" if self.environment == "current" else f"@{self.environment}"
        )

    @property
    def label(self) -> str:
        return f"{self.run.outcome}:{self.run.error}" if self.run.error else self.run.outcome


@dataclass
class Catalog:
    root: Path
    incidents: dict[str, Incident] = field(default_factory=dict)
    families: dict[str, FamilyFile] = field(default_factory=dict)
    vocabulary: dict[str, Fact] = field(default_factory=dict)
    decision: DecisionFile | None = None
    tables: dict[str, RunsTable] = field(default_factory=dict)
    diagnose: DiagnoseFile | None = None
    frameworks: dict[str, FrameworkFile] = field(default_factory=dict)  # in their order
    stack_runs: dict[str, Seen] = field(default_factory=dict)  # what proves them: by script and word
    problems: list[Problem] = field(default_factory=list)
    unsound: bool = False  # a file did not load: what rests on it cannot be judged
    _texts: dict[str, str] = field(default_factory=dict)
    _fitting: dict[str, tuple[list[Observed], int]] = field(default_factory=dict)

    def is_files_page(self, path: PurePath) -> bool:
        """Whether `readyonce render` writes this page as a whole: all files of an incident."""
        return path.name == "files.md" and path.parent.name in self.incidents

    def is_generated(self, path: PurePath) -> bool:
        """Whether `readyonce render` writes this page as a whole."""
        return self.is_files_page(path) or (path.parent.name == "look-alikes" and path.stem in self.families)

    def text(self, path: Path) -> str:
        """A file's text; each file is read once. A `CatalogError` where it is not UTF-8."""
        name = str(path)  # a text is hashed faster
        if name not in self._texts:
            try:
                self._texts[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                line = error.object.count(b"\n", 0, error.start) + 1
                file = os.path.relpath(path, self.root)
                raise CatalogError([Problem(file, line, "the file is not UTF-8", "Save it as UTF-8.")]) from None
        return self._texts[name]

    def text_or_problem(self, path: Path) -> str:
        """The same; where it is not UTF-8, a problem is added, and what cannot be read is replaced."""
        try:
            return self.text(path)
        except CatalogError as error:
            self.problems += error.problems
            return self._texts.setdefault(str(path), path.read_text(encoding="utf-8", errors="replace"))

    def family_of(self, message: str) -> str | None:
        """The one family whose wording the message has; None when none or several do."""
        found = [family for family in self.families.values() if family.matches(message)]
        found = [family for family in found if not family.yields] or found
        return found[0].family if len(found) == 1 else None

    @cached_property
    def observed(self) -> list[Observed]:
        """Every run of every incident, with its facts. Whatever judges, judges these."""
        return [
            Observed(incident, variant, environment, run, self._facts(incident, variant, evidence.environment, run))
            for incident in self.incidents.values()
            for environment, evidence in incident.evidence.items()
            for run in evidence.runs
            if (variant := incident.variants.get(run.variant))
        ]

    def _facts(self, incident: Incident, variant: Variant, environment: Environment, run: Run) -> dict[str, Value]:
        """What the run told, and of the environment what it used."""
        used = {"torch", *imports(self.text(incident.folder / variant.file))}
        versions = {
            name.lower(): release.partition("+")[0]
            for name, release in environment.versions.items()
            if variant.is_command or name in used
        }
        launch: dict[str, Value] = {"launcher": variant.launcher, "processes": variant.processes, "framework": "none"}
        return {**launch, "device": environment.device, **versions, **run.facts}

    def run_named(self, name: str) -> Observed | None:
        """The run of `RO-0001/VARIANT@ENVIRONMENT`; without an environment, of the current one."""
        return next((it for it in self.observed if it.name == name.removesuffix("@current")), None)

    def fitting(self, query: Query) -> tuple[list[Observed], int]:
        """All runs that fit a query, and how many do not tell enough to say so."""
        key = json.dumps(query, sort_keys=True)
        if key not in self._fitting:  # claims of several incidents ask alike
            self._fitting[key] = self._find(query)
        return self._fitting[key]

    def _find(self, query: Query) -> tuple[list[Observed], int]:
        asked = named(query)
        usual = {name: value for name, value in self._usual.items() if name not in asked}
        meant = [it for it in self.observed if all(it.facts.get(name, value) == value for name, value in usual.items())]
        answers = [(observed, self.fits(query, observed)) for observed in meant]
        return [observed for observed, answer in answers if answer], sum(answer is None for _, answer in answers)

    def fits(self, query: Query, observed: Observed) -> bool | None:
        """A run that says nothing of a fact with `usually` has that value."""
        return fits(query, self._usual | observed.facts, self._optional)

    @cached_property
    def _usual(self) -> dict[str, Value]:
        return {name: fact.usually for name, fact in self.vocabulary.items() if fact.usually}

    @cached_property
    def _optional(self) -> frozenset[str]:
        return frozenset(name for name, fact in self.vocabulary.items() if fact.optional)

    def require_sound(self) -> Catalog:
        if self.problems:
            raise CatalogError(self.problems)
        return self

    def require_decision(self) -> DecisionFile:
        if self.decision is None:
            what = "the file is missing, or it was not read"
            remedy = "Write it: `lint` and the page of the table rest on it."
            raise CatalogError([Problem("snippets/decision.yml", 1, what, remedy)])
        return self.decision


@lru_cache(256)
def imports(source: str) -> frozenset[str]:
    """The packages that a file imports."""
    return frozenset(re.findall(r"^ *(?:import|from) (\w+)", source, re.MULTILINE))


def find_root() -> Path:
    """The project, or a `CatalogError` where there is none."""
    if root := project.find():
        return root
    raise CatalogError([Problem(str(Path.cwd()), 1, "no ReadyOnce project here", "Run it in the project's folder.")])


def load(root: Path, only: str | None = None) -> Catalog:
    """Read `snippets/`: all of it, or the families and one incident (`only`, quicker)."""
    catalog = Catalog(root)
    snippets = root / "snippets"
    if only is None:
        _refuse_links(catalog, snippets, root / "docs")
        if (path := snippets / "decision.yml").is_file():
            catalog.decision = read(catalog, path, DecisionFile)
        if (path := snippets / "tables.yml").is_file():
            catalog.tables = read_all(catalog, path, RunsTable)
        if (path := snippets / "facts.yml").is_file():
            catalog.vocabulary = read_all(catalog, path, Fact)
        catalog.diagnose = read(catalog, snippets / "diagnose.yml", DiagnoseFile)
    for path in sorted((snippets / "errors").glob("*.yml")):
        if family := read(catalog, path, FamilyFile):
            if family.family != path.stem:
                add(
                    catalog,
                    path,
                    ("family",),
                    f"family `{family.family}` stands in {path.name}",
                    f"Name the file {family.family}.yml, or the family {path.stem}.",
                )
            catalog.families[path.stem] = family
    from readyonce import frameworks  # which needs the models here

    catalog.frameworks, catalog.stack_runs = frameworks.load(catalog)
    folders = [snippets / only] if only else sorted(snippets.glob("RO-*"))
    for folder in (it for it in folders if not it.is_symlink()):  # told already
        _load_incident(catalog, folder)
    return catalog


def _refuse_links(catalog: Catalog, *folders: Path) -> None:
    # A link could put any file of the building machine on a page.
    for folder in folders:
        for place, below, files in os.walk(folder):
            for name in (*below, *files):
                if os.path.islink(path := os.path.join(place, name)):
                    add(catalog, Path(path), 1, f"a symbolic link under {folder.name}/", "Put the file itself there.")


def _load_incident(catalog: Catalog, folder: Path) -> None:
    path = folder / "incident.yml"
    file = read(catalog, path, IncidentFile)
    if file is None:
        return
    if file.id != folder.name:
        add(
            catalog,
            path,
            ("id",),
            f"id {file.id} stands in folder {folder.name}",
            f"Write `id: {folder.name}`, or rename the folder.",
        )
    from readyonce import frameworks

    resolved = [frameworks.resolve(catalog, path, *it) for it in enumerate(file.affected)]
    file = file.model_copy(update={"affected": resolved})
    evidence: dict[int, dict[str, Evidence]] = {1: {}, 2: {}}  # by the number of processes
    for record in sorted((folder / "evidence").glob("*.json")):
        if loaded := read(catalog, record, Evidence):
            if loaded.environment.name != record.stem:
                add(
                    catalog,
                    record,
                    ("environment", "name"),
                    f"evidence of `{loaded.environment.name}` stands in {record.name}",
                    RECORDED,
                )
            for index, run in enumerate(loaded.runs):
                if (run.gradient_error is not None) != (run.outcome in ("match", "diverge")) or (
                    run.gradient_error is not None and (run.gradient_error <= MATCH) != (run.outcome == "match")
                ):
                    what = f"outcome `{run.outcome}` of `{run.variant}` does not follow from its gradient error"
                    add(catalog, record, ("runs", index, "outcome"), what, RECORDED)
            evidence[min(loaded.environment.world_size, 2)][record.stem] = loaded
    variants = {
        name: Variant(
            name,
            entry.file,
            entry.text,
            entry.processes,
            entry.launcher,
            {
                where: entry.differs.get(where) or Declaration(outcome=entry.outcome, error=entry.error)
                for where in file.files.get(entry.file, [])
                if (entry.only is None or where in entry.only) and where not in entry.unusable
            },
            tuple(entry.shows),
            entry.lines,
            entry.unusable,
        )
        for name, entry in file.variants.items()
    }
    for index, matrix in enumerate(file.matrices):
        for words in matrix.names():
            variant = _matrix_variant(catalog, path, file, index, words)
            variants[variant.name] = variant
    catalog.incidents[folder.name] = Incident(file, folder, variants, evidence[2], evidence[1])


def _matrix_variant(catalog: Catalog, path: Path, file: IncidentFile, index: int, words: tuple[str, ...]) -> Variant:
    matrix = file.matrices[index]
    name = "-".join(words)
    texts = [axis[word] for axis, word in zip(matrix.axes, words)]
    text = Text(en=", ".join(t.en for t in texts), zh="，".join(t.zh for t in texts))
    declared = {}
    for environment in file.files.get(matrix.file, []):
        if not any(fnmatchcase(name, pattern) for pattern in matrix.only.get(environment, ["*"])):
            continue
        # A pattern that names the environment goes before one that does not.
        for label in (f"{name}@{environment}", name):
            cases = [c for c in matrix.cases if any(_same_kind(g, label) and fnmatchcase(label, g) for g in c.variants)]
            if cases:
                break
        if len(cases) != 1:
            add(
                catalog,
                path,
                ("matrices", index, "cases"),
                f"{len(cases)} cases fit `{name}` in `{environment}`",
                "Exactly one case must fit each variant: widen or narrow the patterns.",
            )
        else:
            declared[environment] = Declaration(outcome=cases[0].outcome, error=cases[0].error)
    alone = any(fnmatchcase(name, pattern) for pattern in matrix.alone)
    return Variant(name, matrix.file, text, 2, "torchrun", declared, alone=alone)


def _same_kind(pattern: str, label: str) -> bool:
    return ("@" in pattern) == ("@" in label)


# ------------------------------------------------------------------------------ reading files


DEEPEST, LARGEST = 50, 100_000  # levels, and values with aliases written out; our largest file has 6 and 2000


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the one in C, where there is one
    """Safe YAML in which `yes`, `no` and dates stay words, and a key may stand only once.

    It also refuses nesting that would crash it, and orders to a terminal.
    """

    depth = 0

    # Called for every node, before what is in it is read.
    def descend_resolver(self, parent: yaml.Node, index: object) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _refused(parent, f"nested more than {DEEPEST} levels deep")

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        # Nearly all values are plain words: they need none of what objects need that could hold themselves.
        if node.tag == _STRING and isinstance(node, yaml.ScalarNode) and node.value.isprintable():
            return node.value
        return super().construct_object(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode) -> str:
        text: str = super().construct_scalar(node)
        if not text.isprintable() and printable(text) != text:
            raise _refused(node, "a control character", "Take it out.")
        return text

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"`{key.value}` stands here twice", key.start_mark)
            seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


_STRING = "tag:yaml.org,2002:str"
_WORDS = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _WORDS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_WORDS[0], re.compile("^(true|false)$"), ["t", "f"])


def parse_yaml(text: str) -> Any:
    if "&" in text or len(text) > LARGEST:  # else there is no alias, and no room for so many values
        _refuse_bombs(text)
    try:
        return yaml.load(text, _Loader)
    except (ValueError, LookupError, AttributeError) as error:  # `!!bool maybe`, a number of 5000 digits
        raise yaml.YAMLError(f"a value is not what it is said to be: {error}") from None


def _refuse_bombs(text: str) -> None:
    """Aliases of aliases would fill the memory once somebody follows them."""
    values: dict[str | None, int] = {}  # anchor -> how many it stands for
    anchors: list[str | None] = [None]  # of what is open
    held = [0]  # how many values each of it holds so far
    for event in yaml.parse(text, _Loader):
        anchor, count = getattr(event, "anchor", None), 1
        if isinstance(event, yaml.CollectionStartEvent):
            anchors.append(anchor)
            held.append(1)
        else:
            if isinstance(event, yaml.CollectionEndEvent):
                anchor, count = anchors.pop(), held.pop()
            elif isinstance(event, yaml.AliasEvent):
                if anchor not in values:
                    raise _refused(event, f"`*{anchor}` stands for nothing that is complete above it")
                count = values[anchor]
            elif not isinstance(event, yaml.ScalarEvent):
                continue
            values[anchor] = count
            held[-1] += count
        if held[-1] > LARGEST:
            raise _refused(event, f"more than {LARGEST} values, with what the aliases stand for")


def _refused(at: yaml.Event | yaml.Node, what: str, remedy: str = "Write it out, and flatter.") -> yaml.MarkedYAMLError:
    mark: Any = at.start_mark  # of Python's or of C's reader, which have no class in common
    return yaml.MarkedYAMLError(problem=what, problem_mark=mark, note=remedy)


def read(catalog: Catalog, path: Path, model: type[M]) -> M | None:
    """Read a YAML or JSON file into `model`; on any fault add its problems and return None."""
    try:
        if path.is_symlink():  # told already
            catalog.unsound = True
            return None
        text = catalog.text(path)
        data = json.loads(text) if path.suffix == ".json" else parse_yaml(text)
    except FileNotFoundError:
        add(catalog, path, (), "the file is missing", "`readyonce new ID` makes every file an incident needs.")
    except CatalogError as error:
        catalog.problems += error.problems
    except json.JSONDecodeError as error:
        add(
            catalog,
            path,
            error.lineno,
            f"not JSON: {error.msg}",
            RECORDED,
        )
    except yaml.YAMLError as error:
        add(catalog, path, *explain_yaml(error))
    except (ValueError, RecursionError) as error:  # numbers of 5000 digits, lists in 5000 lists
        what = f"not JSON that can be read: {error}"
        add(catalog, path, 1, what, RECORDED)
    else:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            for keys, what, remedy in _explained(error.errors()):
                add(catalog, path, keys, what, remedy)
    catalog.unsound = True
    return None


def read_all(catalog: Catalog, path: Path, model: type[M]) -> dict[str, M]:
    """Read a file that maps names to things of one kind."""
    whole = read(catalog, path, RootModel[dict[str, model]])  # type: ignore[valid-type]  # made while it runs
    return whole.root if whole else {}


def explain_yaml(error: yaml.YAMLError) -> tuple[int, str, str]:
    """Line, what, remedy."""
    mark = getattr(error, "problem_mark", None)
    what = f"not YAML: {getattr(error, 'problem', None) or error}"
    remedy = getattr(error, "note", None) or "Mend the syntax on or just above this line."
    return mark.line + 1 if mark else 1, what, remedy


def _explained(faults: list[ErrorDetails]) -> Iterator[tuple[Keys, str, str]]:
    """Keys, what, remedy. A key that is not known and another that is missing beside it are one slip."""
    missing = {fault["loc"] for fault in faults if fault["type"] == "missing"}
    meant = {}
    for fault in faults:
        if fault["type"] == "extra_forbidden":
            *above, key = fault["loc"]
            beside = [str(it[-1]) for it in missing if it[:-1] == (*above,)]
            for name in get_close_matches(str(key), beside, 1):
                meant[fault["loc"]] = name
                missing.remove((*above, name))
    for fault in faults:
        if right := meant.get(fault["loc"]):
            yield (
                fault["loc"],
                f"the key `{fault['loc'][-1]}` is not known",
                f"Write `{right}:`, which is missing here.",
            )
        elif fault["type"] != "missing" or fault["loc"] in missing:
            yield fault["loc"], *_explain(fault)


def _explain(fault: ErrorDetails) -> tuple[str, str]:
    """Pydantic's fault in our words: what, remedy."""
    *above, key = fault["loc"] or ("the file",)
    if key == "[key]":  # pydantic's word for the key itself
        key = above[-2]
    given = fault["input"] if isinstance(fault["input"], str) else "this"
    match fault["type"]:
        case "missing":
            return f"the key `{key}` is missing", f"Add `{key}:` here."
        case "extra_forbidden":
            return f"the key `{key}` is not known", "Remove it, or mend its spelling."
        case "literal_error":
            return f"`{given}` is no value for `{key}`", f"Write one of: {fault['ctx']['expected']}."
        case "string_pattern_mismatch":
            return f"`{given}` is no value for `{key}`", f"It must fit {fault['ctx']['pattern']}"
        case "value_error":
            return f"`{key}`: {fault['ctx']['error']}", "Mend the value."
        case "string_too_short" | "too_short":
            return f"`{key}` is empty", "Write it, or take the key out."
        case "greater_than_equal" | "greater_than" | "less_than_equal" | "less_than" as bound:
            limit = next(iter(fault["ctx"].values()))
            return f"`{fault['input']}` is no value for `{key}`", f"It must be {bound.replace('_', ' ')} {limit}."
    kind, _, _ = fault["type"].partition("_")
    wanted = KINDS.get(kind, "something else")
    return f"`{key}` must be {wanted}", "Mend the value; another file of this kind shows how it is written."


# What a value must be, by the first word of pydantic's kind of fault.
KINDS = {
    "model": "keys and values",
    "dict": "keys and values",
    "list": "a list",
    "tuple": "a list",
    "string": "a text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "date": "a date such as 2026-11-25",
}


def add(catalog: Catalog, path: Path, where: Keys | int, what: str, remedy: str) -> None:
    """Add a problem of `path`; `where` is its line, or its keys from the top of the file."""
    try:
        file = str(path.relative_to(catalog.root))
    except ValueError:
        file = str(path)
    line = where if isinstance(where, int) else line_of(path, where)
    catalog.problems.append(Problem(file, line, what, remedy))


def line_of(path: Path, keys: Keys) -> int:
    """The line of a value in a YAML or JSON file; of its parent where the last key is missing."""
    if not keys or not path.is_file():
        return 1
    try:
        node, line = _composed(path.read_text(encoding="utf-8", errors="replace")), 1
    except yaml.YAMLError:  # JSON may hold letters that YAML does not allow
        return 1
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode):
            found = [(k, v) for k, v in node.value if k.value == str(key)]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
    return line


@lru_cache(4)  # a file with one fault has many
def _composed(text: str) -> yaml.Node | None:
    node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    return node
