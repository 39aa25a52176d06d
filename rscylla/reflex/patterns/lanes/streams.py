"""The streams of two lanes: each takes the chunks of a stream inside, and asks or tells the ledger of their events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from ....abc import Chunk, ChunkClient, EventTuple, StreamClient, StreamFunc, StreamStatus, taker_of
from ....clock import Clock, Stop
from ....errors import HeadReached, Stopped
from ....event import Event, Progress
from ....options import StreamOption
from ...telemetry.series import ConsumerSeries
from .cursors import SAVE_EVERY_S
from .ledger import Ledger, Verdict

__all__ = ["FastClient", "LaneStream", "SweepClient"]


class LaneStream:
    """A stream whose clients are wrapped for a lane."""

    supports_lag = True

    def __init__(self, stream: StreamFunc, wrap: Callable[[StreamClient | ChunkClient, Stop], ChunkClient]) -> None:
        self._stream = stream
        self._wrap = wrap

    @property
    def source(self) -> str:
        return str(getattr(self._stream, "source", ""))

    @property
    def key_slice(self) -> tuple[int, int]:
        return getattr(self._stream, "key_slice", (0, 1))

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> ChunkClient:
        stop = stop or Stop()
        return self._wrap(self._stream(after, *options, stop=stop), stop)


class _LaneClient:
    """An open stream of a lane; each lane has its own ``take``."""

    def __init__(self, client: StreamClient | ChunkClient) -> None:
        self._client = client
        self._take = taker_of(client)

    def status(self) -> StreamStatus:
        return self._client.status()

    def close(self) -> None:
        self._client.close()


@attrs.frozen
class _Handed:
    """A chunk of which each event is handed to the ledger when it is taken."""

    chunk: Chunk
    hand: Callable[[Event], None]

    @property
    def cursor(self) -> str:
        return self.chunk.cursor

    def __iter__(self) -> Iterator[Event]:
        for event in self.chunk:
            self.hand(event)
            yield event


class FastClient(_LaneClient):
    """Lists the events that the fast lane delivers in the ledger."""

    def __init__(self, client: StreamClient | ChunkClient, ledger: Ledger, key_of: Callable[[Event], Any]) -> None:
        super().__init__(client)
        self._ledger = ledger
        self._key_of = key_of

    def take(self) -> Chunk | Progress:
        try:
            taken = self._take()
        except HeadReached:
            self._ledger.end_fast()
            raise
        return taken if isinstance(taken, Progress) else _Handed(taken, self._hand)

    def _hand(self, event: Event) -> None:
        self._ledger.hand(event.id, self._key_of(event))


class SweepClient(_LaneClient):
    """Delivers the events that the fast lane missed as late; for the others, only a ``Progress`` about every second."""

    def __init__(
        self,
        client: StreamClient | ChunkClient,
        stop: Stop,
        ledger: Ledger,
        key_of: Callable[[Event], Any],
        series: ConsumerSeries,
        clock: Clock,
    ) -> None:
        super().__init__(client)
        self._stop = stop
        self._ledger = ledger
        self._key_of = key_of
        self._series = series
        self._clock = clock
        self._events: Iterator[Event] = iter(())  # of the last chunk, not read yet
        self._held: tuple[Event, Any] | None = None  # read and not judged yet, with its key
        self._skipped: Event | None = None  # the last event that the fast lane delivered, with no progress for it yet
        self._progress_at = clock.monotonic()

    def take(self) -> Chunk | Progress:
        while True:
            if self._skipped is not None and self._clock.monotonic() - self._progress_at >= SAVE_EVERY_S:
                return self._progress(self._skipped)
            try:
                held = self._held or self._next()
                if isinstance(held, Progress):
                    return held
                self._held = held
                event, key = held
                if self._skipped is not None and not self._ledger.passed(key):
                    return self._progress(self._skipped)  # saved now, because ``judge`` may wait long for the fast lane
                verdict = self._ledger.judge(key, self._stop)
            except (HeadReached, Stopped):
                if self._skipped is not None:
                    return self._progress(self._skipped)  # saved first; the next call raises
                raise
            self._held = None
            if verdict is Verdict.DELIVERED:
                self._skipped = event
                continue
            self._skipped = None
            if self._ledger.find(key):  # an event that failed and is delivered again counts once
                self._series.found_late(self._ledger.passed_for(key), unproven=verdict is Verdict.UNPROVEN)
            return EventTuple((event.as_late(),))

    def _next(self) -> Progress | tuple[Event, Any]:
        """Return the next event with its key, or the progress of the stream inside."""
        while (event := next(self._events, None)) is None:
            taken = self._take()
            if isinstance(taken, Progress):
                self._skipped, self._progress_at = None, self._clock.monotonic()
                return taken
            self._events = iter(taken)
        return event, self._key_of(event)

    def _progress(self, event: Event) -> Progress:
        self._skipped, self._progress_at = None, self._clock.monotonic()
        return Progress(event.id, event.timestamp_us)
