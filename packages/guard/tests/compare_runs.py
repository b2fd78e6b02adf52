"""What `readyonce_compare` says of the site's own runs of two ranks that trained: all runs of the incidents of which the
guard does not flag every silent run.

    python packages/guard/tests/compare_runs.py [--write] [RO-0009/reported ...]
    READYONCE_ENVIRONMENT=flagembedding-1.4.2 PYTHON packages/guard/tests/compare_runs.py [--write]

It is printed, and with --write stored in packages/guard/compare_runs.json. The variants run in their own files as they stand,
but for RO-0009, which takes its batches out of one tensor of pairs: its model, loss, strategy and optimizer are trained here on
the same pairs from a DataLoader. Nothing is taken from a repro's own reference. The processes are forked from one that has
imported the frameworks, which saves most of the time.
"""

import contextlib
import importlib.util
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
STORED = HERE.parent / "compare_runs.json"
ENVIRONMENT = os.environ.get("READYONCE_ENVIRONMENT", "current")
# What runs in an environment of its own. RO-0006's own loss pairs samples of one rank's batch, so only its runs of TRL are here.
OTHERS = {
    "flagembedding-1.4.2": ("RO-0009", "frameworks.py"),
    "trl-1.13.0": ("RO-0006", "dpo.py"),
    "trl-1.14.0": ("RO-0006", "dpo.py"),
}
TIMEOUT = 120  # seconds for one run

sys.path.insert(0, str(HERE.parent))
import readyonce_compare  # noqa: E402


def runs():
    """`incident/variant` -> its file, of all runs of two ranks that trained in this environment."""
    if ENVIRONMENT in OTHERS:
        id, file = OTHERS[ENVIRONMENT]
        return dict.fromkeys(trained_runs(id), file)
    sys.path.insert(0, str(ROOT / "scripts"))
    from readyonce.data.catalog import load
    from readyonce.pages.guard import let_through

    catalog = load(ROOT)
    missed = sorted({pattern.partition("/")[0] for pattern in let_through(catalog)} - {"RO-0006"})
    return {
        name: catalog.incidents[id].variants[name.partition("/")[2]].script
        for id in missed
        for name in trained_runs(id)
    }


def trained_runs(incident):
    path = ROOT / "snippets" / incident / "evidence" / f"{ENVIRONMENT}.json"
    for run in json.loads(path.read_text(encoding="utf-8"))["runs"]:
        if run["outcome"] != "error" and run["facts"]["strategy"] != "single":
            yield f"{incident}/{run['variant']}"


def main(names, write):
    files = runs()
    for module in ("accelerate", "deepspeed", "FlagEmbedding", "sentence_transformers", "torch._dynamo"):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)  # once for all runs
    import torch
    from torch.distributed import fsdp, nn  # noqa: F401
    from transformers import LlamaForCausalLM, Trainer  # noqa: F401

    torch.set_num_threads(1)
    if ops := sys.modules.get("deepspeed.ops"):
        ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; nothing to compile
    known = json.loads(STORED.read_text(encoding="utf-8")) if STORED.is_file() else {"runs": {}}
    found = {name: run for name, run in known["runs"].items() if names or not name.endswith(f" {ENVIRONMENT}")}
    for number, name in enumerate(names or files, 1):
        found[f"{name} {ENVIRONMENT}"] = told = asked(name, files[name])
        print(f"{number:3} {name}: {told}", flush=True)
    if write:
        text = json.dumps(
            {"torch": torch.__version__.split("+")[0], "runs": dict(sorted(found.items()))},
            indent=1,
            ensure_ascii=False,
        )
        STORED.write_text(text + "\n", encoding="utf-8")


def asked(name, file):
    """What is said of one run, with its numbers."""
    with tempfile.TemporaryDirectory() as folder:
        for mode, world in (("record", 2), ("one", 1), ("turned", 1)):
            if told := trained(folder, mode, world, name, file):
                return {"says": "not compared", "why": told}
        try:
            told = readyonce_compare._compared(folder)
        except readyonce_compare.NotCompared as why:
            return {"says": "not compared", "why": str(why)}
    says = "not compared" if told.untold else "different" if told.different else "alike"
    return {
        "says": says,
        "distance": float(f"{told.distance:.2g}"),
        "ratio": float(f"{told.ratio:.4g}"),
        "cosine": round(told.cosine, 6),
        "noise": float(f"{told.noise:.2g}"),
    }


def trained(folder, mode, world, name, file):
    """Fork the ranks of one run up to its first step; None, or how it ended otherwise."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = set()
    for rank in range(world):
        if not (pid := os.fork()):
            rank_of(folder, mode, rank, world, port, name, file)
        running.add(pid)
    ends = time.monotonic() + TIMEOUT
    while running and time.monotonic() < ends:
        running -= {pid for pid in running if os.waitpid(pid, os.WNOHANG)[0]}
        time.sleep(0.01)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    wanted = [f"record-{rank}" for rank in range(world)] if mode == "record" else [mode]
    missing = [it for it in wanted if not (Path(folder) / f"{it}.pt").is_file()]
    return f"{mode}: {', '.join(missing)} took no step" if missing else None


def rank_of(folder, mode, rank, world, port, name, file):
    """One rank, which ends before its first step."""
    try:
        where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
        os.environ |= {key: str(value) for key, value in where.items()} | {"MASTER_ADDR": "127.0.0.1"}
        incident, _, variant = name.partition("/")
        script = ROOT / "snippets" / incident / file
        readyonce_compare._Part(folder, mode).install()
        sys.argv = [str(script), variant]
        if incident != "RO-0009":
            runpy.run_path(str(script), run_name="__main__")
        elif ENVIRONMENT == "current":
            pairs(script, variant)
        else:
            framework_pairs(script, variant)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def pairs(script, variant):
    """Train a variant of RO-0009's repro up to its first step, on its pairs from a DataLoader."""
    import torch
    from torch import distributed

    repro = imported(script)
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    s = {**repro.DEFAULTS, **repro.VARIANTS[variant]}
    parts = s["accumulation"]
    counts = [count // parts for count in s["pairs"]]
    data = torch.randn(repro.STEPS, parts, 2, sum(counts), repro.WIDTH, generator=torch.Generator().manual_seed(1))
    loader = loaded(data.flatten(0, 1), slice(sum(counts[:rank]), sum(counts[: rank + 1])))
    torch.manual_seed(0)
    model = repro.Encoders(s)
    if s["strategy"] == "fsdp2":
        wrapped = repro.fully_shard(model, mesh=repro.init_device_mesh("cpu", (world,)))
    else:
        wrapped = repro.DistributedDataParallel(model)
    optimizer = repro.made(s, model)
    for number, batch in enumerate(loader):
        s["pairs"] = tuple(counts) if world > 1 else (len(batch),)
        last = number % parts == parts - 1
        with contextlib.nullcontext() if last else wrapped.no_sync():
            (repro.loss_of(*wrapped(batch[:, 0], batch[:, 1]), s) / parts).backward()
        if last:
            optimizer.step()


def framework_pairs(script, variant):
    """The same of a variant of its `frameworks.py`: the losses of FlagEmbedding and sentence-transformers."""
    import torch
    from torch import distributed

    file = imported(script)
    distributed.init_process_group("gloo")
    rank, world, s = distributed.get_rank(), distributed.get_world_size(), file.VARIANTS[variant]
    group = 2 if "kind" in s else 1
    data = torch.randn(file.STEPS, 1 + group, 2 * file.PAIRS, file.WIDTH, generator=torch.Generator().manual_seed(1))
    loader = loaded(data, slice(rank * file.PAIRS, (rank + 1) * file.PAIRS))
    torch.manual_seed(0)
    encoder = file.Encoder()
    loss_of, optimizer = file.made(s, encoder), torch.optim.SGD(encoder.parameters(), lr=0.1)
    with file.gathering(s):
        for batch in loader:
            loss = loss_of(*file.batches(batch.transpose(0, 1)))
            (loss * (world if s.get("times") == "ranks" else 1)).backward()
            optimizer.step()


def imported(script):
    spec = importlib.util.spec_from_file_location(script.stem, script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def loaded(data, mine):
    """A rank's batches, (pairs, sides, width) each, of data (batches, sides, pairs of all ranks, width)."""
    from torch.utils.data import DataLoader

    batches, _, count, _ = data.shape
    chosen = [[at * count + pair for pair in range(count)[mine]] for at in range(batches)]
    return DataLoader(list(data.transpose(1, 2).flatten(0, 1)), batch_sampler=chosen)


if __name__ == "__main__":
    main([word for word in sys.argv[1:] if word != "--write"], "--write" in sys.argv)
