"""On two hosts each run ends as on one: two network namespaces, a rank in each. It needs root: `make test-cluster`."""

import os

import pytest
import two_hosts

from support.project import KNOWN

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def hosts():
    if os.getuid():
        pytest.skip("only root makes network namespaces")
    with two_hosts.hosts() as names:
        yield names


@pytest.mark.parametrize("observed", two_hosts.chosen(KNOWN), ids=lambda it: it.name)
def test_it_ends_as_on_one_host(hosts, observed):
    seen = two_hosts.run(KNOWN, observed, hosts)
    assert (seen.outcome, seen.error) == (observed.run.outcome, observed.run.error), seen.log[-3000:]
