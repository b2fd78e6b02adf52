"""`diagnose`: real logs, texts that only look like them, and both engines held against each other.

`logs/` has real logs, each with the expected answer in lines that begin with `#?`; `messages.yml` has texts from threads and
sources; `confusers.yml` has what must not be taken for an error.
"""

import gzip
import html
import json
import re
import subprocess
import sys

import pytest

from readyonce.data.project import LANGUAGES
from readyonce.diagnose import engine as diagnose
from readyonce.diagnose import report
from readyonce.rules import diagnose as rules
from support.logs import (
    CHANGES,
    COMPLAINTS,
    CONFUSERS,
    CUTS,
    ENGINE,
    GUIDES,
    IN_JSON,
    LEADS,
    LOGS,
    MESSAGES,
    NO_COMPLAINTS,
    NO_SIGNS,
    REPORTS,
    RULES,
    SIGNS,
    TITLES,
    UNCOVERED,
    error,
    in_json,
    issue,
    letters,
    read,
    run,
    told,
)
from support.ordinary import ARGUMENTS, ERRORS, SURROUNDINGS
from support.project import KNOWN, ROOT

LOOKS = [(id, number) for id, it in KNOWN.incidents.items() for number in range(len(it.meta.look))]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_log(path):
    """The answer stays the same however a terminal, a tracker or a launcher has changed the text."""
    expected, log = read(path)
    for change, changed in CHANGES.items():
        text = changed(log)
        answer = told(text)
        assert (answer.json["kind"], answer.json["error"]) == (expected["kind"], expected.get("error")), change
        if "incident" in expected:
            assert answer.json["incidents"][0]["id"] == expected["incident"], change
        if "line" in expected and "middle" not in change:
            winning = html.unescape(html.unescape(text.split("\n")[answer.json["line"] - 1]))
            winning = letters(re.sub(r"\x1b\[[0-9;]*m", "", winning))
            # Where the message does not stand at the start of its line, a wrap may have put it into the next.
            assert expected["begins"] in winning or "wrapped" in change and winning, change


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_line(path):
    """The file as it stands, with the answer in its first lines."""
    expected, _ = read(path)
    assert diagnose.diagnose(ENGINE, path.read_bytes()).json["line"] == (
        int(expected["line"]) if "line" in expected else None
    )


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_part_of_a_log(path, cut):
    """Half a log has the same answer, if the message is in it; else the launcher's, or none. Never another one."""
    expected, text = read(path)
    part = "\n".join(CUTS[cut](text.rstrip("\n").split("\n")))
    answer = told(part)
    if answer.json["error"] != expected.get("error"):
        assert answer.json["error"] is None
        assert expected["begins"] not in letters(part) or expected["begins"].startswith("assert")
    if cut.startswith("last") and answer.json["error"] is None:
        assert answer.json["kind"] == (
            "wrapper-only" if "ChildFailedError" in part or "got signal" in part else "unknown"
        )


@pytest.mark.parametrize("family", sorted({entry["family"] for entry in MESSAGES}))
def test_message(family):
    for message in (entry["message"] for entry in MESSAGES if entry["family"] == family):
        for change in ("as it is", "wrapped at 80", "prefixed", "CRLF", "coloured", "quoted"):
            assert told(CHANGES[change](message)).json["error"] == family, (change, message)


@pytest.mark.parametrize("family, kind", [(family, kind) for family, kinds in CONFUSERS.items() for kind in kinds])
def test_confuser_is_no_hit(family, kind):
    for text in CONFUSERS[family][kind]:
        for change in ("as it is", "CRLF", "coloured", "prefixed"):
            answer = told(CHANGES[change](text))
            if kind == "mentions":  # it quotes the words of this error, or of none
                assert answer.json["error"] is None, (change, text)
                assert answer.note == "mention" or answer.json["kind"] == "unknown", (change, text)
                continue
            assert answer.json["kind"] == "unknown", (change, text)
            assert kind != "ordinary" or answer.note == "not-covered", (change, text)


SIZE = "RuntimeError: The size of tensor a (36) must match the size of tensor b (72) at non-singleton dimension 0"
STEP = '  File "/env/torch/optim/adam.py", line 459, in _single_tensor_adam\n    exp_avg.lerp_(grad, 1 - beta1)\n'
FORWARD = '  File "net.py", line 4, in forward\n    return x + y\n'
BACKWARD = '  File "/env/torch/autograd/graph.py", line 829, in _engine_run_backward\n'
EMPTY = SIZE.replace("36", "0")
ZERO3 = '  File "/env/deepspeed/runtime/zero/stage3.py", line 2281, in backward\n    self.loss_scaler.backward(loss.float())\n'
MATRIX = "RuntimeError: mat2 must be a matrix, got 1-D tensor"
EMBEDDING = "RuntimeError: 'weight' must be 2-D"
SPARSE = '  File "/env/torch/nn/modules/sparse.py", line 192, in forward\n    return F.embedding(\n'
FUNCTIONAL = (
    '  File "/env/torch/nn/functional.py", line 2551, in embedding\n    return torch.embedding(weight, input)\n'
)
BIAS = "size mismatch for {}: copying a param with shape torch.Size([3]) from checkpoint, the shape in current model is torch.Size([0])."


@pytest.mark.parametrize(
    "text, family",
    [
        (STEP + SIZE, "fsdp-unsynced-step"),
        (FORWARD + STEP + SIZE, "fsdp-unsynced-step"),
        (STEP + FORWARD + SIZE, None),
        (STEP.replace('"', "").replace(", line 459", ":459") + SIZE, "fsdp-unsynced-step"),  # IPython
        (STEP + FORWARD.replace('"', "").replace(", line 4", ":4") + SIZE, None),
        (SIZE, None),
        (STEP + "x" * diagnose.REACH + SIZE, None),  # too far away
        (STEP + FORWARD + SIZE + "\n" + FORWARD + STEP + SIZE, "fsdp-unsynced-step"),  # the second is the one
        (ZERO3 + EMPTY, "zero3-empty-gradient"),
        (ZERO3 + BACKWARD + EMPTY, "zero3-empty-gradient"),
        (ZERO3 + FORWARD + EMPTY, None),  # recomputed
        (ZERO3 + EMPTY + "\nzero_optimization_stage ...... 2", None),
        (ZERO3 + "zero_optimization_stage ...... 3\n" + EMPTY, "zero3-empty-gradient"),
        (SPARSE + FUNCTIONAL + EMBEDDING, "weight-not-2d"),
        (FORWARD + FUNCTIONAL + EMBEDDING, None),
        (FORWARD.replace("x + y", "F.embedding(x, self.weight)") + FUNCTIONAL + EMBEDDING, "weight-not-2d"),
        (FUNCTIONAL + EMBEDDING, None),
        (EMBEDDING, "weight-not-2d"),
        (MATRIX, "fsdp-freed-weight"),
        (FORWARD + MATRIX, None),
        ("DeepSpeed is on\n" + BIAS.format("a.bias"), "size-zero-model"),
        (BIAS.format("norm.weight"), "size-zero-model"),
    ],
)
def test_an_ordinary_text_is_known_by_the_frame_nearest_to_it_and_by_the_strategy(text, family):
    for change in (
        "as it is",
        "prefixed",
        "interleaved",
        "timestamps",
        "wrapped at 80, prefixed",
        "coloured in the middle",
    ):
        answer = told(CHANGES[change](text))
        assert answer.json["error"] == family and answer.json["words_of"] == [], change


@pytest.mark.parametrize("surrounding", SURROUNDINGS)
def test_an_ordinary_traceback_is_claimed_by_no_wording(surrounding):
    assert len(ERRORS) * len(SURROUNDINGS) == 300
    for frames, message in ERRORS:
        text = SURROUNDINGS[surrounding](frames, message)
        answer = told(text)
        assert answer.note == "not-covered" and answer.json["exception"]["text"] == message.split("\n")[0], text


def test_an_option_that_is_printed_and_not_set_is_no_clue():
    for options, family in (
        (ARGUMENTS, None),
        (ARGUMENTS.replace("deepspeed=None", "deepspeed=z3.json"), "size-zero-model"),
    ):
        assert told(f"{options}RuntimeError: {BIAS.format('scale')}").json["error"] == family


@pytest.mark.parametrize("family", KNOWN.families)
def test_family_has_a_fixture_a_confuser_and_a_near_miss(family):
    """Unless a short incident's own run ends in it: its message is the fixture, and check says whether Diagnose knows it."""
    if any(it.minimal and it.minimal.fails.error == family for it in KNOWN.incidents.values() if it.short):
        return
    fixtures = [read(path)[0].get("error") for path in LOGS] + [entry["family"] for entry in MESSAGES]
    assert family in fixtures
    assert CONFUSERS[family]["mentions"] and CONFUSERS[family]["near"]


# ------------------------------------------------------------------------------ part of an error's text


@pytest.mark.parametrize("family", KNOWN.families)
def test_a_title_is_known_or_belongs_to_its_error(family):
    for title in TITLES[family]:
        for lead in LEADS:
            for end in ("", "…", "?", "。"):
                answer = told(lead + title + end).json
                assert answer["error"] == family or answer["words_of"] == [family], (lead + title + end, answer)


@pytest.mark.parametrize(
    "text, families",
    [
        ("The parameter 447 has already been reduced", ["zero-reduced-twice"]),
        ("AssertionError: The parameter visual.blocks.0.attn.qkv.weight has already been red", ["zero-reduced-twice"]),
        ("got [0] but expected shape compatible with", ["zero3-empty-gradient"]),
        ("ready only once\nExpected to mark a variable ready only on", ["ddp-ready-twice"]),
        ("Must flatten tensors with uniform", ["fsdp-dtype", "fsdp-requires-grad"]),
        (BIAS.format("a.bias"), ["size-zero-model"]),  # nothing shows ZeRO-3
        (BIAS.format("a.weight").replace("[0]", "[0, 8]") + "\n" + BIAS.format("a.bias"), []),  # made with size 0
        # Something else, or too little.
        ("RuntimeError: Expected to mark a variable ready only one time", []),
        ("The parameter 447 has already been registered", []),
        ("The parameter", []),
        ("RuntimeError: The size of tensor a (4) must match the size of tensor b (8) at non-singleton dimension 1", []),
        ("The size of tensor a (4) must match the size of tensor b", []),
        # Another error comes first.
        ("torch.OutOfMemoryError: CUDA out of memory.\nExpected to mark a variable ready only once", []),
        # Somebody writes about it.
        ("If you see\n\nExpected to mark a variable ready only once\n\nread on.", []),
        ("## Expected to mark a variable ready only once\n\nA guide.", []),
        ("- RuntimeError: Expected to mark a variable ready only once", []),
        ('raise RuntimeError(\n    "Expected to mark a variable ready only once"\n)', []),
    ],
)
def test_part_of_an_error(text, families):
    answer = told(text).json
    assert answer["words_of"] == families
    assert answer["kind"] == ("fragment" if families else "unknown")
    assert answer["error"] is None and answer["incidents"] == [] and answer["fix"] is None


def test_the_words_for_part_of_an_error():
    answer = told("RuntimeError: Expected to mark a variable ready only once")
    for language, words in (("en", "not a whole error line"), ("zh", "不是完整的一行报错")):
        assert words in report.text(ENGINE, answer, language) and words in report.markdown(ENGINE, answer, language)


# ------------------------------------------------------------------------------ all of a text, and what is not known


def test_every_known_error_of_a_text_is_told_by_its_line():
    ours, other = error("zero-reduced-twice").strip(), error("no-grad-fn").strip()
    text = f"{ours}\nstep\n{other}\n{error('inputs-without-grad')}"
    answer = told(text)
    assert answer.json["error"] == "zero-reduced-twice"
    (also,) = answer.json["also"]  # a warning is no error
    assert also["name"] == "no-grad-fn" and "grad_fn" in text.split("\n")[also["line"] - 1]
    assert f"line {also['line']}" in report.text(ENGINE, answer, "en")
    assert f"第 {also['line']} 行" in report.markdown(ENGINE, answer, "zh")
    large = told("x\n" * (1 << 20) + text + "\n" + "y\n" * (1 << 20))
    assert large.json["also"] == [{"name": "no-grad-fn", "line": also["line"] + (1 << 20)}]


@pytest.mark.parametrize(
    "text, error",
    [
        ("[rank0]: Traceback (most recent call last):\n[rank0]: ValueError: bad config", True),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:2013, something new", True),
        ("no error at all", False),
    ],
)
def test_an_error_that_is_not_covered_is_told_so(text, error):
    answer = told(text)
    words = report.text(ENGINE, answer, "en")
    assert answer.json["kind"] == "unknown" and (answer.note == "not-covered") == error
    assert ("does not cover" in words) == error
    assert ("begin with what you see" in words) != error


def test_a_text_without_an_error_leads_to_the_guard():
    """For whom nothing failed and who doubts the gradients; an error that is somebody else's does not."""
    engine = diagnose.Rules(RULES | {"site": "https://wiki.example"})
    for text, led in (("no error at all", True), ("torch.OutOfMemoryError: CUDA out of memory.", False)):
        words = report.text(engine, diagnose.diagnose(engine, text.encode()), "en")
        assert ("https://wiki.example/guard/" in words) == led


@pytest.mark.parametrize("form", IN_JSON, ids=str)
def test_a_value_in_json_changes_no_answer(form):
    for text in filter(lambda text: ":" in text, UNCOVERED):
        answer = told(in_json(form, text)).json
        assert answer["exception"] == told(text).json["exception"], (in_json(form, text), answer)


@pytest.mark.parametrize(
    "text",
    [
        "Failed to import apex, training goes on: ImportError: No module named 'apex'",
        "except ValueError: pass",
        "class ShardError(Exception): ...",
        "- ValueError: bad shard",
        "fix: ValueError: bad shard (#12)",
        "it once failed here with ValueError: bad shard",
        "retry 2 after TimeoutError: no answer",
        'case ncclRemoteError            : return "remote process exited or there was a network error";',
        "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x10 (0x1 in /x/libc10.so)",
    ],
)
def test_an_exception_that_is_only_spoken_of_is_none(text):
    assert told(text).json["exception"] is None


def test_the_rank_of_an_exception_is_told_where_its_line_names_it():
    for before, rank in (("[rank3]: ", "3"), ("[default1]:", "1"), ("5: ", "5"), ("local_rank: 0 ", None), ("", None)):
        assert told(f"{before}ValueError: rank 7 is odd").json["exception"]["rank"] == rank


@pytest.mark.parametrize(
    "text, name",
    [
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:2013, something new", "transport"),
        ("torch.AcceleratorError: CUDA error: misaligned address", "device"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x4)", "shape"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x'", "file"),
        ("ModuleNotFoundError: No module named 'apex'", "import"),
        ("OSError: [Errno 28] No space left on device", "memory"),
        ("RendezvousConnectionError: the store has failed, see inner exception", "launcher"),
        ("ValueError: bad shard", "other"),
        ("IndexError: list index out of range", "other"),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", "other"),
        (
            "RuntimeError: copy_x:a/b.cpp:1 NPU function error: aclrtSynchronizeStreamWithTimeout(s), error code is 507011",
            "device",
        ),
        ("RuntimeError: run init_process_group before use", "not-started"),
        ("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.", "ray"),
    ],
)
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_exception_that_is_not_covered_is_quoted_with_its_class_and_where_to_look_next(text, name, language):
    answer = told(f"step 1\n{text}", language)
    exception = answer.json["exception"]
    assert (exception["text"], exception["class"], answer.json["line"]) == (text, name, 2) and "`" in exception["next"]
    for form in (report.text, report.markdown):
        words = form(ENGINE, answer, language)
        assert text in words and exception["next"].replace("`", "") in words.replace("`", "")
    assert ">      2  " in report.text(ENGINE, answer, language)


@pytest.mark.parametrize(
    "text",
    [
        "[Bug]: '{}' with DDP",
        "**{}**",
        "`{}` How do I fix it?",
        "DDP fails with {}, help",
        "训练时出现 `{}`，怎么解决？",
        "## {}",
        "If you see `{}`, read on.",
        "# {}: see the wiki",
    ],
)
def test_a_whole_message_that_is_quoted_belongs_to_its_error(text):
    for entry in MESSAGES:
        family, message = entry["family"], entry["message"]
        if "\n" not in message and KNOWN.families[family].yields != "warning":
            answer = told(text.format(message)).json
            launcher = answer["kind"] == "wrapper-only" and KNOWN.families[family].yields  # an exit code is its report
            assert launcher or family in (answer["error"], *answer["words_of"]), (text.format(message), answer)


@pytest.mark.parametrize("change", ["as it is", "CRLF", "in HTML"])
@pytest.mark.parametrize("text", GUIDES)
def test_an_error_above_its_cause_or_its_solution_is_quoted(text, change):
    answer = told(CHANGES[change](text))
    assert (answer.note, answer.json["words_of"], answer.json["error"]) == ("mention", ["ddp-ready-twice"], None)


@pytest.mark.parametrize("text", REPORTS)
def test_a_report_that_has_no_solution_is_no_guide(text):
    assert told(text).json["error"] == "ddp-ready-twice"


def test_the_name_of_a_section_is_no_exception():
    for text in ("## Error\n\nNone so far.", "Exception:\n", "Error", "| Timeout |\n", "Error: 0.0012", "Error: None"):
        assert told(text).json["exception"] is None
    assert told("Error: the shard is bad").json["exception"]["text"] == "Error: the shard is bad"


@pytest.mark.parametrize("text", COMPLAINTS)
def test_a_sentence_behind_a_word_for_an_error_is_quoted_with_its_line(text):
    answer = told(f"step 1\n{text}\nstep 2")
    assert (answer.note, answer.json["kind"], answer.json["line"]) == ("not-covered", "unknown", 2)
    assert text.endswith(answer.json["exception"]["text"]) and ">      2  " in report.text(ENGINE, answer, "en")
    known = error("no-grad-fn").strip()
    assert told(f"{text}\n{known}").json["error"] == "no-grad-fn"  # where nothing else is found
    assert told(f"{text}\nValueError: bad shard").json["exception"]["text"] == "ValueError: bad shard"
    assert told(f"{text}\n{{'loss': 2.1, 'epoch': 0.1}}").json["kind"] == "unknown"
    assert told(f"{text}\n{{'loss': 2.1, 'epoch': 0.1}}").json["exception"] is None  # training went on


@pytest.mark.parametrize("text", NO_COMPLAINTS)
def test_a_word_for_an_error_without_a_report_of_one_is_no_answer(text):
    assert told(f"step 1\n{text}\nstep 2").json["exception"] is None


def test_ordinary_text_holds_no_sentence_behind_a_word_for_an_error():
    for path in [
        *(ROOT / "scripts").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
        ROOT / "LICENSE",
    ]:
        form = diagnose._Form(path.read_bytes(), 1)
        found = [form.complaint(ENGINE, index) for index in range(len(form.lines))]
        assert not any(found), (path, [said for said in found if said])


@pytest.mark.parametrize(
    "text, page",
    [
        ("{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.01}", "symptoms"),
        ("{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.01}", "case"),
        ("step 3 loss: nan", "symptoms"),
        ("iteration 7 | lm loss: nan | grad norm: 1.2 |", "symptoms"),
        ("training hangs at step 3 on 4 gpus", "hangs"),
        ("多机训练卡住不动，没有报错", "hangs"),
        ('Thread 0x00007f3a (most recent call first):\n  File "train.py", line 9 in step', "stands"),
        ('Thread 4711 (idle): "MainThread"\n    all_reduce (torch/distributed/distributed_c10d.py:3245)', "stands"),
        ("{'loss': 0.0, 'grad_norm': 0.5}\n" * 4, "nothing-moves"),
        (
            "{'loss': 2.1, 'grad_norm': 1.4142135381698608}\n{'loss': 2.0, 'grad_norm': 1.4142135381698608}\n" * 2,
            "nothing-moves",
        ),
        ("{'loss': 2.1, 'learning_rate': 0.0}\n{'loss': 2.0, 'learning_rate': 0.0}\n" * 2, "rate-ahead"),
        ("Two GPUs train worse than one, no error.", "symptoms"),
        ("After ten steps the weights differ between ranks", "ranks-differ"),
        ("多卡训练，两张卡上的权重不一致", "ranks-differ"),
        (
            "{'loss': 2.1, 'grad_norm': 0.7, 'learning_rate': 0.0}\n{'loss': 2.0, 'grad_norm': 0.8, 'learning_rate': 1e-05}",
            None,
        ),
        ("loss: 0.0\nloss: 0.1\n" * 4, None),
    ],
)
def test_words_and_numbers_of_wrong_training_lead_to_the_questions(text, page):
    answer = told(text)
    assert answer.json["kind"] == "unknown" and answer.json["error"] is None
    assert (
        page is None
        and not answer.json["silent"]
        or page in [it["page"].partition("#")[2] for it in answer.json["silent"]]
    )
    assert (answer.note == "silent") == bool(page)
    for it in answer.json["silent"]:
        assert it["text"] in report.markdown(ENGINE, answer, "en") and it["line"] == 1


@pytest.mark.parametrize(
    "text, pages",
    [
        # The launcher's own command is missing: told before the general word of several nodes.
        ("bash: line 1: torchrun: command not found", ["nodes"]),
        ("node-2: bash: deepspeed: command not found\npdsh@node-1: node-2: ssh exited with exit code 127", ["nodes"]),
        ("On two nodes one says that the command torchrun is not found", ["nodes"]),
        # A word may stand at some distance from the other, and a number of nodes is no sign by itself.
        ("With four cards and the larger batch the loss of each rank soon becomes nan", ["case"]),
        ("verl takes 700 s for a step on two nodes and 540 s on one", []),
        ("It trains slower on the two nodes than on the one GPU", ["slow"]),
        ("Can a checkpoint of several nodes be loaded on another number of GPUs?", ["resume"]),
        ("两台机器各跑各的", ["slow"]),
        ("断点续训之后 loss 对不上", ["resume", "symptoms"]),
        ("sh: 1: pdsh: not found", ["nodes"]),
        ("在第二台机器上提示 torchrun: 未找到命令", ["nodes"]),
        # It fails, and the error is a picture or not there: that comes before what else is said.
        ("On two GPUs it fails (picture); with ddp it works, but is no faster.", ["triage", "slow"]),
        ("Training crashes while it saves a checkpoint", ["triage"]),
        ("双卡训练会报错，见截图；单卡正常，但速度很慢", ["triage", "slow"]),
        ("It always fails on two cards, and never on one.", ["triage"]),
        ("It fails with\nError: cannot open the shared cache on node 3", None),
        (
            'It fails with\n  File "a.py", line 3, in <module>\n    main()\n  File "b.py", line 4, in main\n    run()',
            None,
        ),
        ("It fails at times.\n{'loss': 1.2, 'epoch': 0.1}", []),  # training goes on
        ("step 1\n" * 20_000 + "fails with", []),  # a log
        # Nothing fails.
        ("It never crashes and gives no error, but it is no faster.", ["slow"]),
        ("训练很慢，没有报错", ["slow"]),
        ("The loss fails to fall", []),
    ],
)
def test_what_fails_comes_before_what_else_is_said(text, pages):
    answer = told(text).json
    assert answer["error"] is None
    assert (answer["line"] is None) == (pages is not None)  # else the error is quoted, or the last frame is marked
    assert [it["page"].partition("#")[2] for it in answer["silent"]] == (pages or [])


@pytest.mark.parametrize("text", SIGNS)
def test_each_framework_s_numbers_are_read(text):
    answer = told(f"Loading weights\n{text}")
    places = {it["page"].partition("#")[2]: it["line"] for it in answer.json["silent"]}
    assert answer.note == "silent" and places[SIGNS[text]] == 2


@pytest.mark.parametrize("text", NO_SIGNS)
def test_numbers_of_ordinary_training_are_no_sign(text):
    assert told(text).json["silent"] == []


def test_signs_of_wrong_training_lead_to_headings_that_exist():
    for sign in RULES["silent"]:
        page, _, anchor = sign["page"].partition("#")
        for language in LANGUAGES:
            assert f"{{#{anchor}}}" in (ROOT / "docs" / language / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name, run", [("nccl-watchdog", False), ("weight-size-0", True)])
@pytest.mark.parametrize("language, says", [("en", "Not run here"), ("zh", "本站没有实测")])
def test_an_error_that_no_run_here_ended_in_is_told_to_be_from_sources(name, run, language, says):
    answer = told(error(name), language)
    assert answer.json["error"] == name and ENGINE.families[name]["run"] == run
    for words in (
        report.text(ENGINE, answer, language),
        report.markdown(ENGINE, answer, language),
        report.error(ENGINE, name, language),
    ):
        assert (says in words) != run


@pytest.mark.parametrize("name", KNOWN.families)
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_error_is_explained_in_the_terminal(name, language):
    words = report.error(ENGINE, name, language)
    assert ENGINE.families[name]["title"] in words and "](" not in words
    for question in ENGINE.families[name]["questions"]:
        assert question[language].replace("`", "") in words


@pytest.mark.parametrize("data, words", [(b"", "empty"), (b" \n", "empty"), (b"\x89PNG\0\0", "binary")])
def test_nothing_to_read_is_told_without_talk_of_tracebacks(data, words):
    text = report.text(ENGINE, diagnose.diagnose(ENGINE, data), "en")
    assert words in text and "raceback" not in text


def test_a_backward_without_checkpointing_gets_the_questions_before_the_fix_of_most():
    backward = '  File "/env/torch/autograd/__init__.py", line 347, in backward\n'
    plain, checkpointed = (
        told(f"{frames}{error('ddp-ready-twice')}").json["fix"]
        for frames in (backward, f'{backward}  File "/env/torch/utils/checkpoint.py", line 9, in backward\n')
    )
    assert plain["forms"] == [] and plain["questions"] and "may change nothing" in plain["text"]
    assert checkpointed["forms"] and checkpointed["questions"] == plain["questions"]


# ------------------------------------------------------------------------------ which answer


@pytest.mark.parametrize("name", [name for name, family in KNOWN.families.items() if not family.yields])
def test_the_first_cause_wins(name):
    """Whatever follows from it, and whatever was warned of before."""
    logs = [read(path) for path in LOGS]
    text = next((text for expected, text in logs if expected.get("error") == name), None) or error(name)
    noise = error("inputs-without-grad")
    assert told(f"{noise}\n{text}\n{error('nccl-watchdog')}").json["error"] == name
    assert told(f"{error('nccl-watchdog')}\n{text}").json["error"] == name
    other = "no-grad-fn" if name != "no-grad-fn" else "weight-not-2d"
    assert told(f"{text}\n{error(other)}").json["error"] == name


def test_a_mention_before_the_error_does_not_win():
    guide = "If you get `RuntimeError: 'weight' must be 2-D`, initialise the reference model.\n\nHere is my log:\n\n"
    _, text = read(next(path for path in LOGS if path.stem == "RO-0002-reported"))
    assert told(guide + text).json["error"] == "ddp-ready-twice"


@pytest.mark.parametrize(
    "text, kind",
    [
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n====\ntrain.py FAILED", "wrapper-only"),
        ("Signal 9 (SIGKILL) received by PID 4711", "wrapper-only"),
        (
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 16) of binary: /bin/python",
            "wrapper-only",
        ),
        (
            "[2025-03-11 10:00:00,123] [ERROR] [launch.py:325:sigkill_handler] exits with return code = 1",
            "wrapper-only",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory.\nChildFailedError:\n", "unknown"),
        ("ValueError: bad config\n", "unknown"),
        ("", "unknown"),
        ("\0\1\2 RuntimeError: Expected to mark a variable ready only once.", "unknown"),
    ],
)
def test_kind(text, kind):
    answer = told(text)
    assert answer.json["kind"] == kind and answer.json["error"] is None and answer.json["incidents"] == []


@pytest.mark.parametrize("id, number", LOOKS)
def test_code_of_a_silent_incident_is_a_place_to_look_at(id, number):
    look = KNOWN.incidents[id].meta.look[number]
    code = "import torch\n\n" + "x)\n    ".join(look.all) + "x)\n"
    answer = told(code)
    assert (answer.json["kind"], answer.json["error"], answer.json["incidents"]) == ("unknown", None, [])
    (entry,) = [it for it in answer.json["look"] if it["id"] == id]
    assert entry["line"] == 3 and answer.note == "look"
    words = report.text(ENGINE, answer, "en")
    assert "A place to look at, no diagnosis" in words and f"readyonce explain {id}" in words
    assert f"{id} · " in report.markdown(ENGINE, answer, "zh")
    for other in ("\nRuntimeError: something else\n", *(f"\n{text}\n" for text in look.none)):
        again = told(code + other)
        assert id not in [it["id"] for it in again.json["look"]], again.json


def test_no_log_is_taken_for_code():
    texts = [read(path)[1] for path in LOGS] + [entry["message"] for entry in MESSAGES]
    texts += [text for groups in CONFUSERS.values() for group in groups.values() for text in group]
    assert [told(text).json["look"] for text in texts] == [[]] * len(texts)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_weight_that_is_not_whole_is_not_put_down_to_fsdp_alone(language):
    """ZeRO-3 prints all three texts: a weight that nothing gathered is empty there."""
    frames = '  File "site-packages/deepspeed/runtime/zero/parameter_offload.py", line 9, in hook\n'
    frames += '  File "train.py", line 9, in loss\n    return linear(x, layer.weight, layer.bias)\n'
    for name in ("fsdp-freed-weight", "weight-not-2d", "weight-size-0"):
        answer = told(frames + error(name))
        words = report.text(ENGINE, answer, language)
        assert answer.json["error"] == name and "ZeRO-3" in words and "FSDP1" in words


def test_the_launcher_says_which_rank():
    _, text = read(next(path for path in LOGS if path.stem == "weight-not-2d"))
    answer = told(text[text.index("torch.distributed.elastic.multiprocessing.errors.ChildFailedError") :])
    assert answer.json["kind"] == "wrapper-only" and answer.rank in ("0", "1")
    words = report.text(ENGINE, answer, "en")
    assert f"rank {answer.rank}" in words and "TORCHELASTIC_ERROR_FILE" in words and "@record" in words


def test_json_has_the_agreed_keys_and_no_other_family():
    for path in LOGS:
        expected, text = read(path)
        answer = json.loads(told(text).to_json())
        assert list(answer) == [
            "file",
            "kind",
            "error",
            "line",
            "words_of",
            "also",
            "incidents",
            "look",
            "fix",
            "exception",
            "silent",
        ]
        assert all(set(entry) == {"name", "line"} for entry in answer["also"])
        assert all(set(entry) == {"id", "why"} for entry in answer["incidents"])


# ------------------------------------------------------------------------------ both engines


# ------------------------------------------------------------------------------ the command


CODES = {"known": 0, "look-alike": 0, "fragment": 1, "unknown": 1, "wrapper-only": 3}


@pytest.mark.parametrize("path", LOGS[::7], ids=lambda path: path.stem)
@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_command(tmp_path, path, form):
    expected, text = read(path)
    log = tmp_path / "train.log"
    log.write_text(text, encoding="utf-8")
    said = run(log, "--format", form)
    assert said.returncode == CODES[expected["kind"]], said.stderr
    if form == "json":
        assert json.loads(said.stdout)["error"] == expected.get("error")
    elif expected.get("error"):
        assert KNOWN.families[expected["error"]].title.en in said.stdout
    piped = run("-", "--format", form, input=text)
    assert piped.stdout == said.stdout.replace(str(log), "-")


def test_part_of_an_error_is_no_diagnosis_for_a_program():
    said = run("-", "--format", "json", input="RuntimeError: Expected to mark a variable ready only once")
    assert said.returncode == CODES["fragment"]
    assert json.loads(said.stdout)["words_of"] == ["ddp-ready-twice"]


def test_folders_globs_and_gzip(tmp_path):
    _, text = read(LOGS[0])
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text(text, encoding="utf-8")
    with gzip.open(tmp_path / "logs" / "b.log.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    (tmp_path / "logs" / "c.log").write_bytes(b"\xff\xfe" + text.encode("utf-16-le"))
    for given in (tmp_path / "logs", tmp_path / "logs" / "*"):
        lines = [json.loads(line) for line in run(given, "--format", "json").stdout.splitlines()]
        assert [line["error"] for line in lines] == ["ddp-ready-twice"] * 3
        assert [line["file"] for line in lines] == [
            str(tmp_path / "logs" / name) for name in ("a.log", "b.log.gz", "c.log")
        ]


@pytest.mark.parametrize(
    "arguments", [["no-such-file.log"], ["--github-event", "no-such-file.json"], ["--format", "xml"]]
)
def test_bad_usage(arguments):
    said = run(*arguments)
    assert said.returncode == 2 and said.stderr.strip() and "Traceback" not in said.stderr


def test_comment_for_an_issue(tmp_path):
    _, text = read(next(path for path in LOGS if path.stem == "RO-0003-reported"))
    body = f"<!-- e.g. RuntimeError: 'weight' must be 2-D -->\nSince yesterday:\n\n```\n{text}\n```\n\nHelp!"
    said = issue(tmp_path, "RuntimeError: 'weight' must be 2-D", body)
    assert said.returncode == 0 and "RO-0003" in said.stdout and "2-D" not in said.stdout
    chinese = issue(
        tmp_path, "训练报错", f"多卡训练第一步反向传播就报错，单卡没有问题，请问怎么解决：\n```\n{text}\n```"
    )
    assert "可能性大的在前" in chinese.stdout
    by_title = issue(tmp_path, "RuntimeError: 'weight' must be 2-D", "See the title.")
    assert by_title.returncode == 0 and "2-D" in by_title.stdout
    nothing = issue(tmp_path, "A question", "How do I install it?")
    assert nothing.returncode == 1 and not nothing.stdout
    no_body = issue(tmp_path, "A question", None)
    assert no_body.returncode == 1 and not no_body.stdout


def test_a_comment_cannot_be_broken_out_of(tmp_path):
    said = issue(tmp_path, "x", "RuntimeError: 'weight' must be 2-D ``````` @everyone <img src=x>")
    fence = re.search(r"(?m)^(`{3,})text\n.*\n\1$", said.stdout)
    assert fence and len(fence[1]) > 7


def test_a_log_gives_no_orders_to_the_terminal(tmp_path):
    path = tmp_path / "log"
    path.write_text("\x1b]0;title\x07\x1b[2J\nRuntimeError: 'weight' must be 2-D\x9b31m", encoding="utf-8")
    for form in ("text", "json", "markdown"):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", run(path, "--format", form).stdout)


def test_diagnose_imports_nothing_heavy(tmp_path):
    path = tmp_path / "log"
    path.write_text(error("no-grad-fn"), encoding="utf-8")
    run(path)  # compiles the rules, if they are older than their sources
    script = (
        f"import sys; from readyonce.cli import main as command; command.main(['diagnose', {str(path)!r}]);"
        "print(sorted({'torch', 'yaml', 'pydantic', 'mkdocs'} & set(sys.modules)), file=sys.stderr)"
    )
    said = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert said.stderr.strip() == "[]"


def test_the_rules_are_small():
    # A kilobyte or so for each error and each incident, beside the frameworks' fixes, the words of the answers and of the signs.
    limit = 28_500 + 1_120 * len(KNOWN.families) + 1_300 * len(KNOWN.incidents)
    told = RULES | {"matching": {}}  # which grows with neither
    assert all(len(rules.to_script(told, language).encode()) < limit for language in LANGUAGES)
    assert len(json.dumps(RULES["matching"])) < 4_500
