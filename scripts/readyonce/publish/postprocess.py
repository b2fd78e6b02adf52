"""Finishes the built pages: puts tables into the theme's boxes, and takes out white space, comments and files that nobody
sees, and the names of runs from what a search shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import partial
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


# Where a long name in a table may break: after what joins its words. In a paragraph it goes into a line of its own.
_CELL = re.compile(r'(?s)<t[dh]\b.*?</t[dh]>|<div class="ro-flow">.*?</div>')  # where a line is short
_CODE = re.compile(r"(?s)(?<!<pre>)<code>.*?</code>")
_JOINT = re.compile(r"(?<=\w)[_.=/@(,:]+(?=\w)(?![^<]*>)")
_LONG = 12  # characters that stand on any screen in one line


_NODE_NAME = re.compile(r"(TokenSet\.prototype\.toString=function\(\)\{[^{}]*\{[^{}]*\b(\w)=\2\+\w\+\w\.id)(?=\})")


def folder(built: Path, runs: Iterable[str]) -> None:
    """The pages of one language, with our own styles and scripts; the theme's come short. `runs` are the names of runs."""
    named = re.compile(rf"<code>(?:RO-\d{{4}} )?(?:{'|'.join(map(re.escape, runs))})(?:@[\w.-]+)?</code>")
    kinds: dict[str, Callable[[str], str]] = {
        "**/*.html": page,
        "stylesheets/*.css": style,
        "javascripts/*.js": script,
        "search/*": partial(named.sub, "…"),
        "assets/javascripts/workers/search.*.js": search_worker,
    }
    for files, finished in kinds.items():
        for path in built.glob(files):
            path.write_text(finished(path.read_text(encoding="utf-8")), encoding="utf-8")
    for path in (built / "assets" / "stylesheets").glob("palette.*"):
        path.unlink()  # the theme's colours: ours are in our own style sheet
    languages = json.loads((built / "search" / "search_index.json").read_text(encoding="utf-8"))["config"]["lang"]
    asked = (*languages, "multi", "stemmer.support") if len(languages) > 1 else ()  # by the theme's worker
    for path in (built / "assets" / "javascripts" / "lunr").rglob("*.js"):
        if path.name not in [f"lunr.{name}.min.js" for name in asked]:
            path.unlink()


def search_worker(text: str) -> str:
    """The theme's search with a sign behind each number of a node.

    lunr names a node by its letters and the numbers of the nodes behind them, one after another. Where letters are digits, two
    nodes can get one name: `2` and 11, `21` and 1. They become one, and a search for what begins so finds nothing at all.
    """
    mended, count = _NODE_NAME.subn(r'\1+","', text)
    if count != 1:
        raise ValueError("the theme's search worker is another one: does lunr still name nodes so? See `search_worker`")
    return mended


def page(html: str) -> str:
    """Runs of white space become one space or line break, except where they are seen. A no-break space is none of it.

    Tables get their boxes, and long names in them get places to break.
    """
    kept = _KEPT.split(html)  # text, element, its name, text, element ...
    kept[::3] = [re.sub(r"[ \t\r\n]+", lambda run: "\n" if "\n" in run[0] else " ", text) for text in kept[::3]]
    del kept[2::3]
    finished = _TABLE.sub(_BOXED, _UNCOLOURED.sub(r"\1", _MARK.sub("", "".join(kept))))
    return _CELL.sub(lambda cell: _CODE.sub(_breakable, cell[0]), finished)


def _breakable(found: re.Match[str]) -> str:
    code = found[0]
    return code if len(code) <= len("<code></code>") + _LONG else _JOINT.sub(r"\g<0><wbr>", code)


def style(text: str) -> str:
    """Without comments, and without the white space that separates nothing."""
    text = re.sub(r"(?:\s|/\*.*?\*/)+", " ", text, flags=re.DOTALL).strip()
    return re.sub(r" ?([{};,]) ?|: ", lambda found: found[1] or ":", text)


def script(text: str) -> str:
    """Without indentation, and without the comments that have lines of their own: those are seen without a parser."""
    lines = map(str.strip, re.sub(r"(?ms)^\s*/\*.*?\*/$", "", text).splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))
