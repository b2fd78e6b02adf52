"""The words of generated parts: every language has the same, with the same to put in."""

import string

import pytest

from readyonce import words
from readyonce.project import LANGUAGES


def put_in(text: str) -> tuple[int, set[str]]:
    """How many values a text takes by their order, and the names of the others."""
    names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    by_order = [name for name in names if not name or name.isdigit()]
    return len(by_order), set(names) - set(by_order)


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
    with pytest.raises(KeyError):
        words.say("none", "en")
