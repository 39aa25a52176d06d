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
from ..abc import CursorStore
from ..cdc import plan
from ..cdc.source import OnExpired, Source
from ..cdc.stream import Stream
from ..cdc.topology import Generation, generation_at
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
        self._caps = caps
        self._read = dict(read)
        if on_expired == "oldest" and "failondataloss" not in {name.lower() for name in read}:
            self._read["failOnDataLoss"] = "false"  # rows go on expiring until an executor reads them
        self._on_expired: OnExpired = on_expired
        self._stop = stop
        assert options.lag is not None
        self._lag_us = options.lag // _MICROSECOND
        most = caps.longest_us
        self._width = plan.Width(us=most, target=max(1, (caps.max_rows or 1) * 4 // 5), most_us=most)
        self._promised_us = 0
        self._place = self._first_place()
        self._open: Window | None = None
        self._reach_us = 0
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Window, DataFrame]:
        """Save the cursor of the last window, then return the next; see ``windows``."""
        self.save()
        while not self._ended:
            window = self._next_window()
            if window is None:
                continue
            frame = self._frame(window)
            if self._caps.max_rows is not None:
                with spark_errors():
                    rows = frame.count()
                flat = plan.Window(window.generation, window.start_us, window.end_us)
                if rows > self._caps.max_rows and self._width.can_narrow(flat):
                    self._width = self._width.narrower(flat)
                    continue
                self._width = self._width.after(flat, rows)
            self._open = window
            return window, frame
        self._store.flush()
        raise StopIteration

    def save(self) -> None:
        """Move the cursor behind the window that was given out last. Taking the next window does it, too."""
        if self._open is not None:
            self._move(EventID.parse(self._open.end))
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

    def _first_place(self) -> EventID:
        if self._options.from_head:
            place = self._source.at(self._source.watermark_us(self._lag_us))
            self._store.set_cursor(self._name, str(place))  # a restart must not begin at a newer head
            return place
        cursor = self._store.get_cursor(self._name)
        if cursor:
            return self._source.resume(cursor, self._on_expired)
        self._promised_us = self._source.now_us()  # what is gone before that was never anybody's
        return self._source.at_time(None)

    def _move(self, place: EventID) -> None:
        self._store.set_cursor(self._name, str(place))
        self._place = place

    def _next_window(self) -> Window | None:
        """Return the next window; None after the place was moved or time has passed, or at the end."""
        if self._stop.is_set():
            self._ended = True
            return None
        source = self._source
        watermark_us = source.watermark_us(self._lag_us)
        until = self._options.until
        reach_us = watermark_us if until is None else min(watermark_us, tu.us_of(until))
        at_us = self._place.exact_us
        if self._is_at_end(at_us):
            self._ended = True
            return None
        self._reach_us = reach_us
        source.refresh_metadata()
        if reach_us > source.known_at_us - min(self._lag_us // 2, 15_000_000):
            source.refresh_generations()
        self._place = self._within_ttl()
        at_us = self._place.exact_us
        boundary = self._successor(self._place.generation)
        if boundary is not None and at_us >= boundary.start_us:
            source.reread_table(patiently=True)
            self._move(self._source.read_until(boundary, boundary.start_us))
            return None
        hole = source.hole(at_us)
        ahead = (None if each is None else each.start_us for each in (boundary, hole))
        limit_us = min((us for us in ahead if us is not None and us > at_us), default=None)
        found = plan.next_window(
            self._place.generation, at_us, watermark_us=reach_us, boundary_us=limit_us, width_us=self._width.us
        )
        if found is None or self._is_too_short(found, limit_us):
            if not self._is_at_end(at_us):
                self._wait(at_us, watermark_us)
            return None
        end = source.read_until(Generation(found.generation), found.end_us)
        return Window(found.generation, found.start_us, found.end_us, str(self._place), str(end))

    def _within_ttl(self) -> EventID:
        """Return the place, or where the rows go on that are left behind it, if nobody was promised others, or minds.

        Raises:
            CursorExpired: rows that were promised may be gone, and the policy is to raise.
        """
        source, at_us = self._source, self._place.exact_us
        hole = source.hole(at_us)
        if hole is not None and hole.start_us <= at_us < self._promised_us:
            return source.at(hole.end_us)
        return source.resume(str(self._place), self._on_expired, saved=False)

    def _is_at_end(self, at_us: int) -> bool:
        """Whether all that was asked for was given out. The head is that of when the last window was planned."""
        until = self._options.until
        if until is not None and at_us >= tu.us_of(until):
            return True
        return self._options.to_head and self._reach_us > 0 and at_us >= self._reach_us

    def _is_too_short(self, found: plan.Window, limit_us: int | None) -> bool:
        """Whether more of the window is to come, and it is worth waiting for: each window costs jobs of Spark."""
        if found.span_us >= min(self._caps.shortest_us, self._width.us) or self._options.to_head:
            return False
        asked = None if self._options.until is None else tu.us_of(self._options.until)
        return found.end_us not in (asked, limit_us)

    def _wait(self, at_us: int, watermark_us: int) -> None:
        """Wait until the window should be long enough, or what ends the loop be reached; ten seconds at most."""
        target_us = at_us + min(self._caps.shortest_us, self._width.us)
        if self._options.until is not None:
            target_us = min(target_us, tu.us_of(self._options.until))
        self._source.clock.wait(self._stop, min(10.0, max(0.05, (target_us - watermark_us) / 1e6)))

    def _successor(self, generation: int) -> Generation | None:
        generations = self._source.generations
        i = generation_at(generations, generation * 1000)
        return generations[i + 1] if i + 1 < len(generations) else None

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
    if stream.key_slice != (0, 1):
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
