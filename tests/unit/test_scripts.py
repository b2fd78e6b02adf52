"""The pages' scripts, by their text: what runs in a browser is tested in tests/browser."""

import re

import pytest

from support.project import ROOT

SCRIPTS = sorted((ROOT / "docs" / "theme" / "javascripts").glob("*.js"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_an_address_is_decoded_where_a_fault_in_it_is_caught(path):
    """`#%` is no page error: `decodeURI` and `decodeURIComponent` throw."""
    text = path.read_text(encoding="utf-8")
    caught = re.findall(r"try \{\s*[\w =]*\bdecodeURI(?:Component)?\([^;\n]*;?\s*\} catch \{", text)
    assert len(re.findall(r"\bdecodeURI", text)) == len(caught)


def test_what_decodes_addresses_comes_before_all_that_ask_it():
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    every = re.findall(r"[\w-]+\.js", re.search(r"(?m)^extra_javascript: \[(.*)\]$", config)[1])
    asking = {path.name for path in SCRIPTS if "readyonceDecoded(" in path.read_text(encoding="utf-8")}
    behind = set(every[every.index("links.js") :])  # and what a page has behind those of every page
    for path in (ROOT / "docs" / "theme").glob("*.html"):
        before, _, after = path.read_text(encoding="utf-8").rpartition("{{ super() }}")
        behind |= set(re.findall(r"javascripts/([\w-]+\.js)", after)) if before else set()
    assert {"decision.js", "links.js", "not-found.js"} <= asking <= behind


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_address_begins_with_what_may_be_a_host(path):
    """At the top of a host the base of 404.html is `/`, and at `//x` paths begin with two: `//search/...` is another host."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\$\{\w*base\}/|\bbase \+ [\"']/|\.(?:href|src) = [\w.]*pathname", text)
