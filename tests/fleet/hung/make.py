"""Makes the truth set of stacks: python tests/fleet/hung/make.py FOLDER [JOB ...], with py-spy and the right to trace.

Each job is really run, with gloo, on this machine: train.py beside this file, in ranks that are forks of this process, which
has imported torch. After some seconds every rank writes its stacks by faulthandler and its Flight Recorder, and py-spy looks
at each. Which rank goes wrong, and in which line, is known because the job was made so. Writes stacks.tar.xz and answers.yml into
FOLDER; what could name the machine is taken out of the dumps, and nothing else. Without py-spy its dumps are left out.
"""

import faulthandler
import importlib.util
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import threading
import time
import traceback
from pathlib import Path

import torch._dynamo
import torch.distributed as dist
import torch.distributed._shard  # noqa: F401
import yaml

os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
HERE = Path(__file__).resolve().parent
SETTLED = 2.0  # seconds in which the main thread stays at its line of train.py
spec = importlib.util.spec_from_file_location("train", HERE / "train.py")
train = importlib.util.module_from_spec(spec)
spec.loader.exec_module(train)


def rank_of(kind, bad, rank, ranks, folder):
    """Runs one rank, in a process of its own, and never returns."""
    code = 1
    try:
        os.setsid()
        threading.Thread(target=dumped, args=(folder, rank), daemon=True).start()
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
        train.train(kind, bad)
        code = 0
    finally:
        os._exit(code)


def dumped(folder, rank):
    from torch._C import _distributed_c10d as c10d

    seen, since = None, time.monotonic()
    while seen is None or time.monotonic() - since < SETTLED:
        time.sleep(0.1)
        if (now := lines_of_main()) != seen or not now[0]:
            seen, since = now, time.monotonic()
    with open(f"{folder}/faulthandler/rank_{rank}.log", "w") as file:
        faulthandler.dump_traceback(file)
    Path(f"{folder}/json/nccl_trace_rank_{rank}").write_bytes(c10d._dump_fr_trace_json())
    Path(f"{folder}/pickle/nccl_trace_rank_{rank}").write_bytes(c10d._dump_fr_trace())
    Path(f"{folder}/done-{rank}").touch()


def lines_of_main():
    """Of the functions of train.py that it is in the names, and the line of the outermost: a loop inside changes neither."""
    frames = traceback.walk_stack(sys._current_frames()[threading.main_thread().ident])
    ours = [(frame.f_code.co_name, line) for frame, line in frames if frame.f_code.co_filename == train.__file__]
    return [name for name, _ in ours], ours[-1:]


def run(kind, bad, ranks):
    """name → bytes of the dumps; None where a rank ended, so that it is no job that hangs."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("faulthandler", "json", "pickle", "py-spy"):
            (Path(folder) / name).mkdir()
        pids = []
        for rank in range(ranks):
            if not (pid := os.fork()):
                rank_of(kind, bad, rank, ranks, folder)
            pids.append(pid)
        try:
            until = time.monotonic() + 60
            while len(list(Path(folder).glob("done-*"))) < ranks and time.monotonic() < until:
                time.sleep(0.1)
            for rank, pid in enumerate(pids if shutil.which("py-spy") else []):
                told = subprocess.run(["py-spy", "dump", "--pid", str(pid)], capture_output=True)
                (Path(folder) / "py-spy" / f"rank_{rank}.txt").write_bytes(told.stdout)
            if any(os.waitpid(pid, os.WNOHANG)[0] for pid in pids):
                return None
        finally:
            for pid in pids:
                try:
                    os.killpg(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                except (ChildProcessError, ProcessLookupError):
                    pass
        files = sorted(path for path in Path(folder).glob("*/*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def anonymous(data, pickled):
    if pickled:  # its texts have lengths, so another path is as long
        for path in (sys.prefix, sys.base_prefix, str(HERE)):
            data = data.replace(path.encode(), b"/" + b"x" * (len(path) - 1))
        return data
    purelib = sysconfig.get_path("purelib").encode()
    data = data.replace(purelib, b"/opt/venv/lib/python3.11/site-packages").replace(str(HERE).encode(), b"/job")
    data = data.replace(sysconfig.get_path("stdlib").encode(), b"/usr/lib/python3.11")
    data = data.replace(sys.base_prefix.encode(), b"/usr")
    return re.sub(rb"^(Process \d+: ).*$", rb"\1python train.py", data, flags=re.MULTILINE)


def main(folder, wanted):
    answers, members = {}, {}
    for number, kind in enumerate(train.KINDS):
        for ranks in (2 + number % 2, 4 + number % 3, 7 + number % 2):
            bad = (number + ranks) % ranks
            name = f"{kind}-{ranks}".replace("_", "-")
            if wanted and name not in wanted:
                continue
            if (files := run(kind, bad, ranks)) is None:
                print(f"{name}: no job that hangs", flush=True)
                continue
            answers[name] = {"ranks": ranks, "bad": bad, "line": train.line(kind)}
            print(name, flush=True)
            for path, data in files.items():
                if not path.startswith("pickle/") or ranks < 4:
                    members[f"{name}/{path}"] = anonymous(data, path.startswith("pickle/"))
    with tarfile.open(Path(folder) / "stacks.tar.xz", "w:xz") as archive:
        for path, data in members.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    (Path(folder) / "answers.yml").write_text(yaml.safe_dump(answers, sort_keys=True), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
