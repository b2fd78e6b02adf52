"""Makes the truth set of `readyonce triage`: python tests/fleet/make.py run FOLDER [NAME...], then ... pack FOLDER.

Each job below is really run with torchrun, on this machine: our repros as they stand, with 2 to 4 ranks, and faults that
rank.py injects. Which rank breaks first, and with which error, is known because the job was made so. `pack` takes what
could name the machine out of the logs, lays each job out as fleets do (a log folder of torchrun with and without its
console, one file with prefixes, Slurm's file for each task, a pod of Kubernetes, the failing rank's file cut) and writes truth.tar.xz beside
this file, with answers.yml in it. What a layout changes is the place of the lines, never a line, but for the cut ones.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
Job = dict[str, Any]
DDP, FINE = "RO-0001/repro.py", "no-checkpointing"


def one(rank: int, bad: str, good: str, family: str, ranks: int = 3, file: str = DDP, **more: Any) -> Job:
    """Only `rank` is set up wrong: it raises, and the others wait for it."""
    variants = {str(rank): bad, "*": good}
    return {"file": file, "ranks": ranks, "variants": variants, "first": [rank], "family": family, **more}


def all_alike(bad: str, family: str, ranks: int = 2, file: str = DDP, **more: Any) -> Job:
    """Every rank raises the same, at the same moment: each of them is right."""
    return {"file": file, "ranks": ranks, "variants": {"*": bad}, "first": [*range(ranks)], "family": family, **more}


def fault(ranks: int, first: int, faults: dict[int, Job], **more: Any) -> Job:
    told = {str(rank): it for rank, it in faults.items()}
    return {
        "file": DDP,
        "ranks": ranks,
        "variants": {"*": FINE},
        "faults": told,
        "first": [first],
        "family": None,
        **more,
    }


def raises(text: str, step: int = 2, **more: Any) -> Job:
    return {"kind": "raise", "step": step, "text": text, **more}


KILL, STOP, SLEEP = ({"kind": kind, "step": 2} for kind in ("kill", "stop", "sleep"))
DISK = "OSError: [Errno 28] No space left on device: '/data/checkpoints/step-2.pt'"
SHARD = "ValueError: shard 00017 ends before its index: 4096 tokens expected, 1873 read"
KEY = "KeyError: input_ids"
NAN = "RuntimeError: loss is nan, gradient norm inf: stopping"
FEW = {"limit": 5}

JOBS: dict[str, Job] = {
    "ready-twice-rank-0": one(0, "reported", "non-reentrant", "ddp-ready-twice", 2),
    "ready-twice-rank-1": one(1, "reported", "non-reentrant", "ddp-ready-twice", 2),
    "ready-twice-rank-2": one(2, "reported", "non-reentrant", "ddp-ready-twice"),
    "ready-twice-rank-3": one(3, "reported", "non-reentrant", "ddp-ready-twice", 4),
    "ready-twice-stack": one(1, "find-unused-true-stack-twice", "non-reentrant-stack-twice", "ddp-ready-twice"),
    "undefined-rank-1": one(1, "two-backwards-off-find-unused-true", FINE, "ddp-undefined-gradient"),
    "undefined-rank-0": one(0, "two-backwards-off-find-unused-true", FINE, "ddp-undefined-gradient", 2),
    "ready-twice-all": all_alike("reported", "ddp-ready-twice"),
    "ready-twice-all-4": all_alike("reported", "ddp-ready-twice", 4),
    "ready-twice-all-recorded": all_alike("reported", "ddp-ready-twice", 3, record=True),
    "unfinished-all": all_alike("find-unused-false-skip", "ddp-unfinished-reduction"),
    "graph-changed-all": all_alike("static-graph-skip", "ddp-graph-changed"),
    "static-no-sync-all": all_alike("static-graph-accumulate-2", "ddp-static-no-sync"),
    "undefined-all": all_alike("two-backwards-off-find-unused-true", "ddp-undefined-gradient"),
    "vision-all": all_alike("reported", "ddp-ready-twice", file="RO-0002/repro.py"),
    "reranker-all": all_alike("reported", "ddp-ready-twice", file="RO-0003/repro.py"),
    "sharded-module-all": all_alike("fsdp1-module", "weight-not-2d", file="RO-0006/sharded.py"),
    "sharded-hidden-all": all_alike("fsdp1-hidden", "weight-size-0", file="RO-0006/sharded.py"),
    "dtensor-all": all_alike("fsdp2-module", "dtensor-mixed", file="RO-0006/sharded.py"),
    "tied-all": all_alike("fsdp2-tied", "fsdp2-shared-parameter", file="RO-0008/repro.py"),
    "killed-rank-0": fault(2, 0, {0: KILL}),
    "killed-rank-1": fault(3, 1, {1: KILL}),
    "killed-rank-2": fault(3, 2, {2: KILL}),
    "killed-rank-3": fault(4, 3, {3: KILL}),
    "stopped-rank-0": fault(2, 0, {0: STOP}, hang=True, **FEW),
    "stopped-rank-1": fault(3, 1, {1: STOP}, hang=True, **FEW),
    "stopped-rank-2": fault(4, 2, {2: STOP}, hang=True, **FEW),
    "sleeping-rank-1": fault(2, 1, {1: SLEEP}, hang=True, **FEW),
    "sleeping-rank-2": fault(3, 2, {2: SLEEP}, hang=True, **FEW),
    "sleeping-rank-0": fault(3, 0, {0: SLEEP}, hang=True, **FEW),
    "disk-full-rank-0": fault(2, 0, {0: raises(DISK)}),
    "disk-full-rank-2": fault(4, 2, {2: raises(DISK)}),
    "bad-shard-rank-1": fault(3, 1, {1: raises(SHARD)}),
    "bad-key-rank-0": fault(3, 0, {0: raises(KEY)}),
    "nan-recorded-rank-1": fault(3, 1, {1: raises(NAN)}, record=True),
    "two-errors-1-then-0": fault(2, 1, {1: raises(SHARD), 0: raises(DISK, after=2)}, monitor=6),
    "two-errors-0-then-2": fault(3, 0, {0: raises(KEY), 2: raises(DISK, after=2)}, monitor=6),
    "two-errors-2-then-1": fault(3, 2, {2: raises(DISK), 1: raises(NAN, after=2)}, monitor=6),
    "two-errors-recorded": fault(2, 1, {1: raises(DISK), 0: raises(SHARD, after=3)}, monitor=6, record=True),
    "skewed-clocks-ahead": fault(3, 1, {1: raises(SHARD, 3), 0: raises(DISK, 3, after=2)}, monitor=6, skew={"1": 3600}),
    "skewed-clocks-behind": fault(2, 0, {0: raises(NAN, 3), 1: raises(KEY, 3, after=2)}, monitor=6, skew={"1": -47}),
    "slow-rank-1": fault(3, 1, {1: {"kind": "slow", "step": 2, "after": 4}}, ok=True),
    "fine-2": fault(2, 0, {}, ok=True),
    "fine-4": fault(4, 0, {}, ok=True),
    "fine-wrong-gradients": fault(2, 0, {}, ok=True) | {"variants": {"*": "find-unused-false-stack-twice"}},
}


# ------------------------------------------------------------------------------ running


def run(folder: Path, name: str) -> None:
    """`folder`/NAME: `logs`, as torchrun writes them, and `console.log`, what it prints."""
    job, here = JOBS[name], folder / name
    if (here / "done").exists():
        return
    here.mkdir(parents=True, exist_ok=True)
    file = ROOT / "snippets" / job["file"]
    plan = {key: job[key] for key in ("variants", "faults", "skew", "limit", "record") if key in job}
    options = ["--nproc-per-node", str(job["ranks"]), "--monitor-interval", str(job.get("monitor", 0.1))]
    options += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    options += ["--log-dir", str(here / "logs"), "--redirects", "3", "--tee", "3"]
    words = [str(HERE / "rank.py"), json.dumps(plan | {"repro": str(file)})]
    command = [sys.executable, "-m", "torch.distributed.run", *options, *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONUNBUFFERED": "1"}
    with (here / "console.log").open("wb") as console:
        launch = subprocess.Popen(
            command, cwd=file.parent, stdout=console, stderr=console, env=environment, start_new_session=True
        )
    try:
        launch.wait(240)
    except subprocess.TimeoutExpired:
        os.killpg(launch.pid, signal.SIGKILL)
        print(f"{name}: ended at its limit", flush=True)
        return
    (here / "done").touch()
    print(name, launch.returncode, flush=True)


# ------------------------------------------------------------------------------ packing

Files = dict[str, bytes]  # name → bytes
_TEED = re.compile(rb"\[default(\d+)\]:")
_KNOWN = rb"[\w.]*(?:Error|Exception)\b"


def pack(folder: Path) -> None:
    """truth.tar.xz: a folder for each layout, of all jobs; answers.yml: what is known of each, by its place there."""
    answers: dict[str, Job] = {}
    files: Files = {}
    for number, (name, job) in enumerate(JOBS.items()):
        if not (folder / name / "done").exists():
            print(f"{name} was not run")
            continue
        for layout, laid in layouts(folder / name, name, job, number).items():
            files |= {f"{layout}/{path}": scrubbed(data) for path, data in laid.items()}
            known = {key: job[key] for key in ("first", "family")} if not job.get("ok") else {}
            outcome = "fine" if job.get("ok") else "failed"
            hang = {"hang": True} if job.get("hang") else {}
            answers[f"{layout}/{name}"] = {"outcome": outcome, **known, **hang}
            if layout == "cut":
                answers[f"{layout}/{name}"]["family"] = None
    for name, data in files.items():
        for left in (ROOT.parent, Path(sys.prefix).resolve(), Path.home(), folder, socket.gethostname()):
            assert str(left).encode() not in data, (name, left)
    with tarfile.open(HERE / "truth.tar.xz", "w:xz", preset=9) as archive:
        # Alike beside alike: the layouts of a job share their lines.
        for name in sorted(files, key=lambda it: (it.split("/")[1].rpartition(".")[0] or it.split("/")[1], it)):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            archive.addfile(entry, io.BytesIO(files[name]))
    told = "# What is known of each job of truth.tar.xz, because it was made so. Written by `make.py pack`.\n"
    (HERE / "answers.yml").write_text(told + yaml.safe_dump(answers, sort_keys=True), encoding="utf-8")
    print(f"{len(answers)} jobs, {len(files)} files, {(HERE / 'truth.tar.xz').stat().st_size} bytes")


def scrubbed(data: bytes) -> bytes:
    """Without what names this machine."""
    for path in (sys.prefix, os.path.realpath(sys.prefix)):
        data = data.replace(path.encode(), b"/opt/venv")
    data = data.replace(str(ROOT).encode(), b"/workspace")
    data = re.sub(rb"/tmp/[\w/-]*?/(?=[\w-]+/logs(?:-0)?/)", b"/logs/", data)
    return data.replace(socket.gethostname().encode(), b"node-a")


def layouts(here: Path, name: str, job: Job, number: int) -> dict[str, Files]:
    """A layout's name → the files of this job in it."""
    console = (here / "console.log").read_bytes()
    lines = console.splitlines(keepends=True)
    bare = b"".join(line for line in lines if not _TEED.match(line))
    logs = {
        f"{name}/logs/{path.relative_to(here / 'logs').as_posix()}": path.read_bytes()
        for path in sorted((here / "logs").rglob("*"))
        if path.is_file()
    }
    tasks: dict[int, bytes] = dict.fromkeys(range(job["ranks"]), b"")
    for line in lines:
        if found := _TEED.match(line):
            tasks[int(found[1])] += line[found.end() :]
    told = {
        "torchrun": logs | {f"{name}/console.log": bare},
        "logdir": logs,
        "single": {f"{name}/train.log": console},
        "slurm": {f"{name}/{4000 + number}_{rank}.out": text for rank, text in tasks.items()},
        "labels": {f"{name}/train.log": b"".join(_TEED.sub(rb"\1: ", line) for line in lines if _TEED.match(line))},
        "kubernetes": {f"pods/train_{name}-worker-0_{number:08x}-0000-4000-8000-000000000000/torch/0.log": cri(lines)},
    }
    if number % 2:
        told["slurm"][f"{name}/slurm-{4000 + number}.out"] = bare
    if job.get("family") and len(job["first"]) == 1:
        told["cut"] = {path: cut(data, job["first"][0], path) for path, data in told["torchrun"].items()}
    return told


def cri(lines: list[bytes]) -> bytes:
    """As a container runtime writes it."""
    return b"".join(b"2026-11-25T17:00:00.000000000Z stderr F " + line for line in lines)


def cut(data: bytes, rank: int, path: str) -> bytes:
    """The first rank's file without its exception: the disk was full, or the copy was cut."""
    if not path.endswith(f"/{rank}/stderr.log"):
        return data
    at = data.index(b"Traceback (most recent call last)")
    found = re.compile(rb"^(?:\[rank\d+\]: ?)?" + _KNOWN, re.M).search(data, at)
    assert found, path
    return data[: found.start() - 40]


def main() -> None:
    what, folder, names = sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3:] or list(JOBS)
    if what == "run":
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda name: run(folder, name), names))
    else:
        pack(folder)


if __name__ == "__main__":
    main()
