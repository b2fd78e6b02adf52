"""What is kept between two checks is never older than what it was computed from."""

import os

import pytest

from readyonce.check import sources
from readyonce.data import catalog, kept, project


@pytest.fixture
def counted():
    """A kept function, and the texts that it was computed of."""
    texts = []

    @kept.kept
    def length(text):
        texts.append(text)
        return len(text)

    return length, texts


def test_an_answer_is_computed_once_for_each_text(tmp_path, counted):
    length, texts = counted
    for text in ("a", "a", "bb", "a"):
        with kept.between_runs(tmp_path):
            assert length(text) == len(text)
    assert texts == ["a", "bb"]


def test_nothing_is_kept_outside(tmp_path, counted):
    length, texts = counted
    assert length("a") == length("a") == 1 and texts == ["a", "a"]


@pytest.mark.parametrize("data", [b"", b"\xe9", b"N", b"half"])
def test_a_broken_file_is_no_answer(tmp_path, counted, data):
    length, texts = counted
    for _ in range(2):
        with kept.between_runs(tmp_path):
            length("a")
        (tmp_path / kept.FILE).write_bytes(data or (tmp_path / kept.FILE).read_bytes()[:-3])
    assert texts == ["a", "a"]


def test_answers_of_another_program_are_not_used(tmp_path, counted, monkeypatch):
    length, texts = counted
    with kept.between_runs(tmp_path):
        length("a")
    monkeypatch.setattr(kept, "digest_of", lambda folder: "another")
    with kept.between_runs(tmp_path):
        length("a")
    assert texts == ["a", "a"]


def test_the_oldest_are_dropped(tmp_path, counted, monkeypatch):
    length, texts = counted
    monkeypatch.setattr(kept, "MOST", 2)
    for text in ("a", "bb", "ccc", "bb", "a"):
        with kept.between_runs(tmp_path):
            length(text)
    assert texts == ["a", "bb", "ccc", "a"]


def test_what_includes_hold_is_made_anew_for_what_an_edited_file_is_shown_in(copy):
    """Of each edit the kept answer is the one that is computed without any: of the incident, its runs, and of another one."""

    def made():
        return dict(sources.made(catalog.load(copy)) or {})

    edits = [
        ("snippets/RO-0004/incident.yml", "\n  zero2-zero3-only:", "\n  renamed-claim:"),
        ("snippets/RO-0001/evidence/deepspeed-0.19.3.json", '"outcome": "match"', '"outcome": "diverge"'),
        ("snippets/decision.yml", "columns:", "columns: # a comment"),
    ]
    for file, old, new in edits:
        with kept.between_runs(copy):
            before = made()
        path = copy / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        with kept.between_runs(copy):
            after = made()
        assert after == made() and len(after) >= len(before) > 100
        assert (after != before) == file.startswith("snippets/RO-"), file


def test_a_folder_that_cannot_be_written_to(tmp_path, counted):
    length, _ = counted
    (tmp_path / kept.FILE.parts[0]).write_text("no folder", encoding="utf-8")
    with kept.between_runs(tmp_path):
        assert length("a") == 1


def test_a_digest_tells_files_by_their_bytes_and_names(tmp_path):
    (tmp_path / "a").write_text("1", encoding="utf-8")
    before = kept.digest_of(tmp_path)
    (tmp_path / "a").write_text("2", encoding="utf-8")
    assert kept.digest_of(tmp_path) != before
    (tmp_path / "a").write_text("1", encoding="utf-8")
    assert kept.digest_of(tmp_path) == before
    (tmp_path / "a").rename(tmp_path / "b")
    assert kept.digest_of(tmp_path) != before


def test_a_file_is_replaced_and_nothing_else(tmp_path):
    """A device and a pipe stay, a link leads where it led, and a file of somebody else's is not taken for one that was left."""
    (old := tmp_path / "config.2024-01.new").write_text("mine")
    (left := tmp_path / "a.txt.17-139637976727552.new").write_text("half")
    for path in (old, left):
        os.utime(path, (0, 0))
    (link := tmp_path / "link").symlink_to("a.txt")
    project.write_whole(link, "a\u2028\n")
    assert link.is_symlink() and (tmp_path / "a.txt").read_bytes() == "a\u2028\n".encode()
    assert old.read_text() == "mine" and not left.exists()
    reads, writes = os.pipe()
    (pipe := tmp_path / "pipe").symlink_to(f"/proc/self/fd/{writes}")
    project.write_whole(pipe, b"whole")
    assert os.read(reads, 99) == b"whole" and sorted(os.listdir(tmp_path)) == ["a.txt", old.name, "link", "pipe"]
    for end in (reads, writes):
        os.close(end)
