"""``await_event``: waits until something has happened, by polling for it and by listening for its event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta

from ...abc import ChunkClient, StreamClient, StreamFunc, taker_of
from ...clock import Clock, InnerStop, Stop, SystemClock
from ...errors import ConfigError
from ...event import Event, Progress
from ...options import StreamFromHead, StreamOption
from ..filters import EventFilter

__all__ = ["await_event"]


class _Listener:
    """Reads a stream from its head until a wanted event arrives. ``found`` and ``error`` are set before ``ended``."""

    def __init__(self, wanted: Callable[[Event], bool], stop: Stop) -> None:
        self.found: Event | None = None
        self.error: BaseException | None = None
        self.ended = Stop()
        self._wanted = wanted
        self._stop = stop
        self._client: StreamClient | ChunkClient | None = None
        self._thread = threading.Thread(target=self._listen, name="rscylla-await", daemon=True)
        stop.on_set(self.ended.set)

    def start(self, stream: StreamFunc, options: tuple[StreamOption, ...]) -> None:
        """Open the stream at its head and read it in a thread. An error is saved in ``error``."""
        try:
            # Opened in the caller's thread, so that the head is fixed before the first poll and no event is missed.
            self._client = stream("", *options, StreamFromHead(), stop=self._stop)
            self._thread.start()
        except Exception as error:  # noqa: BLE001 - raised if polling fails too
            self.error = error
            self.ended.set()

    def close(self) -> None:
        """End the thread and close the stream."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._client is not None:
            self._client.close()

    def _listen(self) -> None:
        assert self._client is not None
        try:
            take = taker_of(self._client)
            while self.found is None:
                taken = take()
                if not isinstance(taken, Progress):
                    self.found = next(filter(self._wanted, taken), None)
        except BaseException as error:  # noqa: BLE001 - raised if polling fails too, an interrupt at once
            self.error = error
        finally:
            self.ended.set()


def await_event(
    stream: StreamFunc,
    poll: Callable[[], bool],
    *options: StreamOption,
    foreign_id: str | None = None,
    types: Iterable[int] = (),
    event_filter: EventFilter | None = None,
    timeout: timedelta,
    every: timedelta = timedelta(seconds=1),
    stop: Stop | None = None,
    clock: Clock | None = None,
) -> Event | None:
    """Wait until *poll* returns true or a matching event arrives; return the event, or None if *poll* came first.

    The stream opens at its head before the first call of *poll*, so nothing is missed between the two. If one of the
    two fails, the other continues; if both fail, ``await_event`` raises. It saves no cursor, is thread-safe, and closes
    the stream when it returns.

    Args:
        stream: The stream to read.
        poll: Called by this thread at once, and then *every*, until it returns true or fails.
        options: Options of the stream, such as ``StreamLag``.
        foreign_id: The foreign id of the event; None: any.
        types: Types of the event; empty: any.
        event_filter: An additional filter; called by a separate thread.
        timeout: How long to wait, by *clock*.
        stop: Ends the wait.

    Raises:
        TimeoutError: neither happened in time; a note names the one that failed, if any.
        Stopped: *stop* was set.
        Exception: the error of *poll*, with the error of the stream as its cause.
        BaseException: an interrupt, such as SystemExit, that *poll* or *event_filter* raised; at once.
        ConfigError: *timeout* or *every* is not more than zero.
    """

    if timeout <= timedelta() or every <= timedelta():
        raise ConfigError("await_event: timeout and every must be more than zero")
    clock = clock or SystemClock()
    accepted = frozenset(int(one) for one in types)

    def wanted(event: Event) -> bool:
        return (
            (foreign_id is None or event.foreign_id == foreign_id)
            and (not accepted or int(event.type) in accepted)
            and (event_filter is None or event_filter(event))
        )

    inner = InnerStop(stop)
    listener = _Listener(wanted, inner)
    try:
        listener.start(stream, options)
        return _first(listener, poll, timeout.total_seconds(), every.total_seconds(), clock, inner)
    finally:
        inner.forget()
        listener.close()


def _first(
    listener: _Listener, poll: Callable[[], bool], timeout_s: float, every_s: float, clock: Clock, stop: Stop
) -> Event | None:
    """Return what the listener found, or None when *poll* returns true."""
    deadline = clock.monotonic() + timeout_s
    failed: Exception | None = None
    while True:
        if listener.found is not None:
            return listener.found
        if listener.error is not None and not isinstance(listener.error, Exception):
            raise listener.error
        stop.check()
        if failed is None:
            try:
                if poll():
                    return None
            except Exception as error:  # noqa: BLE001 - the listener may still find it
                failed = error
        if failed is not None and listener.error is not None:
            raise failed from listener.error
        left = deadline - clock.monotonic()
        if left <= 0:
            late = TimeoutError(f"poll did not return true, and no matching event arrived, within {timeout_s:g} s")
            for what, why in (("polling", failed), ("listening", listener.error)):
                if why is not None:
                    late.add_note(f"{what} had failed: {type(why).__name__}")
            raise late
        clock.wait(
            stop if listener.error is not None else listener.ended, left if failed is not None else min(left, every_s)
        )
