"""The wiki on hosts: one of these tests, and a real nginx."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import getpass
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.patience import PATIENCE, until
from support.project import ROOT

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def ends_with_us() -> None:
    """For `preexec_fn` of nginx, which writes over its environment, and with it over the token below."""
    if sys.platform == "linux":
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def served(folder: Path, headers: Mapping[str, str] = {}, pause: float = 0):
    """The wiki under a sub-path, as many hosts have it; its own page where nothing is found.

    With a pause, in seconds, a page comes in steps of 3,000 bytes.
    """

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path):
            return super().translate_path(path.removeprefix("/wiki"))

        def send_error(self, code, *arguments):
            page = folder / "404.html"
            if code != 404 or not page.is_file():
                return super().send_error(code, *arguments)
            self.send_response(404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.read_bytes())

        def copyfile(self, source, outputfile):
            if not pause or not self.path.endswith("/"):
                return super().copyfile(source, outputfile)
            while step := source.read(3000):
                outputfile.write(step)
                time.sleep(pause)

        def end_headers(self):
            for name, value in headers.items():
                self.send_header(name, value)
            super().end_headers()

        def log_message(self, format, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/wiki/"
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port that the system gives to nobody else: it is bound, but without a listener, so that a server can bind it too.

    Both need SO_REUSEADDR for that, which servers set.
    """
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


HOSTING = ROOT / "snippets" / "hosting"
NGINX = """daemon off;
user {user};
pid {scratch}/nginx.pid;
error_log stderr;
events {{}}
http {{
    include /etc/nginx/mime.types;
    access_log off;
    client_body_temp_path {scratch}/body;
    proxy_temp_path {scratch}/proxy;
    fastcgi_temp_path {scratch}/fastcgi;
    uwsgi_temp_path {scratch}/uwsgi;
    scgi_temp_path {scratch}/scgi;
    {server}
}}
"""


@contextlib.contextmanager
def behind_nginx(folder: Path, scratch: Path, port: int):
    """The wiki under /wiki/ as a real nginx serves it, with the file that the page `hosting` shows."""
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    assert program, "no nginx: scripts/system-packages nginx"
    server = (HOSTING / "nginx.conf").read_text(encoding="utf-8")
    for shown, here in (("listen 80;", f"listen 127.0.0.1:{port};"), ("/srv/readyonce/site/", f"{folder}/")):
        assert shown in server
        server = server.replace(shown, here)
    config, log = scratch / "nginx.conf", scratch / "nginx.log"
    config.write_text(NGINX.format(user=getpass.getuser(), scratch=scratch, server=server), encoding="utf-8")
    with log.open("w") as said:
        process = subprocess.Popen([program, "-p", scratch, "-c", config], stderr=said, preexec_fn=ends_with_us)

    def answers() -> bool:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    try:
        until(answers)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def headers(site: Path) -> dict[str, str]:
    """What the site's own file tells a host to send."""
    first, *lines = (site / "_headers").read_text(encoding="utf-8").splitlines()
    assert first == "/*"
    return dict(line.strip().split(": ", 1) for line in lines)
