"""The public face of the source: ``NewStream`` and what can be asked of a stream."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import attrs

from .._slices import Slice
from ..clock import Clock, Stop, SystemClock
from ..errors import ConfigError, MissingLag
from ..event import Event
from ..options import SAFE_LAG, StreamOption, resolve
from ..types import quote_name
from .changes import Change
from .client import Client
from .driver import LogSession, Session, consistency_named
from .lookup import BaseRows
from .reader import Batch, Granularity, Reader, Settings
from .scan import Limits
from .source import OnExpired, Source

__all__ = ["GetCursor", "NewStream", "Stream"]

log = logging.getLogger("rscylla")


class Stream:
    """Opens event streams over the CDC log of one table; see ``NewStream`` for the arguments.

    Each call opens a stream: ``stream(after, StreamLag(seconds=30))``. Thread-safe: streams share only the session.
    """

    supports_lag = True

    def __init__(
        self,
        session: Session,
        keyspace: str,
        table: str,
        *,
        consistency: str = "QUORUM",
        event_type: Callable[[Change], int] | None = None,
        granularity: Granularity = "change",
        on_expired: OnExpired = "raise",
        limits: Limits | None = None,
        streams_per_query: int = 100,
        poll: timedelta = timedelta(seconds=1),
        progress_every: timedelta = timedelta(seconds=10),
        prefetch: int = 1,
        clock: Clock | None = None,
        key_slice: tuple[int, int] = (0, 1),
    ) -> None:
        if granularity not in ("change", "row"):
            raise ConfigError(f"granularity must be 'change' or 'row', not {granularity!r}")
        if on_expired not in ("raise", "oldest"):
            raise ConfigError(f"on_expired must be 'raise' or 'oldest', not {on_expired!r}")
        if poll <= timedelta() or progress_every < timedelta() or prefetch < 0:
            raise ConfigError("poll must be positive, progress_every and prefetch not negative")
        self.keyspace = keyspace
        self.table = table
        self._session = LogSession(session, consistency=consistency_named(consistency))
        self._clock = clock or SystemClock()
        self._base_rows = BaseRows(self._session, keyspace, table, self._clock)
        self._warned = False
        self._settings = Settings(
            granularity=granularity,
            event_type=event_type,
            on_expired=on_expired,
            streams_per_query=streams_per_query,
            limits=limits or Limits(),
            poll=poll,
            progress_every=progress_every,
            prefetch=prefetch,
            key_slice=Slice.of(key_slice),
        )

    @property
    def source(self) -> str:
        """The name of the base table, as in CQL: ``shop.orders``."""
        return str(self)

    @property
    def key_slice(self) -> tuple[int, int]:
        """The ``key_slice=`` argument of ``NewStream``: the index of the slice, and the number of slices."""
        key_slice = self._settings.key_slice
        return key_slice.index, key_slice.count

    def sliced(self, index: int, count: int) -> Stream:
        """Return the same stream for the slice *index* of *count*; see ``NewStream``.

        Raises:
            ConfigError: the slice does not exist.
        """
        other = copy.copy(self)
        other._settings = attrs.evolve(self._settings, key_slice=Slice.of((index, count)))  # noqa: SLF001 - a new one of ours
        return other

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> Client:
        """Open a stream that continues right after the cursor *after*; "" starts at the oldest row of the log.

        Blocks on a few small queries.

        Raises:
            MissingLag: *options* contain no ``StreamLag``.
            TableNotFound, CDCDisabled, NoStreams: there is nothing to read.
            InvalidCursor, CursorExpired, TableChanged: the stream cannot continue after *after*.
            ConnectionFailed, AuthenticationFailed, QueryFailed, QueryTimeout: the cluster did not answer.
        """
        chosen = resolve(options)
        if chosen.lag is None:
            raise MissingLag(f"the stream of {self}")
        inner = Stop()
        forget = stop.on_set(inner.set) if stop is not None else lambda: None
        try:
            source = self._source(inner)
            if not source.table.enabled:
                log.warning("%s: CDC is switched off; only what was logged before is read", source.table.full_name)
            lag_us = chosen.lag // timedelta(microseconds=1)
            if chosen.from_head:
                start = source.at(source.watermark_us(lag_us))
            else:
                start = source.resume(after, self._settings.on_expired)
            self._warn_of_lag(chosen.lag)
            # The pipeline, outermost first:
            #   Client   read-ahead thread, sticky errors, progress
            #   Reader   one window a step: generations, watermark, width      (follow, walk)
            #   Scanner  queries in flight, pages, retries                     (scan, query, driver)
            #   rows     cells and positions of a page; sorted by the reader
            #   records  rows to records, and to events as they are taken
            promised = bool(after) or chosen.from_head
            reader = Reader(source, start, chosen, self._settings, inner, promised=promised)
            inner.on_set(forget)
            # A head start is worth saving before anything is read: a restart must not begin at a newer head.
            first = Batch(iter(()), reader.done, must_save=chosen.from_head)
            return Client(reader, source, self._settings, self._clock, inner, first)
        except BaseException:
            forget()
            raise

    def cursor_at(self, time: datetime | None = None) -> str:
        """Return the cursor that starts at *time* (aware; inclusive), for ``stream(cursor, ...)`` or a cursor store.

        None, and times before the oldest row of the log, mean the oldest row, except that the cursor skips rows that
        expire within a minute (a tenth of the TTL if that is shorter), because they may expire before the cursor is
        used. This method does not look for a row: skipping empty time later costs next to nothing.

        Raises:
            ConfigError: *time* has no time zone.
            Others: as for opening.
        """
        return str(self._source(Stop()).at_time(time))

    def head_cursor(self, lag: timedelta) -> str:
        """Return the cursor of the current head: the point *lag* ago, by the slowest clock of client and nodes."""
        source = self._source(Stop())
        return str(source.at(source.watermark_us(lag // timedelta(microseconds=1))))

    def lookup(self, of: Event | str) -> dict[str, Any] | None:
        """Return the current row of the base table, by column, with null as None; None if the row does not exist.

        Values have the same types as in changes. The first call prepares the statement. Blocks; thread-safe.

        Args:
            of: an event of this stream, or the ``foreign_id`` of one. For an event of the static row, the result has
                the partition key and the static columns.

        Raises:
            IncompleteKey: *of* identifies a range or a partition, not a row.
            ConfigError: the text is not a foreign id of this table, or the event is of another table.
            TableNotFound, CDCDisabled, ConnectionFailed, AuthenticationFailed, QueryFailed, QueryTimeout: as for
                opening; temporary errors are retried for a few seconds.
        """
        return self._base_rows.get(of)

    def describe(self) -> Source:
        """Return a description of the table's log: its columns and options, generations, streams, clocks. Blocks."""
        return self._source(Stop())

    def _source(self, stop: Stop) -> Source:
        return Source(self._session, self.keyspace, self.table, self._clock, stop)

    def _warn_of_lag(self, lag: timedelta) -> None:
        """Warn once of a lag below the safe one. Called when the table is known to be there."""
        if lag < SAFE_LAG and not self._warned:
            self._warned = True
            log.warning(
                "the stream of %s has a lag of %g s; below %d s rows may arrive behind the reader and be missed",
                self,
                lag.total_seconds(),
                SAFE_LAG.total_seconds(),
            )

    def __str__(self) -> str:
        return f"{quote_name(self.keyspace)}.{quote_name(self.table)}"


def NewStream(
    session: Session,
    keyspace: str,
    table: str,
    *,
    consistency: str = "QUORUM",
    event_type: Callable[[Change], int] | None = None,
    granularity: Granularity = "change",
    on_expired: OnExpired = "raise",
    limits: Limits | None = None,
    streams_per_query: int = 100,
    poll: timedelta = timedelta(seconds=1),
    progress_every: timedelta = timedelta(seconds=10),
    prefetch: int = 1,
    clock: Clock | None = None,
    key_slice: tuple[int, int] = (0, 1),
) -> Stream:
    """Return a stream function over the CDC log of a table. It sends no query until it is called.

    Args:
        session: a connected driver session. The caller keeps it; it is neither changed nor closed.
        keyspace, table: the base table, names as stored (no quotes).
        consistency: level of log reads. It must overlap with the level of the writes: R + W > replicas.
        event_type: maps a change to ``event.type``; default: the ``Operation``.
        granularity: ``"change"``: one event per change, with its images; ``"row"``: one event per log row.
        on_expired: what to do with a cursor older than the log's TTL, or than a log that was dropped and created again:
            ``"raise"``, or continue at the ``"oldest"`` row.
        limits: queries in flight, page size, rows and bytes of a window, retries.
        streams_per_query: streams per query, at most 100.
        poll: pause between polls at the head; a tenth of the lag if that is shorter.
        progress_every: how often an idle stream returns a ``Progress``.
        prefetch: windows read ahead; 0 reads in the thread that calls ``recv``.
        clock: where time comes from.
        key_slice: ``(m, n)``: only the changes of the keys in slice m, from 0, of n; see ``slice_specs``. A key is
            always in the same slice, so n processes together read a table once, each in the order of its keys.

    Raises:
        ConfigError: an argument is invalid.
    """
    return Stream(
        session,
        keyspace,
        table,
        consistency=consistency,
        event_type=event_type,
        granularity=granularity,
        on_expired=on_expired,
        limits=limits,
        streams_per_query=streams_per_query,
        poll=poll,
        progress_every=progress_every,
        prefetch=prefetch,
        clock=clock,
        key_slice=key_slice,
    )


def GetCursor(session: Session, keyspace: str, table: str, time: datetime | None = None) -> str:
    """Return the cursor that starts at *time*; the same as ``NewStream(session, keyspace, table).cursor_at(time)``."""
    return NewStream(session, keyspace, table).cursor_at(time)
