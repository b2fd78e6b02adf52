"""Every fenced block of every page, one test id each: `docs/en/index.md:22`."""

import functools
import json
import subprocess
import textwrap

import pytest

from readyonce.check import check
from readyonce.check.blocks import commands
from readyonce.data import articles, catalog, reading
from readyonce.data.project import LANGUAGES
from readyonce.pages import includes
from support.project import ROOT

PAGES = [articles.read(path) for language in LANGUAGES for path in sorted((ROOT / "docs" / language).rglob("*.md"))]
BLOCKS = [
    pytest.param(page, block, id=f"{page.path.relative_to(ROOT)}:{block.line}")
    for page in PAGES
    for block in page.blocks
]


@functools.cache
def problems():
    return check.problems(catalog.load(ROOT))


@functools.cache
def made(language):
    return includes.every(catalog.load(ROOT), language)


def shown(page: articles.Page, block: articles.Block) -> str:
    """The block as a reader sees it: includes filled in."""
    if not block.is_include:
        return block.content
    language = page.path.relative_to(ROOT / "docs").parts[0]
    parts = []
    for include in block.includes:
        path = articles.find(include, articles.places(ROOT, language))
        parts.append(
            articles.section(made(language).get(include.path) or path.read_text(encoding="utf-8"), include.section)
        )
    return "".join(parts)


@pytest.mark.parametrize("page, block", BLOCKS)
def test_block(page, block):
    text = shown(page, block)
    assert text.strip()
    match block.language:
        case "python":
            assert block.is_include
            compile(text, str(page.path), "exec")
        case "nginx":  # tests/test_hosting.py runs it
            assert block.is_include and (ROOT / "snippets/hosting/nginx.conf").read_text(encoding="utf-8") == text
        case "text" | "console":
            assert block.is_include
        case "bash":
            accepted_by_bash(text)
        case "json":
            accepted_by_deepspeed(json.loads(text))
        case "yaml":
            assert reading.parse_yaml(text) is not None
        case language:
            pytest.fail(f"a block with language {language!r} is not tested")
    # What needs the whole project: options, includes and the like.
    lines = range(block.line, block.line + 1 + len(block.content.splitlines()))
    wrong = [p for p in problems() if p.file == str(page.path.relative_to(ROOT)) and p.line in lines]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("incident", catalog.load(ROOT).incidents)
def test_the_fix_in_the_header_can_be_copied(known, incident):
    """The header's block is generated, so it is no block of a page; it is tested here."""
    fix = known.incidents[incident].meta.fix
    if fix.code:
        file, section = fix.code.split(":")
        source = (known.incidents[incident].folder / file).read_text(encoding="utf-8")
        shown = textwrap.indent(textwrap.dedent(articles.section(source, section)), "    ")
        compile(f"def around():\n{shown}", file, "exec")  # a section may return from the function that it is a part of
        return
    accepted_by_bash(f"{fix.command} {fix.option}")
    recorded = {
        e: v.options[fix.command] for e, v in known.incidents[incident].evidence.items() if fix.command in v.options
    }
    assert recorded, f"no environment has recorded the options of {fix.command}"
    (words,) = commands(f"{fix.command} {fix.option}")
    for environment, options in recorded.items():
        assert {word for word in words if word.startswith("--")} <= set(options), environment


def accepted_by_bash(text: str) -> None:
    syntax = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    assert syntax.returncode == 0, syntax.stderr
    # SC2154: a section of a script uses variables that the script sets above it. SC1091: a file that the line before makes.
    style = subprocess.run(
        ["shellcheck", "--shell=bash", "--exclude=SC2154,SC1091", "-"], input=text, capture_output=True, text=True
    )
    assert style.returncode == 0, style.stdout


def accepted_by_deepspeed(config: dict) -> None:
    """DeepSpeed's own config class reads it; a key or value that it does not know raises."""
    if "zero_optimization" in config:
        from deepspeed.runtime.config import DeepSpeedConfig

        DeepSpeedConfig(config)
