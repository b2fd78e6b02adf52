"""The command as a user types it."""

import importlib
import json
import shlex
import subprocess
import sys

import pytest

from readyonce.cli import main
from readyonce.cli.table import COMMANDS
from readyonce.pages.terminal import for_terminal
from support.project import KNOWN, ROOT, command


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples(name):
    told = command(name, "--help")
    assert told.returncode == 0
    assert f"examples:\n  readyonce {name}" in told.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_names_functions_and_its_examples_can_be_read(name):
    module, _, function = COMMANDS[name].function.partition(".")
    assert callable(getattr(importlib.import_module(f"readyonce.cli.{module}"), function))
    for example in COMMANDS[name].examples:
        words = shlex.split(example.partition(" > ")[0].partition(" < ")[0].partition("-- ")[0])
        assert main.parser().parse_args([name, *words]).command == name


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
    if KNOWN.incidents[incident].short:
        assert KNOWN.incidents[incident].minimal.fails.said.splitlines()[0] in told
    elif file.errors:
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


def test_a_short_incident_has_links_and_no_variants():
    short = next(incident.id for incident in KNOWN.incidents.values() if incident.short)
    environment = {"SITE_URL": "https://wiki.example.com"}
    there = command("link", short, "--section", "minimal", environment=environment)
    assert there.stdout == f"https://wiki.example.com/incidents/{short}/#minimal\n"
    nowhere = command("link", short, "--section", "evidence", environment=environment)
    assert nowhere.returncode == 2 and "\n  minimal\n" in nowhere.stderr
    ran = command("run", short)
    assert ran.returncode == 2 and f"readyonce verify {short}" in ran.stderr


def test_explain_imports_nothing_heavy():
    script = (
        "import sys; from readyonce.cli import main as command; command.main(['explain', 'RO-0001']);"
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
        f"{sys.executable} -m readyonce.cli.main explain RO-0001 | head -1",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0 and "Traceback" not in told.stderr


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_on_security_names_what_reads_or_runs_what_others_wrote(language):
    page = (ROOT / "docs" / language / "security.md").read_text(encoding="utf-8")
    named = (
        "`readyonce diagnose`",
        "`readyonce triage`",
        "`readyonce lint`",
        "(guard.md)",
        "`--on`",
        "`simplecache::`",
    )
    assert all(name in page for name in named) and "{#cluster}" in page
    for other in ("triage", "cluster"):  # they tell of `--on`
        assert "security.md#cluster" in (ROOT / "docs" / language / f"{other}.md").read_text(encoding="utf-8")
