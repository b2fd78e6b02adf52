"""`readyonce serve`: serves on loopback, and rebuilds the language whose page was saved."""

import functools
import http.client
import http.server
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
from conftest import as_in_a_terminal, command, edit

from readyonce import site


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=5) as answer:
        return answer.read().decode()


def wait_for(condition, seconds=60):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if condition():
            return True
        time.sleep(0.2)
    return False


def test_serve_rebuilds_the_language_concerned(copy, tmp_path):
    log = tmp_path / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "readyonce.cli", "serve", "--port", "0"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"READYONCE_ROOT": str(copy)},
            preexec_fn=as_in_a_terminal,
        )
    try:
        assert wait_for(lambda: "Serving" in log.read_text()), log.read_text()
        address = re.search(r"Serving (http://127\.0\.0\.1:\d+/)", log.read_text())[1]
        assert "ReadyOnce" in read(address)

        said = len(log.read_text())
        edit(copy / "docs/zh/contributing.md", "# 参与", "# 一起参与")
        assert wait_for(lambda: "一起参与" in read(address + "zh/contributing/")), log.read_text()
        assert "zh: built" in log.read_text()[said:] and "en: built" not in log.read_text()[said:]

        said = len(log.read_text())
        edit(copy / "snippets/RO-0001/incident.yml", "status: active", "status: actve")
        assert wait_for(lambda: "`actve` is no value for `status`" in log.read_text()[said:]), log.read_text()
        edit(copy / "snippets/RO-0001/incident.yml", "status: actve", "status: withdrawn")
        assert wait_for(lambda: "This incident is withdrawn." in read(address + "incidents/RO-0001/")), log.read_text()
        assert wait_for(lambda: "该事故已撤回。" in read(address + "zh/incidents/RO-0001/"))
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    "path, host, status",
    [
        ("/", "127.0.0.1", 200),
        ("/", "localhost:8000", 200),
        ("/", "[::1]:8000", 200),
        ("/", "evil.example", 421),  # a name that was made to lead here
        ("/", "localhost.evil.example:8000", 421),
        ("/", "[", 400),
        ("/folder/", "127.0.0.1", 404),
        ("/%00", "127.0.0.1", 400),
        ("/../secret", "127.0.0.1", 404),
    ],
)
def test_whom_it_answers_and_with_what(tmp_path, capfd, path, host, status):
    (tmp_path / "site" / "folder").mkdir(parents=True)
    for name in ("secret", "site/index.html", "site/folder/unpublished.txt"):
        (tmp_path / name).write_text("text")
    handler = functools.partial(site._Quiet, directory=tmp_path / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        said = answer.read().decode()
        server.shutdown()
    assert answer.status == status and "unpublished" not in said
    assert "Traceback" not in capfd.readouterr().err


def test_what_is_built_can_be_read_by_a_server(tmp_path):
    (tmp_path / "part" / "below").mkdir(parents=True)
    (tmp_path / "part" / "below" / "page.html").touch(0o600)
    before = os.umask(0o077)
    try:
        site._assemble(tmp_path / "site", [("", tmp_path / "part")])
    finally:
        os.umask(before)
    made = [tmp_path / "site", *(tmp_path / "site").rglob("*")]
    assert [oct(path.stat().st_mode & 0o777) for path in sorted(made)] == ["0o755", "0o755", "0o644"]


@pytest.mark.parametrize("port", ["99999", "-1", "x", "８０"])
def test_what_is_no_port(port):
    told = command("serve", f"--port={port}")
    assert told.returncode == 2 and f"`{port}` is no port" in told.stderr, told.stderr


def test_a_taken_port_is_said_in_words(copy):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        told = subprocess.run(
            [sys.executable, "-m", "readyonce.cli", "serve", "--port", str(taken.getsockname()[1])],
            capture_output=True,
            text=True,
            env=os.environ | {"READYONCE_ROOT": str(copy)},
            timeout=120,
        )
    assert told.returncode == 1 and "Try: readyonce serve --port 0" in told.stderr and "Traceback" not in told.stderr
