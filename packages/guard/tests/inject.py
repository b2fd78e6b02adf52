"""Runs every loop of loops.py, on two ranks in one launch, with the guard recording.

    python packages/guard/tests/inject.py --write      stores what the guard said in packages/guard/faults.json
    python packages/guard/tests/inject.py NAME ...     prints it

DEVICE=cuda runs them on a GPU that both ranks share: those of DDP and ZeRO-3. FSDP2's need a reduce-scatter, which gloo has not
for a GPU's memory, and NCCL a GPU for each rank; accelerate's loops leave their data on the CPU.
"""

import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

HERE = Path(__file__).resolve().parent
# Seconds after which a rank that does not come is one that never does. A harmless loop has all the time of a busy machine.
ABSENT = 1.5
GIVEN_UP = timedelta(seconds=8)  # a wrong loop may leave a rank in a collective for ever
DEVICE = os.environ.get("DEVICE", "cpu")
ON_GPU = ("ddp", "zero-3")  # the loops that run there
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2] / "tests")]
import loops  # noqa: E402
import readyonce_guard  # noqa: E402

from support.patience import PATIENCE  # noqa: E402

ALL = [name for name, (loop, *_) in (loops.WRONG | loops.HARMLESS).items() if DEVICE == "cpu" or loop in ON_GPU]


def run(name, text, rank, world):
    """What the guard says, and what the training came to without its help."""
    space, guards = {}, []
    *_, finding = loops.WRONG.get(name, [None])
    patience = ABSENT if finding == "absent" else PATIENCE
    dist.distributed_c10d._set_pg_timeout(GIVEN_UP if name in loops.WRONG else timedelta(seconds=PATIENCE))

    def watch(model):
        guards.append(readyonce_guard.watch(model, steps=3, on_finding="record", timeout=patience, name=name))
        return guards[0]

    record = {"name": name}
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(text, name, "exec"), space)
            _, weights = space["train"](rank, world, watch)
        weights = [w.clone().float() for w in weights]
        first = [w.clone() for w in weights]
        for w in first:
            dist.broadcast(w, src=0)
        spread = torch.stack([(a - b).abs().max() for a, b in zip(weights, first)]).max()
        dist.all_reduce(spread, op=dist.ReduceOp.MAX)
        record |= {"spread": spread.item(), "weights": torch.cat([w.flatten() for w in first]).tolist()}
    except Exception as error:
        record["error"] = f"{type(error).__name__}: {error}"[:200]
    for guard in guards:
        record |= {"codes": [f.code for f in guard.findings], "step": min((f.step for f in guard.findings), default=None)}
        record["texts"], record["lines"], record["sent"] = [str(f) for f in guard.findings], guard.lines, guard.bytes_sent
        record["finished"] = guard.done
        guard.remove()
    record["left"] = hasattr(torch.autograd.backward, "__wrapped__")
    space.clear()
    gc.collect()
    return record


def main(results, *names):
    torch.set_num_threads(1)
    if DEVICE == "cuda":
        torch.set_default_device(DEVICE)
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
    dist.init_process_group("gloo", timeout=GIVEN_UP)
    rank, world = dist.get_rank(), dist.get_world_size()
    if DEVICE == "cuda":
        os.environ["LOCAL_RANK"] = "0"  # DeepSpeed takes the GPU of this number
    store = dist.PrefixStore("inject", dist.distributed_c10d._get_default_store())
    with open(results, "w", encoding="utf-8") as file:
        for name in names or ALL:
            record = run(name, loops.source(name), rank, world)
            store.set(f"{name}/{rank}", json.dumps(record))
            if rank == 0:
                records = [json.loads(store.get(f"{name}/{r}")) for r in range(world)]
                print(json.dumps({"name": name, "ranks": records}), file=file, flush=True)
            dist.barrier()
    dist.barrier()
    os._exit(0)


def launch(names=()):
    """name -> {"codes", "step", "outcome", "off"}: on any rank, and what became of the training without help."""
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results.jsonl"
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__, results, *names]
        on = {"DS_ACCELERATOR": DEVICE} if DEVICE == "cuda" else {"DS_ACCELERATOR": "cpu", "ACCELERATE_USE_CPU": "true"}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **on}
        done = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=PATIENCE * len(names or ALL)
        )
        assert done.returncode == 0, done.stderr[-4000:]
        found = {record["name"]: record["ranks"] for record in map(json.loads, results.read_text().splitlines())}
    base = {loop: found[f"{loop}-as-it-is"][0]["weights"] for loop in loops.LOOPS if f"{loop}-as-it-is" in found}
    return {name: summary(name, ranks, base) for name, ranks in found.items()}


def summary(name, ranks, base):
    loop = (loops.WRONG.get(name) or loops.HARMLESS.get(name))[0]
    codes = list(dict.fromkeys(code for it in ranks for code in it.get("codes", ())))
    steps = [it["step"] for it in ranks if it.get("step") is not None]
    told = {"loop": loop, "codes": codes, "step": min(steps, default=None), "off": None, "spread": None}
    if error := next((it["error"] for it in ranks if "error" in it), None):
        return told | {"outcome": "error", "error": error}
    reference, weights = base.get(loop, ranks[0]["weights"]), ranks[0]["weights"]
    if len(weights) == len(reference):
        scale = max(map(abs, reference))
        told["off"] = float(f"{max(abs(a - b) for a, b in zip(weights, reference)) / scale:.2g}")
    told["spread"] = float(f"{ranks[0]['spread']:.2g}")
    right = told["spread"] <= 1e-6 and (name in loops.HARMLESS or (told["off"] or 0) <= 1e-5)
    return told | {"outcome": "match" if right else "diverge"}


def write():
    found = launch()
    path = HERE.parent / "faults.json"
    if DEVICE == "cuda":
        said = {name: {key: told[key] for key in ("codes", "step")} for name, told in found.items()}
        on_gpu = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "loops": said}
        stored = json.loads(path.read_text(encoding="utf-8")) | {"gpu": on_gpu}
        path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        return
    for name, told in found.items():
        told["wrong"] = name in loops.WRONG
        told["missed"] = loops.MISSED.get(name)
    stored = json.loads(path.read_text(encoding="utf-8")) | {"torch": torch.__version__, "loops": found}
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(*sys.argv[1:])
    elif sys.argv[1:] == ["--write"]:
        write()
    else:
        print(json.dumps(launch(sys.argv[1:]), indent=1))
