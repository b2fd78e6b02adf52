"""The words of generated parts: every language has the same, with the same to put in."""

import random
import re
import string

import pytest

from readyonce.data import words
from readyonce.data.project import LANGUAGES
from readyonce.data.reading import CatalogError
from support.mutations import change

CHANGES = 60


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
    with pytest.raises(CatalogError, match=r"words\.en\.yml:1: there is no text `none`"):
        words.say("none", "en")


VALUES = (1,) * 9


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_changed_file_of_words_is_told_with_its_place(language, tmp_path, monkeypatch):
    """By chance, always the same; whatever is left is filled in with as many values as before."""
    files = {one: (words.HERE / f"words.{one}.yml").read_bytes() for one in LANGUAGES}
    takes = {key: put_in(text) for key, text in words.of(language).items()}
    monkeypatch.setattr(words, "HERE", tmp_path)
    for one, data in files.items():
        (tmp_path / f"words.{one}.yml").write_bytes(data)
    path, chance, told = tmp_path / f"words.{language}.yml", random.Random(20261129), 0
    for _ in range(CHANGES):
        path.write_bytes(change(chance, files[language], ".yml"))
        words.of.cache_clear()
        try:
            for key, (by_order, names) in takes.items():
                words.say(key, language, *VALUES[:by_order], **dict.fromkeys(names, 1))
        except CatalogError as error:
            told += 1
            assert re.fullmatch(rf"scripts/readyonce/data/words\.{language}\.yml:[1-9]\d*: .+\n    \S.+", str(error)), (
                error
            )
    words.of.cache_clear()
    assert told > CHANGES / 4


@pytest.mark.parametrize(
    "bomb", ["", "- a", "[" * 100_000, "- " * 5000, "a: 1", "a: {b: [c]}", "a: *b", "a: b\na: c", 'a: "\\e"']
)
def test_a_file_of_words_that_is_something_else(bomb, tmp_path, monkeypatch):
    monkeypatch.setattr(words, "HERE", tmp_path)
    (tmp_path / "words.en.yml").write_text(bomb)
    words.of.cache_clear()
    with pytest.raises(CatalogError, match=r"words\.en\.yml:[1-9]\d*: "):
        words.of("en")
    words.of.cache_clear()
