"""Streams, and what they return: chunks of events, or single ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import attrs

from ..clock import Stop
from ..errors import RscyllaError
from ..event import Event, Progress
from ..options import StreamOption

__all__ = [
    "Chunk",
    "ChunkClient",
    "EventTuple",
    "StreamClient",
    "StreamFunc",
    "StreamStatus",
    "Window",
    "taker_of",
]


class StreamClient(Protocol):
    """An open stream. Used by one thread at a time; ``close`` may come from any."""

    def recv(self) -> Event | Progress:
        """Return the next event, or a ``Progress``, which moves the cursor without an event. Blocks until there is one.

        Raises:
            HeadReached: every event up to the requested end was delivered.
            Stopped: the stop signal was set.
            RscyllaError: any other error. The stream cannot be used any more: further calls raise the same error.
        """

    def status(self) -> StreamStatus:
        """Return what the stream reports now. Called by scrapes and health checks, from any thread; must not block."""

    def close(self) -> None:
        """Release threads and queries. Called once at the end of each run, also after an error; safe to repeat."""


class Chunk(Protocol):
    """Events that come together, in order: at least one. Used by one thread at a time.

    Events are made as they are taken, so an iteration returns each once, and a second one continues where the first
    ended.
    """

    @property
    def cursor(self) -> str:
        """The cursor that continues right after the last event."""

    def __iter__(self) -> Iterator[Event]: ...


class Window(Chunk, Protocol):
    """A ``Chunk`` of a CDC log: the events of one window. After ``len`` or an index, it can be iterated over again.

    Their number is limited by the ``Limits`` of the stream. Parts of an event are decoded when they are read.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Event: ...

    def to_arrow(self, mode: Literal["changes", "log", "events"] = "changes") -> Any:
        """Return the window as a ``pyarrow.Table``; docs/spark.md has the columns of each mode.

        Raises:
            ConfigError: pyarrow or numpy is not installed, or two columns would have the same name.
        """


@runtime_checkable
class ChunkClient(Protocol):
    """A ``StreamClient`` that returns chunks, which costs less than a call for each event."""

    def take(self) -> Chunk | Progress:
        """Return the next events, as many as there are, or a ``Progress``. Raises what ``recv`` raises.

        A run calls it instead of ``recv``, also of a subclass, when it is done with all events of the last chunk. What
        nobody took of that one comes again.
        """

    def status(self) -> StreamStatus: ...
    def close(self) -> None: ...


def taker_of(client: StreamClient | ChunkClient) -> Callable[[], Chunk | Progress]:
    """Return the method ``take`` of *client*, or a function that returns what its ``recv`` returns as chunks."""
    return client.take if isinstance(client, ChunkClient) else partial(_taken, client)


def _taken(client: StreamClient) -> Chunk | Progress:
    item: object = client.recv()
    if isinstance(item, Progress):
        return item
    if not isinstance(item, Event):
        raise RscyllaError(
            f"the stream returned {type(item).__name__}; recv must return an Event, a Progress, or raise"
        )
    return EventTuple((item,))


class EventTuple(tuple[Event, ...]):
    """A ``Chunk`` of events that are there; not empty."""

    __slots__ = ()

    @property
    def cursor(self) -> str:
        return self[-1].id


@attrs.frozen
class StreamStatus:
    """What an open stream reports about itself and its source. Values that it does not know keep their defaults."""

    watermark_us: int = 0
    """Time up to which everything was delivered, microseconds since the epoch; 0 if it is not known yet."""
    incomplete_records: int = 0
    """How many records were read with rows missing, usually because the rows were expiring. Never decreases."""
    expired_gaps: int = 0
    """How often the stream skipped an expired gap instead of raising ``CursorExpired``. Never decreases."""
    poll_age_s: float | None = None
    """How long the source has left a query unanswered, in seconds; 0 while the stream waits for its consumer."""
    log_ttl_s: int | None = None
    """How long the source keeps changes, in seconds; 0: forever."""
    clock_skew_us: int | None = None
    """Time of the source's clock that is furthest off, minus time of the client's clock, in microseconds."""
    generation_us: int | None = None
    """Start of the generation of CDC streams that the watermark is in, in microseconds since the epoch."""
    cdc_enabled: bool | None = None
    """Whether the source logs new changes."""


class StreamFunc(Protocol):
    """Opens streams.

    A function whose streams apply ``StreamLag`` themselves has a true attribute ``supports_lag``. If what it reads has
    a name, such as ``shop.orders``, its attribute ``source`` is that name, for logs and traces. If it reads the slice m
    of n of the keys, its attribute ``key_slice`` is ``(m, n)``.
    """

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> StreamClient | ChunkClient:
        """Open a stream that continues right after the cursor *after*; "" starts at the oldest event.

        Called once at the start of each run. *stop* ends blocking calls of the client with ``Stopped``.
        """
