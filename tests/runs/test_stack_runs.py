"""The fix in the reader's own stack: every form that runs here is run again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from readyonce.lab import framework_probe
from support import selection
from support.project import KNOWN, ROOT, apart_at_most

HERE = [name for name, seen in KNOWN.stack_runs.items() if seen.environment == "current"]


@pytest.mark.parametrize("name", HERE)
def test_it_reaches_torch(name):
    """Two processes under gloo: what reaches checkpoint and DDP is what is stored."""
    told = framework_probe.run(ROOT, Path(sys.executable), *name.split())
    stored = KNOWN.stack_runs[name]
    assert told["checkpointing"] == stored.checkpointing
    assert told["find_unused_parameters"] == stored.find_unused_parameters
    assert told.get("error") == stored.error


def test_its_gradient_is_one_process_s():
    """Of a run that the commit draws; of each where they changed, or where everything is run."""
    compared = [name for name in HERE if KNOWN.stack_runs[name].gradient]
    for name in selection.Selection.of(ROOT).some(compared, ["snippets/frameworks/runs.json"]):
        seen = framework_probe.gradient(ROOT, Path(sys.executable), *name.split())
        assert seen.alike and seen.distance <= apart_at_most(name), name


@pytest.mark.parametrize("given, seen", [("True", "reentrant"), ("False", "non-reentrant"), (None, "none")])
def test_watch_tells_them_apart(tmp_path, given, seen):
    use = f"checkpoint(layer, x, use_reentrant={given})" if given else "layer(x)"
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch.utils.checkpoint import checkpoint\n"
        f"layer, x = torch.nn.Linear(2, 2), torch.ones(1, 2, requires_grad=True)\n{use}.sum().backward()\n"
    )
    watch = ROOT / "snippets" / "frameworks" / "run" / "watch.py"
    done = subprocess.run([sys.executable, watch, tmp_path / "train.py"], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1].removeprefix("RESULT "))
    assert told["checkpointing"] == seen and told["find_unused_parameters"] is None
