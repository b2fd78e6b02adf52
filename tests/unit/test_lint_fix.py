"""What the lint offers is done to the letter to the text that it is offered for, and the text is read again."""

import json

import pytest

from readyonce.data.project import LANGUAGES
from readyonce.data.words import say
from readyonce.launches import reader
from readyonce.launches.reader import Option
from readyonce.lint import judge, report
from support.applied import applied
from support.launches import PUBLIC, READER, RULES, TRAPS
from support.project import KNOWN, ROOT

TORCHRUN = "torchrun --nproc_per_node 8 train.py --use_lora True"
KWARGS = "--gradient_checkpointing_kwargs '{\"use_reentrant\": false}'"
CONFIG = "base_model: m\ndatasets:\n  - path: d\nadapter: lora\ngradient_checkpointing: true\n"
ARGUMENTS = "args = TrainingArguments(ddp_find_unused_parameters=True, {})\n"
# name: (the script, or the files, the option that is quoted, what to do, the fix)
WRITTEN = {
    "an option": (f"{TORCHRUN} --gradient_checkpointing True --ddp_find_unused_parameters True --output_dir out", "--gradient_checkpointing True", "add", KWARGS),
    "a flag": (f"{TORCHRUN} --gradient_checkpointing \\\n  --bf16", "--gradient_checkpointing", "add", KWARGS),
    "with a sign": (f"{TORCHRUN} --gradient-checkpointing=true --bf16", "--gradient-checkpointing=true", "add", KWARGS),
    "in quotes": (f"{TORCHRUN} --gradient_checkpointing 'True'", "--gradient_checkpointing 'True'", "add", KWARGS),
    "in an array": (f"A=(\n --gradient_checkpointing True)\n{TORCHRUN} ${{A[@]}}", None, "add", KWARGS),
    "in a variable": (f'A="--bf16 --gradient_checkpointing True"\n{TORCHRUN} $A', None, "add", KWARGS),
    "its value in a variable": (f"A=True\n{TORCHRUN} --gradient_checkpointing $A", "--gradient_checkpointing $A", "add", KWARGS),
    "behind accelerate": ("accelerate launch --num_processes 8 train.py --use_lora True --gradient_checkpointing", "--gradient_checkpointing", "add", KWARGS),
    "behind srun": ("srun --ntasks=8 python -u train.py --use_lora True --gradient_checkpointing True", "--gradient_checkpointing True", "add", KWARGS),
    "FlagEmbedding": ("torchrun --nproc_per_node 8 -m FlagEmbedding.finetune.reranker.decoder_only.layerwise --use_lora True --gradient_checkpointing", "--gradient_checkpointing", "add", KWARGS),
    "the default of ms-swift": ("NPROC_PER_NODE=8 swift sft --model m", None, "add", KWARGS),
    "ms-swift, said": ("NPROC_PER_NODE=8 swift sft --model m --gradient_checkpointing true --deepspeed zero2", "--gradient_checkpointing true", "add", KWARGS),
    "LLaMA-Factory's options": ("accelerate launch src/train.py --stage sft --finetuning_type lora --ddp_find_unused_parameters True", None, "add", "--use_reentrant_gc false"),
    "the other value": (f"{TORCHRUN} --gradient_checkpointing True --gradient_checkpointing_kwargs '{{\"use_reentrant\": true}}'", KWARGS.replace("false", "true"), "replace", KWARGS),
    "JSON in double quotes": (f'{TORCHRUN} --gradient_checkpointing True --gradient_checkpointing_kwargs "{{\\"use_reentrant\\":true}}"', '--gradient_checkpointing_kwargs "{\\"use_reentrant\\":true}"', "replace", '--gradient_checkpointing_kwargs "{\\"use_reentrant\\":false}"'),
    "with other values": (f"{TORCHRUN} --gradient_checkpointing --gradient_checkpointing_kwargs '{{\"use_reentrant\": true, \"preserve_rng_state\": true}}'", KWARGS.replace("false}", 'true, "preserve_rng_state": true}'), "replace", KWARGS.replace("false}", 'false, "preserve_rng_state": true}')),
    "with a dot": (f"{TORCHRUN} --gradient_checkpointing --gradient_checkpointing_kwargs.use_reentrant true", "--gradient_checkpointing_kwargs.use_reentrant true", "replace", "--gradient_checkpointing_kwargs.use_reentrant false"),
    "the script's own": (f"{TORCHRUN} --gradient_checkpointing True --use_reentrant True", "--use_reentrant True", "replace", "--use_reentrant False"),
}  # fmt: skip
ELSEWHERE = {
    "LLaMA-Factory's YAML": ({"run.yaml": "stage: sft\nfinetuning_type: lora\nddp_find_unused_parameters: true\n"}, None, "add", "use_reentrant_gc: false"),
    "a YAML that is named": ({"train.sh": "llamafactory-cli train run.yaml", "run.yaml": "stage: sft\nfinetuning_type: lora\nddp_find_unused_parameters: true\n"}, None, "add", "use_reentrant_gc: false"),
    "LLaMA-Factory's JSON": ({"run.json": '{"stage": "sft", "finetuning_type": "lora", "ddp_find_unused_parameters": true}'}, None, "add", '"use_reentrant_gc": false'),
    "its other value": ({"run.json": '{"stage": "sft", "use_reentrant_gc": true,\n "finetuning_type": "lora", "ddp_find_unused_parameters": true}'}, '"use_reentrant_gc": true', "replace", '"use_reentrant_gc": false'),
    "Axolotl": ({"run.yaml": CONFIG + "ddp_find_unused_parameters: true\n"}, "gradient_checkpointing: true", "add", "gradient_checkpointing_kwargs:\n  use_reentrant: false"),
    "Axolotl, said": ({"run.yaml": CONFIG + "gradient_checkpointing_kwargs: {use_reentrant: true} # the default\nddp_find_unused_parameters: true\n"}, "use_reentrant: true", "replace", "use_reentrant: false"),
    "a recipe": ({"train.sh": "accelerate launch --num_processes 8 sft.py --config c.yaml --use_lora true", "c.yaml": "gradient_checkpointing: true\nbf16: true\n"}, "gradient_checkpointing: true", "add", "gradient_checkpointing_kwargs:\n  use_reentrant: false"),
    "Python": ({"train.py": ARGUMENTS.format("gradient_checkpointing=True"), "train.sh": TORCHRUN}, "gradient_checkpointing=True", "add", 'gradient_checkpointing_kwargs={"use_reentrant": False}'),
    "Python, said": ({"train.py": ARGUMENTS.format('gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True}'), "train.sh": TORCHRUN}, 'gradient_checkpointing_kwargs={"use_reentrant": True}', "replace", 'gradient_checkpointing_kwargs={"use_reentrant": False}'),
    "Python, a call": ({"train.py": "model.gradient_checkpointing_enable()\n", "train.sh": TORCHRUN}, "model.gradient_checkpointing_enable()", "replace", 'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})'),
}  # fmt: skip
WRITTEN = {name: ({"train.sh": text + "\n"}, *said) for name, (text, *said) in WRITTEN.items()} | ELSEWHERE
OLD = {"transformers": "4.57.1", "ms-swift": "3.5.3", "trl": "0.26.0"}
ON = ("gradient_checkpointing", "activation_checkpointing")


def offered(folder, files, versions):
    """Each finding with a fix, with its launch."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.encode())
    first = "train.sh" if "train.sh" in files else next(iter(files))
    for number, it in enumerate(READER.file(str(folder / first))):
        for finding in judge.judge(RULES, it, versions):
            if finding.fix:
                yield number, it, finding


def mended(folder, files, versions, number, before, finding):
    """Do as the words say, read it again: the finding is gone, and checkpointing is still on."""
    inside = finding.file.removeprefix(f"{folder}/")
    changed = {**files, inside: applied(finding, files[inside])}
    (folder / inside).write_bytes(changed[inside].encode())
    first = "train.sh" if "train.sh" in files else next(iter(files))
    after = READER.file(str(folder / first))[number]
    (folder / inside).write_bytes(files[inside].encode())
    known = judge.facts_of(RULES, after, versions)
    if "checkpointing" in known or not finding.versions:  # else a version decides, and this was said for some of them
        assert known["checkpointing"] == "non-reentrant", changed[inside]
    again = {(it.level, it.code, it.what) for it in judge.judge(RULES, after, versions) if it.level != "note"}
    assert (finding.level, finding.code, finding.what) not in again, changed[inside]
    on = {key: option.value for key, option in before.options.items() if key in ON}
    assert {key: after.options[key].value for key in on} == on, changed[inside]
    gone = set(before.options) - set(after.options)
    assert not gone, changed[inside]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_fix_is_added_or_takes_the_place_of_the_option_that_is_quoted(name, tmp_path):
    files, option, change, fix = WRITTEN[name]
    found = list(offered(tmp_path, files, OLD))
    assert found
    for number, before, finding in found:
        assert (finding.option, finding.change, finding.fix) == (option, change, fix)
        mended(tmp_path, files, OLD, number, before, finding)


REENTRANT = "stage: sft\nfinetuning_type: lora\nddp_find_unused_parameters: true\nuse_reentrant_gc: {}\n"
AXOLOTL = CONFIG + "ddp_find_unused_parameters: true\ngradient_checkpointing_kwargs:\n  use_reentrant: {}\n"
LONG = "gradient_checkpointing=True, gradient_checkpointing_kwargs={" + " " * 400 + '"use_reentrant": True}'
COMMENTED = (
    'gradient_checkpointing=True, gradient_checkpointing_kwargs={\n    # as before\n    "use_reentrant": True,\n}'
)
REWRITTEN = {  # the files, what is quoted, the fix: in the words of the file, though not as it stands there
    "a comment in Python": ({"train.py": ARGUMENTS.format(COMMENTED), "train.sh": TORCHRUN}, "gradient_checkpointing_kwargs={'use_reentrant': True}", "gradient_checkpointing_kwargs={'use_reentrant': False}"),
    "long, in Python": ({"train.py": ARGUMENTS.format(LONG), "train.sh": TORCHRUN}, "gradient_checkpointing_kwargs={'use_reentrant': True}", "gradient_checkpointing_kwargs={'use_reentrant': False}"),
    "a comment in YAML": ({"run.yaml": REENTRANT.format("# as before\n  true")}, "use_reentrant_gc: true", "use_reentrant_gc: false"),
    "a tag in YAML": ({"run.yaml": REENTRANT.format("!!bool true")}, "use_reentrant_gc: !!bool true", "use_reentrant_gc: false"),
    "a tag below a key": ({"run.yaml": AXOLOTL.format("!!bool true")}, "use_reentrant: !!bool true", "gradient_checkpointing_kwargs:\n  use_reentrant: false"),
}  # fmt: skip


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_fix_is_written_as_its_file_is(name, tmp_path):
    files, option, fix = REWRITTEN[name]
    found = {(it.option, it.change, it.fix) for _, _, it in offered(tmp_path, files, OLD)}
    assert found == {(option, "replace", fix)}


def test_what_stands_in_a_python_file_is_what_is_quoted():
    """Columns are counted in bytes, lines end in three ways."""
    text = 'é = "中文"; a = SFTConfig(\r\n  x="é", gradient_checkpointing=True)\rm.gradient_checkpointing_enable()\n'
    found = reader.literals("train.py", text)["gradient_checkpointing"]
    assert found.written == "gradient_checkpointing=True"
    assert reader.literals("train.py", text.partition("\r")[2].rpartition("\r")[2]) == {
        "gradient_checkpointing": Option("true", "train.py", 1, "m.gradient_checkpointing_enable()", style="python")
    }


def test_each_fix_for_a_stored_launch_leaves_checkpointing_on(tmp_path):
    launches = [
        ({it.get("name", "train.sh"): it["script"], **it.get("files", {})}, it.get("with", {})) for it in TRAPS.values()
    ]
    launches += [
        ({"run.yaml" if it["path"].endswith((".yml", ".yaml")) else "train.sh": it["launch"], **it.get("files", {})}, it.get("with", {}))
        for it in PUBLIC
    ]  # fmt: skip
    launches.append(({"train.sh": (ROOT / "snippets/lint/example.sh").read_text(encoding="utf-8")}, {}))
    changes = []
    for number, (files, pinned) in enumerate(launches):
        folder = tmp_path / str(number)
        folder.mkdir()
        for versions in (pinned, {}, OLD):
            for each in offered(folder, files, versions):
                mended(folder, files, versions, *each)
                changes.append(each[2].change)
    assert changes.count("add") > 50 and changes.count("replace") > 30


@pytest.mark.parametrize(
    "name", [name for name in RULES["forms"] if RULES["forms"][name] and RULES["stacks"][name]["launch"]]
)
def test_what_a_page_shows_for_a_framework_switches_checkpointing_on(name, tmp_path):
    """Alone, as a reader copies it to a launch that says nothing of it."""
    stack = RULES["stacks"][name]
    start = f"NPROC_PER_NODE=8 {stack['commands'][0]}" if stack["commands"] else "torchrun --nproc_per_node 8 train.py"
    for form in KNOWN.frameworks[name].forms:
        if form.setting != "checkpointing" or not (form.option or form.yaml):
            continue
        written = tmp_path / ("run.yaml" if form.yaml else "train.sh")
        keys = "".join(f"{key}: a\n" for key in stack["keys"])
        written.write_text(f"{keys}{form.yaml}" if form.yaml else f"{start} {form.option}\n")
        (it,) = READER.file(str(written))
        assert judge.facts_of(RULES, it, {**OLD, "trl": "1.16.0"})["checkpointing"] == "non-reentrant"


def test_none_is_offered_that_does_not_arrive(tmp_path):
    """Checkpointing of Unsloth stays reentrant; a value that stands there would be lost; a run without checkpointing needs none."""
    for files in (
        {"run.yaml": "stage: sft\nfinetuning_type: lora\nuse_unsloth_gc: true\nddp_find_unused_parameters: true\n"},
        {"train.sh": f"{TORCHRUN} --gradient_checkpointing --gradient_checkpointing_kwargs '{{\"preserve_rng_state\": false}}'\n"},
        {"train.sh": "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 1 --gradient_checkpointing False --deepspeed '{\"zero_optimization\": {\"stage\": 3}}'\n"},
    ):  # fmt: skip
        assert not list(offered(tmp_path, files, OLD))
        (tmp_path / next(iter(files))).unlink()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_answer_says_whether_the_option_is_kept(language, tmp_path):
    words = {"add": say("lint-report.keep", language), "replace": say("lint-report.replace", language)}
    for name in ("an option", "the other value"):
        files, option, change, fix = WRITTEN[name]
        (finding,) = [it for _, _, it in offered(tmp_path, files, OLD)]
        printed = report.terminal([], [finding], True, language)
        assert f"{words[change]}\n        {fix}\n" in printed
        assert say("lint-report.option", language, option) in printed
        if language == "en":  # as all that a machine reads
            sarif = json.loads(report.sarif([finding], ""))["runs"][0]["results"][0]["message"]["text"]
            assert f"{option}\n{words[change]} {fix}\n" in sarif
            assert f"{option}%0A{words[change]} {fix}%0A".replace("%0A", "\n") in report.github([finding]).replace(
                "%0A", "\n"
            )
            told = json.loads(report.as_json([finding]))
            assert [told[key] for key in ("option", "change", "fix")] == [option, change, fix]
