"""The one writer of base tables: prepared statements whose values are bytes, one partition at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from cassandra.policies import FallthroughRetryPolicy
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, BoundStatement

from .._retry import Backoff, retry
from ..clock import Clock, Stop
from ..driver import Session, consistency_named, translate
from .statements import UNSET, Write

__all__ = ["TableWriter"]

ATTEMPTS = 6
"""About a minute if each one takes ``WRITE_TIMEOUT_S``; then the run ends, and the changes are delivered again."""

WRITE_TIMEOUT_S = 10.0
"""The database itself gives up after two seconds; a stop waits for what was sent."""

_BACKOFF = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=5))

_MOST_STATEMENTS = 100
_MOST_BYTES = 64_000
"""What goes into one batch: Scylla warns of batches of 128 kB, and refuses those of 1 MB."""

_MOST_PREPARED = 1000


class TableWriter:
    """Writes to one session. Thread-safe; the caller keeps the session.

    Args:
        session: of the cluster to write to.
        consistency: level of the writes, by name.
    """

    def __init__(self, session: Session, *, consistency: str, clock: Clock) -> None:
        self.session = session
        self._consistency = consistency_named(consistency)
        self._clock = clock
        self._lock = threading.Lock()
        self._prepared: dict[str, Any] = {}

    def apply(self, writes: Sequence[Write], *, doing: str, stop: Stop) -> None:
        """Carry out *writes*, all of one partition. Blocks; temporary errors are retried for a while.

        They go together in one unlogged batch, which the database applies as a whole, unless they are too many for one.

        Raises:
            QueryFailed: the database refused one.
            ConnectionFailed, QueryTimeout: it was not reached, or did not confirm them; they may have been written.
            Stopped: *stop* was set between two attempts.
        """
        for some in _batches(writes):
            send = partial(self._send, some, doing)
            retry(send, attempts=ATTEMPTS, backoff=_BACKOFF, clock=self._clock, stop=stop)

    def _send(self, writes: Sequence[Write], doing: str) -> None:
        try:
            self._execute(writes)
        except Exception as e:
            raise translate(e, doing, grant="MODIFY on the target table") from e

    def _execute(self, writes: Sequence[Write]) -> None:
        each = [_bound(self._prepare(write.cql), write, consistency=self._consistency) for write in writes]
        statement: Any = each[0]
        if len(each) > 1:
            statement = BatchStatement(
                BatchType.UNLOGGED, consistency_level=self._consistency, retry_policy=FallthroughRetryPolicy()
            )
            statement.is_idempotent = True
            for one in each:
                statement.add(one)
        self.session.execute(statement, timeout=WRITE_TIMEOUT_S)

    def _prepare(self, cql: str) -> Any:
        with self._lock:
            prepared = self._prepared.get(cql)
        if prepared is None:
            prepared = self.session.prepare(cql)  # two threads may both prepare it, which is harmless
            with self._lock:
                if len(self._prepared) >= _MOST_PREPARED:
                    self._prepared.clear()
                self._prepared[cql] = prepared
        return prepared


def _bound(prepared: Any, write: Write, *, consistency: int) -> Any:
    """Return *write* bound to its prepared statement. Marked idempotent for the driver; ``apply`` retries it."""
    statement = BoundStatement(prepared, retry_policy=FallthroughRetryPolicy())
    statement.values = [UNSET_VALUE if value is UNSET else value for value in write.values]
    statement.consistency_level = consistency
    statement.is_idempotent = True
    return statement


def _batches(writes: Sequence[Write]) -> Iterator[Sequence[Write]]:
    """Yield *writes* in their order, in groups that one batch can take."""
    group: list[Write] = []
    size = 0
    for write in writes:
        its = sum(len(value) for value in write.values if isinstance(value, bytes))
        if group and (len(group) == _MOST_STATEMENTS or size + its > _MOST_BYTES):
            yield group
            group, size = [], 0
        group.append(write)
        size += its
    if group:
        yield group
