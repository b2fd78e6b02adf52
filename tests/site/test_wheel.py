"""The package by itself, and rules that are compiled anew."""

import json
import os
import subprocess
import sys
import zipfile

from readyonce import reading
from support.logs import LOGS, read
from support.project import KNOWN, ROOT


def test_wheel_works_without_project_and_dependencies(tmp_path):
    """In an environment that has nothing else, away from the checkout."""
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    made = subprocess.run(build, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    guard = "readyonce_guard.py"  # `from readyonce_guard import watch`; it stands in git once
    assert (tmp_path / "site" / guard).read_bytes() == (ROOT / "snippets" / "guard" / guard).read_bytes()
    (tmp_path / "train.log").write_text(read(LOGS[0])[1], encoding="utf-8")
    away = {key: value for key, value in os.environ.items() if not key.startswith(("READYONCE", "PYTHON"))}

    def readyonce(*arguments):
        # -S -I: neither site-packages nor this checkout can be seen.
        script = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); from readyonce.cli import main; sys.exit(main())"
        return subprocess.run(
            [sys.executable, "-I", "-S", "-c", script, *arguments],
            cwd=tmp_path,
            env=away,
            capture_output=True,
            text=True,
        )

    said = readyonce("diagnose", "train.log", "--format", "json")
    assert said.returncode == 0 and json.loads(said.stdout)["error"] == "ddp-ready-twice", said.stderr
    for language in ("en", "zh"):
        article = readyonce("explain", "RO-0001", "--lang", language)
        assert article.returncode == 0 and KNOWN.incidents["RO-0001"].meta.title[language] in article.stdout
    assert readyonce("explain", "RO-9999").returncode == 2
    (tmp_path / "train.sh").write_text("NPROC_PER_NODE=2 swift sft --model m\n", encoding="utf-8")
    (hook,) = reading.parse_yaml((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, *words = hook["entry"].split()
    said = readyonce(*words, "--with", "ms-swift==3.5.3", "train.sh")
    assert program == "readyonce" and said.returncode == 1 and "[ddp-ready-twice]" in said.stdout, said.stderr
