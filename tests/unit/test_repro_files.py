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


def test_the_fix_for_a_custom_loss_is_the_same_where_it_runs_on_a_mixture_of_experts(known):
    of_each = []
    for incident in ("RO-0007", "RO-0013"):
        tree = ast.parse((known.incidents[incident].folder / "repro.py").read_text(encoding="utf-8"))
        (found,) = (it for it in tree.body if isinstance(it, ast.FunctionDef) and it.name == "token_mean")
        of_each.append(ast.dump(ast.Module(found.body[1:], [])))  # without the docstring
    assert of_each[0] == of_each[1]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("incident, run", [("RO-0007", "func-4"), ("RO-0013", "lora-apart-assigned-4")])
def test_where_a_fix_does_not_arrive_stands_above_its_code(known, language, incident, run):
    page = (known.root / "docs" / language / "incidents" / f"{incident}.md").read_text(encoding="utf-8")
    above = page.partition("{#fix}")[2].partition(f'"{incident}/header.md"')[0]
    assert "!!! warning" in above and f"RO-0013/evidence.md#run-{run})" in above
    assert known.incidents["RO-0013"].run(run, "current").outcome == "diverge"
