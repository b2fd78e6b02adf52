"""The command as a user types it."""

import json
import subprocess
import sys

import pytest

from readyonce.pages.terminal import for_terminal
from support.project import KNOWN, ROOT, command

COMMANDS = ("list", "explain", "diagnose", "triage", "run", "verify", "check", "render", "new", "link", "site", "serve")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples(name):
    told = command(name, "--help")
    assert told.returncode == 0
    assert f"examples:\n  readyonce {name}" in told.stdout


def test_list_has_every_incident():
    told = json.loads(command("list", "--json").stdout)
    assert [entry["id"] for entry in told] == list(KNOWN.incidents)
    chinese = command("list", "--lang", "zh").stdout
    assert all(id in chinese for id in KNOWN.incidents)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("incident", KNOWN.incidents)
def test_explain_shows_the_article(incident, language):
    told = for_terminal(KNOWN, incident, language, colour=False)
    file = KNOWN.incidents[incident].meta
    assert file.title[language] in told and file.fix.text[language].replace("**", "") in told
    runs = [run for evidence in KNOWN.incidents[incident].evidence.values() for run in evidence.runs]
    if file.errors:
        assert any(run.error in file.errors and run.message.splitlines()[0] in told for run in runs)
    else:  # all that such a run shows
        assert 'RESULT {"variant": "reported", "outcome": ' in told
    for left in ("--8<--", "<a ", "<div", "<span", "{#", "\n\n\n"):
        assert left not in told, left


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_command_prints_it(language):
    told = command("explain", "RO-0008", "--lang", language)
    assert told.returncode == 0, told.stderr
    assert told.stdout == for_terminal(KNOWN, "RO-0008", language, colour=False) + "\n"


def test_explain_imports_nothing_heavy():
    script = (
        "import sys; from readyonce import cli; cli.main(['explain', 'RO-0001']);"
        "print(sorted({'torch', 'deepspeed', 'mkdocs', 'weasyprint'} & set(sys.modules)), file=sys.stderr)"
    )
    told = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert told.stderr.strip() == "[]"


@pytest.mark.parametrize(
    "arguments", [["explain", "RO-9999"], ["run", "RO-0001", "no-such-variant"], ["verify", "RO-1"], ["nonsense"]]
)
def test_bad_usage_says_what_there_is(arguments):
    told = command(*arguments)
    assert told.returncode == 2
    assert "Traceback" not in told.stderr and told.stderr.strip()


def test_verify_says_which_environments_there_are():
    told = command("verify", "RO-0001", "--environment", "nowhere")
    assert told.returncode == 2 and "is not run in `nowhere`" in told.stderr


def test_closing_the_pipe_is_no_error():
    told = subprocess.run(
        f"{sys.executable} -m readyonce.cli explain RO-0001 | head -1",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0 and "Traceback" not in told.stderr
