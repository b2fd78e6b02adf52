"""Prints what `diagnose` costs: python tests/bench/diagnose.py [GiB, default 1]. About five minutes.

A log of realistic lines, the error at a random place, decoys elsewhere, against `grep -F -c` with the same strings in turn;
memory; cold start; a megabyte in the browser; and a longer search for a difference between the two engines.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import sync_playwright

from readyonce.publish import site
from support.browser import CHROMIUMS, QUIET
from support.hosting import served
from support.logs import LOGS, RULES, generated, read, told
from support.project import ROOT

COMMAND = [sys.executable, "-m", "readyonce.cli.main", "diagnose"]


def main() -> None:
    size = float(sys.argv[1]) if len(sys.argv) > 1 else 1
    with tempfile.TemporaryDirectory(prefix="readyonce-") as folder:
        large(Path(folder), int(size * (1 << 30)))
        cold_start(Path(folder))
    in_a_browser()


def large(folder: Path, size: int) -> None:
    path, strings = folder / "train.log", folder / "strings"
    at = write(path, size)
    # Every string that the signatures hold: what grep would need to look for.
    words = {literal for family in RULES["families"] for wording in family["wordings"] for literal in wording["all"]}
    strings.write_text("\n".join(sorted(words | set(RULES["launcher"]))) + "\n", encoding="utf-8")
    ratios = []
    for _ in range(3):  # in turn, so that both see the same machine and a file in the cache
        grep, _, _ = measured(["grep", "-F", "-c", "-f", str(strings), str(path)])
        ours, _, said = measured([*COMMAND, "--format", "json", str(path)])
        assert '"error":"ddp-ready-twice"' in said and f'"line":{at}' in said, (said, at)
        ratios.append(ours / grep)
        print(f"  {size / (1 << 30):.2g} GiB: grep {grep:.2f} s, diagnose {ours:.2f} s of CPU", flush=True)
    # A child is charged with what its parent held when it forked: the process has to look itself.
    script = (
        "import sys; from readyonce.cli.main import main; main(sys.argv[1:]); print(open('/proc/self/status').read())"
    )
    _, _, said = measured([sys.executable, "-c", script, "diagnose", str(path)])
    memory = int(re.search(r"VmHWM:\s+(\d+) kB", said)[1]) >> 10
    print(
        f"large log: {statistics.median(ratios):.2f} times grep -F -c (aim: at most 2.5); {memory} MiB (aim: at most 64)"
    )


def write(path: Path, size: int) -> int:
    """Lines as training writes them; returns the line of the error."""
    chance = random.Random(3)

    def line() -> str:
        kind, n, x = chance.randrange(10), chance.randrange(100_000), chance.random()
        if kind < 4:
            return f"[rank{n % 8}]: {{'loss': {x:.4f}, 'grad_norm': {3 * x:.6f}, 'learning_rate': {x / 1e5:.3e}, 'epoch': {x:.2f}}}"
        if kind == 4:
            return f"2025-03-11 10:{n % 60:02}:{n % 59:02},{n % 1000:03} - INFO - trainer - Saving model checkpoint to output/checkpoint-{n}"
        if kind == 5:
            return f"Train:  {n // 1000}%|████▏      | {n}/100000 [{n % 60:02}:{n % 60:02}<1:23:45,  1.05s/it]\r"
        if kind == 6:
            return f"[2025-03-11 10:00:{n % 60:02},{n % 1000:03}] [INFO] [logging.py:128:log_dist] [Rank 0] step={n}, skipped=0, lr=[1e-05]"
        if kind == 7:
            return f"/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py:557: UserWarning: This DataLoader will create {n} worker processes"
        if kind == 8:
            return f'[rank{n % 8}]:   File "/usr/lib/python3.11/site-packages/transformers/models/qwen2/modeling_qwen2.py", line {n}, in forward'
        return f"h20-node-3:{n}:{n + 7} [{n % 8}] NCCL INFO Channel {n % 32:02}/0 : {n % 8}[{n % 8}] -> 1[1] via P2P/CUMEM/read"

    decoys = [
        "find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters",
        "INFO If you see `RuntimeError: Expected to mark a variable ready only once.` read the guide",
        "WARNING Expected to mark the run as ready; the parameter cache has already been reduced in size",
        "INFO: no Error: retrying, ValueErrors: 0",
    ]
    block = "\n".join(chance.choice(decoys) if chance.random() < 1e-4 else line() for _ in range(100_000)) + "\n"
    _, error = read(next(log for log in LOGS if log.stem == "RO-0001-reported"))
    blocks = max(2, size // len(block.encode()))
    place = chance.randrange(1, blocks)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for number in range(blocks):
            if number == place:
                file.write(error)
            file.write(block)
    return place * block.count("\n") + told(error).json["line"]


def measured(command: list[str]) -> tuple[float, int, str]:
    """(seconds of CPU, KiB at most, what it said). CPU, so that other work on the machine does not count."""
    # `time` would be another program to install: wait4 knows what a child used.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss, said


def cold_start(folder: Path) -> None:
    path = folder / "small.log"
    path.write_text(read(LOGS[0])[1], encoding="utf-8")
    times = [measured([*COMMAND, str(path)])[0] for _ in range(11)]
    bare = [measured([sys.executable, "-c", "pass"])[0] for _ in range(11)]
    print(
        f"cold start: {1000 * statistics.median(times):.0f} ms (aim: below 200); "
        f"`python -c pass`: {1000 * statistics.median(bare):.0f} ms"
    )


def in_the_page(browser) -> None:
    """From the paste to the answer on the page, the first one in a fresh tab."""
    assert site.build(ROOT, take_along=()) == 0
    text = of_one_megabyte()
    with served(ROOT / "site") as address:
        times = []
        for _ in range(9):
            page = browser.new_page()
            page.goto(address + "diagnose/", wait_until="networkidle")
            page.wait_for_timeout(1000)
            times.append(page.evaluate(PASTE, text))
            page.close()
    print(
        f"page, 1 MB pasted: {statistics.median(times):.0f} ms (aim: below 50), from {min(times):.0f} to {max(times):.0f}"
    )


PASTE = """text => new Promise((done) => {
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", text);
    const answer = document.querySelector('[data-ro="answer"]');
    new MutationObserver(() => answer.children.length && done(performance.now() - start))
        .observe(answer, { childList: true });
    const start = performance.now();
    document.querySelector('[data-ro="log"]').dispatchEvent(
        new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
})"""


def of_one_megabyte() -> str:
    log = read(LOGS[0])[1]
    text = re.sub("Expected to mark|ready twice", "expected nothing", log)
    return (text * (1_000_000 // len(text) + 1))[: 1_000_000 - len(log)] + log


def in_a_browser() -> None:
    program = next(path for name in CHROMIUMS if (path := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=QUIET)
        page = browser.new_page()
        in_the_page(browser)
        code = (ROOT / "docs/theme/javascripts/diagnose.js").read_text(encoding="utf-8")
        page.evaluate(code + "; window.make = readyonceEngine; null")
        page.evaluate("data => { window.engine = make(data.matching); window.rules = engine.load(data) }", RULES)
        text = of_one_megabyte()
        times = page.evaluate(
            """text => Array.from({ length: 9 }, () => {
                const start = performance.now();
                engine.diagnose(rules, text, "log", "en");
                return performance.now() - start;
            })""",
            text,
        )
        print(f"engine, 1 MB: {statistics.median(times):.0f} ms (aim: below 50), the first time {times[0]:.0f} ms")
        count, differences = 100_000, 0
        for seed in range(count // 1000):
            texts = list(generated(seed=1000 + seed, count=1000))
            script = 'texts => texts.map((text) => JSON.stringify(engine.diagnose(rules, text, "log", "en").json))'
            differences += sum(a != told(b).to_json() for a, b in zip(page.evaluate(script, texts), texts))
        print(f"both engines on {count} generated texts: {differences} differences (aim: 0)")
        browser.close()


if __name__ == "__main__":
    main()
