"""Looks for a text that breaks `diagnose`, `triage` or `lint`: python tests/fuzz/fuzz.py [MINUTES, default 10] [which].

Guided by coverage (atheris), from the texts in corpus/ and the tests' own, with the rules' literals as its words. A text for
`diagnose` is given to the engine in Python and to the one in JavaScript. What breaks is written into the folder of corpus/
that is named as what it broke, which tests in browser/ and hostile/ read: a mended fault stays there as a seed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

with atheris.instrument_imports(
    include=["readyonce.diagnose", "readyonce.triage", "readyonce.lint", "readyonce.launches"]
):
    from readyonce.diagnose import engine as diagnose
    from support import fuzzed
    from support.launches import HOSTILE, TRAPS
    from support.logs import LOGS, MESSAGES, RULES, generated
    from support.project import ROOT
    from support.stacks import dumps

CORPUS = Path(__file__).with_name("corpus")
NODE = """
const { readFileSync } = require("fs");
const [code, data] = process.argv.slice(1).map((path) => readFileSync(path, "utf-8"));
const compiled = JSON.parse(data), engine = new Function(code + "; return readyonceEngine")()(compiled.matching);
const rules = engine.load(compiled);
require("readline").createInterface({ input: process.stdin }).on("line", (line) =>
  console.log(JSON.stringify(engine.diagnose(rules, Buffer.from(line, "base64"), "log", "en").json)));
"""


def of_diagnose(scratch: Path) -> Callable[[bytes], None]:
    engine = diagnose.Rules(RULES)
    (rules := scratch / "rules.json").write_text(json.dumps(RULES), encoding="utf-8")
    code = ROOT / "docs/theme/javascripts/diagnose.js"
    node = [Path(sys.executable).with_name("node"), "-e", NODE, code, rules]
    twin = subprocess.Popen(node, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def one(text: bytes) -> None:
        ours = diagnose.diagnose(engine, text, "log").json
        print(base64.b64encode(text).decode(), file=twin.stdin, flush=True)
        theirs = json.loads(twin.stdout.readline())
        assert ours == theirs, f"the engines differ: {ours} {theirs}"

    return one


def words() -> Iterable[bytes]:
    """Of the rules, and of what stands before an error."""
    engine = diagnose.Rules(RULES)
    found = {literal for wording in engine.wordings for literal in (*wording.all, *wording.none, *wording.needs)}
    found |= {*engine.launcher, *engine.guides, *engine.notes, *engine.remarks}
    return sorted(found | {b"RuntimeError: ", b"[rank0]: ", b"\x1b[31m"})


def seeds(which: str) -> Iterable[bytes]:
    """The tests' own texts."""
    if which == "lint":
        return [trap["script"].encode() for trap in TRAPS.values()] + [
            text.encode()[:8192] for text in HOSTILE.values()
        ]
    texts = [path.read_bytes() for path in LOGS] + [it["message"].encode() for it in MESSAGES]
    if which == "triage":
        return texts + [data[:8192] for data in dumps().values()]
    return texts + [text.encode("utf-8", "replace") for text in generated(seed=3, count=200)]


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    which = sys.argv[2] if len(sys.argv) > 2 else "diagnose"
    if which not in ("diagnose", *fuzzed.TRIED):
        sys.exit(f"There is no {which} to try: diagnose, {', '.join(fuzzed.TRIED)}.")
    kept = CORPUS / which
    with tempfile.TemporaryDirectory(prefix="readyonce-") as folder:
        (started := Path(folder) / "seeds").mkdir()
        for number, text in enumerate(seeds(which)):
            (started / str(number)).write_bytes(text)
        quoted = ('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in words())
        (dictionary := Path(folder) / "words").write_text("\n".join(quoted) + "\n")
        tried = of_diagnose(Path(folder)) if which == "diagnose" else fuzzed.TRIED[which]

        def one(text: bytes) -> None:
            try:
                tried(text)
            except Exception:
                (kept / hashlib.sha256(text).hexdigest()[:12]).write_bytes(text)
                raise

        # A counted number of seconds; a slow text is a fault too.
        options = [f"-max_total_time={int(60 * minutes)}", "-max_len=8192", "-timeout=20", f"-dict={dictionary}"]
        atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={kept}/", str(started), str(kept)], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
