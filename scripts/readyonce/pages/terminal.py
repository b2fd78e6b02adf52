"""An article as text for a terminal."""

from __future__ import annotations

import re
import textwrap

from readyonce.data import articles, frameworks
from readyonce.data.catalog import Catalog
from readyonce.data.markup import without_links
from readyonce.data.project import Language
from readyonce.data.terminal import printable
from readyonce.pages.committed import Committed, without_front_matter
from readyonce.pages.incident import includes


def for_terminal(catalog: Catalog, id: str, language: Language, colour: bool) -> str:
    """An article, its lab book and its files: includes filled in, page markup taken out."""
    incident, path = catalog.incidents[id], catalog.root / "docs" / language / "incidents" / f"{id}.md"
    lab_book = path.with_suffix("") / "evidence.md"
    stacks = frameworks.includes(catalog, language)
    # A terminal has room: all forms, where the page has the first.
    stacks |= {name: stacks[re.sub(r"-first(-.*)?\.md$", ".md", name)] for name in stacks if "-first" in name}
    made = includes(catalog, incident, language) | stacks
    files = Committed(catalog, language).files_page(incident)
    parts = [page.read_text(encoding="utf-8") for page in (path, lab_book) if page.is_file()] + [files]
    text = "\n".join(map(without_front_matter, parts))
    return _plain(printable(_filled(catalog, text, made, language)), colour)


def listing(catalog: Catalog, language: Language) -> str:
    """Each incident: its id, what it is about, and the error that one sees."""
    lines = []
    for incident in catalog.incidents.values():
        titles = [catalog.families[name].title[language] for name in incident.meta.errors]
        lines.append(f"{incident.id}  {incident.named(language)}")
        lines.append(f"         {', '.join(titles) or incident.meta.title[language]}")
    return "".join(f"{line}\n" for line in lines)


def _filled(catalog: Catalog, text: str, made: dict[str, str], language: Language) -> str:
    def content(found: re.Match[str]) -> str:
        include = articles.Include(0, found[2], found[3])
        if include.path in made:
            whole = made[include.path]
        elif path := articles.find(include, articles.places(catalog.root, language)):
            whole = path.read_text(encoding="utf-8") if path.suffix != ".svg" else ""
        else:
            whole = ""  # an include of a whole-catalog table: `readyonce check` sees to missing ones
        part = articles.section(whole, include.section) if whole else ""
        return textwrap.indent(part.rstrip("\n"), found[1])

    return re.sub(r'^( *)--8<-- "([^":]+)(?::([\w-]+))?" *$', content, text, flags=re.MULTILINE)


def _plain(text: str, colour: bool) -> str:
    bold, faint, off = ("\033[1m", "\033[2m", "\033[0m") if colour else ("", "", "")
    lines, fence = [], ""
    for line in text.splitlines():
        mark = re.match(r" *(`{3,})", line)
        if mark and (not fence or line.strip() == fence):
            fence = "" if fence else mark[1]
            continue
        if fence:
            lines.append(f"    {line}")
            continue
        if re.match(r" *</?(div|figure|figcaption|details|summary)\b", line) or re.match(r" *\{[^}]*\} *$", line):
            continue
        line = re.sub(r"<a id[^>]*></a>", "", line)
        line = re.sub(r"<span[^>]*>([^<]*)</span>", r"[\1]", line)
        line = re.sub(r" *\{ ?(?:[#.]|data-)[^}]*\}", "", line)
        line = re.sub(r'^( *)(?:(?:\?\?\?\+?|!!!) \w+|===) "(.*)"', r"\1\2", line)
        line = re.sub(r"\[([^\]]+)\]\((https?://[^)]+)\)", r"\1 <\2>", line)
        line = without_links(line).replace("<br>", " ").replace("**", "")
        if heading := re.match(r"#+ +(.*)", line):
            line = f"{bold}{heading[1]}{off}"
        if re.match(r" *\| *-+", line):
            continue
        if line or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines)
