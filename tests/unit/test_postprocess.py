"""What is changed in the theme's own files."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from readyonce.publish import postprocess


def test_a_node_of_the_search_has_a_name_of_its_own():
    package = find_spec("material")
    assert package and package.submodule_search_locations
    (worker,) = Path(package.submodule_search_locations[0]).glob("templates/assets/javascripts/workers/search.*.js")
    text = worker.read_text(encoding="utf-8")
    mended = postprocess.search_worker(text)
    assert len(mended) == len(text) + len('+","') and '.id+","}' in mended
    with pytest.raises(ValueError, match="another one"):
        postprocess.search_worker(mended)
