"""The package by itself, and rules that are compiled anew."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from readyonce.cli.table import COMMANDS, IN_A_WHEEL, NEED_THE_PROJECT
from readyonce.data import reading
from support.logs import LOGS, read
from support.project import KNOWN, ROOT

# One call of each command that answers without the project, and what it says; `train.log` and `train.sh` are there.
ANSWERS = {
    "list": ([], "RO-0001"),
    "explain": (["ddp-ready-twice"], "RO-0001"),
    "diagnose": (["train.log"], "ddp-ready-twice"),
    "lint": (["train.sh", "--with", "ms-swift==4.6.0"], "1 launch"),
    "facts": (["strategy=ddp", "checkpointing=reentrant"], "runs fit"),
    "link": (["RO-0003", "--section", "fix"], "https://wiki.example.com/incidents/RO-0003/#fix"),
}
# With a package that the wheel does not require. What each says without it.
TO_INSTALL = {"triage": (["train.log"], "pip install 'readyonce[cluster]'")}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder in which the wheel is installed, without any package that it requires."""
    made, target = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(made), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = made.glob("*.whl")
    install = [*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    installed = subprocess.run(install, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    return target


@pytest.fixture
def readyonce(site, tmp_path):
    """Runs the installed command in a folder with a log and a launch."""
    (tmp_path / "train.log").write_text(read(LOGS[0])[1], encoding="utf-8")
    (tmp_path / "train.sh").write_text("NPROC_PER_NODE=2 swift sft --model m\n", encoding="utf-8")
    away = {key: value for key, value in os.environ.items() if not key.startswith(("READYONCE", "PYTHON"))}
    away |= {"SITE_URL": "https://wiki.example.com/", "XDG_CACHE_HOME": str(tmp_path / "caches")}
    # -S -I: neither site-packages nor this checkout can be seen.
    script = f"import sys; sys.path.insert(0, {str(site)!r}); from readyonce.cli.main import main; sys.exit(main())"

    def run(*arguments):
        command = [sys.executable, "-I", "-S", "-c", script, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=away, capture_output=True, text=True)

    return run


@pytest.mark.parametrize("script", ["readyonce_guard.py", "readyonce_compare.py"])
def test_the_wheel_carries_the_guard(site, script):
    """`from readyonce_guard import watch`; each stands in git once."""
    assert (site / script).read_bytes() == (ROOT / "packages" / "guard" / script).read_bytes()


def test_the_wheel_works_without_project_and_dependencies(readyonce):
    """In an environment that has nothing else, away from the checkout."""
    ran = readyonce("diagnose", "train.log", "--format", "json")
    assert ran.returncode == 0 and json.loads(ran.stdout)["error"] == "ddp-ready-twice", ran.stderr
    for language in ("en", "zh"):
        article = readyonce("explain", "RO-0001", "--lang", language)
        assert article.returncode == 0 and KNOWN.incidents["RO-0001"].meta.title[language] in article.stdout
    assert readyonce("explain", "RO-9999").returncode == 2
    (hook,) = reading.parse_yaml((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, *words = hook["entry"].split()
    ran = readyonce(*words, "--with", "ms-swift==3.5.3", "train.sh")
    assert program == "readyonce" and ran.returncode == 1 and "[ddp-ready-twice]" in ran.stdout, ran.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_wheel_answers_or_says_what_it_needs(readyonce, command):
    assert readyonce(command, "--help").returncode == 0
    needs = "needs the Python module" if command in IN_A_WHEEL else "checkout of the project"
    arguments, wanted = ANSWERS.get(command) or TO_INSTALL.get(command) or (needed(command), needs)
    ran = readyonce(command, *arguments)
    assert "Traceback" not in ran.stderr
    if command in ANSWERS:
        assert ran.returncode == 0 and wanted in ran.stdout and not ran.stderr, ran.stderr
    else:
        assert ran.returncode == 2 and not ran.stdout
        *above, told = ran.stderr.splitlines()  # above it is said where the project is unpacked
        assert told.startswith("readyonce: ") and wanted in told and len(above) == (command in IN_A_WHEEL)


def needed(command):
    """The arguments without which a command that works on the project is bad usage."""
    assert command in NEED_THE_PROJECT
    return ["RO-0001"] if command in ("run", "book") else []


def test_a_team_s_folder_and_the_wheel_are_a_wiki_in_an_empty_folder(site, tmp_path):
    """With the packages that `readyonce[site]` names, and no checkout anywhere."""
    theirs = tmp_path / "ours" / "ACME-0001"
    shutil.copytree(ROOT / "snippets/RO-0014", theirs)
    article = (ROOT / "docs/en/incidents/RO-0014.md").read_text(encoding="utf-8").split("\n---\n", 1)[1].lstrip()
    for path, text in ((theirs / "incident.yml", None), (theirs / "en.md", article)):
        text = text or path.read_text(encoding="utf-8")
        path.write_text(text.replace("RO-0014", "ACME-0001").replace("ro-0014", "acme-0001"), encoding="utf-8")
    away = {key: value for key, value in os.environ.items() if not key.startswith(("READYONCE", "PYTHON"))}
    away |= {
        "SITE_URL": "https://wiki.example.com/",
        "XDG_CACHE_HOME": str(tmp_path / "caches"),
        "PYTHONPATH": str(site),
    }
    empty = tmp_path / "empty"
    empty.mkdir()

    def run(*arguments):
        command = [
            sys.executable,
            "-c",
            "import sys; from readyonce.cli.main import main; sys.exit(main())",
            *arguments,
        ]
        return subprocess.run(command, cwd=empty, env=away, capture_output=True, text=True)

    checked = run("check", "--with", theirs.parent)
    assert checked.returncode == 0 and checked.stdout.startswith(f"{len(KNOWN.incidents) + 1} incidents"), (
        checked.stderr
    )
    assert "No checkout is here" in checked.stderr and str(tmp_path / "caches") in checked.stderr
    listed = run("list", "--with", theirs.parent)
    assert listed.stdout.startswith("ACME-0001") and "RO-0001" in listed.stdout, listed.stderr
    assert not list(empty.iterdir())


def test_writing_facts_needs_the_project(readyonce):
    ran = readyonce("facts", "--write")
    assert ran.returncode == 2 and "checkout of the project" in ran.stderr and ran.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [*NEED_THE_PROJECT, "facts"])
def test_a_package_that_is_missing_is_named(readyonce, tmp_path, command):
    """In the project's folder, where none of the packages is installed that its files are read with."""
    for folder in ("snippets/errors", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    ran = readyonce(command, *(["--write"] if command == "facts" else needed(command)))
    assert ran.returncode == 2 and not ran.stdout
    assert f"`readyonce {command}` needs the Python module " in ran.stderr
    assert "pip install 'readyonce[site]'" in ran.stderr and ran.stderr.count("\n") == 1
