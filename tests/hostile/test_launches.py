"""Launches that are made to break the lint."""

import random
import resource

import pytest

from readyonce.launches import shell
from readyonce.lint import judge
from support import fuzzed
from support.launches import HOSTILE, READER, RULES, TRAPS, linted
from support.project import TESTS

MOST = {
    resource.RLIMIT_AS: 512 << 20,
    resource.RLIMIT_CPU: 50,
}  # bytes, and seconds of a processor, that the command may have


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_ends_and_says_so(name, tmp_path):
    (tmp_path / name).write_text(HOSTILE[name])
    done = linted(tmp_path / name, limits=MOST)
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr, done.stderr
    if done.returncode == 2:
        assert name in done.stderr


def test_random_damage_never_ends_in_a_traceback():
    chance = random.Random(7)
    texts = [trap["script"] for trap in TRAPS.values()]
    signs = list("'\"\\$`(){}[]|&;<>\n=#@*-! \t\0") + ["${", "$(", "<<", "[@]}", "--", "'{\"a\": 1}'"]
    for _ in range(2000):
        text = chance.choice(texts)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(signs) + text[at + chance.randrange(3) :]
        try:
            for found in READER.script("train.sh", text):
                judge.judge(RULES, found, {})
        except shell.Unreadable:
            pass


@pytest.mark.parametrize("name", sorted(path.name for path in (TESTS / "fuzz/corpus/lint").iterdir()))
def test_what_once_broke_it(name):
    """What `make fuzz` found, and what was found by hand."""
    fuzzed.judged((TESTS / "fuzz/corpus/lint" / name).read_bytes())
