"""Whatever happens to a file that an author touches: no traceback, and each problem has a file, a line and a remedy.

Changes by chance, always the same, to a copy with one incident: each is looked at in this very process, and undone.
"""

import gc
import random
import re
import shutil

import pytest
import yaml

from readyonce.cli import main
from readyonce.data import catalog
from readyonce.pages import decision
from readyonce.publish import render
from support.mutations import change
from support.project import ROOT, copy_of

SEED, CHANGES = 20261122, 2000
KEPT = "RO-0005"  # it has matrices, several environments, a framework's command and a run that diverges
PAGES = re.compile(rf"docs/\w+/(errors/.*|incidents/(index|{KEPT}|{KEPT}/(files|evidence))|tags)\.md")
TOUCHED = (".md", ".yml", ".json", ".sh", ".py", ".txt")
PROBLEM = r"[^\s:][^:\n]*:[1-9]\d*: .+\n    \S.+"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A copy with one incident; what names another goes with it."""
    root = copy_of(ROOT, tmp_path_factory.mktemp("mutations") / "copy")
    for folder in (root / "snippets").glob("RO-*"):
        if folder.name != KEPT:
            shutil.rmtree(folder)
    for path in (root / "docs").rglob("*.md"):
        if PAGES.fullmatch(path.relative_to(root).as_posix()):
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            path.write_text("".join(line for line in lines if not re.search("RO-000[1-4]", line)), encoding="utf-8")
        else:
            path.unlink()
    decided = root / "snippets" / "decision.yml"
    read = yaml.safe_load(decided.read_text(encoding="utf-8"))
    known = catalog.load(root)
    rows = decision.cells(known)
    read["strategies"] = [it for it in read["strategies"] if any(strategy == it for strategy, _ in rows)]
    read["uses"] = {name: it for name, it in read["uses"].items() if any(use == name for _, use in rows)}
    decided.write_text(yaml.safe_dump(read, allow_unicode=True), encoding="utf-8")
    tables = root / "snippets" / "tables.yml"
    read = yaml.safe_load(tables.read_text(encoding="utf-8"))
    read = {name: it for name, it in read.items() if known.fitting(it["where"])[0]}
    tables.write_text(yaml.safe_dump(read), encoding="utf-8")
    render.write(catalog.load(root).require_sound())
    return root


@pytest.fixture
def told(small, remembered, monkeypatch, capsys):
    """Runs `readyonce` on the copy, here; returns its exit code and what it said."""
    monkeypatch.setenv("READYONCE_ROOT", str(small))
    monkeypatch.setattr(main, "ENDING", [])
    monkeypatch.setattr(gc, "disable", lambda: None)  # here it goes on after the command

    def run(*arguments):
        code = main.main([*arguments])
        return code, capsys.readouterr().err

    return run


def sound(said: str) -> bool:
    """Whether each problem has its place and a remedy."""
    problems, _, count = said.rstrip().rpartition("\n\n")
    return bool(re.fullmatch(rf"(?:{PROBLEM}\n)+", problems + "\n")) and int(count.split()[0]) == problems.count(
        "\n    "
    )


def test_changes_by_chance(small, told):
    chance = random.Random(SEED)
    files = [path for path in sorted(small.rglob("*")) if path.suffix in TOUCHED and path.is_file()]
    files = [path for path in files if path.relative_to(small).parts[0] in ("docs", "snippets") or path.parent == small]
    pages = [path for path in files if path.suffix == ".md"]
    # Of what a page shows and what a run is made with, only that it can be read is looked at.
    rest = [path for path in files if path.suffix in (".yml", ".json")] * 5 + [p for p in files if p not in pages]
    done = 0
    while done < CHANGES:
        # Pages have nothing to do with each other, so that several are changed at once.
        changed = chance.sample(pages, 8) if chance.random() < 0.4 else [chance.choice(rest)]
        before = {path: path.read_bytes() for path in changed}
        after = {path: change(chance, data, path.suffix) for path, data in before.items()}
        for path, data in after.items():
            path.write_bytes(data)
        committed = {path: path.read_bytes() for path in files if path.suffix in (".md", ".yml")}
        try:
            # What builds and lists the wiki reads the same, with fewer rules before it.
            for name in ["check", "render"] if chance.random() < 0.1 else ["check"]:
                code, said = told(name)
                assert code == 0 or code == 1 and sound(said), said
        except BaseException as error:
            for path, data in after.items():
                error.add_note(f"{path.relative_to(small)}:\n{data[:300]!r}")
                (small.parent / path.name).write_bytes(data)
            raise
        for path, data in (committed | before).items():
            if path.read_bytes() != data:
                path.write_bytes(data)
        done += len(changed)


STORED = (
    "compare_runs.json",
    "faults.json",
    "cost.json",
    "others.json",
    "traincheck.json",
    "commands.json",
    "noise.json",
)


@pytest.mark.parametrize("name", [*STORED, "exceptions.yml", "missed.yml"])
def test_changes_of_what_the_guard_showed(small, told, name):
    chance = random.Random(f"{SEED} {name}")
    path = small / "packages" / "guard" / name
    before = path.read_bytes()
    try:
        for _ in range(10):
            path.write_bytes(change(chance, before, path.suffix))
            code, said = told("check")
            assert code == 0 or code == 1 and sound(said), said
        for text in ("{", "7", '{"runs": {"RO-0005/none current": {}}}', "[" * 100_000):
            path.write_text(text, encoding="utf-8")
            code, said = told("check")
            assert code == 1 and sound(said) and f"packages/guard/{name}:" in said, said
        for command in ("render", "list"):  # they read the same, without the rules before it
            code, said = told(command)
            assert code == 0 or code == 1 and sound(said), said
    finally:
        path.write_bytes(before)
