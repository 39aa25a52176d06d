"""The public interface of the source: ``NewStream``, and the methods of a stream."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import attrs

from ..clock import Stop
from ..driver import ReadSession, Session, consistency_named
from ..errors import CDCDisabled, MissingLag, TableNotFound
from ..event import Event
from ..options import SAFE_LAG, StreamOption, StreamOptions, resolve
from ..types import quote_name
from .client import Client, Direct, Feed, ReadAhead
from .log import Source, resume
from .lookup import BaseRows
from .read import Reader, SharedReaders, Step, StreamSettings
from .rows import NO_EVENTS

__all__ = ["GetCursor", "NewStream", "Stream"]

log = logging.getLogger("rscylla")


@attrs.define(eq=False, repr=False, slots=False)
class Stream(StreamSettings):
    """Opens event streams over the CDC log of one table: ``stream(after, StreamLag(seconds=30))``.

    It sends no query until it is called, and each call opens another stream. Thread-safe: streams share only the
    session, and those of its slices (``sliced``) what they read at the same point of the log.

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
        progress_every: how often an idle stream returns a ``Progress``. Slices that read together do so less often, but
            at least every 30 seconds, if one alone does.
        prefetch: windows read ahead; 0 reads in the thread that calls ``recv``.
        clock: the clock of waits and timeouts; default: the system's.
        key_slice: ``(m, n)``: only the changes of the keys in slice m, from 0, of n; see ``slice_specs``. A key is
            always in the same slice, so n processes together read a table once, each in the order of its keys.

    Raises:
        ConfigError: an argument is invalid.
    """

    supports_lag = True

    session: Session
    keyspace: str
    table: str
    _log: ReadSession = attrs.field(init=False)
    _base_rows: BaseRows = attrs.field(init=False)
    _warned: bool = attrs.field(default=False, init=False)
    _parts: SharedReaders = attrs.field(factory=SharedReaders, init=False)  # of its slices
    _shared: SharedReaders | None = attrs.field(default=None, init=False)  # of the stream that it is a slice of
    _whole: Stream | None = attrs.field(default=None, init=False)  # the stream that it is a slice of

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._log = ReadSession(self.session, consistency=consistency_named(self.consistency))
        self._base_rows = BaseRows(self._log, self.keyspace, self.table, self.clock)

    @property
    def source(self) -> str:
        """The name of the base table, as in CQL: ``shop.orders``."""
        return str(self)

    def sliced(self, index: int, count: int) -> Stream:
        """Return the same stream for the slice *index* of *count*; see ``NewStream``.

        Slices of one stream that are open at the same time are read together, unless ``prefetch`` is 0.

        Raises:
            ConfigError: the slice does not exist.
        """
        part = attrs.evolve(self, key_slice=(index, count))
        part._shared = self._parts  # noqa: SLF001 - same class
        part._parts = self._parts  # noqa: SLF001
        part._whole = self._whole or self  # noqa: SLF001
        return part

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> Client:
        """Open a stream that continues right after the cursor *after*; "" starts at the oldest row of the log.

        Blocks on a few small queries.

        Raises:
            MissingLag: *options* contain no ``StreamLag``.
            TableNotFound, CDCDisabled, NoStreams: there is nothing to read. With a cursor and ``on_expired="oldest"``,
                all of them are resumable: the table may be created again.
            InvalidCursor, CursorExpired, TableChanged: the stream cannot continue after *after*.
            ConnectionFailed, AuthenticationFailed, QueryFailed, QueryTimeout: the cluster did not answer.
        """
        chosen = resolve(options)
        if chosen.lag is None:
            raise MissingLag(f"the stream of {self}")
        if self._shared is None or not self.prefetch:
            return self._open(after, chosen, stop, None)
        with self._shared.opens():
            return self._open(after, chosen, stop, self._shared)

    def _open(self, after: str, chosen: StreamOptions, stop: Stop | None, shared: SharedReaders | None) -> Client:
        assert chosen.lag is not None
        inner = Stop()
        forget = stop.on_set(inner.set) if stop is not None else lambda: None
        try:
            source = self._source(inner) if shared is None else shared.source(partial(self._source, inner), inner)
            if not source.table.enabled:
                log.warning(
                    "%s: CDC is switched off; only changes that were logged before are read", source.table.full_name
                )
            lag_us = chosen.lag // timedelta(microseconds=1)
            if chosen.from_head:
                start, promised = source.head(lag_us), True
            else:
                start, promised = resume(source, after, self.on_expired), after != ""
            self._warn_of_lag(chosen.lag)
            # The pipeline, outermost first:
            #   Client   read-ahead thread, sticky errors, progress
            #   Reader   one window a step: generations, watermark, width      (follow, walk)
            #   Scanner  queries in flight, pages, retries                     (scan, query, driver)
            #   rows     cells and positions of a page; sorted by the reader
            #   events   rows to records, and to events as they are taken
            reading = inner if shared is None else Stop()
            source = source if shared is None else source.until(reading)
            reader = Reader(source, start, chosen, self, reading, promised=promised)
            inner.on_set(forget)
            # A start at the head is saved before anything is read, so that a restart does not begin at a newer head.
            first = Step(NO_EVENTS, reader.done, must_save=chosen.from_head)
            feed: Feed
            if shared is not None:
                feed = shared.begin(reader, source, self, inner, reading)
            elif self.prefetch:
                feed = ReadAhead(reader, source, inner, self.prefetch)
            else:
                feed = Direct(reader, source)
            return Client(feed, self, inner, first)
        except BaseException as error:
            forget()
            if isinstance(error, TableNotFound | CDCDisabled) and after and self.on_expired == "oldest":
                error.resumable = True  # it was there, and is to be continued when it is created again
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
        return str(self._source(Stop()).head(lag // timedelta(microseconds=1)))

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
        return Source(self._log, self.keyspace, self.table, self.clock, stop)

    def _warn_of_lag(self, lag: timedelta) -> None:
        """Warn once, for all slices, about a lag below the safe one. Called after the table was found."""
        whole = self._whole or self
        if lag < SAFE_LAG and not whole._warned:  # noqa: SLF001 - same class
            whole._warned = True  # noqa: SLF001
            log.warning(
                "the stream of %s has a lag of %g s; below %d s, rows may arrive behind the reader and be missed",
                self,
                lag.total_seconds(),
                SAFE_LAG.total_seconds(),
            )

    def __str__(self) -> str:
        return f"{quote_name(self.keyspace)}.{quote_name(self.table)}"


NewStream = Stream


def GetCursor(session: Session, keyspace: str, table: str, time: datetime | None = None) -> str:
    """Return the cursor that starts at *time*; the same as ``NewStream(session, keyspace, table).cursor_at(time)``."""
    return NewStream(session, keyspace, table).cursor_at(time)
