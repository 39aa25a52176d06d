"""``Source``: the metadata, generations, and clocks of one table's log, and where a cursor is in them."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable
from datetime import datetime
from typing import Literal, TypeVar

from ..._retry import retry
from ..._timeuuid import datetime_of
from ...clock import Clock, Stop
from ...driver import ReadSession
from ...errors import (
    CDCDisabled,
    ConfigError,
    ConnectionFailed,
    CursorExpired,
    NoStreams,
    SourceError,
)
from ...event import EventID, LogMark
from ...options import aware_us
from .blanks import Blank, Blanks
from .clocks import NodeClocks
from .lifetimes import EARLY_US, NEVER_US, Lifetimes, Promise
from .same import BACKOFF, SETTLING_US, is_altered, reread_same, retried, stayed_on
from .table import LOG_DROP_AHEAD_US, LoggedTable, read_table
from .topology import Generation, Topology, generation_at, topology_for
from .walk import Gap

__all__ = ["OnExpired", "Source", "streams_of"]

log = logging.getLogger("rscylla")

T = TypeVar("T")

OnExpired = Literal["raise", "oldest"]

METADATA_EVERY_S = 15.0
"""The interval at which the table and the nodes' clocks are read again."""

LIST_MARGIN_US = 15_000_000
"""The list of generations may be this much older than the end of what is read, or half the lag if that is less."""

CLOCKS_ATTEMPTS = 3
"""Attempts to get the time of at least one node, before the client's clock is used instead."""

EDGE_US = 60_000_000
"""A cursor for later use is at least this far from the rows that are about to expire."""


def streams_of(topology: Topology, generation: Generation, clock: Clock, stop: Stop) -> tuple[bytes, ...]:
    """Return the streams of *generation*, with retries while nodes fail or have not received the set yet. Blocks.

    Raises:
        NoStreams, Stopped, SourceError: see ``Topology.streams``.
    """
    return retried(lambda: topology.streams(generation), clock, stop)


class Source:
    """What is known about a table's log. Used by one thread at a time. All methods may block on small queries.

    Raises (constructor):
        TableNotFound, CDCDisabled, NoStreams: see there.
    """

    def __init__(self, session: ReadSession, keyspace: str, table: str, clock: Clock, stop: Stop) -> None:
        self.session = session = session.until(stop)
        self.clock = clock
        self._stop = stop
        began = clock.monotonic()
        self.table: LoggedTable = read_table(session, keyspace, table)
        self.lifetimes = Lifetimes.of(self.table)
        self.blanks = Blanks.of(self.table)
        self.topology: Topology = topology_for(session, keyspace, table)
        self.node_clocks = NodeClocks(session, clock)
        self.generations: tuple[Generation, ...] = ()
        self.known_at_us = 0
        self.assumed_ttl_s: int | None = None
        """The TTL that promises assume for rows whose TTL is not known; None: see ``Lifetimes.doubting``."""
        self.gaps = 0
        """How often the source skipped changes that may be lost."""
        self._metadata_at = clock.monotonic()
        self._learn_clocks()
        self._table_at = began
        self.same_until_us = self.node_clocks.slowest_us() - round((clock.monotonic() - began) * 1e6)
        """The log is known not to have been replaced by this time of the slowest clock."""
        self.refresh_generations()

    def until(self, stop: Stop) -> Source:
        """Return a copy that ends with *stop*. The two know the same now, and find out more by themselves."""
        same = copy.copy(self)
        same._stop = stop  # noqa: SLF001 - a copy of this object
        same.session = session = self.session.until(stop)
        same.topology = self.topology.using(session)
        same.node_clocks = self.node_clocks.using(session)
        return same

    # ------------------------------------------------------------ freshness

    def _learn_clocks(self) -> None:
        """Ask the nodes for their time until one answers, because the client's own clock may be wrong."""
        retry(
            self._sample_clocks,
            attempts=CLOCKS_ATTEMPTS,
            backoff=BACKOFF,
            clock=self.clock,
            stop=self._stop,
            exhausted=lambda error: log.warning("%s: %s; using this machine's clock", self.table.full_name, error),
        )

    def _sample_clocks(self) -> None:
        self.node_clocks.sample()
        if not self.node_clocks.skew_us:
            raise ConnectionFailed("no node returned its time")

    def refresh_generations(self) -> None:
        """Read the list of generations. ``known_at_us`` is the time when the read began, by the slowest clock.

        A node announces a generation some time before it starts, by the clock of the node. A list that is read when all
        nodes' clocks are past a time therefore has all generations that start by that time.
        """
        at = self.node_clocks.slowest_us()
        found = self.retried(self._read_generations)
        self.generations = found
        self.known_at_us = at

    def has_forgotten(self) -> bool:
        """Read the list again, and return whether the oldest stream sets are gone: all of their rows have expired."""
        first = self.generations[0]
        self.refresh_generations()
        return self.generations[0] != first

    def generations_until(self, time_us: int, lag_us: int) -> tuple[Generation, ...]:
        """Return the generations, including all that start before *time_us*. Reads the list again if it is too old.

        Args:
            lag_us: how far the reader stays behind the clocks, which allows for a somewhat older list.
        """
        if time_us > self.known_at_us - min(lag_us // 2, LIST_MARGIN_US):
            self.refresh_generations()
        return self.generations

    def _read_generations(self) -> tuple[Generation, ...]:
        found = self.topology.generations()
        if not found:
            self.reread_table()  # a dropped tablets table has no streams: then this raises a more precise error
            raise NoStreams("the cluster has no CDC generation yet; wait until the cluster has started")
        return found

    def refresh_metadata(self) -> None:
        """Read the table and the clocks again if the last time was long ago.

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
            log.info("%s; using the previous description of the table for now", e)

    def doubt(self) -> None:
        """Let the next ``refresh_metadata`` read everything again, although the last time was just now."""
        self._metadata_at = -math.inf

    def reread_table(self, *, retrying: bool = False) -> LoggedTable:
        """Read the table's columns and options again; *retrying*: with retries.

        Raises:
            TableChanged: the log was dropped and created again.
            TableNotFound, CDCDisabled: it was dropped.
        """
        at_us, before_us, at = self.node_clocks.slowest_us(), self.same_until_us, self.clock.monotonic()
        fresh = reread_same(self.session, self.table, self.now_us(), self.clock, self._stop, retrying=retrying)
        self.same_until_us, self._table_at = at_us, at
        if (fresh.altered_us or 0) < (self.table.altered_us or 0):
            return self.table  # the node has not learnt of the last alteration
        if fresh.enabled != self.table.enabled:
            state = "on again" if fresh.enabled else "off: new changes are not logged"
            log.warning("CDC of %s was switched %s", fresh.full_name, state)
        self.lifetimes = self.lifetimes.altered(fresh, self.now_us())
        found = self.blanks.seeing(self.table.seen, fresh, before_us)
        self.blanks, self.table = self._known(found, fresh, self.table.seen), fresh
        return fresh

    def learn_blanks(self, cursor: EventID) -> None:
        """Learn from *cursor* in which time after it CDC may have been off."""
        seen = "" if cursor.mark is None else cursor.mark.seen
        self.blanks = self._known(self.blanks.since(cursor, self.table), self.table, seen)

    def _known(self, found: Blanks, table: LoggedTable, seen: str) -> Blanks:
        """Return *found*, but without a new span in which CDC stayed on; *seen*: what was seen of *table* before."""
        if found == self.blanks or not (last := found.spans[-1]).may_be_none:
            return found
        # What was seen begins with the time of the alteration before, 0 if it was as it had been created.
        seen_us = int(seen.partition(".")[0], 16) or table.created_us
        is_none = stayed_on(self.session, table, seen_us, last.start_us, self.clock, self._stop)
        return self.blanks if is_none else found

    def confirm(self, until_us: int, *, with_rows: bool = False) -> None:
        """Check that the rows read up to *until_us* are of this log, and not of a new one with the same name.

        The log was not replaced by ``same_until_us``, so the rows of a new log are later. Blocks on a query if
        *until_us* is later, too. If the table was altered, it is read again, so ``blanks`` has all until then.

        Args:
            with_rows: there are rows, so it also blocks if that time is so long ago that a column may have got another
                name, and its own one again: pages look as before then, but lack keys.

        Raises:
            TableChanged, TableNotFound, CDCDisabled, SourceError: as for ``reread_table``.
        """
        at = self.clock.monotonic()
        may_be_renamed = with_rows and at - self._table_at >= LOG_DROP_AHEAD_US / 1e6
        if until_us <= self.same_until_us and not may_be_renamed:
            return
        # With a short lag, each poll at the head gets here, so this is one small query instead of those for the table.
        at_us = self.node_clocks.slowest_us()
        if self.retried(lambda: is_altered(self.session, self.table)):
            self.reread_table(retrying=True)
        self.same_until_us, self._table_at = at_us, at

    def streams(self, generation: Generation) -> tuple[bytes, ...]:
        """Return the streams of *generation*. An empty set is read again, then raises: it never means "no events"."""
        return streams_of(self.topology, generation, self.clock, self._stop)

    def retried(self, read: Callable[[], T]) -> T:
        """Return the result of *read*, with retries while nodes fail or have not received the data yet."""
        return retried(read, self.clock, self._stop)

    # ------------------------------------------------------------ positions

    def check_lag(self, lag_us: int, on_expired: OnExpired) -> None:
        """Check that rows that are written today still exist when a reader with this lag gets to them.

        Raises:
            ConfigError: they have expired by then, and the policy is to raise; otherwise, a warning is logged.
        """
        ttl_s = self.lifetimes.ttl_at(NEVER_US)
        if not ttl_s or ttl_s * 1_000_000 > lag_us + EARLY_US:
            return
        text = (
            f"the log of {self.table.full_name} keeps changes for {ttl_s} s, and a reader with a lag of "
            f"{lag_us / 1e6:g} s gets to them when they have expired; raise the CDC option 'ttl' well above the lag, "
            "or lower the lag"
        )
        if on_expired == "raise":
            raise ConfigError(text)
        log.warning("%s", text)

    def watermark_us(self, lag_us: int) -> int:
        """Return the time before which all rows have arrived, according to the clocks and the lag."""
        return self.node_clocks.slowest_us() - lag_us

    def oldest_us(self) -> int:
        """Return the time from which the log may still contain rows."""
        return max(self._began_us(), self.lifetimes.oldest_us(self.now_us()))

    def _began_us(self) -> int:
        """Return the start of the generation in use when the log was created: nodes refuse writes to earlier ones."""
        created_us = self.table.log_created_us
        i = 0 if created_us is None else generation_at(self.generations, created_us - SETTLING_US)
        return self.generations[max(i, 0)].start_us

    def born_us(self) -> int:
        """Return the write time before which the log cannot have had rows."""
        first_us, created_us = self.generations[0].start_us, self.table.log_created_us
        if created_us is None:
            return first_us
        born_us = created_us - SETTLING_US
        has_forgotten = self.topology.forgets and first_us > created_us
        return born_us if has_forgotten else max(born_us, first_us)

    def gaps_after(self, at_us: int, *, surely: bool = False) -> tuple[Gap, ...]:
        """Return the spans from *at_us* on, in order, whose rows may have expired, or that are before any generation.

        Rows expire by the clock of the node that reads them, so they may be gone once they have expired by the fastest
        clock, or a second before. *surely*: return the spans that have expired by all clocks, whose rows no node has.
        """
        now_us = self.now_us() if surely else self.latest_us() + EARLY_US
        return self.lifetimes.missing(at_us, now_us, self.generations[0].start_us)

    def missed(self, at_us: int, end_us: int, promise: Promise | None = None) -> Gap | None:
        """Return the first span from *at_us* to *end_us* whose rows a reader may miss, by the fastest clock, or None.

        *promise*: None if all rows are promised, with the TTLs that are known.
        """
        promise = Promise(self.lifetimes) if promise is None else promise
        return promise.lost(at_us, end_us, self.latest_us(), self.generations[0].start_us)

    def assumed_lifetimes(self) -> Lifetimes:
        """Return the lifetimes, with an assumption for rows whose TTL is not known."""
        if self.assumed_ttl_s is not None:
            return self.lifetimes.assuming(self.assumed_ttl_s)
        return self.lifetimes.doubting(self.table.ttl_s)

    def remaining_us(self, at_us: int) -> int:
        """Return the first time from *at_us* on whose rows a node may still return, by the slowest clock.

        A node whose clock is behind returns rows that have expired on other nodes.
        """
        for gap in self.gaps_after(at_us, surely=True):
            if gap.start_us > at_us:
                break
            at_us = gap.end_us
        return at_us

    def now_us(self) -> int:
        """Return the time on the slowest node."""
        return self.node_clocks.nodes_us()

    def latest_us(self) -> int:
        """Return the time on the fastest node."""
        return self.node_clocks.fastest_us()

    @property
    def edge_us(self) -> int:
        """Rows that expire within this time are not promised to a reader that starts now, in microseconds."""
        return max(min(EDGE_US, self.table.ttl_s * 1_000_000 // 10), 2 * EARLY_US)

    def safe_start_us(self) -> int:
        """Return the time from which no row expires within a minute, by the clock of any node.

        Rows of unknown TTL that are older than a day are left out, because a start before them could not be promised.
        """
        began_us = self._began_us()
        oldest_us = max(began_us, self.lifetimes.doubting(self.table.ttl_s).oldest_us(self.latest_us()))
        return oldest_us if oldest_us == began_us else min(oldest_us + self.edge_us, self.now_us())

    def oldest(self) -> EventID:
        return self.at(self.oldest_us())

    def at(self, time_us: int) -> EventID:
        """Return the point *time_us* as a cursor to start at; the first generation's start if it is before that.

        A start in the future names the generation of now, as if later ones were not announced yet.
        """
        i = generation_at(self.generations, min(time_us, self.now_us()))
        at = self.generations[max(i, 0)]
        return self.start(at, max(time_us, at.start_us))

    def start(self, generation: Generation, time_us: int) -> EventID:
        """Return the point *time_us* of *generation* as the cursor of a consumer that has read nothing."""
        seen = self.blanks.seen_at(time_us, self.table)
        return EventID(generation.time, time_us, mark=LogMark(self.table.log_id.bytes, is_start=True, seen=seen))

    def read_until(self, generation: Generation, time_us: int) -> EventID:
        """Return the point *time_us* of *generation* as the cursor of a consumer that has read everything before it."""
        seen = self.blanks.seen_at(time_us, self.table)
        mark = LogMark(self.table.log_id.bytes, ttl_s=self.lifetimes.ttl_at(time_us), seen=seen)
        return EventID(generation.time, time_us, mark=mark)

    def head(self, lag_us: int) -> EventID:
        """Return the point before which all rows have arrived as a cursor to start at."""
        return self.at(self.watermark_us(lag_us))

    def begin_at(self, time_us: int) -> EventID:
        """Return where a read of all rows from *time_us* on begins.

        If the TTL of the first ones is not known, because the table was altered since, promises assume the current TTL.
        """
        at = self.at(max(time_us, self._began_us()))
        if at.exact_us < self.lifetimes.unknown_until_us():
            log.warning(
                "%s was altered at %s, after the start of the read, and the schema does not show the former TTL; the "
                "current one of %s s is assumed, so if the former one was shorter, changes may be lost",
                self.table.full_name,
                f"{datetime_of(self.lifetimes.unknown_until_us()):%Y-%m-%d %H:%M:%S} UTC",
                self.table.ttl_s,
            )
            self.assumed_ttl_s = self.table.ttl_s
        return at

    def at_time(self, time: datetime | None) -> EventID:
        """Return the cursor that starts at *time* (aware), or at the oldest row that may exist.

        A cursor right at the oldest row could expire before a stream is opened with it, so the cursor skips rows that
        expire within a minute.
        """
        oldest_us = self.safe_start_us()
        return self.at(oldest_us if time is None else max(aware_us("cursor_at", time), oldest_us))

    def pass_over(self, gap: Gap, on_expired: OnExpired, *, promised: bool) -> None:
        """Report that the rows of *gap* expired before they were read, if they were promised.

        Raises:
            CursorExpired: they were promised, and the policy is to raise.
            TableChanged, TableNotFound, CDCDisabled: the log itself is gone.
        """
        # The stream sets of a tablets table disappear with the table, so a gap may mean that the log was dropped.
        self.reread_table(retrying=True)
        if not promised:
            return
        kept = "" if gap.ttl_s is None else f" ({gap.ttl_s} s)"
        text = (
            f"the reader of {self.table.full_name} fell behind what the log keeps{kept}; changes may be lost; speed up "
            "the consumer or raise the TTL"
        )
        if on_expired == "raise":
            raise CursorExpired(text, gap_from=datetime_of(gap.start_us), gap_to=datetime_of(gap.end_us))
        self.skip_gap(text)

    def report_blank(self, blank: Blank, on_expired: OnExpired) -> None:
        """Report that changes of *blank*, which were promised, may not be in the log.

        Raises:
            CDCDisabled: the policy is to raise, and CDC is still off.
            CursorExpired: the policy is to raise.
        """
        text = blank.message(self.table)
        if on_expired == "oldest":
            self.skip_gap(text)
            return
        text = f"{text}; repair the consumer's data, then reset its cursor, or open the stream with on_expired='oldest'"
        if blank.is_open:
            raise CDCDisabled(text)
        raise CursorExpired(text, gap_from=datetime_of(blank.start_us), gap_to=datetime_of(blank.end_us))

    def skip_gap(self, text: str) -> None:
        """Log and count that changes may be lost; the policy is to continue."""
        self.gaps += 1
        log.error("%s; continuing at the oldest row because on_expired='oldest'", text)
