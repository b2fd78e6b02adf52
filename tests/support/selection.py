"""What is run: all that a change since the base calls for, and a sample of the rest that another commit draws otherwise.

`.ci/base` names the last commit that was proven. A submission that starts from a proven commit writes it there; it counts only
once the commit that wrote it is older than a submission can be, so nobody can name his own changes. Where no base is known,
and with ALL=1, everything is run.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import statistics
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from readyonce.data.catalog import Catalog
from readyonce.data.schema import Run
from readyonce.lab.made_from import DECLARED, ENVIRONMENT, FACTS, LAUNCH, WATCHED
from support.project import TESTS

T = TypeVar("T")
BASE = ".ci/base"
LONGEST_SUBMISSION = 3 * 3600  # seconds from its first commit to its last
SAMPLE = 240.0  # seconds of runs in the current environment that each commit draws
OF_LAUNCH = 180.0  # and of those that are otherwise as they were, where the code that starts them changed
OF_COMMANDS = 100.0  # and of frameworks' commands
OF_OLDER = 120.0  # and of repros in older releases
CHANGED_OLDER = 60.0  # seconds of such runs where their evidence changed: more is named and left to `make evidence`
CHANGED_COMMANDS = 100.0  # and of commands
# Of lanes, both workers together: more is called for only where nearly everything changed.
OF_LANES = 2500.0
OF_MINIMAL = 60.0  # of minimal repros, of which each takes
EACH_MINIMAL = 24.0  # seconds: two launches, and one in another setting
CHANGED_MINIMAL = 180.0  # and of those that changed, some of which take 30 seconds more: each setting is launched
INSTALL = 20.0  # seconds that an environment takes
OF_MINIMALS = ("minimal", "settings", "setting_worker")  # the code that launches them
# What tells the pages of a kind apart.
KIND = re.compile(r"RO-\d+|(?<=look-alikes/)[^/]+|(?<=concepts/)[^/]+|(?<=errors/)(?!look-alikes)[^/]+")
PROJECT, LINTERS = "pyproject.toml", ("importlinter", "mypy", "ruff")  # whose tables in it change no test
RUNS, COMMANDS = "tests/runs/test_runs.py", "tests/runs/test_frameworks.py"
OLDER, MINIMAL = "tests/runs/test_environments.py", "tests/runs/test_minimal.py"
START = 15.0  # seconds that a launch takes before it trains
# A change of these calls for no lane: what tests outside of the lanes see to, or nothing rests on. Of all else that no lane
# names it is not known which code rests on it, so every lane is run. Stored runs are not: what they rest on is their address.
ELSEWHERE = [
    "docs/**",
    "snippets/**",
    "README*",
    "LICENSE",
    "SECURITY.md",
    "mkdocs*.yml",
    "biome.jsonc",
    ".gitignore",
    ".ci/base",
    "action.yml",
    ".github/**",
    ".pre-commit-hooks.yaml",
    "scripts/**.py",
    "scripts/readyonce/pages/templates/**",
    "scripts/readyonce/cli/skeleton/**",
    "scripts/readyonce/publish/*.css",
    "scripts/readyonce/pages/schema_docs.zh.yml",
    "scripts/readyonce/data/words.*.yml",
    "scripts/readyonce/diagnose/matching.toml",
    "conftest.py",  # of each lane
    "packages/**",
    "tests/unit/**",
    "tests/whole/**",
    "tests/site/**",
    "tests/browser/**",
    "tests/runs/**",
    "tests/hostile/**",
    "tests/meta/**",
    "tests/book/**",
    "tests/bench/**",
    "tests/cluster/**",
    "tests/support/**",
    "tests/faults/**",
    "tests/logs/**",
    "tests/fuzz/**",
    "tests/wild/**",
    "tests/lint/**",
    "tests/fleet/**",
    "tests/lighthouse/**",
    "tests/*.yml",
    "tests/permalinks.*",
    "tests/README.md",
]


class Unusable(Exception):
    """The base cannot be read: everything can be run, with ALL=1."""


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise Unusable(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def base(root: Path) -> str | None:
    """The last commit of which it is known that it was proven, from the history alone; None where none is.

    $READYONCE_BASE names it where a forge knows it: the tip that a push or a pull request starts from.
    """
    if named := os.environ.get("READYONCE_BASE"):
        if not named.strip("0"):
            return None  # of a branch that is new
        return git(root, "rev-parse", "--verify", f"{named}^{{commit}}").strip()
    if git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
        raise Unusable("this clone is shallow, so the base is not in it: `git fetch --unshallow`, or `make test ALL=1`")
    head = int(git(root, "show", "-s", "--format=%ct", "HEAD"))
    for line in git(root, "log", "--format=%H %ct", "--", BASE).splitlines():
        commit, when = line.split()
        if head - int(when) >= LONGEST_SUBMISSION:
            lines = git(root, "show", f"{commit}:{BASE}").splitlines()
            named = " ".join(line for line in lines if not line.startswith("#"))
            if git(root, "merge-base", named, commit).strip() != named:
                raise Unusable(
                    f"{BASE} of {commit} names {named}, which is no commit before it; write the last that was proven"
                )
            return named
    return None


def drawn(commit: str, names: dict[str, float], budget: float) -> list[str]:
    """Of these names, each with its seconds, the first in an order that the commit decides, until the budget is filled.

    At least one, so that no commit draws nothing."""
    order = list(_in_order(commit, names))
    left = budget - sum(names[name] for name in order[:1])
    return order[:1] + within({name: names[name] for name in order[1:]}, left)


def _in_order(commit: str, names: dict[str, float]) -> dict[str, float]:
    return {name: names[name] for name in sorted(names, key=lambda name: _number(f"{commit} {name}"))}


def within(names: Mapping[T, float], budget: float) -> list[T]:
    """Of these names, each with its seconds, those that fit into the budget, in their order."""
    found, left = [], budget
    for name, seconds in names.items():
        if seconds <= left:
            found.append(name)
            left -= seconds
    return found


@dataclass
class Selection:
    """What a run of the suite selects, and why."""

    root: Path
    head: str
    base: str | None
    changed: list[str] = field(default_factory=list)  # paths that differ from the base

    @classmethod
    def of(cls, root: Path) -> Selection:
        """Of the working tree: committed since the base or not yet."""
        everything = os.environ.get("SELECT") != "changed" or os.environ.get("ALL") or not (root / ".git").exists()
        found = None if everything else base(root)
        head = "" if everything else git(root, "rev-parse", "HEAD").strip()
        if not found:
            return cls(root, head, None)
        changed = git(root, "diff", "--name-only", "--no-renames", found).splitlines()
        return cls(root, head, found, changed + git(root, "ls-files", "--others", "--exclude-standard").splitlines())

    @cached_property
    def lanes(self) -> dict[str, dict[str, Any]]:
        lanes: dict[str, dict[str, Any]] = yaml.safe_load((self.root / "tests/lanes.yml").read_text(encoding="utf-8"))
        return lanes

    @cached_property
    def lane_of(self) -> dict[str, str]:
        """Each file of tests that is in a lane, from the root → its lane."""
        return {test: name for name, lane in self.lanes.items() for test in lane["tests"]} | {
            RUNS: "stored runs",
            COMMANDS: "commands",
            OLDER: "older releases",
            MINIMAL: "minimal repros",
        }

    @property
    def whole(self) -> str:
        """Why everything is run; empty where it is not."""
        if self.base is not None:
            return ""
        return "ALL=1 was given" if os.environ.get("ALL") else "no base is known"

    @cached_property
    def unknown(self) -> list[str]:
        """What changed and is of no lane, nor of what tests outside of all lanes see to: it calls for every lane."""
        unknown = [path for path in self.changed if not _matches(path, ELSEWHERE)]
        return [path for path in unknown if path != PROJECT or self._is_another_project()]

    def _is_another_project(self) -> bool:
        """Whether pyproject.toml says another thing than what `make lint` reads, which always runs."""
        now = tomllib.loads((self.root / PROJECT).read_text(encoding="utf-8"))
        then = tomllib.loads(git(self.root, "show", f"{self.base}:{PROJECT}"))
        for of_linters in (now, then):
            of_linters["tool"] = {name: table for name, table in of_linters["tool"].items() if name not in LINTERS}
        return now != then

    @cached_property
    def why(self) -> dict[str, str]:
        """Each lane that is run → the first change that calls for it: what the budget has room for, in an order that the commit
        draws, so that another commit runs what this one leaves."""
        seconds = {name: float(self.lanes[name]["seconds"]) for name in self.called}
        fits = within(_in_order(self.head, seconds), OF_LANES)
        return {name: reason for name, reason in self.called.items() if name in fits}

    @cached_property
    def called(self) -> dict[str, str]:
        """Each lane that a change calls for → the first change that does."""
        import grimp

        graph = grimp.build_graph("readyonce", exclude_type_checking_imports=True, cache_dir=None)
        found = {}
        for name, lane in self.lanes.items():
            if lane.get("seldom"):
                continue
            tests = [TESTS.parent / test for test in lane["tests"]]
            modules = {f"readyonce.{module}" for module in lane["modules"]}
            modules |= {upstream for module in modules for upstream in graph.find_upstream_modules(module)}
            files = {
                f"scripts/{module.replace('.', '/')}{end}" for module in modules for end in (".py", "/__init__.py")
            }
            shared = {os.path.relpath(path, TESTS.parent) for test in tests for path in (test, *shared_by(test))}
            wanted = ["conftest.py", *shared, *files, *lane["files"]]
            if reason := next((path for path in self.changed if _matches(path, wanted)), None):
                found[name] = reason
            elif self.unknown:
                found[name] = f"{self.unknown[0]}, of which it is not known what rests on it"
        return found

    @cached_property
    def evidence(self) -> dict[tuple[str, str], set[str]]:
        """(incident, environment) → what its stored runs are not as at the base: inputs by their names, or `*`, all of them."""
        found = {}
        for path in self.changed:
            if fnmatchcase(path, "snippets/RO-*/evidence/*.json") and (self.root / path).is_file():
                _, id, _, record = path.split("/")
                differ = _difference(json.loads((self.root / path).read_bytes()), self._at_base(path))
                found[id, record.removesuffix(".json")] = differ
        return found

    def runs(self, known: Catalog) -> dict[tuple[str, str], str]:
        """(incident, script) of the repros that are run in the current environment → why."""
        seconds, found, launched = {}, {}, {}
        for incident in known.incidents.values():
            by_script: dict[str, list[Run]] = {}
            for run in incident.evidence["current"].runs if "current" in incident.evidence else ():
                by_script.setdefault(incident.variants[run.variant].script, []).append(run)
            for script, of_script in by_script.items():
                seconds[f"{incident.id} {script}"] = START + sum(run.seconds for run in of_script)
                needed = incident.needed_by(incident.variants[run.variant] for run in of_script)
                differ = self.evidence.get((incident.id, "current"), set())
                if differ & {"*", *(path.name for path in needed)}:
                    found[incident.id, script] = "its evidence changed"
                elif LAUNCH in differ:
                    launched[f"{incident.id} {script}"] = seconds[f"{incident.id} {script}"]
        for name in within(_in_order(self.head, launched), OF_LAUNCH):
            id, script = name.split()
            found[id, script] = "what starts it changed"
        for name in drawn(self.head, seconds, SAMPLE):
            id, script = name.split()
            found.setdefault((id, script), "drawn")
        return found

    def commands(self, known: Catalog, groups: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Of these (incident, environment) those whose frameworks' commands are run. What is drawn shares an environment: to
        install it costs more than to run them."""
        groups = sorted(set(groups))
        changed = {
            (id, name): START + sum(run.seconds for run in known.incidents[id].evidence[name].runs)
            for id, name in groups
            if self.evidence.get((id, name), set()) - {LAUNCH}
        }
        chosen = set(within(changed, CHANGED_COMMANDS))
        for environment in drawn(self.head, dict.fromkeys((name for _, name in groups), OF_COMMANDS), OF_COMMANDS):
            runs = {id: known.incidents[id].evidence[environment].runs for id, name in groups if name == environment}
            seconds = {id: START + statistics.mean(run.seconds for run in of_id) for id, of_id in runs.items()}
            chosen |= {(id, environment) for id in drawn(self.head, seconds, OF_COMMANDS)}
        return chosen

    def older(self, known: Catalog, groups: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Of these (incident, environment) those whose repros are run: what changed, in a fixed order as far as the budget goes,
        and one that is drawn."""
        seconds = {}
        for id, environment in sorted(set(groups)):
            runs = known.incidents[id].evidence[environment].runs
            repros = [run for run in runs if not known.incidents[id].variants[run.variant].is_command]
            seconds[f"{id} {environment}"] = INSTALL + START + sum(run.seconds for run in repros)
        groups = {name: tuple(name.split()) for name in seconds}
        changed = {name: seconds[name] for name in seconds if self.evidence.get(groups[name], set()) - {LAUNCH}}
        return {groups[name] for name in (*within(changed, CHANGED_OLDER), *drawn(self.head, seconds, OF_OLDER))}

    def minimal(self, ids: Iterable[str]) -> set[str]:
        """Of these incidents those whose minimal repro is launched: what changed, as far as the budget goes, and what is drawn."""
        ids = list(ids)
        changed = {
            id for id in ids if _matches_any(self.changed, [f"snippets/{id}/{it}.*" for it in ("minimal", "settings")])
        }
        if _matches_any(self.changed, [*(f"scripts/readyonce/lab/{it}.py" for it in OF_MINIMALS), MINIMAL]):
            changed = set(ids)
        fits = within(_in_order(self.head, dict.fromkeys(changed, EACH_MINIMAL)), CHANGED_MINIMAL)
        return {*fits, *drawn(self.head, dict.fromkeys(ids, EACH_MINIMAL), OF_MINIMAL)}

    def some(self, names: Sequence[T], files: Sequence[str]) -> list[T]:
        """All of these where everything is run, or where one of the files that tell of them changed; else one that the commit
        draws."""
        if self.whole or _matches_any(self.changed, files):
            return list(names)
        return [names[_number(self.head) % len(names)]]

    def pages(self, names: Iterable[str], length: Callable[[str], int]) -> list[str]:
        """The pages that a browser opens: of each kind and language the longest, of the others an eighth that the commit draws."""
        names = list(names)
        if self.whole:
            return names
        kinds: dict[str, list[str]] = {}
        for name in names:
            kinds.setdefault(KIND.sub("", name), []).append(name)
        longest = {max(of_kind, key=lambda name: (length(name), name)) for of_kind in kinds.values()}
        return [name for name in names if name in longest or _number(f"{self.head} {name}") % 8 == 0]

    def _at_base(self, path: str) -> dict[str, Any]:
        try:
            stored: dict[str, Any] = json.loads(git(self.root, "show", f"{self.base}:{path}"))
        except Unusable:  # it is new
            return {"runs": []}
        return stored


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def _difference(now: dict[str, Any], before: dict[str, Any]) -> set[str]:
    """The inputs that are others, by their names; `*` where all runs are: what is run, and where, or a run by hand."""
    stored, then = now.get("made_from") or {}, before.get("made_from") or {}
    differ = {name for name in {**stored, **then} if stored.get(name) != then.get(name)} - {FACTS, WATCHED}
    runs, earlier = ({run["variant"]: run | {"facts": 0, "guard": 0} for run in file["runs"]} for file in (now, before))
    if differ & {ENVIRONMENT, DECLARED} or any(earlier.get(name) != run for name, run in runs.items()):
        return {"*"}
    return differ


def imported(path: Path) -> set[str]:
    """What a file of Python imports: modules, and what it takes from them, by their whole names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def shared_by(path: Path) -> set[Path]:
    """The files of tests/support/ that a test imports, and those that they import."""
    found, left = set[Path](), {path}
    while left:
        names = {name.split(".")[1] for each in left for name in imported(each) if name.startswith("support.")}
        left = {file for name in names if (file := TESTS / "support" / f"{name}.py").is_file()} - found
        found |= left
    return found


def choose(
    items: list[pytest.Item], selection: Selection, known: Catalog
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that are run, and the others."""
    if selection.whole:
        return items, []
    repros = selection.runs(known)
    commands = selection.commands(
        known, (group for item in items if (group := _group(known, item)) and file_of(item) == COMMANDS)
    )
    older = selection.older(
        known, (group for item in items if (group := _group(known, item)) and file_of(item) == OLDER)
    )
    minimal = selection.minimal(
        dict.fromkeys(group[0] for item in items if (group := _group(known, item)) and file_of(item) == MINIMAL)
    )
    wanted = {RUNS: repros.keys(), COMMANDS: commands, OLDER: older, MINIMAL: {(id, MINIMAL) for id in minimal}}

    def is_wanted(item: pytest.Item) -> bool:
        file, group = file_of(item), _group(known, item)
        if file in wanted:
            return group is None or group in wanted[file]
        return selection.lane_of.get(file) in (None, *selection.why)

    chosen = [item for item in items if is_wanted(item)]
    launched = {_group(known, item) for item in chosen if file_of(item) == RUNS}
    if RUNS in map(file_of, items) and (left := repros.keys() - launched):
        raise pytest.UsageError(f"nothing runs {sorted(left)}, whose evidence changed or was drawn")
    return chosen, [item for item in items if not is_wanted(item)]


def _group(known: Catalog, item: pytest.Item) -> tuple[str, str] | None:
    """What is launched for a test together: of an incident a script, or the commands in an environment; None for none."""
    if not hasattr(item, "callspec"):
        return None
    given: Mapping[str, str] = item.callspec.params
    if file_of(item) == RUNS:
        return given["incident"], known.incidents[given["incident"]].variants[given["variant"]].script
    if file_of(item) == MINIMAL:
        return given["incident"], MINIMAL
    return (given["incident"], given["environment"]) if file_of(item) in (COMMANDS, OLDER) else None


def file_of(item: pytest.Item) -> str:
    """From the project's root."""
    return os.path.relpath(item.path, TESTS.parent)


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern.replace("**", "*")) for pattern in patterns)


def _matches_any(paths: Iterable[str], patterns: Sequence[str]) -> bool:
    return any(_matches(path, patterns) for path in paths)


def summary(selection: Selection, known: Catalog, durations: Iterable[tuple[str, float]]) -> list[str]:
    """A table: each lane, how many tests of it were run in how many seconds, and why; then what was not run."""
    if selection.whole:
        return [f"Everything was run: {selection.whole}."]
    durations, ran = list(durations), dict[str, list[float]]()
    for node, seconds in durations:
        ran.setdefault(selection.lane_of.get(node.partition("::")[0], "always"), []).append(seconds)
    repros = selection.runs(known)
    why = {"always": "at each commit", "stored runs": ", ".join(" ".join(run) for run in repros)} | selection.why
    rows = [f"{len(selection.changed)} files changed since {selection.base}, the last commit that was proven."]
    rows += [
        f"{name:12}{len(it):>6} tests {sum(it):>6.0f} s  {why.get(name, 'drawn')}" for name, it in sorted(ran.items())
    ]
    seldom = [name for name, lane in selection.lanes.items() if lane.get("seldom")]
    if left := [name for name in selection.called if name not in selection.why]:
        rows.append(
            f"Not run, though something of theirs changed, since the others fill the budget: {', '.join(left)}."
        )
    if unchanged := [name for name in selection.lanes if name not in (*selection.called, *seldom)]:
        rows.append(f"Not run, since nothing of theirs changed: {', '.join(unchanged)}.")
    rows.append(f"Not run, since they take long: {', '.join(seldom)}. `make test ALL=1` runs everything.")
    of_commands = {
        (id, environment)
        for id, incident in known.incidents.items()
        for environment in incident.current
        if any(incident.variants[run.variant].is_command for run in incident.evidence[environment].runs)
    }
    ran_commands = (
        selection.commands(known, of_commands) if any(node.startswith(COMMANDS) for node, _ in durations) else ()
    )
    for (id, environment), differ in selection.evidence.items():
        again = any(node.startswith(OLDER) and f"[{id}@{environment}]" in node for node, _ in durations)
        again |= (id, environment) in ran_commands
        if (
            differ
            and not again
            and ((id, environment) in of_commands or environment not in known.incidents[id].current)
        ):
            how = f"`make test-frameworks` runs some, `readyonce verify {id} --environment {environment}` all of it"
            rows.append(f"Stored anew and not run in this part: {id} in {environment}. {how}.")
    return rows
