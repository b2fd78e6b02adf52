"""Links to pages of the wiki, in the forms that trackers take."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from readyonce.catalog import Language

FORMS = {"github": "markdown", "gitlab": "markdown", "gitee": "markdown", "jira": "jira"}


def site_url() -> str:
    """Where the wiki is published: $SITE_URL with a slash at its end, or nothing."""
    url = os.environ.get("SITE_URL", "")
    return url and url.rstrip("/") + "/"


def address(site: str, page: str, language: Language, section: str | None = None) -> str:
    """`page` as in `incidents/RO-0001/`; English stands at the top, Chinese under `zh/`."""
    return f"{site}{'' if language == 'en' else f'{language}/'}{page}" + (f"#{section}" if section else "")


def label(id: str, short: str, heading: str | None = None) -> str:
    return f"{id} · {heading or short}"


def link(form: str, text: str, target: str) -> str:
    """As docs/theme/javascripts/links.js does it in the browser."""
    if form == "jira":
        return "[{}|{}]".format(re.sub(r"([\\\[\]{}|])", r"\\\1", text), target)
    return "[{}]({})".format(re.sub(r"([\\\[\]])", r"\\\1", text), target)
