"""Leases: one replica of a service works at a time, and the others stand by.

A lease is a row whose claim expires by TTL, and an epoch that stays and grows with each new holder. Conditional writes
decide who holds the lease, so two holders never share an epoch. The database counts the TTL in whole seconds, by the
clocks of its nodes. The holder counts by its own clock, from before it sent the request, and stops ``margin`` earlier.
A holder that was paused finds its lease expired when it resumes. Clocks of different machines are never compared.

A holder can also be paused between its check and its next action, so the check alone is not enough. The epoch closes
this gap: ``ScyllaCursorStore(lease=...)`` writes cursors to a position that holders of later epochs do not read.

Sources: TTL in seconds, counted by the coordinator of a write: Cassandra ``db/rows/BufferCell.java``, Scylla
``mutation/atomic_cell.hh``. A conditional write that timed out may or may not have been applied, or may still be; a
serial read settles it: Cassandra ``service/paxos/Paxos.java``, Scylla ``service/storage_proxy.cc`` (``cas``).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from datetime import timedelta
from typing import Any

from rscylla._retry import Backoff, retry
from rscylla.clock import Clock, Stop
from rscylla.errors import ConnectionFailed, LeaseLost, QueryTimeout, SourceError

from ..cursors.codec import format_us
from ..table import InTable, check_name
from .table import DEFAULT_LEASE_TABLE, LEASES, Claim, LeaseRecord, LeaseRow, LeaseTable
from .term import DEFAULT_TTL, Holder

__all__ = ["ScyllaLease", "list_leases"]

_log = logging.getLogger("rscylla.cursorstore")

_AFTER_EXPIRY = Backoff(initial=timedelta(seconds=1))
"""A standby asks for the lease again about this long after it expires."""

_NEVER = float("-inf")


class _HeldByAnother(Exception):
    """Another owner holds the lease now."""


def _may_pass(error: Exception) -> bool:
    return isinstance(error, _HeldByAnother) or (isinstance(error, SourceError) and error.resumable)


class _Lease(Holder):
    """The common part of all leases."""

    def __init__(
        self,
        rows: LeaseTable,
        name: str,
        owner: str | None,
        ttl: timedelta,
        margin: timedelta | None,
        clock: Clock | None,
    ) -> None:
        check_name("a lease's name", name)
        super().__init__("a lease", name, owner, ttl, margin, clock)
        self._rows = rows
        self._token = str(uuid.uuid4())
        self._poll = Backoff(initial=timedelta(seconds=self.renew_every), maximum=ttl)
        self._lock = threading.Lock()  # held over queries; held() does not wait for them
        self.epoch = 0
        """The fencing epoch of this owner's last lease, 0 before the first."""
        self._other_until = _NEVER  # how long another owner holds it, by the monotonic clock
        self._error = "no answer yet"  # why the last look failed; "" if it did not
        self._left_s = 0.0  # how long the holder's lease still ran at the last read
        self._since = ""

    def __repr__(self) -> str:
        state = f"held, epoch {self.epoch}" if self.held() else "not held"
        return f"<{type(self).__name__} {self.name!r} of {self.owner}: {state}>"

    @property
    def trouble(self) -> str:
        """Why the lease may have no holder now; "" while this owner, or as far as it knows another, has it."""
        if self.held() or self._clock.monotonic() < self._other_until:
            return ""
        return f"nobody holds it, as far as known{': ' if self._error else ''}{self._error}"

    def held(self) -> bool:
        """Return whether this owner may act now. Sends no query; turns false *margin* before others can acquire."""
        return self._term.runs()

    def try_acquire(self) -> bool:
        """Acquire the lease if it is free or expired, with a new epoch; return whether it is held now."""
        with self._lock:
            if self.held():
                return True
            row = self._rows.read(self.name)
            if row is None:
                with contextlib.suppress(QueryTimeout, ConnectionFailed):  # the read below shows the result
                    self._rows.add(self.name)
                row = LeaseRow(self.name, 0)
            # The claim is our own if an acquisition timed out and was applied nevertheless.
            self._error = ""
            if row.token not in ("", self._token):
                self._left_s = row.expires_in.total_seconds()
                self._other_until = self._clock.monotonic() + self._left_s
                return False
            began = self._term.now()
            since = format_us(self._clock.now_us())
            if not self._take(row, row.epoch + 1, since):
                return False
            self.epoch, self._since = row.epoch + 1, since
            self._term.extend(began)
            if not self.held():
                _log.warning("lease %r: the answer to its acquisition arrived after its time had ended", self.name)
                return False
            _log.info("lease %r was acquired by %s with epoch %d", self.name, self.owner, self.epoch)
            return True

    def acquire(self, stop: Stop | None = None) -> int:
        """Stand by until the lease is acquired, and return its epoch. Retries after errors that may be temporary."""
        stop = stop or Stop()
        stop.check()
        return retry(
            self._acquired,
            backoff=self._standby_s,
            clock=self._clock,
            stop=stop,
            again=_may_pass,
            waiting=self._stand_by,
        )

    def _acquired(self) -> int:
        if not self.try_acquire():
            raise _HeldByAnother
        return self.epoch

    def _standby_s(self, error: Exception, failures: int) -> float:
        # Often enough to see a release, and soon after a possible expiration; the jitter separates standbys.
        poll_s = self._poll.seconds(1)
        if not isinstance(error, _HeldByAnother):
            return poll_s
        return min(poll_s, self._left_s + _AFTER_EXPIRY.seconds(1))

    def _stand_by(self, error: Exception, failures: int, seconds: float) -> None:
        if not isinstance(error, _HeldByAnother):
            self._error = str(error)
            _log.warning("lease %r: standing by, %s", self.name, error)

    def renew(self) -> None:
        """Extend the lease: its full duration starts again."""
        with self._lock:
            if not self.held():
                self._term.end()
                raise self._lost("it was not renewed in time")
            began = self._term.now()
            if not self._rows.keep(self.name, self.epoch, self._claim(self._since)):
                self._term.end()
                raise self._lost("it expired, or its row was changed manually")
            self._term.extend(began)
            if not self.held():
                raise self._lost("the answer to its renewal arrived after its time had ended")

    def outgrow(self, epoch: int) -> None:
        """Raise the epoch above *epoch*, which a store has found under this name, while the lease is held."""
        with self._lock:
            if not self.held():
                raise self._lost("it was not renewed in time")
            if self.epoch > epoch:
                return
            began = self._term.now()
            if not self._take(LeaseRow(self.name, self.epoch, token=self._token), epoch + 1, self._since):
                self._term.end()
                raise self._lost("it expired, or its row was changed manually")
            self.epoch = epoch + 1
            self._term.extend(began)
            _log.warning(
                "lease %r continues with epoch %d, above one that was found with a cursor: its row was deleted or "
                "restored, or it is in another table than before",
                *(self.name, self.epoch),
            )

    def release(self) -> None:
        """Release the lease, so another owner can acquire it at once."""
        with self._lock:
            held_once = self._term.begun
            self._term.end()
            if held_once and self._rows.drop(self.name, self.epoch, self._claim(self._since)):
                _log.info("lease %r was released by %s", self.name, self.owner)

    def _take(self, last: LeaseRow, epoch: int, since: str) -> bool:
        """Return whether the lease, which equalled *last*, is ours with *epoch*."""
        try:
            if self._rows.take(last, epoch, self._claim(since)):
                return True
        except (QueryTimeout, ConnectionFailed) as e:
            _log.info("lease %r: the result of a write is unknown (%s); reading it", self.name, type(e).__name__)
        # If the driver retries, its first attempt may make the second one fail, so a refusal is checked, too.
        row = self._rows.read(self.name, serial=True)
        return row is not None and (row.token, row.epoch) == (self._token, epoch)

    def _claim(self, since: str) -> Claim:
        return Claim(self._token, self.owner, since, self._term.ttl_s)

    def _lost(self, why: str) -> LeaseLost:
        return LeaseLost(
            f"lease {self.name!r} of {self.owner} is lost: {why}; stop the work that it guards, and acquire it again"
        )


class ScyllaLease(_Lease, InTable):
    """A lease in the table *keyspace*.*table*. Implements ``rscylla.abc.Lease``. Thread-safe; one object is one owner.

    Args:
        session: A connected driver session. The caller keeps it; it is neither changed nor closed.
        keyspace: The keyspace of the table; names are case-sensitive.
        name: The name of the lease. All replicas of a service use the same name.
        table: Name of the table; see ``lease_schema_cql``.
        owner: The name of this owner, for people; default: the host and the process id.
        ttl: How long the lease lasts unless it is renewed, in whole seconds, at least 3. If the holder dies, no replica
            works for that long. Standbys poll about four times in that time, and within a second after it.
        margin: How much earlier the holder stops; default: a quarter of *ttl*. It must be longer than one second,
            because TTLs are counted in whole seconds, and cover the difference between the nodes' clocks.
        create: Create the table at first use if it does not exist. The keyspace must exist.
        consistency: LOCAL_QUORUM, QUORUM, or ALL, as text or the driver's number. With LOCAL_QUORUM, each data center
            has its own holder; replicas of one service in several data centers need QUORUM.
        clock: The clock of the holder.

    Give it to ``ScyllaCursorStore(lease=...)``: a former holder that has not noticed the loss then cannot move cursors.
    """

    def __init__(
        self,
        session: Any,
        keyspace: str,
        name: str,
        table: str = DEFAULT_LEASE_TABLE,
        *,
        owner: str | None = None,
        ttl: timedelta = DEFAULT_TTL,
        margin: timedelta | None = None,
        create: bool = False,
        consistency: int | str = "LOCAL_QUORUM",
        clock: Clock | None = None,
    ) -> None:
        self._table = LeaseTable(session, LEASES, keyspace, table, create=create, consistency=consistency)
        super().__init__(self._table, name, owner, ttl, margin, clock)


def list_leases(
    session: Any, keyspace: str, table: str = DEFAULT_LEASE_TABLE, *, consistency: int | str = "LOCAL_QUORUM"
) -> list[LeaseRecord]:
    """Return all leases of a table, including free ones, sorted by name.

    Raises:
        TableNotFound, ConfigError: the table does not exist, or is a different one.
        QueryFailed, QueryTimeout, ConnectionFailed: it cannot be read.
    """
    rows = LeaseTable(session, LEASES, keyspace, table, create=False, consistency=consistency).rows()
    records = (LeaseRecord(row.name, row.epoch, row.owner, row.since, row.expires_in) for row in rows)
    return sorted(records, key=lambda record: record.name)
