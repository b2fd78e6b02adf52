"""Where ranks stand: dumps of jobs that were really stopped by one rank, and dumps that are damaged or hostile."""

import json
import pickle
import random
import re
from collections import Counter

import pytest

from readyonce.triage import flight, page, report, stands
from readyonce.triage.stands import Stand
from support.fleet import triage
from support.logs import ENGINE
from support.project import ROOT
from support.stacks import FORMS, answer, answers, cases, dumps, judged

ANSWERS = answers()
SAID = Counter((form, judged(job, form)) for job, form in cases())


def test_no_other_rank_is_named():
    assert len(ANSWERS) >= 60 and {job["ranks"] for job in ANSWERS.values()} == set(range(2, 9))
    assert not [it for it in SAID if it[1] in ("wrong", "no line")], SAID


@pytest.mark.parametrize("form", FORMS)
def test_the_rank_and_its_line_are_told(form):
    """But for jobs of two ranks that both wait in a collective, and for ranks that stand in one and the same line."""
    untold = {job for job, its in cases() if its == form and judged(job, form) == "untold"}
    waits = {f"{kind}-2" for kind in ("broadcasts", "metric", "other-group", "saves")}
    same = {job for job in ANSWERS if job.startswith("other-order")} if form in ("faulthandler", "py-spy") else set()
    assert untold <= waits | same
    assert SAID[form, "right"] >= 15


def test_what_the_page_tells_of_it_is_so():
    for language in ("en", "zh"):
        text = (ROOT / "docs" / language / "triage.md").read_text(encoding="utf-8")
        section = text[text.index("{#stands}") :].partition("\n## ")[0]
        stored = ROOT / "snippets" / "triage" / "stands.txt"
        shown = "\n".join(report.standing(answer("decoder-6", "py-spy").standing, "en"))
        assert stored.read_text(encoding="utf-8") == shown + "\n" and f'--8<-- "triage/{stored.name}"' in section
        total, right = sum(SAID.values()), sum(count for it, count in SAID.items() if it[1] == "right")
        for number in (len(ANSWERS), total, right, total - right):
            assert re.search(rf"\b{number}\b", section, re.ASCII), number


def test_a_dump_never_says_that_a_job_hangs():
    for job in ("slow-3", "slow-5", "slow-8"):
        found = answer(job, "py-spy")
        assert found.outcome == "dumped" and found.first is None and report.exit_code([found]) == 0
        text = report.text(ENGINE, [found], [], "en")
        assert "one dump does not tell a slow rank from one that hangs" in text


def test_a_job_without_dumps_has_none():
    (found,) = triage({"train.log": b"step 1 loss 0.5\n" * 100})
    assert found.standing is None and found.outcome == "fine" and found.to_json()["stands"] is None


def test_dumps_in_a_row_are_counted():
    data = dumps()
    twice = {name: data[name] * 3 for name in data if name.startswith("sleep-4/faulthandler/")}
    (found,) = triage(twice)
    assert {group.same for group in found.standing.groups} == {3}
    assert report.standing(found.standing, "en")[-1] == "each stood there in 3 dumps in a row"


def test_dumps_in_the_middle_of_a_log_behind_labels():
    data = dumps()
    lines = []
    for rank in range(4):
        dump = data[f"sleep-4/faulthandler/rank_{rank}.log"].splitlines()
        head = [b"step %d loss 0.5" % step for step in range(20_000)]  # it is neither the head nor the end of the file
        lines += [b"[rank%d]: %s" % (rank, line) for line in [*head, *dump, *head]]
    (found,) = triage({"job/train.log": b"\n".join(lines)})
    assert found.standing.apart.ranks == [ANSWERS["sleep-4"]["bad"]]
    assert [group.ranks for group in found.standing.groups if group is not found.standing.apart] == [
        [rank for rank in range(4) if rank != ANSWERS["sleep-4"]["bad"]]
    ]


def test_processes_of_one_file_and_files_of_one_folder():
    own = {name: data for name, data in dumps().items() if name.startswith("lock-4/py-spy/")}
    bad = ANSWERS["lock-4"]["bad"]
    (one,) = triage({"all.txt": b"\n".join(own.values())})
    (apart,) = one.standing.apart.names
    process = re.match(rb"Process (\d+)", own[f"lock-4/py-spy/rank_{bad}.txt"])[1].decode()
    assert apart == f"all.txt, process {process}"
    (folder,) = triage({f"d/{'abcd'[n]}.txt": data for n, data in enumerate(own.values())})
    assert folder.standing.apart.names == [f"{'abcd'[bad]}.txt"] and folder.layout == "dumps"


def test_logs_with_a_dump_in_them_stay_jobs_of_their_own():
    dump = dumps()["sleep-4/faulthandler/rank_0.log"]
    found = triage({f"logs/{name}.log": b"step 1 loss 0.5\n" + dump for name in "ab"})
    assert [answer.job for answer in found] == ["logs/a.log", "logs/b.log"]


def test_a_line_of_a_log_names_no_process():
    dump = dumps()["sleep-4/faulthandler/rank_0.log"].split(b"\n")
    (stand,) = stands.stands([b"Process 7: data is read", b"step 1", *dump])
    assert stand.process.startswith("thread 0x")


def test_what_the_guard_writes():
    dump = dumps()["sleep-4/faulthandler/rank_0.log"].decode()
    told = json.dumps(
        {"rank": 2, "ranks": 4, "host": "n", "steps": 1, "collectives": 17, "stack": [["x" * 5000, 1, "f"]]}
    )
    head = "rank 2 on n, process 5, 2026-11-29 10:00:00: no optimizer step for 300 s, 1 done; it waits\n\n"
    (stand,) = stands.stands(f"{head}{dump}\n{told}\n".encode().split(b"\n"))
    assert (stand.rank, stand.begun, stand.process) == (2, 17, "process 5")


def test_ranks_without_a_dump_are_named():
    own = {name: data for name, data in dumps().items() if name.startswith("sleep-4/json/")}
    missing = 0 if ANSWERS["sleep-4"]["bad"] else 1
    del own[f"sleep-4/json/nccl_trace_rank_{missing}"]
    (found,) = triage(own)
    assert found.standing.missing == [missing]
    assert f"no dump of ranks {missing}" in report.standing(found.standing, "en")


def test_escape_codes_and_markup_reach_no_report():
    frame = b'Thread 0x00007f0000000000 (most recent call first):\n  File "\x1b[31m<i>.py", line 3 in <script>\n'
    found = triage({"rank_0.log": frame, "rank_1.log": frame})
    assert "\x1b" not in report.text(ENGINE, found, [], "en")
    assert "<i>" not in (made := page.html(ENGINE, found, [], "en")) and "<script>" not in made


# ------------------------------------------------------------------------------ files that are damaged or hostile


class Runs:
    def __reduce__(self):
        return print, ("this was run",)


def test_a_pickle_that_would_run_code_is_refused(capsys):
    data = pickle.dumps({"version": "2.10", "pg_config": {}, "entries": [Runs()]}, protocol=2)
    assert flight.is_one(data)
    assert triage({"nccl_trace_rank_0": data}) == []  # its job is not said to be fine
    with pytest.raises(ValueError, match="which no plain value needs"):
        flight.stands(data)
    assert "this was run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "value",
    [
        {"entries": 7},
        {"entries": [7, None, {"frames": 3, "collective_seq_id": "x", "input_sizes": {"a": 1}, "process_group": 5}]},
        {"entries": [{"frames": [None, {"line": "3"}, {"line": 3}]}], "pg_config": {"0": {"ranks": 5}, "1": 3}},
        {"entries": [{"profiling_name": ["x"], "process_group": [["x"], {}]}], "pg_config": []},
    ],
)
def test_values_of_another_kind_are_an_error_with_a_sentence_or_nothing(value):
    for data in (pickle.dumps(value, protocol=2), json.dumps(value).encode()):
        try:
            flight.stands(data)
        except ValueError as error:
            assert str(error) == "it is no file of the Flight Recorder"


def test_values_that_hold_each_other_are_not_written_down():
    """Forty lists, each of which holds the one before twice, would have a text of a million million letters."""
    deep = ["x"]
    for _ in range(40):
        deep = [deep, deep]
    told = {"entries": [{"input_sizes": deep, "process_group": [deep, deep], "profiling_name": deep, "frames": [deep]}]}
    (stand,) = flight.stands(pickle.dumps(told, protocol=2))
    assert stand.call == "" and stand.group == ""
    key = ("x",)
    for _ in range(40):
        key = (key, key)
    opened = b"\x80\x02}X\x09\x00\x00\x00pg_config]X\x01\x00\x00\x00x\x85q\x01"
    hashed = opened + b"".join(b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(1, 41)) + b"Ns."
    with pytest.raises(ValueError):
        flight.stands(hashed)


@pytest.mark.parametrize("tens", range(10))
def test_half_a_file_and_flipped_bits(tens):
    for seed in range(30 * tens, 30 * tens + 30):
        draw = random.Random(seed)
        name = draw.choice(sorted(dumps()))
        part = bytearray(dumps()[name])
        for _ in range(draw.randint(0, 3)):
            part[draw.randrange(len(part))] ^= 1 << draw.randint(0, 7)
        del part[draw.randint(0, len(part)) :]
        try:
            found = triage({f"x/{name.rpartition('/')[2]}": bytes(part)})
            report.text(ENGINE, found, [], "zh")
        except Exception as error:
            raise AssertionError(f"seed {seed}: {name} as {part.hex()}") from error


def test_a_file_that_is_too_long_or_too_deep_is_told():
    from readyonce.triage.layout import place
    from readyonce.triage.reading import read

    head = b'{"pg_config": {}, "entries": '
    for data, words in (
        (head + b"[" * 200_000, "recursion"),
        (head + b" " * (flight.MOST + 1), "more than 8 MiB"),
        (head + b"{}," * (flight.HELD + 1), "more than 400000 lists"),
        (b"\x80\x02}X\x09\x00\x00\x00pg_config" + b"}" * (2 * flight.HELD + 1), "more than 400000 lists"),
        (b"\x80\x02}X\x09\x00\x00\x00pg_config", "half a pickle|ended|expected|exhausted"),
    ):
        reading = read(ENGINE, iter([data]), "nccl_trace_rank_0", place("nccl_trace_rank_0"))
        assert re.search(words, reading.fault), reading.fault


def test_a_log_in_json_is_read_as_a_log():
    (found,) = triage({"train.log": b'{"version": 1, "entries": 3}\n{"message": "KeyError: 1"}\n'})
    assert found.standing is None and found.first.message == "KeyError: 1"


def test_the_smallest_group_is_named_only_if_there_is_one():
    frames = {kind: (stands.Frame("train.py", line, kind),) for line, kind in enumerate(("one", "two"), 1)}
    each = [Stand(frames["one"], rank=0), Stand(frames["two"], rank=1)]
    assert stands.standing(each).apart is None
    assert stands.standing([*each, Stand(frames["two"], rank=2)]).apart.ranks == [0]
    assert stands.standing([]) is None
