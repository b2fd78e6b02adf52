"""`diagnose` on what is made to break it, or broken by accident: cost, cuts, padding, files that cannot be read."""

import ctypes
import gzip
import json
import os
import random
import tracemalloc

import pytest

from readyonce.diagnose import engine
from support.logs import ENGINE, LOGS, PLAIN, SHORTEST, alike, error, issue, on_one_line, padded, read, run, told
from support.project import ROOT, command
from support.steps import steps

# ------------------------------------------------------------------------------ cost


@pytest.mark.parametrize("name, unit", SHORTEST, ids=[name for name, _ in SHORTEST])
def test_a_line_of_quoted_errors_costs_what_its_length_costs(name, unit):
    less, more = (steps(engine, told, on_one_line(unit, size)) for size in (10_000, 40_000))
    assert all(more[kind] < 4.5 * less[kind] for kind in more), (less, more)  # it took sixteen times as long


@pytest.mark.parametrize(
    "line", ["ValueError: bad config\n", "If you see " + error("no-grad-fn").strip() + "\n"], ids=repr
)
def test_memory_does_not_grow_with_what_is_said_again(line):
    def most(size):
        block = (line * ((64 << 10) // len(line) + 1)).encode()
        tracemalloc.start()
        engine.diagnose_stream(ENGINE, iter([block] * (size // len(block))), "-", "en")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    assert most(6 << 20) < 1.2 * most(2 << 20)


def test_a_log_whose_ordinary_lines_have_half_a_literal_is_not_read_in_full(monkeypatch):
    line, whole, done = (
        PLAIN + "UserWarning: This DataLoader will create 8 worker processes\n",
        engine.Findings.read,
        [],
    )
    monkeypatch.setattr(
        engine.Findings,
        "read",
        lambda self, rules, text, *rest: done.append(len(text)) or whole(self, rules, text, *rest),
    )
    log = line * ((12 << 20) // len(line))
    for text in (error("no-grad-fn"), "RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly"):
        done.clear()
        assert told(f"{log}{text}\n{line}").json["error"] == told(text).json["error"]
        assert sum(done) < len(log) / 2


# ------------------------------------------------------------------------------ cuts and padding


def test_the_answer_does_not_depend_on_where_a_block_ends(small_blocks):
    for text, large, lines in padded(random.Random(17), 60, least=200 << 10):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "WHOLE", 1 << 20)
            whole = told(text).json
        assert alike(told(large).json, whole, lines), text


@pytest.mark.parametrize("end", ["\n", " "], ids=["lines", "one line"])
def test_a_cut_between_a_guide_and_the_error_it_quotes(end):
    line = "If you see Expected to mark a variable ready only once." + end
    for moved in range(0, len(line), 13):
        log = "\n" + "x" * moved + end + line * ((1 << 20) // len(line) + 8000)
        assert told(log).json["kind"] == "unknown", moved


def test_an_error_behind_nothing_but_blank_lines():
    log = "\n" * (3 << 20) + error("no-grad-fn")
    assert told(log).json["error"] == "no-grad-fn" and told(log).json["line"] > 3 << 20
    assert told("\n \n" * (1 << 20)).note == "empty"


@pytest.mark.parametrize("name", ["inflight-params", "ddp-graph-changed", "hccl-ei0006", "zero-reduced-twice"])
def test_an_error_without_rare_letters_in_a_large_log(name):
    for text in {error(name), *(read(path)[1] for path in LOGS if read(path)[0].get("error") == name)}:
        log = PLAIN * (2 * engine.BLOCK // len(PLAIN)) + text + "\n"
        assert told(log).json["error"] == told(text).json["error"]


# ------------------------------------------------------------------------------ files


def without_root_powers():
    for power in (1, 2):  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, for what is started
        ctypes.CDLL(None).prctl(24, power, 0, 0, 0)


def files_of(said):
    return {os.path.basename(it["file"]): it["error"] for it in map(json.loads, said.stdout.splitlines())}


def test_what_cannot_be_read_does_not_keep_the_rest_from_being_read(tmp_path):
    text = read(LOGS[0])[1].encode()
    packed = gzip.compress(text)
    closed = tmp_path / "closed"
    (closed / "below").mkdir(parents=True)
    for name, content in {
        "a.log.gz": b"\x1f\x8b nothing",
        "b.log": text,
        "c.log.gz": packed[:-9],
        "d.log.gz": packed + b"junk",
        "e.log": text,
        "closed/f.log": text,
    }.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "e.log").chmod(0)
    closed.chmod(0)
    try:
        for given in ([tmp_path], [tmp_path / "*", tmp_path / "*" / "*.log"], [tmp_path / "b.log", closed / "f.log"]):
            said = run(*given, "--format", "json", preexec_fn=without_root_powers)
            assert said.returncode == 2 and "Traceback" not in said.stderr
            assert "closed" in said.stderr and "Permission denied" in said.stderr
            if len(given) == 1 or "*" in str(given[0]):
                assert files_of(said) == dict.fromkeys(("b.log", "c.log.gz", "d.log.gz"), "ddp-ready-twice")
                assert "c.log.gz is cut" in said.stderr and "d.log.gz is cut or damaged" in said.stderr
                assert all(f"{name} cannot be read" in said.stderr for name in ("a.log.gz", "e.log"))
            else:
                assert files_of(said) == {"b.log": "ddp-ready-twice"}
    finally:
        closed.chmod(0o700)


def test_an_empty_name_is_no_folder():
    said = run("")
    assert said.returncode == 2 and not said.stdout and "is the variable set" in said.stderr


@pytest.mark.parametrize(
    "given, code, words",
    [
        (["Expected to mark a variable ready only once."], 0, "RO-0001"),
        (["Expected", "to", "mark", "a", "variable", "ready", "only", "once."], 0, "RO-0001"),  # without quotes
        (["RuntimeError: Expected to mark a variable ready only once. " + "x" * 5000], 0, "RO-0001"),
        (["Expected to mark a variable..."], 1, "not a whole error line"),
    ],
    ids=["quoted", "bare", "long", "cut"],
)
def test_a_pasted_error_is_read_as_a_text(given, code, words):
    said = run(*given)
    assert said.returncode == code and words in said.stdout, said.stdout + said.stderr
    assert said.stderr == "readyonce: there is no such file: read as the text of an error\n"


@pytest.mark.parametrize(
    "given, words",
    [
        (["ValueError: nobody knows this one"], "Pipe it in"),
        (["train log.txt"], "there is no file train log.txt"),
        (["logs/ddp.log", "an", "error", "other.log"], "there is no file logs/ddp.log"),
        (["tests", "Expected", "to", "mark", "a", "variable", "ready", "only", "once."], "there is no file Expected"),
    ],
    ids=["unknown", "a name", "names", "a file among them"],
)
def test_what_is_neither_file_nor_known_error(given, words):
    said = run(*given, cwd=ROOT)
    assert said.returncode == 2 and words in said.stderr and not said.stdout, said.stdout + said.stderr


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_closed_standard_input(arguments):
    said = run(*arguments, preexec_fn=lambda: os.close(0))
    assert said.returncode == 2 and "standard input is closed" in said.stderr and "Traceback" not in said.stderr


@pytest.mark.parametrize("form", ["text", "json"])
def test_closed_standard_output(tmp_path, form):
    (log := tmp_path / "x.log").write_text(error("no-grad-fn"), encoding="utf-8")
    said = run(log, "--format", form, preexec_fn=lambda: os.close(1))
    assert said.returncode == 2 and "standard output is closed" in said.stderr and "Traceback" not in said.stderr


@pytest.mark.parametrize(
    "event", ["[" * 100_000, '{"issue": {"title": 5, "body": "x"}}', '{"issue": {"title": "x", "body": [1]}}']
)
def test_an_event_that_is_none(tmp_path, event):
    (path := tmp_path / "event.json").write_text(event, encoding="utf-8")
    said = run("--github-event", path)
    assert said.returncode == 2 and "is not an event of an issue" in said.stderr and "Traceback" not in said.stderr


@pytest.mark.parametrize("content", [b"", b'{"families": [', b"\xff\xff", b"[]", b"null"], ids=repr)
def test_a_damaged_rule_set_is_made_anew(copy, content):
    compiled, package = copy / "build" / "rules.json", {"PYTHONPATH": str(copy / "scripts")}
    compiled.parent.mkdir()
    compiled.write_bytes(content)
    os.utime(compiled, (2e9, 2e9))  # newer than its sources
    for _ in range(2):
        said = command("diagnose", "-", root=copy, environment=package, input=error("no-grad-fn"))
        assert said.returncode == 0, said.stderr
    assert json.loads(compiled.read_bytes())["families"]


def test_a_line_feed_in_a_name_stays_in_its_line(tmp_path):
    (tmp_path / "line\nbreak.log").write_text(error("no-grad-fn"), encoding="utf-8")
    said = run(tmp_path)
    assert said.returncode == 0 and "line\\nbreak.log\n" in said.stdout


def test_a_fence_is_measured_on_what_is_shown(tmp_path):
    said = issue(tmp_path, "x", "``\x01`\x1b]" + 256 * "x" + "\x07 RuntimeError: 'weight' must be 2-D")
    fence, shown, end = (at := said.stdout.splitlines())[
        (n := next(i for i, it in enumerate(at) if it.endswith("text"))) : n + 3
    ]
    assert "```" in shown and fence == end + "text" and len(end) > 3
