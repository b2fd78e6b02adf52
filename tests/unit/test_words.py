"""The words of generated parts: every language has the same, with the same to put in."""

import pytest

from readyonce.data import words
from readyonce.data.project import LANGUAGES
from readyonce.data.reading import CatalogError
from support.texts import put_in


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_words(language):
    first, these = words.of(LANGUAGES[0]), words.of(language)
    assert list(these) == list(first)
    assert {key: put_in(text) for key, text in these.items()} == {key: put_in(text) for key, text in first.items()}


def test_words_are_given_as_they_stand_or_filled(monkeypatch):
    monkeypatch.setattr(words, "of", lambda language: {"plain": "50 %", "two": "{} of {all}", "braces": "{{ x }}{}"})
    assert words.say("plain", "en") == "50 %"
    assert words.say("two", "en", 1, all=2) == "1 of 2"
    assert words.say("braces", "en", "!") == "{ x }!"
    with pytest.raises(CatalogError, match=r"words\.en\.yml:1: there is no text `none`"):
        words.say("none", "en")
