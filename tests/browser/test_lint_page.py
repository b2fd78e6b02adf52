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
from readyonce.lab import recording
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
for (const { text, language, name, versions } of JSON.parse(cases)) {
  const begun = process.cpuUsage();
  const told = engine.lint(shipped[language], text, language, name, versions);
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
    """All but what only the command reads, the anchors, aliases and tags of YAML; returns how many those are."""
    refused = 0
    for it, told in zip(asked, theirs, strict=True):
        if told.get("unreadable") == say("lint-page.anchor", it[1]):
            refused += 1
            continue
        ours = command(*it)
        del told["took"], told["several"]
        if it[1] != "en":  # the command says why in English
            for either in (ours, told):
                either.pop("unreadable", None)
        assert told == ours, it
    return refused


# ------------------------------------------------------------------------------ both engines


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_engines_say_the_same_of_every_trap(twin, command, language):
    asked = []
    for trap in TRAPS.values():
        name = trap.get("name", "train.sh")
        for versions in (trap.get("with", {}), {}):
            asked.append((trap["script"], language, name, versions))
            asked += [
                (text, language, file, versions)
                for file, text in trap.get("files", {}).items()
                if "/" not in file and file[-3:] != ".py"
            ]
    assert not agree(asked, twin(asked), command)
    assert any(command(*it)["findings"] for it in asked)


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_engines_say_the_same_of_public_launches(twin, command, language):
    asked = []
    for it in PUBLIC:
        name = "run.yaml" if it["path"].endswith((".yml", ".yaml")) else "run.sh"
        asked += [(it["launch"], language, name, versions) for versions in (it.get("with", {}), {})]
    agree(asked, twin(asked), command)


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_engines_say_the_same_of_the_frameworks_own_commands(twin, command, language):
    asked = []
    for observed in COMMANDS:
        script = (observed.incident.folder / observed.variant.script).read_text(encoding="utf-8")
        evidence = observed.incident.evidence[observed.environment]
        versions = {name.lower(): release for name, release in evidence.environment.versions.items()}
        text = recording.with_lines(script, observed.variant.lines)
        asked += [(text, language, "run.sh", versions), (text, language, "run.sh", {})]
    assert not agree(asked, twin(asked), command)


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
    assert agree(asked, twin(asked), command) < 10


@pytest.mark.parametrize("name", [name for name in HOSTILE if name.endswith(".sh")])
def test_both_engines_say_the_same_of_hostile_scripts(twin, command, name):
    asked = [(HOSTILE[name], "en", name, {})]
    (told,) = twin(asked)
    assert told["took"] < 10_000_000  # microseconds of a processor, not of a clock
    assert not agree(asked, [told], command)


CONFIGURATIONS = {
    "plain": "stage: sft\nfinetuning_type: lora # small\n\nddp_find_unused_parameters: true\n",
    "the option's own line": "# a comment\n---\nstage: 'sft'\n\"finetuning_type\": lora\nuse_reentrant_gc: true\nddp_find_unused_parameters: true\n",
    "lists and maps": "stage: sft\nfinetuning_type: lora\ndataset:\n- a\n- {b: [1, 'two', \"t\\u00e9\"]}\n-\n  c: ~\n  d:\n    - - 1\nuse_reentrant_gc: true\n",
    "switched off": "stage: sft\nfinetuning_type: lora\ndisable_gradient_checkpointing: true\ndeepspeed: ds.json\n",
    "JSON": '{\n  "stage": "sft",\n  "finetuning_type": "lora",\n  "use_reentrant_gc": true,\n  "ddp_find_unused_parameters": true\n}\n',
    "a text over several lines": "stage: sft\ntemplate: |\n  use_reentrant_gc: false\n\n  more\nfinetuning_type: lora\nuse_reentrant_gc: true\n",
    "Windows": "stage: sft\r\nfinetuning_type: lora\r\nuse_reentrant_gc: true\r\n",
    "Axolotl": "base_model: m\ndatasets:\n  - path: d\n    type: alpaca\ngradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: true\n",
    "DeepSpeed alone": '{"zero_optimization": {"stage": 3}}',
    "accelerate alone": "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n",
    "not closed": "stage: sft\nfinetuning_type: [lora\n",
    "a colon too many": "stage: sft: x\nfinetuning_type: lora\n",
    "deeper for no reason": "stage: sft\n  finetuning_type: lora\n",
    "too deep": "a: " + "[" * 60 + "]" * 60,
    "too many": "a: [" + "{}, " * 21_000 + "]",
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_both_engines_say_the_same_of_configurations(twin, command, name):
    text = CONFIGURATIONS[name]
    asked = [
        (text, language, "run.yaml", versions) for language in LANGUAGES for versions in ({}, {"llamafactory": "0.9.3"})
    ]
    told = twin(asked)
    if name in ("not closed", "a colon too many", "deeper for no reason", "too many"):
        assert all(it["unreadable"] for it in told) and "unreadable" in command(*asked[0])
    else:
        assert not agree(asked, told, command)


@pytest.mark.parametrize(
    "text", ["stage: &a sft\nb: *a\n", "a: !!python/object/apply:os.system [x]\n", "a: [&a x, *a]\n"]
)
def test_anchors_and_tags_are_refused(twin, text):
    (told,) = twin([(text, "en", "run.yaml", {})])
    assert told["unreadable"] == say("lint-page.anchor", "en") and not told["findings"]


def test_what_a_pasted_text_is_comes_from_what_it_holds(twin):
    script = "NPROC_PER_NODE=2 swift sft --model m\n"
    texts = {
        script: 1,
        f"Run it so:\n\n```bash\n$ {script}```\nIt doesn't stop.\n": 4,
        CONFIGURATIONS["the option's own line"]: 5,
        CONFIGURATIONS["JSON"]: 4,
    }
    told = twin([(text, "en", "paste", {}) for text in texts])
    assert [[(it["level"], it["line"]) for it in one["findings"] if it["level"] != "note"] for one in told] == [
        [("warning" if "swift" in text else "error", line)] for text, line in texts.items()
    ]


def test_the_page_knows_a_launch_by_its_words():
    """Before the engine is there: as diagnose-page.js asks."""
    words = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, lint.starts(KNOWN)))})(?!\w)", re.ASCII)
    texts = [trap["script"] for trap in TRAPS.values() if trap.get("launches", 1)] + list(CONFIGURATIONS.values())[:3]
    texts += [(it.incident.folder / it.variant.script).read_text(encoding="utf-8") for it in COMMANDS]
    assert all(words.search(text) for text in texts)
    assert not words.search("RuntimeError: Expected to mark a variable ready only once.\nSwiftly.")


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_engines_name_the_same_incidents(twin, command, language):
    asked = [(sign["launch"], language, "train.sh", sign.get("with", {})) for sign in SIGNS]
    theirs = twin(asked)
    assert not agree(asked, theirs, command)
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
    assert code.count("eval") == code.count('"eval"') == 1  # the shell's, which is read as text
