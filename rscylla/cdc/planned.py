"""Plans complete windows of a table's log, one after the other, with the cursor of a service.

How a window is read is up to those who plan with it: ``rscylla.spark`` lets executors read it.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from types import TracebackType
from typing import Generic, Self, TypedDict, TypeVar

import attrs

from .. import _timeuuid as tu
from .._tokens import Slice
from ..abc import BatchProgress, CursorStore
from ..clock import Stop
from ..errors import ConfigError, MissingLag, NoStreams
from ..event import EventID
from ..options import SAFE_LAG, StreamOption, StreamOptions, resolve
from .log import Generation, LogWindow, OnExpired, Read, Switch, Wait, Walk, Width, begin
from .read import Follower
from .stream import Stream

__all__ = ["PlannedWindow", "WindowLoop", "WindowOptions"]

log = logging.getLogger("rscylla")

T = TypeVar("T")

_MICROSECOND = timedelta(microseconds=1)


@attrs.frozen
class PlannedWindow:
    """A span of time in one generation: the changes after the cursor ``start`` and before the point ``end``.

    Both are cursors; the store saves ``end`` when the window is done. ``start`` may be a row in the middle of a span,
    if a service stopped there. Equal windows contain equal rows. A window that is delivered again begins at the same
    ``start``, but may end elsewhere: so let a sink replace what it has of the same ``start_name``.
    """

    generation: int
    start_us: int
    end_us: int
    start: str = attrs.field(repr=False)
    end: str = attrs.field(repr=False, eq=False)

    @property
    def in_log(self) -> LogWindow:
        return LogWindow(self.generation, self.start_us, self.end_us)

    @property
    def after(self) -> bytes:
        """The position of the row (``EventID.position``) after which the window begins; empty if at a point."""
        start = EventID.parse(self.start)
        return start.position if start.is_row else b""

    @property
    def start_time(self) -> datetime:
        """Aware UTC."""
        return tu.datetime_of(self.start_us)

    @property
    def end_time(self) -> datetime:
        """Aware UTC; rows of this time belong to the next window."""
        return tu.datetime_of(self.end_us)

    @property
    def name(self) -> str:
        """Start and end as text that sorts by time and can be part of file names."""
        return f"{_text(self.start_time)}-{_text(self.end_time)}{self._after}"

    @property
    def start_name(self) -> str:
        """Start as text, as in ``name``. The same each time the window is delivered, wherever it then ends.

        The exception is the first window of a consumer without a cursor: it begins at the oldest row that is left.
        """
        return f"{_text(self.start_time)}{self._after}"

    @property
    def _after(self) -> str:
        return f"-after-{self.after.hex()}" if self.after else ""


def _text(time: datetime) -> str:
    return f"{time:%Y%m%dT%H%M%S.%fZ}"


class WindowOptions(TypedDict, total=False):
    """How windows are planned, by ``windows_as_arrow`` and ``rscylla.spark.windows``.

    ``shortest``: minimum length of a window at the head, as each costs queries, or Spark jobs (10 s). ``longest``:
    maximum length of a window (an hour). ``max_rows``: maximum number of rows in a window, which are counted first.
    ``on_expired``: what to do if rows after the cursor have expired: ``"raise"`` (the default), or continue at the
    ``"oldest"`` row. ``stop``: ends the loop after the current window. ``on_done``: called with the progress of each
    window after its cursor was saved, such as ``QueryMetrics().metrics``. An error in it ends the loop; the window is
    not delivered again.
    """

    shortest: timedelta
    longest: timedelta
    max_rows: int | None
    on_expired: OnExpired
    stop: Stop | None
    on_done: Callable[[BatchProgress], None] | None


@attrs.frozen
class WindowPlan:
    """How windows are planned: the options of a stream, how long windows are, and what is done about lost rows."""

    options: StreamOptions
    lag: timedelta
    shortest_us: int
    longest_us: int
    max_rows: int | None
    on_expired: OnExpired
    stop: Stop = attrs.field(repr=False)
    on_done: Callable[[BatchProgress], None] | None = None

    @classmethod
    def of(
        cls,
        stream: Stream,
        name: str,
        options: Iterable[StreamOption],
        *,
        shortest: timedelta = timedelta(seconds=10),
        longest: timedelta = timedelta(hours=1),
        max_rows: int | None = None,
        on_expired: OnExpired = "raise",
        stop: Stop | None = None,
        on_done: Callable[[BatchProgress], None] | None = None,
    ) -> Self:
        """Return the plan for *stream*, see ``WindowOptions``; *name* is only checked. Warns of an unsafe lag.

        Raises:
            MissingLag, ConfigError: an option is missing or invalid.
        """
        if not isinstance(name, str):
            raise ConfigError(
                f"name must be the name of the cursor in the store, such as 'lake', not {name!r}; pass it between the "
                "store and the options"
            )
        chosen = resolve(options)
        if chosen.lag is None:
            raise MissingLag(f"the loop over the windows of {stream}")
        if Slice.of(stream.key_slice).count > 1:
            raise ConfigError("windows read a whole table; pass a stream without key_slice=")
        for which, length in (("shortest", shortest), ("longest", longest)):
            if not isinstance(length, timedelta):
                raise ConfigError(f"{which} must be a timedelta, such as timedelta(minutes=1), not {length!r}")
        if not timedelta() < shortest <= longest:
            raise ConfigError("shortest and longest must be more than zero, and shortest must not be above longest")
        if max_rows is not None and (not isinstance(max_rows, int) or max_rows < 1):
            raise ConfigError(f"max_rows must be a whole number of at least 1, or None, not {max_rows!r}")
        if on_expired not in ("raise", "oldest"):
            raise ConfigError(f"on_expired must be 'raise' or 'oldest', not {on_expired!r}")
        if chosen.lag < SAFE_LAG:
            log.warning(
                "the windows of %s have a lag of %g s; below 30 s, rows may be missed",
                stream,
                chosen.lag.total_seconds(),
            )
        caps = shortest // _MICROSECOND, longest // _MICROSECOND, max_rows
        return cls(chosen, chosen.lag, *caps, on_expired, stop or Stop(), on_done)


class WindowLoop(Iterator[T], Generic[T]):
    """An iterator over the windows behind a cursor, for one thread, and a context manager that closes it.

    A subclass says what the loop returns for a window, and how many rows that has.

    Raises (constructor):
        MissingLag, ConfigError: an option is missing or invalid.
        InvalidCursor, CursorExpired, TableChanged: the stored cursor cannot be continued.
    """

    def __init__(
        self, stream: Stream, store: CursorStore, name: str, options: Iterable[StreamOption], how: WindowOptions
    ) -> None:
        self._plan = plan = WindowPlan.of(stream, name, options, **how)
        self._source = source = stream.describe()
        self._store = store
        self._name = name
        self._prepare(stream)
        self._position, promised = self._first_position()
        most = plan.longest_us
        self._follower = Follower(
            source,
            self._position,
            plan.options,
            # A window that exceeds the limit must be counted again. At four fifths, there is room for a quarter more.
            Width(us=most, target=max(1, (plan.max_rows or 1) * 4 // 5), most_us=most),
            plan.on_expired,
            promised=promised,
            least_us=plan.shortest_us,
            probe_from_us=None,
        )
        self._open: tuple[PlannedWindow, Walk] | None = None
        self._began = 0.0  # when the open window was returned
        self._rows: int | None = None  # of the open window, if they were counted
        self._ended = False

    @abstractmethod
    def _prepare(self, stream: Stream) -> None:
        """Check what the subclass was given, before the store is asked, and possibly written to."""

    @abstractmethod
    def _shown(self, window: PlannedWindow) -> T:
        """Return what the loop returns for *window*."""

    @abstractmethod
    def _rows_of(self, shown: T) -> int:
        """Return the number of rows of a window. Called only if windows have a limit of rows."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """Save the cursor of the last window, then return the next."""
        self.save()
        most = self._plan.max_rows
        while (step := self._next_read()) is not None:
            window = self._window(step)
            try:
                shown = self._shown(window)
                # Counted before it is returned: a window that the caller has seen can no longer be narrowed.
                rows = None if most is None else self._rows_of(shown)
            except NoStreams:
                if not self._source.has_forgotten():
                    raise
                continue  # the next step says what that means for the rows after the cursor
            if most is not None and rows is not None and rows > most and step.window.can_narrow:
                self._follower.walk = self._follower.walk.too_much(step)
                continue
            self._open = window, self._follower.walk.read(step, rows)
            self._began, self._rows = self._source.clock.monotonic(), rows
            return shown
        self._store.flush()
        raise StopIteration

    def save(self) -> None:
        """Move the cursor to the end of the last returned window. Requesting the next window also does this."""
        if self._open is not None:
            window, walk = self._open
            self._move(EventID.parse(window.end), walk)
            self._open = None
            if self._plan.on_done is not None:
                self._plan.on_done(self._progress(window))

    def _progress(self, window: PlannedWindow) -> BatchProgress:
        source, head_us = self._source, self._follower.watermark_us
        behind_us = max(0, head_us - window.end_us)
        return BatchProgress(
            query=self._name,
            batch=window.name,
            start_us=window.start_us,
            watermark_us=window.end_us,
            head_us=head_us,
            rows=self._rows,
            seconds=source.clock.monotonic() - self._began,
            # As few as there may be: windows at the head are at least as long as the shortest.
            windows_behind=-(-behind_us // self._plan.longest_us) if behind_us >= self._plan.shortest_us else 0,
            generation_us=window.generation * 1000,
            log_ttl_s=source.table.ttl_s,
        )

    def close(self) -> None:
        """End the iteration. The last returned window counts as not done, unless it was saved."""
        self._ended = True
        self._open = None
        self._store.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ planning

    def _first_position(self) -> tuple[EventID, bool]:
        """Return where to begin, and whether the rows after it are promised; see ``Source.begin``."""
        if self._plan.options.from_head:
            position = self._source.head(self._plan.lag // _MICROSECOND)
            self._store.set_cursor(self._name, str(position))  # a restart must not begin at a newer head
            return position, True
        return begin(self._source, self._store.get_cursor(self._name) or None, self._plan.on_expired)

    def _move(self, position: EventID, walk: Walk) -> None:
        self._store.set_cursor(self._name, str(position))
        self._position = position
        self._follower.walk = walk

    def _next_read(self) -> Read | None:
        """Return the next window to read; None at the end. Waits at the head."""
        source, follower = self._source, self._follower
        while not self._ended and not self._plan.stop.is_set():
            match follower.next():
                case Read() as step:
                    source.confirm(step.window.end_us)
                    if not follower.blank_until(step.window.end_us):
                        return step
                case Switch() as step:
                    walk = follower.walk.switched(step)
                    self._move(follower.point(walk), walk)
                case Wait() as step:
                    # At least 50 ms, so that a remainder of microseconds does not spin. At most 10 s, so that a stepped
                    # clock or a dropped table is noticed soon, however long the window is.
                    left_s = (step.until_us - follower.watermark_us) / 1e6
                    source.clock.wait(self._plan.stop, min(10.0, max(0.05, left_s)))
                case _:
                    break
        self._ended = True
        return None

    def _window(self, step: Read) -> PlannedWindow:
        generation, start_us, end_us = step.window.generation, step.window.start_us, step.window.end_us
        if (self._position.generation, self._position.exact_us) != (generation, start_us):
            self._position = self._source.at(start_us)  # the rows in between have expired
        end = self._source.read_until(Generation(generation), end_us)
        return PlannedWindow(generation, start_us, end_us, str(self._position), str(end))
