"""Compiled writes carried out: timestamps, conditions, log rows, and the stores that take it all."""

from __future__ import annotations

import functools
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from ...cdclog.log import LogWriter
from ...cdclog.reads import PartitionImages
from ...clock import Clock
from ...cluster.topology import Cluster
from ...errors import ServerError
from ...result import VOID, BindValue, QueryParams, Result, SchemaChange
from ...schema.properties import DEFAULTS
from ...schema.tables import LOG_SUFFIX, TableSchema
from ...storage.mutation import Key, PartitionMutation, PlainRow, RowMutation
from ...storage.packed import PackedPartition, Stamp
from ...storage.partitions import Partition, TableStore, unpacked
from ...storage.reconcile import delete_row, join_spellings
from ...storage.rowpacking import shape_of
from ...storage.rowttl import expired_rows
from ...storage.tokens import key_bytes
from ...system.contents import SystemTables
from ...types.timeuuid import EPOCH_TICKS, from_ticks
from ..binding import Request
from . import lwt
from .mutations import Mutations
from .write import WritePlan

__all__ = ["Journal", "LoggedRecord", "WriteFaults", "Writer"]

_BALLOTS_MOST: Final = 10_000  # partitions; a forgotten one starts from the clock again
_WRITES_BETWEEN_SWEEPS: Final = 50_000  # partitions; expired log rows would otherwise stay in memory for ever

# CDC log rows of one record on their way: where they go, their partition key, ``cdc$time``, the rows as they are sent,
# and how they are written.
LoggedRecord = tuple[TableStore, Key, bytes, list[bytes], Stamp]


class Journal(Protocol):
    """Records changes durably. Each method raises ServerError if it cannot."""

    def wrote(self, mutations: Iterable[PartitionMutation], records: Sequence[LoggedRecord]) -> None:
        """Record the edits of one request, before they are applied."""
        ...

    def take_back(self) -> None:
        """Remove the record of the last ``wrote``, whose edits could not be applied."""
        ...

    def truncated(self, table: TableSchema) -> None:
        """Record that a table is about to lose all rows."""
        ...

    def schema_changing(self) -> None:
        """Called when a schema statement begins."""
        ...

    def schema_changed(self, changes: Sequence[SchemaChange]) -> None:
        """Record the changed parts of the schema after a statement; empty after a failure."""
        ...


class WriteFaults(Protocol):
    """Injected faults of writes; see ``faults/rules.py``."""

    @property
    def concerns_writes(self) -> bool:
        """Whether there are any now; if not, nothing else is asked."""
        ...

    def copies(self, table: TableSchema) -> int:
        """Return how many times the log rows of a write to *table* are made: 1, or more for a repeated Paxos learn."""

    def hold(self, mutations: Iterable[PartitionMutation], apply: Callable[[], None]) -> bool:
        """Return whether the write is kept back; *apply* then carries it out later."""


class Writer:
    """Carries out compiled writes. ``stores`` are those of all tables, by keyspace and name. Errors are ``CqlError``.

    ``journal`` and ``faults`` may be set at any time between two requests.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        stores: Mapping[tuple[str, str], TableStore],
        system: SystemTables,
        paxos_table: Callable[[TableSchema], TableSchema | None],
    ) -> None:
        self.journal: Journal | None = None
        self.faults: WriteFaults | None = None
        self._cluster = cluster
        self._clock = clock
        self._stores = stores
        self._system = system
        self._paxos_table = paxos_table
        self._log_writers: dict[tuple[str, str], tuple[LogWriter, TableStore]] = {}  # by base table
        self._last_timestamp: dict[int, int] = {}
        self._ballots: OrderedDict[Any, int] = OrderedDict()  # the last times of conditional writes, by partition
        self._random = random.Random()
        self._list_node = self._random.randbytes(6)  # of list keys; random, as each shard of Scylla has one
        self._writes = 0

    def request(self, values: Sequence[BindValue], params: QueryParams, *, is_write: bool) -> Request:
        try:
            now_us = self._cluster.node(params.node).clock.now_us()
        except KeyError:
            raise ServerError(f"node {params.node} has left the cluster; connect to another one") from None
        timestamp = params.default_timestamp
        if timestamp is None:
            timestamp = self._server_timestamp(params.node, now_us) if is_write else now_us
        return Request(values, params, now_us, timestamp)

    def _server_timestamp(self, node: int, now_us: int) -> int:
        """Return the node's clock, moved on so that no two writes it stamps are equal."""
        last = self._last_timestamp.get(node, 0)
        self._last_timestamp[node] = now_us = max(now_us, last + 1)
        return now_us

    def write(self, plan: WritePlan, request: Request) -> Result:
        """Carry out one statement."""
        if plan.is_conditional:
            return self._write_if([(plan, request)], is_batch=False)
        lwt.check_consistency(request.params, is_conditional=False)
        mutations = Mutations(self._list_node, self._prior)
        plan.add_to(mutations, request)
        self._commit(mutations, request)
        return VOID

    def write_batch(self, plans: list[tuple[WritePlan, Request]], timestamp: int | None) -> Result:
        """Carry out the statements of a batch together. *timestamp* is that of the batch, if it has one."""
        if not plans:
            return VOID
        if any(plan.is_conditional for plan, _ in plans):
            return self._write_if(plans, is_batch=True)
        request = plans[0][1]
        lwt.check_consistency(request.params, is_conditional=False)
        mutations = Mutations(self._list_node, self._prior)
        # All statements before the log: CDC sees what a batch does to a partition, not its statements.
        for plan, each in plans:
            plan.add_to(mutations, each, timestamp)
        mutations.check_size()
        self._commit(mutations, request)
        return VOID

    def _write_if(self, plans: list[tuple[WritePlan, Request]], *, is_batch: bool) -> Result:
        """Carry out statements of which some have conditions, or none of them."""
        request = plans[0][1]
        lwt.check_consistency(request.params, is_conditional=True)
        old = lwt.OldRows(plans, self._prior, self._first_row, is_batch=is_batch)
        applied = old.hold()
        # Before the write: the answer shows the row as it was.
        answer = old.answer(applied=applied)
        table = plans[0][0].table
        timestamp = self._ballot(table, old.key, request)
        mutations = Mutations(self._list_node, self._prior)
        add_round = functools.partial(self._add_round, mutations, table, old.key, request, timestamp)
        if applied:
            for plan, each in plans:
                plan.add_to(mutations, each, timestamp)
            self._commit(mutations, request, add_round)
        else:
            add_round()
            self._apply(mutations, [])
        return answer

    def _ballot(self, table: TableSchema, key: Key, request: Request) -> int:
        """Return the time of a conditional write: the server's, whatever the client sends, for Paxos chooses it.

        It grows from one conditional write of a partition to the next, whichever nodes and clocks they go through.
        """
        place = (table.id, key)
        timestamp = self._server_timestamp(request.params.node, request.now_us)
        timestamp = max(timestamp, self._ballots.pop(place, 0) + 1)
        self._ballots[place] = timestamp
        if len(self._ballots) > _BALLOTS_MOST:
            self._ballots.popitem(last=False)
        return timestamp

    def _add_round(self, mutations: Mutations, table: TableSchema, key: Key, request: Request, ballot_us: int) -> None:
        """Add what a finished round leaves in the Paxos table of a table with tablets. The others have none."""
        rounds = self._paxos_table(table)
        if rounds is None:
            return
        ttl = int(table.options.get("paxos_grace_seconds", DEFAULTS["gc_grace_seconds"]))
        ballot = from_ticks(ballot_us * 10 + EPOCH_TICKS, b"\x80\x00" + self._list_node)
        shape = shape_of(False, "most_recent_commit_at", "promise")
        row = PlainRow(shape, ballot_us, ttl, request.now_s + ttl if ttl else None, [ballot, ballot])
        mutations.mutation(rounds, (key_bytes(key),)).rows[()] = row

    def _commit(self, mutations: Mutations, request: Request, finish: Callable[[], None] = lambda: None) -> None:
        """Make the log rows of all partitions, then apply: an error leaves nothing half done.

        *finish* is called in between, when nothing of the write itself can be refused any more.
        """
        now_s = request.now_s
        faults = None if self.faults is None or not self.faults.concerns_writes else self.faults
        logged: list[LoggedRecord] = []
        for mutation in mutations:
            join_spellings(mutation)
            cdc = mutation.table.cdc
            if cdc is not None and cdc.enabled:
                # As in Scylla, log rows live from the server's present on, whatever timestamp they carry.
                expiry = now_s + cdc.ttl if cdc.ttl else None
                for _ in range(1 if faults is None else faults.copies(mutation.table)):
                    self._log(mutation, request, expiry, logged)
        finish()
        if faults is None or not faults.hold(mutations, lambda: self._apply(mutations, logged)):
            self._apply(mutations, logged)

    def _apply(self, mutations: Mutations, logged: list[LoggedRecord]) -> None:
        put_back = [self._stores[m.table.keyspace, m.table.name].before(m) for m in mutations]
        # First to the disk: a write that cannot be kept is refused whole, and one that was answered is kept.
        if self.journal is not None:
            self.journal.wrote(mutations, logged)
        try:
            for mutation in mutations:
                self._stores[mutation.table.keyspace, mutation.table.name].apply(mutation)
            for store, key, time, wires, stamp in logged:
                store.append_record(key, time, wires, stamp)
        except BaseException:
            # Whole or not at all, in memory and on the disk.
            for store, key, time, _, _ in logged:
                store.take_back_record(key, time)
            for restore in put_back:
                restore()
            if self.journal is not None:
                self.journal.take_back()
            raise
        self._writes += len(mutations)
        if self._writes >= _WRITES_BETWEEN_SWEEPS:
            self._writes = 0
            self.sweep()

    def _log(
        self, mutation: PartitionMutation, request: Request, expiry: int | None, logged: list[LoggedRecord]
    ) -> None:
        """Add to *logged* what a mutation puts into its table's log."""
        table = mutation.table
        place = (table.keyspace, table.name)
        known = self._log_writers.get(place)
        if known is None or known[0].table is not table or known[0].log is not known[1].table:
            # It is there: ``ddl`` makes it with the option, and refuses to drop it before.
            log = self._stores[table.keyspace, table.name + LOG_SUFFIX]
            known = self._log_writers[place] = (LogWriter(table, log.table, self._cluster.release), log)
        writer, log = known
        # The base's token: it chooses the stream.
        token, now_us = self._stores[place].token(mutation.key), request.now_us

        def stream_for(timestamp: int) -> bytes:
            return self._cluster.stream_for(table, token, timestamp, now_us)

        images = PartitionImages(self._prior, table, mutation.key, request.now_s) if writer.has_images else None
        for record in writer.records(mutation, stream_for, self._random.getrandbits, images):
            stamp = (record.timestamp, writer.ttl, expiry)
            logged.append((log, (record.stream_id,), record.time, record.wires, stamp))

    def _prior(self, table: TableSchema, key: Key, ck: Key | None) -> RowMutation | None:
        """Return a stored row, or the static row for ``ck`` None; dead and expired cells included."""
        partition = self._partition(table, key)
        if partition is None:
            return None
        return (
            partition.static if ck is None else partition.row_at(self._stores[table.keyspace, table.name].position(ck))
        )

    def _first_row(self, table: TableSchema, key: Key, now_s: int) -> tuple[Key, RowMutation] | None:
        """Return the partition's first live row in clustering order."""
        partition = self._partition(table, key)
        rows = () if partition is None else partition.entries()
        return next((found for found in rows if Partition.is_live(found[1], now_s)), None)

    def _partition(self, table: TableSchema, key: Key) -> Partition | None:
        store = self._stores[table.keyspace, table.name]
        if table.keyspace in self._system.protected:
            store = self._system.store(table, self._cluster.nodes[0].index, store) or store
        partition = store.get(key)
        return unpacked(partition, store.position) if isinstance(partition, PackedPartition) else partition

    def expire_rows(self) -> int:
        """Delete the rows whose TTL column says they have expired, and return how many there were.

        Scylla's expiration service does this now and then. Each delete is a write of its own, in the log as well.
        """
        node = self._cluster.nodes[0].index
        now_s = self._clock.now_us() // 1_000_000
        stores = [store for store in self._stores.values() if store.table.ttl_column is not None]
        # A list, as the deletes below write to the stores.
        found = [(store.table, key, ck) for store in stores for key, ck in list(expired_rows(store, now_s))]
        for table, key, ck in found:
            request = self.request((), QueryParams(node=node), is_write=True)
            mutations = Mutations(self._list_node, self._prior)
            builder = mutations.of(table, key)
            # The log then has -3 and -4 in place of 3 and 4.
            builder.mutation.is_service = True
            if table.clustering_key:
                delete_row(builder.row(ck), request.timestamp)
            else:
                builder.delete_partition(request.timestamp)
            self._commit(mutations, request)
        return len(found)

    def sweep(self) -> None:
        """Let go of rows that have expired or were deleted long ago. Runs now and then by itself."""
        now_s = self._clock.now_us() // 1_000_000
        for (keyspace, _), store in self._stores.items():
            if keyspace not in self._system.protected:
                store.forget(now_s)

    def forget_logs(self) -> None:
        """Forget how the rows of logs are made: a table was made or dropped."""
        self._log_writers.clear()

    def clear(self) -> None:
        """Forget all tables and times."""
        self._log_writers.clear()
        self._last_timestamp.clear()
        self._ballots.clear()
