"""What the tests share: the project under test, its built site, a browser; no more than a test asks for is made."""

from __future__ import annotations

import fcntl
import os
import signal
import uuid
import zipfile
from pathlib import Path

import pytest

from readyonce.data import catalog, kept
from readyonce.diagnose import engine
from readyonce.lab import cleanup
from readyonce.publish import book, site
from support import second_chance, selection
from support.hosting import behind_nginx, headers, reserved_port, served
from support.project import EPOCH, KNOWN, REPOSITORY, ROOT, copy_of


def ended(number: int, frame) -> None:
    """Leave through every fixture, which ends what it started. Once: a second signal must not cut that short."""
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    pytest.exit(signal.Signals(number).name, returncode=128 + number)


ENDING = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
for number in ENDING:
    signal.signal(number, ended)

for name in ("SITE_URL", "REPO_URL"):
    os.environ.pop(name, None)  # the tests that need them set them


def pytest_configure(config):
    second_chance.pytest_configure(config)


def pytest_collection_modifyitems(config, items):
    """With $SELECT=changed, as `make test` says it: what the change since the base calls for, and a sample of the rest."""
    try:
        items[:], others = selection.choose(items, selection.Selection.of(ROOT), KNOWN)
    except selection.Unusable as error:
        raise pytest.UsageError(str(error)) from None
    config.hook.pytest_deselected(items=others)


def pytest_terminal_summary(terminalreporter):
    if os.environ.get("SELECT") == "changed":
        terminalreporter.section("what was run, and why")
        durations = [
            (it.nodeid, it.duration) for its in terminalreporter.stats.values() for it in its if hasattr(it, "duration")
        ]
        for line in selection.summary(selection.Selection.of(ROOT), KNOWN, durations):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def all_ends_with_us():
    """Whatever these tests start, in whatever way, is ended when they end, or are killed."""
    with pytest.MonkeyPatch.context() as patch, cleanup.watched(token := f"tests-{uuid.uuid4().hex}"):
        patch.setenv(cleanup.TOKEN, token)
        yield
        cleanup.kill(token)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def known() -> catalog.Catalog:
    return KNOWN.require_sound()


@pytest.fixture(scope="session")
def taken_along(request) -> list[str]:
    """What is made beside the pages: what a selected test reads. The whole books take seven minutes, the others one."""
    read = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    needed = {"books": [book.SHORT], "archive": [book.SHORT, "offline"], "whole_books": book.EDITIONS}
    return sorted({it for fixture, made in needed.items() if fixture in read for it in made})


@pytest.fixture(scope="session")
def built(root, taken_along) -> Path:
    """The built wiki: `site/`."""
    (root / "build").mkdir(exist_ok=True)
    with open(root / "build" / "tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other lane of `make test` finds it built
        assert site.build(root, taken_along) == 0
    return root / "site"


@pytest.fixture(scope="session")
def books(built) -> Path:
    return built / "book"


@pytest.fixture(scope="session")
def whole_books(books) -> Path:
    """The folder of the books, the whole ones among them."""
    return books


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


@pytest.fixture(scope="session")
def browser():
    from support.browser import a_browser

    with a_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def address(built):
    with served(built) as address:
        yield address


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
    with reserved_port() as port:
        address = f"http://127.0.0.1:{port}/wiki/"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SITE_URL", address)
            patch.setenv("REPO_URL", REPOSITORY)
            patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
            assert site.build(copied, take_along=()) == 0
        with behind_nginx(copied / "site", tmp_path_factory.mktemp("nginx"), port):
            yield address, copied / "site"


@pytest.fixture(scope="session")
def names(built) -> list[str]:
    """Each page below an address."""
    pages = (path.relative_to(built).as_posix() for path in built.rglob("index.html"))
    return sorted(page.removesuffix("index.html") for page in pages)


@pytest.fixture(scope="session")
def sample(built):
    """A function: of these pages those that a browser opens, all of them with ALL=1."""
    chosen = selection.Selection.of(ROOT)
    return lambda names, folder=built: chosen.pages(names, lambda name: _size(folder / name))


def _size(path: Path) -> int:
    """Of a page, by its path or by its address; 0 where it is not there."""
    file = path / "index.html" if path.is_dir() else path
    return file.stat().st_size if file.is_file() else 0


@pytest.fixture
def copy(tmp_path) -> Path:
    """A copy of the project's sources, to be broken."""
    return copy_of(ROOT, tmp_path / "copy")


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks so small that many texts can be tried; the margins are as they are."""
    monkeypatch.setattr(engine, "WHOLE", 1000)
    monkeypatch.setattr(engine, "BLOCK", 96 << 10)


@pytest.fixture(scope="module")
def shared_copy(tmp_path_factory) -> Path:
    """A copy of the project for many tests; each takes back what it did."""
    return copy_of(ROOT, tmp_path_factory.mktemp("shared") / "copy")


@pytest.fixture(scope="module")
def remembered(tmp_path_factory):
    """For who checks one copy again and again: what was computed of the same texts is not computed anew."""
    with kept.between_runs(tmp_path_factory.mktemp("kept")):
        yield
