"""The theme is in maintenance; its successor builds the same pages from the same files, so the way out stays open."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from permalinks import of
from readyonce.data import catalog
from readyonce.publish import render, site
from support.project import ROOT, copy_of


@pytest.fixture(scope="module")
def beside(tmp_path_factory) -> Path:
    copied = copy_of(ROOT, tmp_path_factory.mktemp("zensical") / "copy")
    render.write(catalog.load(copied))
    return copied


@pytest.mark.parametrize("language, prefix", [("en", ""), ("zh", "zh/")])
def test_zensical_builds_every_address(built, beside, language, prefix):
    program = Path(sys.executable).with_name("zensical")
    said = subprocess.run(
        [program, "build", "--strict", "-f", site.CONFIG[language]],
        cwd=beside,
        capture_output=True,
        text=True,
        env=os.environ | {"SITE_URL": "https://wiki.example.com/" + prefix},
    )
    assert said.returncode == 0 and "No issues found" in said.stdout + said.stderr, said.stdout + said.stderr
    made = of(beside / "build" / "site" / language)
    wanted = {address.removeprefix(prefix) or "/" for address in of(built) if address.startswith(prefix)}
    wanted = {address for address in wanted if not address.startswith(("zh/", "api/")) and address != "llms.txt"}
    assert wanted <= made, sorted(wanted - made)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_zensical_is_strict(beside, language):
    """Else the test above would say little: a dead link fails its build."""
    page = beside / "docs" / language / "links.md"
    text = page.read_text(encoding="utf-8")
    try:
        page.write_text(text + "\n[nowhere](nowhere.md)\n", encoding="utf-8")
        program = Path(sys.executable).with_name("zensical")
        command = [program, "build", "--strict", "-f", site.CONFIG[language]]
        assert subprocess.run(command, cwd=beside, capture_output=True).returncode != 0
    finally:
        page.write_text(text, encoding="utf-8")
