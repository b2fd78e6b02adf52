"""What the launches of public repositories set, read once: `python tests/lint/examples.py CLONES`.

CLONES holds a clone of each repository of snippets/lint/examples.yml, as OWNER/NAME or OWNER+NAME/repo, with or without a work
tree. Nothing of their text is stored but the options that the lint's rules ask for. Library code and tests are left out.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from readyonce import catalog
from readyonce.lint import launch, rules

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 300_000  # bytes of a file; no script is


def main(clones: Path) -> None:
    compiled = rules.compile_rules(catalog.load(ROOT))
    reader = launch.Reader(compiled["stacks"])
    told = {}
    for repository, releases in yaml.safe_load((ROOT / "snippets/lint/examples.yml").read_text()).items():
        tries = [clones / repository, clones / repository.replace("/", "+") / "repo"]
        clone = next((it for it in tries if it.is_dir()), None)
        if clone is None:
            sys.exit(f"{tries[0]} is not there: git clone https://github.com/{repository} {tries[0]}")
        for release, about in releases.items():
            with tempfile.TemporaryDirectory() as folder:
                _unpack(clone, about["commit"], Path(folder))
                found = _read(reader, compiled, Path(folder))
            told.setdefault(repository, {})[str(release)] = found
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
    target = ROOT / "snippets/lint/examples.json"
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
