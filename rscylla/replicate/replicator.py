"""A consumer function that applies the changes of one table to another."""

from __future__ import annotations

import logging
import threading
import uuid
from concurrent.futures import Future
from typing import Literal

from ..abc import Run
from ..base import ChangeWriter, TableWriter, remaining_ttl
from ..cdc.log import NodeClocks, Table, read_base_table
from ..cdc.rows import Cells, ChangeEvent, Layout
from ..clock import Clock, SystemClock
from ..driver import ReadSession, Session, consistency_named
from ..errors import CannotReplicate, ConfigError, TableNotFound
from ..event import Event, Operation
from .schema import check_target, create_target

__all__ = ["Replicator", "Ttl"]

Ttl = Literal["original", "remaining"]

log = logging.getLogger("rscylla")

_MOST_LAYOUTS = 16
"""Each change of the source's schema, and each new run, creates a new layout; old ones are not used again."""


class Replicator:
    """Applies the changes of a table to another table, in the same cluster or in another one.

    An instance is the function of a consumer: ``rscylla.Consumer("copy", Replicator(...))``. It applies all kinds of
    changes, with their original timestamps: a change that is applied twice, or after later ones, has the same result as
    one that is applied once and in order. After a crash, the copy is therefore correct except for changes that are not
    applied yet. Changes of different partitions can be applied concurrently: ``rscylla.concurrent(consumer,
    workers=32)``. Thread-safe.

    The source's log must contain whole changes (``'delta': 'full'``, the default). The first call reads the schema of
    both tables, and so does the first call after a column was added or dropped.

    Args:
        source: session of the source cluster, to read its schema.
        target: session of the target cluster. The caller keeps both sessions.
        keyspace, table: the target table; default for *table*: the name of the source table.
        consistency: level of the writes.
        ttl: ``original``: a value with a TTL expires that long after it is applied; ``remaining``: it expires at about
            the same time as at the source, which requires write timestamps that are real times. How old a value is, is
            told by the slowest clock of this process and of the source's nodes, so that no clock shortens its life.
        create: create the target table, without CDC, if it does not exist.
    """

    def __init__(
        self,
        source: Session,
        target: Session,
        keyspace: str,
        table: str | None = None,
        *,
        consistency: str = "QUORUM",
        ttl: Ttl = "original",
        create: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if ttl not in ("original", "remaining"):
            raise ConfigError(f"ttl must be 'original' or 'remaining', not {ttl!r}")
        self._keyspace = keyspace
        self._name = table
        self._remaining = ttl == "remaining"
        self._create = create
        self._clock = clock or SystemClock()
        level = consistency_named(consistency)
        self._source = ReadSession(source, consistency=level)
        self._clocks = NodeClocks(self._source, self._clock)
        self._target_schema = ReadSession(target, consistency=level)
        self._target = TableWriter(target, consistency=consistency, clock=self._clock)
        # Two sessions of one cluster need not come from one object of the driver, but they see the same nodes.
        self._same_cluster = source.cluster is target.cluster or bool(_nodes(source) & _nodes(target))
        self._lock = threading.Lock()
        self._applied = 0
        self._doubted: set[uuid.UUID] = set()  # logs with inserts that may lack values
        self._writers: dict[Layout, Future[ChangeWriter]] = {}

    def __call__(self, event: Event, run: Run) -> None:
        """Apply one change. Blocks until the target confirms it.

        Raises:
            CannotReplicate: the tables differ, or the change cannot be applied; the cursor stays before it.
            TableNotFound, QueryFailed, ConnectionFailed, QueryTimeout: the target rejected or did not confirm the
                change.
            Stopped: the run was stopped while the target did not answer; the cursor stays before the change.
        """
        if not isinstance(event, ChangeEvent):
            raise ConfigError("a Replicator requires events of rscylla.NewStream(...) with granularity='change'")
        layout = event.layout
        cells, _, _, range_end = event.raw_rows()
        operation = event.operation
        writes = self._writer(layout).writes(
            operation, event.timestamp_us, self._ttl_s(event, cells[layout.ttl]), cells, range_end
        )
        if operation == Operation.INSERT and layout.table.log_id not in self._doubted:
            self._warn_of_keys(layout, cells)
        run.tempt("before_apply")
        self._target.apply(writes, doing=f"copying a change of {layout.table.full_name}", stop=run.stop)
        # Several workers count; += alone can lose one.
        with self._lock:
            self._applied += 1

    def _warn_of_keys(self, layout: Layout, cells: Cells) -> None:
        """Log, once for a log, that an insert may lack its values."""
        if not (text := layout.lacking_values(cells)):
            return
        with self._lock:
            if layout.table.log_id in self._doubted:
                return
            self._doubted.add(layout.table.log_id)
        log.warning("%s in the copy; if they are, copy the table again", text)

    @property
    def applied(self) -> int:
        """The number of applied changes; a change that is applied again counts again."""
        return self._applied

    def prepare(self, keyspace: str, table: str) -> Table:
        """Check or create the target for changes of the source table; return it. Blocks.

        Raises:
            TableNotFound: one of the tables does not exist.
            CannotReplicate: the target cannot take the changes.
        """
        source = read_base_table(self._source, keyspace, table)
        if source is None:
            raise TableNotFound(f"there is no table {keyspace}.{table}; check the name")
        name = self._name or table
        if self._same_cluster and (self._keyspace, name) == (keyspace, table):
            raise CannotReplicate(f"{source.full_name} cannot be copied to itself; name another table or keyspace")
        target = read_base_table(self._target_schema, self._keyspace, name)
        if target is None and self._create:
            create_target(self._source, source, self._target_schema, self._keyspace, name)
            target = read_base_table(self._target_schema, self._keyspace, name)
        return check_target(source, target, names=(self._keyspace, name))

    def _writer(self, layout: Layout) -> ChangeWriter:
        """Return the writer of changes of *layout*. One thread reads the schema, and the others wait for its result."""
        with self._lock:
            found = self._writers.get(layout)
            if ours := found is None:
                found = Future()
                if len(self._writers) >= _MOST_LAYOUTS:
                    self._writers.clear()
                self._writers[layout] = found
        assert found is not None
        if ours:
            try:
                found.set_result(self._made(layout))
            except BaseException as e:
                with self._lock:  # threads that wait get the error; later calls try again
                    if self._writers.get(layout) is found:
                        del self._writers[layout]
                found.set_exception(e)
                raise
        return found.result()

    def _made(self, layout: Layout) -> ChangeWriter:
        table = layout.table
        # Such a log has the keys of changes without their values.
        if table.delta != "full":
            raise CannotReplicate(
                f"the log of {table.full_name} holds only keys ('delta': 'keys'); "
                f"ALTER TABLE {table.full_name} WITH cdc = {{'enabled': true, 'delta': 'full'}}"
            )
        target = self.prepare(table.keyspace, table.name)
        return ChangeWriter(layout, target.keyspace, target.name, {c.name for c in target.columns})

    def _ttl_s(self, event: ChangeEvent, raw: bytes | None) -> int:
        ttl = 0 if raw is None else int.from_bytes(raw, "big", signed=True)
        if not (ttl and self._remaining):
            return ttl
        if self._clocks.has_stepped():  # or was not sampled yet
            self._clocks.sample()
        return remaining_ttl(ttl, event.timestamp_us, self._clocks.slowest_us())


def _nodes(session: Session) -> set[object]:
    """Return the ids of the cluster's nodes, which two sessions of one cluster share."""
    return {host.host_id for host in session.cluster.metadata.all_hosts()} - {None}
