"""Logs and names of files that give orders, cost too much, or hold no text."""

import json
import os
import random
import re

import pytest

from readyonce.diagnose import engine
from support.logs import ENGINE, LOGS, read, run, told
from support.steps import steps


def test_an_exception_that_is_cut_in_a_large_log():
    """Only its own line is asked there, and it is not called an error of somebody else."""
    log = (
        "{'loss': 0.5}\n" * 100_000
        + "Expected to mark a variable ready only once\n"
        + "RuntimeError: Expected to mark a variable rea\n"
    )
    answer = told(log)
    assert (answer.json["kind"], answer.json["line"]) == ("fragment", 100_002)
    assert answer.json["words_of"] == ["ddp-ready-twice"] and answer.note is None


@pytest.mark.parametrize(
    "unit",
    [
        "Expected",
        "Expected\n",
        "The parameter",
        "The parameter has already\n",
        "\x1b[",
        "\x1b[0;",
        "[rank0]:",
        "a.",
        "EI0002 ",
        '"',
        "> ",
    ]
    + [
        "a" * 60 + "\n",
        "RuntimeError: Expected to mark a variable ready only\n",
        "[",
        "2025-03-11 10:00:00 ",
        "E  E  ",
    ],
    ids=repr,
)
def test_cost_grows_with_the_length_only(unit):
    less, more = (steps(engine, told, (unit * size)[:size]) for size in (5_000, 20_000))
    assert all(more[kind] < 4.5 * less[kind] for kind in more), (less, more)


@pytest.mark.parametrize(
    "content",
    [b"", b" \n\n", bytes(range(256)) * 99, b"\xff\xfe\xfa" * 999, b"x" * 6_000_000, b"\x1f\x8b broken", b"\xe4\xb8"],
    ids=["empty", "blank", "binary", "undecodable", "one huge line", "broken gzip", "half a character"],
)
@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_bad_input_gets_an_answer(tmp_path, content, form):
    path = tmp_path / "input"
    path.write_bytes(content)
    said = run(path, "--format", form)
    assert said.returncode in (1, 2) and "Traceback" not in said.stderr
    assert said.stdout.strip() or said.stderr.strip()


def test_a_large_log_has_the_answer_of_a_small_one(tmp_path):
    """Above 1 MiB only parts are read in full; line and answer are the same."""
    chance = random.Random(7)
    line = "[rank{}]: {{'loss': {:.4f}, 'grad_norm': {:.3f}, 'learning_rate': 1e-05, 'epoch': {:.2f}}}\n"
    before = [
        line.format(chance.randrange(8), chance.random(), chance.random(), chance.random()) for _ in range(90_000)
    ]
    decoy = "WARNING: find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters\n"
    before[30_000] = decoy
    before[60_000] = "INFO If you see `RuntimeError: Expected to mark a variable ready only once.` read the guide\n"
    for path in LOGS:
        expected, text = read(path)
        if "error" not in expected or expected["error"] == "inputs-without-grad":
            continue
        big = ("".join(before) + text).encode()
        assert len(big) > engine.WHOLE
        answer = engine.diagnose(ENGINE, big)
        small = told(text)
        assert answer.json["error"] == expected["error"], path.stem
        assert answer.json["line"] == small.json["line"] + len(before)
        assert (answer.json["line"], small.around[3][1]) in answer.around or len(small.around) < 4


NAMES = [
    b"\x1b]0;title\x07\x1b[2Jx.log",
    "x\u009b31m\u202egol.log".encode(),
    b"\xff\xfe.log",
    b"line\nbreak\rx.log",
    b"<script>alert(1)<img src=x onerror=alert(1)>.log",
    b"```\n@everyone",
    b"--x\x1b[2J",
]


@pytest.mark.parametrize("name", NAMES, ids=repr)
@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_a_file_name_gives_no_orders(tmp_path, form, name):
    name = os.fsdecode(name)
    path = tmp_path / name
    path.write_text("RuntimeError: 'weight' must be 2-D", encoding="utf-8")
    broken = path.with_name(f"{name}.gz")
    broken.write_bytes(b"\x1f\x8b broken")
    given = [[path], [tmp_path], [broken], [tmp_path / f"no {name}"], [f"--{name}"], ["--github-event", path]]
    for number, arguments in enumerate(given):
        said = run("--format", form, *arguments, errors="surrogateescape")
        assert "Traceback" not in said.stderr and said.returncode in (0, 2)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\udc80-\udcff]", said.stdout + said.stderr)
        if form == "json" and number == 0:
            assert json.loads(said.stdout)["file"] == str(path)
