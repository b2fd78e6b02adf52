"""What a page may load and run: its Content-Security-Policy, in the page and for the headers of a host.

The theme has inline scripts, and some differ by the depth of a page: their hashes are taken from the built pages. Only
those outside the article count, so that nothing an author writes becomes a script that runs.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from readyonce.data import project
from readyonce.data.reading import CatalogError, Problem

RULES = (
    "default-src 'none'; script-src 'self' {}; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self' blob:; base-uri 'none'; form-action 'none'"
)
# On disk there is no origin that could be `self`, and nothing can be fetched.
ON_DISK = (
    "default-src 'none'; script-src file: {}; style-src file:; img-src file: data:; font-src file:; "
    "worker-src blob:; base-uri 'none'; form-action 'none'"
)
# What a page cannot say of itself.
HEADERS = {
    "Content-Security-Policy": RULES + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_META = '<meta http-equiv="Content-Security-Policy" content="{}">'
_START = re.compile(r'(?s).*?<head>\s*<meta charset="utf-8">')
_INLINE = re.compile(r"(?s)<script>(.*?)</script>")
_HASH = re.compile(r"'sha256-[\w+/=]+'")


def protect(folder: Path, rules: str = RULES) -> set[str]:
    """Give each page its policy, if it has none yet; returns the hashes of all scripts that the pages may run."""
    hashes = set()
    for page in sorted(folder.rglob("*.html")):
        with page.open(encoding="utf-8") as file:
            head = file.read(4096)
        if _META.partition("{")[0] not in head:
            text = page.read_text(encoding="utf-8")
            start = _START.match(text)
            if not start:
                problem = "the page does not begin with its character set, so it gets no Content-Security-Policy"
                raise CatalogError(
                    [Problem(str(page), 1, problem, "Let docs/theme/main.html begin with that element.")]
                )
            head = _META.format(rules.format(_joined(_scripts(text))))
            project.write_whole(page, f"{start[0]}\n      {head}{text[start.end() :]}")
        hashes.update(_HASH.findall(head))
    return hashes


def write_headers(folder: Path, hashes: set[str]) -> None:
    """The same for a host: `_headers`, which several take as it is, and lines to include in nginx."""
    headers = {name: value.format(_joined(hashes)) for name, value in HEADERS.items()}
    files = {
        "_headers": "/*\n" + "".join(f"  {name}: {value}\n" for name, value in headers.items()),
        "headers.nginx.conf": "".join(f'add_header {name} "{value}" always;\n' for name, value in headers.items()),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _scripts(page: str) -> set[str]:
    outside = page[: page.find("<article")] + page[page.rfind("</article>") :]
    return set(map(_hash, _INLINE.findall(outside)))


@functools.cache
def _hash(code: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def _joined(hashes: Iterable[str]) -> str:
    return " ".join(sorted(hashes))
