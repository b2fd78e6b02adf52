"""Triage with what its extra brings: Dask here and on a cluster, templates, Parquet, .zst, stores; the commands of its page."""

import asyncio
import gzip
import json
import multiprocessing.resource_tracker
import os
import re
import shlex
import socket
import subprocess
import sys
import tarfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psutil
import pyarrow.parquet
import pytest
import zstandard
from distributed import Client, LocalCluster, Security
from fsspec.implementations.memory import MemoryFileSystem

from readyonce.data import articles, inputs
from readyonce.triage import engine, groups, report, sources, verdict
from support.fleet import ODD, TRUTH, by_name, triage, truth, unreadable, written, wrong
from support.fleet import told as answered
from support.hosting import reserved_port
from support.logs import ENGINE, RULES
from support.patience import PATIENCE, until
from support.project import ROOT, command, copy_of
from support.stacks import dumps

TEXT = json.dumps(RULES)
KNOWN = "Traceback (most recent call last):\nRuntimeError: Expected to mark a variable ready only once.\n"
OTHER = "Traceback (most recent call last):\n{}\n"


def rows(answers):
    """All that is said of each job."""
    return [json.loads(line) for line in report.jsonl(answers, groups.groups(answers)).splitlines()]


def named(answers, old, new):
    """The same with `old` in names as `new`."""
    return json.loads(json.dumps(rows(answers)).replace(old, new))


def of(kind):
    """A layout of the truth set: name → bytes."""
    return {name: data for name, data in truth().items() if name.startswith(f"{kind}/")}


def cases(kind):
    return [name for name in TRUTH if name.startswith(f"{kind}/")]


def lay(folder, kind):
    """The same as files."""
    for name, data in of(kind).items():
        path = folder / name.removeprefix(f"{kind}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture
def nothing_left():
    """No process that the test has started outlives it."""
    multiprocessing.resource_tracker.ensure_running()  # Python's own: it stays until we end
    before = psutil.Process().children(recursive=True)
    yield
    left = [it for it in psutil.Process().children(recursive=True) if it not in before]
    assert not left, [it.cmdline() for it in left if it.is_running()]


# ------------------------------------------------------------------------------ Dask


def test_processes_here_answer_as_a_plain_loop_does(tmp_path, monkeypatch, nothing_left):
    lay(tmp_path, "torchrun")
    monkeypatch.setattr(engine, "LEAST", 1 << 14)
    sizes = sources.expand([str(tmp_path)], [])
    assert len(engine._tasks(sizes, os.cpu_count())) > 4
    engine._rules.cache_clear()
    found = engine.readings(TEXT, sizes, "en")
    assert not engine._rules.cache_info().misses, "this process has read files, too"
    loop = triage({str(tmp_path / name.removeprefix("torchrun/")): data for name, data in of("torchrun").items()})
    assert len(loop) == len(cases("torchrun"))
    assert rows(verdict.answers(found)) == rows(loop)


def test_no_file_is_lost_or_read_twice():
    sizes = {f"{n}.log": n * 7919 % 100 << 20 for n in range(3000)}
    tasks = engine._tasks(sizes, 2)
    assert sorted(name for task in tasks for name in task) == sorted(sizes)
    assert max(len(task) for task in tasks) <= 500 and max(len(task) for task in tasks) > 1


def test_a_cluster_answers_as_a_plain_loop_does(tmp_path, tmp_path_factory, nothing_left):
    lay(tmp_path, "slurm")
    bad = tmp_path_factory.mktemp("bad")
    written(bad, ODD | unreadable() | {os.fsdecode(b"\xff.log"): "KeyError: 1\n"})
    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        said = command("triage", str(tmp_path), "--format", "jsonl", "--on", cluster.scheduler_address)
        assert said.returncode == 1 and not said.stderr, said.stderr
        loop = triage({str(tmp_path / name.removeprefix("slurm/")): data for name, data in of("slurm").items()})
        assert [json.loads(line) for line in said.stdout.splitlines()] == rows(loop)
        # Bad files beside them: each is named with a reason, and the others have the same answers.
        expected = [row | {"group": None} for row in rows(loop)]  # a group is one of all failures
        for on in ([], ["--on", cluster.scheduler_address]):
            out = tmp_path_factory.mktemp("out") / "report.jsonl"
            said = command("triage", str(tmp_path), str(bad), "--format", "jsonl", "--out", str(out), *on)
            assert said.returncode == 2 and "Traceback" not in said.stderr, said.stderr
            for name in unreadable():
                assert re.search(rf"^readyonce: {re.escape(f'{bad}/{name}')}.*: .+$", said.stderr, re.M), said.stderr
            found = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
            jobs = {row["job"] for row in expected}
            others = [row | {"group": None} for row in found if row["job"] in jobs]
            assert others == expected and len(found) > len(others) + len(ODD) / 2
        with Client(cluster) as client:
            assert sum(client.run(lambda: engine._rules.cache_info().misses).values()), "no worker has read a file"
            # A worker that cannot import what it is to run.
            client.run(
                lambda: sys.modules.update({"readyonce.triage.engine": None}),
                workers=[next(iter(client.scheduler_info()["workers"]))],
            )
        with pytest.raises(
            inputs.Unusable, match=r"1 of the scheduler and workers at .* cannot import triage .*cluster\]"
        ):
            engine.readings(TEXT, {str(tmp_path): 1}, "en", cluster.scheduler_address)


def test_a_cluster_answers_where_an_event_loop_runs(tmp_path):
    """As in a notebook; in a thread of its own, since a browser's loop runs in this one once there was a browser."""
    (path := tmp_path / "job.log").write_text(KNOWN)

    async def cell(address):
        return engine.readings(TEXT, {str(path): path.stat().st_size}, "en", address)

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        ThreadPoolExecutor(1) as thread,
    ):
        found = thread.submit(lambda: asyncio.run(cell(cluster.scheduler_address))).result()
    assert found == engine.readings(TEXT, {str(path): path.stat().st_size}, "en")


def test_no_scheduler_or_no_workers_are_told(monkeypatch, nothing_left):
    monkeypatch.setattr("readyonce.data.scheduler.PATIENCE", 1)  # there is none, so nothing can come too late
    with reserved_port() as port:
        for address in (f"tcp://127.0.0.1:{port}", "nothing://such"):
            with pytest.raises(inputs.Unusable, match=f"no Dask scheduler at {address}"):
                engine.readings(TEXT, {"a.log": 1}, "en", address)
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None) as cluster:
        said = command("triage", __file__, "--on", cluster.scheduler_address, timeout=PATIENCE)
    assert said.returncode == 2 and "has no workers" in said.stderr


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 4096])
def test_what_is_no_scheduler_is_told(monkeypatch, answer):
    """One that accepts a connection and says nothing, a dashboard, and noise."""
    monkeypatch.setattr("readyonce.data.scheduler.PATIENCE", 1)
    taken = []

    def accept():
        while True:
            taken.append(server.accept()[0])
            if answer:
                taken[-1].sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(inputs.Unusable, match=f"no Dask scheduler at {address}: ."):
            engine.readings(TEXT, {"a.log": 1}, "en", address)
    for connection in taken:
        connection.close()


def test_a_cluster_that_asks_for_certificates_is_asked_with_them(tmp_path):
    """Dask's own settings say where they are; without them a sentence tells that nothing answers."""
    (log := tmp_path / "job.log").write_text(KNOWN)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    whose = ("scheduler", "worker", "client")
    files = {f"tls_{who}_{what}": str(path) for who in whose for what, path in (("key", key), ("cert", certificate))}
    security = Security(require_encryption=True, tls_ca_file=str(certificate), **files)
    settings = {
        "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(certificate),
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY": str(key),
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT": str(certificate),
    }
    with LocalCluster(
        n_workers=1, security=security, protocol="tls://", host="127.0.0.1", dashboard_address=None
    ) as cluster:
        on = ["--on", cluster.scheduler_address]
        with_them = command("triage", str(log), *on, environment=settings, timeout=PATIENCE)
        without = command("triage", str(log), *on, timeout=PATIENCE)
    here = command("triage", str(log))
    assert (with_them.stdout, with_them.returncode) == (here.stdout, here.returncode), with_them.stderr
    assert without.returncode == 2 and f"no Dask scheduler at {on[1]}: " in without.stderr, without.stderr
    assert "Traceback" not in without.stderr


def test_a_cluster_that_ends_meanwhile_is_told(monkeypatch, nothing_left):
    monkeypatch.setattr("readyonce.data.scheduler.PATIENCE", 2)
    monkeypatch.setattr(engine, "each", lambda *_: os._exit(1))  # it goes to the workers by value
    with LocalCluster(n_workers=1, host="127.0.0.1", dashboard_address=None) as cluster:
        with pytest.raises(inputs.Unusable, match=f"the Dask .* at {cluster.scheduler_address} "):
            engine.readings(TEXT, {"a.log": 1}, "en", cluster.scheduler_address)
        # Another one is started: meanwhile Dask cannot close the cluster.
        until(lambda: cluster.scheduler_info["workers"])


KILLED = """
import os, signal
from readyonce.triage import engine
def each(names, rules, language):
    os.kill(os.getppid(), signal.SIGKILL)
    return []
engine.each = each
if __name__ == "__main__":
    engine.readings("", {"a.log": 1 << 30, "b.log": 1 << 30}, "en")
"""


def test_workers_of_a_killed_command_end():
    """They hold its standard error, which ends with the last of them."""
    command_ = [sys.executable, "-c", KILLED]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    told = subprocess.run(command_, env=environment, capture_output=True, timeout=PATIENCE)
    assert told.returncode == -9, told.stderr


# ------------------------------------------------------------------------------ groups


def test_failures_that_differ_in_numbers_and_paths_are_of_one_template():
    said = {
        "a.log": "ValueError: shard 17 of /data/x.bin ends at byte 4096",
        "b.log": "ValueError: shard 00230 of /mnt/2/y.bin ends at byte 77",
        "c.log": "KeyError: 'labels'",
    }
    found = groups.groups(
        triage({name: OTHER.format(text).encode() for name, text in said.items()} | {"d.log": KNOWN.encode()})
    )
    assert [(it.family, it.jobs) for it in found] == [
        ("ddp-ready-twice", ["d.log"]),
        (None, ["a.log", "b.log"]),
        (None, ["c.log"]),
    ]
    assert found[1].template == "ValueError: shard <n> of <path> ends at byte <n>"
    assert not any(it.new for it in found)


def test_new_is_what_the_last_report_lacks(tmp_path):
    days = {
        "yesterday": {
            "a": KNOWN,
            "b": OTHER.format("ValueError: shard 17 is short"),
            "gone": OTHER.format("KeyError: 'x'"),
        },
        "today": {
            "a2": KNOWN,
            "b2": OTHER.format("ValueError: shard 230 is short"),
            "c": OTHER.format(
                "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one."
            ),
            "d": OTHER.format("PermissionError: no right to write"),
            "e": "step 1\n",
        },
    }
    (tmp_path / "today").mkdir()
    for name, text in days["today"].items():
        (tmp_path / "today" / f"{name}.log").write_text(text)
    before, answers = (triage({f"{name}.log": text.encode() for name, text in jobs.items()}) for jobs in days.values())
    last = report.jsonl(before, groups.groups(before))
    assert not any(json.loads(line)["new"] for line in last.splitlines())
    (tmp_path / "yesterday.jsonl").write_text(last, encoding="utf-8")
    given = ["triage", str(tmp_path / "today"), "--format", "jsonl", "--since", str(tmp_path / "yesterday.jsonl")]
    new = {os.path.basename(row["job"]): row["new"] for row in map(json.loads, command(*given).stdout.splitlines())}
    assert new == {"a2.log": False, "b2.log": False, "c.log": True, "d.log": True, "e.log": False}
    text = report.text(ENGINE, answers, groups.groups(answers, last), "en")
    assert re.findall(r"^ +1  (.{12}).*  \(new\)$", text, re.M) == ["ddp-unfinish", "PermissionEr"]
    for other in ("step 1\n", '{"loss": 0.5}\n', last + "[]\n"):
        with pytest.raises(inputs.Unusable, match=r"line \d+ of the last report is none of triage's"):
            groups.groups(answers, other)


# ------------------------------------------------------------------------------ forms


def test_parquet_holds_what_json_lines_hold(tmp_path):
    lay(tmp_path / "logs", "torchrun")
    answers = triage(of("torchrun"))
    (tmp_path / "r.parquet").write_bytes(report.parquet(answers, groups.groups(answers)))
    expected = rows(answers)
    for row in expected:
        row["fix"] = row["fix"] and row["fix"]["text"]
    assert pyarrow.parquet.read_table(tmp_path / "r.parquet").to_pylist() == expected
    assert sum(row["fix"] is not None for row in expected) > 5
    # A file's name may hold bytes that are no UTF-8, and what some take for the end of a line.
    (answer,) = triage({os.fsdecode("\u2028".encode() + b"\xff.log"): KNOWN.encode()})
    (tmp_path / "r.parquet").write_bytes(report.parquet([answer], []))
    assert len(pyarrow.parquet.read_table(tmp_path / "r.parquet").to_pylist()) == 1
    for place, words in ((tmp_path / "none/r.parquet", "No such file"), (tmp_path, "Is a directory")):
        said = command("triage", str(tmp_path / "logs"), "--format", "parquet", "--out", str(place))
        assert said.returncode == 2 and words in said.stderr and str(place) in said.stderr, said.stderr
        assert "Traceback" not in said.stderr
    said = command("triage", str(tmp_path / "logs"), "--format", "parquet")
    assert said.returncode == 2 and "--out" in said.stderr


PACKED = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}


@pytest.mark.parametrize("ending", PACKED)
def test_a_packed_log_is_judged_as_the_log_is(ending, tmp_path):
    pack = PACKED[ending]
    for name in ("single/two-errors-1-then-0/train.log", "single/killed-rank-1/train.log"):
        data = truth()[name]
        plain, packed = tmp_path / "train.log", tmp_path / f"train.log{ending}"
        plain.write_bytes(data)
        packed.write_bytes(pack(data[:5000]) + pack(data[5000:]))  # of two members, as a log that was appended to
        expected, found = (engine.each([str(path)], TEXT, "en") for path in (plain, packed))
        assert not found[0].fault and len(data) > 5000
        assert rows(verdict.answers(found)) == rows(verdict.answers(expected))


@pytest.mark.parametrize("ending", PACKED)
def test_a_packed_log_that_is_cut_is_read_as_far_as_it_goes(ending, tmp_path):
    noise = b"".join(b"step %d: %d\n" % (n, n * 7919 % 100_003) for n in range(50_000))
    path = tmp_path / f"train.log{ending}"
    for data in (
        PACKED[ending](KNOWN.encode() + noise)[:-9000],
        PACKED[ending](KNOWN.encode()) + PACKED[ending](noise)[:-9],
    ):
        path.write_bytes(data)
        (it,) = engine.each([str(path)], TEXT, "en")
        assert "it is cut or damaged" in it.fault
        assert [stream.family for stream in it.streams] == ["ddp-ready-twice"]
    path.write_bytes(PACKED[ending](noise))
    (it,) = engine.each([str(path)], TEXT, "en")
    assert (it.fault, it.lines, it.size) == ("", 50_000, len(noise))


def test_an_archive_may_be_packed_with_zstd(tmp_path):
    lay(tmp_path / "logs", "single")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "logs", "logs")
    (tmp_path / "a.tar.zst").write_bytes(PACKED[".zst"]((tmp_path / "a.tar").read_bytes()))
    found = by_name(verdict.answers(engine.each([str(tmp_path / "a.tar.zst")], TEXT, "en")), "single")
    assert found.keys() == {name for name in TRUTH if name.startswith("single/")}
    assert not [name for name, it in found.items() if wrong(it, TRUTH[name])]


# ------------------------------------------------------------------------------ stores


def test_a_store_is_read_as_a_folder_is():
    store = MemoryFileSystem()
    files = of("cut")  # few enough for one task: this store is of one process
    try:
        for name, data in files.items():
            store.pipe(f"/fleet/{name}", data)
        for address in ("memory://fleet/cut", "memory://fleet/cut/*/**"):
            sizes = sources.expand([address], [])
            assert sizes == {f"memory:///fleet/{name}": len(data) for name, data in files.items()}
        found = verdict.answers(engine.readings(TEXT, sizes, "en"))
        assert named(found, "memory:///fleet/", "") == rows(triage(files))
    finally:
        store.rm("/fleet", recursive=True)
    (gone,) = engine.each([next(iter(sizes))], TEXT, "en")
    assert gone.fault


def test_an_address_of_this_machine_is_read_too(tmp_path):
    lay(tmp_path, "single")
    sizes = sources.expand([f"file://{tmp_path}/*/train.log"], [])
    assert len(sizes) == len(cases("single"))
    found = verdict.answers(engine.readings(TEXT, sizes, "en"))
    assert named(found, f"file://{tmp_path}/", "single/") == rows(triage(of("single")))


@pytest.mark.parametrize(
    "address, told",
    [
        ("memory://nowhere/at/all", "there is no file at memory://nowhere/at/all"),
        ("nope://a/b", "is no address that fsspec knows"),
        ("s3://bucket/jobs/", r"s3:// needs a package of its own\. .*s3fs"),
        ("oss://bucket/jobs/", r"oss:// needs a package of its own\. .*ossfs"),
        ("ftp://127.0.0.1:1/a", "ftp://127.0.0.1:1/a cannot be listed: .*refused"),
    ],
)
def test_an_address_that_is_of_no_use_is_told(address, told):
    with pytest.raises(inputs.Unusable, match=told):
        sources.expand([address], [])


S3 = ROOT / ".venv" / "s3"  # tests/s3.txt; see there


PUT = """
import sys, s3fs
store = s3fs.S3FileSystem()
store.mkdir("bucket")
store.put(sys.argv[1] + "/", "bucket/", recursive=True)
"""


IN_BUCKET = tuple(f"{name}/" for name in cases("torchrun")[::5])


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """(a folder, the environment of a command that asks a real S3 server, moto's): s3://bucket/ holds what the folder does.

    Every fifth job: that server takes a twentieth of a second to answer.
    """
    folder, log = tmp_path_factory.mktemp("bucket"), tmp_path_factory.mktemp("s3") / "server.log"
    files = {name: data for name, data in of("torchrun").items() if name.startswith(IN_BUCKET)} | {
        f"{name}.gz": gzip.compress(data) for name, data in of("single").items() if "two-errors" in name
    }
    for name, data in files.items():
        path = folder / "a team/2026" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "a team/2026-not-these").mkdir()
    (folder / "a team/2026-not-these/train.log").write_text(KNOWN)
    environment = {
        "PYTHONPATH": str(S3),
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with log.open("w") as out:  # no pipe: it tells each request, and would wait
        server = subprocess.Popen(words, env=os.environ | environment, stdout=out, stderr=out)

    def address():
        assert server.poll() is None, log.read_text()
        return re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())

    try:
        environment["AWS_ENDPOINT_URL"] = until(address)[1]
        put = [sys.executable, "-c", PUT, str(folder)]
        said = subprocess.run(put, env=os.environ | environment, capture_output=True, text=True, timeout=PATIENCE)
        assert said.returncode == 0, said.stderr
        yield folder, environment
    finally:
        server.terminate()
        server.wait(PATIENCE)


def test_a_bucket_is_read_as_a_folder_is(bucket):
    """As torchrun lays it, and packed; by its prefix, and by a glob."""
    folder, environment = bucket
    for place in ("", "/torchrun/*/**"):
        rows = []
        for top in (f"{folder}/", "s3://bucket/"):
            said = command("triage", f"{top}a team/2026{place}", "--format", "jsonl", environment=environment)
            assert said.returncode == 1 and not said.stderr, said.stderr[-2000:]
            rows.append([json.loads(line) for line in said.stdout.replace(top, "").splitlines()])
        assert rows[0] == rows[1] and len(rows[0]) >= len(IN_BUCKET)


def test_a_bucket_that_is_not_there_is_told(bucket):
    for address in ("s3://no-such-bucket/a", "s3://bucket/no-such-prefix/"):
        said = command("triage", address, environment=bucket[1])
        assert said.returncode == 2 and address in said.stderr and "Traceback" not in said.stderr, said.stderr


# ------------------------------------------------------------------------------ the page


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which the page's commands have what they name."""
    folder = tmp_path_factory.mktemp("page")
    lay(folder / "logs", "torchrun")
    lay(folder / "runs", "single")
    lay(folder / "pods", "kubernetes")
    with tarfile.open(folder / "logs.tar.gz", "w:gz") as archive:
        archive.add(folder / "pods", "pods")
    answers = [it for it in triage(of("torchrun")) if not (it.first and "No space left" in it.first.message)]
    (folder / "yesterday.jsonl").write_text(report.jsonl(answers, groups.groups(answers)), encoding="utf-8")
    return folder


def commands(program, page="triage"):
    """Those of the English page; `check` has seen that the Chinese one has the same."""
    page = articles.read(ROOT / "docs" / "en" / f"{page}.md")
    lines = [line for block in page.blocks if block.language == "bash" for line in block.content.splitlines()]
    return [shlex.split(line)[1:] for line in lines if re.search(rf"(?:^|/| ){program} ", line)]


def as_known(kind):
    return Counter(it["family"] for name, it in TRUTH.items() if name.startswith(f"{kind}/") and it.get("family"))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_commands_of_the_page_do_what_it_says(language, place):
    forms = []
    for words in commands("readyonce"):
        if "dumps/" in words:  # what the loop above it has written
            files = {name: data for name, data in dumps().items() if name.startswith("decoder-6/py-spy/")}
            written(place, {f"dumps/{name.rpartition('/')[2]}": data for name, data in files.items()})
            said = command(*words, "--lang", language, cwd=place)
            apart = {"en": "look first at rank 5", "zh": "先看 rank 5"}[language]
            assert said.returncode == 0 and apart in said.stdout, said.stdout + said.stderr
            continue
        if language == "zh":  # as that page says; in the other forms there are no words
            if {".jsonl", ".parquet"} & {os.path.splitext(word)[1] for word in words} or "--on" in words:
                continue
            words += ["--lang", "zh"]
        if "--on" in words:
            words[1] = str(place / "logs")
            with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
                words[words.index("--on") + 1] = cluster.scheduler_address
                said = command(*words, cwd=place)
        else:
            said = command(*words, cwd=place)
        assert said.returncode == 1 and not said.stderr, (words, said.stderr)
        out = place / words[words.index("--out") + 1] if "--out" in words else None
        kinds = ["single", "kubernetes"] if "logs.tar.gz" in words else ["torchrun"]
        forms.append(out.suffix if out else "".join(kinds))
        if out and out.suffix in (".jsonl", ".parquet"):
            read = pyarrow.parquet.read_table(out).to_pylist() if out.suffix == ".parquet" else None
            told = read or [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
            (known,) = map(as_known, kinds)
            assert Counter(row["error"] for row in told if row["error"]) == known
            for row in told:
                answer = answered("torchrun")[f"torchrun/{row['job'].split('/')[1]}"]
                assert (row["first"] and row["first"]["rank"]) == (answer.first and answer.first.rank), row["job"]
                assert row["new"] == ("--since" in words and "No space left" in (row["said"] or ""))
            continue
        text = out.read_text(encoding="utf-8") if out else said.stdout
        if out:
            assert text.count("<svg") == sum(
                it.outcome in ("failed", "unclear") for it in answered("torchrun").values()
            )
            assert not re.search("<script|<link|<img|https?:", text)
        assert ("个任务" in text) == (language == "zh")
        for family, count in sum(map(as_known, kinds), Counter()).items():
            if not out:
                assert re.search(rf"^ +{count}  {family}  ", text, re.M), (words, family)
            assert family in text
    rest = [".jsonl", ".parquet", "torchrun"] if language == "en" else []
    assert forms == ["torchrun", "singlekubernetes", ".html", *rest]


def test_torchrun_keeps_what_triage_needs(tmp_path):
    (words,) = commands("torchrun")
    (tmp_path / "train.py").write_text(
        "import os, pathlib, time\nprint('step 1', flush=True)\nrank = os.environ['LOCAL_RANK']\n"
        "pathlib.Path(f'begun-{rank}').touch()\n"
        "while rank != '3' or len([*pathlib.Path().glob('begun-*')]) < 8:\n    time.sleep(0.1)\n"
        "raise OSError(28, 'No space left on device')\n"
    )
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", *words]
    ended = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1, ended.stderr
    answers = verdict.answers(engine.each([*sources.expand([str(tmp_path / "logs")], [])], TEXT, "en"))
    (row,) = rows(answers)
    assert (row["layout"], row["outcome"], row["first"]["rank"]) == ("torchrun", "failed", 3)
    assert "No space left" in row["first"]["message"]
    assert [it["how"] for it in row["ranks"]].count("raised") == 1 and len(row["ranks"]) == 8


def test_what_the_page_installs_is_all_that_triage_needs(tmp_path):
    """Without the network: pip finds each package of the extra among those that are installed."""
    (words,) = commands("pip", page="diagnose")
    copy = copy_of(ROOT, tmp_path / "copy")
    run = [
        sys.executable,
        "-m",
        "pip",
        *words,
        "--dry-run",
        "--no-index",
        "--no-build-isolation",
        "--disable-pip-version-check",
    ]
    said = subprocess.run(run, cwd=copy, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    for name in ("dask", "distributed", "drain3", "fsspec", "pyarrow", "zstandard"):
        assert re.search(rf"already satisfied: {name} .*from readyonce", said.stdout), name
