"""The lint: what it reads of a launch, that its verdicts are those of the runs, and that nothing it reads can hurt it."""

import json
import random
import re
import shlex

import pytest
import yaml

from lint import examples
from readyonce.cli import main
from readyonce.lab import recording
from readyonce.launches import reader
from readyonce.lint import judge, report
from readyonce.rules.lint import compile_rules
from support.launches import COMMANDS, PUBLIC, READER, RULES, SIGNS, TRAPS, linted
from support.project import KNOWN, ROOT

# ------------------------------------------------------------------------------ what it reads


@pytest.mark.parametrize("name", TRAPS)
def test_trap(name, tmp_path):
    trap = TRAPS[name]
    for file, text in {trap.get("name", "train.sh"): trap["script"], **trap.get("files", {})}.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(text.encode())
    found = READER.file(str(tmp_path / trap.get("name", "train.sh")))
    assert sum(not it.unseen for it in found) == trap.get("launches", 1)
    versions = trap.get("with", {})
    told = [it for each in found for it in judge.judge(RULES, each, versions) if it.level != "note"]
    expected = [trap["finds"]] if "finds" in trap else []
    named = [f"{it.level} {it.code} {it.line}" for it in told]
    placed = [f"{it.level} {it.code} {it.file.removeprefix(f'{tmp_path}/')}:{it.line}" for it in told]
    assert expected in (named, placed), told
    for fact, value in trap.get("facts", {}).items():
        assert judge.facts_of(RULES, found[0], versions).get(fact) == value


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    """Of each launch of signs.yml what was read, the releases that are known, and what it says."""
    found = []
    for sign in SIGNS:
        folder = tmp_path_factory.mktemp("sign")
        for file, text in {"train.sh": sign["launch"], **sign.get("files", {})}.items():
            (folder / file).write_text(text, encoding="utf-8")
        (launch,) = READER.file(str(folder / "train.sh"))
        found.append((launch, sign.get("with", {}), sign["says"]))
    return found


def test_a_launch_names_the_incidents_that_it_may_meet(signed):
    for launch, versions, says in signed:
        told = judge.signs(RULES, launch, versions)
        assert [f"{it.code} {it.versions}".strip() for it in told] == says
        assert all(it.level == "note" and it.runs and it.page.endswith(f"/incidents/{it.code}/") for it in told)


def without_a_condition(sign):
    """The sign without one of its conditions, each in turn."""
    for name, empty in (("is", None), ("unless", []), ("words", [])):
        if sign[name] != empty:
            yield sign | {name: empty}
    for name in sign["where"]:
        yield sign | {"where": {key: value for key, value in sign["where"].items() if key != name}}


@pytest.mark.parametrize("sign", RULES["signs"], ids=lambda sign: f"{sign['id']} {sign['any'][0]}")
def test_each_condition_of_a_sign_decides_about_a_launch(signed, sign):
    def told(sign):
        return [judge.signs({**RULES, "signs": [sign]}, launch, versions) for launch, versions, _ in signed]

    assert any(told(sign))
    for other in without_a_condition(sign):
        assert told(other) != told(sign), other


@pytest.mark.parametrize("it", PUBLIC, ids=lambda it: f"{it['repo']}@{it['commit'][:7]}:{it['path']}:{it['line']}")
def test_public_launch_is_read_as_by_eye(it, tmp_path):
    name = "run.yaml" if it["path"].endswith((".yml", ".yaml")) else "run.sh"
    for file, text in {name: it["launch"], **it.get("files", {})}.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    found, unseen = READER.file(str(tmp_path / name)), it.get("unseen", [])
    assert [bool(each.unseen) for each in found] == ["launch" in unseen]
    for each in found:
        versions = it.get("with", {})
        told = {f"{x.level} {x.code}".removeprefix("not-covered ") for x in judge.judge(RULES, each, versions)}
        assert {x for x in told if not x.startswith("note")} == {*it["expect"].split(", ")} - {"silent"}
        names = ["strategy", "checkpointing", "tuning"] + ["find_unused"] * (it["facts"].get("strategy") == "ddp")
        facts = judge.facts_of(RULES, each, versions) if each.frameworks else {}
        read = {fact: it["facts"][fact] for fact in names if fact in it["facts"] and fact not in unseen}
        assert {fact: str(facts[fact]).lower() for fact in names if fact in facts} == read
        if "processes" not in unseen:
            assert (each.processes or "unknown") == it["processes"]


def test_the_public_launches_are_many_and_various():
    assert len(PUBLIC) >= 100 and len({it["repo"] for it in PUBLIC}) >= 15
    seen = {it["facts"].get("strategy") for it in PUBLIC if "strategy" not in it.get("unseen", [])}
    assert {"ddp", "zero-0", "zero-1", "zero-2", "zero-3", "fsdp2"} <= seen


OPTIONS = {
    "--use_lora": "True",
    "--per_device_train_batch_size": "1",
    "--gradient_checkpointing": "True",
    "--gradient_checkpointing_kwargs": '{"use_reentrant": false}',
    "--ddp_find_unused_parameters": "True",
    "--output_dir": "a folder/with $signs",
}


def _facts(script):
    (found,) = READER.script("train.sh", script)
    return judge.facts_of(RULES, found, {"transformers": "4.57.1"})


def test_one_launch_written_in_many_ways_has_the_same_facts():
    chance = random.Random(18)
    expected = {"strategy": "ddp", "checkpointing": "non-reentrant", "find_unused": True, "tuning": "lora"}
    for _ in range(300):
        pairs = list(OPTIONS.items())
        chance.shuffle(pairs)
        lines, words, array = [], [], []
        for number, (option, value) in enumerate(pairs):
            quoted = shlex.quote(value)
            if chance.random() < 0.2:
                lines.append(f"V{number}={quoted}")
                quoted = f'"$V{number}"' if chance.random() < 0.5 else f'"${{V{number}:-nothing}}"'
            text = f"{option}={quoted}" if chance.random() < 0.4 else f"{option} {quoted}"
            (array if chance.random() < 0.3 else words).append(text)
        gap = chance.choice([" ", "  ", " \\\n    ", "\t"])
        start = chance.choice(["torchrun --nproc-per-node 4", "python -m torch.distributed.run --nproc_per_node=4"])
        lines.append(f"ARGS=({gap.join(array)})")
        call = f'{start}{gap}train.py{gap}{gap.join(words)}{gap}"${{ARGS[@]}}"'
        if chance.random() < 0.2:
            lines.append(f"if true; then\n  {call}\nfi")
        else:
            lines.append(call)
        script = "\n".join(lines) + "\n"
        facts = _facts(script)
        assert {name: facts.get(name) for name in expected} == expected, script


def test_an_option_that_is_repeated_counts_as_the_parsers_take_it():
    assert (
        _facts("torchrun t.py --use_lora True --gradient_checkpointing True --gradient_checkpointing False")[
            "checkpointing"
        ]
        == "none"
    )


# ------------------------------------------------------------------------------ by what is proven


def _launched(observed):
    script = recording.with_lines(
        (observed.incident.folder / observed.variant.script).read_text(encoding="utf-8"), observed.variant.lines
    )
    found = [it for it in READER.script(observed.variant.script, script, observed.incident.folder) if it.frameworks][0]
    evidence = observed.incident.evidence[observed.environment]
    return found, {name.lower(): release for name, release in evidence.environment.versions.items()}


@pytest.mark.parametrize("observed", COMMANDS, ids=lambda it: it.name)
def test_no_verdict_contradicts_a_run_of_the_frameworks_own_command(observed):
    found, versions = _launched(observed)
    told = judge.judge(RULES, found, versions)
    for name, value in judge.facts_of(RULES, found, versions).items():
        assert observed.facts.get(name, value) == value
    if not told:
        assert observed.label == "match"
    elif told[0].level in ("error", "warning"):
        assert observed.label != "match"
        assert told[0].code == (observed.run.error or "wrong-gradients")
    else:
        assert told[0].level == "note" and told[0].code == "depends"


def _undecided():
    for it in COMMANDS:
        found, versions = _launched(it)
        if (told := judge.judge(RULES, found, versions)) and told[0].level == "note":
            yield it, {**versions, **judge.facts_of(RULES, found, versions)}


def test_many_of_them_are_decided():
    decided = len(COMMANDS) - len(list(_undecided()))
    assert decided >= 53, f"{decided} of {len(COMMANDS)}"


# What only the model's code and the data tell, and one fact that ms-swift derives from the number of processes.
NOT_IN_A_LAUNCH = {"runs", "skips", "second_use"}
DERIVED = {"RO-0002/command-static-graph-accumulate@ms-swift-4.6.0": {"first_backward"}}


def test_what_is_not_decided_is_not_told_by_the_launch():
    """Of each launch that is not decided, what decides it is how often the model runs its modules, and which it leaves out."""
    for it, known in _undecided():
        names = DERIVED.get(it.name, NOT_IN_A_LAUNCH)
        assert not names & set(known)
        verdict = judge._judged(RULES, {**known, **{name: it.facts[name] for name in names}}, "en")
        level = verdict.level if verdict else "match"
        assert level != "note", it.name
        if it.incident.id != "RO-0005":  # no row of the table asks what is used twice, and how
            assert level == ("match" if it.label == "match" else "error"), it.name


# Opened and read: what the page says stops or trains wrong, and with which versions.
READ = {
    "modelscope/ms-swift 3.1.1 examples/train/multi-node/deepspeed/train.sh:3": "error",  # no --deepspeed: it is DDP
    "modelscope/ms-swift 3.5.3 examples/train/multi-node/deepspeed/train.sh:3": "error",
    "modelscope/ms-swift 3.5.3 examples/train/grpo/internal/vllm_vl7b.sh:3": "error",
    "huggingface/trl 0.24.0 docs/source/grpo_trainer.md:547": "warning",
    "huggingface/trl 0.24.0 docs/source/rloo_trainer.md:529": "warning",
}


def test_what_is_said_of_public_examples_was_read_by_eye():
    told = examples.examples(RULES)
    assert len(told) > 1500 and len({(it.repository, it.release) for it in told}) == 30
    named = {f"{it.repository} {it.release} {it.place}": it.level for it in told if it.level in ("error", "warning")}
    assert named == READ, "open each that is new, and mend the lint where it is wrong"
    changed = json.loads(json.dumps(RULES))
    for cell in changed["cells"]:
        for part in cell["parts"]:
            part["outcomes"]["match"] = 1
    assert not [it for it in examples.examples(changed) if it.level in ("error", "warning")]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_shows_of_public_examples_what_is_said_today(language):
    stored = (examples.FOLDER / f"examples.{language}.md").read_text(encoding="utf-8")
    assert stored == examples.tables(compile_rules(KNOWN), language), "it is old: python tests/lint/examples.py"


def test_a_contradicting_run_changes_the_verdict():
    changed = json.loads(json.dumps(RULES))
    script = "NPROC_PER_NODE=2 swift sft --model m --gradient_checkpointing_kwargs '{\"use_reentrant\": true}'"
    (found,) = READER.script("train.sh", script)
    assert judge.judge(RULES, found, {})[0].level == "error"
    for cell in changed["cells"]:
        if (cell["strategy"], cell["use"], cell["column"]) == ("ddp", "once", "find-unused-true"):
            cell["parts"][0]["outcomes"]["match"] = 1
    assert judge.judge(changed, found, {})[0].level == "note"


def test_versions_that_are_not_known_are_answered_by_range():
    (found,) = READER.script("train.sh", "NPROC_PER_NODE=2 swift sft --model m")
    (told,) = [it for it in judge.judge(RULES, found, {}) if it.level != "note"]
    assert (told.level, told.versions) == ("warning", "ms-swift < 3.6.0")
    assert judge.judge(RULES, found, {"ms-swift": "3.5.3"})[0].level == "error"
    assert not [it for it in judge.judge(RULES, found, {"ms-swift": "4.6.0"}) if it.level != "note"]


def test_the_fix_is_offered_only_where_it_trains_right():
    script = "NPROC_PER_NODE=2 swift sft --model m --deepspeed zero3"
    (found,) = READER.script("train.sh", script)
    old, new = (judge.judge(RULES, found, {"ms-swift": "3.5.3", "deepspeed": it})[0] for it in ("0.17.0", "0.19.8"))
    assert old.fix is None  # non-reentrant stops under ZeRO-3 up to 0.19.2
    assert new.fix == "--gradient_checkpointing_kwargs '{\"use_reentrant\": false}'"


# ------------------------------------------------------------------------------ the command


def test_exit_codes_and_forms(tmp_path):
    bad, good, broken = (tmp_path / name for name in ("bad.sh", "good.sh", "broken.yaml"))
    bad.write_text("NPROC_PER_NODE=2 swift sft --model m --gradient_checkpointing_kwargs '{\"use_reentrant\": true}'\n")
    good.write_text(
        "NPROC_PER_NODE=2 swift sft --model m --gradient_checkpointing_kwargs '{\"use_reentrant\": false}'\n"
    )
    broken.write_text("a: [1\nb: 2\n")
    assert linted(good).returncode == 0
    done = linted(bad)
    assert done.returncode == 1 and f"{bad}:1: error: stops: Expected to mark" in done.stdout
    assert "1 launch in 1 file: 1 error." in done.stdout
    done = linted(bad, broken, good)
    assert done.returncode == 2 and "broken.yaml:" in done.stderr and "1 error" in done.stdout
    told = json.loads(linted(bad, "--format", "json").stdout)
    assert told["code"] == "ddp-ready-twice" and told["line"] == 1 and told["fix"].startswith("--gradient")
    sarif = json.loads(linted(bad, "--format", "sarif").stdout)["runs"][0]
    assert sarif["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 1
    assert sarif["tool"]["driver"]["rules"][sarif["results"][0]["ruleIndex"]]["id"] == "ddp-ready-twice"
    assert linted(bad, "--format", "github").stdout.startswith(f"::error file={bad},line=1,title=ddp-ready-twice::")


SEVERAL = """\
NPROC_PER_NODE=8 swift sft --model m --train_type lora --gradient_checkpointing_kwargs '{"use_reentrant": false}'
NPROC_PER_NODE=8 swift sft --model m --train_type lora
torchrun --nproc_per_node 4 t.py --per_device_train_batch_size 1 --gradient_checkpointing --deepspeed ds.json
swift sft --model m
torchrun --nproc_per_node 4 own.py --lr 1
"""


def test_each_launch_gets_a_line_that_says_what_it_does_and_what_would_tell_the_rest(tmp_path):
    (tmp_path / "a.sh").write_text(SEVERAL)
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    done = linted("a.sh", cwd=tmp_path)
    said = done.stdout.split("a.sh:")
    of_line = {number: "".join(part for part in said if part.startswith(f"{number}:")) for number in range(1, 6)}
    known = ": every run that fits trains right\n"
    assert of_line[1] == f"1: 8 processes, DDP, LoRA, non-reentrant checkpointing{known}"
    assert "it trains with 8 processes, DDP, LoRA, checkpointing that depends on the version" in of_line[2]
    assert "--python .venv/bin/python, or --with ms-swift==..." in of_line[2]
    assert ": note: " in of_line[3] and "4 processes, ZeRO-3, " in of_line[3]
    for program in ("guard", "compare"):  # once for all of them, at the end
        assert (
            f"python -m readyonce_{program} -- COMMAND" in said[-1] and done.stdout.count(f"readyonce_{program}") == 1
        )
    assert of_line[4].startswith("4: one process: not judged.")
    assert "a strategy that cannot be read" in of_line[5]
    assert done.returncode == 1 and "5 launches in 1 file: 1 warning, " in said[-1]


def test_one_process_alone_is_sent_nowhere(tmp_path):
    (tmp_path / "a.sh").write_text("swift sft --model m\n")
    done = linted("a.sh", cwd=tmp_path)
    assert done.returncode == 0 and "readyonce_" not in done.stdout and "a.sh:1: one process" in done.stdout


def test_the_pattern_of_the_task_finds_each_finding(tmp_path):
    (task,) = json.loads((ROOT / "snippets" / "lint" / "tasks.json").read_text(encoding="utf-8"))["tasks"]
    pattern = task["problemMatcher"]["pattern"]
    bad = tmp_path / "bad.sh"
    bad.write_text(
        "NPROC_PER_NODE=2 swift sft --model m\n"
        "torchrun --nproc_per_node 2 t.py --use_lora --gradient_checkpointing --deepspeed elsewhere.json\n"
    )
    said = [line for line in linted(bad).stdout.splitlines() if not line.startswith(" ")]
    found = [match for line in said if (match := re.match(pattern["regexp"], line))]
    assert [it[pattern["severity"]] for it in found] == ["warning", "note"] and len(said) == 4, said  # and what ends it
    assert [(it[pattern["file"]], it[pattern["line"]]) for it in found] == [(str(bad), "1"), (str(bad), "2")]
    assert task["command"] == "readyonce" and task["args"][0] == "lint"


def test_a_command_line_after_two_dashes():
    words = [
        "--",
        "torchrun",
        "--nproc-per-node",
        "2",
        "t.py",
        "--use_lora",
        "True",
        "--gradient_checkpointing",
        "True",
    ]
    assert linted("--with", "transformers==4.57.1", *words).returncode == 1
    assert linted("--with", "transformers==5.1.0", *words).returncode == 0


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["nowhere.sh"], "there is no file nowhere.sh"),
        (["--with", "transformers", "."], "write a package and its release"),
        (["--python", "/nowhere/python", "."], "there are no packages beside"),
        ([], "give a file"),
    ],
)
def test_bad_usage_says_what_to_do(arguments, says, tmp_path):
    done = linted(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


def test_releases_are_read_without_starting_the_python(tmp_path):
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("ms_swift-3.5.3", "torch-2.13.0+cpu"):
        (packages / f"{name}.dist-info").mkdir(parents=True)
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("this cannot be started")
    assert reader.installed(str(python)) == {"ms-swift": "3.5.3", "torch": "2.13.0+cpu"}


def test_what_github_and_sarif_are_given_cannot_break_out():
    finding = judge.Finding("error", "c", "a,b:c\n.sh", 3, None, "100%\nwrong", "", None, None, "p", 1)
    assert report.github([finding]) == "::error file=a%2Cb%3Ac%0A.sh,line=3,title=c::100%25%0Awrong%0Ap"


def test_the_skill_for_coding_agents_names_commands_that_are_there():
    text = (ROOT / "snippets" / "agents" / "SKILL.md").read_text(encoding="utf-8")
    front = yaml.safe_load(text.split("---")[1])
    assert front["name"] == "readyonce" and len(front["description"]) < 1024
    called = [line.split()[1:] for line in text.splitlines() if line.startswith("readyonce ")]
    assert {words[0] for words in called} == {"diagnose", "lint", "explain"}
    for words in called:
        assert main.parser().parse_args(words)


LOOKS = [(id, number) for id, it in KNOWN.incidents.items() for number in range(len(it.meta.look))]


@pytest.mark.parametrize("id, number", LOOKS)
def test_python_that_can_train_wrong_without_an_error_is_a_place_to_look_at(id, number, tmp_path, capsys):
    def said(*arguments) -> str:
        """In this process: there are many, and a process takes longer to start than to answer."""
        assert main.main(["lint", *map(str, arguments)]) == 0
        return capsys.readouterr().out

    look, loop = KNOWN.incidents[id].meta.look[number], tmp_path / "loop.py"
    code = '"""A loop.\n\n' + "x)\n    ".join(look.all) + 'x)\n"""\n'
    loop.write_text(code)
    (tmp_path / "train.sh").write_text("torchrun --nproc-per-node 2 loop.py\n")
    for asked in (loop, tmp_path / "train.sh"):  # also of the Python that a launch starts
        found = map(json.loads, said("--all", "--format", "json", asked).splitlines())
        (told,) = [it for it in found if it["code"] == id]
        assert (told["level"], told["line"], told["file"]) == ("note", 3, str(loop))
        assert told["page"].endswith(f"incidents/{id}/#case") and look.why.en in told["what"]
        assert look.why.zh in said("--all", "--lang", "zh", asked)
        quiet = said(asked)  # no verdict: told only to those who ask for all
        assert id not in quiet and "--all: on what" in quiet
    for text in look.none:
        loop.write_text(code.replace('x)\n"""', f'x)\n{text}\n"""'))
        assert f"[{id}]" not in said("--all", loop)


# ------------------------------------------------------------------------------ hostile input


def test_it_executes_nothing(tmp_path):
    mark = tmp_path / "mark"
    (tmp_path / "a.sh").write_text(
        f"X=$(touch {mark})\n`touch {mark}`\neval touch {mark}\nswift sft --x $(touch {mark})\n"
    )
    (tmp_path / "a.yaml").write_text(f"a: !!python/object/apply:os.system ['touch {mark}']\n")
    (tmp_path / "a.py").write_text(f"open({str(mark)!r}, 'w')\n")
    linted(tmp_path)
    assert not mark.exists()
