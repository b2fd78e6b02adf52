"""On two hosts each error is the one of one host: two network namespaces, a rank in each. It needs root: `make test-cluster`."""

import json
import os

import pytest
import two_hosts

from support.project import KNOWN, ROOT

pytestmark = pytest.mark.cluster
STORED = json.loads((ROOT / two_hosts.STORED).read_text(encoding="utf-8"))["runs"]


@pytest.fixture(scope="module")
def hosts():
    if os.getuid():
        pytest.skip("only root makes network namespaces")
    with two_hosts.hosts() as names:
        yield names


@pytest.mark.parametrize("family", STORED)
def test_it_ends_as_on_one_host(hosts, family):
    told = STORED[family]
    seen = two_hosts.run(KNOWN, told["run"], hosts)
    assert {"run": told["run"], **seen} == told
