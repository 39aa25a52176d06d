"""``events``: a stream for ``async for``, with or without a saved cursor."""

from __future__ import annotations

import weakref
from datetime import timedelta
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry

from .. import reflex
from ..abc import CursorStore, StreamFunc
from ..clock import Clock, InnerStop, Stop, SystemClock
from ..errors import ConfigError, HeadReached, Stopped
from ..event import Event
from ..options import StreamOption
from ..reflex import ConsumerSeries, Consuming, Spec, metrics_for
from ._bridge import BUFFER, Bridge
from ._run import in_thread

__all__ = ["Events", "events"]


class Events:
    """Events for ``async for``; made by ``events``. For one task at a time.

    An event is done when the next one is requested, or when ``commit`` is called. With a store, another thread then
    saves its cursor. After ``break`` or an error, the last event is therefore delivered again: it is also the first
    event of another ``async for`` over the same object.

    Use an ``async with`` block to ensure that the stream is closed and everything is saved where the block ends. If
    the object is dropped without it, it is closed in the background.
    """

    def __init__(self, spec: Spec, bridge: Bridge, stop: Stop | None) -> None:
        self._spec = spec
        self._bridge = bridge
        self._signal = InnerStop(stop)
        self._started = False
        self._asking = False
        self._hand: Event | None = None  # the last delivered event, until it is done
        self._consuming: Consuming | None = None
        self._again = False
        self._raised = False
        # The thread references only the spec and the bridge, so that this object can be garbage-collected.
        self._finalizer = weakref.finalize(self, _drop, self._signal, bridge)
        self._finalizer.atexit = False

    def __aiter__(self) -> Self:
        """Begin with the current event, if there is one: the loop that received it ended before it was done."""
        self._again = self._hand is not None
        return self

    async def __anext__(self) -> Event:
        """Return the next event; the previous one is now done, unless an iteration begins with it.

        Raises:
            StopAsyncIteration: the stream reached the head that it runs to, the stop signal is set, or it was closed.
            RunError: any other error, as ``rscylla.run`` raises it; open another one to continue from the saved cursor.
        """
        if self._asking:
            raise RuntimeError("another task is already waiting for the events")
        self._start()
        if self._started:
            self._bridge.check_loop()
        self._asking = True
        try:
            event = self._repeated()
            if event is None:
                self._done()
                event = await self._bridge.next() if self._started else None
        finally:
            self._asking = False
        if event is None:
            self._signal.forget()
            self._check_end()
            raise StopAsyncIteration
        self._hand, self._consuming = event, self._spec.series.consuming(event)
        return event

    def _repeated(self) -> Event | None:
        """Return the current event if an iteration begins with it; at the end of the run, leave it to a later one."""
        if not self._again:
            return None
        self._again = False
        if not self._signal.is_set():
            return self._hand
        self._abandon()
        return None

    async def commit(self) -> None:
        """Mark the last delivered event as done, and return when its cursor is durably saved.

        Raises:
            RunError: the cursor could not be saved.
        """
        if self._started:
            self._bridge.check_loop()
        self._done()
        if self._started and not await self._bridge.saved():
            await self._bridge.over()
            self._check_end()

    async def aclose(self) -> None:
        """Close the stream and return when all done events are saved. The current event is delivered again. Repeatable.

        A cancellation meanwhile, as by ``asyncio.timeout``, takes effect after that.

        Raises:
            RunError: something could not be closed or saved. Errors raised earlier are not raised again.
        """
        self._signal.forget()
        self._signal.set()
        self._abandon()
        if self._started:
            await self._bridge.over()
            # Each error is raised once: by the iteration that it ended, or else here.
            if not self._raised:
                self._check_end()

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except Exception as then:
            if error is None:
                raise
            error.add_note(f"then closing the events failed too: {then}")

    def _start(self) -> None:
        if not self._started and not self._signal.is_set():
            self._started = True
            in_thread(self._bridge, self._spec, self._signal, lambda spec, stop: reflex.run(spec, stop=stop))

    def _done(self) -> None:
        if self._hand is not None and self._consuming is not None:
            self._consuming.end("consumed")
            self._hand = self._consuming = None
        self._bridge.done()

    def _abandon(self) -> None:
        self._hand = self._consuming = None
        self._bridge.abandon()

    def _check_end(self) -> None:
        error = self._bridge.error
        if error is not None and not isinstance(error, HeadReached | Stopped):
            self._raised = True
            raise error


def events(
    stream: StreamFunc,
    *options: StreamOption,
    store: CursorStore | None = None,
    name: str = "",
    after: str = "",
    stop: Stop | None = None,
    buffer: int = BUFFER,
    clock: Clock | None = None,
    flush_timeout: timedelta = timedelta(seconds=10),
    registry: CollectorRegistry | None = None,
) -> Events:
    """Return the events of *stream* for ``async for``. Reading starts with the first event or the ``async with`` block.

    A separate thread reads ahead of the loop. The iteration ends when *stop* is set and, with ``StreamToHead`` or
    ``StreamUntil``, at the head; otherwise, it waits for more events.

    Args:
        options: options of the stream; CDC streams require a ``StreamLag``.
        store: where the cursor is read and saved; see ``Events`` for the times of saving.
        name: the name of the cursor, and the label of metrics; without it, there are no metrics.
        after: the cursor to continue right after, for iterations without a store; "" starts at the oldest event.
        stop: ends the iteration.
        buffer: how many events may be read ahead, or done and not yet saved.
        clock, flush_timeout, registry: as for ``Spec``.

    Raises:
        ConfigError: a store without a name, a store together with *after*, or an invalid option.
    """
    if store is not None and (not name or after):
        raise ConfigError("events: a store needs name=, the name of the cursor, and does not go with after=")
    if isinstance(buffer, bool) or not isinstance(buffer, int) or buffer < 1:
        raise ConfigError(f"events: buffer is {buffer!r}; it must be 1 or more")
    # Without a name there is no label to count under, so the series belongs to no registry.
    series = metrics_for(registry).consumer(name) if name else ConsumerSeries("events")
    clock = clock or SystemClock()
    series.configure(clock=clock, lag_alert=None, activity_ttl=None)
    target = store if store is not None else _Nowhere(after)
    bridge = Bridge(name or "events", series, None, target.flush, buffer)
    return Events(Spec(stream, target, bridge, *options, clock=clock, flush_timeout=flush_timeout), bridge, stop)


class _Nowhere:
    """The cursor of an iteration that saves none."""

    def __init__(self, after: str) -> None:
        self._after = after

    def get_cursor(self, consumer: str) -> str:
        return self._after

    def set_cursor(self, consumer: str, cursor: str) -> None:
        """Do nothing: no cursor is saved."""

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _drop(signal: InnerStop, bridge: Bridge) -> None:
    """Close an iteration that was dropped without ``aclose``; does not wait."""
    signal.forget()
    signal.set()
    bridge.abandon()
