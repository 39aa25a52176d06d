"""rscylla for asyncio: events by ``async for``, and consumers that are coroutine functions.

A thin face: a thread of its own runs the same ``rscylla.run``, and hands over to the event loop what it reads.
"""

from ._consumer import AsyncConsumer, Consumer
from ._events import Events, events
from ._run import run, run_forever

__all__ = ["AsyncConsumer", "Consumer", "Events", "events", "run", "run_forever"]
