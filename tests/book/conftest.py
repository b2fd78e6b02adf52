"""What the tests of both books share."""

import re

import pytest

from readyonce.publish import book as setter
from support.books import LANGUAGES, Article
from support.project import KNOWN


@pytest.fixture(scope="session", params=LANGUAGES)
def language(request):
    return request.param


@pytest.fixture(scope="session")
def short(books, language):
    """The short book."""
    return books / setter.name(language, setter.SHORT)


@pytest.fixture(scope="session")
def articles(built, root, language):
    """Page of the whole book → its article."""
    folder, pages = root / "build" / "site" / language, {}
    navigation = (root / {"en": "mkdocs.yml", "zh": "mkdocs.zh.yml"}[language]).read_text(encoding="utf-8")
    listed = re.split(r"\n(?=\w)", navigation.partition("\nnav:")[2])[0]
    for name in re.findall(r"^ +- (?:.+: )?(\S+)\.md$", listed, re.M):
        address = re.sub(r"(^|/)index$", r"\1", name)
        pages[address] = Article((folder / address / "index.html").read_text(encoding="utf-8"))
    names = [name.removesuffix(".md") for name in setter._config(root / "mkdocs.yml")["extra"]["more"]]
    for id, incident in KNOWN.incidents.items():
        proofs = [] if incident.short else ["/claims", "/evidence"]
        names += [f"incidents/{id}{name}" for name in ("", *proofs, "/files")]
    for name in names:
        if name not in pages:
            pages[name] = Article((folder / name / "index.html").read_text(encoding="utf-8"))
    assert len(pages) >= 25 and {f"incidents/{id}" for id in KNOWN.incidents} <= pages.keys()
    return pages
