"""More than a hundred incidents: pages that would list them all lead to the one page that does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from readyonce.check import check
from readyonce.data import catalog
from readyonce.publish import render, site
from support.many import generate
from support.project import ROOT, copy_of

COUNT = 120


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> catalog.Catalog:
    copied = copy_of(ROOT, tmp_path_factory.mktemp("many") / "copy")
    generate(copied, COUNT)
    known = catalog.load(copied)
    render.write(known)
    return known


def test_nothing_to_mend(many):
    found = check.problems(catalog.load(many.root))
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("language", site.CONFIG)
def test_the_index_page_leads_to_all(many, language):
    program = Path(sys.executable).with_name("zensical")  # it refuses pages on which too much stands in one section
    told = subprocess.run(
        [program, "build", "--strict", "-f", site.CONFIG[language]], cwd=many.root, capture_output=True, text=True
    )
    assert told.returncode == 0 and "No issues found" in told.stdout + told.stderr, told.stdout + told.stderr
    built = many.root / "build" / "site" / language
    pages = {
        page.relative_to(built).as_posix().removesuffix("index.html"): page.read_text(encoding="utf-8")
        for page in built.rglob("*.html")
    }
    index = pages["incidents/"]
    assert {f"incidents/{id}/" for id in many.incidents} <= set(pages)
    assert linked(index) == set(many.incidents)
    about = {name for it in many.incidents.values() for name in it.meta.errors or ["silent"]}
    assert about and about <= set(re.findall(r'<h2 id="?([\w-]+)', index))
    whole = {name for name, text in pages.items() if len(linked(text)) >= COUNT}
    assert whole == {"advice/", "incidents/", "tags/", "", "diagnose/", "404.html"}  # the last three are for scripts


def linked(html: str) -> set[str]:
    return set(re.findall(r'href="?[^" >]*(RO-\d{4})/', html))
