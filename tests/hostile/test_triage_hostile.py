"""Logs, archives and reports that are damaged by chance, or made to cost too much: `triage` answers for all others."""

import gzip
import io
import json
import os
import random
import resource
import zipfile

import pytest

from readyonce.data import inputs
from readyonce.triage import engine, groups, layout, page, report, sources, stands, verdict
from readyonce.triage.reading import ENDED, KEPT, read
from readyonce.triage.stands import Stand
from support import fuzzed
from support.fleet import ODD, REPORT, triage, truth, written
from support.logs import ENGINE, RULES
from support.packed import tarred
from support.project import TESTS
from support.stacks import dumps

TEXT = json.dumps(RULES)
SEED, CHANGES = 20261129, 500
KNOWN = b"Traceback (most recent call last):\nRuntimeError: Expected to mark a variable ready only once.\n"
SIGNS = [
    b"\0",
    b"\xff",
    b"\n",
    b"\r",
    b"9" * 5000,
    b"-1",
    "²".encode(),
    "\u2028".encode(),
    b"[" * 3000,
    b'"',
    b"{",
    b"1-2-3",
]
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def zipped(files, method):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def whole():
    """name → bytes, of each kind of input; what a launcher writes stands in several layouts."""
    files = {name.rpartition("/")[0].replace("/", "-") + ".log": data for name, data in sorted(truth().items())[::40]}
    files |= {name: data.encode() for name, data in ODD.items()} | {"report.log": REPORT.format(3, 1).encode() * 3}
    recorded = {"message": "KeyError: 1", "extraInfo": {"py_callstack": "KeyError: 1", "timestamp": "1767225600"}}
    files["none_abcd1234/attempt_0/1/error.json"] = json.dumps({"message": recorded}).encode()
    inner = {"job/rank_0.log": KNOWN, "job/rank_1.log": b"step 1\n" * 200, "in.log.gz": gzip.compress(KNOWN * 20)}
    files |= {f"{method}.zip": zipped(inner, method) for method in METHODS}
    files |= {f"a.tar{ending and f'.{ending}'}": tarred(inner, ending) for ending in ("", "gz")}
    files["a.log.gz"] = gzip.compress(KNOWN * 20)
    try:
        import zstandard
    except ImportError:
        return files
    pack = zstandard.ZstdCompressor().compress
    return files | {"a.log.zst": pack(KNOWN * 20), "a.tar.zst": pack(tarred(inner))}


def changed(chance, data):
    """Some bytes of it cut, turned, doubled, or others."""
    data = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                del data[at:]
            case 1 if data:
                data[at % len(data)] ^= 1 << chance.randrange(8)
            case 2:
                data[at:at] = data[at : at + chance.randrange(600)]
            case _:
                data[at : at + chance.randrange(9)] = chance.choice(SIGNS)
    return bytes(data)


def test_no_damage_ends_the_command_or_costs_another_file_its_answer(tmp_path):
    chance, files = random.Random(SEED), sorted(whole().items())
    (good,) = map(str, written(tmp_path, {"good.log": KNOWN}))
    for _ in range(CHANGES):
        name, data = chance.choice(files)
        (path,) = map(str, written(tmp_path / "bad", {name: (data := changed(chance, data))}))
        try:
            found = engine.each([path, good], TEXT, "en")
            answers = verdict.answers(found)
            assert [it.first.family for it in answers if it.job == good] == ["ddp-ready-twice"]
            for form in (report.text, page.html):
                form(ENGINE, answers, [], "en")
            assert len(report.jsonl(answers, []).split("\n")) == len(answers) + 1
        except BaseException as error:
            error.add_note(f"{name}: {data[:300]!r}")
            raise
        os.unlink(path)


# ------------------------------------------------------------------------------ memory


AGAIN = {
    "the same error": b"ValueError: bad\n" * 125_000,
    "a range of ranks": b"srun: error: n1: tasks 0-131071: Killed\n" * 50_000,
    "many ranks": b"".join(b"[rank%d]: ValueError: bad\n" % rank for rank in range(20_000)),
    "many processes": b"".join(
        b"n%d:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 commId 0x%016x - Init\nn%d:1:1 [0] NCCL WARN closed by remote peer %b\n"
        % (rank, rank, rank, b"x" * 400)
        for rank in range(80_000)
    ),
    "many communicators": b"".join(
        b"[INFO] HCCL(%d,a):2026-01-01-00:00:01.000.000 Entry-HcclCommInit:ranks[9], rank[1], identifier[%0200d]\n"
        % (number // 64, number)
        for number in range(200_000)
    ),
    "long lines": (b"x" * 4000 + b" ValueError: bad\n") * 500,
}


@pytest.mark.parametrize("kind", AGAIN)
def test_what_a_log_says_does_not_decide_how_much_memory_its_answer_takes(kind):
    """In a process of its own, which begins with what this one has."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reads, writes = os.pipe()
    if not (child := os.fork()):
        try:
            it = read(ENGINE, iter([AGAIN[kind]]), "train.log", layout.place("train.log"))
            json.dumps([answer.to_json() for answer in verdict.answers([it])])
            os.write(writes, str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reads, 99)) - before < 200 << 10  # KiB; a worker has about 100 MiB before
    os.close(reads)
    os.close(writes)


# ------------------------------------------------------------------------------ the last report


@pytest.mark.parametrize(
    "line",
    [
        "[" * 200_000,
        "1",
        '{"first": 1, "error": [], "said": "x"}',
        '{"first": 1, "error": {}, "said": "x"}',
        '{"first": 1, "error": null, "said": null}',
        '{"first": 1, "error": null, "said": ["x"]}',
    ],
    ids=lambda line: line[:40],
)
def test_a_last_report_that_is_none_is_refused(line):
    good = report.jsonl(triage({"a.log": KNOWN}), [])
    with pytest.raises(inputs.Unusable, match="line 2 of the last report is none of triage's"):
        groups.groups([], f"{good}{line}\n")


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\x1c", "\r"], ids=repr)
def test_what_some_take_for_the_end_of_a_line_ends_none_of_the_last_report(end):
    answers = triage({f"a{end}b.log": KNOWN})
    assert [it.new for it in groups.groups(answers, report.jsonl(answers, []))] == [False]
    assert groups.groups([], "") == []


def test_a_last_report_that_may_never_end_is_refused(tmp_path):
    os.mkfifo(tmp_path / "last.jsonl")
    for name in (tmp_path / "last.jsonl", "/dev/zero"):
        with pytest.raises(inputs.Unusable, match="no file but a pipe or a device"):
            groups.last_report(str(name))


def test_an_error_without_words_is_called_by_its_name():
    assert sources.reason(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize("name", sorted(path.name for path in (TESTS / "fuzz/corpus/triage").iterdir()))
def test_what_once_broke_it(name):
    """What `make fuzz` found, and what was found by hand."""
    fuzzed.triaged((TESTS / "fuzz/corpus/triage" / name).read_bytes())


def test_the_same_line_a_million_times_hides_neither_the_first_error_nor_the_last():
    noise = b"ConnectionError: retrying\n" * 40_000  # a megabyte
    assert 10 * len(noise) > KEPT
    it = read(ENGINE, iter([b"start\n", *[noise] * 10, KNOWN]), "a.log", layout.place("a.log"))
    (stream,) = it.streams
    assert stream.family == "ddp-ready-twice"


def test_dumps_of_ten_thousand_ranks():
    stack = dumps()["sleep-4/faulthandler/rank_0.log"]
    (found,) = triage({f"rank_{rank}.log": stack for rank in range(10_000)})
    assert found.standing.groups[0].ranks == [*range(10_000)]
    assert "rank 0-9999: " in report.standing(found.standing, "en")[0]


def test_a_range_in_a_log_does_not_decide_how_much_is_made():
    line = "srun: error: n1: tasks {}: Exited with exit code 1\n"
    for text in (line.format(",".join(["0-65536"] * 20)), line.format("0-65536") * 20, line.format("0-999999999")):
        it = read(ENGINE, iter([text.encode()]), "train.log", layout.place("train.log"))
        assert len(it.ended) == ENDED and str(ENDED) in it.fault
    it = read(ENGINE, iter([line.format("0-9999").encode() * 3]), "train.log", layout.place("train.log"))
    assert not it.fault and {ended.rank for ended in it.ended} == {*range(10_000)}


def test_a_dump_of_many_threads_and_ranks_that_nobody_has():
    threads = b"".join(
        b'Thread 0x%016x (most recent call first):\n  File "a.py", line 3 in f\n' % n for n in range(99_999)
    )
    (stand,) = stands.stands(threads.split(b"\n"))
    assert stand.process == "thread 0x000000000001869e"
    made = [Stand(stand.frames, rank=rank) for rank in (0, 999_999_999)]
    assert stands.standing(made).missing == []
