"""One table as a source: its metadata, generations and clocks, kept fresh, and where a cursor lies in them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, TypeVar

from .._retry import Backoff, retry
from .._timeuuid import datetime_of, us_of
from ..clock import Clock, Stop
from ..errors import (
    ConfigError,
    CursorExpired,
    InvalidCursor,
    NoStreams,
    SourceError,
    TableChanged,
)
from ..event import EventID
from .driver import LogSession
from .query import one_row_cql
from .topology import Generation, NodeClocks, TableInfo, Topology, generation_at, read_table, topology_for

__all__ = ["OnExpired", "Source"]

log = logging.getLogger("rscylla")

T = TypeVar("T")

FIRST_SET_US = 10_000_000
"""The first stream set of a tablets table is at most this much older than its log; in Scylla it is 5 s."""

OnExpired = Literal["raise", "oldest"]

METADATA_EVERY_S = 15.0
"""How often the table and the nodes' clocks are looked at again."""

STREAMS_ATTEMPTS = 6

CLOCKS_ATTEMPTS = 3

EDGE_US = 60_000_000
"""A cursor for later use keeps this far from what is about to expire."""


class Source:
    """What is known of a table's log. Used by one thread at a time. All methods may block on small queries.

    Raises (constructor):
        TableNotFound, CDCDisabled, NoStreams: see there.
    """

    def __init__(self, session: LogSession, keyspace: str, table: str, clock: Clock, stop: Stop) -> None:
        self.session = session
        self.clock = clock
        self._stop = stop
        self._backoff = Backoff(initial=timedelta(milliseconds=200), maximum=timedelta(seconds=5))
        self.table: TableInfo = read_table(session, keyspace, table)
        self.topology: Topology = topology_for(session, keyspace, table)
        self.node_clocks = NodeClocks(session, clock)
        self.generations: tuple[Generation, ...] = ()
        self.known_at_us = 0
        self.gaps = 0
        """How often changes were passed over that may be lost."""
        self._metadata_at = clock.monotonic()
        self._learn_clocks()
        self.refresh_generations()

    # ------------------------------------------------------------ freshness

    def _learn_clocks(self) -> None:
        """Ask the nodes for their time until one tells it: the client's own clock may be wrong."""
        self.node_clocks.sample()
        for attempt in range(1, CLOCKS_ATTEMPTS):
            if self.node_clocks.skew_us:
                return
            self.clock.wait(self._stop, self._backoff.seconds(attempt))
            self._stop.check()
            self.node_clocks.sample()
        if not self.node_clocks.skew_us:
            log.warning("%s: no node tells its time, this machine's clock is believed", self.table.full_name)

    def refresh_generations(self) -> None:
        """Read the list of generations; ``known_at_us`` is when that began, by the slowest clock.

        Generations are announced by nodes, a while before they start by the clock of the node: a list that was read at
        some time on all nodes has all that start until then.
        """
        at = self.node_clocks.slowest_us()
        found = self._patiently(self._read_generations)
        self.generations = found
        self.known_at_us = at

    def _read_generations(self) -> tuple[Generation, ...]:
        found = self.topology.generations()
        if not found:
            self.reread_table()  # the streams of tablets go with the table: then that is what is to be told
            raise NoStreams("the cluster has no CDC generation yet; is it still starting?")
        return found

    def refresh_metadata(self) -> None:
        """Look at the table and the clocks again if that was long ago.

        Raises:
            TableChanged: the log was dropped and created again, so cursors and streams no longer fit.
        """
        now = self.clock.monotonic()
        if now - self._metadata_at < METADATA_EVERY_S and not self.node_clocks.has_stepped():
            return
        self._metadata_at = now
        self.node_clocks.sample()
        try:
            self.reread_table()
        except SourceError as e:
            if not e.resumable:
                raise
            log.info("%s; what was known of the table before is used for now", e)

    def reread_table(self, *, patiently: bool = False) -> TableInfo:
        """Read the table's columns and options again; *patiently*: also where a first try fails."""

        def read() -> TableInfo:
            return read_table(self.session, self.table.keyspace, self.table.name)

        fresh = self._patiently(read) if patiently else read()
        if fresh.log_id != self.table.log_id:
            raise TableChanged(
                f"the CDC log of {fresh.full_name} was dropped and created again; changes in between are gone, "
                "open a new stream and reset the cursor"
            )
        self.table = fresh
        return fresh

    def streams(self, generation: Generation) -> tuple[bytes, ...]:
        """Return the streams of *generation*; an empty set is asked for again and then an error, never "no events"."""
        return self._patiently(lambda: self.topology.streams(generation))

    def _patiently(self, read: Callable[[], T]) -> T:
        """Return what *read* gives, with some patience for nodes that fail and for what has not reached them yet."""
        return retry(read, attempts=STREAMS_ATTEMPTS, backoff=self._backoff, clock=self.clock, stop=self._stop)

    # ------------------------------------------------------------ places

    def watermark_us(self, lag_us: int) -> int:
        """Return the time before which all rows have arrived, as far as clocks and lag tell."""
        return self.node_clocks.slowest_us() - lag_us

    def oldest_us(self) -> int:
        """Return the time from which the log may still hold rows."""
        return max(self.generations[0].start_us, self._oldest_kept_us())

    def _oldest_kept_us(self) -> int:
        """Return the time before which all rows have expired."""
        return self.now_us() - self.table.ttl_s * 1_000_000 if self.table.ttl_s else 0

    def now_us(self) -> int:
        """Return the time on the nodes, which decide what has expired."""
        return self.node_clocks.nodes_us()

    def oldest(self) -> EventID:
        return self.at(self.oldest_us())

    def at(self, time_us: int) -> EventID:
        """Return the point *time_us* as a cursor; the first generation's start if it is before that."""
        i = generation_at(self.generations, time_us)
        if i < 0:
            first = self.generations[0]
            return EventID(first.time, first.start_us)
        return EventID(self.generations[i].time, time_us)

    def at_time(self, time: datetime | None) -> EventID:
        """Return the cursor that starts at *time* (aware), or at the oldest row that may be there.

        A cursor at the very edge of what the log keeps would have expired before a stream is opened with it, so the
        rows that expire within a minute are left out.
        """
        oldest_us = self.oldest_us()
        if oldest_us > self.generations[0].start_us:
            oldest_us += min(EDGE_US, self.table.ttl_s * 1_000_000 // 10)
        try:
            return self.at(oldest_us if time is None else max(us_of(time), oldest_us))
        except ValueError as e:
            raise ConfigError(f"cursor_at: {e}") from e

    def resume(
        self, after: str, on_expired: OnExpired, lag_us: int | None = None, *, is_start: bool = False
    ) -> EventID:
        """Return where to continue for a saved cursor.

        Args:
            lag_us: that of the stream, which saved cursors keep to; None if *after* was never saved, so that the table
                cannot have changed since.
            is_start: *after* is known to be a start in the past, and so may be older than the log.

        Raises:
            InvalidCursor: it is not a cursor, or names a generation that this cluster never had.
            CursorExpired: rows after it may be gone, and the policy is to raise.
            TableChanged: it is of a log that was dropped since, and the policy is to raise.
        """
        if after == "":  # None, or 0, is somebody's mistake and no wish to read all again
            return self.oldest()
        cursor = EventID.parse(after)
        oldest_us = self.oldest_us()
        is_listed = cursor.generation in {g.time for g in self.generations}
        if lag_us is not None and self._is_of_former_log(cursor, lag_us, is_listed=is_listed, is_start=is_start):
            return self._changed(on_expired)
        if max(cursor.exact_us, cursor.generation * 1000) < oldest_us:  # no row is older than its generation
            return self._expired(cursor, oldest_us, on_expired)
        first = self.generations[0]
        if self.topology.forgets and cursor.generation < first.time and cursor.exact_us == first.start_us:
            return self.at(cursor.exact_us)  # the end of a set that is no longer listed
        if not is_listed:
            # The stream sets of tablets are the table's own, generations of vnodes are the cluster's.
            owner = "table" if self.topology.model == "tablets" else "cluster"
            raise InvalidCursor(
                f"the cursor names the CDC generation of {Generation(cursor.generation)}, which this {owner} does not "
                f"have; is it a cursor of another {owner}?"
            )
        first_us = cursor.generation * 1000
        return cursor if cursor.exact_us >= first_us else EventID(cursor.generation, first_us)

    def _is_of_former_log(self, cursor: EventID, lag_us: int, *, is_listed: bool, is_start: bool) -> bool:
        """Return whether *cursor* was saved while another log had this name. Where it cannot be known, warn."""
        created_us = self.table.log_created_us
        if created_us is None or cursor.exact_us < self._oldest_kept_us():
            return False
        if self.topology.model == "tablets":  # each log has its own stream sets, the first from just before it
            return not is_listed and cursor.generation * 1000 < created_us - FIRST_SET_US
        # Generations of vnodes are the cluster's. All cursors of a log that was dropped are from before this one; its
        # own are not, but for starts in the past, and for rows with timestamps of the past, which can be looked up.
        if not is_listed or cursor.exact_us >= created_us - lag_us:
            return False
        if cursor.is_row:
            return not self._has_row(cursor)
        if is_start:
            return False
        log.warning(
            "the cursor is older than the CDC log of %s, which was created at %s: if it is no start in the past, the "
            "table was dropped and created again, and changes of the former log are gone",
            self.table.full_name,
            f"{datetime_of(created_us):%Y-%m-%d %H:%M:%S} UTC",
        )
        return False

    def _has_row(self, cursor: EventID) -> bool:
        values = cursor.stream_id, uuid.UUID(bytes=cursor.stream_time)
        doing = f"looking for the cursor's row in the log of {self.table.full_name}"
        cql = one_row_cql(self.table.keyspace, self.table.name)
        return bool(
            self._patiently(lambda: self.session.rows(cql, values, doing=doing, consistency=self.session.consistency))
        )

    def skip_gap(self, text: str) -> None:
        """Tell that changes may be lost, and count it: the policy is to go on all the same."""
        self.gaps += 1
        log.error("%s; continuing at the oldest row, as on_expired='oldest' asks", text)

    def _changed(self, on_expired: OnExpired) -> EventID:
        text = (
            f"the CDC log of {self.table.full_name} was dropped and created again since the cursor was saved (or the "
            "cursor is of another table): changes in between are gone"
        )
        if on_expired == "oldest":
            self.skip_gap(text)
            return self.oldest()
        raise TableChanged(
            f"{text}; repair the consumer's data, then reset its cursor, or open the stream with on_expired='oldest'"
        )

    def _expired(self, cursor: EventID, oldest_us: int, on_expired: OnExpired) -> EventID:
        text = (
            f"the cursor of {self.table.full_name} is older than what the log keeps ({self.table.ttl_s} s): changes "
            f"from {datetime_of(cursor.exact_us):%Y-%m-%d %H:%M:%S} to {datetime_of(oldest_us):%Y-%m-%d %H:%M:%S} UTC "
            "may be lost"
        )
        if on_expired == "oldest":
            self.skip_gap(text)
            return self.at(oldest_us)
        raise CursorExpired(
            f"{text}; repair the consumer's data, then reset its cursor, or open the stream with on_expired='oldest'",
            gap_from=datetime_of(cursor.exact_us),
            gap_to=datetime_of(oldest_us),
        )
