"""Rules of code blocks: what readers copy is tested."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import yaml

from readyonce.check.sources import pages
from readyonce.data.articles import Block, Page
from readyonce.data.catalog import Catalog
from readyonce.data.project import LANGUAGES
from readyonce.data.reading import Problem, parse_yaml

Recorded = dict[str, dict[str, list[str]]]  # command -> environment -> the options that its parser has there


def _blocks(catalog: Catalog) -> Iterator[tuple[Page, Block]]:
    for language in LANGUAGES:
        for page in pages(catalog)[language].values():
            yield from ((page, block) for block in page.blocks)


def _written(catalog: Catalog) -> Iterator[tuple[Page, Block]]:
    """The blocks whose lines stand on the page itself."""
    yield from ((page, block) for page, block in _blocks(catalog) if not block.is_include)


def block_in_another_language(catalog: Catalog) -> Iterator[Problem]:
    """A code block has no language, or one that nothing tests.

    Readers copy what stands in blocks.
    Remedy: fence it as python, bash, json, yaml, nginx, console or text.
    """
    for page, block in _blocks(catalog):
        if block.language not in ("python", "nginx", "console", "text", "bash", "json", "yaml"):
            what = f"a block with language `{block.language}`" if block.language else "a block without a language"
            remedy = "Fence it as python, bash, json, yaml, nginx, console or text: those are tested."
            yield catalog.problem(page.path, block.line, what, remedy)


def block_is_no_include(catalog: Catalog) -> Iterator[Problem]:
    """A block of Python, of a server's configuration or of output is written on the page.

    What a page shows is a file that is run, or an output that was stored.
    Remedy: include it: `--8<-- "path:section"`.
    """
    for page, block in _written(catalog):
        if block.language in ("python", "nginx", "console", "text"):
            what = f"a {block.language} block that is no include"
            remedy = 'Show the tested file or the stored output: --8<-- "path:section".'
            yield catalog.problem(page.path, block.line, what, remedy)


def block_not_parsed(catalog: Catalog) -> Iterator[Problem]:
    """A block of JSON or YAML cannot be parsed.

    Readers copy it into a file that a program reads.
    Remedy: mend it.
    """
    for page, block in _written(catalog):
        what = ""
        try:
            if block.language == "json":
                json.loads(block.content)
            elif block.language == "yaml":
                parse_yaml(block.content)
        except json.JSONDecodeError as error:
            what, remedy = f"the block is not JSON: {error.msg}", f"Mend its line {error.lineno}."
        except RecursionError:
            what, remedy = "the block is nested too deep", "Write it flatter."
        except yaml.YAMLError as error:
            what, remedy = f"the block is not YAML: {getattr(error, 'problem', error)}", "Mend it."
        if what:
            yield catalog.problem(page.path, block.line, what, remedy)


def option_unknown_to_the_command(catalog: Catalog) -> Iterator[Problem]:
    """A command on a page or in an incident's script is given an option that its recorded parser does not have.

    The parsers are recorded in each environment that `commands:` names.
    Remedy: write an option that the framework has, or say from which version on it has it, and include it from a file.
    """
    recorded: Recorded = {}
    for incident in catalog.incidents.values():
        for environment, evidence in incident.evidence.items():
            for command, options in evidence.options.items():
                recorded.setdefault(command, {})[environment] = options
    for page, block in _written(catalog):
        if block.language == "bash":
            yield from _unknown(catalog, page.path, block.line + 1, block.content, recorded)
    for incident in catalog.incidents.values():
        for name in sorted(os.listdir(incident.folder)):
            if name.endswith(".sh"):
                path = incident.folder / name
                yield from _unknown(catalog, path, 1, catalog.text(path), recorded)


def _unknown(catalog: Catalog, path: Path, first: int, script: str, recorded: Recorded) -> Iterator[Problem]:
    """Line `first` starts the script."""
    for words in commands(script):
        for command, environments in recorded.items():
            if words[: len(command.split())] != command.split():
                continue
            for option in (word.partition("=")[0] for word in words if word.startswith("--")):
                if lacking := [f"`{name}`" for name, known in environments.items() if option not in known]:
                    found = re.search(rf"{re.escape(option)}(?![\w-])", script)
                    before = script[: found.start()] if found else ""  # none, where it is written in other quotes
                    what = f"`{command}` has no option `{option}` in {', '.join(lacking)}"
                    remedy = "Write one that the framework has, or say on the page from which version on, "
                    remedy += "and include it from a file."
                    yield catalog.problem(path, first + before.count("\n"), what, remedy)


def commands(script: str) -> Iterator[list[str]]:
    """The simple commands of a script that are given options, as words, without leading assignments.

    `torchrun ... -m MODULE ...` is two: the launcher with its options, and `python -m MODULE ...`.
    """
    for line in script.replace("\\\n", " ").splitlines():
        if "--" not in line:
            continue
        try:
            # Most lines have nothing that quotes; shlex is slow.
            words = shlex.split(line, comments=True) if re.search(r"[\"'\\#]", line) else line.split()
        except ValueError:
            continue  # `bash -n` in the tests says it better
        while words and re.match(r"\w+=", words[0]):
            words = words[1:]
        if words[:1] == ["torchrun"] and "-m" in words:
            module = words.index("-m")
            yield words[:module]
            words = ["python", *words[module:]]
        if words:
            yield words
