"""The lint in a browser: docs/theme/javascripts/lint.js says what the command says, of anything; and the page that shows it."""

import gzip
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from readyonce.data.words import say
from readyonce.launches import shell
from readyonce.lint import judge
from readyonce.pages import lint
from support.launches import COMMANDS, HOSTILE, PUBLIC, READER, RULES, SIGNS, TRAPS
from support.patience import PATIENCE
from support.project import KNOWN, ROOT

LANGUAGES = ("en", "zh")
CODE = ROOT / "docs/theme/javascripts/lint.js"
MOST = 32_000  # bytes, packed with gzip: the engine and its rules
COMPARED = ("level", "code", "line", "option", "what", "versions", "change", "fix", "page", "runs", "wrong")
TWIN = """const [code, rules, cases] = process.argv.slice(1).map((name) => require("fs").readFileSync(name, "utf8"));
const engine = new Function(code + "; return readyonceLint()")();
const shipped = JSON.parse(rules);
for (const { text, language, versions } of JSON.parse(cases)) {
  const begun = process.cpuUsage();
  const told = engine.lint(shipped[language], text, language, versions);
  console.log(JSON.stringify({ ...told, took: process.cpuUsage(begun).user }));
}"""


def shipped(language):
    """The rules as the page is given them."""
    return json.loads(lint.to_script(lint.compiled(KNOWN), language).partition(" = ")[2].rstrip(";\n"))


@pytest.fixture(scope="session")
def twin(tmp_path_factory):
    """The engine in JavaScript: (text, language, file's name, versions) each → what it says."""
    folder = tmp_path_factory.mktemp("twin")
    rules, cases = folder / "rules.json", folder / "cases.json"
    rules.write_text(json.dumps({language: shipped(language) for language in LANGUAGES}), encoding="utf-8")

    def told(asked):
        keys = ("text", "language", "name", "versions")
        cases.write_text(json.dumps([dict(zip(keys, it, strict=True)) for it in asked]), encoding="utf-8")
        node = [Path(sys.executable).with_name("node"), "-e", TWIN, CODE, rules, cases]
        done = subprocess.run(node, capture_output=True, text=True, encoding="utf-8", timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return told


@pytest.fixture
def command(tmp_path, monkeypatch):
    """The engine in Python, where nothing that a text names is at hand."""
    folder = tmp_path / "a/b/c/d"  # what a launch names is looked for in four folders above it
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    rules = {**RULES, "site": ""}

    def told(text, language, name, versions):
        path = folder / name
        path.write_bytes(text.encode())
        try:
            found = READER.file(name)
            told = judge.answers(rules, found, versions, language)
            findings = [it._asdict() for each in told for it in each.findings]
        except shell.Unreadable as error:
            why = say("lint-page.yaml", "en") if str(error).startswith("not YAML") else str(error)
            return {"launches": 0, "findings": [], "unreadable": why, "line": error.line}
        finally:
            path.unlink()
        launches = sum(not it.unseen for it in found)
        return {"launches": launches, "findings": [{key: it[key] for key in COMPARED} for it in findings]}

    return told


def agree(asked, theirs, command):
    """Each text is left to the terminal, or both say the same of it; returns how many the page read."""
    read = 0
    for it, told in zip(asked, theirs, strict=True):
        if told.get("unreadable") == say("lint-page.terminal", it[1]):
            assert not told["findings"]
            continue
        ours = command(*it)
        del told["took"], told["several"]
        if it[1] != "en":  # the command says why in English
            for either in (ours, told):
                either.pop("unreadable", None)
        assert told == ours, it
        read += 1
    return read


# ------------------------------------------------------------------------------ both engines


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_engines_say_the_same_of_every_trap_that_is_a_single_command(twin, command, language):
    asked = []
    for trap in TRAPS.values():
        if trap.get("name", "train.sh").endswith(".sh"):
            asked += [(trap["script"], language, "train.sh", versions) for versions in (trap.get("with", {}), {})]
    assert agree(asked, twin(asked), command) >= 40
    assert any(command(*it)["findings"] for it in asked)


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_engines_say_the_same_of_public_launches(twin, command, language):
    asked = []
    for it in PUBLIC:
        if not it["path"].endswith((".yml", ".yaml")):
            asked += [(it["launch"], language, "run.sh", versions) for versions in (it.get("with", {}), {})]
    assert agree(asked, twin(asked), command) >= len(asked) * 0.5


def damaged(seed, count):
    chance = random.Random(seed)
    texts = [trap["script"] for trap in TRAPS.values() if "name" not in trap]
    signs = list("'\"\\$`(){}[]|&;<>\n=#@*-!:, \t\0") + [
        "${",
        "$(",
        "<<",
        "[@]}",
        "--",
        "'{\"a\": 1}'",
        "+=",
        "é中",
        "eval ",
    ]
    for _ in range(count):
        text = chance.choice(texts)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(signs) + text[at + chance.randrange(3) :]
        yield text


def test_both_engines_say_the_same_of_damaged_scripts(twin, command):
    asked = [(text, LANGUAGES[number % 2], "train.sh", {}) for number, text in enumerate(damaged(18, 2000))]
    assert agree(asked, twin(asked), command) > 200


@pytest.mark.parametrize("name", [name for name in HOSTILE if name.endswith(".sh")])
def test_a_hostile_script_takes_no_time(twin, command, name):
    asked = [(HOSTILE[name], "en", name, {})]
    (told,) = twin(asked)
    assert told["took"] < 10_000_000  # microseconds of a processor, not of a clock
    agree(asked, [told], command)


MORE = {
    "a variable": "OUT=out\ntorchrun --nproc_per_node 8 train.py --output_dir $OUT --per_device_train_batch_size 1\n",
    "a branch": "if true; then torchrun --nproc_per_node 8 train.py; fi\n",
    "a substitution": "torchrun --nproc_per_node $(nproc) train.py\n",
    "a here-document": "bash <<EOF\ntorchrun --nproc_per_node 8 train.py\nEOF\n",
    "what is exported elsewhere": "export NPROC_PER_NODE; swift sft --model m --train_type lora\n",
    "a sourced file": "source env.sh; swift sft --model m --train_type lora\n",
    "a program of an unknown name": "$PYTHON -m torch.distributed.run --nproc_per_node 8 train.py\n",
    "a shell": "bash -c 'torchrun --nproc_per_node 8 train.py'\n",
    "a configuration": "stage: sft\nfinetuning_type: lora\nuse_reentrant_gc: true\n",
    "its JSON": '{\n  "stage": "sft",\n  "finetuning_type": "lora"\n}\n',
    "a page": "Run it so:\n\n```bash\n$ torchrun --nproc_per_node 8 train.py\n```\nIt doesn't stop.\n",
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", MORE)
def test_more_than_single_commands_is_left_to_the_terminal(twin, name, language):
    (told,) = twin([(MORE[name], language, "paste", {})])
    assert told["unreadable"] == say("lint-page.terminal", language) and not told["findings"]


def test_prose_is_no_launch(twin):
    texts = ["Which release of deepspeed do you have?", "pip install deepspeed", "The fault is with torchrun."]
    assert all(
        not told["launches"] and "unreadable" not in told for told in twin([(it, "en", "paste", {}) for it in texts])
    )


def test_the_page_knows_a_launch_by_its_words():
    """Before the engine is there: as diagnose-page.js asks."""
    words = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, lint.starts(KNOWN)))})(?!\w)", re.ASCII)
    texts = [trap["script"] for trap in TRAPS.values() if trap.get("launches", 1)] + list(MORE.values())
    texts += [(it.incident.folder / it.variant.script).read_text(encoding="utf-8") for it in COMMANDS]
    assert all(words.search(text) for text in texts)
    assert not words.search("RuntimeError: Expected to mark a variable ready only once.\nSwiftly.")


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_engines_name_the_same_incidents(twin, command, language):
    asked = [(sign["launch"], language, "train.sh", sign.get("with", {})) for sign in SIGNS]
    theirs = twin(asked)
    assert agree(asked, theirs, command) == len(asked)
    named = {it["code"] for told in theirs for it in told["findings"] if it["code"].startswith("RO-")}
    in_files = {id.split()[0] for sign in SIGNS if "files" in sign for id in sign["says"]}  # which the page cannot read
    assert named | in_files == {id.split()[0] for sign in SIGNS for id in sign["says"]}


# ------------------------------------------------------------------------------ what it weighs


@pytest.mark.parametrize("language", LANGUAGES)
def test_engine_and_rules_are_light(language):
    rules = lint.to_script(lint.compiled(KNOWN), language).encode()
    assert sum(len(gzip.compress(it, 9, mtime=0)) for it in (CODE.read_bytes(), rules)) <= MOST


def test_it_neither_runs_nor_asks_for_anything():
    code = CODE.read_text(encoding="utf-8").partition("*/")[2]
    named = set(re.findall(r"[A-Za-z_$][\w$]*", code))
    assert not named & {"Function", "fetch", "XMLHttpRequest", "import", "importScripts", "document", "window"}
    assert "eval(" not in code
