"""Break one thing on purpose: the suite must turn red, and for that reason.

Each case edits a copy of the project, aims this very suite at it, and expects the failure named.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from support.project import TESTS, edit


def suite(copy: Path, *arguments: str) -> subprocess.CompletedProcess:
    """This suite on `copy`, with the package of `copy`."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-c",
            str(TESTS.parent / "pyproject.toml"),
            *arguments,
        ],
        cwd=TESTS,
        capture_output=True,
        text=True,
        env=os.environ | {"READYONCE_ROOT": str(copy), "PYTHONPATH": str(copy / "scripts")},
    )


def red(copy: Path, *arguments: str) -> str:
    done = suite(copy, *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def outcome_of(variant: str) -> str:
    return f"runs/test_runs.py::test_outcome[RO-0001/{variant}@current]"


def test_untouched_the_same_selections_are_green(copy):
    variants = ("reported", "non-reentrant", "find-unused-false-stack-twice")
    done = suite(copy, "unit/test_check.py::test_nothing_to_mend", *map(outcome_of, variants))
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout


def test_failing_variant_made_to_pass(copy):
    edit(copy / "snippets/RO-0001/repro.py", '"reported": {}', '"reported": dict(checkpointing="non-reentrant")')
    assert "declared error (ddp-ready-twice), saw match" in red(copy, outcome_of("reported"))


def test_fix_made_to_fail(copy):
    edit(copy / "snippets/RO-0001/repro.py", '"reported": {},', '"reported": {}, "non-reentrant": {},')
    edit(
        copy / "snippets/RO-0001/repro.py",
        '    "non-reentrant": REENTRANT_FALSE,\n    "non-reentrant-stack',
        '    "non-reentrant-stack',
    )
    assert "declared match, saw error (ddp-ready-twice)" in red(copy, outcome_of("non-reentrant"))


def test_fix_made_to_train_wrong(copy):
    # One rank keeps its own gradients: it finishes, and only the comparison can tell.
    edit(
        copy / "snippets/RO-0001/repro.py",
        "        optimizer.step()\n",
        "        optimizer.param_groups[0]['lr'] += 0.01 * rank\n        optimizer.step()\n",
    )
    assert "declared match, saw diverge" in red(copy, outcome_of("non-reentrant"))


def test_wrong_expected_message(copy):
    edit(
        copy / "snippets/errors/ddp-ready-twice.yml",
        "all: [Expected to mark a variable ready only once.]",
        "all: [Expected to mark a variable ready exactly once.]",
    )
    edit(
        copy / "snippets/errors/ddp-ready-twice.yml",
        "none: [Expected to mark a variable ready only once.]",
        "none: [ready only once]",
    )
    assert "saw error (None)" in red(copy, outcome_of("reported"))
    assert "does not fit the wordings" in red(copy, "unit/test_check.py::test_nothing_to_mend")


WRONG = """\
    text: {en: "`find_unused_parameters=False`, the whole stack runs twice", zh: "`find_unused_parameters=False`，所有层整体运行两次"}
    outcome: diverge
"""


def make_it_match_in_the_evidence(copy: Path, variant: str) -> None:
    path = copy / "snippets/RO-0001/evidence/current.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    next(run for run in data["runs"] if run["variant"] == variant).update(outcome="match", gradient_error=1e-8)
    path.write_text(json.dumps(data), encoding="utf-8")


def test_outcome_edited_in_the_evidence(copy):
    make_it_match_in_the_evidence(copy, "find-unused-false-stack-twice")
    assert "is declared diverge, and its run in `current` shows match" in red(
        copy, "unit/test_check.py::test_nothing_to_mend"
    )


def test_outcome_edited_in_evidence_and_declaration(copy):
    make_it_match_in_the_evidence(copy, "find-unused-false-stack-twice")
    edit(
        copy / "snippets/RO-0001/incident.yml",
        WRONG,
        WRONG.replace("diverge", "match"),
    )
    assert "declared match, saw diverge" in red(copy, outcome_of("find-unused-false-stack-twice"))


def test_outcome_edited_in_the_declaration(copy):
    edit(
        copy / "snippets/RO-0001/incident.yml",
        WRONG,
        WRONG.replace("diverge", "match"),
    )
    assert "is declared match, and its run in `current` shows diverge" in red(
        copy, "unit/test_check.py::test_nothing_to_mend"
    )


def test_verdict_that_no_longer_follows(copy):
    # Narrowed to the runs that come out right, the claim holds, and the words under `when` are unfounded.
    path = copy / "snippets/RO-0001/incident.yml"
    text = path.read_text(encoding="utf-8")
    at = text.index("\n  find-unused-false:\n    text:\n")
    scope = text.index("    scope: {", at)
    narrow = "    scope: {runs: once, skips: never, second_use: none, backward_calls: once, "
    path.write_text(text[:scope] + narrow + text[scope + len("    scope: {") :], encoding="utf-8")
    assert "claim `find-unused-false` has verdict `holds`, and `when` says it depends" in red(
        copy, "unit/test_check.py::test_nothing_to_mend"
    )


def test_translated_section_dropped(copy):
    path = copy / "docs/zh/incidents/RO-0001.md"
    text = path.read_text(encoding="utf-8")
    start = text.index("## ", text.index("{#affected}") - 40)
    path.write_text(text[:start] + text[text.index("## ", text.index("{#affected}")) :], encoding="utf-8")
    assert "section {#affected} is missing" in red(copy, "unit/test_check.py::test_nothing_to_mend")


def test_option_that_the_framework_does_not_have(copy):
    edit(copy / "snippets/RO-0001/launch.sh", "--gradient_checkpointing_kwargs", "--gradient_checkpointing_arguments")
    said = red(copy, "unit/test_check.py::test_nothing_to_mend")
    lines = (copy / "snippets/RO-0001/launch.sh").read_text(encoding="utf-8").splitlines()
    (at,) = [number for number, line in enumerate(lines, 1) if "--gradient_checkpointing_arguments" in line]
    assert f"snippets/RO-0001/launch.sh:{at}: `swift rlhf` has no option `--gradient_checkpointing_arguments`" in said


def test_option_in_a_block_of_the_page(copy):
    edit(
        copy / "docs/en/incidents/RO-0001/evidence.md",
        "torchrun --nproc-per-node 2 repro.py reported",
        "torchrun --processes 2 repro.py reported",
    )
    assert "`torchrun` has no option `--processes`" in red(
        copy, "runs/test_blocks.py", "-k", "docs/en/incidents/RO-0001"
    )


def test_json_that_deepspeed_refuses(copy):
    edit(copy / "snippets/RO-0001/zero3-small-bucket.json", '"reduce_bucket_size"', '"reduce_bucket_elements"')
    assert "reduce_bucket_elements" in red(copy, "runs/test_blocks.py", "-k", "docs/en/incidents/RO-0001")


def test_word_on_the_page_that_no_run_said(copy):
    edit(copy / "scripts/readyonce/data/words.en.yml", "match: trains right", "match: trains well")
    test = "site/test_site.py::test_sentence_says_what_the_run_showed[RO-0001/non-reentrant@current-en]"
    assert "trains well" in red(copy, test)
