"""rscylla for asyncio: events by ``async for``, and consumers that are coroutine functions.

A separate thread runs the same ``rscylla.run`` and passes the events to the event loop.
"""

from ._consumer import AsyncConsumer, Consumer
from ._events import Events, events
from ._onloop import on_loop
from ._run import run, run_forever

__all__ = ["AsyncConsumer", "Consumer", "Events", "events", "on_loop", "run", "run_forever"]
