"""The server of `readyonce serve`: whom it answers, and with what."""

import fcntl
import functools
import http.client
import os
import socket
import threading

import pytest

from readyonce.publish import site
from support.patience import PATIENCE
from support.project import command


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
    with site._Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE)
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        said = answer.read().decode()
        server.shutdown()
    assert answer.status == status and "unpublished" not in said
    assert "Traceback" not in capfd.readouterr().err


def test_two_hundred_at_once_are_all_answered(tmp_path):
    (tmp_path / "index.html").write_text("text")
    with site._Server(("127.0.0.1", 0), functools.partial(site._Quiet, directory=tmp_path)) as server:
        # All stand in line before the first is answered: a line of five would turn the others away.
        waiting = [socket.create_connection(server.server_address, timeout=PATIENCE) for _ in range(200)]
        for connection in waiting:
            connection.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        answers = [connection.makefile("rb").read() for connection in waiting]
        server.shutdown()
    for connection in waiting:
        connection.close()
    assert all(answer.startswith(b"HTTP/1.0 200 ") and answer.endswith(b"text") for answer in answers)


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


def test_the_wiki_is_built_by_one_at_a_time(tmp_path, monkeypatch):
    def build(root, take_along):
        with (root / "build" / "site.lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return 7

    monkeypatch.setattr(site, "_build", build)
    assert site.build(tmp_path) == site.build(tmp_path) == 7  # and given back
