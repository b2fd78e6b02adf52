"""A Dask cluster that runs already, and what to do where there is none."""

from __future__ import annotations

from typing import Any

from readyonce import inputs

HOW = "pip install 'readyonce[cluster]'"
PATIENCE = 20  # seconds until a scheduler answers, and until it has a worker


def connected(address: str) -> Any:
    """A client of the scheduler at `address`. Raises `inputs.Unusable` where there is no Dask, or no scheduler."""
    try:
        from distributed import Client
    except ImportError:
        raise inputs.Unusable(f"--on needs Dask's `distributed`. Install it: {HOW}") from None
    try:
        return Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise inputs.Unusable(f"there is no Dask scheduler at {address}: {error or type(error).__name__}") from None
