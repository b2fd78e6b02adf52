"""Of each fault under `faults/` the whole check says what it must, where it must, and nothing else."""

import pytest

from readyonce.check import check
from readyonce.data import catalog
from support.faults import FAULTS, commit, committed, judge, read
from support.project import TESTS, command


@pytest.mark.parametrize("path", FAULTS, ids=lambda path: path.stem)
def test_fault(shared_copy, remembered, path):
    fault = read(path)
    with committed(shared_copy, fault):
        judge(shared_copy, fault, check.problems(catalog.load(shared_copy)))


def test_all_faults_in_one_go(copy):
    names = ("heading-without-id", "dead-link", "unknown-error-family", "symlink-under-snippets")
    faults = [read(TESTS / "faults" / f"{name}.yml") for name in names]
    for fault in faults:
        commit(copy, fault)
    told = command("check", root=copy)
    assert told.returncode == 1
    for fault in faults:
        assert fault["says"] in told.stderr
