"""Files in git that are generated, in part or in full: front matter, navigation, lists of tags, README's table, what
repros have from `compare.py`, and the list of changes."""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path
from typing import Any

import yaml

from readyonce.data import changes, links
from readyonce.data.articles import section
from readyonce.data.catalog import MINIMAL_RUNS, PRINTED, SETTINGS, Catalog, Incident
from readyonce.data.markup import code, table_row
from readyonce.data.project import LANGUAGES, Language
from readyonce.data.schema import FamilyFile
from readyonce.pages.overview import first_sentence
from readyonce.pages.page import Page

Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
LEXERS = {"py": "python", "sh": "bash", "json": "json"}  # of the files that an incident shows in full
COPIED = "# Copied from scripts/readyonce/compare.py, which `readyonce render` writes here.\n"
UNTRANSLATED = "untranslated: "  # in the front matter of an article that stands here in the other language
READMES: dict[str, Language] = {"README.md": "en", "README.zh-CN.md": "zh"}


def committed(catalog: Catalog) -> dict[Path, str]:
    """Each such file, with the text that it should have."""
    files: dict[Path, str] = {}
    for language in LANGUAGES:
        files |= Committed(catalog, language).pages()
    scripts = [path for incident in catalog.incidents.values() for path in incident.scripts]
    for path in (*scripts, catalog.root / "scripts/readyonce/cli/skeleton/repro.py"):
        if path.is_file() and COPIED in (text := catalog.text(path)):
            files[path] = with_compare(text)
    for name, language in READMES.items():
        path = catalog.root / name
        if path.is_file():
            files[path] = Committed(catalog, language).with_incidents(catalog.text(path))
    for name in ("mkdocs.yml", "mkdocs.zh.yml"):
        path = catalog.root / name
        if path.is_file():
            files[path] = Committed(catalog, "zh" if ".zh." in name else "en").with_navigation(catalog.text(path))
    if (path := catalog.root / changes.FILE).is_file():
        files[path] = changes.text(catalog)
    return files


class Committed(Page):
    def pages(self) -> dict[Path, str]:
        docs, files = self.catalog.root / "docs" / self.language, {}
        for incident in self.catalog.incidents.values():
            path = docs / "incidents" / f"{incident.id}.md"
            if incident.short and (text := self._untranslated(path)):
                files[path] = self._with_front_matter(text, incident, untranslated=True)
                files[path.with_suffix("") / "files.md"] = self.files_page(incident)
            elif path.is_file():
                files[path] = self._with_front_matter(self.catalog.text(path), incident)
                files[path.with_suffix("") / "files.md"] = self.files_page(incident)
            if not incident.short and path.is_file():
                files[path.with_suffix("") / "claims.md"] = self.claims_page(incident)
            book = path.with_suffix("") / "evidence.md"
            if book.is_file():
                files[book] = self._with_front_matter(self.catalog.text(book), incident, lab_book=True)
        errors = docs / "errors"
        if (errors / "look-alikes.md").is_file():
            files |= {errors / family.source: self._look_alike(family) for family in self.catalog.listed("look-alikes")}
        path = docs / "tags.md"
        if path.is_file():
            files[path] = self._with_listings(self.catalog.text(path))
        return files

    def _untranslated(self, path: Path) -> str:
        """The other language's article, where a short incident has none in this one, or one that was made so before."""
        if path.is_file() and UNTRANSLATED not in self.catalog.text(path).partition("\n---\n")[0]:
            return ""
        other = (
            self.catalog.root
            / "docs"
            / next(one for one in LANGUAGES if one != self.language)
            / "incidents"
            / path.name
        )
        text = without_front_matter(self.catalog.text(other)) if other.is_file() else ""
        title, _, rest = text.partition("\n")
        incident = self.catalog.incidents[path.stem]
        return (
            f"# {incident.meta.title[self.language]} {{#{path.stem.lower()}}}\n\n{self.say('untranslated')}\n{rest}"
            if title
            else ""
        )

    def files_page(self, incident: Incident) -> str:
        """All files of an incident in full. In the article they would outweigh the rest."""
        stored = (MINIMAL_RUNS, SETTINGS, PRINTED)
        listed = (name for name in os.listdir(incident.folder) if name[0] != "." and name not in stored)
        names = sorted(name for name in listed if name.rpartition(".")[2] in LEXERS)
        title = links.label(incident.id, self.say("files"))
        return self.fill(
            "files.md",
            incident=incident,
            title=title,
            description=json.dumps(self.after(title, ", ".join(names)), ensure_ascii=False),
            files={name: LEXERS[name.rpartition(".")[2]] for name in names},
            printed=incident.printed_files,
            environments={call: name for call, name in incident.printed_of.items() if name != "current"},
        )

    def claims_page(self, incident: Incident) -> str:
        """All claims of an incident, with the runs that judge each. The article has those that a reader can follow."""
        title = links.label(incident.id, self.say("all-claims"))
        description = self.after(title, incident.meta.title[self.language])
        return self.fill(
            "claims-page.md", incident=incident, title=title, description=json.dumps(description, ensure_ascii=False)
        )

    def _look_alike(self, family: FamilyFile) -> str:
        """A page for each error, so that a search for its text leads to it alone."""
        title, text = (part[self.language].replace("`", "") for part in (family.title, family.text))
        return self.fill(
            "look-alike-page.md",
            family=family,
            title=json.dumps(title, ensure_ascii=False),
            description=json.dumps(first_sentence(text), ensure_ascii=False),
        )

    def _with_front_matter(
        self, text: str, incident: Incident, lab_book: bool = False, untranslated: bool = False
    ) -> str:
        meta = incident.meta
        matter: dict[str, Any] = {
            "title": meta.short[self.language],
            "headline": meta.title[self.language],
            "description": meta.summary[self.language],
        }
        above = [{"to": "incidents/index", "title": self.say("incidents")}]
        matter["up"] = above
        matter["titles"] = meta.short.model_dump()  # 404.html is one page for both languages
        matter["incident"] = incident.id
        matter["tags"] = meta.tags.all(self.language)
        matter["search"] = {"boost": incident.meta.boost}
        if lab_book:  # who searches wants the article
            title = self.say("lab-book")
            description = self.after(links.label(incident.id, title), meta.title[self.language])
            above.append({"to": f"incidents/{incident.id}", "title": incident.id})
            matter = {"title": title, "description": description, "incident": incident.id, "up": above}
            matter["search"] = {"boost": 0.05}
        if untranslated:
            matter[UNTRANSLATED.strip(": ")] = True
        dumped = yaml.dump(matter, Dumper=Dumper, allow_unicode=True, sort_keys=False, width=10_000)
        return f"---\n{dumped}---\n\n{without_front_matter(text)}"

    def _with_listings(self, text: str) -> str:
        """Below each heading `{#framework}` and so on, one directive lists the tags of that kind; a merge may have left two."""

        def directive(found: re.Match[str]) -> str:
            incidents = self.catalog.incidents.values()
            names = {name for incident in incidents for name in incident.meta.tags.kind(found[2], self.language)}
            return f"{found[1]}<!-- material/tags {{ include: {json.dumps(sorted(names), ensure_ascii=False)} }} -->\n"

        return re.sub(
            r"(\{#(framework|strategy|hardware|symptom)\}\n\n(?:[^#<].*\n\n)*)(?:<!-- material/tags\b.*?-->\n?)+(?=\n|\Z)",
            directive,
            text,
        )

    def with_incidents(self, text: str) -> str:
        """A README's table: below its head a row for each incident, with the error as a text or how it ends without one."""
        rows, families = [], self.catalog.families
        for incident in self.catalog.incidents.values():
            outcomes = [code(families[name].title[self.language]) for name in incident.meta.errors if name in families]
            outcomes = outcomes or [self.say("no-error", self.say(incident.word_for(incident.outcome)))]
            link = f"[{incident.id}](docs/{self.language}/incidents/{incident.id}.md)"
            rows.append([link, incident.meta.short[self.language], "<br>".join(outcomes)])
        made = "".join(map(table_row, rows))
        return re.sub(
            r"(^\| --- \| --- \| --- \|\n)(?:\| \[[A-Z].*\n)*", lambda found: found[1] + made, text, flags=re.MULTILINE
        )

    def with_navigation(self, text: str) -> str:
        """A site's configuration, with the errors that have a page of their own."""
        pages = [f"errors/{family.family}.md" for family in self.catalog.listed("own")]
        return _NAVIGATION.sub(lambda found: found[1] + "".join(f"{found[2]}- {page}\n" for page in pages), text)


_NAVIGATION = re.compile(r"(( *)# errors: written by `readyonce render`\n)(?: *- errors/(?!index|look).*\.md\n)*")


def with_compare(text: str) -> str:
    """A script with the one definition of `match` in place of its copy."""
    return re.sub(
        re.escape(COPIED) + r"(?:LIMIT = .*\n+)?def compare\(.*?(?=\n\n\n|\n# --8<--|\Z)",
        lambda _: COPIED + _definition(),
        text,
        count=1,
        flags=re.DOTALL,
    )


@functools.cache
def _definition() -> str:
    source = Path(__file__).parents[1].joinpath("compare.py").read_text(encoding="utf-8")
    return section(source, "compare").strip()


def without_front_matter(text: str) -> str:
    return re.sub(r"\A---\n.*?\n---\n+", "", text, flags=re.DOTALL)
