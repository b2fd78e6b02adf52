"""Builds the wiki into `site/` (English) and `site/zh/` (Chinese), with the book and the offline copy; serves it while
it is written."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http
import http.server
import io
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
import webbrowser
import zipfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlsplit

from readyonce.check import check
from readyonce.data import catalog, history, links, project, reading
from readyonce.data.inputs import Unusable
from readyonce.data.project import MADE_OF, Language
from readyonce.data.terminal import printable
from readyonce.publish import book, csp, postprocess, render

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

CONFIG: dict[Language, str] = {"en": "mkdocs.yml", "zh": "mkdocs.zh.yml"}
OFFLINE: dict[Language, str] = {"en": "mkdocs.offline.yml", "zh": "mkdocs.offline.zh.yml"}
TAKE_ALONG = (*book.EDITIONS, "offline")
WATCHED = ("docs", *MADE_OF, *CONFIG.values())
# In a folder on disk nothing asks for these.
NOT_OFFLINE = ("404.html", "sitemap.xml", "sitemap.xml.gz", "search/search_index.json")


def build(root: Path, take_along: Collection[str] = TAKE_ALONG) -> int:
    """Render, build what changed, and put `site/` together.

    `take_along`: of `TAKE_ALONG` what is made beside the pages. While serving it is nothing, since it takes minutes.
    """
    with _alone(root):
        return _build(root, take_along)


def book_of(known: catalog.Catalog, ids: Collection[str], language: Language) -> Path | None:
    """The book of some incidents, with their pages as the wiki has them. None where one does not build, which is told.

    Raises `Unusable` where what sets books is not installed."""
    if lacking := book.missing():
        raise Unusable(lacking)
    root = known.root
    with _alone(root):
        render.write(known)
        pages = _pages(root, language, CONFIG[language], language, [])
        made = _book(root, known, language, pages, book.CHOSEN, *ids)
        return made.output if _make(root, [pages]) and _make(root, [made]) else None


def _alone(root: Path) -> contextlib.AbstractContextManager[None]:
    """Who builds beside `readyonce serve` would take its files away."""
    return project.one_at_a_time(root / "build" / "site")


def _build(root: Path, take_along: Collection[str]) -> int:
    started = time.monotonic()
    known = catalog.load(root).require_sound()
    for path in render.write(known):
        print(f"{path}: brought up to date")
    for name in ("SITE_URL", "REPO_URL"):
        if not os.environ.get(name):
            print(f"{name} is not set: what needs it is left out.")
    if history.changes(root) is None:
        print("No full git history: the feed takes its dates from the evidence.")
    editions = [edition for edition in book.EDITIONS if edition in take_along]
    if editions and (lacking := book.missing()):
        print(lacking)
        editions = []
    beside = [name for name in (*editions, "offline") if name in take_along]
    pages = {language: _pages(root, language, CONFIG[language], language, beside) for language in CONFIG}
    offline = {
        language: _pages(root, f"offline-{language}", OFFLINE[language], language, editions)
        for language in OFFLINE
        if "offline" in take_along
    }
    books = {
        (language, edition): _book(root, known, language, pages[language], edition)
        for edition in reversed(editions)  # the long ones first: they are set side by side
        for language in CONFIG
    }
    names = {name for incident in known.incidents.values() for name in incident.variants if "-" in name}
    if not _make(root, [*pages.values(), *offline.values()], names) or not _make(root, [*books.values()]):
        return 1
    headers = root / "build" / "policy"
    csp.write_headers(headers, set().union(*(csp.protect(part.output) for part in pages.values())))
    for part in offline.values():
        csp.protect(part.output, csp.ON_DISK)
    rules = root / "build" / "javascripts"
    scripts = [("javascripts", rules / "en"), ("zh/javascripts", rules / "zh")]
    # In the folders of the pages that lead to its files: on disk that is the pages' own.
    guard = root / "build" / "guard"
    # Two folders lie at the top: the English pages, and the files for programs.
    site = [
        *scripts,
        ("guard", guard),
        ("zh/guard", guard),
        ("guard-compare", guard),
        ("zh/guard-compare", guard),
        ("", pages["en"].output),
        ("zh", pages["zh"].output),
        ("", root / "build" / "beside"),
        ("", headers),
        ("api", root / "build" / "api"),
        ("schema", root / "build" / "schema"),
    ]
    with_it = [("book", root / "build" / "book" / edition) for edition in editions]
    site += with_it
    if offline:
        site.append(("offline", root / "build" / "offline"))
        folder = [
            ("", offline["en"].output),
            ("zh", offline["zh"].output),
            *scripts,
            ("", guard),
            ("zh", guard),
            *with_it,
        ]
        rendered = sorted(_files([*scripts, ("", guard)]).items())
        rendered_digest = hashlib.sha256(b"".join(source.read_bytes() for _, source in rendered)).hexdigest()
        digest = " ".join([*(part.digest for part in (*offline.values(), *books.values())), rendered_digest])
        _pack(
            folder, root / "build" / "offline" / "readyonce-offline.zip", root / "build" / "stamps" / "offline", digest
        )
    _assemble(root / "site", site)
    print(f"site/index.html, site/zh/index.html: {time.monotonic() - started:.1f} s")
    return 0


# ------------------------------------------------------------------------------ what is made, and from what


@dataclass(frozen=True)
class Part:
    """What one process makes."""

    name: str
    command: list[str]
    output: Path
    digest: str  # changes when anything changes that it is made from
    settings: dict[str, str] = field(default_factory=dict)  # for its environment


def _pages(root: Path, name: str, config: str, language: Language, downloads: list[str]) -> Part:
    inputs = [root / name for name in ("requirements.txt", "docs/zh-terms.txt", *CONFIG.values(), *OFFLINE.values())]
    for folder in (f"docs/{language}", "docs/theme", f"build/includes/{language}", *MADE_OF):
        inputs += sorted(
            path for path in (root / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts
        )
    site_url = links.site_url() and links.address(links.site_url(), "", language)
    settings = {"DOWNLOADS": " ".join(downloads), "SITE_URL": site_url}
    # And what finishes the pages: when that changed, the old ones must not stay.
    finish = [Path(__file__).with_name(name).read_bytes() for name in ("postprocess.py", "csp.py")]
    outside = [os.environ.get(name) for name in ("REPO_URL", "SOURCE_DATE_EPOCH")]
    digest = hashlib.sha256(repr([settings, outside, finish]).encode())
    for path in inputs:
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", config]
    return Part(name, command, root / "build" / "site" / name, digest.hexdigest(), settings)


def _book(root: Path, known: catalog.Catalog, language: Language, pages: Part, edition: str, *ids: str) -> Part:
    date = max(
        evidence.environment.date for incident in known.incidents.values() for evidence in incident.evidence.values()
    )
    digest = hashlib.sha256(" ".join([pages.digest, date, *ids]).encode())
    package = Path(__file__).parents[1]
    for path in (
        *sorted(package.glob("publish/book*.*")),
        package / "__init__.py",
        package / "data" / "links.py",
        *sorted(package.glob("data/words*.*")),
    ):
        digest.update(path.read_bytes())
    command = [sys.executable, "-m", "readyonce.publish.book", language, date, CONFIG[language], edition, *ids]
    return Part(f"book-{language}-{edition}", command, book.path(root, language, edition), digest.hexdigest())


def _make(root: Path, parts: list[Part], runs: Collection[str] = ()) -> bool:
    """Run the commands of the parts that are out of date, side by side, and finish pages; whether all are there then.

    `runs` are the names of runs, of which the search of pages shows none.
    """
    stamps = root / "build" / "stamps"
    stamps.mkdir(parents=True, exist_ok=True)
    environment = _of_mkdocs(root)
    if "SOURCE_DATE_EPOCH" not in environment and (epoch := _commit_time(root)):
        environment["SOURCE_DATE_EPOCH"] = epoch
    running, good = [], True
    try:
        for part in parts:
            stamp = stamps / part.name
            if part.output.exists() and stamp.is_file() and stamp.read_text(encoding="utf-8") == part.digest:
                continue
            stamp.unlink(missing_ok=True)  # what is half made must not pass for made
            process = subprocess.Popen(
                part.command,
                cwd=root,
                env=environment | part.settings,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            running.append((part, stamp, process))
        for part, stamp, process in running:
            output, _ = process.communicate()
            if process.returncode:
                good = False
                # Below a traceback MkDocs repeats what its ERROR line says.
                said = output.split("Traceback (most recent call last)")[0].strip() or output
                print(f"{part.name} does not build:\n{said}\n`readyonce check` may say more.", file=sys.stderr)
            else:
                if part.output.is_dir():
                    postprocess.folder(part.output, runs)
                stamp.write_text(part.digest, encoding="utf-8")
                print(f"{part.name}: built", flush=True)
    finally:  # interrupted, or the disk is full
        for _, _, process in running:
            process.kill()
            process.wait()
    return good


def _of_mkdocs(root: Path) -> dict[str, str]:
    # jieba keeps a cache there; in a folder that all may write to, somebody else could have put one.
    temporary = root / "build" / "tmp"
    temporary.mkdir(exist_ok=True)
    return os.environ | {"NO_MKDOCS_2_WARNING": "1", "JIEBA_LOG": "0", "TMPDIR": str(temporary)}


def _commit_time(root: Path) -> str | None:
    # For dates that only the builder writes, as in the sitemap: the same commit gives the same bytes.
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        result = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=root, capture_output=True, text=True, check=True
        )
        return result.stdout.strip() or None
    return None


def _files(parts: list[tuple[str, Path]]) -> dict[Path, Path]:
    """Path in the whole → file, of folders that are put together: (prefix, folder)."""
    return {Path(at) / p.relative_to(part): p for at, part in parts for p in part.rglob("*") if p.is_file()}


def _pack(parts: list[tuple[str, Path]], target: Path, stamp: Path, digest: str) -> None:
    """Put the parts into one archive, always the same for the same bytes."""
    if target.is_file() and stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return
    stamp.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w") as packed:
        for path, source in sorted(_files(parts).items(), key=lambda file: file[0].as_posix()):
            if path.as_posix().removeprefix("zh/") not in NOT_OFFLINE:
                entry = zipfile.ZipInfo(f"readyonce-offline/{path.as_posix()}")  # dated 1980
                entry.external_attr = 0o644 << 16
                packed.writestr(entry, source.read_bytes(), zipfile.ZIP_DEFLATED)
    stamp.write_text(digest, encoding="utf-8")
    print("offline: packed", flush=True)


def _assemble(target: Path, parts: list[tuple[str, Path]]) -> None:
    """Make `site/` equal to the built parts, touching only what differs."""
    wanted = _files(parts)
    if not links.site_url():  # MkDocs writes one all the same, and nothing stands in it
        wanted = {path: source for path, source in wanted.items() if not path.name.startswith("sitemap.xml")}
    for path, source in wanted.items():
        copy = target / path
        if (
            not copy.is_file()
            or copy.stat().st_mtime_ns != source.stat().st_mtime_ns
            or copy.stat().st_size != source.stat().st_size
        ):
            copy.parent.mkdir(parents=True, exist_ok=True)
            # Whoever is just reading the page gets the old one or the new one.
            part = copy.with_name(f".{copy.name}.part")
            shutil.copy2(source, part)
            part.replace(copy)
    for path in sorted([target, *target.rglob("*")], reverse=True):
        if path.is_file() and path.relative_to(target) not in wanted:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.stat().st_mode & 0o777 != (mode := 0o755 if path.is_dir() else 0o644):
            path.chmod(mode)  # a server is another user, whatever this one lets others read


# ------------------------------------------------------------------------------ serving


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Answers only who asks for this machine: another site's name that leads here must not read what is not published."""

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        try:
            if urlsplit(f"//{self.headers.get('Host', '')}").hostname in ("127.0.0.1", "localhost", "::1"):
                return super().send_head()
            self.send_error(http.HTTPStatus.MISDIRECTED_REQUEST)
        except ValueError:  # `/%00`, `Host: [`
            self.send_error(http.HTTPStatus.BAD_REQUEST)
        return None

    def list_directory(self, path: object) -> None:
        self.send_error(http.HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")  # or a rebuilt page would not be seen
        super().end_headers()


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512  # who may wait to be answered; browsers open many connections at once


def serve(root: Path, port: int, open_browser: bool = False) -> int:
    """Build, serve on loopback until Ctrl-C, and build again whenever a source is saved."""
    handler = functools.partial(_Quiet, directory=root / "site")
    try:  # before the build: who asks for a port that is taken need not wait for it
        server = _Server(("127.0.0.1", port), handler)
    except OSError as error:
        print(f"Port {port} cannot be had ({error.strerror}). Try: readyonce serve --port 0", file=sys.stderr)
        return 1
    with server:
        if code := build(root, take_along=()):
            return code
        return _serve(root, server, open_browser)


def _serve(root: Path, server: _Server, open_browser: bool) -> int:
    address = f"http://127.0.0.1:{server.server_port}/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    changed: queue.SimpleQueue[str] = queue.SimpleQueue()
    observer = _watch(root, changed)  # before it says that it serves, or the first saved file could be missed
    print(f"\nServing {address} and {address}zh/ - Ctrl-C ends it.", flush=True)
    # Without a screen, webbrowser would start a text browser in this very terminal.
    if open_browser and (
        sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        webbrowser.open(address)
    try:
        _rebuild_on_change(root, changed)
    except KeyboardInterrupt:
        print()
    finally:
        observer.stop()
        observer.join()
        server.shutdown()
    return 0


def _watch(root: Path, changed: queue.SimpleQueue[str]) -> BaseObserver:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers import Observer

    class Handler(FileSystemEventHandler):
        def on_any_event(self, event: FileSystemEvent) -> None:
            if event.event_type not in ("opened", "closed_no_write") and "__pycache__" not in str(event.src_path):
                changed.put(
                    str(event.dest_path or event.src_path)
                )  # of what an editor moved into its place: that place

    observer = Observer()
    for name in WATCHED:
        observer.schedule(Handler(), str(root / name), recursive=True)
    observer.start()
    return observer


def _rebuild_on_change(root: Path, changed: queue.SimpleQueue[str]) -> None:
    while True:
        saved = {changed.get()}
        time.sleep(0.2)  # an editor saves in several steps
        while not changed.empty():
            saved.add(changed.get())
        try:
            with _alone(root):
                _show_at_once(root, sorted(map(Path, saved)))
            build(root, take_along=())
        except Exception as error:  # what is wrong with the sources, until it is mended
            fault = error if isinstance(error, reading.CatalogError) else check.or_raise(root, error)
            print(printable(str(fault)), file=sys.stderr, flush=True)


def _show_at_once(root: Path, saved: list[Path]) -> None:
    """Put the saved pages of a language into `site/` before all is built again: without the search and what checks find."""
    for language, config in CONFIG.items():
        docs, made, shown = root / "docs" / language, root / "build" / "site" / language, root / "site"
        pages = [path.relative_to(docs) for path in saved if path.suffix == ".md" and path.is_relative_to(docs)]
        if not pages or not made.is_dir():
            continue
        command = [sys.executable, "-m", "mkdocs", "build", "--dirty", "--quiet", "-f", config]
        environment = _of_mkdocs(root) | {"DOWNLOADS": ""}
        (root / "build" / "stamps" / language).unlink(missing_ok=True)  # its index has these pages only
        if subprocess.run(command, cwd=root, env=environment, capture_output=True).returncode:
            continue  # the build says why
        for page in pages:
            place = page.parent if page.stem == "index" else page.with_suffix("")
            html, target = made / place / "index.html", shown / ("" if language == "en" else language) / place
            if html.is_file() and target.is_dir():
                shutil.copy(html, target / ".index.html")
                os.replace(target / ".index.html", target / "index.html")
                print(f"{docs.relative_to(root) / page}: shown", flush=True)
