"""What a search engine shows of a page."""

import unicodedata

import pytest
import yaml

from readyonce import articles
from readyonce.project import LANGUAGES


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_search_result_shows_the_whole_description(root, language):
    """Of what it finds, a search engine shows some 160 columns. A look-alike begins with a sentence to be read whole."""
    for path in sorted((root / "docs" / language).rglob("*.md")):
        text = (yaml.safe_load(articles.read(path).front_matter) or {}).get("description", "")
        wide = sum(1 + (unicodedata.east_asian_width(it) in "WFA") for it in text)
        assert wide <= 160 or path.parent.name == "look-alikes", (path, wide)
