"""The launches of public repositories, and what the lint says of them: `python tests/lint/examples.py [CLONES]`.

With CLONES they are read once more, and what they set is written to snippets/lint/examples.json. Nothing of their text is
stored but the options that the lint's rules ask for; library code and tests are left out. CLONES holds a clone of each
repository of snippets/lint/examples.yml, as OWNER/NAME or OWNER+NAME/repo, with or without a work tree.

Then what is stored is judged by the runs of today, and the page's tables are written beside it.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml

from readyonce.data import catalog
from readyonce.data.markup import sections, table
from readyonce.data.words import say
from readyonce.launches import reader as launch
from readyonce.lint.judge import LEVELS, Finding, judge
from readyonce.rules import lint

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "snippets" / "lint"
RELEASES = yaml.load((FOLDER / "examples.yml").read_text(encoding="utf-8"), yaml.BaseLoader)
LARGEST = 300_000  # bytes of a file; no script is
LINKED = 5  # launches of a row; of more, their number


# ------------------------------------------------------------------------------ what they set


def read_clones(clones: Path, compiled: dict) -> None:
    reader = launch.Reader(compiled["stacks"], compiled["models"])
    told = {}
    for repository, releases in RELEASES.items():
        tries = [clones / repository, clones / repository.replace("/", "+") / "repo"]
        clone = next((it for it in tries if it.is_dir()), None)
        if clone is None:
            sys.exit(f"{tries[0]} is not there: git clone https://github.com/{repository} {tries[0]}")
        for release, about in releases.items():
            with tempfile.TemporaryDirectory() as folder:
                _unpack(clone, about["commit"], Path(folder))
                found = _read(reader, compiled, Path(folder))
            told.setdefault(repository, {})[release] = found
            print(f"{repository} {release}: {sum(len(it['places']) for it in found)} launches", flush=True)
    lines = [
        f" {json.dumps(repository)}: {{\n"
        + ",\n".join(
            f"  {json.dumps(release)}: [\n"
            + ",\n".join(f"   {json.dumps(it, ensure_ascii=False)}" for it in found)
            + "\n  ]"
            for release, found in releases.items()
        )
        + "\n }"
        for repository, releases in told.items()
    ]
    (FOLDER / "examples.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _unpack(clone: Path, commit: str, folder: Path) -> None:
    git = ["git", "-C", clone]
    listed = subprocess.run([*git, "ls-tree", "-r", "-z", commit], capture_output=True, text=True, check=True).stdout
    wanted = []
    for line in filter(None, listed.split("\0")):
        about, path = line.split("\t", 1)
        mode, kind, sha = about.split()
        if kind == "blob" and mode != "120000" and launch.readable(path) and not path.startswith("tests/"):
            wanted.append((sha, path))
    asked = "".join(f"{sha}\n" for sha, _ in wanted)
    data = subprocess.run([*git, "cat-file", "--batch"], input=asked.encode(), capture_output=True, check=True).stdout
    at = 0
    for _, path in wanted:
        end = data.index(b"\n", at)
        head, at = data[at:end].split(), end + 1
        if head[1] == b"missing":
            continue
        size = int(head[2])
        if size <= LARGEST:
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data[at : at + size])
        at += size + 1


def _read(reader: launch.Reader, compiled: dict, folder: Path) -> list[dict]:
    asked = {name: {rule.get("option") for rule in it["launch"]} for name, it in compiled["stacks"].items()}
    found: dict[str, dict] = {}
    for path in sorted(it for it in folder.rglob("*") if it.is_file()):
        inside = path.relative_to(folder).as_posix()
        if path.suffix == ".py" and not inside.startswith("examples/"):
            continue  # it is read where a script starts it
        try:
            launches = reader.file(str(path))
        except launch.Unreadable as error:
            print(f"  {inside}: {error}")
            continue
        for it in launches:
            if not it.frameworks:  # it does not train, as far as its options tell
                continue
            names = set().union(*(asked[name] for name in it.frameworks))
            one = {
                "frameworks": it.frameworks,
                "command": it.command,
                **({"processes": 1} if it.processes == 1 else {}),
                **({"blind": True} if it.blind else {}),
                **({"unread": it.unread} if it.unread else {}),
                "options": {name: option.value for name, option in sorted(it.options.items()) if name in names},
            }
            key = json.dumps({**one, "command": ""})
            found.setdefault(key, {**one, "places": []})["places"].append(f"{inside}:{it.line}")
    return list(found.values())


# ------------------------------------------------------------------------------ what is said of it


@dataclass(frozen=True)
class Example:
    """A launch of a public repository, and what is found of it with the versions of its release."""

    repository: str
    release: str
    commit: str
    place: str
    findings: list[Finding]

    @property
    def level(self) -> str:
        return self.findings[0].level if self.findings else "right"

    @property
    def link(self) -> str:
        path, _, line = self.place.rpartition(":")
        quoted = path.replace(" ", "%20").replace("(", "%28").replace(")", "%29")
        return f"[{path}:{line}](https://github.com/{self.repository}/blob/{self.commit}/{quoted}#L{line})"


def examples(rules: dict, language: str = "en") -> list[Example]:
    """What is said of the stored launches, with the versions of each release."""
    found = []
    for repository, releases in json.loads((FOLDER / "examples.json").read_text(encoding="utf-8")).items():
        for release, records in releases.items():
            about, answered = RELEASES[repository][release], {}
            for record in records:
                options = {name: launch.Option(value, "", 0) for name, value in record["options"].items()}
                one = launch.Launch(record["command"], "", 0, options, frameworks=record["frameworks"])
                one.processes, one.blind = record.get("processes"), record.get("blind", False)
                one.unread = record.get("unread", [])
                said = judge(rules, one, about["versions"], language, answered)
                found += [Example(repository, release, about["commit"], place, said) for place in record["places"]]
    return found


def tables(rules: dict, language: str) -> str:
    """The page's three tables, as an include with sections."""
    public = examples(rules, language)
    stop, depend = (_listed(public, levels, language) for levels in (("error", "warning"), ("note",)))
    return sections(counts=_counts(public, language), stop=stop, depend=depend)


def _counts(public: list[Example], language: str) -> str:
    columns = (*LEVELS[:3], "right", "not-covered")
    rows = [[say(f"lint-examples.{column}", language) for column in ("repository", "launches", *columns)]]
    for repository, releases in RELEASES.items():
        for release, about in releases.items():
            here = Counter(
                example.level for example in public if (example.repository, example.release) == (repository, release)
            )
            pinned = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if version != release)
            name = f"[{repository} {release}](https://github.com/{repository}/tree/{about['commit']})"
            name += f"<br>{say('lint-examples.with', language, pinned)}" if pinned else ""
            rows.append([name, str(here.total()), *(str(here[column]) for column in columns)])
    return table(rows)


def _listed(public: list[Example], levels: tuple[str, ...], language: str) -> str:
    """A row for what several launches of a release have in common."""
    alike: dict[tuple[str, str, tuple[tuple[str, str, str], ...]], list[Example]] = {}
    for example in public:
        if example.level in levels:
            said = tuple((one.versions, one.what, one.page) for one in example.findings if one.level in levels)
            alike.setdefault((example.repository, example.release, said), []).append(example)
    rows = [[say(f"lint-examples.{column}", language) for column in ("repository", "launch", "happens")]]
    for (repository, release, said), here in alike.items():
        launches = [example.link for example in here[:LINKED]]
        if (more := len(here) - LINKED) > 0:
            launches.append(say("lint-examples.more", language, more))
        one = len({what for _, what, _ in said}) == 1  # with all versions
        lines = dict.fromkeys(
            f"[{what if one or not versions else say('lint-examples.versions', language, versions, what)}]({_source(page)})"
            for versions, what, page in said
        )
        rows.append([f"{repository} {release}", "<br>".join(launches), "<br>".join(lines)])
    return table(rows) if len(rows) > 1 else say("lint-examples.none", language) + "\n"


def _source(page: str) -> str:
    """`decision/#ddp-once` → `decision.md#ddp-once`: the page's own file."""
    return re.sub(r"/(?=#|$)", ".md", page, count=1)


def main() -> None:
    rules = lint.compile_rules(catalog.load(ROOT).require_sound())
    for clones in sys.argv[1:]:
        read_clones(Path(clones), rules)
    for language in ("en", "zh"):
        (FOLDER / f"examples.{language}.md").write_text(tables(rules, language), encoding="utf-8")


if __name__ == "__main__":
    main()
