"""Runs many variants in one launch: `torchrun ... worker.py plan.json`, started by the lab.

Needs torch only, since it runs in environments that know nothing of this package. The plan is
`{"results": path, "items": [{"file", "variant", "processes", "launcher"}], "guard": path or null, "folder": path,
"known": [name, ...]}`; rank 0 appends one JSON line to `results` for each item done: `{"item": index, "ranks": [record of each rank]}`, where
a record is what the repro's `run` returned, or `{"error": message, "at": monotonic time}`; both with `seconds`. A rank that raised tells it at
once: `{"item": index, "failed": its record}`, since the others may wait for it without end. No rank goes on to the next item before all
have ended this one; after an error the ranks look whether their group still answers, else the launch ends with `{"again": index}`.

`python worker.py --facts FILE ...` runs nothing and prints `{file: {variant: its facts}}`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import sys
import time
import traceback
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist


def main(plan_path: str) -> None:
    with open(plan_path, encoding="utf-8") as file:
        plan = json.load(file)
    torch.set_num_threads(1)
    opened = files_opened()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        world_size,
        is_master=rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
        timeout=timedelta(hours=1),  # the lab's watchdog is stricter
    )
    guard = load(plan["guard"]) if plan.get("guard") else None
    modules = {path: load(path) for path in dict.fromkeys(item["file"] for item in plan["items"])}
    gc.freeze()
    # Groups in this order: without a process group, alone in one, and the whole world, which stays
    # up for all its variants (DeepSpeed keeps a reference to it).
    order = sorted(range(len(plan["items"])), key=lambda i: size_of(plan["items"][i]))
    group = None
    with open(plan["results"], "a", encoding="utf-8") as results:

        def tell(line: dict[str, Any]) -> None:
            print(json.dumps(line), file=results, flush=True)

        for index in order:
            item = plan["items"][index]
            if (size := size_of(item)) != group:
                group = regroup(size, store, rank, world_size)
            taking_part = range(max(size, 1))
            if rank in taking_part:
                record = observe(modules[item["file"]], item["variant"], guard, f"{index}")
                if "error" in record:
                    tell({"item": index, "failed": record})
                store.set(f"{index}/{rank}", json.dumps(record))
            ranks = [json.loads(store.get(f"{index}/{r}")) for r in taking_part]
            if rank == 0:
                tell({"item": index, "ranks": ranks})
            if any("error" in record for record in ranks) and size > 1 and not group_answers(store, index, rank):
                if rank == 0:
                    tell({"again": index})
                os._exit(0)
        for name in sorted(of_folder(plan["folder"], opened).difference(plan["known"])):
            tell({"unknown": name})  # evidence has to name what it was made from
    if dist.is_initialized():
        dist.barrier()


def files_opened() -> set[str]:
    """The path of each file that this process opens from now on; it grows."""
    opened: set[str] = set()

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(given[0], (str, os.PathLike)):
            opened.add(str(os.fspath(given[0])))

    sys.addaudithook(hook)
    return opened


def of_folder(folder: str, opened: set[str]) -> set[str]:
    """The names of its files that were opened or imported; of a module that was compiled earlier only that is opened."""
    imported = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    return {os.path.basename(path) for path in opened | imported if os.path.dirname(path) == folder}


def group_answers(store: dist.Store, index: int, rank: int) -> bool:
    """Whether no rank still waits in a collective that another one never started: the next one would pair with it."""
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=10))
        store.set(f"{index}/{rank}/answers", "yes")
    except Exception:  # other backends than gloo have no such barrier: there each error ends the launch
        store.set(f"{index}/{rank}/answers", "no")
    return all(store.get(f"{index}/{r}/answers") == b"yes" for r in range(dist.get_world_size()))


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("repro_" + str(abs(hash(path))), path)
    assert spec and spec.loader  # a path that ends in .py has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def size_of(item: dict[str, Any]) -> int:
    return 0 if item["launcher"] == "python" else int(item["processes"])


def regroup(size: int, store: dist.Store, rank: int, world_size: int) -> int:
    """Put this rank into a process group of `size` ranks; 0 is none at all, as under `python`."""
    if dist.is_initialized():
        dist.destroy_process_group()
    if size == 0 or (size == 1 and rank > 0):
        return size
    accelerated = torch.accelerator.device_count() >= world_size
    device = (torch.accelerator.current_accelerator() if accelerated else None) or torch.device("cpu")
    if accelerated:
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(
        dist.get_default_backend_for_device(device),
        store=dist.HashStore() if size == 1 else dist.PrefixStore("world", store),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    return size


def observe(
    module: ModuleType, variant: str, guard: ModuleType | None = None, name: str | None = None
) -> dict[str, Any]:
    started = time.perf_counter()
    guards: Any = ()  # the guard's own, of a module that is found by its path
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        if guard:
            watching = guard.automatic(steps=None, on_finding="record", timeout=60, name=name)
            guards = stack.enter_context(watching)
        try:
            record = dict(module.run(variant))
        except Exception as error:
            record = {"error": message_of(error), "at": time.monotonic()}
            del error
    if guard:
        found = sorted((finding.step, finding.code) for watcher in guards for finding in watcher.findings)
        record["guard"] = {"codes": [code for _, code in found], "step": found[0][0] if found else None}
    del guards
    gc.collect()  # a failed variant leaves its model and its hooks in the traceback
    gc.freeze()  # DeepSpeed collects many times a run, and would look at all that imports and runs left
    return {**record, "seconds": time.perf_counter() - started}


def message_of(error: Exception) -> str:
    """The error as Python prints it; a bare assertion is told by its source line."""
    message = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    if not str(error) and frames:
        return f"{frames[-1].line}\n{message}"
    return message


def facts(paths: list[str]) -> dict[str, dict[str, dict[str, Any]]]:
    modules = {path: load(path) for path in paths}
    # Where a repro tells none, `readyonce check` asks for them.
    return {
        path: {name: module.facts(name) for name in module.VARIANTS} if hasattr(module, "facts") else {}
        for path, module in modules.items()
    }


if __name__ == "__main__":
    if sys.argv[1] == "--facts":
        print(json.dumps(facts(sys.argv[2:])))
    else:
        main(sys.argv[1])
        os._exit(0)  # as each repro ends
