"""``windows``: the changes of a table as complete windows, each a DataFrame, with the cursor of a service.

The driver only plans: the executors read the rows of a window when an action needs them. The cursor is that of
``rscylla.run``, so a consumer can move from a service to Spark and back.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

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

T = TypeVar("T")

_OWN_OPTIONS = frozenset(("keyspace", "table", "lag", "mode", "startingposition", "endingposition"))


@attrs.frozen
class Window:
    """A span of time in one generation: the changes after the cursor ``start`` and before the point ``end``.

    Both are cursors; the store saves ``end`` when the window is done. ``start`` may be a row in the middle of a span,
    if a service stopped there. Equal windows contain equal rows, so you can use ``name`` as the key of an idempotent
    sink.
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
        """Start and end as text that sorts by time and can be part of file names."""
        text = f"{self.start_time:%Y%m%dT%H%M%S.%fZ}-{self.end_time:%Y%m%dT%H%M%S.%fZ}"
        after = EventID.parse(self.start)
        return f"{text}-after-{after.position.hex()}" if after.is_row else text


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

    @classmethod
    def of(
        cls,
        stream: Stream,
        options: Iterable[StreamOption],
        *,
        shortest: timedelta,
        longest: timedelta,
        max_rows: int | None,
        on_expired: OnExpired,
        stop: Stop | None,
    ) -> Self:
        """Return the plan for *stream* by the arguments of ``windows``. Warns of an unsafe lag.

        Raises:
            MissingLag, ConfigError: an option is missing or invalid.
        """
        chosen = resolve(options)
        if chosen.lag is None:
            raise MissingLag(f"the windows of {stream}")
        if Slice.of(stream.key_slice).count > 1:
            raise ConfigError("windows read a whole table; pass a stream without key_slice=")
        if not timedelta() < shortest <= longest:
            raise ConfigError("shortest and longest must be more than zero, and shortest must not be above longest")
        if max_rows is not None and max_rows < 1:
            raise ConfigError(f"max_rows must be at least 1, or None, not {max_rows}")
        if chosen.lag < SAFE_LAG:
            log.warning(
                "the windows of %s have a lag of %g s; below 30 s, rows may be missed",
                stream,
                chosen.lag.total_seconds(),
            )
        caps = shortest // _MICROSECOND, longest // _MICROSECOND, max_rows
        return cls(chosen, chosen.lag, *caps, on_expired, stop or Stop())


class WindowLoop(Iterator[T], Generic[T]):
    """An iterator over the windows behind a cursor, for one thread, and a context manager that closes it.

    A subclass says what the loop returns for a window, and how many rows that has.

    Raises (constructor):
        InvalidCursor, CursorExpired, TableChanged: the stored cursor cannot be continued.
    """

    def __init__(self, source: Source, store: CursorStore, name: str, plan: WindowPlan) -> None:
        self._source = source
        self._store = store
        self._name = name
        self._options = plan.options
        self._max_rows = plan.max_rows
        self._on_expired: OnExpired = plan.on_expired
        self._stop = plan.stop
        self._position, promised = self._first_position(plan.lag // _MICROSECOND)
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
        self._open: tuple[Window, Walk] | None = None
        self._ended = False

    @abstractmethod
    def _shown(self, window: Window) -> T:
        """Return what the loop returns for *window*."""

    @abstractmethod
    def _rows_of(self, shown: T) -> int:
        """Return the number of rows of a window. Called only if windows have a limit of rows."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """Save the cursor of the last window, then return the next."""
        self.save()
        while (step := self._next_read()) is not None:
            window = self._window(step)
            shown = self._shown(window)
            rows = None
            if self._max_rows is not None:
                rows = self._rows_of(shown)
                # Counted before it is returned: a window that the caller has seen can no longer be narrowed.
                if rows > self._max_rows and step.window.can_narrow:
                    self._follower.walk = self._follower.walk.too_much(step)
                    continue
            self._open = window, self._follower.walk.read(step, rows)
            return shown
        self._store.flush()
        raise StopIteration

    def save(self) -> None:
        """Move the cursor to the end of the last returned window. Requesting the next window also does this."""
        if self._open is not None:
            window, walk = self._open
            self._move(EventID.parse(window.end), walk)
            self._open = None

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

    def _first_position(self, lag_us: int) -> tuple[EventID, bool]:
        """Return where to begin, and whether the rows after it are promised; see ``Source.begin``."""
        if self._options.from_head:
            position = self._source.head(lag_us)
            self._store.set_cursor(self._name, str(position))  # a restart must not begin at a newer head
            return position, True
        return self._source.begin(self._store.get_cursor(self._name) or None, self._on_expired)

    def _move(self, position: EventID, walk: Walk) -> None:
        self._store.set_cursor(self._name, str(position))
        self._position = position
        self._follower.walk = walk

    def _next_read(self) -> Read | None:
        """Return the next window to read; None at the end. Waits at the head."""
        source, follower = self._source, self._follower
        while not self._ended and not self._stop.is_set():
            match follower.next():
                case Read() as step:
                    return step
                case Switch() as step:
                    walk = follower.walk.switched(step)
                    self._move(follower.point(walk), walk)
                case Wait() as step:
                    # At least 50 ms, so that a remainder of microseconds does not spin. At most 10 s, so that a stepped
                    # clock or a dropped table is noticed soon, however long the window is.
                    left_s = (step.until_us - follower.watermark_us) / 1e6
                    source.clock.wait(self._stop, min(10.0, max(0.05, left_s)))
                case _:
                    break
        self._ended = True
        return None

    def _window(self, step: Read) -> Window:
        generation, start_us, end_us = step.window.generation, step.window.start_us, step.window.end_us
        if (self._position.generation, self._position.exact_us) != (generation, start_us):
            self._position = self._source.at(start_us)  # the rows in between have expired
        end = self._source.read_until(Generation(generation), end_us)
        return Window(generation, start_us, end_us, str(self._position), str(end))


class Windows(WindowLoop[tuple[Window, "DataFrame"]]):
    """The result of ``windows``: an iterator for one thread, and a context manager that closes it."""

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        store: CursorStore,
        name: str,
        plan: WindowPlan,
        read: Mapping[str, str],
    ) -> None:
        self._spark = spark
        self._read = dict(read)
        if plan.on_expired == "oldest" and "failondataloss" not in {name.lower() for name in read}:
            self._read["failOnDataLoss"] = "false"  # rows may expire until an executor reads them
        super().__init__(source, store, name, plan)

    def _shown(self, window: Window) -> tuple[Window, DataFrame]:
        reader = self._spark.read.format(FORMAT).options(**self._read)
        reader = reader.option("startingPosition", window.start).option("endingPosition", _iso(window.end_us))
        with spark_errors():
            return window, reader.load()

    def _rows_of(self, shown: tuple[Window, DataFrame]) -> int:
        with spark_errors():
            rows: int = shown[1].count()
        return rows


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
    """Yield the changes of a table after the cursor *name* as complete windows, one after the other, in order.

    ::

        orders = ParquetTable(spark, "/data/orders")
        for window, changes in windows(spark, stream, store, "lake", StreamLag(seconds=30), StreamToHead()):
            apply_changes(changes, orders, window=window)

    The cursor moves to the end of a window when the loop requests the next one, that is, when the loop body ends
    without an error. After an error in the body or a ``break``, the cursor stays at the start of the window, and the
    window is delivered again; if the window is done, call ``save()`` on the iterator before a ``break``. A body may
    therefore run twice for one window, with the same rows. It must be idempotent; ``window.name`` is the same each
    time. A window never spans two generations of streams. Its rows are those whose write times are in the window.

    A window that begins at a row cursor of a service contains the rows after that row. The saved cursor is then a
    point, from which a service can continue. With ``StreamToHead``, the loop ends at the head as of the time when the
    last window was planned; with ``StreamUntil``, it ends at that time; otherwise, it waits at the head for more
    changes.

    Args:
        stream: of ``NewStream``; its session is used to plan, and to find contact points for the executors.
        store: the store of the cursor. Only the driver writes to it.
        options: options of a stream; ``StreamLag`` is required.
        mode: mode of the data source: ``changes``, ``log``, or ``events``.
        read: more options of the data source: login, TLS, and contact points for the executors.
        shortest: minimum length of a window at the head, because each window costs a few Spark jobs.
        longest: maximum length of a window.
        max_rows: maximum number of rows in a window. The rows are counted first, so they are read once more.
        on_expired: what to do if the cursor is older than the log's TTL: ``"raise"``, or continue at the ``"oldest"``
            row.
        stop: ends the loop after the current window.

    Raises:
        MissingLag, ConfigError: an option is missing or invalid.
        TableNotFound, CDCDisabled, InvalidCursor, CursorExpired, SourceError: as for a stream, also during iteration.
        RscyllaError: during iteration: Spark failed to plan or count a window; see ``spark_errors``.
    """
    plan = WindowPlan.of(
        stream,
        options,
        shortest=shortest,
        longest=longest,
        max_rows=max_rows,
        on_expired=on_expired,
        stop=stop,
    )
    source = stream.describe()
    settings = read_options(stream, source, plan.lag, mode, read or {})
    return Windows(spark, source, store, name, plan, settings)


def read_options(stream: Stream, source: Source, lag: timedelta, mode: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return options of the data source for the table of *stream*: from its session, and from *given*.

    Raises:
        ConfigError: *given* has an option that follows from the stream, or lacks one that a session does not reveal,
            such as a password.
    """
    own = [key for key in given if key.lower() in _OWN_OPTIONS]
    if own:
        raise ConfigError(f"read= must not contain {own[0]!r}, which follows from the stream")
    lower = {key.lower() for key in given}
    cluster = source.session.session.cluster
    found = {"keyspace": stream.keyspace, "table": stream.table, "mode": mode}
    found["lag"] = f"{lag // _MICROSECOND} us"
    if "contactpoints" not in lower:
        found["contactPoints"] = ",".join(_address(host) for host in source.session.hosts())
        found["port"] = str(cluster.port)
    if cluster.auth_provider is not None and not lower & {"username", "credentialsfile"}:
        raise ConfigError(
            "the stream's session logs in, so executors must, too: pass read={'username': ..., 'passwordEnv': ...}"
        )
    if cluster.ssl_context is not None:
        if "tlsca" not in lower:
            raise ConfigError("the stream's session uses TLS, so executors must, too: pass read={'tlsCa': ...}")
        if not cluster.ssl_context.check_hostname and "tlscheckhostname" not in lower:
            found["tlsCheckHostname"] = "false"
    return {**found, **given}


def _address(host: object) -> str:
    """Return the address of a node as host:port; IPv6 in brackets."""
    endpoint = host.endpoint  # type: ignore[attr-defined]
    address, port = str(endpoint.address), int(endpoint.port)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _iso(us: int) -> str:
    return tu.format_time(us)
