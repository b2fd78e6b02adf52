"""Whatever happens to a file that an author touches: no traceback, and each problem has a file, a line and a remedy.

Changes by chance, always the same, to a copy with one incident: each is looked at in this very process, and undone.
"""

import json
import random
import re
import shutil

import pytest
import yaml

from readyonce import catalog, cli, decision, reading, render
from support.project import ROOT, copy_of

SEED, CHANGES = 20261122, 2000
KEPT = "RO-0005"  # it has matrices, several environments, a framework's command and a run that diverges
PAGES = re.compile(rf"docs/\w+/(errors/.*|incidents/(index|{KEPT}|{KEPT}/(files|evidence))|tags)\.md")
TOUCHED = (".md", ".yml", ".json", ".sh", ".py", ".txt")
PROBLEM = r"[^\s:][^:\n]*:[1-9]\d*: .+\n    \S.+"
ODD = "0 -1 1e999 null ~ [] {} *a &a !!python/name:os.system \0 \u2028 \x1b[ ``` ](#x) <script> {#x} @ ../.. * 🙂 TODO ' \" \t"
ODD = ["", '--8<-- "x"', "--8<-- [end:x]", *ODD.split(" ")]
VALUES = [None, True, -1, 10**30, 1e308, "", "x", "RO-0001", [], {}, [None], {"x": {}}, "match", "error", "2026-13-45"]


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
    examples = root / "snippets" / "lint" / "examples.json"  # 2,000 launches, which each check would judge
    read = json.loads(examples.read_text(encoding="utf-8"))
    examples.write_text(
        json.dumps(read | {name: {version: [] for version in it} for name, it in read.items()}), encoding="utf-8"
    )
    render.write(catalog.load(root).require_sound())
    return root


@pytest.fixture
def told(small, remembered, monkeypatch, capsys):
    """Runs `readyonce` on the copy, here; returns its exit code and what it said."""
    monkeypatch.setenv("READYONCE_ROOT", str(small))
    monkeypatch.setattr(cli, "ENDING", [])
    monkeypatch.setattr(cli, "_keep_all", lambda: None)

    def run(*arguments):
        code = cli.main([*arguments])
        return code, capsys.readouterr().err

    return run


def sound(said: str) -> bool:
    """Whether each problem has its place and a remedy."""
    problems, _, count = said.rstrip().rpartition("\n\n")
    return bool(re.fullmatch(rf"(?:{PROBLEM}\n)+", problems + "\n")) and int(count.split()[0]) == problems.count(
        "\n    "
    )


def change(chance: random.Random, data: bytes, suffix: str) -> bytes:
    text = data.decode()
    lines = text.splitlines(keepends=True) or [""]
    at = chance.randrange(len(lines))
    words = list(re.finditer(r"[^\s,:\[\]{}()]+", text)) or [re.match("", text)]
    word, other = chance.choice(words), chance.choice(words)
    match chance.randrange(12):
        case 0:
            return data[: chance.randrange(len(data) + 1)]
        case 1:
            return text.encode(chance.choice(["gbk", "utf-16", "utf-8-sig", "latin-1"]), "replace")
        case 2:
            del lines[at]
        case 3:
            lines.insert(at, lines[chance.randrange(len(lines))])
        case 4:
            lines[at] = " " * chance.randrange(5) + lines[at].lstrip()
        case 5:
            flipped = bytearray(data or b"x")
            flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
            return bytes(flipped)
        case 6:
            return (text[: word.start()] + text[word.end() :]).encode()
        case 7:
            return (text[: word.start()] + other[0] + text[word.end() :]).encode()
        case 8:
            return (text[: word.start()] + chance.choice(ODD) + text[word.end() :]).encode()
        case 9:
            place = chance.randrange(len(text) + 1)
            return (text[:place] + chance.choice(ODD) + text[place:]).encode()
        case _ if suffix in (".json", ".yml") and "!ENV" not in text:
            return restructured(chance, text).encode()
        case _:
            return b""
    return "".join(lines).encode()


def restructured(chance: random.Random, text: str) -> str:
    """Sound JSON, which is YAML too, with one value gone or another."""
    value = json.loads(json.dumps(reading.parse_yaml(text), default=str))
    inside, key = {"": value}, ""
    while isinstance(inside[key], dict | list) and inside[key] and chance.random() < 0.9:
        inside = inside[key]
        key = chance.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
    if chance.random() < 0.4 and key != "":
        del inside[key]
    else:
        inside[key] = chance.choice(VALUES)
        value = inside[key] if key == "" else value
    return json.dumps(value, ensure_ascii=False, indent=1)


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
