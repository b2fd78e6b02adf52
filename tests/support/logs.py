"""Logs, real and made up, the expected answers, and the engine that reads them: what all tests of `diagnose` share."""

from __future__ import annotations

import html
import json
import random
import re
from itertools import chain

from readyonce.data import reading
from readyonce.data.project import LANGUAGES
from readyonce.diagnose import engine
from readyonce.rules import diagnose as rules
from support.project import KNOWN, TESTS, command

RULES = rules.compile_rules(KNOWN)
ENGINE = engine.Rules(RULES)
LOGS = sorted((TESTS / "logs").glob("*.log"))
CONFUSERS = reading.parse_yaml((TESTS / "confusers.yml").read_text(encoding="utf-8"))
MESSAGES = reading.parse_yaml((TESTS / "messages.yml").read_text(encoding="utf-8"))
SAMPLES = {
    name: reading.parse_yaml((TESTS / "wild" / f"{name}.yml").read_text(encoding="utf-8"))
    for name in ("second", "third")
}
SAMPLE = [thread for threads in SAMPLES.values() for thread in threads]


def posted(thread):
    """What somebody asks, in our words, and what their program said."""
    return f"{thread['asked']}\n\n{thread.get('log', '')}"


def read(path):
    """(what is expected, the log); `begins` are the first letters of the winning line."""
    lines = path.read_text(encoding="utf-8").split("\n")
    head = [line[2:].strip() for line in lines if line.startswith("#?")]
    expected = reading.parse_yaml("\n".join(head))
    if line := expected.get("line"):
        expected["begins"] = letters(re.sub(r"^\[rank\d\]: *", "", lines[int(line) - 1]))[:22]
    return expected, "\n".join(lines[len(head) :])


def letters(text):
    return "".join(re.findall("[A-Za-z]", text))


def told(text, language="en"):
    return engine.diagnose(ENGINE, text.encode("utf-8", "replace"), "log", language)


LOG = read(next(path for path in LOGS if path.stem == "RO-0003-command-reported@flagembedding-1.4.2"))[1]


# ------------------------------------------------------------------------------ what may happen to a log


def wrapped(text, width):
    return "\n".join(line[at : at + width] for line in text.split("\n") for at in range(0, max(1, len(line)), width))


def before_each(text, prefix):
    return "\n".join(prefix + line for line in text.split("\n"))


def without_ranks(text):
    return re.sub(r"(?m)^\[rank\d\]: ?", "", text)


def interleaved(text):
    """Two ranks write the same, line by line in turn."""
    lines = without_ranks(text).split("\n")
    return "\n".join(f"[rank{rank}]: {line}" for line in lines for rank in (0, 1))


def apart(text, width=80):
    """Letters lost where lines are wrapped, as in a transcription."""
    return "\n".join(
        line[at : at + width - 1] if at + width < len(line) else line[at:]
        for line in text.split("\n")
        for at in range(0, max(1, len(line)), width)
    )


CHANGES = {
    "as it is": lambda text: text,
    "wrapped at 80": lambda text: wrapped(text, 80),
    "wrapped at 132": lambda text: wrapped(text, 132),
    "wrapped at 97, quoted": lambda text: before_each(wrapped(text, 97), "> "),
    "prefixed": lambda text: before_each(text, "[rank3]: "),
    "prefixed twice": lambda text: before_each(text, "[default0]:[rank0]: "),
    "prefixed, wrapped at 80": lambda text: wrapped(before_each(text, "[default0]:[rank0]: "), 80),
    "wrapped at 80, prefixed": lambda text: before_each(wrapped(text, 80), "[default0]:[rank0]: "),
    "timestamps": lambda text: before_each(text, "2025-03-11T10:00:00.1234567Z "),
    "timestamps, wrapped at 80": lambda text: before_each(wrapped(text, 80), "2025-03-11 10:00:00,123 - ERROR - "),
    "coloured": lambda text: "\n".join(f"\x1b[31m{line}\x1b[0m" for line in text.split("\n")),
    "coloured in the middle": lambda text: re.sub(r"(\w\w\w)(?= )", "\x1b[1;31m\\1\x1b[0m", text),
    "colours without escape": lambda text: "\n".join(f"[31m{line}[0m" for line in text.split("\n")),
    "quoted": lambda text: before_each(text, "> "),
    "quoted as headings": lambda text: before_each(text, "# "),
    "quoted twice": lambda text: before_each(text, "> > "),
    "in a code fence": lambda text: f"I get this error:\n```\n{text}\n```\nAny idea?",
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "after a progress bar": lambda text: (
        "Train:  12%|█▏   | 12/100 [00:10<01:20]\r" + text.replace("\n", "\n 13%|█▎ |\r")
    ),
    "interleaved": interleaved,
    "interleaved, wrapped at 80": lambda text: wrapped(interleaved(text), 80),
    "many spaces": lambda text: re.sub(r"(?<=\w) (?=\w)", " " * 13, text),
    "curly quotes": lambda text: re.sub(r"'(\w+)'", "\u2018\\1\u2019", text),
    "no-break spaces": lambda text: text.replace(" ", "\u00a0"),
    "in HTML": html.escape,
    "in HTML, escaped twice": lambda text: html.escape(html.escape(text)).replace("x27;", "39;").replace(" ", "&nbsp;"),
}
CUTS = {"first 30 lines": lambda lines: lines[:30], "last 30 lines": lambda lines: lines[-30:]}


# What launchers, schedulers, loggers and people put before an error, on its line.
BEFORE = [
    "worker-1: ",
    "10.0.0.7: ",
    "node03: node03: ",
    "0: ",
    "12: ",
    "[rank3]: ",
    "[rank: 0] ",
    "[Rank 2] ",
    "[default0]:",
    "[default0]:[rank0]: ",
    "[1,0]<stderr>:",
    "[1,mpirank:0,algo-1]<stderr>:",
    "[pod/job-worker-0/train] ",
    "job-worker-0 train ",
    "worker-0 | ",
    "trainer-1  | ",
    "(main_task pid=4711) ",
    "(RayTrainWorker pid=4711, ip=10.0.0.7) ",
    "\x1b[36m(RayTrainWorker pid=4711)\x1b[0m ",
    "Nov 28 10:00:00 host python[123]: ",
    "Nov 28 10:00:00 gpu-node-3 slurmd[99]: ",
    "2026-11-28T10:00:00.123456Z ",
    "2026-11-28T10:00:00+08:00 ",
    "2026-11-28 10:00:00,123 - ERROR - ",
    "2026-11-28 10:00:00,123 - train - ERROR - ",
    "2026-11-28 10:00:00.123 | ERROR    | __main__:main:12 - ",
    "2026-11-28 10:00:00 | ERROR | llamafactory.train | ",
    "[2026-11-28 10:00:00,123] [ERROR] [launch.py:325:main] ",
    "[2026-11-28 10:00:00,123][train][ERROR] - ",
    "[INFO:swift] ",
    "[ERROR|trainer.py:100] 2026-11-28 10:00:00,123 >> ",
    "ERROR:root:",
    "ERROR:__main__:",
    "ERROR: ",
    "E1128 10:00:00.123456 4711 torch/x.py:12] ",
    "[E1128 10:00:00.123456789 main.cpp:12] ",
    "[NeMo E 2026-11-28 10:00:00 exp_manager:12] ",
    "[stderr] ",
    "stderr: ",
    "stderr F ",
    "2026-11-28T10:00:00.123456789Z stderr F ",
    "E       ",
    "> ",
    "> > ",
    "# ",
    "    ",
    "\t",
    "| ",
    " 12%|█▏   | 12/100 [00:10<01:20,  1.10it/s]",
    "Epoch 1:  12%|█▏   | 12/100 [00:10<01:20,  1.10it/s, loss=2.3]",
    "Training:   0%|          | 0/10 [00:00<?, ?it/s]",
    "  what():  ",
    "terminate called after throwing an instance of 'c10::Error'  what():  ",
    "报错：",
    "报错如下：",
    "执行中报错：",
    "训练时报错: ",
    "错误信息：",
    "训练 demo run 的输出：",
    "I get this error: ",
    "The full error is: ",
    "Here is the traceback: ",
    "Error message: ",
    "Failed to join the ring: ",
    "2026-01-02 03:04:05,678 - App - INFO - [rank7]: ",
]
# Exceptions of no family: ordinary ones, of each class.
UNCOVERED = [
    "ValueError: bad shard",
    "KeyError: 'input_ids'",
    "TypeError: forward() got an unexpected keyword argument 'labels'",
    "AttributeError: 'NoneType' object has no attribute 'shape'",
    "IndexError: list index out of range",
    "AssertionError: hidden size is not divisible by heads",
    "AssertionError",
    "NotImplementedError: unsupported architecture",
    "ModuleNotFoundError: No module named 'apex'",
    "ImportError: cannot import name 'AdamW' from 'transformers'",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.json'",
    "PermissionError: [Errno 13] Permission denied: '/out'",
    "OSError: [Errno 28] No space left on device",
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for Config",
    "omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x4)",
    "RuntimeError: stack expects each tensor to be equal size",
    "ZeroDivisionError: division by zero",
    "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0",
    "jinja2.exceptions.TemplateError: Conversation roles must alternate",
]
# What holds a line as a value: docker's log driver, torchelastic's error file, a logger that writes JSON.
IN_JSON = [
    {"log": "{}\n", "stream": "stderr", "time": "2026-11-28T10:00:00Z"},
    {"message": {"message": "{}", "extraInfo": {"timestamp": "1764324000"}}},
    {"level": "error", "ts": 1764324000, "msg": "{}"},
    {"message": 'Traceback (most recent call last):\n  File "t.py", line 3, in main\n    f()\n{}\n'},
]


def in_json(form, text):
    return json.dumps(form).replace("{}", json.dumps(text)[1:-1])


TITLES = {
    family: [
        it.title.en,
        *(i.meta.title[lang] for i in KNOWN.incidents.values() for lang in LANGUAGES if i.meta.errors[:1] == [family]),
    ]
    for family, it in KNOWN.families.items()
}
LEADS = [
    "",
    "RuntimeError: ",
    "[rank0]: RuntimeError: ",
    "报错：",
    "报错：RuntimeError: ",
    "> [rank1]: AssertionError: ",
]


SAID = "RuntimeError: Expected to mark a variable ready only once."
FENCED = f"```\n{SAID}\n```\n"
# Texts that explain an error, and reports of one that have the same sections.
GUIDES = [
    f"### 2. Conflict\n\n**Error**:\n{FENCED}\n**Cause**: both on\n\n**Solution**:\n",
    f"## Error\n{FENCED}\n## Solution\nTurn it off.\n",
    f"### ❌ Error\n\n{FENCED}\n### ✅ Fix 1\n\nTurn it off.\n",
    f"Error:\n{FENCED}\nCause: both on\nFix: turn it off\n",
    f"**Symptom:** {SAID}\n\n**Fix:** turn it off\n",
    f"1. **Problem**\n{FENCED}\n2. **Why it happens**\n\nBoth are on.\n",
    f"<h3>Error</h3>\n<pre>\n{SAID}\n</pre>\n<h3>Solution</h3>\n<p>Turn it off.</p>\n",
    f"### Error\n{FENCED}\n### Cause\nunknown\n\n### Workaround\nTurn it off.\n",
    f"**报错**：\n{FENCED}\n**解决方案**：关掉它\n",
    f"报错信息：\n{SAID}\n\n原因：\n\n两个都开着\n",
    f"【报错】\n{SAID}\n【解决】关掉它\n",
    f"### エラー\n{FENCED}\n### 対処法\n無効にする\n",
]
REPORTS = [
    f"### Error\n{FENCED}\n### Environment\ntorch 2.4\n\n### Solution\nnone so far\n",
    f"### Error\n{FENCED}\n### Possible solution\nTurn it off?\n",
    f"### Error\n{FENCED}\n### Solution\n\n_No response_\n",
    f"### Error\n{FENCED}\n**Cause**: unknown\n",
    f"### Error\n{FENCED}\n**Cause**:\n\n**Solution**:\n",
    f"报错：\n{SAID}\n原因：不清楚\n",
    f"{SAID}\n        Possible Cause: 1. the link is down\n        Solution: 1. check the link\n",
    f"{FENCED}\nWhat is the cause: the model or DDP?\n",
]


# Sentences behind a word for an error, without an exception's name; and what has the word and tells of none.
COMPLAINTS = [
    "ERROR: something failed",
    "error: DistributedDataParallel device_ids and output_device arguments only work with single-device modules",
    "[rank3]: ERROR something failed",
    "2026-11-28 10:00:00,123 - ERROR - cannot open shard 3 of the data",
    "[ERROR] 10 shards could not be read",
    "[FATAL] the job was stopped by its owner",
    "FATAL: no such partition here",
    "Fatal error: cannot allocate device",
    "train.py: error: the following arguments are required: --data",
    "kernels/norm.cu:12:3: error: no instance of function matches",
    "错误：无法读取数据文件",
    "报错：无法读取数据文件",
    "报错信息: device ids do not match",
    "执行中报错：进程没有启动",
]
NO_COMPLAINTS = [
    "error: 0.0012",
    "ERROR",
    "Error rate: 0.1 and so on",
    "errors: 3 files",
    "error: str | None = None",
    'ERROR = b"two words"',
    "# ERROR: see the wiki for help",
    "ERROR: apex is not available, training goes on without it",
    "- Error: something failed",
    "If you see ERROR: something failed, read on.",
    "Mean absolute error: two words",
    "The error handler: see below",
    "no error at all",
]

# What a log shows of training that goes wrong without an error, as each framework prints it, and the heading it leads to.
SIGNS = {
    "{'loss': '0.0', 'grad_norm': 'nan', 'learning_rate': '1e-05'}": "symptoms",
    "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-06, 'memory(GiB)': 22.3, 'epoch': 0.01, 'global_step/max_steps': '1/10'}": "symptoms",
    "[rank0]: step 3 train_loss: nan": "symptoms",
    "Epoch 0:  10%|█         | 10/100 [00:01<00:10,  9.50it/s, v_num=0, train_loss=nan.0]": "symptoms",
    "Epoch 0:  10%|█         | 10/100 [00:01<00:10,  9.50it/s, v_num=0, train_loss_step=nan.0, train_loss_epoch=2.310]": "symptoms",
    "Steps:   1%|          | 10/1000 [00:10<10:00,  1.00it/s, lr=1e-5, step_loss=nan]": "symptoms",
    " iteration       10/     100 | consumed samples:           80 | elapsed time per iteration (ms): 100.0 | learning rate: 1.000000E-05 | global batch size:     8 | lm loss: NAN | loss scale: 1.0 | grad norm: 1.200 |": "symptoms",
    "iteration 10 | lm loss: 1.0E+01 | grad norm: inf | number of nan iterations:   0 |": "symptoms",
    "[2026-11-28 10:00:00,123] [INFO] [logging.py:128:log_dist] [Rank 0] step=10, skipped=0, lr=[0.0], mom=[(0.9, 0.999)]\n"
    * 4: "rate-ahead",
    "steps: 10 loss: nan iter time (s): 1.2 samples/sec: 6.6": "symptoms",
    "loss=tensor(nan, device='cuda:0', grad_fn=<NllLossBackward0>)": "symptoms",
    "iter 10: loss nan, time 100.00ms": "symptoms",
    "step 10 | loss | nan | lr | 1e-5 |": "symptoms",
    '{"loss": NaN, "lr": 1e-5}': "symptoms",
    "loss: Infinity": "symptoms",
    "epoch 1 | train loss 6.9315\n" * 4: "nothing-moves",
    "{'loss': 0.6931, 'grad_norm': 0.51}\n{'loss': 0.6931, 'grad_norm': 0.52}\n" * 2: "nothing-moves",
    "".join(
        f"Epoch 0:  {n}%|█         | {n}/100 [00:01<00:10,  9.50it/s, loss=0.000]\r" for n in range(1, 6)
    ): "nothing-moves",
    " iteration 1 | learning rate: 0.000000E+00 | lm loss: 1.1E+01 |\n iteration 2 | learning rate: 0.000000E+00 | lm loss: 1.2E+01 |\n"
    * 2: "rate-ahead",
    "step 1 lr: 0.0 gnorm=0.0 loss: 2.31\nstep 2 lr: 0.0 gnorm=0.0 loss: 2.30\n" * 2: "nothing-moves",
    "{'loss': 2.1, 'global_grad_norm': 0.0}\n{'loss': 2.0, 'global_grad_norm': 0.0}\n" * 2: "nothing-moves",
}
# Numbers of ordinary training: a first step of the warm-up on each rank, bars drawn again, few digits, other losses.
NO_SIGNS = [
    "{'loss': 2.1, 'learning_rate': 0.0}\n{'loss': 2.0, 'learning_rate': 1e-06}",
    "".join(f"[rank{r}]: step 0 loss: 2.{r}134 lr: 0.0\n" for r in range(8)),
    "".join(
        f"[2026-11-28 10:00:00,123] [INFO] [logging.py:128:log_dist] [Rank {r}] step=1, skipped=0, lr=[0.0], mom=[(0.9, 0.999)]\n"
        for r in range(8)
    ),
    "Epoch 0:  10%|█ | 10/100 [00:01<00:10,  9.50it/s, loss=0.000]\r" * 9,
    "".join(f"{n}%|█ | {n}/100 [00:01<00:10,  9.50it/s, loss=2.3451]\r" for n in range(9)),
    "{'loss': 0.0001, 'grad_norm': 0.01}\n" * 9,
    "loss: 2.31\n" * 9,
    "loss0: 2.3, loss1: 1.2\n" * 9,
    "{'loss': 2.3, 'aux_loss': 0.0, 'kl_loss': 0.0, 'eval_loss': nan}\n{'loss': 2.2, 'aux_loss': 0.0, 'kl_loss': 0.0}\n"
    * 4,
    "iteration 10 | lm loss: 1.0E+01 | loss scale: 0.0 | number of skipped iterations:   0 | number of nan iterations:   0 |\niteration 11 | lm loss: 1.1E+01 | loss scale: 0.0 | number of nan iterations: 0 |\n"
    * 3,
    "lossless: 0\n" * 5,
    "logging_nan_inf_filter=True, check_for_nan_in_loss_and_grad: true",
    "weight_decay: 0.0\nwarmup_lr: 0.0\nmin_lr: 0.0\nbase_lr: 0.0\n" * 2,
    "rank 0 loss: 2.3456\nrank 1 loss: 2.3456\nrank 2 loss: 2.3456\nrank 3 loss: 2.3456\n",
]


def error(name):
    """A message of a family: one that was collected, or what a minimal repro said."""
    said = (it.minimal.fails.said for it in KNOWN.incidents.values() if it.minimal and it.minimal.fails.error == name)
    return next(chain((entry["message"] for entry in MESSAGES if entry["family"] == name), said))


def generated(seed, count):
    """Texts made of the rules' own literals, broken and mixed with what logs are full of."""
    chance = random.Random(seed)
    words = [literal for family in RULES["families"] for wording in family["wordings"] for literal in wording["all"]]
    words += RULES["launcher"] + RULES["guides"][:8] + RULES["notes"][:8] + RULES["progress"]
    words += ["RuntimeError: ", "AssertionError", "Traceback (most recent call last):", "raise ", "KeyError: 'x'"]
    noise = [
        "\n",
        "\n",
        "\r\n",
        "\r",
        " ",
        "  ",
        "\t",
        "[rank0]: ",
        "[default1]:[rank1]: ",
        "\x1b[31m",
        "\x1b[0m",
        "\x1b[",
        "> ",
        "# ",
    ]
    noise += [
        '"',
        "'",
        "`",
        "(",
        ")",
        "\\",
        "%",
        "é",
        "中文",
        "\u2028",
        "\u00a0",
        "\U0001f600",
        "0",
        "x",
        "E  ",
        "2025-03-11 10:00:00,1 ",
    ]
    for _ in range(count):
        parts = []
        for _ in range(chance.randrange(1, 14)):
            word = (
                chance.choice(words)
                if chance.random() < 0.45
                else chance.choice(noise) * chance.choice((1, 1, 1, 2, 9))
            )
            if chance.random() < 0.3 and len(word) > 3:
                at = chance.randrange(1, len(word))
                word = word[:at] + chance.choice(noise) + word[at + chance.randrange(0, 4) :]
            parts.append(word)
        yield "".join(parts)


SHORTEST = [
    (family["family"], min((" ".join(it["all"] + it.get("needs", [])[:1]) for it in family["wordings"]), key=len))
    for family in RULES["families"]
]


def on_one_line(unit, size):
    return ("If you see " + (unit + " ") * (size // len(unit) + 1))[:size]


PLAIN = "[rank3]: {'step': 1234, 'tokens': 4096, 'speed': 1.25}\n"


def padded(chance, count, least):
    """(a text, the same with so much around it that it is read in parts, the lines that came before)."""
    texts = [change(read(path)[1]) for path in LOGS for change in CHANGES.values()]
    texts += [entry["message"] for entry in MESSAGES]
    texts += [text for groups in CONFUSERS.values() for group in groups.values() for text in group]
    texts += generated(seed=chance.randrange(1000), count=len(texts))
    for text in chance.sample(texts, count):
        text = f"\n{text.encode('utf-8', 'replace').decode().strip(chr(10))}\n\n"
        # The text stands across a border between two blocks, at any of its letters.
        room = engine.BLOCK * chance.choice((1, 2)) - chance.randrange(len(text.encode()) + 1)
        if chance.random() < 0.2:
            before = "\n" * room
        else:
            before = PLAIN * (room // len(PLAIN))
            before += "x" * (room - len(before) - 1) + "\n" * (room > len(before))
        after = PLAIN * max(4, (least - room) // len(PLAIN))
        yield f"{PLAIN * 4}{text}{PLAIN * 4}", before + text + after, before.count("\n") - 4


def shifted(answer, lines):
    for place in (answer, *answer["also"], *answer["silent"]):
        if place["line"]:
            place["line"] += lines
    return answer


def alike(large, whole, lines):
    """Words that are no exception are looked at in short texts only."""
    if whole["kind"] == "fragment" and large["kind"] == "unknown":
        whole |= {"kind": "unknown", "line": large["line"] and large["line"] - lines, "words_of": []}
        whole["exception"] = large["exception"]
        whole["silent"] = [sign | {"line": sign["line"] - lines} for sign in large["silent"]]
    if whole["exception"] and not large["exception"] and not whole["error"]:
        assert not re.match(r"[\w.]*(?:Error|Exception|Interrupt|Expired|Timeout)\b", whole["exception"]["text"])
        whole |= {"line": None, "exception": None}
    if not large["silent"]:
        whole["silent"] = []
    return large == shifted(whole, lines)


def pasted_in_pieces(paths) -> int:
    """None holds part of an error; returns how many lines they have."""
    lines = 0
    for path in paths:
        rows = path.read_text(encoding="utf-8", errors="replace").split("\n")
        lines += len(rows)
        for at in range(0, len(rows), 400):
            answer = told("\n".join(rows[at : at + 400]))
            assert not answer.json["words_of"] or answer.note == "mention", (path, answer.json, answer.around)
    return lines


# ------------------------------------------------------------------------------ the command


def run(*arguments, **options):
    return command("diagnose", *map(str, arguments), **options)


def issue(tmp_path, title, body):
    path = tmp_path / "event.json"
    path.write_text(
        json.dumps({"action": "opened", "issue": {"number": 1, "title": title, "body": body}}), encoding="utf-8"
    )
    return run("--github-event", path)
