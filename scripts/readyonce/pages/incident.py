"""The includes of one incident: of its article and of its lab book."""

from __future__ import annotations

from readyonce.data.catalog import Catalog, Incident
from readyonce.data.project import Language
from readyonce.pages.article import Article
from readyonce.pages.lab_book import LabBook


def includes(catalog: Catalog, incident: Incident, language: Language) -> dict[str, str]:
    """Path of the include → Markdown, SVG or plain text."""
    article, book = Article(catalog, language, incident), LabBook(catalog, language, incident)
    files = {
        "lead.md": article.lead(),
        "header.md": article.header(),
        "minimal.md": article.minimal(),
        "claims.md": article.claims(),
        "affected.md": article.affected(),
    }
    for call, environment in incident.printed_of.items():
        lines = incident.printed[environment].lines.get(call, []) if environment in incident.printed else []
        files[incident.printed_files[call]] = "".join(f"{line}\n" for line in lines)
    if incident.short:  # it has no lab book
        return {f"{incident.id}/{name}": text for name, text in files.items()}
    files["all-claims.md"] = article.all_claims()
    files |= {"strip.md": article.strip(), "evidence.md": book.evidence(), "numbers.md": book.numbers()}
    files |= dict(book.tables()) | dict(book.seen())
    return {f"{incident.id}/{name}": text for name, text in files.items()}
