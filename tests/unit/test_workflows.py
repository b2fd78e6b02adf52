"""The workflows are sound, pin what they use, and no job may write that need not."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.project import ROOT

FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
ACTION, EXAMPLE = ROOT / "action.yml", ROOT / "snippets" / "lint" / "workflow.yml"
HERE = Path(sys.executable).parent
MAY_WRITE = {"diagnose": {"issues"}, "canary": {"issues"}, "publish": {"pages", "id-token", "contents"}}


def load(path: Path) -> dict:
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)  # BaseLoader: `on` stays a word


@pytest.mark.parametrize("program", [["actionlint"], ["zizmor", "--offline", "--no-progress"]])
def test_linters_find_nothing(program):
    files = [*FILES, EXAMPLE, *[ACTION] * (program[0] == "zizmor")]  # actionlint reads workflows only
    told = subprocess.run([HERE / program[0], *program[1:], *files], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize(
    "program, find, replace",
    [
        ("actionlint", "runs-on: ubuntu-24.04", "runs-no: ubuntu-24.04"),
        ("zizmor", "persist-credentials: false", "fetch-depth: 1"),
        ("zizmor", 'close "$number"', "close ${{ github.event.issue.title }}"),
    ],
)
def test_linters_are_awake(tmp_path, program, find, replace):
    text = (FOLDER / "canary.yml").read_text(encoding="utf-8")
    assert find in text
    (tmp_path / "canary.yml").write_text(text.replace(find, replace), encoding="utf-8")
    offline = ["--offline", "--no-progress"] if program == "zizmor" else []
    assert subprocess.run([HERE / program, *offline, tmp_path / "canary.yml"], capture_output=True).returncode


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_actions_are_pinned_by_hash(path):
    uses = re.findall(r"uses: *(.*)", path.read_text(encoding="utf-8"))
    assert uses and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use) for use in uses), uses


def test_one_release_of_each_action():
    uses = {use for path in FILES for use in re.findall(r"uses: *(.*)", path.read_text(encoding="utf-8"))}
    assert len({use.partition("@")[0] for use in uses}) == len(uses), sorted(uses)


def test_what_the_action_uses_is_pinned_and_its_inputs_are_there():
    (uses,) = re.findall(r"uses: *(.*)", ACTION.read_text(encoding="utf-8"))
    assert re.fullmatch(r"github/codeql-action/upload-sarif@[0-9a-f]{40} # v\d+\.\d+\.\d+", uses)
    given = load(EXAMPLE)["jobs"]["lint"]["steps"][-1]["with"]
    assert given.keys() == load(ACTION)["inputs"].keys()


@pytest.mark.parametrize(
    "files, releases, code",
    [
        ("bad.sh good.sh", "", 1),
        ("good.sh", "ms-swift==3.5.3 torch==2.13.0", 0),
        ("good.sh\nbad.sh\n", "ms-swift==3.5.3\ntorch==2.13.0\n", 1),
        ("\n  good.sh\n\tbad.sh  ", "", 1),
        ("good.sh 'my jobs/bad.sh'", "", 1),
        ('good.sh\n"my jobs/bad.sh"', "", 1),
        ("good.sh *.sh", "", 1),  # the lint's own glob
        ("$(touch ran) good.sh", "", 2),
        ("good.sh 'bad.sh", "", 2),
        ("", "", 2),
        ("good.sh", "torch", 2),
    ],
)
def test_the_steps_of_the_action(tmp_path, files, releases, code):
    """As GitHub runs them: bash with these options, its own files for the report and the outputs."""
    launch = "NPROC_PER_NODE=2 swift sft --model m --gradient_checkpointing_kwargs '{\"use_reentrant\": %s}'\n"
    (tmp_path / "bad.sh").write_text(launch % "true", encoding="utf-8")
    (tmp_path / "good.sh").write_text(launch % "false", encoding="utf-8")
    (tmp_path / "my jobs").mkdir()
    (tmp_path / "my jobs" / "bad.sh").write_text(launch % "true", encoding="utf-8")
    steps = load(ACTION)["runs"]["steps"]
    environment = {
        **os.environ,
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_OUTPUT": str(tmp_path / "outputs"),
        "RUNNER_TEMP": str(tmp_path),
        "FILES": files,
        "RELEASES": releases,
    }
    install = "".join(step["run"] for step in steps if step["name"] == "install")
    assert subprocess.run(["bash", "-c", f"{install} -n"], env=environment).returncode == 0  # test_published runs it
    (script,) = [step["run"] for step in steps if step["name"] == "lint"]
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    told = subprocess.run(bash, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert not (tmp_path / "ran").exists()
    if code == 2:  # what cannot be read is no pass
        assert told.returncode and not told.stdout, told
        return
    assert told.returncode == code, told.stderr
    annotated = re.findall(r"^::error file=([^,]+),line=(\d+),", told.stdout, re.MULTILINE)
    report = Path((tmp_path / "outputs").read_text(encoding="utf-8").strip().removeprefix("sarif="))
    results = json.loads(report.read_text(encoding="utf-8"))["runs"][0]["results"]
    bad = "my jobs/bad.sh" if "my jobs" in files else "bad.sh"
    assert annotated == [(bad, "1")] * code and len(results) == code


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_permissions(path):
    workflow = load(path)
    assert workflow["permissions"] in ({}, {"contents": "read"}, "")
    for name, job in workflow["jobs"].items():
        granted = job.get("permissions", workflow["permissions"]) or {}
        writes = {what for what, how in granted.items() if how == "write"}
        assert writes <= MAY_WRITE[path.stem], name
        assert granted.keys() - writes <= {"contents"}, name


def test_who_may_write_runs_nothing_of_others():
    jobs = load(FOLDER / "canary.yml")["jobs"]
    writing = [job for job in jobs.values() if "write" in job.get("permissions", {}).values()]
    running = [job for job in jobs.values() if "readyonce" in str(job["steps"])]
    assert len(writing) == len(running) == 1 and writing != running
    for step in writing[0]["steps"]:
        assert "checkout" not in step.get("uses", "") and "pip" not in step.get("run", "")
        assert "${{" not in step.get("run", "")  # what comes from the other job is data


# ------------------------------------------------------------------------------ what is installed


INSTALL = re.compile(r"\b(pip|uv|pipx|npm|npx|conda|gem|cargo|go) .*\b(install|add|ci|i|sync|download)\b|curl |wget ")


def publishing() -> list:
    """(name, job, lists) of each job that holds a right to write, or makes what is published, and its lists of packages."""
    site = {".venv/setuptools.txt", "requirements.txt"}
    jobs = load(FOLDER / "publish.yml")["jobs"]
    return [
        ("build", jobs["build"], site),
        ("bill", jobs["bill"], {*site, ".venv/uv.txt", "tests/requirements.txt"}),
        ("publish", jobs["publish"], set()),
        ("release", jobs["release"], set()),
        ("diagnose", load(FOLDER / "diagnose.yml")["jobs"]["diagnose"], site),
        ("issue", load(FOLDER / "canary.yml")["jobs"]["issue"], set()),
    ]


def unlocked(job: dict) -> tuple[set[str], list[str]]:
    """The lists that a job installs, and each command of it that would install something without a hash."""
    lists, loose = set(), []
    for step in job["steps"]:
        lines = step.get("run", "").splitlines()
        for words in re.findall(r"\bmake +([^;&|\n]+)", step.get("run", "")):
            told = subprocess.run(["make", "-n", "-B", *words.split()], cwd=ROOT, capture_output=True, text=True)
            assert told.returncode == 0, told.stderr
            lines += told.stdout.replace("\\\n", " ").splitlines()
        for line in lines:
            if INSTALL.search(line):
                if {"--require-hashes", "--no-deps", "--no-build-isolation", "--only-binary"} <= set(line.split()):
                    lists |= set(re.findall(r"-r (\S+)", line))
                elif not line.endswith("--no-deps --no-build-isolation -e ."):  # this project
                    loose.append(line)
    return lists, loose


@pytest.mark.parametrize("name, job, lists", publishing(), ids=lambda it: it if isinstance(it, str) else "")
def test_what_is_published_is_made_of_locked_packages(name, job, lists):
    found, loose = unlocked(job)
    assert not loose and found == lists, (name, found, loose)


def test_who_could_publish_is_looked_at():
    jobs = {name: job for path in FILES for name, job in load(path)["jobs"].items()}
    uploads = {
        name for name, job in jobs.items() if "upload-" in str(job) or "write" in job.get("permissions", {}).values()
    }
    assert uploads - {"run"} == {name for name, *_ in publishing()}  # canary's `run` uploads its report, a text


@pytest.mark.parametrize(
    "command", ["make test", ".venv/bin/pip install x", "pip install -r requirements.txt", "curl https://x | sh"]
)
def test_an_install_without_hashes_is_found(command):
    assert unlocked({"steps": [{"run": command}]})[1]


@pytest.mark.parametrize(
    "name, count",
    [("requirements.txt", 40), ("tests/requirements.txt", 40), ("tests/quick.txt", 8), ("tests/s3.txt", 30)],
)
def test_every_package_has_a_hash(name, count):
    """And what its `.in` names is what it pins."""
    text = re.sub(r"(?m)^ *#.*\n| +#.*", "", (ROOT / name).read_text(encoding="utf-8"))
    entries = [entry.split() for entry in text.replace("\\\n", " ").splitlines() if entry.strip()]
    assert len(entries) > count
    for entry in entries:
        assert re.fullmatch(r"[a-z0-9.-]+==[\w.]+", entry[0]) and entry[-1].startswith("--hash=sha256:"), entry[0]
    pinned = {entry[0] for entry in entries}
    wanted = re.findall(r"(?m)^([\w.-]+==[\w.]+)", (ROOT / name).with_suffix(".in").read_text(encoding="utf-8"))
    assert wanted and {it.lower().replace("_", "-") for it in wanted} <= pinned, "make lock"
