"""The public face of the source: ``NewStream`` and what can be asked of a stream."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import attrs

from .._shards import Shard
from ..clock import Clock, Stop, SystemClock
from ..errors import ConfigError, MissingLag
from ..event import Event
from ..options import SAFE_LAG, StreamOption, resolve
from .changes import Change
from .client import Client
from .driver import LogSession, Session, consistency_named
from .lookup import BaseRows
from .query import quote_name
from .reader import Batch, Granularity, Reader, Settings
from .scan import Limits
from .source import OnExpired, Source

__all__ = ["GetCursor", "NewStream", "Stream"]

log = logging.getLogger("rscylla")


class Stream:
    """Opens event streams over the CDC log of one table; see ``NewStream`` for the arguments.

    A call opens one: ``stream(after, StreamLag(seconds=30))``. Thread-safe: streams share nothing but the session.
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
        shard: tuple[int, int] = (0, 1),
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
            shard=Shard.of(shard),
        )

    @property
    def source(self) -> str:
        """The table that is read, as in CQL: ``shop.orders``."""
        return str(self)

    @property
    def shard(self) -> tuple[int, int]:
        """The slice that is read, as ``NewStream`` was given it."""
        shard = self._settings.shard
        return shard.index, shard.count

    def sharded(self, index: int, count: int) -> Stream:
        """Return the same stream for the slice *index* of *count*; see ``NewStream``.

        Raises:
            ConfigError: there is no such slice.
        """
        other = copy.copy(self)
        other._settings = attrs.evolve(self._settings, shard=Shard.of((index, count)))  # noqa: SLF001 - a new one of ours
        return other

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> Client:
        """Open a stream that continues right after the cursor *after*; "" starts at the oldest row of the log.

        Blocks on a few small queries.

        Raises:
            MissingLag: no ``StreamLag`` among *options*.
            TableNotFound, CDCDisabled, NoStreams: there is nothing to read.
            InvalidCursor, CursorExpired, TableChanged: *after* cannot be continued.
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
            #   Reader   one window a step: generations, watermark, width      (plan)
            #   Scanner  queries in flight, pages, retries                     (query, driver)
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

        None, and times before what the log keeps, give the oldest row's place, leaving out the minute of rows that
        would expire before the cursor is used (a tenth of the TTL if that is shorter). No row is looked for: empty time
        costs next to nothing to skip.

        Raises:
            ConfigError: *time* has no time zone.
            Others: as for opening.
        """
        return str(self._source(Stop()).at_time(time))

    def head_cursor(self, lag: timedelta) -> str:
        """Return the cursor of the head as it is now: the point *lag* ago, by the slowest clock of client and nodes."""
        source = self._source(Stop())
        return str(source.at(source.watermark_us(lag // timedelta(microseconds=1))))

    def lookup(self, of: Event | str) -> dict[str, Any] | None:
        """Return the row of the base table as it is now, by column, null as None; None if it is gone.

        Values are as those of changes. The statement is prepared at the first call. Blocks; any thread may call.

        Args:
            of: an event of this stream, or the ``foreign_id`` of one. An event of the static row gives the
                partition key and the static columns.

        Raises:
            IncompleteKey: *of* names a range or a partition, not a row.
            ConfigError: the text is no foreign id of this table, or the event is of another table.
            TableNotFound, CDCDisabled, ConnectionFailed, AuthenticationFailed, QueryFailed, QueryTimeout: as for
                opening; what may pass is tried again for a few seconds.
        """
        return self._base_rows.get(of)

    def describe(self) -> Source:
        """Return what is known of the table's log: its columns and options, generations, streams, clocks. Blocks."""
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
    shard: tuple[int, int] = (0, 1),
) -> Stream:
    """Return a stream function over the CDC log of a table. Nothing is asked of the cluster until it is called.

    Args:
        session: a connected driver session. It stays the caller's and is left as it is.
        keyspace, table: the base table, names as stored (no quotes).
        consistency: level of log reads. With the level of the writes it must overlap: R + W > replicas.
        event_type: maps a change to ``event.type``; without it the type is the ``Operation``.
        granularity: ``"change"``: one event a change, images joined to it; ``"row"``: one a log row.
        on_expired: what to do with a cursor older than the log's TTL, or than a log that was dropped and created again:
            ``"raise"``, or go on at the ``"oldest"`` row.
        limits: queries in flight, page size, rows and bytes of a window, retries.
        streams_per_query: streams asked in one query, at most 100.
        poll: wait between looks at the head; a tenth of the lag if that is shorter.
        progress_every: how often an idle stream's progress is told.
        prefetch: windows read ahead; 0 reads in the thread that calls ``recv``.
        clock: where time comes from.
        shard: ``(m, n)``: only the changes of the keys in slice m, from 0, of n; see ``shard_specs``. A key is in the
            same slice for ever, so n processes read a table once between them, each in the order of its keys.

    Raises:
        ConfigError: an argument is wrong.
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
        shard=shard,
    )


def GetCursor(session: Session, keyspace: str, table: str, time: datetime | None = None) -> str:
    """Return the cursor that starts at *time*; the same as ``NewStream(session, keyspace, table).cursor_at(time)``."""
    return NewStream(session, keyspace, table).cursor_at(time)
