"""What stands beside the pages for programs that follow or read them: the Atom feed, llms.txt and a skill for coding agents."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from xml.etree import ElementTree

from readyonce.data import articles, history, links
from readyonce.data.catalog import Catalog, Incident
from readyonce.data.project import LANGUAGES, Language
from readyonce.data.words import say
from readyonce.publish import api

ATOM = "http://www.w3.org/2005/Atom"


def files(catalog: Catalog) -> dict[str, str]:
    """Path in the site → text. The feed needs SITE_URL, since each of its ids is an address."""
    made = {links.address("", "llms.txt", language): llms(catalog, language) for language in LANGUAGES}
    made["SKILL.md"] = catalog.text(catalog.root / "snippets" / "agents" / "SKILL.md")
    if links.site_url():
        known = history.dates(catalog.root)
        made |= {links.address("", "feed.xml", language): atom(catalog, known, language) for language in LANGUAGES}
    return made


def atom(catalog: Catalog, known: dict[str, tuple[str, str]], language: Language) -> str:
    """An entry for each incident, the last changed first. Dates are those `known` from git, else the evidence's."""
    site = links.site_url()
    dated = [(known.get(id) or _dates(incident), incident) for id, incident in catalog.incidents.items()]
    dated.sort(key=lambda entry: (entry[0][1], entry[1].id), reverse=True)
    feed = ElementTree.Element("feed", {"xmlns": ATOM, "xml:lang": {"en": "en", "zh": "zh-Hans"}[language]})
    home = links.address(site, "", language)

    def add(to: ElementTree.Element, name: str, text: str | None = None, **attributes: str) -> ElementTree.Element:
        element = ElementTree.SubElement(to, name, attributes)
        element.text = text
        return element

    add(feed, "id", home)
    add(feed, "title", f"ReadyOnce{say('colon', language)}{say('incidents', language)}")
    add(feed, "updated", max((dates[1] for dates, _ in dated), default="1970-01-01T00:00:00Z"))
    add(feed, "link", rel="self", href=f"{home}feed.xml", type="application/atom+xml")
    add(feed, "link", rel="alternate", href=home, type="text/html")
    add(add(feed, "author"), "name", "ReadyOnce")
    for (published, updated), incident in dated:
        meta = incident.meta
        entry = add(feed, "entry")
        target = links.address(site, f"incidents/{incident.id}/", language)
        add(entry, "id", target)
        add(entry, "title", links.label(incident.id, meta.short[language]))
        add(entry, "link", rel="alternate", href=target, type="text/html")
        add(entry, "published", published)
        add(entry, "updated", updated)
        for tag in meta.tags.all(language):
            add(entry, "category", term=tag)
        add(entry, "summary", meta.summary[language] + say("next", language) + meta.fix.text[language])
    ElementTree.indent(feed)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(feed, encoding="unicode") + "\n"


def _dates(incident: Incident) -> tuple[str, str]:
    ran = sorted(evidence.environment.date for evidence in incident.evidence.values())
    ran = ran or [incident.ran_in.date if incident.ran_in else incident.meta.reported.date]
    return f"{ran[0]}T00:00:00Z", f"{ran[-1]}T00:00:00Z"


def llms(catalog: Catalog, language: Language) -> str:
    """A list of the pages with their descriptions (llmstxt.org); without SITE_URL its links are relative.

    The files and the claims of an incident stand one below its article, so they are not listed.
    """
    docs = catalog.root / "docs" / language
    groups: dict[str, list[str]] = {}
    lead = ""
    for path in sorted(docs.rglob("*.md")):
        page = PurePosixPath(path.relative_to(docs).as_posix())
        if catalog.is_files_page(page):
            continue
        if incident := catalog.incidents.get(page.stem):
            matter = {"title": incident.meta.short[language], "description": incident.meta.summary[language]}
        else:
            matter = articles.matter(catalog, articles.read(path, catalog.text(path)))
        if page.name == "index.md":
            if page.parent.name == "":
                lead = matter.get("description", "")
            continue
        title = matter.get("title", page.stem)
        if id := re.search(r"RO-[0-9]{4}", str(page)):  # its article, or its lab book
            title = links.label(id[0], title)
        target = links.address(links.site_url(), f"{page.with_suffix('')}/", language)
        if not links.site_url():
            target = target.removeprefix(f"{language}/")  # llms.txt stands in that folder itself
        line = f"- {links.link('markdown', title, target)}: {matter.get('description', '')}"
        groups.setdefault(page.parts[0] if len(page.parts) > 1 else "", []).append(line)
    parts = [f"# ReadyOnce\n\n> {lead}\n"]
    for name in ("incidents", "errors", "", *sorted(groups)):
        if lines := groups.pop(name, None):
            parts.append(f"## {say(name or 'pages', language)}\n\n" + "\n".join(lines) + "\n")
    up = "" if language == "en" or links.site_url() else "../"
    data = [f"- [{name}]({links.site_url() or up}api/v1/{name})" for name in sorted(api.NAMES)]
    data.append(f"- [SKILL.md]({links.site_url() or up}SKILL.md)")
    parts.append(f"## {say('data', language)}\n\n" + "\n".join(data) + "\n")
    return "\n".join(parts)
