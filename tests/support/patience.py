"""How long tests wait. The limit ends what would hang, and says nothing of speed: a busy machine takes ten times as long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 300  # seconds


def until(condition: Callable[[], Any], or_else: Callable[[], object] = lambda: "it never came true") -> Any:
    """What the condition says as soon as it holds. Fails with the words of `or_else` after `PATIENCE`."""
    limit = time.monotonic() + PATIENCE
    while not (seen := condition()):
        assert time.monotonic() < limit, or_else()
        time.sleep(0.05)
    return seen
