"""Runs the framework's own command, `launch.sh`, as a reader types it, with a tiny model in place of the real one.

What a run trained is compared with the same launch without checkpointing: same ranks, seed and data.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from readyonce.data.catalog import Catalog, Incident, Variant
from readyonce.lab import cleanup
from readyonce.lab.processes import START_LIMIT, LabError, Observation, finished, log_of, message_in, running
from readyonce.lab.recording import with_lines

# Torch's threads, now and then, when a framework ends without a barrier and all is saved: not an outcome.
TEARDOWN = "terminate called without an active exception"


class Commands:
    """The commands of one incident in one environment. Holds the tiny model and the runs to compare with; close it."""

    def __init__(self, catalog: Catalog, incident: Incident, python: Path):
        self.catalog, self.incident, self.python = catalog, incident, python
        self._folder = cleanup.folder()
        self._scratch = Path(self._folder.__enter__())
        self._references: dict[str, tuple[Path, Path]] = {}
        self._tiny: dict[str, Any] | None = None

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.__exit__(None, None, None)

    def run(self, variant: Variant) -> Observation:
        """Raises `LabError` where the tiny model cannot be made, or the run to compare with fails."""
        script = self._script(variant, variant.lines)
        code, log, output, seconds = self._launch(variant, script)
        if code is None:
            return Observation(variant.name, "hang", seconds=seconds, log=log)
        if code:
            message = message_in(log)
            family = self.catalog.family_of(message)
            return Observation(variant.name, "error", family, message, seconds=seconds, log=log)
        told = _compared(variant.name, _saved(output)[-1], *self._reference(variant))
        return finished(variant, told, seconds, log)

    def _script(self, variant: Variant, lines: dict[str, str]) -> str:
        return with_lines((self.incident.folder / variant.script).read_text(encoding="utf-8"), lines)

    def _reference(self, variant: Variant) -> tuple[Path, Path]:
        """The last and the first checkpoint of the launch to compare with."""
        script = self._script(variant, variant.lines | self.incident.meta.reference)
        if script not in self._references:
            code, log, output, _ = self._launch(variant, script)
            if code != 0:
                raise LabError(
                    f"{variant.name}: the launch without checkpointing, to compare with, failed\n{log[-3000:]}"
                )
            first, *_, last = _saved(output)
            start = _tensors(first)
            if all(tensor.equal(start[name]) for name, tensor in _tensors(last).items()):
                raise LabError(f"{variant.name}: the launch to compare with trained nothing between {first} and {last}")
            self._references[script] = last, first
        return self._references[script]

    def _launch(self, variant: Variant, script: str) -> tuple[int | None, str, Path, float]:
        """(exit code or None at the time limit, log, its folder of checkpoints, seconds); again where it died in teardown."""
        for _ in range(3):
            code, log, output, seconds = self._launch_once(variant, script)
            if not code or TEARDOWN not in log or re.search(r"^\[rank\d+\]: Traceback", log, re.MULTILINE):
                break
        return code, log, output, seconds

    def _launch_once(self, variant: Variant, script: str) -> tuple[int | None, str, Path, float]:
        tiny = self._made()
        place = Path(tempfile.mkdtemp(dir=self._scratch))
        output, file = place / "output", place / variant.script
        file.write_text(script, encoding="utf-8")
        for beside in self.incident.folder.iterdir():  # plugins and configurations that the command names
            if beside.is_file() and beside.name != variant.script:
                shutil.copy(beside, place)
        variables = self._offline() | tiny["variables"] | {"OUTPUT": str(output), "GPUS": "2"}
        started = time.monotonic()
        with running(["bash", file, *tiny["arguments"]], self.python, str(place), variables) as process:
            try:
                code = process.wait(self.incident.meta.time_limit + START_LIMIT)
            except subprocess.TimeoutExpired:
                code = None
        return code, log_of(place), output, time.monotonic() - started

    def _made(self) -> dict[str, Any]:
        """What `tiny.py` says: the variables and the further arguments that make the command small."""
        if self._tiny is None:
            folder = self._scratch / "tiny"
            folder.mkdir()
            command = [self.python, self.incident.folder / "tiny.py", folder]
            with running(command, self.python, str(self._scratch), self._offline()) as process:
                try:
                    code = process.wait(START_LIMIT)
                except subprocess.TimeoutExpired:
                    code = None
            log = log_of(self._scratch)
            if code != 0:
                why = f"did not end within {START_LIMIT} s" if code is None else "failed"
                raise LabError(f"{self.incident.id}/tiny.py {why}:\n{log[-3000:]}")
            self._tiny = json.loads(log.splitlines()[-1])
        return self._tiny

    def _offline(self) -> dict[str, str]:
        """Nothing is asked of a model hub, and caches go where all else goes."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        return {
            "HF_HOME": str(self._scratch / "huggingface"),
            "MODELSCOPE_CACHE": str(self._scratch / "modelscope"),
            "TRANSFORMERS_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "MASTER_PORT": port,  # ms-swift hands it to torchrun
            "PET_MASTER_PORT": port,  # torchrun's own
        }


def _saved(output: Path) -> list[Path]:
    """The folders `checkpoint-N` below, in the order of their steps."""
    found = sorted(output.rglob("checkpoint-*"), key=lambda path: int(re.sub(r"\D", "", path.name) or 0))
    if len(found) < 2:
        raise LabError(f"fewer than two checkpoints were saved under {output}: {[path.name for path in found]}")
    return found


def _tensors(checkpoint: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    files = sorted(checkpoint.glob("*.safetensors"))
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def _compared(variant: str, *checkpoints: Path) -> dict[str, Any]:
    """As repros are: the last checkpoint of a run, the last of the run to compare with, and the first of that one.

    What no run moved may be frozen, and is left out.
    """
    from readyonce.compare import compare

    parts = trained, reference, start = [_tensors(checkpoint) for checkpoint in checkpoints]
    if not trained.keys() == reference.keys() == start.keys():
        raise LabError(f"{variant}: its checkpoints do not hold the tensors of those to compare with")
    moved = [name for name, q in reference.items() if not q.equal(start[name]) or not q.equal(trained[name])]
    try:
        told: dict[str, Any] = compare(variant, *({name: part[name] for name in moved} for part in parts))  # type: ignore[no-untyped-call]
    except AssertionError as error:
        raise LabError(f"{variant}: its checkpoints cannot be compared: {error}") from error
    return told
