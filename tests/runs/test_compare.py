"""What `match` means, on tensors of a small training: one process, nothing launched."""

import pytest
import torch

from readyonce.compare import LIMIT, compare
from readyonce.data import schema

GENERATOR = torch.Generator().manual_seed(0)
START = {
    "embed": torch.randn(8, 4, generator=GENERATOR),
    "layer.weight": torch.randn(4, 4, generator=GENERATOR),
    "layer.bias": torch.randn(4, generator=GENERATOR),
    "head.weight": torch.randn(2, 4, generator=GENERATOR),
    "slow": 100 + torch.randn(4, generator=GENERATOR),
}
MOVE = {name: 0.1 * torch.randn(START[name].shape, generator=GENERATOR) for name in START}
REFERENCE = {name: START[name] + MOVE[name] for name in START}


def outcome(**changed):
    return compare("v", {**REFERENCE, **changed}, REFERENCE, START)


def test_the_same_is_a_match():
    assert outcome() == {
        "variant": "v",
        "outcome": "match",
        "gradient_error": 0.0,
        "rank_spread": 0.0,
        "worst": "embed",
    }
    assert schema.MATCH == LIMIT


def test_rounding_is_a_match():
    """The same sums in another order, as ranks add them."""
    thirds = {name: START[name] + MOVE[name] / 3 + MOVE[name] / 3 + MOVE[name] / 3 for name in START}
    told = compare("v", thirds, REFERENCE, START)
    assert told["outcome"] == "match" and 0 < told["gradient_error"] < LIMIT


@pytest.mark.parametrize("factor", [0.0, 0.8, 0.99, 1.01, 1.2])
@pytest.mark.parametrize("name", list(START))
def test_a_gradient_that_is_off_in_one_tensor(name, factor):
    """Also in one that is large beside its movement: a hundredth of that is only a hundred-thousandth of its values."""
    told = outcome(**{name: START[name] + factor * MOVE[name]})
    assert told["outcome"] == "diverge" and told["worst"] == name
    assert told["gradient_error"] == pytest.approx(abs(1 - factor), rel=0.05)


def test_a_tensor_that_is_lost():
    trained = dict(REFERENCE)
    del trained["layer.bias"]
    with pytest.raises(AssertionError, match="not the same tensors"):
        compare("v", trained, REFERENCE, START)
    with pytest.raises(AssertionError, match="not the same tensors"):
        compare("v", REFERENCE, trained, START)


def test_two_tensors_that_changed_places():
    told = outcome(**{"layer.bias": REFERENCE["slow"], "slow": REFERENCE["layer.bias"]})
    assert told["outcome"] == "diverge"
    with pytest.raises(AssertionError, match="embed"):
        outcome(**{"layer.bias": REFERENCE["embed"], "embed": REFERENCE["layer.bias"]})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number(value):
    broken = REFERENCE["slow"].clone()
    broken[2] = value
    told = outcome(slow=broken)
    assert told["outcome"] == "diverge" and told["worst"] == "slow" and told["gradient_error"] > 1e30
    assert told["gradient_error"] < float("inf"), "JSON has no word for it"


def test_what_did_not_move_is_named_and_what_moved_alone_is_wrong():
    start = START | {"unused": torch.ones(3)}
    reference = REFERENCE | {"unused": torch.ones(3)}
    told = compare("v", reference, reference, start)
    assert told["outcome"] == "match" and told["unmoved"] == ["unused"]
    told = compare("v", reference | {"unused": torch.ones(3) + 1e-3}, reference, start)
    assert told["outcome"] == "diverge" and told["worst"] == "unused"


def test_too_many_that_moved_too_little_are_no_match():
    """One in twenty may be unjudged, and is named with the smallest error that it could show."""
    nearly = torch.ones(3) + 1e-5
    many = {f"other{i}": torch.zeros(2) for i in range(15)}
    moved = {name: tensor + 1 for name, tensor in many.items()}
    told = compare("v", *2 * [REFERENCE | moved | {"hardly": nearly}], START | many | {"hardly": torch.ones(3)})
    assert told["outcome"] == "match" and told["unjudged"].keys() == {"hardly"} and told["unjudged"]["hardly"] > LIMIT
    with pytest.raises(AssertionError, match="moved too little to be judged: {'hardly'"):
        compare("v", *2 * [REFERENCE | {"hardly": nearly}], START | {"hardly": torch.ones(3)})
