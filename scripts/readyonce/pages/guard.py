"""The guard's tables: what it said of every run, of every change of a right loop, and what it costs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BaseModel, RootModel, StringConstraints, model_validator

from readyonce.data import links, words
from readyonce.data.catalog import Catalog, Incident, understood
from readyonce.data.links import run_address
from readyonce.data.markup import NO_BREAK_HYPHEN, table
from readyonce.data.project import Language
from readyonce.data.schema import GUARD, SILENT, Guard, Model, NonEmpty, Outcome, Run, Text
from readyonce.data.words import say

FOLDER, SCRIPT = GUARD.rsplit("/", 1)
COMPARE = "readyonce_compare.py"  # beside it: compares a training with one process
NO_SITE = '"READYONCE_SITE", ""'
ENVIRONMENT = "current"  # where the guard is run over everything

STRATEGIES = {"ddp": "DDP", "zero-3": "ZeRO-3", "fsdp2": "FSDP2"}
PRECISIONS = ("float32", "tf32", "bf16 autocast", "bf16")  # as packages/guard/bench/noise.py calls them


RECORDED = "A program below packages/guard/ writes it: run that, or take the file back from Git."

RunName = Annotated[str, StringConstraints(pattern=r"^RO-[0-9]{4}/[^\s/]+$")]
ScriptRun = Annotated[str, StringConstraints(pattern=r"^\S+ \S+$")]  # a file and a variant


class Recorded(Guard):
    """A command's run behind the guard, of `commands.json`."""

    exit: int
    watching: str | None
    removed: bool
    seconds: float | None = None


class Commands(Model):
    runs: dict[Annotated[str, StringConstraints(pattern=r"^\S.* \S+$")], Recorded]  # a run, and its environment


class Loop(Guard):
    """A changed loop, of `faults.json`."""

    loop: NonEmpty
    off: float | None
    spread: float | None
    outcome: Outcome
    error: str | None = None
    wrong: bool
    missed: NonEmpty | None

    @model_validator(mode="after")
    def _says_why(self) -> Loop:
        if self.wrong and not self.codes and f"guard-missed.{self.missed}" not in words.of("en"):
            raise ValueError("it is wrong and not flagged, and `missed` is none of the reasons in words.en.yml")
        return self


class OnGpu(Model):
    torch: NonEmpty
    device: NonEmpty
    loops: dict[str, Guard]


class Faults(Model):
    torch: NonEmpty
    loops: dict[NonEmpty, Loop]
    gpu: OnGpu | None = None

    @model_validator(mode="after")
    def _the_same_loops(self) -> Faults:
        if self.gpu and (other := self.gpu.loops.keys() - self.loops.keys()):
            raise ValueError(f"on a GPU ran what did not run on CPU: {', '.join(sorted(other))}")
        return self


class CostRow(Model):
    strategy: Literal["ddp", "zero-3", "fsdp2"]
    size: NonEmpty
    step_ms: float
    hooks: float
    all: float
    comparison_ms: float
    after: float
    spread: float
    sent_bytes: int
    memory_bytes: int
    left: bool


class Cost(Model):
    torch: NonEmpty
    device: NonEmpty
    processes: int
    rows: list[CostRow]


class NoiseRow(Model):
    precision: Literal["float32", "tf32", "bf16 autocast", "bf16"]
    setting: Literal["non-reentrant", "reentrant, repeated"]
    difference: tuple[float, float]
    two_replays: float
    runs: int


class Noise(Model):
    torch: NonEmpty
    device: NonEmpty
    processes: int
    rows: list[NoiseRow]


class Result(Model):
    outcome: NonEmpty
    says: list[str]


class Others(Model):
    """`others.json`: how each run ends without a check, and with each what differs from that."""

    torch: NonEmpty
    right: list[ScriptRun]
    checks: dict[NonEmpty, dict[ScriptRun, Result]]

    @model_validator(mode="after")
    def _compared(self) -> Others:
        plain = self.checks.get("none")
        if plain is None:
            raise ValueError("`checks` has no `none`, with which the others are compared")
        if strange := [name for name in self.right if name not in plain]:
            raise ValueError(f"{strange[0]} is said to train right, and is no run without a check")
        files = {name.split()[0] for name in self.right}
        if strange := [name for check in self.checks.values() for name in check if name.split()[0] not in files]:
            raise ValueError(f"of the file of {strange[0]} no run is said to train right")
        return self


class Invariants(Model):
    """Of a run in `traincheck.json`: what was learned and violated, or why it cannot be used."""

    unusable: NonEmpty | None = None
    learned_from: NonEmpty | None = None
    held_out: NonEmpty | None = None
    invariants: int = 0
    violated: int = 0
    held_out_violated: int = 0
    only: int = 0
    equal_parameters: bool = False
    seconds: dict[str, int] = {}

    @model_validator(mode="after")
    def _whole(self) -> Invariants:
        whole = set(type(self).model_fields) - {"unusable"}
        if not self.unusable and (missing := whole - self.model_fields_set):
            raise ValueError(f"neither `unusable` nor {', '.join(sorted(missing))}")
        return self


class TrainCheck(Model):
    traincheck: NonEmpty
    torch: NonEmpty
    style: NonEmpty
    runs: dict[ScriptRun, Invariants]


class Costs(RootModel[list[Cost]]):
    pass


class Noises(RootModel[list[Noise]]):
    pass


class Reasons(RootModel[dict[RunName, Text] | None]):
    pass


class Compared(Model):
    """What was said of a training program, of `compare.json`; no numbers where the program could not be compared."""

    says: Literal["alike", "different", "not compared"]
    distance: float | None = None
    ratio: float | None = None
    cosine: float | None = None
    noise: float | None = None
    worst: NonEmpty | None = None
    why: NonEmpty | None = None


class Comparisons(Model):
    torch: NonEmpty
    loops: dict[NonEmpty, Compared]


class ComparedRuns(Model):
    """`compare_runs.json`: what was said of this site's own runs, by `incident/variant environment`."""

    torch: NonEmpty
    runs: dict[NonEmpty, Compared]


STORED: dict[str, type[BaseModel]] = {
    "compare.json": Comparisons,
    "compare_runs.json": ComparedRuns,
    "faults.json": Faults,
    "cost.json": Costs,
    "others.json": Others,
    "traincheck.json": TrainCheck,
    "commands.json": Commands,
    "noise.json": Noises,
    "exceptions.yml": Reasons,
    "missed.yml": Reasons,
}


def stored(catalog: Catalog, name: str) -> Any:
    """What a file holds, as plain values; None where there is no file. Raises `CatalogError` where it cannot be read."""
    path = catalog.root / FOLDER / name
    if not path.is_file():
        return None
    return understood(catalog, path, STORED[name], RECORDED).model_dump()


def includes(catalog: Catalog, language: Language) -> dict[str, str]:
    made = {"guard/confusion.md": confusion(catalog, language), "guard/flagged.md": flagged(catalog, language)}
    made["guard/exceptions.md"] = excepted(catalog, language)
    made["guard/missed.md"] = missed(catalog, language)
    if found := stored(catalog, "faults.json"):
        loops = found["loops"]
        made |= {"guard/faults.md": faults(loops, language), "guard/faults-count.md": faults_count(loops, language)}
        if found["gpu"]:
            made["guard/faults-gpu.md"] = faults_on_gpu(loops, found["gpu"], language)
    if (runs := stored(catalog, "cost.json")) is not None:
        for name, on_cpu in (("cost", True), ("cost-gpu", False)):
            made[f"guard/{name}.md"] = cost(
                [run for run in runs if run["device"].startswith("cpu") == on_cpu], language
            )
    if found := stored(catalog, "others.json"):
        made["guard/others.md"] = others(found["checks"], found["right"], language)
    if found := stored(catalog, "traincheck.json"):
        made["guard/traincheck.md"] = traincheck(found["runs"], language)
    own = (stored(catalog, "compare_runs.json") or {"runs": {}})["runs"]
    made["guard/compare-runs.md"] = compared_runs(catalog, own, language)
    if found := stored(catalog, "commands.json"):
        runs = found["runs"]
        made["guard/commands.md"] = commands(catalog, runs, language)
        made["guard/releases.md"] = releases(catalog, runs, language)
        made["guard/watched.md"] = sentence(catalog, runs, told_silent(catalog, own), language)
    if (runs := stored(catalog, "noise.json")) is not None:
        made["guard/noise.md"] = noise(runs, language)
    if found := stored(catalog, "compare.json"):
        made["guard/compare.md"] = compared(found["loops"], language)
    return made


def files(catalog: Catalog) -> dict[str, str]:
    """What a reader takes from the guard's pages: the scripts, where the project has them."""
    paths = [catalog.root / FOLDER / name for name in (SCRIPT, COMPARE)]
    # Where the wiki has an address, what the guard prints in somebody's log leads there.
    site = f'"READYONCE_SITE", "{links.site_url()}"'
    return {path.name: catalog.text(path).replace(NO_SITE, site) for path in paths if path.is_file()}


def watched(catalog: Catalog) -> Iterator[tuple[Incident, Run]]:
    """Every run that the guard was with."""
    for incident in catalog.incidents.values():
        evidence = incident.evidence.get(ENVIRONMENT)
        yield from ((incident, run) for run in (evidence.runs if evidence else ()) if run.guard)


def exceptions(catalog: Catalog) -> dict[str, dict[Language, str]]:
    return stored(catalog, "exceptions.yml") or {}


def let_through(catalog: Catalog) -> dict[str, dict[Language, str]]:
    """The silent runs that it cannot see, `RO-0001/VARIANT` or `RO-0001/*`, each with the reason."""
    return stored(catalog, "missed.yml") or {}


def unflagged(catalog: Catalog, pattern: str = "*") -> list[tuple[Incident, Run]]:
    """The silent runs, in every environment, that it was with and said nothing of."""
    return [
        (incident, run)
        for incident in catalog.incidents.values()
        for evidence in incident.evidence.values()
        for run in evidence.runs
        if run.outcome in SILENT
        and run.guard
        and not run.guard.codes
        and fnmatchcase(f"{incident.id}/{run.variant}", pattern)
    ]


def missed(catalog: Catalog, language: Language) -> str:
    rows = [[say(f"guard.{key}", language) for key in ("unseen", "number", "why")]]
    for pattern, reason in let_through(catalog).items():
        id, _, variant = pattern.partition("/")
        name = f"[{id}](incidents/{id}.md)" if variant == "*" else f"[{id}](incidents/{id}.md) `{variant}`"
        rows.append([name, str(len(unflagged(catalog, pattern))), reason[language]])
    return table(rows)


def confusion(catalog: Catalog, language: Language) -> str:
    rows = [[say(f"guard.{key}", language) for key in ("outcome", "runs", "flagged")]]
    counted = Counter(
        ("silent" if r.outcome in SILENT else r.outcome, bool(r.guard and r.guard.codes)) for _, r in watched(catalog)
    )
    for outcome in ("silent", "match", "error"):
        of = counted[outcome, True]
        rows.append([say(f"guard.{outcome}", language), str(of + counted[outcome, False]), str(of)])
    return table(rows)


def flagged(catalog: Catalog, language: Language) -> str:
    rows = [[say(f"guard.{key}", language) for key in ("run", "alone", "codes", "step")]]
    for incident, run in watched(catalog):
        if (guard := run.guard) and guard.codes:
            target = "incidents/" + run_address(incident.id, run.variant, ENVIRONMENT)
            codes = " ".join(f"`{code}`" for code in dict.fromkeys(guard.codes))
            outcome = say(run.outcome, language)
            step = "" if guard.step is None else str(guard.step + 1)
            rows.append([f"[{incident.id} `{run.variant}`]({target})", outcome, codes, step])
    return table(rows)


def excepted(catalog: Catalog, language: Language) -> str:
    rows = [[say(f"guard.{key}", language) for key in ("run", "reason")]]
    for name, reason in exceptions(catalog).items():
        id, _, variant = name.partition("/")
        rows.append([f"[{id} `{variant}`](incidents/{run_address(id, variant, ENVIRONMENT)})", reason[language]])
    return table(rows)


def compared(loops: dict[str, Any], language: Language) -> str:
    measures = ("distance", "ratio", "cosine", "noise")
    rows = [[say(f"guard.{key}", language) for key in ("loop", "change", "compared", *measures)]]
    for name, loop in loops.items():
        kind, _, change = name.partition(" ")
        numbers = [_digits(loop[key]) for key in measures]
        rows.append([f"`{kind}`", change and f"`{change}`", say(f"guard.{loop['says']}", language), *numbers])
    return table(rows)


def _kinds(catalog: Catalog, runs: dict[str, Any]) -> dict[str, dict[str, list[tuple[bool, bool]]]]:
    """Incident → kind of run → of each that was compared: was its gradient said to be different, and does the guard flag it?

    A run may train right by another objective than the stated one: then a difference is right too.
    """
    found: dict[str, dict[str, list[tuple[bool, bool]]]] = {}
    for name, told in runs.items():
        run, _, environment = name.partition(" ")
        id, _, variant = run.partition("/")
        incident = catalog.incidents.get(id)
        evidence = incident.evidence.get(environment) if incident else None
        kept = evidence.by_variant.get(variant) if evidence else None
        if kept is None:
            continue  # a catalog of its own, which has other incidents
        right = "right" if kept.facts.get("reference", "right") == "right" else "objective"
        kind = "silent" if kept.outcome in SILENT else right
        if told["says"] != "not compared":
            told_by = told["says"] == "different", bool(kept.guard and kept.guard.codes)
            found.setdefault(id, {}).setdefault(kind, []).append(told_by)
    return found


def _tells(kinds: dict[str, list[tuple[bool, bool]]]) -> bool:
    """Whether a difference tells a wrong run of an incident: of its right runs most are alike."""
    right = kinds.get("right", [])
    return sum(different for different, _ in right) * 2 < len(right)


def compared_runs(catalog: Catalog, runs: dict[str, Any], language: Language) -> str:
    rows = [[say(f"guard.{key}", language) for key in ("incident", "runs-silent", "runs-right", "runs-objective")]]
    for id, kinds in sorted(_kinds(catalog, runs).items()):
        found = (kinds.get(kind, []) for kind in ("silent", "right", "objective"))
        counts = ((sum(different for different, _ in it), len(it)) for it in found)
        cells = [say("guard.of", language, *count) if count[1] else "" for count in counts]
        rows.append([f"[{id}](incidents/{id}.md)", *cells])
    return table(rows)


def told_silent(catalog: Catalog, runs: dict[str, Any]) -> int:
    """How many silent runs the comparison tells and the guard does not, of those incidents of which it tells anything."""
    telling = (kinds.get("silent", []) for kinds in _kinds(catalog, runs).values() if _tells(kinds))
    return sum(different and not flagged for told in telling for different, flagged in told)


def _digits(number: float | None) -> str:
    """To read, and in one line; nothing where nothing could be compared."""
    return "" if number is None else f"{number:{'.2g' if abs(number) < 0.1 else '.4g'}}".replace("-", NO_BREAK_HYPHEN)


def faults_count(loops: dict[str, Any], language: Language) -> str:
    rows = [[say(f"guard.{key}", language) for key in ("changes", "number", "flagged")]]
    for key, wrong in (("wrong", True), ("harmless", False)):
        those = [loop for loop in loops.values() if loop["wrong"] == wrong]
        rows.append([say(f"guard.{key}", language), str(len(those)), str(sum(bool(loop["codes"]) for loop in those))])
    return table(rows)


def faults(loops: dict[str, Any], language: Language) -> str:
    rows = [[say(f"guard.{key}", language) for key in ("change", "loop", "alone", "codes", "step")]]
    for name, loop in loops.items():
        if loop["wrong"]:
            codes = " ".join(f"`{code}`" for code in loop["codes"])
            if not codes:
                codes = say("guard.missed", language, say(f"guard-missed.{loop['missed']}", language))
            step = "" if loop["step"] is None else str(loop["step"] + 1)
            rows.append([f"`{name}`", loop["loop"], say(f"guard.{loop['outcome']}", language), codes, step])
    return table(rows)


def faults_on_gpu(loops: dict[str, Any], gpu: dict[str, Any], language: Language) -> str:
    """In how many of the loops it said on a GPU what it says on CPU, before the same step."""
    same = sum(all(on_gpu[key] == loops[name][key] for key in on_gpu) for name, on_gpu in gpu["loops"].items())
    return say("guard.on-gpu", language, device=gpu["device"], torch=gpu["torch"], number=len(gpu["loops"]), same=same)


def cost(runs: list[dict[str, Any]], language: Language) -> str:
    """The medians of the bench's runs."""
    columns = ("strategy", "size", "runs", "alone-ms", "hooks", "all", "after")
    rows = [[say(f"guard.{key}", language) for key in columns]]
    by_model: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in (row for run in runs for row in run["rows"]):
        by_model.setdefault((row["strategy"], row["size"]), []).append(row)
    for (strategy, size), same in by_model.items():
        median = {key: statistics.median(row[key] for row in same) for key in ("step_ms", "hooks", "all", "after")}
        shares = [f"{100 * median[key]:+.1f} %" for key in ("hooks", "all", "after")]
        rows.append([STRATEGIES[strategy], size, str(len(same)), f"{median['step_ms']:.0f} ms", *shares])
    return table(rows)


def others(checks: dict[str, Any], right: list[str], language: Language) -> str:
    """What each other check makes of the silent runs. `right`: runs that train right, one of each file and strategy."""
    rows = [[say(f"guard.{key}", language) for key in ("check", "stopped", "told", "right")]]
    plain = checks["none"]
    for check, differs in checks.items():
        if check == "none":
            continue
        results = plain | differs
        silent = {name: result for name, result in results.items() if name not in right}
        also: dict[str, set[str]] = {}  # said of a right run of the same file, it tells nothing apart
        for name in right:
            also.setdefault(name.split()[0], set()).update(results[name]["says"])
        stopped = sum(result["outcome"].startswith("stopped") for result in silent.values())
        crashed = sum(result["outcome"].startswith(("crashed", "not asked")) for result in silent.values())
        spoke = stopped + sum(
            result["outcome"] in SILENT and not set(result["says"]) <= also[name.split()[0]]
            for name, result in silent.items()
        )
        finished = sum(results[name]["outcome"] == "match" for name in right)
        unfinished = say("guard.unfinished", language, crashed) if crashed else ""
        name = say("guard.guard", language) if check == "the guard" else f"`{check}`"
        rows.append([name, f"{stopped} / {len(silent)}{unfinished}", str(spoke), f"{finished} / {len(right)}"])
    return table(rows)


def traincheck(runs: dict[str, Any], language: Language) -> str:
    """The invariants that a silent run violates, of those learned from a right one; a second right run was held out."""
    rows = [
        [
            say(f"guard.{key}", language)
            for key in ("silent-run", "invariants", "violated", "also-right", "only", "ranks-differ")
        ]
    ]
    for name, run in runs.items():
        file, variant = name.split()
        if run["unusable"]:
            rows.append([f"{file}<br>`{variant}`", say("guard.unusable", language, run["unusable"]), *[""] * 4])
            continue
        numbers = [run["invariants"], run["violated"], run["held_out_violated"], run["only"]]
        equal = say("guard.yes" if run["equal_parameters"] else "guard.no", language)
        rows.append([f"{file}<br>`{variant}`", *(f"{number:,}" for number in numbers), equal])
    return table(rows)


def silent(catalog: Catalog, commands: dict[str, Any]) -> dict[str, list[tuple[bool, bool | None]]]:
    """environment → of each silent run: whether it is a framework's command, whether it was flagged; None: not watched."""
    found: dict[str, list[tuple[bool, bool | None]]] = {}
    for incident in catalog.incidents.values():
        for environment, evidence in incident.evidence.items():
            for run in evidence.runs:
                if run.outcome in SILENT:
                    record = commands.get(f"{incident.id}/{run.variant} {environment}")
                    codes = record["codes"] if record else run.guard.codes if run.guard else None
                    flagged = None if codes is None else bool(codes)
                    found.setdefault(environment, []).append((incident.variants[run.variant].is_command, flagged))
    return found


def releases(catalog: Catalog, commands: dict[str, Any], language: Language) -> str:
    rows = [[say(f"guard.{key}", language) for key in ("with", "silent-runs", "with-guard", "flagged")]]
    for environment, runs in sorted(silent(catalog, commands).items()):
        watched = [flagged for _, flagged in runs if flagged is not None]
        rows.append([environment, str(len(runs)), str(len(watched)), str(sum(watched))])
    return table(rows)


def sentence(catalog: Catalog, commands: dict[str, Any], compared: int, language: Language) -> str:
    runs = [run for runs in silent(catalog, commands).values() for run in runs]
    watched = [(is_command, flagged) for is_command, flagged in runs if flagged is not None]
    flagged = sum(flag for _, flag in watched)
    told = say(
        "guard.watched",
        language,
        silent=len(runs),
        watched=len(watched),
        commands=sum(is_command for is_command, _ in watched),
        flagged=say("guard.flagged-all" if flagged == len(watched) else "guard.flagged-some", language, flagged),
    )
    return told + say("guard.watched-more", language, compared) if compared else told


def noise(runs: list[dict[str, Any]], language: Language) -> str:
    """How far `replay` is from the gradient of a right and of a wrong setting, on each device."""
    shown = [[say(f"guard.{key}", language) for key in ("precision", "device", "setting", "off", "two", "runs")]]
    measured = [(run["device"], row) for run in runs for row in run["rows"]]
    for device, row in sorted(measured, key=lambda measurement: PRECISIONS.index(measurement[1]["precision"])):
        low, high = (f"{value:.2g}" for value in row["difference"])
        off = low if low == high else f"{low}–{high}"
        setting = say(f"guard.{row['setting']}", language)
        name = device.upper() if device == "cpu" else device
        shown.append([row["precision"], name, setting, off, f"{row['two_replays']:.2g}", str(row["runs"])])
    return table(shown)


def commands(catalog: Catalog, runs: dict[str, Any], language: Language) -> str:
    """The frameworks' own commands behind the guard's; how each ends without it stands in the evidence."""
    rows = [[say(f"guard.{key}", language) for key in ("command", "with", "alone", "codes", "then")]]
    for name, result in runs.items():
        run, _, environment = name.rpartition(" ")
        id, _, variant = run.partition("/")
        codes = " ".join(f"`{code}`" for code in result["codes"])
        then = say("guard.goes-on" if result["exit"] == 0 else "guard.stops", language, result["step"])
        if id in catalog.incidents:
            ended = say(catalog.incidents[id].evidence[environment].by_variant[variant].outcome, language)
            run = f"[{id} `{variant}`](incidents/{run_address(id, variant, environment)})"
        else:  # a script that nobody compared
            run, ended = f"`{run}`", ""
        rows.append([run, environment, ended, codes, then])
    return table(rows)
