"""Makes the truth set of `readyonce triage`: python tests/fleet/make.py run FOLDER [NAME...], then ... pack FOLDER.

Each job below is really run by torchrun, on this machine: our repros as they stand, with 2 to 8 ranks, and faults that
rank.py injects. Ranks begin as forks of a process that has imported torch; see forked.py. Which rank breaks first, and with
which error, is known because the job was made so; `unlike` looks whether the run is the one that was meant. `pack` takes what
could name the machine out of the logs, and lays each job out as fleets do: a log folder of torchrun with and without its
console, one file with prefixes, Slurm's file for each task, a pod of Kubernetes, what a collector mixed, a rank's file cut. It
writes truth.tar.xz beside this file, and answers.yml. What a layout changes is the place of the lines, never a line, but for
the cut ones.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import forked
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


def fault(ranks: int, first: int, faults: dict[Any, Any], **more: Any) -> Job:
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


def at(kind: str, step: int = 2, **more: Any) -> Job:
    return {"kind": kind, "step": step, **more}


def alike(names: str, family: str, file: str, ranks: str, **more: Any) -> dict[str, Job]:
    """A job for each name of a variant, with so many ranks each; its name is the file's and the variant's."""
    return {
        f"all-{_short(file)}-{name.replace('_', '-')}": all_alike(name, family, int(count), file, **more)
        for name, count in zip(names.split(), ranks.split(), strict=True)
    }


def fine(names: str, file: str, ranks: str, **more: Any) -> dict[str, Job]:
    return {
        f"fine-{_short(file)}-{name}": {
            "file": file,
            "ranks": int(count),
            "variants": {"*": name},
            "ok": True,
            "first": [],
            "family": None,
            **more,
        }
        for name, count in zip(names.split(), ranks.split(), strict=True)
    }


def _short(file: str) -> str:
    folder, _, name = file.rpartition("/")
    return f"{folder[3:] + '-' if folder.startswith('RO-') else ''}{name.removesuffix('.py').replace('_', '-')}"


KILL, STOP, SLEEP = at("kill"), at("stop"), at("sleep")
DISK = "OSError: [Errno 28] No space left on device: '/data/checkpoints/step-2.pt'"
SHARD = "ValueError: shard 00017 ends before its index: 4096 tokens expected, 1873 read"
KEY = "KeyError: input_ids"
NAN = "RuntimeError: loss is nan, gradient norm inf: stopping"
OOM = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)"
)
MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '/data/train-00031.parquet'"
STALE = "OSError: [Errno 116] Stale file handle: '/data/tokens.bin'"
INDEX = "IndexError: index 32000 is out of range for an embedding of 32000 rows"
ASSERT = "AssertionError"
STOPPED = "StopIteration"
DENIED = "PermissionError: [Errno 13] Permission denied: '/data/out'"
TRACKER = "ConnectionError: HTTPSConnectionPool(host='tracker.example', port=443): Max retries exceeded"
FEW = {"limit": 5}
LOOK = "../tests/logs/look_alikes.py"
FSDP1, FSDP2, ZERO2 = "RO-0012/repro.py", "RO-0011/repro.py", "RO-0012/zero.py"
# What trains well in each, so that a fault alone can stop it.
TRAINS = {DDP: FINE, FSDP1: "fixed-fsdp1", FSDP2: "fsdp2-fixed", ZERO2: "zero2-own", "RO-0010/repro.py": "whole-strict"}


def of(file: str, job: Job) -> Job:
    """The same fault in another repro."""
    return job | {"file": file, "variants": {"*": TRAINS[file]}}


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

# The jobs above were there when triage was written. Of those below every third, by the hash of its name, was held out: nobody
# looked at it before triage was done.
ZERO3 = "RO-0010/repro.py"
NEW: dict[str, Job] = {
    # Every family that runs here, in other repros, with more ranks.
    **alike(
        "find-unused-true-layers-twice find-unused-true-two-forwards find-unused-false-layers-twice",
        "ddp-ready-twice",
        DDP,
        "3 5 2",
    ),
    **alike("one-layer-checkpointed outside-forward-extra generate-then-train", "ddp-ready-twice", DDP, "6 4 2"),
    **alike("aligner-trained tower-full batch-4-accumulate-4", "ddp-ready-twice", "RO-0002/repro.py", "3 2 2"),
    **alike("four-layers head-trained accumulation", "ddp-ready-twice", "RO-0003/repro.py", "4 2 3"),
    "ready-twice-all-8": all_alike("reported", "ddp-ready-twice", 8),
    **alike(
        "non-reentrant-find-unused-false-skip no-checkpointing-find-unused-false-skip",
        "ddp-unfinished-reduction",
        DDP,
        "3 8",
    ),
    **alike("unused-head-find-unused-false", "ddp-unfinished-reduction", "RO-0003/repro.py", "3"),
    **alike("replaced-after-find-unused-false", "ddp-unfinished-reduction", "RO-0006/repro.py", "2"),
    **alike("static-graph-repeat two-backwards-off-static-graph", "ddp-graph-changed", DDP, "3 5"),
    **alike("static-graph-mixed-tower-trained", "ddp-graph-changed", "RO-0002/repro.py", "2"),
    **alike("static-graph-accumulate-4", "ddp-static-no-sync", "RO-0002/repro.py", "2"),
    **alike("ddp-static", "ddp-static-no-sync", FSDP1, "4"),
    **alike("two-backwards-non-reentrant-find-unused-true", "ddp-undefined-gradient", DDP, "3"),
    **alike(
        "fsdp1-lora-twice-reentrant-inside fsdp1-full-twice-reentrant-inside",
        "fsdp-freed-weight",
        "RO-0001/fsdp.py",
        "2 3",
    ),
    **alike("fsdp1-both-all-but-first fsdp1-backward-all-but-first", "fsdp-unsynced-step", FSDP1, "2 4"),
    **alike("fsdp2-hidden-every-module fsdp2-method", "dtensor-mixed", "RO-0006/sharded.py", "3 2"),
    **alike("fsdp2-outside-torch fsdp2-outside-loop", "dtensor-mixed", FSDP2, "4 2"),
    **alike("fsdp1-method", "weight-not-2d", "RO-0006/sharded.py", "4"),
    **alike("zero3-hidden", "weight-size-0", "RO-0006/sharded.py", "2"),
    "tied-all-6": all_alike("fsdp2-tied", "fsdp2-shared-parameter", 6, "RO-0008/repro.py"),
    **alike("fsdp2-model-first fsdp2-apart", "accelerate-fsdp2-together", "RO-0008/prepare.py", "2 3"),
    **alike("zero2-no-sync-last", "no-sync-zero2", ZERO2, "2"),
    **alike("reported init-root-only engine-module-state", "size-zero-model", ZERO3, "2 3 4"),
    **alike("again around", "size-zero-model", "RO-0010/pretrained.py", "2 2"),
    **alike("reported dpo-batch-1 zero1-accumulate-2", "zero-reduced-twice", "RO-0004/repro.py", "2 3 4"),
    **alike("zero3-twice-reentrant-default-bucket-accumulate-1", "zero-reduced-twice", "RO-0001/zero.py", "3"),
    **alike("gathered-for-model-used penalty-gathered-for-model", "zero3-active-parameter", "RO-0005/repro.py", "2 4"),
    **alike("reported persist-bias term-mean", "zero3-empty-gradient", "RO-0005/repro.py", "2 3 4"),
    **alike("init-gathered-checked", "zero3-modified-ungathered", ZERO3, "2"),
    **alike("checkpoint_kwargs", "checkpoint-kwargs", LOOK, "2"),
    **alike("size_zero_checkpoint", "size-zero-checkpoint", LOOK, "5"),
    **alike("no_grad_fn", "no-grad-fn", LOOK, "4"),
    **alike("checkpoint_tensor_count checkpoint_more_tensors", "checkpoint-tensor-count", LOOK, "3 2"),
    **alike("checkpoint_metadata", "checkpoint-metadata", LOOK, "3"),
    **alike("leaf_view leaf", "leaf-view-in-place", LOOK, "2 3"),
    **alike("weight_not_2d", "weight-not-2d", LOOK, "2"),
    **alike("fsdp_requires_grad", "fsdp-requires-grad", LOOK, "3"),
    **alike("fsdp_dtype", "fsdp-dtype", LOOK, "2"),
    **alike("zero3_device_map", "zero3-device-map", LOOK, "2"),
    # One rank is wrong.
    "ready-twice-rank-0-of-8": one(0, "reported", "non-reentrant", "ddp-ready-twice", 8),
    "ready-twice-rank-7-of-8": one(7, "reported", "non-reentrant", "ddp-ready-twice", 8, style="json"),
    "ready-twice-rank-5-of-6": one(
        5, "find-unused-true-layers-twice", "non-reentrant-layers-twice", "ddp-ready-twice", 6
    ),
    "vision-rank-0": one(0, "reported", "non-reentrant", "ddp-ready-twice", 4, "RO-0002/repro.py", style="bare"),
    "vision-rank-1": one(1, "tower-full", "non-reentrant-tower-full", "ddp-ready-twice", 2, "RO-0002/repro.py"),
    "reranker-rank-3": one(3, "reported", "non-reentrant", "ddp-ready-twice", 4, "RO-0003/repro.py", style="bar"),
    "dtensor-rank-2": one(2, "fsdp2-method", "wait", "dtensor-mixed", 3, "RO-0006/sharded.py"),
    "tied-rank-1": one(1, "fsdp2-tied", "wait", "fsdp2-shared-parameter", 3, "RO-0008/repro.py", style="brackets"),
    "unsynced-rank-1": one(1, "ddp-static", "ddp-every", "ddp-static-no-sync", 2, FSDP1),
    "no-sync-rank-0": one(0, "zero2-no-sync-last", "zero2-own", "no-sync-zero2", 3, ZERO2),
    "reduced-twice-rank-1": one(1, "reported", "non-reentrant", "zero-reduced-twice", 3, "RO-0004/repro.py"),
    "size-zero-rank-1": one(1, "size_zero_checkpoint", "wait", "size-zero-checkpoint", 2, LOOK),
    "tensor-count-rank-6": one(6, "checkpoint_tensor_count", "wait", "checkpoint-tensor-count", 7, LOOK),
    "leaf-rank-2": one(2, "leaf_view", "wait", "leaf-view-in-place", 4, LOOK, style="bare"),
    "no-grad-rank-0": one(0, "no_grad_fn", "wait", "no-grad-fn", 3, LOOK),
    "checkpoint-kwargs-rank-1": one(1, "checkpoint_kwargs", "wait", "checkpoint-kwargs", 3, LOOK, record=True),
    "metadata-rank-1": one(1, "checkpoint_metadata", "wait", "checkpoint-metadata", 2, LOOK),
    # Signals.
    "killed-rank-0-of-8": fault(8, 0, {0: KILL}),
    "killed-rank-6-of-8": fault(8, 6, {6: KILL}),
    "killed-rank-4-of-5": fault(5, 4, {4: at("kill", 1)}, style="json"),
    "killed-late": fault(3, 2, {2: at("kill", 3)}, style="bar"),
    "killed-sharded-1": of(FSDP1, fault(3, 1, {1: KILL})),
    "killed-sharded-2": of(FSDP2, fault(4, 2, {2: KILL}, style="brackets")),
    "killed-zero2": of(ZERO2, fault(2, 1, {1: KILL})),
    "killed-zero3": of(ZERO3, fault(3, 0, {0: KILL})),
    "terminated-rank-0": fault(3, 0, {0: at("term")}),
    "terminated-rank-1": fault(2, 1, {1: at("term")}, style="bare"),
    "terminated-rank-3": fault(4, 3, {3: at("term")}),
    "terminated-sharded": of(FSDP2, fault(2, 0, {0: at("term")})),
    "terminated-rank-5-of-6": fault(6, 5, {5: at("term")}, style="json"),
    "segfault-rank-1": fault(3, 1, {1: at("segfault")}),
    "segfault-rank-0": fault(2, 0, {0: at("segfault")}, style="brackets"),
    "segfault-sharded": of(FSDP1, fault(4, 3, {3: at("segfault")})),
    "aborted-rank-2": fault(3, 2, {2: at("abort")}),
    "aborted-zero2": of(ZERO2, fault(3, 1, {1: at("abort")})),
    "bus-rank-1": fault(2, 1, {1: at("bus")}, style="bare"),
    # Hangs, and what looks like one.
    "stopped-rank-5-of-6": fault(6, 5, {5: STOP}, hang=True, **FEW),
    "stopped-sharded": of(FSDP2, fault(3, 1, {1: STOP}, hang=True, **FEW)),
    "sleeping-rank-3": fault(4, 3, {3: SLEEP}, hang=True, style="json", **FEW),
    "sleeping-rank-0-of-8": fault(8, 0, {0: SLEEP}, hang=True, **FEW),
    "sleeping-sharded": of(FSDP1, fault(2, 1, {1: SLEEP}, hang=True, **FEW)),
    "sleeping-zero3": of(ZERO3, fault(3, 2, {2: SLEEP}, hang=True, style="bare", **FEW)),
    "too-slow-rank-1": fault(2, 1, {1: at("slow", after=9)}, hang=True, monitor=8, **FEW),
    "too-slow-rank-0": fault(3, 0, {0: at("slow", after=9)}, hang=True, monitor=8, **FEW),
    "too-slow-rank-2": fault(4, 2, {2: at("slow", after=9)}, hang=True, monitor=8, style="brackets", **FEW),
    "left-early-rank-1": fault(3, 1, {1: at("exit", code=0)}),
    "left-early-rank-0": fault(2, 0, {0: at("exit", code=0)}, style="json"),
    "exited-rank-1": fault(2, 1, {1: at("exit", code=3)}),
    "exited-rank-2": fault(4, 2, {2: at("exit", code=1)}),
    "quit-rank-1": fault(3, 1, {1: at("quit", text="the data set changed since the checkpoint: refusing to go on")}),
    "quit-rank-0": fault(2, 0, {0: at("quit", text="train.py: error: unrecognized arguments: --flash-atn")}),
    # Errors that nobody knows.
    "oom-rank-1": fault(3, 1, {1: raises(OOM)}),
    "oom-rank-4-of-5": fault(5, 4, {4: raises(OOM)}, style="bar"),
    "missing-file-rank-0": fault(2, 0, {0: raises(MISSING)}, style="json"),
    "missing-file-all": fault(3, 0, {"*": raises(MISSING, 1)}) | {"first": [0, 1, 2]},
    "stale-handle-sharded": of(FSDP1, fault(3, 2, {2: raises(STALE)})),
    "index-zero2": of(ZERO2, fault(4, 1, {1: raises(INDEX)})),
    "assertion-rank-2": fault(3, 2, {2: raises(ASSERT)}, style="bare"),
    "data-ran-out-rank-1": fault(2, 1, {1: raises(STOPPED)}),
    "data-ran-out-rank-2": fault(4, 2, {2: raises(STOPPED)}, style="json"),
    "denied-recorded": fault(4, 3, {3: raises(DENIED)}, record=True),
    "disk-full-zero3": of(ZERO3, fault(2, 1, {1: raises(DISK)})),
    "disk-full-rank-7-of-8": fault(8, 7, {7: raises(DISK)}),
    # Two errors, clocks that differ.
    "two-errors-3-then-0": fault(4, 3, {3: raises(INDEX), 0: raises(DISK, after=2)}, monitor=6, style="json"),
    "two-errors-1-then-4": fault(5, 1, {1: raises(MISSING), 4: raises(OOM, after=3)}, monitor=6),
    "two-errors-sharded": of(FSDP1, fault(3, 2, {2: raises(SHARD), 0: raises(DISK, after=2)}, monitor=6)),
    "three-errors": fault(4, 2, {2: raises(KEY), 0: raises(DISK, after=2), 1: raises(NAN, after=4)}, monitor=8),
    "killed-then-error": fault(3, 1, {1: KILL, 0: raises(DISK, after=2)}, monitor=6),
    "error-then-killed": fault(3, 2, {2: raises(SHARD), 1: at("kill", after=2)}, monitor=6),
    "skewed-zone": fault(3, 2, {2: raises(SHARD, 3), 1: raises(DISK, 3, after=2)}, monitor=6, skew={"2": 28800}),
    "skewed-each": fault(
        4, 1, {1: raises(KEY, 3), 3: raises(NAN, 3, after=3)}, monitor=6, skew={"0": 5, "1": 61, "2": -13, "3": -90}
    ),
    "skewed-hang": fault(3, 1, {1: STOP}, hang=True, skew={"1": -600}, **FEW),
    "skewed-killed": fault(4, 2, {2: KILL}, skew={"0": 7200, "2": -30}),
    # Restarts.
    "restart-helped-killed": fault(2, 1, {1: at("kill", attempts=[0])}, restarts=1, recovered=True),
    "restart-helped-error": fault(3, 0, {0: raises(STALE, attempts=[0])}, restarts=2, recovered=True),
    "restart-helped-third": fault(2, 0, {0: raises(STALE, attempts=[0, 1])}, restarts=2, recovered=True),
    "restart-helped-sharded": of(FSDP2, fault(3, 2, {2: raises(KEY, attempts=[0])}, restarts=1, recovered=True)),
    "restart-same-error": fault(3, 1, {1: raises(SHARD)}, restarts=2),
    "restart-same-killed": fault(2, 0, {0: KILL}, restarts=1),
    "restart-known": one(1, "reported", "non-reentrant", "ddp-ready-twice", 3, restarts=1),
    "restart-known-all": all_alike("reported", "ddp-ready-twice", 2, restarts=2),
    "restart-other-error": fault(3, 2, {0: raises(DISK, attempts=[0]), 2: raises(SHARD, attempts=[1])}, restarts=1),
    "restart-killed-then-error": fault(4, 0, {3: at("kill", attempts=[0]), 0: raises(NAN, attempts=[1])}, restarts=1),
    "restart-hang": fault(2, 1, {1: at("sleep", attempts=[0])}, restarts=1, recovered=True, hang=True, **FEW),
    # Everybody writes to one terminal, without a name.
    "shared-killed": fault(3, 1, {1: KILL}, shared=True),
    "shared-error": fault(3, 2, {2: raises(SHARD)}, shared=True),
    "shared-error-8": fault(8, 5, {5: raises(DISK)}, shared=True, style="bare"),
    "shared-known": one(2, "reported", "non-reentrant", "ddp-ready-twice", 4, shared=True),
    "shared-known-zero2": one(0, "zero2-no-sync-last", "zero2-own", "no-sync-zero2", 2, ZERO2, shared=True),
    "shared-known-all": all_alike("reported", "ddp-ready-twice", 3, "RO-0002/repro.py", shared=True),
    "shared-hang": fault(3, 0, {0: STOP}, hang=True, shared=True, **FEW),
    "shared-two-errors": fault(3, 1, {1: raises(KEY), 2: raises(DISK, after=2)}, monitor=6, shared=True),
    "shared-restart": fault(2, 1, {1: raises(STALE, attempts=[0])}, restarts=1, recovered=True, shared=True),
    "shared-fine": fault(4, 0, {}, ok=True, shared=True, style="bar"),
    # What must not mislead: words of failure from who did not fail, and failures that follow a failure.
    "caught-then-error": fault(3, 2, {0: at("caught", 1, text=TRACKER), 2: raises(SHARD, 3)}),
    "caught-then-killed": fault(3, 1, {2: at("caught", 1, text=TRACKER), 1: at("kill", 3)}),
    "caught-then-hang": fault(2, 0, {1: at("caught", 1, text=STALE), 0: at("stop", 3)}, hang=True, **FEW),
    "caught-same-rank": fault(2, 1, {1: [at("caught", 1, text=STALE), raises(KEY, 3)]}),
    "caught-everywhere-then-error": fault(
        4, 3, {"*": at("caught", 1, text=TRACKER), 3: [at("caught", 1, text=TRACKER), raises(DISK, 3)]}
    ),
    "rescue-fails": fault(3, 1, {1: raises(NAN), 0: {"kind": "rescue", "text": DISK}}, monitor=6),
    "rescue-fails-after-kill": fault(3, 2, {2: KILL, "*": {"kind": "rescue", "text": DISK}}, monitor=6),
    "said-then-error": fault(
        3,
        0,
        {1: at("say", 1, text="WARNING: checkpoint server: ConnectionError, retrying in 2 s"), 0: raises(SHARD, 3)},
    ),
    "said-quote-then-killed": fault(
        2,
        1,
        {0: at("say", 1, text="hint: if you see 'Expected to mark a variable ready only once', see the FAQ"), 1: KILL},
    ),
    "slow-then-error": fault(3, 1, {2: at("slow", 1, after=3), 1: raises(KEY, 3)}),
    # The launcher is told to stop: no rank failed first.
    "cancelled": fault(3, 0, {"*": at("sleep", 3)}, limit=600, stop=True) | {"first": [None]},
    "cancelled-sharded": of(FSDP2, fault(2, 0, {"*": at("sleep", 2)}, limit=600, stop=True)) | {"first": [None]},
    # Jobs that are fine, or train wrong without a word.
    **fine("non-reentrant-stack-twice static-graph", DDP, "8 5"),
    **fine("non-reentrant-mixed shared-find-unused-false", "RO-0002/repro.py", "3 2"),
    **fine(
        "zero2-once-reentrant-default-bucket-accumulate-1 zero3-once-off-default-bucket-accumulate-1",
        "RO-0001/zero.py",
        "2 4",
    ),
    **fine("fsdp2-lora-once-off", "RO-0001/fsdp.py", "3"),
    **fine("non-reentrant", "RO-0004/repro.py", "2"),
    **fine("head-frozen", "RO-0005/repro.py", "3"),
    **fine("reported by-hand", "RO-0006/repro.py", "2 2"),
    **fine("reported", "RO-0007/repro.py", "2"),
    **fine("reported fsdp2-last", "RO-0008/repro.py", "2 6"),
    **fine("reported all-slot-slot-fixed", "RO-0009/repro.py", "2 2"),
    **fine("init-gathered-rank-0 init-one-by-one", ZERO3, "2 3"),
    **fine("reported fsdp2-fixed", FSDP2, "2 7"),
    **fine("reported fixed-fsdp1", FSDP1, "2 3"),
    **fine("reported", "RO-0013/repro.py", "2"),
    **fine("new", "frameworks/run/trainer.py", "2"),
    **fine("new", "frameworks/run/accelerate_loop.py", "2"),
    "fine-caught": fault(3, 0, {1: at("caught", 1, text=TRACKER)}, ok=True, passing=True),
    "fine-caught-everywhere": fault(2, 0, {"*": at("caught", 2, text=STALE)}, ok=True, passing=True, style="json"),
    "fine-said": fault(
        3,
        0,
        {"*": at("say", 1, text="WARNING: tracker unreachable (ConnectionError), going on without it")},
        ok=True,
        passing=True,
    ),
    "fine-slow": fault(4, 0, {3: at("slow", after=3), 1: at("slow", 3, after=2)}, ok=True),
}
JOBS |= NEW


# ------------------------------------------------------------------------------ running


# What a job's ranks import; the first of it is imported once, before any begins.
TORCH = [
    "torch.distributed.run",
    "torch.distributed.fsdp",
    "torch.nn.parallel",
    "torch.utils.checkpoint",
    "torch._dynamo",
]
IMPORTS = {
    "deepspeed": [*TORCH, "deepspeed"],
    "transformers": [*TORCH, "transformers.trainer", "accelerate"],
    "torch": TORCH,
}
LIMIT = 300  # seconds of a job


def imports(name: str) -> str:
    text = (ROOT / "snippets" / JOBS[name]["file"]).read_text(encoding="utf-8")
    return next((it for it in IMPORTS if re.search(rf"^\s*(?:import|from) {it}", text, re.M)), "torch")


def run(folder: Path, names: list[str]) -> None:
    """Runs these jobs, of one kind of `imports`, three at a time; this process must have begun for it."""
    for module in IMPORTS[imports(names[0])]:
        importlib.import_module(module)
    assert forked.alone()
    rest, at_work = [name for name in names if not (folder / name / "done").exists()], dict[int, tuple[str, float]]()
    tries: dict[str, int] = {}
    while rest or at_work:
        if rest and len(at_work) < 3:
            name = rest.pop()
            at_work[begin(folder / name, JOBS[name])] = name, time.monotonic()
        time.sleep(0.1)
        for pid, (name, since) in list(at_work.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended and time.monotonic() - since > LIMIT:
                os.kill(pid, signal.SIGKILL)
                print(f"{name}: ended at its limit", flush=True)
                del at_work[pid]
            elif ended:
                del at_work[pid]
                (folder / name / "done").write_text(str(os.waitstatus_to_exitcode(status)))
                if fault := unlike(folder / name, name):
                    tries[name] = tries.get(name, 0) + 1
                    rest += [name] if tries[name] < 4 else []
                print(fault or f"{name} {time.monotonic() - since:.0f} s", flush=True)
            elif (job := JOBS[name]).get("stop"):
                # Where every rank has begun the step in which it stays, the launcher is told to end, as a scheduler tells it.
                step = b"step %d " % job["faults"]["*"]["step"]
                if (folder / name / "console.log").read_bytes().count(step) >= job["ranks"]:
                    os.kill(pid, signal.SIGTERM)


def begin(here: Path, job: Job) -> int:
    """In `here` will be `logs`, as torchrun writes them, and `console.log`, what it prints. Returns torchrun's process id."""
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    file = (ROOT / "snippets" / job["file"]).resolve()
    plan = {key: job[key] for key in ("variants", "faults", "skew", "limit", "record", "style") if key in job}
    options = ["--nproc-per-node", str(job["ranks"]), "--monitor-interval", str(job.get("monitor", 0.1))]
    options += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    options += ["--max-restarts", str(job.get("restarts", 0))]
    if not job.get("shared"):
        options += ["--log-dir", str(here / "logs"), "--redirects", "3", "--tee", "3"]
    options += [str(HERE / "rank.py"), json.dumps(plan | {"repro": str(file)})]
    with (here / "console.log").open("wb") as console:
        return forked.launch(options, str(file.parent), console.fileno())


def unlike(here: Path, name: str) -> str:
    """Why a run is not the one that was meant, if so: by its exit code, and by who says the words of the family."""
    job = JOBS[name]
    code = int((here / "done").read_text())
    if (code == 0) != bool(job.get("ok") or job.get("recovered")):
        return f"{name}: exit code {code}"
    if job.get("faults"):
        # Now and then gloo does not connect all, in a second attempt above all.
        begun = (here / "console.log").read_bytes().count(b"process group is up")
        attempts = len([*here.glob("logs/*/attempt_*")]) or 1 + job.get("restarts", 0)
        if begun < job["ranks"] * attempts:
            return f"{name}: {begun} ranks began"
    if job["family"] and not job.get("shared"):
        family = yaml.safe_load((ROOT / "snippets" / "errors" / f"{job['family']}.yml").read_text(encoding="utf-8"))
        texts: dict[int, str] = {}
        for path in (here / "logs").rglob("stderr.log"):
            rank = int(path.parent.name)
            texts[rank] = texts.get(rank, "") + "".join(path.read_text(encoding="utf-8", errors="replace").split())
        ranks = {
            rank
            for rank, text in texts.items()
            for wording in family["wordings"]
            if all("".join(words.split()) in text for words in wording["all"])
        }
        if not ranks or not ranks <= set(job["first"]):
            return f"{name}: {job['family']} is said by {sorted(ranks)}, not {job['first']}"
    return ""


# ------------------------------------------------------------------------------ packing

Files = dict[str, bytes]  # name → bytes
_TEED = re.compile(rb"\[default(\d+)\]:")
_KNOWN = rb"[\w.]*(?:Error|Exception)\b"


def pack(folder: Path) -> None:
    """truth.tar.xz: a folder for each layout, of all jobs; answers.yml: what is known of each, and its layouts."""
    answers: dict[str, Job] = {}
    files: Files = {}
    for number, (name, job) in enumerate(JOBS.items()):
        if not (folder / name / "done").exists():
            print(f"{name} was not run")
            continue
        if fault := unlike(folder / name, name):
            print(fault)
            continue
        laid = layouts(folder / name, name, job, number)
        for layout, its in laid.items():
            files |= {f"{layout}/{path}": data for path, data in its.items()}
        it: Job = {"outcome": outcome(job), "ranks": job["ranks"]}
        it |= {key: job[key] for key in ("first", "family") if not job.get("ok")}
        it |= {key: True for key in ("hang", "passing") if job.get(key)}
        if name in NEW and held_out(name):
            it["held-out"] = True
        answers[name] = it | {"layouts": sorted(laid)}
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
    lines = [f"{name}: {json.dumps(it)}\n" for name, it in sorted(answers.items())]
    (HERE / "answers.yml").write_text(told + "".join(lines), encoding="utf-8")
    cases = sum(len(it["layouts"]) for it in answers.values())
    print(f"{len(answers)} jobs, {cases} cases, {len(files)} files, {(HERE / 'truth.tar.xz').stat().st_size} bytes")


def outcome(job: Job) -> str:
    return "fine" if job.get("ok") else "recovered" if job.get("recovered") else "failed"


def held_out(name: str) -> bool:
    """Every third, by nothing that anybody chose."""
    return hashlib.sha256(name.encode()).digest()[0] % 3 == 0


def scrubbed(data: bytes, folder: Path) -> bytes:
    """Without what names this machine."""
    for path in (sys.prefix, os.path.realpath(sys.prefix), sys.base_prefix):
        data = data.replace(path.encode(), b"/opt/venv")
    data = data.replace(str(ROOT).encode(), b"/home/user/project")
    data = data.replace(str(folder).encode(), b"/logs")
    data = data.replace(str(Path.home()).encode() + b"/", b"/home/user/")
    data = re.sub(rb"/tmp/(?=[\w.-])", b"/scratch/", data)
    return data.replace(socket.gethostname().encode(), b"node-a")


def layouts(here: Path, name: str, job: Job, number: int) -> dict[str, Files]:
    """A layout's name → the files of this job in it. A new job has torchrun's and some of the others."""
    console = scrubbed((here / "console.log").read_bytes(), here.parent)
    if job.get("shared"):
        return {"shared": {f"{name}/train.log": console}}
    lines = console.splitlines(keepends=True)
    bare = b"".join(line for line in lines if not _TEED.match(line))
    logs = {
        f"{name}/logs/{path.relative_to(here / 'logs').as_posix()}": scrubbed(path.read_bytes(), here.parent)
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
    if name in NEW:
        # A restart is not told in files that Slurm writes anew; without its words, nothing tells that the launcher was stopped.
        rest = ["single", "kubernetes"]
        rest += [] if job.get("stop") else ["logdir"]
        rest += [] if job.get("stop") or job.get("restarts") else ["slurm", "labels"]
        chosen = {"torchrun", *(rest[(number + step) % len(rest)] for step in (0, 1))}
        told = {layout: its for layout, its in told.items() if layout in chosen}
        if not job.get("restarts"):  # attempts cannot be told apart there
            told["shuffled"] = {f"{name}/train.log": shuffled(lines, name)}
    if len(job["first"]) == 1 and _raises(job):
        told["cut"] = {path: cut(data, job["first"][0], path) for path, data in logs.items()}
        told["cut"][f"{name}/console.log"] = bare
    if name in NEW and len(job["first"]) == 1 and not job.get("stop") and job["ranks"] > 2:
        other = max({*range(job["ranks"])} - {*job["first"]})
        told["half"] = {path: half(data, other, path) for path, data in logs.items()}
        told["half"][f"{name}/console.log"] = bare
    return told


def _raises(job: Job) -> bool:
    """Whether its first rank, and nothing before it, ends in a traceback with an error of a known family."""
    return bool(job["family"]) and not job.get("restarts") and not job.get("record")


def shuffled(lines: list[bytes], name: str) -> bytes:
    """As a collector stores what it got from many: each source in its order, nothing else in any."""
    rest: dict[bytes, list[bytes]] = {}
    for line in lines:
        found = _TEED.match(line)
        rest.setdefault(found[0] if found else b"", []).append(line)
    dice, told = random.Random(name), []
    while rest:
        source = dice.choice(sorted(rest))
        count = dice.randint(1, 12)
        told += rest[source][:count]
        rest[source] = rest[source][count:]
        if not rest[source]:
            del rest[source]
    return b"".join(told)


def half(data: bytes, rank: int, path: str) -> bytes:
    """The files of one that did not fail first end in the middle: its disk was full, or the copy was cut."""
    return data[: len(data) // 2] if f"/{rank}/std" in path else data


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
    if what == "pack":
        pack(folder)
    elif what == "begun":
        run(folder, names)
    else:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
        # A second attempt with a new store: in the old one gloo finds the addresses of processes that are gone.
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        for kind in IMPORTS:
            if its := [name for name in names if imports(name) == kind]:
                words = [sys.executable, "-u", __file__, "begun", str(folder), *its]
                subprocess.run(words, env=environment, check=True)


if __name__ == "__main__":
    main()
