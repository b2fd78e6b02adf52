"""A repro is one file that a reader can copy."""

import ast
import sys

import pytest

from support.project import REPROS


@pytest.mark.parametrize("incident, name", REPROS)
def test_imports_nothing_of_the_project(known, incident, name):
    tree = ast.parse((known.incidents[incident].folder / name).read_text(encoding="utf-8"))
    roots = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    roots |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    allowed = {*sys.stdlib_module_names, "torch", "accelerate", "deepspeed", "transformers", "peft"}
    allowed |= {"FlagEmbedding", "sentence_transformers", "trl"}  # whose own losses run
    allowed |= {"datasets", "packaging", "tokenizers"}  # which TRL brings
    assert roots <= allowed, roots - allowed
