"""Source code of the libraries, which speaks of all errors, is none of them."""

import os
import sys
from pathlib import Path

from readyonce.diagnose import engine
from support.logs import ENGINE, pasted_in_pieces


def test_source_code_of_the_libraries_is_no_hit():
    """The files that raise these errors speak of all of them."""
    found = []
    for name in (
        "torch/utils/checkpoint.py",
        "torch/nn/parallel/distributed.py",
        "torch/distributed/fsdp/_flat_param.py",
        "deepspeed/runtime/engine.py",
        "deepspeed/runtime/zero/partition_parameters.py",
        "deepspeed/runtime/zero/stage3.py",
        "deepspeed/runtime/zero/stage_1_and_2.py",
        "transformers/integrations/accelerate.py",
    ):
        found += [path for path in (os.path.join(folder, name) for folder in sys.path) if os.path.isfile(path)][:1]
    assert found, "none of the libraries is installed: pip install -r tests/requirements.txt"
    for path in found:
        with open(path, "rb") as file:
            answer = engine.diagnose(ENGINE, file.read())
        assert answer.json["kind"] == "unknown" or answer.note == "mention", path


def test_it_holds_no_part_of_an_error():
    """In pieces, as people paste."""
    paths = []
    for name in (
        "torch/nn/parallel/*.py",
        "torch/utils/checkpoint.py",
        "torch/distributed/fsdp/*.py",
        "deepspeed/runtime/zero/*.py",
    ):
        paths += [path for folder in sys.path for path in Path(folder).glob(name)]
    assert pasted_in_pieces(paths) >= 2000
