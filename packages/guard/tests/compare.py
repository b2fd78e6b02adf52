"""What `python -m readyonce_compare` says of each training program of `compare_loops.py`: it is printed, and with --write
stored in packages/guard/compare.json.

    python packages/guard/tests/compare.py [--write] ["LOOP CHANGE" ...]
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parent / "readyonce_compare.py"
STORED = HERE.parent / "compare.json"
SHOWN = "trainer tokens-of-each-rank"  # what was said of it stands on the page

sys.path.insert(0, str(HERE))
from compare_loops import ALIKE, DIFFERENT, LOOPS, UNTOLD  # noqa: E402

ENDS = {0: ALIKE, 91: DIFFERENT, 90: UNTOLD}


def asked(name, timeout=None):
    """Run one program behind it: how it ends, and the numbers that it prints."""
    bin = Path(sys.executable).parent
    torchrun = [str(bin / "torchrun"), "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, str(SCRIPT), "--", *torchrun, str(HERE / "compare_loops.py"), *name.split()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    log = ended.stdout + ended.stderr
    if ended.returncode not in ENDS:
        raise RuntimeError(f"{name} ended with {ended.returncode}:\n{log[-3000:]}")
    numbers = re.search(
        r"distance (\S+), ratio of lengths (\S+), cosine (\S+)\n\s+noise of two right orders ([^\s,]+),", log
    )
    told = dict(zip(("distance", "ratio", "cosine", "noise"), map(float, numbers.groups()))) if numbers else {}
    worst = re.search(r"the worst first: ([\w.]+) \(", log)
    return {"says": ENDS[ended.returncode], **told, **({"worst": worst[1]} if worst else {})}, log


def main(names, write):
    import torch

    found = json.loads(STORED.read_text(encoding="utf-8"))["loops"] if STORED.is_file() else {}
    for number, name in enumerate(names or LOOPS, 1):
        told, log = asked(name)
        expected = LOOPS[name]
        print(
            f"{number:3} {name}: {told}" + ("" if told["says"] == expected else f", NOT {expected}\n{log[-1500:]}"),
            flush=True,
        )
        found[name] = told
        if write:
            loops = {name: found[name] for name in LOOPS if name in found}
            stored = {"torch": torch.__version__.split("+")[0], "loops": loops}
            STORED.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            if name == SHOWN:
                said = log[log.index("readyonce compare: 2 processes") :]
                STORED.with_suffix(".txt").write_text(said, encoding="utf-8")


if __name__ == "__main__":
    main([word for word in sys.argv[1:] if word != "--write"], "--write" in sys.argv)
