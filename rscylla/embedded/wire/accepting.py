"""How a server on an asyncio loop stops to accept clients without losing one of their sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

__all__ = ["let_loop_run", "stop_accepting"]

_TURNS: Final = 5  # of the loop: asyncio accepts a client, and cuts one, in several steps of a turn each


async def stop_accepting(servers: Iterable[asyncio.Server]) -> None:
    """Let no more clients in, and those that were just being let in become connections.

    asyncio loses the sockets of clients whose server is closed while it accepts them.
    """
    for accepting in [each for server in servers for each in server.sockets]:
        asyncio.get_running_loop().remove_reader(accepting.fileno())
    await let_loop_run()


async def let_loop_run() -> None:
    """Give the loop the turns that it takes to accept a client, or to cut one and close its socket."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)
