"""Takes out of built pages, styles and scripts the white space and comments that nobody sees."""

from __future__ import annotations

import re
from pathlib import Path

# Where white space counts.
_KEPT = re.compile(r"(?s)(<(code|pre|script|style|textarea)\b.*?</\2>)")


def folder(built: Path) -> None:
    """Every page, and our own styles and scripts: the theme's come without."""
    import rcssmin
    import rjsmin

    shorten = {"*.html": page, "stylesheets/*.css": rcssmin.cssmin, "javascripts/*.js": rjsmin.jsmin}
    for kind, shorter in shorten.items():
        for path in built.rglob(kind):
            if "assets" not in path.relative_to(built).parts:
                path.write_text(shorter(path.read_text(encoding="utf-8")), encoding="utf-8")


def page(html: str) -> str:
    """Runs of white space become one space or line break, except where they are seen. A no-break space is none of it."""
    kept = _KEPT.split(html)  # text, element, its name, text, element ...
    kept[::3] = [re.sub(r"[ \t\r\n]+", lambda run: "\n" if "\n" in run[0] else " ", text) for text in kept[::3]]
    del kept[2::3]
    return "".join(kept)
