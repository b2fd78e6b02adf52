"""Builds the wiki into `site/` (English) and `site/zh/` (Chinese), and serves it while it is written."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import threading
import time
import webbrowser
from pathlib import Path

from readyonce import catalog, render

CONFIG = {"en": "mkdocs.yml", "zh": "mkdocs.zh.yml"}
WATCHED = ("docs", "snippets", *CONFIG.values())


def build(root: Path) -> int:
    """Render, build the languages whose inputs changed, side by side, and put `site/` together."""
    started = time.monotonic()
    known = catalog.load(root).require_sound()
    for path in render.write(known):
        print(f"{path}: brought up to date")
    for name in ("SITE_URL", "REPO_URL"):
        if not os.environ.get(name):
            print(f"{name} is not set: what needs it is left out.")
    wanted = {language: _digest(root, language) for language in CONFIG}
    running = {language: _mkdocs(root, language) for language in CONFIG if _stamp(root, language) != wanted[language]}
    failed = False
    for language, process in running.items():
        output, _ = process.communicate()
        if process.returncode:
            failed = True
            # Below a traceback MkDocs repeats what its ERROR line says.
            said = output.split("Traceback (most recent call last)")[0].strip() or output
            print(f"{CONFIG[language]} does not build:\n{said}\n`readyonce check` may say more.", file=sys.stderr)
        else:
            (root / "build" / "site" / f"{language}.digest").write_text(wanted[language], encoding="utf-8")
            print(f"{language}: built")
    if failed:
        return 1
    _assemble(root)
    print(f"site/index.html, site/zh/index.html: {time.monotonic() - started:.1f} s")
    return 0


def _mkdocs(root: Path, language: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", CONFIG[language]]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "JIEBA_LOG": "0"}
    if "SOURCE_DATE_EPOCH" not in environment and (epoch := _commit_time(root)):
        environment["SOURCE_DATE_EPOCH"] = epoch
    return subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _commit_time(root: Path) -> str | None:
    # The same commit gives the same bytes, whenever it is built.
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        told = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=root, capture_output=True, text=True, check=True
        )
        return told.stdout.strip() or None
    return None


def _digest(root: Path, language: str) -> str:
    """Changes when anything changes that this language is built from."""
    inputs = [root / "requirements.txt", *(root / name for name in CONFIG.values())]
    for folder in (f"docs/{language}", "docs/theme", f"build/includes/{language}", "snippets"):
        inputs += sorted(
            path for path in (root / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts
        )
    digest = hashlib.sha256(repr([os.environ.get(n) for n in ("SITE_URL", "REPO_URL", "SOURCE_DATE_EPOCH")]).encode())
    for path in inputs:
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _stamp(root: Path, language: str) -> str | None:
    folder = root / "build" / "site"
    stamp = folder / f"{language}.digest"
    return stamp.read_text(encoding="utf-8") if stamp.is_file() and (folder / language).is_dir() else None


def _assemble(root: Path) -> None:
    """Make `site/` equal to the built parts, touching only what differs."""
    build, target = root / "build", root / "site"
    parts = {"": build / "site" / "en", "zh": build / "site" / "zh", "api": build / "api"}
    parts |= {"javascripts": build / "javascripts", "zh/javascripts": build / "javascripts"}
    wanted = {
        Path(prefix) / p.relative_to(part): p for prefix, part in parts.items() for p in part.rglob("*") if p.is_file()
    }
    for path, source in wanted.items():
        copy = target / path
        if (
            not copy.is_file()
            or copy.stat().st_mtime_ns != source.stat().st_mtime_ns
            or copy.stat().st_size != source.stat().st_size
        ):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_file() and path.relative_to(target) not in wanted:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


# ------------------------------------------------------------------------------ serving


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *arguments):
        pass

    def end_headers(self):
        self.send_header("Cache-Control", "no-cache")  # or a rebuilt page would not be seen
        super().end_headers()


def serve(root: Path, port: int, open_browser: bool = False) -> int:
    """Build, serve on loopback until Ctrl-C, and build again whenever a source is saved."""
    if code := build(root):
        return code
    handler = functools.partial(_Quiet, directory=root / "site")
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        print(f"Port {port} cannot be had ({error.strerror}). Try: readyonce serve --port 0", file=sys.stderr)
        return 1
    address = f"http://127.0.0.1:{server.server_port}/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"\nServing {address} and {address}zh/ - Ctrl-C ends it.", flush=True)
    # Without a screen, webbrowser would start a text browser in this very terminal.
    if open_browser and (
        sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        webbrowser.open(address)
    try:
        _rebuild_on_change(root)
    except KeyboardInterrupt:
        print()
    finally:
        server.shutdown()
        server.server_close()
    return 0


def _rebuild_on_change(root: Path) -> None:
    from watchdog.events import FileSystemEventHandler
    from watchdog.observers import Observer

    changed = threading.Event()

    class Handler(FileSystemEventHandler):
        def on_any_event(self, event):
            if event.event_type not in ("opened", "closed_no_write") and "__pycache__" not in str(event.src_path):
                changed.set()

    observer = Observer()
    for name in WATCHED:
        observer.schedule(Handler(), str(root / name), recursive=True)
    observer.start()
    try:
        while True:
            changed.wait()
            time.sleep(0.2)  # an editor saves in several steps
            changed.clear()
            try:
                build(root)
            except catalog.CatalogError as error:
                print(error, file=sys.stderr, flush=True)
    finally:
        observer.stop()
        observer.join()
