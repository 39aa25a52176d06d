"""Streams, and what consumers of them may offer to get their events faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol, cast, runtime_checkable

import attrs

from ..clock import Stop
from ..event import Event, Progress
from ..options import StreamOption
from ._optional import overriding

__all__ = [
    "BulkStreamClient",
    "IterableStreamClient",
    "StreamClient",
    "StreamFunc",
    "StreamStatus",
    "Window",
    "WindowedStreamClient",
    "receiver_of",
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


@runtime_checkable
class IterableStreamClient(StreamClient, Protocol):
    """A ``StreamClient`` that can also be iterated over, which costs less than a call for each event."""

    def __iter__(self) -> Iterator[Event | Progress]:
        """Return an iterator over what ``recv`` would return, which raises what ``recv`` would raise and never ends.

        Called at most once at the start of each run, which then does not call ``recv``. Used by the thread that would
        call it.
        """


class BulkStreamClient(StreamClient, Protocol):
    """A ``StreamClient`` that also returns several events at once, as far as they are there."""

    def recv_many(self, limit: int, /) -> Sequence[Event] | Progress:
        """Return at least one event and at most *limit*, or a ``Progress``: what so many calls of ``recv`` return.

        Raises what ``recv`` would raise, and waits only where the first of those calls would.
        """


class Window(Protocol):
    """The events of one window of a stream, in order: at least one. Used by one thread at a time.

    Their number is limited by the ``Limits`` of the stream. Parts of an event are decoded when they are read.
    """

    @property
    def cursor(self) -> str:
        """The cursor that continues right after the window."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Event]: ...
    def __getitem__(self, index: int, /) -> Event: ...

    def to_arrow(self, mode: Literal["changes", "log", "events"] = "changes") -> Any:
        """Return the window as a ``pyarrow.Table``; docs/spark.md has the columns of each mode.

        Raises:
            ConfigError: pyarrow or numpy is not installed, or two columns would have the same name.
        """


@runtime_checkable
class WindowedStreamClient(StreamClient, Protocol):
    """A ``StreamClient`` that also returns whole windows."""

    def recv_window(self) -> Window | Progress:
        """Return the events up to the end of the next window that has any, or a ``Progress``.

        Called instead of ``recv`` for consumers of windows, and raises the same. The next call means that the consumer
        is done with the window, and that its cursor was saved.
        """


def receiver_of(client: StreamClient) -> Callable[[], Event | Progress]:
    """Return the function that returns the next item of *client*: of its iterator if it has one, else ``recv``.

    A ``recv`` that a subclass or an object overrides is not bypassed.
    """
    if overriding(client, "__iter__", "recv"):
        return iter(cast("IterableStreamClient", client)).__next__
    return client.recv


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

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> StreamClient:
        """Open a stream that continues right after the cursor *after*; "" starts at the oldest event.

        Called once at the start of each run. *stop* ends blocking calls of the client with ``Stopped``.
        """
