"""What somebody else wrote gives no orders to the terminal that shows it. Needs nothing."""

from __future__ import annotations

import re

_ORDER = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # a colour, a movement
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # a title, a link
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # any other control character; line feeds and tabs stay
    r"|[\u202a-\u202e\u2066-\u2069]"  # text that runs backwards
)


def printable(text: str) -> str:
    return _ORDER.sub("", text)
