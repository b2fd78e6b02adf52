"""One rank of a job of the truth set: runs a repro as it stands, writes its progress as training does, and breaks where told.

    torchrun ... rank.py PLAN

PLAN is JSON: `repro` (a path), `variants` (rank → variant, `*` for the others), `faults` (rank → fault, `*` too),
`skew` (rank → seconds by which its clock is off), `limit` (seconds until a collective gives up), `record` (torch's own error files).
A fault is `{"kind": kill|stop|sleep|slow|raise, "step": N, "text": ..., "after": seconds}`.
"""

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
FAULTS = {"OSError": OSError, "ValueError": ValueError, "RuntimeError": RuntimeError, "KeyError": KeyError}
done = 0


def of_rank(table):
    return table.get(str(RANK), table.get("*"))


def skewed(seconds=None):
    return time.localtime((time.time() if seconds is None else seconds) + PLAN.get("skew", {}).get(str(RANK), 0))


def strike(fault):
    time.sleep(fault.get("after", 0))
    if fault["kind"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault["kind"] == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault["kind"] == "sleep":  # unlike a stopped process, it can be terminated
        time.sleep(3600)
    if fault["kind"] == "raise":
        if fault.get("after"):
            logging.info("reading shard %d of the data", 7 + RANK)
        name, _, text = fault["text"].partition(": ")
        raise FAULTS[name](text)


def before_each_step(optimizer, *arguments):
    global done
    done += 1
    logging.info("step %d lr %.1e", done, optimizer.param_groups[0]["lr"])
    fault = of_rank(PLAN.get("faults", {}))
    if fault and fault["step"] == done:
        strike(fault)


def main():
    torch.set_num_threads(1)
    logging.Formatter.converter = staticmethod(skewed)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s - %(levelname)s - train - %(message)s", stream=sys.stdout
    )
    init = dist.init_process_group

    def with_limit(*arguments, **options):
        more = {"timeout": timedelta(seconds=PLAN.get("limit", 60))}
        init(*arguments, **options | more)
        logging.info("process group is up, world size %d", dist.get_world_size())

    dist.init_process_group = with_limit
    register_optimizer_step_pre_hook(before_each_step)
    sys.argv = [PLAN["repro"], of_rank(PLAN["variants"])]
    runpy.run_path(PLAN["repro"], run_name="__main__")


if __name__ == "__main__":
    (record(main) if PLAN.get("record") else main)()
