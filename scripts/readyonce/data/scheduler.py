"""A Dask cluster that runs already, and what to do where there is none."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from readyonce.data import inputs

HOW = "pip install 'readyonce[cluster]'"
PATIENCE = 20  # seconds until a scheduler answers, and until it has a worker


def connected(address: str) -> Any:
    """A client of the scheduler at `address`. Raises `inputs.Unusable` where there is no Dask, or no scheduler."""
    try:
        from distributed import Client, Security
        from distributed.comm import connect
    except ImportError:
        raise inputs.Unusable(f"--on needs Dask's `distributed`. Install it: {HOW}") from None

    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # a sentence says it, not a traceback

    async def greet() -> None:
        greeted = await connect(address, **Security().get_connection_args("client"))
        await greeted.close()

    try:
        # The client waits without end for one who accepts a connection and says nothing. In a thread of its own,
        # because a notebook's thread runs an event loop already.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(asyncio.wait_for(greet(), PATIENCE))).result()
        return Client(address, timeout=PATIENCE)
    except Exception as error:  # what answers there may be anything, such as a dashboard
        raise inputs.Unusable(f"there is no Dask scheduler at {address}: {inputs.words(error)}") from None
