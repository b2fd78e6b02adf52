"""Triage: jobs that were really run, whose first rank and error are known; input of every kind; the report."""

import ast
import gzip
import hashlib
import json
import lzma
import random
import re
import subprocess
import sys
import tomllib
import zipfile
import zlib

import pytest

from readyonce.data import inputs
from readyonce.triage import engine, groups, layout, page, reading, report, sources, verdict
from readyonce.triage.groups import Group
from readyonce.triage.reading import BLOCK, Reading, read
from support.fleet import (
    FAILED,
    ODD,
    damaged,
    triage,
    truth,
    unreadable,
    written,
)
from support.logs import ENGINE, RULES
from support.packed import tarred
from support.project import ROOT, command

TEXT = json.dumps(RULES)


def test_a_restart_that_helped_and_one_that_did_not():
    """Two real attempts, laid out as torchrun does where it restarts."""

    def of(job, attempt):
        for name, data in truth().items():
            if name.startswith(f"logdir/{job}/"):
                yield re.sub(r".*/attempt_0/", f"again/none_abcd1234/attempt_{attempt}/", name), data

    (answer,) = triage(dict([*of("ready-twice-rank-1", 0), *of("fine-2", 1)]))
    assert (answer.outcome, answer.attempt, answer.restarts) == ("recovered", 0, 1)
    assert (answer.first.rank, answer.first.family) == (1, "ddp-ready-twice")
    (answer,) = triage(dict([*of("ready-twice-rank-1", 0), *of("disk-full-rank-0", 1)]))
    assert (answer.outcome, answer.attempt, answer.restarts) == ("failed", 1, 1)
    assert answer.first.rank == 0 and "No space left" in answer.first.message
    # The same in one file, where the launcher's own words part the attempts.
    first, second = (truth()[f"single/{job}/train.log"] for job in ("ready-twice-rank-1", "disk-full-rank-0"))
    ended = first.index(b"\n", first.index(b"failed (exitcode")) + 1
    (answer,) = triage({"train.log": first[:ended] + second})
    assert (answer.attempt, answer.first.rank, answer.restarts) == (1, 0, 1)


def test_last_words_below_the_launcher_s_are_of_the_attempt_that_failed():
    log = (
        b"E1126 12:00:00.1 1 api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 7) of binary: python\n"
        b"[default0]:[rank0]: Traceback (most recent call last):\n[default0]:[rank0]:   File 'a.py', line 1\n"
        b"[default0]:[rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:1\n"
        b"[default0]:2026-11-26 12:00:02,000 - INFO - step 1\n[default1]:2026-11-26 12:00:02,000 - INFO - step 1\n"
    )
    (answer,) = triage({"train.log": log})
    assert (answer.outcome, answer.restarts, answer.first.rank) == ("recovered", 1, 1)
    again = b"[default0]:Traceback (most recent call last):\n[default0]:KeyError: 'x'\n"
    (answer,) = triage({"train.log": log.split(b"[default0]:2026")[0] + again})
    assert (answer.outcome, answer.restarts, answer.first.rank) == ("failed", 1, 0)
    assert "KeyError" in answer.first.message


def test_an_error_that_a_logger_wrote_ends_no_job():
    log = (
        "2026-11-26 12:00:00,000 - ERROR - skipped\nTraceback (most recent call last):\n"
        "ConnectionError: the tracker is gone\n{}"
    )
    (answer,) = triage({"a.log": log.format("2026-11-26 12:00:01,000 - INFO - step 2\n").encode()})
    assert answer.outcome == "unclear"
    (answer,) = triage({"a.log": log.format("").encode()})
    assert answer.outcome == "failed"


RAISED = "Traceback (most recent call last):\n{0}: {0}\n"
MOMENTS = {  # of two ranks that share no line: rank 1 was first, and its clock says the opposite, or the same by chance
    "no zones": ("2026-01-01 10:00:05", "2026-01-01 11:00:01"),
    "zones": ("2026-01-01T10:00:05+00:00", "2026-01-01T19:00:01+08:00"),
    "agreeing": ("2026-01-01 10:00:05", "2026-01-01 10:00:01"),
}


@pytest.mark.parametrize("moments", MOMENTS.values(), ids=MOMENTS)
@pytest.mark.parametrize("name", ["rank_{}.log", "912_{}.out", "job-worker-{}.log"])
def test_clocks_with_nothing_in_common_are_not_compared(name, moments):
    files = {
        name.format(rank): f"{moment} INFO {kind}\n{RAISED.format(kind)}".encode()
        for rank, moment, kind in zip((0, 1), moments, ("KeyError", "ValueError"))
    }
    (answer,) = triage(files)
    assert answer.why == "unknown" and answer.to_json()["first"]["why"] == "unknown"
    assert "cannot be told" in report.told_of(ENGINE, answer, "en")[0]
    assert "看不出" in report.told_of(ENGINE, answer, "zh")[0]
    shared = {file: f"{moments[rank]} INFO step 1\n".encode() + data for rank, (file, data) in enumerate(files.items())}
    (answer,) = triage(shared)
    assert answer.why == "unknown"  # set by that line, the errors came together


def test_a_silent_or_killed_rank_is_not_the_first_by_another_clock():
    report_ = "srun: error: n1: task 1: Killed\n"
    files = {
        "912_0.out": f"2026-01-01 10:00:05 INFO a\n{RAISED.format('KeyError')}",
        "912_1.out": "2026-01-01 09:00:00 INFO b\n2026-01-01 09:00:04 INFO c\n",
        "slurm-912.out": report_,
    }
    (answer,) = triage({name: text.encode() for name, text in files.items()})
    assert answer.first.how == "raised"
    files["912_0.out"] = "2026-01-01 09:00:00 INFO b\n" + files["912_0.out"]  # now they have a line in common
    (answer,) = triage({name: text.encode() for name, text in files.items()})
    assert (answer.first.how, answer.first.rank, answer.why) == ("killed", 1, "clock")
    gone = "Traceback (most recent call last):\nRuntimeError: Timed out waiting for the others\n"
    quiet = {f"912_{rank}.out": f"2026-01-01 1{rank}:00:00 INFO {rank}\n" for rank in (0, 1)}
    (answer,) = triage({name: text.encode() for name, text in (quiet | {"912_2.out": gone}).items()})
    assert (answer.first.how, answer.why) == ("hung", "unknown")


def test_a_time_zone_that_is_written_counts():
    stamps = (
        b"2026-01-01 10:00:05 x",
        b"2026-01-01T18:00:05+08:00 x",
        b"2026-01-01T10:00:05Z x",
        b"2026-01-01 04:30:05,0-0530 x",
    )
    assert len({reading._stamp(text) for text in stamps}) == 1
    assert {reading._mark(text) for text in stamps} == {" x"}


# ------------------------------------------------------------------------------ layouts


@pytest.mark.parametrize(
    "names, jobs",
    [
        # Two runs of one log folder; a run on two nodes.
        (["l/none_abcd1234/attempt_0/0/stderr.log", "l/none_efgh5678/attempt_0/0/stderr.log"], 2),
        (["l/node-0/r_abcd1234/attempt_0/0/stdout.log", "l/node-1/r_efgh5678/attempt_1/0/stdout.log", "l/all.log"], 1),
        (["a/911_0.out", "a/911_1.out", "a/slurm-911.out", "a/912_0.out", "a/912_1.out"], 2),
        (["a/train-911_0.out.gz", "a/train-911_1.out.gz"], 1),
        (["train-2025-03-11.log", "train-2025-03-12.log", "20250311_1.log"], 3),  # days, no ranks
        (["pods/ml_llama-master-0_u-1/pytorch/0.log", "pods/ml_llama-worker-1_u-2/pytorch/1.log"], 1),
        (["containers/llama-worker-0_ml_pytorch-0123456789ab.log", "llama-worker-1.log"], 2),  # of two namespaces
        (
            [
                "out/v0-20250311-101500/logging.jsonl",
                "out/v0-20250311-101500/train.log",
                "out/v1-20250311-111500/a.log",
            ],
            2,
        ),
        (["x/rank_0.log", "x/rank_1.log", "y/log.rank0", "y/log.rank1"], 2),
        (["x/a.log", "x/b.log"], 2),
        # The folder that torchrun named, under another name, or without one.
        (
            [
                "x/renamed/attempt_0/0/stderr.log",
                "x/renamed/attempt_0/1/stdout.log",
                "x/renamed/attempt_1/0/error.json",
            ],
            1,
        ),
        (["attempt_0/0/stderr.log", "attempt_0/1/stderr.log.gz"], 1),
        # The folder of the attempt under another name; numbers that are no ranks, and one alone.
        (["x/failed/0/stderr.log", "x/failed/0/stdout.log", "x/failed/1/stderr.log.gz"], 1),
        (["0/stderr.log", "1/stderr.log", "2/error.json"], 1),
        (["x/a/0/stderr.log", "x/a/1/stderr.log", "x/b/0/stderr.log", "x/b/1/stderr.log"], 2),
        (["x/2024/stderr.log", "x/2025/stderr.log"], 2),
        (["x/0/stderr.log", "x/2/stderr.log", "y/0/stderr.log"], 3),
        (["x/0/train.log", "x/1/train.log"], 2),
        (["x/a/attempt_0/0/stderr.log", "x/a copy/attempt_0/0/stderr.log"], 2),
        (["x/run_baseline/attempt_0/0/stderr.log", "x/run_improved/attempt_0/0/stderr.log"], 2),  # no random parts
        (["x/run_20250311/attempt_0/0/stderr.log", "x/run_20250312/attempt_0/0/stderr.log"], 2),
        (["x/node-0/attempt_0/0/stderr.log", "x/node-1/attempt_0/0/stderr.log"], 1),
        (["x/node-0.tar.gz/attempt_0/0/stderr.log", "x/node-1.tar.gz/attempt_0/0/stderr.log"], 1),
        (["x/node-0/a/attempt_0/0/stderr.log", "x/node-0/b/attempt_0/0/stderr.log"], 2),
        # Ranks over all nodes, in a folder of each host: a row that goes on from one to the next is one job.
        (["gpu-a/stalls/rank-0-stall-1.txt", "gpu-a/stalls/rank-1-stall-1.txt", "gpu-b/stalls/rank-2-stall-1.txt"], 1),
        (["x/a/rank0.log", "x/b/rank1.log", "x/c/rank2.log"], 1),
        (["x/a/rank0.log", "x/b/rank2.log"], 2),
        (["x/a/rank0.log", "x/a/rank2.log", "x/b/rank1.log"], 2),
        (["x/a/rank0.log", "x/a/rank1.log", "x/b/rank1.log", "x/b/rank2.log"], 2),
        (["x/host-0/none_abcd1234/attempt_0/0/stderr.log", "x/host-1/none_efgh5678/attempt_0/0/stderr.log"], 1),
    ],
)
def test_files_fall_into_jobs(names, jobs):
    found = layout.jobs(names, {"l/all.log"})
    assert len(found) == jobs, [it.files for it in found]
    assert sorted(name for it in found for name in it.files) == sorted(names)


FAILS = "Traceback (most recent call last):\nValueError: bad\n"
BESIDE = {  # what a log says that stands above one job's folder → whether it belongs to that job
    FAILS: False,
    f"+ python nightly.py\n2026-01-01 10:00:00 ERROR failed\n{FAILS}": False,
    f"torchrun is not used here\n{FAILS}": False,
    "nightly is done\n": False,
    "": True,
    f"[rank1]: {FAILS}": True,
    f"[default1]:{FAILS}": True,
    f"{FAILS}srun: error: n1: task 1: Exited with exit code 1\n": True,
    f"{FAILS}slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED ***\n": True,
    f"W0101 10:00:00.000000 12 torch/distributed/run.py:774] Setting OMP_NUM_THREADS\n{FAILS}": True,
    "W0101 10:00:00.000000 12 torch/distributed/run.py:774] Setting OMP_NUM_THREADS\n": True,
    FAILED.format(1): True,
    f"{FAILS}torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n": True,
    f"[2026-01-01 10:00:00,000] [INFO] [launch.py:256:main] process 12 spawned\n{FAILS}": True,
    f"{FAILS}mpirun noticed that process rank 1 with PID 5 on node n1 exited on signal 9 (Killed).\n": True,
}


@pytest.mark.parametrize("said", BESIDE)
@pytest.mark.parametrize("ranks", ["logs/job/rank_{}.log", "logs/run_abcd1234/attempt_0/{}/stderr.log"])
def test_a_log_above_a_job_belongs_to_it_if_a_launcher_speaks_there(ranks, said):
    files = {ranks.format(rank): b"2026-01-01 10:00:00 step 1\n" for rank in (0, 1)} | {"logs/a.log": said.encode()}
    answers = {it.job: it for it in triage(files)}
    assert ("logs/a.log" not in answers) is BESIDE[said]
    if not BESIDE[said]:
        assert answers.pop("logs/a.log").outcome == ("failed" if "bad" in said else "fine")
        (job,) = answers.values()
        assert job.outcome == "fine" and job.files == 2


STOPS = "Traceback (most recent call last):\n{}\n"
LOST = STOPS.format("RuntimeError: Connection closed by peer [127.0.0.1]:1")


def of_torchrun(folder, first=0, size=4, fails=None, labelled=True, attempt="/attempt_0"):
    """The files of one host's torchrun in a folder; the rank that fails is counted over all hosts."""
    return {
        f"{folder}{attempt}/{local}/{name}": (
            "".join(f"[rank{first + local}]: {line}" if labelled else line for line in text.splitlines(keepends=True))
        ).encode()
        for local in range(size)
        for name, text in (
            ("stdout.log", "step 1\n"),
            ("stderr.log", STOPS.format("KeyError: 'x'") if first + local == fails else LOST),
        )
    }


@pytest.mark.parametrize(
    "hosts",
    [
        ["renamed"],
        ["x/renamed and copied"],
        ["all.tar.gz"],
        ["all.tar.gz/gpu-a17", "all.tar.gz/gpu-b02"],
        ["x/10.0.0.4/logs", "x/10.0.0.9/logs"],
        ["x/gpu-a/none_abcd1234", "x/gpu-b/none_efgh5678"],
        ["x/gpu-a/r_abcd1234", "x/gpu-b/r_efgh5678"],
        ["x/r_abcd1234", "x/r_efgh5678"],  # on one shared disk
        ["x/none_abcd1234", "x/none_efgh5678"],
        ["gpu-z.zip", "gpu-a.zip"],
    ],
)
@pytest.mark.parametrize("attempt", ["/attempt_0", ""], ids=["attempt", "renamed"])
def test_a_job_is_one_whatever_its_folder_is_called(hosts, attempt):
    files = {}
    for number, host in enumerate(hosts):
        files |= of_torchrun(host, 4 * number, fails=4 * len(hosts) - 1, attempt=attempt)
    (answer,) = triage(files)
    assert (answer.layout, answer.outcome, answer.first.rank) == ("torchrun", "failed", 4 * len(hosts) - 1)
    assert [it.rank for it in answer.ranks] == [*range(4 * len(hosts))]
    assert len(answer.nodes) == (len(hosts) if len(hosts) > 1 else 0) and answer.first.how == "raised"


def test_a_host_whose_ranks_are_not_named_fills_the_gap_that_the_others_leave():
    files = of_torchrun("x/a") | of_torchrun("x/c", 4, fails=4, labelled=False) | of_torchrun("x/b", 8)
    (answer,) = triage(files)
    assert (answer.first.rank, answer.first.node) == (4, "c") and len(answer.ranks) == 12


def test_folders_that_are_no_hosts_of_one_job_stay_jobs_of_their_own():
    two = of_torchrun("x/a", fails=1) | of_torchrun("x/b", fails=2)  # both count from rank 0
    assert [(it.job, it.first.rank) for it in triage(two)] == [("x/a", 1), ("x/b", 2)]
    more = two | of_torchrun("x/c", 4)  # the second host of either
    assert [it.job for it in triage(more)] == ["x/a", "x/b", "x/c"]
    unnamed = of_torchrun("x/a", fails=1, labelled=False) | of_torchrun("x/b", fails=2, labelled=False)
    assert [(it.job, it.first.rank) for it in triage(unnamed)] == [("x/a", 1), ("x/b", 2)]
    again = of_torchrun("x/r_abcd1234", fails=1) | of_torchrun("x/r_efgh5678", fails=2)  # one run id, used twice
    assert [(it.job, it.first.rank) for it in triage(again)] == [("x/r_abcd1234", 1), ("x/r_efgh5678", 2)]


# ------------------------------------------------------------------------------ input


ERROR = b"Traceback (most recent call last):\nRuntimeError: Expected to mark a variable ready only once.\n"


def of_files(*paths):
    return engine.each([str(path) for path in paths], TEXT, "en")


def test_archives_and_packed_files_are_read_as_they_lie(tmp_path):
    names = {f"job/rank_{rank}.log": (ERROR if rank else b"step 1\n") for rank in (0, 1)}
    (tmp_path / "a.tar.gz").write_bytes(tarred({f"./{name}": data for name, data in names.items()}, "gz"))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as packed:
        for name, data in names.items():
            packed.writestr(f"{name}.gz", gzip.compress(data))
    found = of_files(tmp_path / "a.tar.gz", tmp_path / "b.zip")
    assert [it.fault for it in found] == [""] * 4
    answers = verdict.answers(found)
    assert len(answers) == 2
    assert all((it.first.rank, it.first.family) == (1, "ddp-ready-twice") for it in answers)


def test_what_cannot_be_read_is_named_and_costs_the_others_nothing(tmp_path):
    (tmp_path / "good.log").write_bytes(ERROR)
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(ERROR + b"".join(b"%d\n" % n for n in range(9999)))[:-200])
    (tmp_path / "weights.bin").write_bytes(b"\0\1" * 999)
    (tmp_path / "broken.zip").write_bytes(b"PK\3\4" + b"x" * 99)
    (tmp_path / "broken.tar").write_bytes(tarred({"train.log": b"x" * 100_000})[:50_000])
    (tmp_path / "empty.log").touch()
    found = {it.file.rpartition("/")[2]: it for it in of_files(*sorted(tmp_path.iterdir()), tmp_path / "gone.log")}
    faults = {name: it.fault for name, it in found.items() if it.fault}
    assert faults.keys() >= {"cut.log", "weights.bin", "broken.zip", "gone.log"}
    assert "binary" in faults["weights.bin"] and "cut or damaged" in faults["cut.log"]
    assert any("broken.tar" in it.file and it.fault for it in found.values())
    answers = {it.job.rpartition("/")[2]: it for it in verdict.answers(found.values())}
    assert answers["good.log"].first.family == answers["cut.log"].first.family == "ddp-ready-twice"
    assert answers["empty.log"].outcome == "empty"


def test_a_bad_file_costs_no_other_file_its_answer(tmp_path):
    good = written(tmp_path, {"job/rank_0.log": "step 1\n", "job/rank_1.log": ERROR})
    (expected,) = verdict.answers(of_files(*good))
    odd, bad = written(tmp_path / "odd", ODD), written(tmp_path / "bad", unreadable())
    found = of_files(*odd, *bad, *good)
    answers = {it.job: it for it in verdict.answers(found)}
    assert answers[expected.job].to_json() == expected.to_json()
    assert not [(it.file, it.fault) for it in found if it.file in map(str, odd) and it.fault]
    for path in bad:
        assert any(it.file.startswith(str(path)) and it.fault for it in found), path.name
    for path in bad[2:]:  # the whole files of an archive
        for name in ("before.log", "behind.log"):
            assert answers[f"{path}/{name}"].first.message.startswith("KeyError"), path


@pytest.mark.parametrize("error", [ValueError, RecursionError, MemoryError, zlib.error, lzma.LZMAError])
@pytest.mark.parametrize("place", ["_said", "_Kept.take", "_Sorting.take"])
def test_whatever_ends_the_reading_of_a_file_is_told_with_its_name(error, place, tmp_path, monkeypatch):
    owner = reading if "." not in place else getattr(reading, place.split(".")[0])
    whole = getattr(owner, place.split(".")[-1])

    def fails(*arguments):
        if (
            any(b"bad" in part for part in arguments if isinstance(part, bytes))
            or str(tmp_path / "bad.log") in arguments
        ):
            raise error("no more")
        return whole(*arguments)

    monkeypatch.setattr(owner, place.split(".")[-1], fails)
    found = of_files(*written(tmp_path, {"a.log": ERROR, "bad.log": "bad\n", "c.log": ERROR}))
    assert [bool(it.fault) for it in found] == [False, True, False]
    assert found[1].file.endswith("bad.log") and "no more" in found[1].fault
    assert [it.first.family for it in verdict.answers([found[0], found[2]])] == ["ddp-ready-twice"] * 2


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_STORED])
def test_a_flipped_bit_in_an_archive_costs_the_other_files_nothing(method, tmp_path):
    chance, path = random.Random(38), tmp_path / "logs.zip"
    text = b"".join(b"step %d: %d\n" % (n, n * 7919 % 10_007) for n in range(200))
    for flipped in chance.sample(range(2000), 25):
        path.write_bytes(damaged(method, flipped, text))
        found = {it.file.rpartition("/")[2]: it for it in of_files(path)}
        assert found["damaged.log"].fault, flipped
        answers = {it.job.rpartition("/")[2]: it for it in verdict.answers(found.values())}
        assert [answers[f"{name}.log"].first.message for name in ("before", "behind")] == ["KeyError: 1", "KeyError: 2"]


def test_what_stands_before_the_damage_in_an_archive_is_read(tmp_path):
    text = ERROR + b"".join(hashlib.sha512(b"%d" % n).hexdigest().encode() + b"\n" for n in range(8000))
    path = tmp_path / "logs.zip"
    for bits in range(3):
        path.write_bytes(damaged(zipfile.ZIP_DEFLATED, 400_000 + bits, text))
        (it,) = (it for it in of_files(path) if it.file.endswith("damaged.log"))
        assert "cut or damaged" in it.fault and it.streams[0].family == "ddp-ready-twice"


def test_a_packed_file_in_an_archive_that_is_no_log_costs_the_others_nothing(tmp_path):
    """A checkpoint of torch's is a .zip, and a .tar cannot be read backwards."""
    checkpoint = damaged(zipfile.ZIP_STORED, 0, b"\0" * 50_000)
    (tmp_path / "run.tar").write_bytes(tarred({"model.pt": checkpoint, "train.log": ERROR}))
    found = {it.file.rpartition("/")[2]: it for it in of_files(tmp_path / "run.tar")}
    assert "binary" in found["model.pt"].fault and found["train.log"].streams[0].family == "ddp-ready-twice"


def test_numbers_that_are_none_in_a_launcher_s_words_end_no_reading():
    chance = random.Random(38)
    odd = (b"abc", "²".encode(), "٣".encode(), b"9" * 5000, b"-", b"1-2-3", b"", b"1e9")
    launcher = b"".join(text.encode() for text in ODD.values())
    numbers = [*re.finditer(rb"\d+", launcher)]
    for seed in range(60):
        text = launcher
        for found in sorted(chance.sample(numbers, 6), key=lambda it: -it.start()):
            text = text[: found.start()] + chance.choice(odd) + text[found.end() :]
        it = read(ENGINE, iter([text]), "train.log", layout.place("train.log"))
        assert not it.fault, (seed, it.fault)
        verdict.answers([it])


def test_a_name_says_no_number_that_is_none(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in ("²", "9" * 250, "9" * 5000):
            archive.writestr(f"none_abcd1234/attempt_{number}/{number}/stderr.log", ERROR)
            archive.writestr(f"pods/ml_job-{number}-worker-0_u-1/pytorch/{number}.log", ERROR)
    found = of_files(tmp_path / "a.zip")
    assert len(found) == 6 and not any(it.fault for it in found)
    assert {it.first.family for it in verdict.answers(found)} == {"ddp-ready-twice"}


# ------------------------------------------------------------------------------ work and memory


def test_a_packed_log_of_any_size_is_read_whole(tmp_path):
    """What does not shrink well comes in pieces that fit no buffer."""
    text = b"".join(hashlib.sha512(b"%d" % n).hexdigest().encode() + b"\n" for n in range(30_000))
    path = tmp_path / "train.log.gz"
    for data in (text, ERROR * 200_000, text + ERROR):
        path.write_bytes(gzip.compress(data, 1))
        ((name, blocks),) = ((name, [*blocks]) for name, blocks in sources.files(str(path)))
        assert name.endswith("train.log") and b"".join(blocks) == data
    (it,) = of_files(path)
    assert not it.fault and it.streams[0].family == "ddp-ready-twice"


def test_an_archive_that_is_cut_between_two_files_is_told(tmp_path):
    whole, path = gzip.compress(tarred(dict.fromkeys(("a.log", "b.log"), ERROR)), 0), tmp_path / "logs.tar.gz"
    path.write_bytes(whole[: whole.index(b"b.log")])
    found = of_files(path)
    assert [it.file.rpartition("/")[2] for it in found] == ["a.log", "logs.tar.gz"]
    assert found[0].streams[0].family == "ddp-ready-twice" and "cut or damaged" in found[1].fault


def test_large_files_are_read_in_little_memory_and_to_the_right_line():
    noise = b"[rank%d]: {'loss': 0.5}\n"
    error = ERROR.replace(b"\n", b"\n[rank3]: ", 1)

    def blocks():
        text = b"".join(noise % (n % 8) for n in range(BLOCK // len(noise)))
        yield from [text] * 20
        yield b"[rank3]: " + error
        yield from [text] * 20

    it = read(ENGINE, blocks(), "train.log", layout.place("train.log"))
    (stream,) = (stream for stream in it.streams if stream.state == "own")
    assert (stream.rank, stream.family) == (3, "ddp-ready-twice")
    assert stream.line == 20 * (BLOCK // len(noise)) + 2
    assert stream.passing  # the job went on for long


def test_blocks_may_end_anywhere():
    name = "single/two-errors-1-then-0/train.log"
    data = truth()[name] * 3
    whole = read(ENGINE, iter([data]), name, layout.place(name))
    for size in (700, 4099, 65_537):
        parts = read(ENGINE, (data[at : at + size] for at in range(0, len(data), size)), name, layout.place(name))
        assert parts == whole, size


# ------------------------------------------------------------------------------ the report


def test_the_page_needs_nothing_and_believes_nothing():
    (answer,) = triage({"<script>alert(1)</script>.log": b"KeyError: '<img src=x onerror=alert(1)>'\n\x1b]0;title\x07"})
    told_page = page.html(ENGINE, [answer], [Group(None, answer.first.message, [answer.job], new=True)], "zh")
    assert "<script" not in told_page and "<img" not in told_page and "\x1b" not in told_page
    assert not re.search(r"""(?:src|href)=["']?\w+:|url\(|@import""", told_page)
    assert "新出现" in told_page


def test_a_log_gives_no_orders_to_the_terminal():
    order = "\x1b]0;title\x07\x1b[31m"
    log = f"[rank0]: KeyError: 'x'\nsrun: error: node{order}: task 0: Exited with exit code 1\n".encode()
    (answer,) = triage({f"job{order}.log": log})
    alike = [Group(None, f"KeyError {order}", [answer.job])]
    told = report.text(ENGINE, [answer], alike, "en", colour=True)
    assert "KeyError" in told and re.fullmatch(r"(?:[^\x00-\x09\x0b-\x1f]|\x1b\[[012]m)*", told)


@pytest.mark.parametrize("name", ["dask", "drain3", "fsspec", "pyarrow", "zstandard"])
def test_without_a_package_a_sentence_says_how_to_get_it(name, monkeypatch, tmp_path):
    for module in (name, "dask.bag"):
        monkeypatch.setitem(sys.modules, module, None)
    how = r"pip install 'readyonce\[cluster\]'"
    if name == "zstandard":  # of one file: the others are read
        (tmp_path / "a.log.zst").write_bytes(sources.ZSTD + b"x")
        (it,) = of_files(tmp_path / "a.log.zst")
        assert re.search(f"zstandard.*{how}", it.fault)
        return
    answers = triage({"a.log": b"Traceback (most recent call last):\nKeyError: 'x'\n"})
    calls = {
        "dask": lambda: engine.readings(TEXT, {"a.log": 1}, "en"),
        "drain3": lambda: groups.groups(answers),
        "fsspec": lambda: sources.expand(["memory://a"], []),
        "pyarrow": lambda: report.parquet(answers, []),
    }
    with pytest.raises(inputs.Unusable, match=f"(?i){name}.*{how}"):
        calls[name]()


def test_the_extra_names_what_triage_and_verify_on_a_cluster_import():
    imported, package = set(), ROOT / "scripts" / "readyonce"
    for path in (*(package / "triage").glob("*.py"), package / "data" / "scheduler.py", package / "lab" / "cluster.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [it.name for it in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.split(".")[0] for name in names}
    imported -= sys.stdlib_module_names | {"readyonce"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(imported) == sorted(project["optional-dependencies"]["cluster"])


def test_no_files_are_bad_usage(tmp_path):
    for path in (tmp_path, tmp_path / "none*.log"):
        said = command("triage", str(path))
        assert said.returncode == 2 and "there is no file" in said.stderr and "Traceback" not in said.stderr
    with pytest.raises(inputs.Unusable, match="standard input"):
        sources.expand(["-"], [])


def test_only_the_command_imports_what_is_heavy():
    script = (
        "import sys; from readyonce.triage import engine, page, sources, verdict, groups; import readyonce.cli.main;"
        "print(sorted({'dask', 'distributed', 'drain3', 'fsspec', 'pyarrow', 'torch'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert said.stdout.strip() == "[]", said.stderr


def test_a_reading_without_a_job_is_no_failure():
    assert verdict.answers([Reading("a.log", fault="it is binary, not a log")]) == []
