"""The workflows are sound, pin what they use, and no job may write that need not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
HERE = Path(sys.executable).parent
MAY_WRITE = {"diagnose": {"issues"}, "canary": {"issues"}, "publish": {"pages", "id-token", "contents"}}


def load(path: Path) -> dict:
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)  # BaseLoader: `on` stays a word


@pytest.mark.parametrize("program", [["actionlint"], ["zizmor", "--offline", "--no-progress"]])
def test_linters_find_nothing(program):
    told = subprocess.run([HERE / program[0], *program[1:], *FILES], cwd=ROOT, capture_output=True, text=True)
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
