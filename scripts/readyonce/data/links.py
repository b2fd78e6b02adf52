"""Addresses of pages, runs and new issues, and links in the forms that trackers take."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from readyonce.data.project import Language

# Where a forge takes a new issue, by a word in the repository's address; what is known of the error stands for {}.
ISSUES = {
    "gitlab": "/-/issues/new?issue%5Bdescription%5D={}",
    "gitee": "/issues/new?description={}",
    "gitcode": "/issues/create?body={}",
    "atomgit": "/issues/create?body={}",
    "": "/issues/new?template=unknown-error.yml&error={}",  # GitHub, and what follows it
}
FORMS = {"github": "markdown", "gitlab": "markdown", "gitee": "markdown", "jira": "jira"}


def site_url() -> str:
    """Where the wiki is published: $SITE_URL with a slash at its end, or nothing."""
    url = os.environ.get("SITE_URL", "")
    return url and url.rstrip("/") + "/"


def new_issue(repository: str) -> str:
    """The address of a new issue, with {} for what it tells; nothing where the repository is not known."""
    form = next(form for word, form in ISSUES.items() if word in repository)
    return repository and repository.rstrip("/") + form


def version(repository: str, commit: str, path: str) -> str:
    """The address of a file as a commit has it; nothing where the repository is not known."""
    forge = repository and repository.rstrip("/") + ("/-" if "gitlab" in repository else "")
    return forge and f"{forge}/blob/{commit}/{path}"


def address(site: str, page: str, language: Language, section: str | None = None) -> str:
    """`page` as in `incidents/RO-0001/`; English stands at the top, Chinese under `zh/`."""
    return f"{site}{'' if language == 'en' else f'{language}/'}{page}" + (f"#{section}" if section else "")


def label(id: str, short: str, heading: str | None = None) -> str:
    return f"{id} · {heading or short}"


def target(
    compiled: Mapping[str, Any], id: str, section: str | None, language: Language, site: str
) -> tuple[str, str] | None:
    """(label, address) of an incident or one of its sections, as they are compiled; None where there is no such section."""
    page, title = compiled["sections"][language].get(section, (None, None)) if section else (id, None)
    if page is None:
        return None
    return label(id, compiled["short"][language], title), address(site, f"incidents/{page}/", language, section)


def link(form: str, text: str, target: str) -> str:
    """As docs/theme/javascripts/links.js does it in the browser."""
    if form == "jira":
        return "[{}|{}]".format(re.sub(r"([\\\[\]{}|])", r"\\\1", text), target)
    return "[{}]({})".format(re.sub(r"([\\\[\]])", r"\\\1", text), target)


MINIMAL_RUNS = ("minimal", "minimal-fixed")  # of a short incident: its minimal repro as it is, and with --fixed


def run_address(incident: str, variant: str, environment: str) -> str:
    """A run's place in its incident's lab book, as seen from the incidents' folder; of a minimal repro on its page."""
    if variant in MINIMAL_RUNS:
        return f"{incident}.md#{run_id(variant, environment)}"
    return f"{incident}/evidence.md#{run_id(variant, environment)}"


def run_id(variant: str, environment: str) -> str:
    """The anchor of a run in its incident's lab book."""
    return f"run-{variant}{in_environment(environment)}"


def in_environment(environment: str) -> str:
    """What names of anchors and sections end with for runs outside the current environment."""
    return "" if environment == "current" else f"-in-{environment.replace('.', '-')}"
