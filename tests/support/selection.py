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
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from readyonce.catalog import Catalog, Incident
from readyonce.made_from import DECLARED, ENVIRONMENT, FACTS, LAUNCH, WATCHED
from readyonce.schema import Run
from support.project import TESTS

BASE = ".ci/base"
LONGEST_SUBMISSION = 3 * 3600  # seconds from its first commit to its last
SAMPLE = 240.0  # seconds of runs in the current environment that each commit draws
OF_COMMANDS = 100.0  # and of frameworks' commands
KIND = re.compile(
    r"RO-\d+|(?<=look-alikes/)[^/]+|(?<=concepts/)[^/]+|(?<=errors/)(?!look-alikes)[^/]+"
)  # what tells pages of a kind apart
RUNS, COMMANDS = "tests/runs/test_runs.py", "tests/runs/test_frameworks.py"
START = 15.0  # seconds that a launch takes before it trains
# A change of these calls for no lane: what tests outside of the lanes see to, or nothing rests on. Of all else that no lane
# names it is not known what rests on it, so everything is run.
ELSEWHERE = (
    *(
        "docs/**",
        "snippets/**",
        "README*",
        "LICENSE",
        "SECURITY.md",
        "mkdocs*.yml",
        "biome.jsonc",
        ".gitignore",
        ".ci/base",
    ),
    *("action.yml", ".github/**", ".pre-commit-hooks.yaml"),
    *(
        "scripts/**.py",
        "scripts/readyonce/pages/templates/**",
        "scripts/readyonce/*.css",
        "scripts/readyonce/keys.zh.yml",
    ),
    *(
        f"tests/{name}/**"
        for name in ("unit", "site", "browser", "runs", "hostile", "meta", "book", "bench", "cluster")
    ),
    *(f"tests/{name}/**" for name in ("support", "faults", "logs", "fuzz", "lint", "fleet", "guard", "lighthouse")),
    *("tests/*.yml", "tests/permalinks.*", "tests/README.md"),
)


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
            named = next(line for line in lines if line and not line.startswith("#"))
            git(root, "merge-base", "--is-ancestor", named, commit)
            return named
    return None


def drawn(commit: str, names: dict[str, float], budget: float) -> list[str]:
    """Of these names, each with its seconds, the first in an order that the commit decides, until the budget is filled.

    At least one, so that no commit draws nothing."""
    found, left = [], budget
    for name in sorted(names, key=lambda name: _number(f"{commit} {name}")):
        if not found or names[name] <= left:
            found.append(name)
            left -= names[name]
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
        return {f"tests/{test}": name for name, lane in self.lanes.items() for test in lane["tests"]} | {
            RUNS: "stored runs",
            COMMANDS: "commands",
        }

    @property
    def whole(self) -> str:
        """Why everything is run; empty where it is not."""
        if self.base is None:
            return "ALL=1 was given" if os.environ.get("ALL") else "no base is known"
        return f"{self.unknown[0]} changed, and what rests on it is not known" if self.unknown else ""

    @cached_property
    def unknown(self) -> list[str]:
        """What changed and is of no lane, nor of what tests outside of all lanes see to: it calls for everything."""
        return [path for path in self.changed if not _matches(path, ELSEWHERE)]

    @cached_property
    def why(self) -> dict[str, str]:
        """Each lane that is run → the first change that calls for it."""
        import grimp

        graph = grimp.build_graph("readyonce", exclude_type_checking_imports=True, cache_dir=None)
        found = {}
        for name, lane in self.lanes.items():
            tests = [f"tests/{test}" for test in lane["tests"]]
            modules = {f"readyonce.{module}" for module in lane["modules"]}
            modules |= {upstream for module in modules for upstream in graph.find_upstream_modules(module)}
            files = [
                f"scripts/{module.replace('.', '/')}{end}" for module in modules for end in (".py", "/__init__.py")
            ]
            shared = [f"tests/support/{module}.py" for module in _supports(self.root, tests)]
            wanted = [*tests, *files, *shared, *lane["files"]]
            if reason := next((path for path in self.changed if _matches(path, wanted)), None):
                found[name] = reason
        return found

    @cached_property
    def evidence(self) -> dict[tuple[str, str], str]:
        """(incident, environment/script) of each stored run that is another one than at the base → why."""
        found = {}
        for path in self.changed:
            parts = path.split("/")
            if fnmatchcase(path, "snippets/RO-*/evidence/*.json") and (self.root / path).is_file():
                now = json.loads((self.root / path).read_bytes())
                before = self._at_base(path)
                for script in _scripts_that_differ(now, before):
                    found[parts[1], f"{parts[3].removesuffix('.json')}/{script}"] = path
        return found

    def runs(self, known: Catalog, environment: str = "current") -> dict[tuple[str, str], str]:
        """(incident, script) of the repros that are run in an environment → why: their evidence is another one, or drawn."""
        seconds = {
            f"{incident.id} {script}": START + sum(run.seconds for run in evidence.runs if _of(incident, run, script))
            for incident in known.incidents.values()
            if (evidence := incident.evidence.get(environment))
            for script in sorted({incident.variants[run.variant].script for run in evidence.runs})
        }
        found = {}
        for name in seconds:
            id, script = name.split()
            changed = [(id, f"{environment}/{of}") for of in ("*", *self._inputs(known, id, script))]
            if path := next((self.evidence[key] for key in changed if key in self.evidence), None):
                found[id, script] = path
        for name in drawn(self.head, seconds, SAMPLE):
            id, script = name.split()
            found.setdefault((id, script), "drawn")
        return found

    def commands(self, known: Catalog, named: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Of these (incident, environment) those whose frameworks' commands are run → why. Drawn ones share an environment:
        to install it costs more than to run them."""
        groups = sorted(set(named))
        if not groups:
            return {}
        found = {
            (id, environment): path
            for (id, environment) in groups
            if (path := next((why for (of, what), why in self.evidence.items() if of == id and what.startswith(f"{environment}/")), None))
        }  # fmt: skip
        (environment,) = drawn(
            self.head, dict.fromkeys({environment for _, environment in groups}, OF_COMMANDS), OF_COMMANDS
        )
        seconds = {}
        for id, _ in (group for group in groups if group[1] == environment):
            runs = known.incidents[id].evidence[environment].runs
            seconds[id] = START + sum(run.seconds for run in runs) / max(len(runs), 1)
        return {(id, environment): "drawn" for id in drawn(self.head, seconds, OF_COMMANDS)} | found

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

    def _inputs(self, known: Catalog, id: str, script: str) -> list[str]:
        incident = known.incidents[id]
        variants = [variant for variant in incident.variants.values() if variant.script == script]
        return [path.name for path in incident.needed_by(variants)]

    def _at_base(self, path: str) -> dict[str, Any]:
        try:
            stored: dict[str, Any] = json.loads(git(self.root, "show", f"{self.base}:{path}"))
        except Unusable:  # it is new
            return {"runs": []}
        return stored


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _of(incident: Incident, run: Run, script: str) -> bool:
    return incident.variants[run.variant].script == script


def _scripts_that_differ(now: dict[str, Any], before: dict[str, Any]) -> set[str]:
    """`*` for all of them: what starts runs, or where, is another; else each input or variant that is."""
    stored, then = now.get("made_from") or {}, before.get("made_from") or {}
    differ = {name for name in {**stored, **then} if stored.get(name) != then.get(name)} - {FACTS, WATCHED}
    if differ & {LAUNCH, ENVIRONMENT, DECLARED}:
        return {"*"}
    of_runs = [
        {
            run["variant"]: {key: value for key, value in run.items() if key not in ("facts", "guard")}
            for run in file["runs"]
        }
        for file in (now, before)
    ]
    names = {name for name, run in of_runs[0].items() if of_runs[1].get(name) != run}
    return differ | ({"*"} if names else set())


def _supports(root: Path, tests: Iterable[str]) -> set[str]:
    """The modules of tests/support/ that these files import, and those import."""
    left, found = [root / test for test in tests], set[str]()
    while left:
        path = left.pop()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("support."):
                name = (node.module or "").partition(".")[2]
                if name not in found:
                    found.add(name)
                    left.append(root / "tests/support" / f"{name}.py")
    return found


def choose(
    items: list[pytest.Item], selection: Selection, known: Catalog
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that are run, and the others."""
    if selection.whole:
        return items, []
    lanes, repros = selection.lane_of, selection.runs(known)
    asked = [(it.callspec.params, file_of(it)) for it in items if hasattr(it, "callspec")]
    commands = selection.commands(
        known, [(it["incident"], it["environment"]) for it, file in asked if file == COMMANDS]
    )

    def wanted(item: pytest.Item) -> bool:
        file, given = file_of(item), item.callspec.params if hasattr(item, "callspec") else {}
        if file in (RUNS, COMMANDS) and given:
            return (
                _script(known, given) in repros
                if file == RUNS
                else (given["incident"], given["environment"]) in commands
            )
        return file not in lanes or file == RUNS or lanes[file] in selection.why

    chosen = [item for item in items if wanted(item)]
    if RUNS in map(file_of, items):
        left = set(repros) - {
            _script(known, it.callspec.params) for it in chosen if file_of(it) == RUNS and hasattr(it, "callspec")
        }
        if left:
            raise pytest.UsageError(f"nothing runs {sorted(left)}, whose evidence changed or was drawn")
    return chosen, [item for item in items if not wanted(item)]


def file_of(item: pytest.Item) -> str:
    """From the project's root."""
    return os.path.relpath(item.path, TESTS.parent)


def _script(known: Catalog, given: dict[str, str]) -> tuple[str, str]:
    return given["incident"], known.incidents[given["incident"]].variants[given["variant"]].script


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern.replace("**", "*")) for pattern in patterns)


def summary(selection: Selection, known: Catalog, durations: Iterable[tuple[str, float]]) -> list[str]:
    """A table: each lane, how many tests of it were run in how many seconds, and why; then what was not run."""
    if selection.whole:
        return [f"Everything was run: {selection.whole}."]
    ran: dict[str, list[float]] = {}
    for node, seconds in durations:
        ran.setdefault(selection.lane_of.get(node.partition("::")[0], "always"), []).append(seconds)
    repros = selection.runs(known)
    why = {"always": "at each commit", "stored runs": ", ".join(" ".join(run) for run in repros)} | selection.why
    rows = [f"{len(selection.changed)} files changed since {selection.base}, the last commit that was proven."]
    rows += [
        f"{name:12}{len(it):>6} tests {sum(it):>6.0f} s  {why.get(name, 'drawn')}" for name, it in sorted(ran.items())
    ]
    if left := [name for name in selection.lanes if name not in selection.why]:
        rows.append(f"Not run, since nothing of theirs changed: {', '.join(left)}. `make test ALL=1` runs everything.")
    for id, what in selection.evidence:
        if not what.startswith("current/") and not any(
            what.startswith(f"{name}/") for name in known.incidents[id].current
        ):
            rows.append(f"Stored anew and not run again here: {id} in {what}: `readyonce verify {id}` runs it.")
    return rows
