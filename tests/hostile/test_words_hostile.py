"""Files of words that are changed by chance, or are something else: the place is told."""

import random
import re

import pytest

from readyonce.data import words
from readyonce.data.project import LANGUAGES
from readyonce.data.reading import CatalogError
from support.mutations import change
from support.texts import put_in

CHANGES = 200
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
