"""What a page adds to the theme's own files, as it travels: at most 30 kB, packed with gzip."""

import gzip
import re

import pytest

MOST = 30_000
# What an article folds away: the files that it shows in full. They are weighed apart.
WHOLE_FILES = re.compile(r'(?s)<details class="example">.*?</details>')
# Above the aim. Diagnose brings its engine and all signatures, 22 kB, and looks nothing up elsewhere; the page of all
# advice and the longest articles are text and tables.
HEAVIER = {"diagnose/": 37_000, "advice/": 33_000, "incidents/RO-0004/": 32_000, "incidents/RO-0005/": 31_000}
OWN = re.compile(r'<(?:script|link|img|object)\b[^>]*?\b(?:src|href|data)="([^"#?:]+\.(?:js|css|svg|png|webp))"')


def packed(text: bytes) -> int:
    return len(gzip.compress(text, 9, mtime=0))


@pytest.fixture(scope="module")
def weights(built) -> dict[str, tuple[int, int]]:
    """Page → its weight, and that of the files which it shows in full."""
    found = {}
    for path in built.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        shown = WHOLE_FILES.sub("", html)
        # The page for what is not found has its addresses from the top.
        with_it = {(built / it[1:] if it[0] == "/" else path.parent / it).resolve() for it in OWN.findall(html)}
        own = sum(packed(it.read_bytes()) for it in with_it if "assets" not in it.parts)
        weight = packed(shown.encode())
        name = path.relative_to(built).as_posix().removesuffix("index.html")
        found[name] = (weight + own, packed(html.encode()) - weight)
    return found


def test_no_page_is_heavy(weights):
    limits = {name: HEAVIER.get(name.removeprefix("zh/"), MOST) for name in weights}
    heavy = sorted((weight, name) for name, (weight, _) in weights.items() if weight > limits[name])
    assert not heavy, f"bytes, gzip: {heavy[::-1]}"


def test_files_shown_in_full_weigh_no_more_than_a_page(weights):
    heavy = sorted((files, name) for name, (_, files) in weights.items() if files > MOST)
    assert not heavy, f"bytes, gzip: {heavy[::-1]}"
