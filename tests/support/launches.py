"""Launches to be linted, real, tricky and hostile, and the rules that read them."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import yaml

from readyonce.launches import reader
from readyonce.rules import lint
from support.patience import PATIENCE
from support.project import KNOWN, ROOT, TESTS

RULES = json.loads(json.dumps(lint.compile_rules(KNOWN, "https://wiki.example")))
READER = reader.Reader(RULES["stacks"], RULES["models"])
TRAPS = yaml.safe_load((TESTS / "lint" / "traps.yml").read_text(encoding="utf-8"))
COMMANDS = [it for it in KNOWN.observed if it.variant.is_command]
SIGNS = yaml.safe_load((TESTS / "lint" / "signs.yml").read_text(encoding="utf-8"))
PUBLIC = yaml.safe_load((TESTS / "lint" / "public.yml").read_text(encoding="utf-8"))

HOSTILE = {
    "expansion.sh": "A=" + "a" * 1000 + "\n" + "".join(f"{it}=$A$A$A$A$A$A$A$A\nA=${it}\n" for it in "BCDEFGHIJ"),
    "array.sh": "A=(" + "x " * 1000 + ")\n" + 'A+=("${A[@]}" "${A[@]}")\n' * 30,
    "long-line.sh": "swift sft --a " + "b" * (7 << 20),
    "too-long.sh": "x" * (9 << 20),
    "quotes.sh": "swift sft --x '" + '"' * 100000,
    "nested.sh": "swift sft " + "${A:-" * 50000,
    "substitutions.sh": "swift sft " + "$(" * 50000,
    "shells.sh": "export A=" + "x" * 100000 + "\n" + "bash -c 'swift sft $A'\n" * 2000,
    "many-shells.sh": "".join(f"A{i}=1\n" for i in range(20000)) + "bash -c 'swift sft'\n" * 20000,
    "looks.sh": "x deepspeed " * 50000,
    "starters.sh": ";srun ;composer " * 100000,
    "evals.sh": "A='eval $A'\neval $A\n",
    "anchors.yaml": "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
    "itself.yaml": "a: &a [*a]\n",
    "deep.yaml": "[" * 15000,
    "deep.json": '{"a":' * 15000,
    "deep.py": "(" * 5000,
    "large.py": "x = 1\n" * 1000000,
    "zero.sh": "swift sft\0--x",
    "added.sh": "A+=(x)\n" * 300000,
    "grown.sh": "A+=" + "x" * 3000 + "\n" + "A+=x\n" * 300000,
    "exports.sh": "".join(f"export A{i}=1\nf\n" for i in range(100000)),
    "defaults.sh": "swift sft " + "${A:-" * 20000 + "}" * 20000,
    "heredoc.sh": "cat <<A <<B\nnever ended",
    "json.sh": "swift sft --kwargs '" + '{"a":' * 9000 + "'",
}


# What has no word of a launch is not read at all.
HOSTILE |= {
    name: f"{text}\nswift sft" for name, text in HOSTILE.items() if name.endswith(".sh") and "swift" not in text
}


def linted(*arguments, cwd=None, limits=None):
    """`readyonce lint`, under limits of `resource` where they are given."""
    return subprocess.run(
        [sys.executable, "-m", "readyonce.cli.main", "lint", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=PATIENCE,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "scripts"), "READYONCE_ROOT": str(ROOT)},
        preexec_fn=(lambda: [resource.setrlimit(which, (most, most)) for which, most in limits.items()])
        if limits
        else None,
    )
