"""The truth set of triage: jobs that were really run, whose first rank and error are known.

A job is one run; a case is a job in one of its layouts, and is known by `LAYOUT/JOB`.
"""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from functools import cache

import yaml

from readyonce.triage import layout, verdict
from readyonce.triage.reading import read
from support.logs import ENGINE
from support.project import TESTS

JOBS = yaml.safe_load((TESTS / "fleet" / "answers.yml").read_text(encoding="utf-8"))
HELD_OUT = yaml.safe_load((TESTS / "fleet" / "held-out.yml").read_text(encoding="utf-8"))
# Where the first rank's own words are cut off, nobody can know its error's family.
TRUTH = {
    f"{kind}/{name}": it | ({"family": None} if kind == "cut" else {})
    for name, it in JOBS.items()
    for kind in it["layouts"]
}
LAYOUTS = sorted({name.split("/")[0] for name in TRUTH})


@cache
def truth() -> dict[str, bytes]:
    """name → bytes, `LAYOUT/JOB/...`"""
    with tarfile.open(TESTS / "fleet" / "truth.tar.xz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def triage(files):
    """The answers for files that are held as name → bytes: a plain loop, of one process."""
    return verdict.answers(read(ENGINE, iter([data]), name, layout.place(name)) for name, data in files.items())


REPORT = "Root Cause (first observed failure):\n[0]:\n  rank      : {} (local_rank: 0)\n  exitcode  : {} (pid: 5)\n"
FAILED = "failed (exitcode: {}) local_rank: 0 (pid: 5) of binary: python\n"
LONG = "9" * 5000  # more digits than `int` takes
# Lines of launchers with something else where a number is expected: they say nothing, and the file is read.
ODD = {
    "exit-code.log": REPORT.format(0, "abc"),
    "long-exit-code.log": REPORT.format(0, LONG),
    "rank.log": REPORT.format("²", 1),
    "long-rank.log": REPORT.format(LONG, 1),
    "long-failed.log": FAILED.format(LONG),
    "long-signal.log": f"Received {LONG} death signal, shutting down workers\n",
    "tasks.log": "srun: error: n1: tasks 1-2-3: Exited with exit code 1\n",
    "long-tasks.log": f"srun: error: n1: tasks 0-{LONG},{LONG}: Exited with exit code {LONG}\n",
    "pods/ml_job-²_u-1/pytorch/0.log": "KeyError: 1\n",
    "time/error.json": '{"message": {"message": "KeyError: 1", "extraInfo": {"timestamp": ' + LONG[:400] + "}}}",
    "letter/error.json": r'{"message": "KeyError: \ud800"}',
}


def damaged(method, flipped, text):
    """A .zip of a file with a bit flipped in its packed bytes, between two whole files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, content in (
            ("before.log", b"KeyError: 1\n"),
            ("damaged.log", text),
            ("behind.log", b"KeyError: 2\n"),
        ):
            archive.writestr(name, content)
        entry = archive.getinfo("damaged.log")
    data = bytearray(made.getvalue())
    begin = entry.header_offset + 30 + len(entry.filename)
    data[begin + flipped % entry.compress_size] ^= 1 << flipped % 8
    return bytes(data)


def unreadable():
    """name → bytes, of files that cannot be read, or not to their end; each has to be named."""
    text = b"".join(b"step %d: %d\n" % (n, n * 7919 % 10_007) for n in range(200))
    return {
        "deep/error.json": b"[" * 100_000,
        "ranges.log": f"x\nsrun: error: n1: tasks {','.join(['0-65536'] * 20)}: Exited with exit code 1\n".encode(),
        "deflate.zip": damaged(zipfile.ZIP_DEFLATED, 1, text),
        "lzma.zip": damaged(zipfile.ZIP_LZMA, 2, text),
    }


def written(folder, files):
    """The same as files; their paths."""
    paths = [folder / name for name in files]
    for path, data in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return paths


def by_name(answers, kind):
    """Its name in TRUTH → the answer, for a layout of the truth set."""
    names = {}
    for it in answers:
        (name,) = {part for part in re.split(r"[/_]", it.job) if f"{kind}/{part}" in TRUTH}
        assert f"{kind}/{name}" not in names, f"{name} fell apart"
        names[f"{kind}/{name}"] = it
    return names


@cache
def told(kind):
    return by_name(triage({name: data for name, data in truth().items() if name.startswith(f"{kind}/")}), kind)


def wrong(answer, known):
    """What of an answer is not as it is known to be, its error's family apart."""
    if answer.outcome != known["outcome"] and not (known.get("passing") and answer.outcome == "unclear"):
        return f"{answer.outcome}, not {known['outcome']}"
    if known["outcome"] == "fine":
        return None
    rank = answer.first and answer.first.rank
    if rank not in known["first"]:
        return f"rank {rank} ({answer.first and answer.first.how}, by {answer.why}), not {known['first']}"
    return None


def faults(kind=None):
    """(case, what is wrong) of all cases, or of those of a layout."""
    return [
        (name, fault)
        for it in ([kind] if kind else LAYOUTS)
        for name, answer in told(it).items()
        if (fault := wrong(answer, TRUTH[name]))
    ]


def other_families():
    """(case, family that was told) where it is not the known one."""
    of = {name: answer.first and answer.first.family for kind in LAYOUTS for name, answer in told(kind).items()}
    return [(name, family) for name, family in of.items() if family != TRUTH[name].get("family")]


@cache
def figures():
    """What the set holds and how much of it was right, as pages say it."""
    bad = {name for name, _ in faults()} | {name for name, _ in other_families()}
    late = [name for name in TRUTH if TRUTH[name].get("held-out")]
    late_jobs = {name.split("/")[1] for name in late}
    return {
        "jobs": len(JOBS),
        "cases": len(TRUTH),
        "right": len(TRUTH) - len(faults()),
        "right-jobs": len(JOBS) - len({name.split("/")[1] for name in bad}),
        "families": len({it["family"] for it in JOBS.values() if it.get("family")}),
        "ranks": max(it["ranks"] for it in JOBS.values()),
        "held-out-jobs": len(late_jobs),
        "held-out-cases": len(late),
        "held-out-right": len(late) - sum(name in late for name, _ in faults()),
    }
