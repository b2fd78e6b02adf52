"""Looks for a text on which `diagnose` breaks, or its two engines differ: python tests/fuzz/fuzz.py [MINUTES, default 10].

Guided by coverage (atheris), from the texts in corpus/ and the tests' own, with the rules' literals as its words. Each text is
given to the engine in Python and to the one in JavaScript. What breaks is written into
corpus/, and tests/browser/test_engines.py reads that folder: a mended fault stays there as a seed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

with atheris.instrument_imports(include=["readyonce.diagnose.engine"]):
    from readyonce.diagnose import engine as diagnose

from support.logs import LOGS, MESSAGES, RULES, generated
from support.project import ROOT

CORPUS = Path(__file__).with_name("corpus")
NODE = """
const { readFileSync } = require("fs");
const [code, data] = process.argv.slice(1).map((path) => readFileSync(path, "utf-8"));
const engine = new Function(code + "; return readyonceEngine()")(), rules = engine.load(JSON.parse(data));
require("readline").createInterface({ input: process.stdin }).on("line", (line) =>
  console.log(JSON.stringify(engine.diagnose(rules, Buffer.from(line, "base64"), "log", "en").json)));
"""


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    engine = diagnose.Rules(RULES)
    with tempfile.TemporaryDirectory(prefix="readyonce-") as folder:
        seeds = Path(folder) / "seeds"
        seeds.mkdir()
        texts = [path.read_bytes() for path in LOGS] + [it["message"].encode() for it in MESSAGES]
        texts += [text.encode("utf-8", "replace") for text in generated(seed=3, count=200)]
        for number, text in enumerate(texts):
            (seeds / str(number)).write_bytes(text)
        words = {literal for wording in engine.wordings for literal in (*wording.all, *wording.none, *wording.needs)}
        words |= {
            *engine.launcher,
            *engine.guides,
            *engine.notes,
            *engine.remarks,
            b"RuntimeError: ",
            b"[rank0]: ",
            b"\x1b[31m",
        }
        quoted = ('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in sorted(words))
        (dictionary := Path(folder) / "words").write_text("\n".join(quoted) + "\n")
        (rules := Path(folder) / "rules.json").write_text(json.dumps(RULES), encoding="utf-8")
        code = ROOT / "docs/theme/javascripts/diagnose.js"
        node = [Path(sys.executable).with_name("node"), "-e", NODE, code, rules]
        twin = subprocess.Popen(node, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def one(text: bytes) -> None:
            try:
                ours = diagnose.diagnose(engine, text, "log").json
                print(base64.b64encode(text).decode(), file=twin.stdin, flush=True)
                theirs = json.loads(twin.stdout.readline())
                assert ours == theirs, f"the engines differ: {ours} {theirs}"
            except Exception:
                (CORPUS / hashlib.sha256(text).hexdigest()[:12]).write_bytes(text)
                raise

        # A counted number of seconds; a slow text is a fault too.
        options = [f"-max_total_time={int(60 * minutes)}", "-max_len=8192", "-timeout=20", f"-dict={dictionary}"]
        atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={CORPUS}/", str(seeds), str(CORPUS)], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
