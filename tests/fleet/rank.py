"""One rank of a job of the truth set: runs a repro as it stands, writes its progress as training does, and breaks where told.

    torchrun ... rank.py PLAN

PLAN is JSON: `repro` (a path), `variants` (rank → variant, `*` for the others; `wait`: only waits for the others), `faults`
(rank → fault or faults, `*` too), `skew` (rank → seconds by which its clock is off), `limit` (seconds until a collective
gives up), `record` (torch's own error files), `style` (how a line of progress looks; a key of STYLES).
A fault is `{"kind": ..., "step": N, "text": ..., "after": seconds, "attempts": [N]}`; the kinds are in `strike` and `main`.
"""

import builtins
import ctypes
import json
import logging
import os
import runpy
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.optim.optimizer import register_optimizer_step_pre_hook

PLAN = json.loads(sys.argv[1])
RANK = int(os.environ["RANK"])
ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
STYLES = {
    "dash": "%(asctime)s - %(levelname)s - train - %(message)s",
    "brackets": "[%(asctime)s] [%(levelname)s] [train.py:57:step] %(message)s",
    "json": '{"time": "%(asctime)s", "level": "%(levelname)s", "message": "%(message)s"}',
    "bare": "%(message)s",
}
SIGNALS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "stop": signal.SIGSTOP,
    "abort": signal.SIGABRT,
    "bus": signal.SIGBUS,
}
done = 0


def of_rank(table):
    return table.get(str(RANK), table.get("*"))


def faults():
    """Those of this rank in this attempt."""
    told = of_rank(PLAN.get("faults", {})) or []
    told = [told] if isinstance(told, dict) else told
    return [it for it in told if ATTEMPT in it.get("attempts", [ATTEMPT])]


def skewed(seconds=None):
    return time.localtime((time.time() if seconds is None else seconds) + PLAN.get("skew", {}).get(str(RANK), 0))


def error(text):
    name, _, rest = text.partition(": ")
    return getattr(builtins, name)(*[rest] if rest else [])


def strike(fault):
    kind = fault["kind"]
    time.sleep(fault.get("after", 0))
    if kind in SIGNALS:
        os.kill(os.getpid(), SIGNALS[kind])
    if kind == "segfault":
        ctypes.string_at(0)
    if kind == "sleep":  # unlike a stopped process, it can be terminated
        time.sleep(3600)
    if kind == "exit":  # without a word; 0: it believes that it is done
        os._exit(fault["code"])
    if kind == "quit":  # with a word that is no exception
        sys.exit(fault["text"])
    if kind == "say":
        print(fault["text"], file=sys.stderr, flush=True)
    if kind == "caught":  # and it goes on
        try:
            raise error(fault["text"])
        except Exception:
            logging.exception("skipped")
            sys.stderr.flush()
    if kind == "raise":
        if fault.get("after"):
            logging.info("reading shard %d of the data", 7 + RANK)
        raise error(fault["text"])


def before_each_step(optimizer, *arguments):
    global done
    done += 1
    logging.info("step %d lr %.1e", done, optimizer.param_groups[0]["lr"])
    if PLAN.get("style") == "bar":  # a progress bar, as tqdm paints one
        print(f"\rtraining: {done:3d}it [00:{done:02d}, 1.{done}it/s]", end="", file=sys.stderr, flush=True)
    for fault in faults():
        if fault.get("step") == done:
            strike(fault)


def main():
    torch.set_num_threads(1)
    logging.Formatter.converter = staticmethod(skewed)
    form = STYLES.get(PLAN.get("style", "dash"), STYLES["dash"])
    logging.basicConfig(level=logging.INFO, format=form, stream=sys.stdout)
    init = dist.init_process_group

    def with_limit(*arguments, **options):
        more = {"timeout": timedelta(seconds=PLAN.get("limit", 60))}
        init(*arguments, **options | more)
        logging.info("process group is up, world size %d", dist.get_world_size())

    dist.init_process_group = with_limit
    register_optimizer_step_pre_hook(before_each_step)
    variant = of_rank(PLAN["variants"])
    sys.argv = [PLAN["repro"], variant]
    if variant == "wait":
        dist.init_process_group("gloo")
        dist.barrier()
        return
    try:
        runpy.run_path(PLAN["repro"], run_name="__main__")
    except Exception:
        for fault in faults():
            if fault["kind"] == "rescue":  # what it tries after its own failure fails too
                raise error(fault["text"])  # noqa: B904 - chained, as is wanted
        raise


if __name__ == "__main__":
    (record(main) if PLAN.get("record") else main)()
