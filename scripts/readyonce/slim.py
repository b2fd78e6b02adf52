"""Takes out of the built site what nobody sees or asks for: white space, comments, names of runs from what the search shows,
search for other languages. Puts tables into their boxes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

# Where white space counts.
_KEPT = re.compile(r"(?s)(<(code|pre|script|style|textarea)\b.*?</\2>)")
# Names and white space in a listing: the theme gives them the colour of what is around them. A tenth of a long listing's weight.
_UNCOLOURED = re.compile(r'<span class="[nw]">([^<]*)</span>')

# A claim's mark: a link in a row that opens. The control that copies its address stands below the row.
_MARK = re.compile(r'<a class="headerlink"[^>]*>[^<]*</a>(?=</h4>|</h3>\s*</summary>)')

# The theme's script puts each table without a class into these boxes, one after another, and the page is laid out again.
_TABLE = re.compile(r"(?s)<table>(.*?</table>)")
_BOXED = r'<div class="md-typeset__scrollwrap"><div class="md-typeset__table"><table class="ro-table">\1</div></div>'


def folder(built: Path) -> None:
    """Every page, and our own styles and scripts: the theme's come without."""
    import rcssmin
    import rjsmin

    shorten = {"*.html": page, "stylesheets/*.css": rcssmin.cssmin, "javascripts/*.js": rjsmin.jsmin}
    for kind, shorter in shorten.items():
        for path in built.rglob(kind):
            if "assets" not in path.relative_to(built).parts:
                path.write_text(shorter(path.read_text(encoding="utf-8")), encoding="utf-8")
    for path in (built / "assets" / "stylesheets").glob("palette.*"):
        path.unlink()  # the theme's colours: ours are in our own style sheet
    index = built / "search" / "search_index.json"
    languages = json.loads(index.read_text(encoding="utf-8"))["config"]["lang"] if index.is_file() else []
    used = {f"lunr.{language}.min.js" for language in languages if language != "en"}  # as the theme's worker asks
    used |= {"lunr.multi.min.js", "lunr.stemmer.support.min.js"} if len(languages) > 1 else set()
    for path in (built / "assets" / "javascripts" / "lunr").rglob("*.js"):
        if path.name not in used:
            path.unlink()


def without_names(built: Path, names: Iterable[str]) -> None:
    """Names of runs tell a reader of search results nothing, and are all that many excerpts would show."""
    named = re.compile(rf"<code>(?:RO-\d{{4}} )?(?:{'|'.join(map(re.escape, names))})(?:@[\w.-]+)?</code>")
    for path in (built / "search").glob("search_index.js*"):
        text = path.read_text(encoding="utf-8")
        if (shorter := named.sub("…", text)) != text:
            path.write_text(shorter, encoding="utf-8")


def page(html: str) -> str:
    """Runs of white space become one space or line break, except where they are seen. A no-break space is none of it.

    Tables get their boxes.
    """
    kept = _KEPT.split(html)  # text, element, its name, text, element ...
    kept[::3] = [re.sub(r"[ \t\r\n]+", lambda run: "\n" if "\n" in run[0] else " ", text) for text in kept[::3]]
    del kept[2::3]
    return _TABLE.sub(_BOXED, _UNCOLOURED.sub(r"\1", _MARK.sub("", "".join(kept))))
