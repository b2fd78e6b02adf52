"""Reports for other projects: each script prints what its report says, and both pages show every report."""

import re
import sys
import textwrap
from pathlib import Path

import pytest

from readyonce.data import articles
from readyonce.data.project import LANGUAGES
from readyonce.lab import processes
from support.patience import PATIENCE
from support.project import ROOT

REPORTS = sorted(path.name for path in (ROOT / "snippets" / "upstream").iterdir())


def launched(script: Path, scratch: Path, *arguments: str) -> tuple[int, str, str]:
    """Its exit code, the lines that it prints for a reader, and all that it said."""
    python = Path(sys.executable)
    with processes.running([*processes.torchrun(python, 2), script, *arguments], python, str(scratch)) as process:
        code = process.wait(PATIENCE)
    log = processes.log_of(scratch)
    return code, "".join(f"{line}\n" for line in re.findall(r"^(?:expected|seen) .*$", log, re.MULTILINE)), log


@pytest.mark.parametrize("report", REPORTS)
def test_the_script_prints_what_the_page_shows(report, tmp_path):
    folder = ROOT / "snippets" / "upstream" / report
    code, said, log = launched(folder / "script.py", tmp_path)
    assert code == 0 and said == (folder / "seen.txt").read_text(encoding="utf-8"), log


RIGHT = [("zero3-stale-gradient", "2"), ("fsdp2-reentrant-repeat", "non-reentrant")]


@pytest.mark.parametrize("report, argument", RIGHT)
def test_the_comparison_that_a_script_offers_is_right(report, argument, tmp_path):
    code, said, log = launched(ROOT / "snippets" / "upstream" / report / "script.py", tmp_path, argument)
    expected, seen = re.findall(r"^(?:expected|seen) +(\d\.\d+)", said, re.MULTILINE)
    assert code == 0 and expected == seen, log


def test_in_one_bucket_the_duplicate_is_an_assertion_without_a_text(tmp_path):
    script = ROOT / "snippets" / "upstream" / "zero3-duplicate-in-small-buckets" / "script.py"
    code, said, log = launched(script, tmp_path, "1000000")
    assert code != 0 and not said and re.search(r"AssertionError$", log, re.MULTILINE), log


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_says_what_a_maintainer_asks_for(report):
    folder = ROOT / "snippets" / "upstream" / report
    assert sorted(path.name for path in folder.iterdir()) == ["report.md", "script.py", "seen.txt"]
    text = (folder / "report.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == ["What happens", "To reproduce", "Expected", "Seen", "Versions", "Related threads"]
    seen = (folder / "seen.txt").read_text(encoding="utf-8")
    assert textwrap.indent(seen, "    ") in text
    assert re.search(r"torch \d+\.\d+\.\d+", text) and "readyonce" not in text.lower()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_has_every_report(language):
    page = articles.read(ROOT / "docs" / language / "upstream.md")
    sections = [heading.id for heading in page.headings if heading.level == 2 and heading.id != "known"]
    assert sorted(sections) == REPORTS
    shown = {str(include.path) for include in page.includes}
    assert shown == {f"upstream/{name}/{file}" for name in REPORTS for file in ("seen.txt", "script.py", "report.md")}
