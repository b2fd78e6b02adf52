"""What is known: incidents, error families and evidence, as typed objects.

`load(root)` reads everything below `snippets/`. Bad input never stops at the first fault: every
fault becomes a `Problem` with file, line and remedy, and the rest is still read.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from typing import TypeVar

import yaml
from pydantic import BaseModel, RootModel, ValidationError

from readyonce.data import kept, links, project
from readyonce.data.facts import Leaf, Query, Value, fits, members, separate
from readyonce.data.facts import Path as LeafPath
from readyonce.data.reading import CatalogError, Keys, Problem, explain_yaml, explained, line_of, parse_yaml
from readyonce.data.schema import (
    BASELINE,
    MATCH,
    OURS,
    Affected,
    Change,
    Claim,
    DecisionFile,
    Declaration,
    DiagnoseFile,
    Environment,
    Evidence,
    Fact,
    FamilyFile,
    FrameworkFile,
    IncidentFile,
    Level,
    MinimalRuns,
    Outcome,
    Prediction,
    PrintedLines,
    Run,
    RunsFile,
    RunsTable,
    Seen,
    SettingRuns,
    Source,
    Text,
)
from readyonce.data.stored_runs import RunIndex
from readyonce.data.words import say

MINIMAL, MINIMAL_RUNS = "minimal.py", "minimal.json"  # the minimal repro of an incident, and how it ended
PRINTED = "printed.json"  # what its other scripts print
SETTINGS = "settings.json"  # how the mended one ended with other precisions, optimizers and adapters
FIXED_CODE = f"{MINIMAL}:fixed"  # the fix of a short incident
RECORDED = "Evidence is written by `readyonce verify --write` only: run that."
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


@dataclass(frozen=True)
class Variant:
    """One setting of a repro, with the outcome declared for each environment it runs in."""

    name: str
    script: str  # its file
    text: Text
    processes: int
    launcher: str
    declared: dict[str, Declaration]
    shows: tuple[str, ...] = ()
    lines: dict[str, str] = field(default_factory=dict)
    unusable: dict[str, Text] = field(default_factory=dict)  # environment -> why; not among `declared`

    @property
    def is_command(self) -> bool:
        """Whether it is the framework's own command, not a repro."""
        return self.script.endswith(".sh")


@dataclass(frozen=True)
class Incident:
    meta: IncidentFile  # its incident.yml
    folder: Path
    variants: dict[str, Variant]
    evidence: dict[str, Evidence]
    elsewhere: dict[str, Evidence] = field(default_factory=dict)  # on one GPU, on two hosts; shown, and judges nothing
    minimal: MinimalRuns | None = None  # how its minimal.py ended, as it is and with --fixed
    settings: SettingRuns | None = None  # and with --fixed under other settings
    printed: dict[str, PrintedLines] = field(default_factory=dict)  # environment -> what its other scripts print there

    @property
    def id(self) -> str:
        return self.meta.id

    @property
    def short(self) -> bool:
        """Whether it has no variants: its minimal repro is its proof."""
        return not self.variants

    @property
    def ours(self) -> bool:
        """Whether it is a public one: a team's own judges nothing."""
        return self.id.startswith(f"{OURS}-")

    @property
    def has_minimal(self) -> bool:
        """Whether a script proves it; what is only noted has none."""
        return (self.folder / MINIMAL).is_file()

    @property
    def printed_files(self) -> dict[str, str]:
        """Each call whose lines its pages report, with the include that has them."""
        calls = [call for group in self.printed_calls.values() for call in group]
        return {call: f"printed/{call.replace(' ', '-')}.txt" for call in calls}

    @property
    def printed_calls(self) -> dict[str, list[str]]:
        """The calls whose lines its pages report, by the environment that they run in."""
        return ({"current": self.meta.printed} if self.meta.printed else {}) | self.meta.printed_in

    @property
    def printed_of(self) -> dict[str, str]:
        """Each of these calls → the environment whose lines are shown: the first that it is named with."""
        return {call: name for name, calls in reversed(self.printed_calls.items()) for call in calls}

    def printed_record(self, environment: str) -> Path:
        """The file of what its calls print in an environment."""
        return self.folder / PRINTED if environment == "current" else self.folder / "printed" / f"{environment}.json"

    @property
    def level(self) -> Level:
        """How far it is proven: `judged` by variants, `reproduced` by its minimal repro, or `noted` from sources."""
        return "judged" if not self.short else "reproduced" if self.minimal else "noted"

    def named(self, language: project.Language) -> str:
        """What it is about; its level too, where that is less than judged."""
        short = self.meta.short[language]
        return (
            short
            if self.level == "judged"
            else say("with-level", language, short, say(f"level-{self.level}", language))
        )

    @property
    def outcome(self) -> Outcome:
        """How the reported run ends."""
        if baseline := self.meta.variants.get(BASELINE):
            return baseline.outcome
        return self.minimal.fails.outcome if self.minimal else "error" if self.meta.errors else "diverge"

    def word_for(self, outcome: str) -> str:
        """The key of the word for an outcome of one of its runs."""
        return "wrong-updates" if outcome == "diverge" and self.meta.wrong == "updates" else outcome

    @property
    def ran_in(self) -> Environment | None:
        """The current environment, as it was when the incident ran in it; None where nothing was run."""
        if current := self.evidence.get("current"):
            return current.environment
        return self.minimal.environment if self.minimal and self.short else None

    @property
    def file(self) -> Path:
        """Its incident.yml."""
        return self.folder / "incident.yml"

    def record(self, environment: str) -> Path:
        """The file of its evidence from an environment."""
        return self.folder / "evidence" / f"{environment}.json"

    @property
    def silent(self) -> bool:
        """Whether it fails without an error text."""
        return not self.meta.errors

    @property
    def environments(self) -> list[str]:
        """Where anything of it runs, the current ones first."""
        if self.short:
            return ["current"]
        named = [*self.meta.files.values(), *self.meta.commands.values()]
        return list(dict.fromkeys(environment for group in named for environment in group))

    @property
    def current(self) -> list[str]:
        """The environments that stand for today: of each file the first that it runs in."""
        return list(dict.fromkeys(first for where in self.meta.files.values() for first in where[:1]))

    def needed_by(self, variants: Iterable[Variant]) -> list[Path]:
        """The files that variants need: their scripts, and each file beside them that one of them names."""
        beside = [path for path in sorted(self.folder.iterdir()) if path.is_file() and path.name != "incident.yml"]
        variants, needed = list(variants), set[Path]()
        texts = [line for variant in variants for line in (variant.script, *variant.lines.values())]
        if any(variant.is_command for variant in variants):
            texts += ["tiny.py", *self.meta.reference.values()]  # the command's model and data
        while found := {path for path in beside if path not in needed and _named(path.name, texts)}:
            needed |= found
            texts = [path.read_text(encoding="utf-8", errors="replace") for path in found]
        return sorted(needed)

    @property
    def scripts(self) -> list[Path]:
        """What is Python in its folder."""
        return sorted(path for path in self.folder.glob("*.py") if path.is_file() and not path.is_symlink())

    @property
    def sources(self) -> list[Source]:
        """Of its claims and of the versions that it affects, each link once."""
        named: list[Claim | Affected] = [*self.meta.claims.values(), *self.meta.affected]
        return list({source.link: source for entry in named for source in entry.sources}.values())

    @property
    def minimal_runs(self) -> Iterator[tuple[Variant, Environment, Run]]:
        """Of a short incident of ours that tells their facts: the runs of its minimal repro, as it is and with --fixed."""
        if not (self.ours and self.short and self.minimal and self.meta.facts):
            return
        environment = self.minimal.environment
        launch: dict[str, Value] = {"launcher": "torchrun", "processes": 2, "framework": "none"}
        launched = (self.minimal.fails, self.meta.facts.fails), (self.minimal.fixed, self.meta.facts.fixed)
        for name, (ended, facts) in zip(links.MINIMAL_RUNS, launched):
            declared = Declaration(outcome=ended.outcome, error=ended.error)
            variant = Variant(name, MINIMAL, self.meta.short, 2, "torchrun", {environment.name: declared})
            run = Run(
                variant=name,
                outcome=ended.outcome,
                error=ended.error,
                message=ended.said,
                facts=launch | facts,
                repeats=1,
                alone=True,
                seconds=0.0,
            )
            yield variant, environment, run

    def run(self, variant: str, environment: str) -> Run | None:
        evidence = self.evidence.get(environment)
        return evidence.by_variant.get(variant) if evidence else None

    def beside_current(self, evidence: Evidence) -> list[tuple[Run, Run]]:
        """Each run of an evidence from elsewhere, and the same variant's run in `current`."""
        return [(run, here) for run in evidence.runs if (here := self.run(run.variant, "current"))]

    @cached_property
    def shows(self) -> frozenset[str]:
        """The error families that it is about or that a run of it ended in."""
        return frozenset({*self.meta.errors, *self.ended_in})

    @property
    def ended_in(self) -> set[str]:
        """The error families that a run of it ended in."""
        ran = {run.error for evidence in self.evidence.values() for run in evidence.runs if run.error}
        return ran | ({self.minimal.fails.error} if self.minimal and self.minimal.fails.error else set())

    @property
    def not_run(self) -> set[str]:
        """The environments of which it is recorded why nothing could be run there."""
        return {name for name, evidence in self.evidence.items() if evidence.not_run}


def _named(file: str, texts: list[str]) -> bool:
    whole = rf"(?<![\w.-]){re.escape(file)}(?![\w-])"
    return any(file in text and re.search(whole, text) for text in texts)


@dataclass(frozen=True)
class Observed:
    """A run and its facts."""

    incident: Incident
    variant: Variant
    environment: str
    run: Run
    facts: dict[str, Value]
    filled: dict[str, Value]  # the facts, with the usual value of each that it says nothing of
    number: int = 0  # among all runs of the catalog

    @property
    def name(self) -> str:
        return f"{self.incident.id}/{self.run.variant}" + (
            "" if self.environment == "current" else f"@{self.environment}"
        )

    @property
    def record(self) -> Path:
        """The file that stores it."""
        if self.run.variant in links.MINIMAL_RUNS:
            return self.incident.folder / MINIMAL_RUNS
        return self.incident.record(self.environment)

    @property
    def label(self) -> str:
        return f"{self.run.outcome}:{self.run.error}" if self.run.error else self.run.outcome


@dataclass(frozen=True)
class RunSet(Collection[Observed]):
    """Some of all runs, in their order: run i is bit i of `bits`. What is asked of a set costs no look at its runs."""

    all: Sequence[Observed] = field(repr=False, compare=False)
    bits: int

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __contains__(self, observed: object) -> bool:
        return isinstance(observed, Observed) and bool(self.bits >> observed.number & 1)

    def __iter__(self) -> Iterator[Observed]:
        return (self.all[number] for number in members(self.bits))

    def __and__(self, other: RunSet) -> RunSet:
        return RunSet(self.all, self.bits & other.bits)

    def __or__(self, other: RunSet) -> RunSet:
        return RunSet(self.all, self.bits | other.bits)

    def __sub__(self, other: RunSet) -> RunSet:
        return RunSet(self.all, self.bits & ~other.bits)


@dataclass(eq=False)
class Catalog:
    root: Path
    incidents: dict[str, Incident] = field(default_factory=dict)
    families: dict[str, FamilyFile] = field(default_factory=dict)
    vocabulary: dict[str, Fact] = field(default_factory=dict)
    decision: DecisionFile | None = None
    tables: dict[str, RunsTable] = field(default_factory=dict)
    models: dict[str, list[str]] = field(default_factory=dict)
    changes: dict[str, list[Change]] = field(default_factory=dict)  # by incident, in their order
    diagnose: DiagnoseFile | None = None
    frameworks: dict[str, FrameworkFile] = field(default_factory=dict)  # in their order
    stack_runs: dict[str, Seen] = field(default_factory=dict)  # what proves them: by script and word
    problems: list[Problem] = field(
        default_factory=list
    )  # of loading only; the rules of `readyonce check` yield theirs
    unsound: bool = False  # a file did not load: what rests on it cannot be judged
    _texts: dict[str, str] = field(default_factory=dict)
    _parted: dict[tuple[int, ...], list[tuple[Leaf, list[Observed]]]] = field(default_factory=dict)
    _family_of: dict[str, str | None] = field(default_factory=dict)

    def is_files_page(self, path: PurePath) -> bool:
        """Whether `readyonce render` writes this page as a whole: all files of an incident, or all its claims."""
        return path.name in ("files.md", "claims.md") and path.parent.name in self.incidents

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

    def not_utf8(self, path: Path) -> list[Problem]:
        """What `text` raises for a file; from then on it gives the file's text, with what cannot be read replaced."""
        try:
            self.text(path)
        except CatalogError as error:
            self._texts[str(path)] = path.read_text(encoding="utf-8", errors="replace")
            return error.problems
        return []

    def problem(self, path: Path, where: Keys | int, what: str, remedy: str) -> Problem:
        """A problem of `path`; `where` is its line, or its keys from the top of the file."""
        try:
            file = str(path.relative_to(self.root))
        except ValueError:
            file = str(path)
        return Problem(file, where if isinstance(where, int) else line_of(path, where), what, remedy)

    def file_of(self, family: FamilyFile) -> Path:
        return self.root / "snippets" / "errors" / f"{family.family}.yml"

    def family_of(self, message: str) -> str | None:
        """The one family whose wording the message has; None when none or several do."""
        if message not in self._family_of:  # runs end alike
            found = [family for family in self.families.values() if family.matches(message)]
            found = [family for family in found if not family.yields] or found
            self._family_of[message] = found[0].family if len(found) == 1 else None
        return self._family_of[message]

    @cached_property
    def observed(self) -> list[Observed]:
        """Every run of every incident, with its facts. Whatever judges, judges these."""
        found: list[Observed] = []
        for incident in self.incidents.values():
            for one, where, run in incident.minimal_runs:
                facts = self._surroundings(incident, one, where) | run.facts
                found.append(Observed(incident, one, where.name, run, facts, self.usual | facts, len(found)))
            for environment, evidence in incident.evidence.items():
                told: dict[str, dict[str, Value]] = {}  # by file: of the environment
                for run in evidence.runs:
                    if variant := incident.variants.get(run.variant):
                        if variant.script not in told:
                            told[variant.script] = self._surroundings(incident, variant, evidence.environment)
                        launch: dict[str, Value] = {
                            "launcher": variant.launcher,
                            "processes": variant.processes,
                            "framework": "none",
                        }
                        facts = {**launch, **told[variant.script], **run.facts}
                        filled = self.usual | facts
                        found.append(Observed(incident, variant, environment, run, facts, filled, len(found)))
        return found

    def _surroundings(self, incident: Incident, variant: Variant, environment: Environment) -> dict[str, Value]:
        """Of an environment what the runs of a file use: the device, and the versions of what it imports."""
        used = {"torch", *imports(self.text(incident.folder / variant.script))}
        versions = {
            name.lower(): release.partition("+")[0]
            for name, release in environment.versions.items()
            if variant.is_command or name in used
        }
        return {"device": environment.device, **versions}

    def listed(self, page: str) -> list[FamilyFile]:
        """The error families of one kind: those with a page of their `own`, or the `look-alikes`."""
        return [family for family in self.families.values() if family.page == page]

    def about(self, error: str) -> list[Incident]:
        return [incident for incident in self.incidents.values() if error in incident.meta.errors]

    def run_named(self, name: str) -> Observed | None:
        """The run of `RO-0001/VARIANT@ENVIRONMENT`; without an environment, of the current one."""
        return next((observed for observed in self.observed if observed.name == name.removesuffix("@current")), None)

    def fitting(self, query: Query) -> tuple[RunSet, int]:
        """All runs that fit a query, and how many do not tell enough to say so.

        Of a fact with a usual value only runs with that value are meant, unless the query asks for it.
        """
        fit, unclear = self._index.meant(query)
        return RunSet(self.observed, fit), unclear.bit_count()

    def telling(self, query: Query) -> tuple[RunSet, RunSet]:
        """The runs that fit a query, whatever is usual, and those that do not tell enough to say so."""
        fit, unclear = self._index.fitting(query)
        return RunSet(self.observed, fit), RunSet(self.observed, unclear)

    @cached_property
    def ended(self) -> dict[Prediction, RunSet]:
        """The runs that ended in each outcome, and in each family's error."""
        found: dict[Prediction, int] = defaultdict(int)
        for observed in self.observed:
            for label in {observed.run.outcome, observed.label}:
                found[label] |= 1 << observed.number
        return {label: RunSet(self.observed, bits) for label, bits in found.items()}

    def ended_in(self, error: str) -> RunSet:
        """The runs that ended in an error of this family."""
        return self.ended.get(f"error:{error}", self.none)

    def was_run(self, error: str) -> bool:
        """Whether anything that was run here ended in an error of this family, or prints its text."""
        return error in self.printed or any(error in incident.ended_in for incident in self.incidents.values())

    @cached_property
    def printed(self) -> dict[str, set[str]]:
        """Error family -> the incidents of which a script prints its text."""
        found: dict[str, set[str]] = {}
        for incident in self.incidents.values():
            lines = (line for record in incident.printed.values() for call in record.lines.values() for line in call)
            for line in lines:
                if family := self.family_of(line):
                    found.setdefault(family, set()).add(incident.id)
        return found

    def parted(self, runs: Collection[Observed]) -> list[tuple[Leaf, list[Observed]]]:
        """What tells the outcomes of these runs apart, and the runs of each part."""
        given = list(runs)
        key = tuple(observed.number for observed in given)  # each language asks for the same
        if key not in self._parted:
            told = [(observed.facts, observed.label) for observed in given]
            labels = str([*self.vocabulary, *(observed.label for observed in given)])
            asked = kept.digest(labels.encode(), *(self.told[number] for number in key))
            found = kept.answer(f"parts of {asked}", lambda: _plain(separate(told, list(self.vocabulary))))
            leaves = [Leaf(path, Counter(ended), runs) for path, ended, runs in found]
            self._parted[key] = [(leaf, [given[number] for number in leaf.runs]) for leaf in leaves]
        return self._parted[key]

    @cached_property
    def told(self) -> list[bytes]:
        """A hash of the facts of each run."""
        return [kept.digest(str(sorted(one.facts.items())).encode()).encode() for one in self.observed]

    @cached_property
    def _index(self) -> RunIndex:
        """All runs by their facts."""
        optional = [name for name, fact in self.vocabulary.items() if fact.optional]
        return RunIndex([observed.filled for observed in self.observed], self.usual, optional)

    @cached_property
    def every(self) -> RunSet:
        """All runs."""
        return RunSet(self.observed, self._index.all)

    @property
    def none(self) -> RunSet:
        """No run."""
        return RunSet(self.observed, 0)

    @cached_property
    def usual(self) -> dict[str, Value]:
        """The value of a fact that a run has if it says nothing else."""
        return {name: fact.usually for name, fact in self.vocabulary.items() if fact.usually}

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


def _plain(leaves: list[Leaf]) -> list[tuple[LeafPath, dict[str, int], list[int]]]:
    """What separates runs, in types that can be kept from one `readyonce check` to the next."""
    return [(leaf.path, dict(leaf.labels), leaf.runs) for leaf in leaves]


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
        _refuse_links(catalog, *(root / name for name in ("docs", *project.MADE_OF)))
        if (path := snippets / "decision.yml").is_file():
            catalog.decision = read(catalog, path, DecisionFile)
        if (path := snippets / "tables.yml").is_file():
            catalog.tables = read_all(catalog, path, RunsTable)
        if (path := snippets / "models.yml").is_file():
            catalog.models = read_all(catalog, path, list[str])
        if (path := snippets / "changes.yml").is_file():
            catalog.changes = read_all(catalog, path, list[Change])
        if (path := snippets / "facts.yml").is_file():
            catalog.vocabulary = read_all(catalog, path, Fact)
        catalog.diagnose = read(catalog, snippets / "diagnose.yml", DiagnoseFile)
    for path in sorted((snippets / "errors").glob("*.yml")):
        if family := read(catalog, path, FamilyFile):
            if family.family != path.stem:
                _add(
                    catalog,
                    path,
                    ("family",),
                    f"family `{family.family}` stands in {path.name}",
                    f"Name the file {family.family}.yml, or the family {path.stem}.",
                )
            catalog.families[path.stem] = family

    catalog.frameworks, catalog.stack_runs = _frameworks(catalog)
    folders = [snippets / only] if only else sorted(snippets.glob(project.INCIDENT_FOLDERS), key=_theirs_first)
    for folder in (entry for entry in folders if not entry.is_symlink()):  # told already
        _load_incident(catalog, folder)
    return catalog


def _theirs_first(folder: Path) -> tuple[bool, str]:
    return folder.name.startswith(f"{OURS}-"), folder.name


def _refuse_links(catalog: Catalog, *folders: Path) -> None:
    # A link could put any file of the building machine on a page.
    for folder in folders:
        for place, below, files in os.walk(folder):
            for name in (*below, *files):
                if os.path.islink(path := os.path.join(place, name)):
                    catalog.problems.append(_link(catalog, Path(path)))


def _load_incident(catalog: Catalog, folder: Path) -> None:
    path = folder / "incident.yml"
    file = read(catalog, path, IncidentFile)
    if file is None:
        return
    if file.id != folder.name:
        _add(
            catalog,
            path,
            ("id",),
            f"id {file.id} stands in folder {folder.name}",
            f"Write `id: {folder.name}`, or rename the folder.",
        )
    resolved = [_resolve(catalog, path, *numbered) for numbered in enumerate(file.affected)]
    file = file.model_copy(update={"affected": resolved})
    evidence: dict[str, Evidence] = {}
    elsewhere: dict[str, Evidence] = {}
    for record in sorted((folder / "evidence").glob("*.json")):
        if loaded := read(catalog, record, Evidence):
            if loaded.environment.name != record.stem:
                _add(
                    catalog,
                    record,
                    ("environment", "name"),
                    f"evidence of `{loaded.environment.name}` stands in {record.name}",
                    RECORDED,
                )
            for index, run in enumerate(loaded.runs):
                follows = run.gradient_error is None or (run.gradient_error <= MATCH) == (run.outcome == "match")
                # Without a worst tensor it is older than compare.py, and on another scale.
                if (run.gradient_error is None) == (run.outcome in ("match", "diverge")) or (run.worst and not follows):
                    what = f"outcome `{run.outcome}` of `{run.variant}` does not follow from its gradient error"
                    _add(catalog, record, ("runs", index, "outcome"), what, RECORDED)
            (elsewhere if loaded.environment.elsewhere else evidence)[record.stem] = loaded
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
    for index in range(len(file.matrices)):
        variants |= {variant.name: variant for variant in _matrix_variants(catalog, path, file, index)}
    minimal = read(catalog, stored, MinimalRuns) if (stored := folder / MINIMAL_RUNS).is_file() else None
    if not variants and not (file.fix.option or file.fix.code):
        file = file.model_copy(update={"fix": file.fix.model_copy(update={"code": FIXED_CODE})})
    settings = read(catalog, stored, SettingRuns) if (stored := folder / SETTINGS).is_file() else None
    records = {"current": folder / PRINTED} | {it.stem: it for it in sorted(folder.glob("printed/*.json"))}
    printed = {
        name: lines for name, it in records.items() if it.is_file() and (lines := read(catalog, it, PrintedLines))
    }
    catalog.incidents[folder.name] = Incident(file, folder, variants, evidence, elsewhere, minimal, settings, printed)


def _matrix_variants(catalog: Catalog, path: Path, file: IncidentFile, index: int) -> Iterator[Variant]:
    """The variants of a matrix, each with what its one case declares; where no case or several fit, that is a problem."""
    matrix = file.matrices[index]
    only = {environment: _any_of(patterns) for environment, patterns in matrix.only.items()}
    # A pattern that names the environment goes before one that does not.
    named, plain = (
        [(case, _any_of(it for it in case.variants if ("@" in it) == with_environment)) for case in matrix.cases]
        for with_environment in (True, False)
    )
    for words in matrix.names():
        name = "-".join(words)
        texts = [axis[word] for axis, word in zip(matrix.axes, words)]
        text = Text(en=", ".join(it.en for it in texts), zh="，".join(it.zh for it in texts))
        declared = {}
        for environment in file.files.get(matrix.file, []):
            if environment in only and not only[environment].match(name):
                continue
            cases = [case for case, fits_it in named if fits_it.match(f"{name}@{environment}")]
            cases = cases or [case for case, fits_it in plain if fits_it.match(name)]
            if len(cases) != 1:
                _add(
                    catalog,
                    path,
                    ("matrices", index, "cases"),
                    f"{len(cases)} cases fit `{name}` in `{environment}`",
                    "Exactly one case must fit each variant: widen or narrow the patterns.",
                )
            else:
                declared[environment] = Declaration(outcome=cases[0].outcome, error=cases[0].error)
        yield Variant(name, matrix.file, text, 2, "torchrun", declared)


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """What fits one of these globs as a whole; nothing fits none of them."""
    return re.compile("|".join(map(translate, patterns)) or "(?!)")


def _frameworks(catalog: Catalog) -> tuple[dict[str, FrameworkFile], dict[str, Seen]]:
    """The files in their order, and the stored runs."""
    folder = catalog.root / "snippets" / "frameworks"
    found = {}
    for path in sorted(folder.glob("*.yml")):
        if file := read(catalog, path, FrameworkFile):
            if file.framework != path.stem:
                what = f"framework `{file.framework}` stands in {path.name}"
                _add(catalog, path, ("framework",), what, f"Write `framework: {path.stem}`, or rename the file.")
            found[path.stem] = file
    runs = read(catalog, folder / "runs.json", RunsFile) if found else None
    ordered = dict(sorted(found.items(), key=lambda item: item[1].order))
    return ordered, runs.runs if runs else {}


def _resolve(catalog: Catalog, path: Path, index: int, entry: Affected) -> Affected:
    """With `default:`, the package and the range in which that framework's default is reentrant."""
    if entry.default is None:
        return entry
    framework = catalog.frameworks.get(entry.default)
    facts = {name: value for name, value in entry.where.items() if not isinstance(value, list)}
    fitting = [default for default in framework.defaults if fits(default.where, facts)] if framework else []
    found = [default for default in fitting if default.value == "reentrant"]
    what = ""
    if framework is None:
        what = f"there is no framework `{entry.default}`"
    elif not found:
        what = f"no default of `{entry.default}` that fits is reentrant"
    elif any(one.before != other.since for one, other in itertools.pairwise(found)):
        what = f"the reentrant defaults of `{entry.default}` that fit are no single range"
    if framework is None or what:
        remedy = "Name a framework of snippets/frameworks/ with such `defaults:`, or write `package:` and its range."
        _add(catalog, path, ("affected", index, "default"), what, remedy)
        return entry.model_copy(update={"package": entry.default})
    package = found[0].package or framework.package
    return entry.model_copy(update={"package": package, "introduced": found[0].since, "fixed": found[-1].before})


# ------------------------------------------------------------------------------ reading files


def read(catalog: Catalog, path: Path, model: type[M]) -> M | None:
    """Read a YAML or JSON file into `model`; on any fault add its problems and return None."""
    try:
        return understood(catalog, path, model)
    except CatalogError as error:
        catalog.problems += error.problems
        catalog.unsound = True
        return None


def understood(catalog: Catalog, path: Path, model: type[M], recorded: str = RECORDED) -> M:
    """A YAML or JSON file as `model`; a `CatalogError` with all its faults. `recorded`: who writes the file."""
    faults: Iterable[tuple[Keys | int, str, str]]
    try:
        if path.is_symlink():
            raise CatalogError([_link(catalog, path)])
        found = _understood(catalog.text(path), path.suffix == ".json", model)
        assert isinstance(found, model)
        return found
    except FileNotFoundError:
        faults = [((), "the file is missing", "`readyonce new ID` makes every file an incident needs.")]
    except json.JSONDecodeError as error:
        faults = [(error.lineno, f"not JSON: {error.msg}", recorded)]
    except yaml.YAMLError as error:
        faults = [explain_yaml(error)]
    except ValidationError as error:
        faults = explained(error.errors())
    except (ValueError, RecursionError) as error:  # numbers of 5000 digits, lists in 5000 lists
        faults = [(1, f"not JSON that can be read: {error}", recorded)]
    raise CatalogError([catalog.problem(path, *fault) for fault in faults])


def understood_all(catalog: Catalog, paths: Iterable[Path], model: type[M]) -> dict[str, M]:
    """Files of one kind by their names; a `CatalogError` with the faults of all."""
    found: dict[str, M] = {}
    faults: list[Problem] = []
    for path in sorted(paths):
        try:
            found[path.stem] = understood(catalog, path, model)
        except CatalogError as error:
            faults += error.problems
    if faults:
        raise CatalogError(faults)
    return found


# What is loaded again, by `serve` or of another day, is mostly what it was. Models cannot be changed.
@lru_cache(1 << 14)
def _understood(text: str, is_json: bool, model: type[BaseModel]) -> BaseModel:
    return model.model_validate(json.loads(text) if is_json else _yaml(text))


_yaml = kept.kept(parse_yaml)


def read_all(catalog: Catalog, path: Path, model: type[T]) -> dict[str, T]:
    """Read a file that maps names to things of one kind."""
    whole = read(catalog, path, RootModel[dict[str, model]])  # type: ignore[valid-type]  # made while it runs
    return whole.root if whole else {}


def _add(catalog: Catalog, path: Path, where: Keys | int, what: str, remedy: str) -> None:
    catalog.problems.append(catalog.problem(path, where, what, remedy))


def _link(catalog: Catalog, path: Path) -> Problem:
    folder = path.relative_to(catalog.root).parts[0]
    return catalog.problem(path, 1, f"a symbolic link under {folder}/", "Put the file itself there.")
