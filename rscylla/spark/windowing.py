"""``windows``: a table's changes as complete windows, each a DataFrame, with the cursor of a service.

The driver only plans: what a window holds is read by the executors, when an action needs it. The cursor is the one that
``rscylla.run`` keeps, so a consumer may go from a service to Spark and back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

import attrs

from .. import _timeuuid as tu
from .._slices import Slice
from ..abc import CursorStore
from ..cdc.follow import Follower
from ..cdc.source import OnExpired, Source
from ..cdc.stream import Stream
from ..cdc.topology import Generation
from ..cdc.walk import Read, Switch, Wait, Walk, Width
from ..clock import Stop
from ..errors import ConfigError, MissingLag
from ..event import EventID
from ..options import SAFE_LAG, StreamOption, StreamOptions, resolve
from .failures import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Window", "Windows", "read_options", "windows"]

log = logging.getLogger("rscylla")

FORMAT = "scylla-cdc"

_MICROSECOND = timedelta(microseconds=1)
_OWN_OPTIONS = frozenset(("keyspace", "table", "lag", "mode", "startingposition", "endingposition"))


@attrs.frozen
class Window:
    """A span of time of one generation: what lies after the cursor ``start`` and before the point ``end``.

    Both are cursors: ``end`` is what the store keeps once the window is done. ``start`` may name a row in the middle of
    a span: a service stopped there.
    Equal windows hold equal rows, so ``name`` may serve as the key of an idempotent sink.
    """

    generation: int
    start_us: int
    end_us: int
    start: str = attrs.field(repr=False)
    end: str = attrs.field(repr=False, eq=False)

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
        """Start and end as text that sorts by time and is fit for names of files."""
        text = f"{self.start_time:%Y%m%dT%H%M%S.%fZ}-{self.end_time:%Y%m%dT%H%M%S.%fZ}"
        after = EventID.parse(self.start)
        return f"{text}-after-{after.position.hex()}" if after.is_row else text


@attrs.frozen
class _Caps:
    """How long windows are."""

    shortest_us: int
    longest_us: int
    max_rows: int | None


class Windows(Iterator[tuple[Window, "DataFrame"]]):
    """What ``windows`` returns: an iterator, to be used by one thread, and a context manager that closes it."""

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        store: CursorStore,
        name: str,
        options: StreamOptions,
        caps: _Caps,
        read: Mapping[str, str],
        on_expired: OnExpired,
        stop: Stop,
    ) -> None:
        self._spark = spark
        self._source = source
        self._store = store
        self._name = name
        self._options = options
        self._max_rows = caps.max_rows
        self._read = dict(read)
        if on_expired == "oldest" and "failondataloss" not in {name.lower() for name in read}:
            self._read["failOnDataLoss"] = "false"  # rows go on expiring until an executor reads them
        self._on_expired: OnExpired = on_expired
        self._stop = stop
        assert options.lag is not None
        self._place, promised = self._first_place(options.lag // _MICROSECOND)
        most = caps.longest_us
        self._follower = Follower(
            source,
            self._place,
            options,
            Width(us=most, target=max(1, (caps.max_rows or 1) * 4 // 5), most_us=most),
            on_expired,
            promised=promised,
            least_us=caps.shortest_us,
            probe_from_us=None,
        )
        self._open: tuple[Window, Walk] | None = None
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Window, DataFrame]:
        """Save the cursor of the last window, then return the next; see ``windows``."""
        self.save()
        while (step := self._next_read()) is not None:
            window = self._window(step)
            frame = self._frame(window)
            rows = None
            if self._max_rows is not None:
                with spark_errors():
                    rows = frame.count()
                if rows > self._max_rows and step.window.can_narrow:
                    self._follower.walk = self._follower.walk.too_much(step)
                    continue
            self._open = window, self._follower.walk.read(step, rows)
            return window, frame
        self._store.flush()
        raise StopIteration

    def save(self) -> None:
        """Move the cursor behind the window that was given out last. Taking the next window does it, too."""
        if self._open is not None:
            window, walk = self._open
            self._move(EventID.parse(window.end), walk)
            self._open = None

    def close(self) -> None:
        """End the iteration. The window that was given out last stays undone, unless it was saved."""
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

    def _first_place(self, lag_us: int) -> tuple[EventID, bool]:
        """Return where to begin, and whether the rows after that were promised to somebody."""
        if self._options.from_head:
            place = self._source.at(self._source.watermark_us(lag_us))
            self._store.set_cursor(self._name, str(place))  # a restart must not begin at a newer head
            return place, True
        cursor = self._store.get_cursor(self._name)
        if cursor:
            return self._source.resume(cursor, self._on_expired), True
        return self._source.at_time(None), False

    def _move(self, place: EventID, walk: Walk) -> None:
        self._store.set_cursor(self._name, str(place))
        self._place = place
        self._follower.walk = walk

    def _next_read(self) -> Read | None:
        """Return the next window to be read, None at the end. Waits at the head."""
        source, follower = self._source, self._follower
        while not self._ended and not self._stop.is_set():
            match follower.next():
                case Read() as step:
                    return step
                case Switch() as step:
                    walk = follower.walk.switched(step)
                    self._move(follower.point(walk), walk)
                case Wait() as step:
                    left_s = (step.until_us - follower.watermark_us) / 1e6
                    source.clock.wait(self._stop, min(10.0, max(0.05, left_s)))
                case _:
                    break
        self._ended = True
        return None

    def _window(self, step: Read) -> Window:
        generation, start_us, end_us = step.window.generation, step.window.start_us, step.window.end_us
        if (self._place.generation, self._place.exact_us) != (generation, start_us):
            self._place = self._source.at(start_us)  # what lies between has expired
        end = self._source.read_until(Generation(generation), end_us)
        return Window(generation, start_us, end_us, str(self._place), str(end))

    def _frame(self, window: Window) -> DataFrame:
        reader = self._spark.read.format(FORMAT).options(**self._read)
        reader = reader.option("startingPosition", window.start).option("endingPosition", _iso(window.end_us))
        with spark_errors():
            return reader.load()


def windows(
    spark: SparkSession,
    stream: Stream,
    store: CursorStore,
    name: str,
    *options: StreamOption,
    mode: str = "changes",
    read: Mapping[str, str] | None = None,
    shortest: timedelta = timedelta(seconds=10),
    longest: timedelta = timedelta(hours=1),
    max_rows: int | None = None,
    on_expired: OnExpired = "raise",
    stop: Stop | None = None,
) -> Windows:
    """Give out the changes of a table after the cursor *name* as complete windows, one after another, in order.

    ::

        for window, changes in windows(spark, stream, store, "lake", StreamLag(seconds=30), StreamToHead()):
            apply_changes(changes, "/data/orders", window=window)

    The cursor is moved behind a window when the next one is asked for, that is, when the loop's body has ended without
    an error. After an error in the body, or a ``break``, the cursor is where the window began, and the window comes
    again; call ``save()`` on the iterator before a ``break`` if the window is done. A body may therefore run twice for
    one window, with the same rows: let it be idempotent, for which ``window.name`` is the same each time. A window
    never crosses from one generation of streams to the next, and its rows are those whose write times lie in it.

    A window that begins at a row cursor of a service holds the rows after that row. What this leaves is a point, which
    a service continues from. The loop ends with ``StreamToHead`` at the head, as it was when the last window was
    planned; with ``StreamUntil`` at that time; else it waits at the head for the next window.

    Args:
        stream: of ``NewStream``; its session is used to plan, and to find contact points for the executors.
        store: where the cursor is. It is written by the driver only.
        options: as for a stream; ``StreamLag`` is required.
        mode: of the data source: ``changes``, ``log`` or ``events``.
        read: more options for the data source: how executors log in, TLS, contact points as they see them.
        shortest: what a window at the head waits to become; there each window is a few jobs of Spark.
        longest: what a window is at most.
        max_rows: rows that a window may hold; such windows are counted, so they are read once more.
        on_expired: what to do with a cursor older than the log's TTL: ``"raise"``, or go on at the ``"oldest"`` row.
        stop: ends the loop once the window at work is done.

    Raises:
        MissingLag, ConfigError: an option is missing or wrong.
        TableNotFound, CDCDisabled, InvalidCursor, CursorExpired, SourceError: as for opening a stream; also later.
        RscyllaError: while iterating: Spark failed to plan or count a window; see ``spark_errors``.
    """
    chosen = resolve(options)
    if chosen.lag is None:
        raise MissingLag(f"the windows of {stream}")
    if Slice.of(stream.key_slice).count > 1:
        raise ConfigError(
            "windows take a whole table; pass a stream without key_slice=, Spark shares out the work itself"
        )
    if not timedelta() < shortest <= longest:
        raise ConfigError("shortest and longest are lengths of windows: more than zero, and shortest not the longer")
    if max_rows is not None and max_rows < 1:
        raise ConfigError(f"max_rows must be at least 1, or None, not {max_rows}")
    if chosen.lag < SAFE_LAG:
        log.warning(
            "the windows of %s have a lag of %g s; below 30 s rows may be missed", stream, chosen.lag.total_seconds()
        )
    source = stream.describe()
    settings = read_options(stream, source, chosen.lag, mode, read or {})
    caps = _Caps(shortest // _MICROSECOND, longest // _MICROSECOND, max_rows)
    return Windows(spark, source, store, name, chosen, caps, settings, on_expired, stop or Stop())


def read_options(stream: Stream, source: Source, lag: timedelta, mode: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return options by which the data source reads the table of *stream*: what its session tells, and *given*.

    Raises:
        ConfigError: *given* has what it must not have, or lacks what a session does not tell, such as a password.
    """
    own = [key for key in given if key.lower() in _OWN_OPTIONS]
    if own:
        raise ConfigError(f"read= must not have {own[0]!r}, which follows from the stream")
    lower = {key.lower() for key in given}
    cluster = source.session.session.cluster
    found = {"keyspace": stream.keyspace, "table": stream.table, "mode": mode}
    found["lag"] = f"{lag // _MICROSECOND} us"
    if "contactpoints" not in lower:
        found["contactPoints"] = ",".join(_address(host) for host in source.session.hosts())
        found["port"] = str(cluster.port)
    if cluster.auth_provider is not None and not lower & {"username", "credentialsfile"}:
        raise ConfigError(
            "the stream's session logs in, and executors have to, too: pass read={'username': ..., 'passwordEnv': ...}"
        )
    if cluster.ssl_context is not None:
        if "tlsca" not in lower:
            raise ConfigError("the stream's session uses TLS, and executors have to, too: pass read={'tlsCa': ...}")
        if not cluster.ssl_context.check_hostname and "tlscheckhostname" not in lower:
            found["tlsCheckHostname"] = "false"
    return {**found, **given}


def _address(host: object) -> str:
    """Return a node as the driver writes it, host:port; IPv6 in brackets."""
    endpoint = host.endpoint  # type: ignore[attr-defined]
    address, port = str(endpoint.address), int(endpoint.port)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _iso(us: int) -> str:
    return tu.format_time(us)
