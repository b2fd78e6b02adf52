"""On two hosts each run ends as on one: two network namespaces, a rank in each. It needs root: `make test-cluster`."""

import contextlib
import os
import re
import subprocess
import sys
import time

import pytest
import two_hosts

from readyonce.data import schema
from support.fleet import triage
from support.patience import PATIENCE
from support.project import KNOWN, ROOT

GUARD = ROOT / schema.GUARD
STALLS = GUARD.parent / "tests" / "stalls.py"
HUNG = {  # how → what is said of the ranks, eight of them, four on each host
    "skips": r"ranks 0-6 wait in `all_reduce` at F:\d+ in average; 3 .*\n  rank 7 waits in `barrier` at F:\d+ in train;",
    "fewer": r"ranks 0-6 stand in `Tensor.backward` at F:\d+ in train; 2 .*\n  rank 7 waits in `barrier` at F:\d+ in train;",
}

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


@contextlib.contextmanager
def _hung(hosts, how, folders, logs):
    """A training that hangs on both hosts, four ranks on each, behind the guard."""
    with contextlib.ExitStack() as leaving:
        for number, (host, folder, log) in enumerate(zip(hosts, folders, logs)):
            launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "4"]
            launcher += ["--node-rank", str(number), "--master-addr", "10.0.0.1", "--master-port", str(two_hosts.PORT)]
            guard = [sys.executable, GUARD, "--stall", "2", "--stall-folder", folder, "--"]
            process = subprocess.Popen(
                ["ip", "netns", "exec", host, *map(str, [*guard, *launcher, STALLS, how])],
                stdout=leaving.enter_context(log.open("w")),
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env=os.environ
                | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": f"host{number}", "TMPDIR": str(log.parent)},
            )
            leaving.callback(process.wait, PATIENCE)
            leaving.callback(process.terminate)
        yield


def _until(found):
    limit = time.monotonic() + PATIENCE
    while not (seen := found()):
        assert time.monotonic() < limit
        time.sleep(0.1)
    return seen


@pytest.mark.parametrize("how", HUNG)
def test_a_hang_on_two_hosts_with_one_folder(hosts, how, tmp_path):
    """The ranks of both hosts stand in one report."""
    folder, logs = tmp_path / "stalls", [tmp_path / "log-0", tmp_path / "log-1"]
    with _hung(hosts, how, [folder, folder], logs):
        says = HUNG[how].replace("F:", rf"{re.escape(str(STALLS))}:")
        assert re.search(says, _until(lambda: _report_in(folder)))
        (report,) = folder.glob("report-*.txt")
        said = _until(lambda: [text for log in logs if re.search(says, text := log.read_text(encoding="utf-8"))])
        assert len(said) == 1
        first = min(path.stat().st_mtime for path in folder.glob("rank-*-stall-*.txt"))
        print(f"{how}: told {report.stat().st_mtime - first:.1f} s after the first rank has written")
        assert len(list(folder.glob("rank-*-stall-*.txt"))) == 8


def test_a_hang_on_two_hosts_with_a_folder_each(hosts, tmp_path):
    """Each host tells its own ranks; the two folders together are read by triage."""
    places = [tmp_path / f"host-{number}" for number in (0, 1)]
    for place in places:
        place.mkdir()
    with _hung(hosts, "skips", [place / "stalls" for place in places], [place / "log" for place in places]):
        texts = [_until(lambda place=place: _report_in(place / "stalls")) for place in places]
    assert "ranks 4-7 wrote nothing here: ended, stopped, still at work, or on another host" in texts[0]
    assert "ranks 0-3 wrote nothing here: ended, stopped, still at work, or on another host" in texts[1]
    written = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.glob("*/stalls/rank-*.txt")}
    (found,) = triage(written)
    assert found.standing.apart.ranks == [7] and [group.ranks for group in found.standing.groups] == [[*range(7)], [7]]


def _report_in(folder):
    return next((text for path in folder.glob("report-*.txt") if (text := path.read_text(encoding="utf-8"))), None)
