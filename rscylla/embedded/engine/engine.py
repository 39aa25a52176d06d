"""The engine: prepared statements, and the execution of every statement against the schema and the stores.

Single-threaded: everything here is called from the server's loop thread.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, cast, get_args

import attrs

from ..cdclog.log import LogWriter
from ..cdclog.reads import PartitionImages
from ..clock import Clock
from ..cluster.descriptions import Rewriting
from ..cluster.topology import Cluster
from ..cql import ast
from ..cql.parser import parse
from ..errors import (
    CqlError,
    InvalidRequest,
    ReadTimeout,
    ServerError,
    TruncateError,
    Unauthorized,
    Unprepared,
    WriteTimeout,
)
from ..result import (
    BindValue,
    ColumnSpec,
    Prepared,
    QueryParams,
    Result,
    RowsResult,
    SchemaChange,
    SetKeyspaceResult,
    Trace,
    VoidResult,
)
from ..schema.tables import LOG_SUFFIX, Keyspace, Schema, TableSchema
from ..storage.mutation import Key, PartitionMutation, RowMutation
from ..storage.packed import PackedPartition, Stamp
from ..storage.partitions import Partition, TableStore, unpacked
from ..storage.reconcile import delete_row
from ..storage.rowttl import expired_rows
from ..storage.tokens import table_token
from ..system.contents import Serving, SystemTables
from ..system.describe import describe
from ..system.roles import list_roles, list_users
from ..types import BIGINT, DURATION
from . import lwt
from .binding import Getter, Request, Scope, timeout_us
from .calls import Calls
from .ddl import DdlStatement, SchemaEditor
from .operations import ListKeys
from .select import SelectPlan
from .selectrules import compile_select
from .write import Mutations, WritePlan, compile_write

__all__ = ["Engine", "Journal", "LoggedRow", "WriteFaults"]

_PREPARED_MOST: Final = 10_000
_PLANS_MOST: Final = 2_000
_LONG_TEXT: Final = 8_192  # characters; plans of longer statements, which hardly come twice, are not kept
_PREPARED_CHARACTERS: Final = 32_000_000  # of all prepared texts together; beyond that the oldest statements go
_BALLOTS_MOST: Final = 10_000  # partitions; a forgotten one starts from the clock again
_WRITES_BETWEEN_SWEEPS: Final = 50_000  # partitions; expired log rows would otherwise stay in memory for ever

# As tuples: these are asked for with each request, and a union would be made anew each time.
_MODIFYING: Final = (ast.Insert, ast.Update, ast.Delete)
_PLANNED: Final = (*_MODIFYING, ast.Select, ast.Batch)

_VOID: Final = VoidResult()

StatementPlan = SelectPlan | WritePlan

# A CDC log row on its way: where it goes, its partition and clustering key, its wire bytes, and how it is written.
LoggedRow = tuple[TableStore, Key, Key, bytes, Stamp]
Values = Sequence[BindValue] | Mapping[str, BindValue]


@attrs.frozen
class _Compiled:
    """A statement compiled against the schema of ``version``."""

    version: Any
    plan: Any
    variables: tuple[ColumnSpec, ...]
    pk_indexes: tuple[int, ...]
    timeout: Getter | None = None
    """USING TIMEOUT of a statement that it can end."""


class Journal(Protocol):
    """Records changes durably. Each method raises ServerError if it cannot."""

    def wrote(self, mutations: Iterable[PartitionMutation], rows: Sequence[LoggedRow]) -> None:
        """Record the edits of one request, before they are applied."""
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

    def copies(self, table: TableSchema) -> int:
        """Return how many times the log rows of a write to *table* are made: 1, or more for a repeated Paxos learn."""

    def hold(self, mutations: Iterable[PartitionMutation], apply: Callable[[], None]) -> bool:
        """Return whether the write is kept back; *apply* then carries it out later."""


class Engine:
    """Executes CQL. All errors are ``CqlError``.

    ``schema_listeners`` are called with every schema change, those of CDC logs included; the change of the base is
    also the result of the request.
    """

    def __init__(self, cluster: Cluster, clock: Clock, users: Mapping[str, str] | None = None) -> None:
        self.cluster = cluster
        self.clock = clock
        self.schema = Schema()
        self.schema_listeners: list[Callable[[SchemaChange], None]] = []
        self.journal: Journal | None = None
        self.write_faults: WriteFaults | None = None
        self._stores: dict[tuple[str, str], TableStore] = {}
        self._log_writers: dict[tuple[str, str], tuple[LogWriter, TableStore]] = {}  # by base table
        self._system = SystemTables(self.schema, cluster, users)
        self._system.install(self.table_changed)
        self._editor = SchemaEditor(
            self.schema,
            self,
            clock.now_us,
            self._system.protected,
            lambda: {dc: {n.rack for n in cluster.nodes if n.dc == dc} for dc in {n.dc for n in cluster.nodes}},
            lambda: None if cluster.descriptions.version else cluster.tablets_by_default,
        )
        self._prepared: OrderedDict[bytes, Prepared] = OrderedDict()
        self._plans: OrderedDict[tuple[str | None, str], _Compiled] = OrderedDict()
        self._last_timestamp: dict[int, int] = {}
        self._ballots: OrderedDict[Any, int] = OrderedDict()  # the last times of conditional writes, by partition
        self._random = random.Random()
        self._list_node = self._random.randbytes(6)  # of list keys; random, as each shard of Scylla has one
        self._calls = Calls()
        self._writes = 0
        self._others: dict[type, Callable[[Any, str | None], Result]] = {
            ast.Use: self._use,
            ast.Truncate: self._truncate,
            ast.Describe: self._describe,
            ast.ListRoles: lambda statement, _: list_roles(statement, users),
            ast.ListUsers: lambda _statement, _: list_users(users),
            ast.Unsupported: self._refuse,
            **dict.fromkeys(get_args(DdlStatement), self._change_schema),
        }
        """How statements are executed that have no plan."""

    # ------------------------------------------------------------ prepared statements

    def prepare(self, text: str, keyspace: str | None) -> Prepared:
        """Return the statement with its bind variables, and keep it for ``get``."""
        statement = parse(text)
        compiled = self._compiled(text, statement, keyspace)
        plan = compiled.plan
        columns = plan.columns if isinstance(plan, SelectPlan) else None if plan is None else _answer_columns(plan)
        # The same text in the same keyspace has the same id, whoever prepares it, and whenever.
        identity = hashlib.md5(f"{keyspace or ''}{text}".encode(), usedforsecurity=False).digest()
        plans = compiled.plan[0] if isinstance(statement, ast.Batch) else [compiled.plan]
        prepared = Prepared(
            identity,
            text,
            keyspace,
            statement,
            compiled.variables,
            compiled.pk_indexes,
            columns,
            is_conditional=any(isinstance(plan, WritePlan) and plan.is_conditional for plan in plans),
        )
        self._prepared[identity] = prepared
        self._prepared.move_to_end(identity)
        if len(self._prepared) > _PREPARED_MOST:
            self._prepared.popitem(last=False)
        if len(text) > _LONG_TEXT:
            self._bound_prepared()
        return prepared

    def _bound_prepared(self) -> None:
        """Let go of prepared statements, the oldest first, until the texts of the rest are not too long together."""
        length = sum(len(prepared.text) for prepared in self._prepared.values())
        while length > _PREPARED_CHARACTERS and len(self._prepared) > 1:
            _, oldest = self._prepared.popitem(last=False)
            length -= len(oldest.text)

    def get(self, statement_id: bytes) -> Prepared:
        """Return a prepared statement. Raises Unprepared when it is not known, or not any more."""
        prepared = self._prepared.get(statement_id)
        if prepared is None:
            raise Unprepared(statement_id)
        return prepared

    def execute(self, prepared: Prepared, values: Values, params: QueryParams) -> Result:
        return self._run(prepared.text, prepared.statement, prepared.keyspace, values, params)

    def query(self, text: str, values: Values, params: QueryParams) -> Result:
        return self._run(text, parse(text), params.keyspace, values, params)

    def time_limit_us(self, item: Prepared | str, values: Values, params: QueryParams) -> int | None:
        """Return the USING TIMEOUT of a request in microseconds; None if it has none, or will be refused."""
        text, keyspace = (item, params.keyspace) if isinstance(item, str) else (item.text, item.keyspace)
        try:
            compiled = self._compiled(text, parse(item) if isinstance(item, str) else item.statement, keyspace)
            if compiled.timeout is None:
                return None
            request = self._request(_positional(compiled.variables, values), params, is_write=False)
            return timeout_us(compiled.timeout, request)
        except CqlError:
            return None

    def _compiled(self, text: str, statement: Any, keyspace: str | None) -> _Compiled:
        place = (keyspace, text)
        known = self._plans.get(place)
        # A plan holds columns and types, so any change of the schema makes it stale.
        if known is not None and known.version is self.schema.version:
            return known
        compiled = self._compile(statement, keyspace)
        if len(text) <= _LONG_TEXT:
            self._plans[place] = compiled
        if len(self._plans) > _PLANS_MOST:
            self._plans.popitem(last=False)
        return compiled

    def _compile(self, statement: Any, keyspace: str | None) -> _Compiled:
        if isinstance(statement, ast.Batch):
            return self._compile_batch(statement, keyspace)
        if isinstance(statement, ast.AlterTable) and isinstance(statement.drop_timestamp, ast.Marker):
            table = self._table(statement.table, keyspace)
            name = statement.drop_timestamp.name or "[timestamp]"
            return _Compiled(self.schema.version, None, (ColumnSpec(table.keyspace, table.name, name, BIGINT),), ())
        if not isinstance(statement, ast.Select | ast.Insert | ast.Update | ast.Delete):
            return _Compiled(self.schema.version, None, (), ())
        table = self._table(statement.table, keyspace)
        scope = Scope(self.schema, table, self._calls)
        plan: StatementPlan
        if isinstance(statement, ast.Select):
            plan = compile_select(scope, statement)
        else:
            self._check_writable(table)
            plan = compile_write(scope, statement)
            self._check_conditional(plan)
        timeout = _timeout(scope, statement)
        variables = _in_order(scope.variables, statement.markers)
        keys = [scope.key_markers.get(at) for at in range(len(table.partition_key))]
        # Drivers route by the whole key or not at all.
        pk_indexes = () if None in keys else tuple(at for at in keys if at is not None)
        # Conditional writes have time limits of their own, and do not look at this one.
        takes_it = isinstance(plan, SelectPlan) or not plan.is_conditional
        return _Compiled(self.schema.version, plan, variables, pk_indexes, timeout if takes_it else None)

    def _compile_batch(self, statement: ast.Batch, keyspace: str | None) -> _Compiled:
        plans: list[WritePlan] = []
        variables: dict[int, ColumnSpec] = {}
        first: Scope | None = None
        for inner in statement.statements:
            scope = Scope(self.schema, self._table(inner.table, keyspace), self._calls)
            self._check_writable(scope.table)
            plans.append(compile_write(scope, inner))
            self._check_conditional(plans[-1])
            _timeout(scope, inner)
            variables |= scope.variables
            first = first or scope
        using: Any = None
        timeout: Getter | None = None
        if statement.using.ttl is not None:
            raise InvalidRequest("Global TTL on the BATCH statement is not supported.")
        if statement.using.timestamp is not None and any(plan.is_conditional for plan in plans):
            raise InvalidRequest("Cannot provide custom timestamp for conditional BATCH")
        if statement.using.timestamp is not None and any(plan.sets_timestamp for plan in plans):
            raise InvalidRequest("Timestamp must be set either on BATCH or individual statements")
        if statement.kind == "counter" and plans:
            raise _no_counters()
        lwt.check_one_table(plans)
        if first is not None:
            outer = Scope(self.schema, first.table, self._calls)
            timeout = None if any(plan.is_conditional for plan in plans) else _timeout(outer, statement)
            if statement.using.timestamp is not None:
                # A plan without operations, for the way it reads USING TIMESTAMP.
                using = WritePlan(outer, "UPDATE", ast.Using(timestamp=statement.using.timestamp))
            variables |= outer.variables
        ordered = _in_order(variables, statement.markers)
        return _Compiled(self.schema.version, (plans, using), ordered, (), timeout)

    # ------------------------------------------------------------ execution

    def _run(self, text: str, statement: Any, keyspace: str | None, values: Values, params: QueryParams) -> Result:
        if isinstance(statement, _PLANNED):
            compiled = self._compiled(text, statement, keyspace)
            plan = compiled.plan
            is_write = not isinstance(plan, SelectPlan)
            request = self._request(_positional(compiled.variables, values), params, is_write=is_write)
            if compiled.timeout is not None and (not timeout_us(compiled.timeout, request) or params.overdue):
                # But for faults, nothing that the server does takes time of its own clock.
                write_type = "BATCH" if isinstance(plan, tuple) else "SIMPLE"
                level = params.consistency
                raise WriteTimeout(level, write_type) if is_write else ReadTimeout(level)
            if not isinstance(plan, tuple):
                if isinstance(plan, SelectPlan):
                    result: Result = plan.execute(request, self._store(plan.table, request))
                else:
                    result = self._write([(plan, request)], None, is_batch=False)
                if params.shard is None:
                    return result
                return self._routed(result, plan.table, compiled, request, params.shard)
            plans, using = plan
            shared = using.timestamp(request) if using is not None else None
            return self._write([(inner, request) for inner in plans], shared, is_batch=True)
        if isinstance(statement, ast.AlterTable) and isinstance(statement.drop_timestamp, ast.Marker):
            (value,) = _positional(self._compiled(text, statement, keyspace).variables, values)
            if not isinstance(value, bytes):
                raise InvalidRequest("Invalid null or unset value of timestamp")
            moment = ast.Constant("integer", str(BIGINT.decode(BIGINT.normalize(value))))
            statement = attrs.evolve(statement, drop_timestamp=moment)
        return self._others[type(statement)](statement, keyspace)

    def _routed(self, result: Result, table: TableSchema, compiled: _Compiled, request: Request, shard: int) -> Result:
        """Return the result with the place of the tablet, if a client that asked *shard* could have asked a right one.

        Scylla, too, looks only at statements whose partition key consists of bind markers.
        """
        keyspace = self.schema.keyspaces[table.keyspace]
        if keyspace.tablets is None or not compiled.pk_indexes or not isinstance(result, VoidResult | RowsResult):
            return result
        key = tuple(request.values[at] for at in compiled.pk_indexes)
        if not all(isinstance(part, bytes) for part in key):
            return result
        token = self._stores[table.keyspace, table.name].token(cast("Key", key))
        routing = self.cluster.routing(keyspace, table, token, request.params.node, shard)
        if routing is None:
            return result
        if isinstance(result, VoidResult):
            return VoidResult(routing)
        return RowsResult(result.columns, result.pieces, result.paging_state, routing, result.count)

    def batch(self, kind: str, items: Sequence[tuple[Prepared | str, Values]], params: QueryParams) -> Result:
        """Execute a protocol BATCH: all statements of a partition make one mutation."""
        if kind == "counter" and items:
            raise _no_counters()
        base = self._request((), params, is_write=True)
        plans: list[tuple[WritePlan, Request]] = []
        for item, values in items:
            text, keyspace = (item, params.keyspace) if isinstance(item, str) else (item.text, item.keyspace)
            statement = parse(item) if isinstance(item, str) else item.statement
            if not isinstance(statement, _MODIFYING):
                raise InvalidRequest(
                    "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed."
                )
            compiled = self._compiled(text, statement, keyspace)
            bound = _positional(compiled.variables, values)
            plans.append((compiled.plan, Request(bound, params, base.now_us, base.timestamp)))
        lwt.check_one_table([plan for plan, _ in plans])
        return self._write(plans, None, is_batch=True)

    def _request(self, values: Sequence[BindValue], params: QueryParams, *, is_write: bool) -> Request:
        try:
            now_us = self.cluster.node(params.node).clock.now_us()
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

    def _write(self, plans: list[tuple[WritePlan, Request]], shared: int | None, *, is_batch: bool) -> Result:
        if not plans:
            return VoidResult()
        mutations = Mutations(ListKeys(self._list_node), self._prior)
        request = plans[0][1]
        is_conditional = any(plan.is_conditional for plan, _ in plans)
        lwt.check_consistency(request.params, is_conditional=is_conditional)
        if not is_conditional:
            # All statements before the log: CDC sees what a batch does to a partition, not its statements.
            for plan, r in plans:
                plan.add_to(mutations, r, shared)
            if is_batch:
                mutations.check_size()
            self._commit(mutations, request)
            return _VOID
        old = lwt.OldRows(plans, self._prior, self._first_row, is_batch=is_batch)
        applied = old.hold()
        # Before the write: the answer shows the row as it was.
        answer = old.answer(applied=applied)
        timestamp = self._ballot(plans[0][0].table, old.key, request)
        if applied:
            for plan, r in plans:
                plan.add_to(mutations, r, timestamp)
            self._commit(mutations, request)
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

    def _commit(self, mutations: Mutations, request: Request) -> None:
        """Make the log rows of all partitions, then apply: an error leaves nothing half done."""
        now_s = request.now_s
        logged: list[LoggedRow] = []
        for mutation in mutations:
            cdc = mutation.table.cdc
            if cdc is not None and cdc.enabled:
                # As in Scylla, log rows live from the server's present on, whatever timestamp they carry.
                expiry = now_s + cdc.ttl if cdc.ttl else None
                for _ in range(1 if self.write_faults is None else self.write_faults.copies(mutation.table)):
                    self._log(mutation, request, expiry, logged)
        if self.write_faults is not None and self.write_faults.hold(mutations, lambda: self._apply(mutations, logged)):
            return
        self._apply(mutations, logged)

    def _apply(self, mutations: Mutations, logged: list[LoggedRow]) -> None:
        # First to the disk: a write that cannot be kept is refused whole, and one that was answered is kept.
        if self.journal is not None:
            self.journal.wrote(mutations, logged)
        for mutation in mutations:
            self._stores[mutation.table.keyspace, mutation.table.name].apply(mutation)
        for store, key, clustering, wire, stamp in logged:
            store.append_log(key, clustering, wire, stamp)
        self._writes += len(mutations)
        if self._writes >= _WRITES_BETWEEN_SWEEPS:
            self._writes = 0
            self.sweep()

    def _log(self, mutation: PartitionMutation, request: Request, expiry: int | None, logged: list[LoggedRow]) -> None:
        """Add to *logged* what a mutation puts into its table's log."""
        table = mutation.table
        place = (table.keyspace, table.name)
        known = self._log_writers.get(place)
        if known is None or known[0].table is not table or known[0].log is not known[1].table:
            # It is there: ``ddl`` makes it with the option, and refuses to drop it before.
            log = self._stores[table.keyspace, table.name + LOG_SUFFIX]
            known = self._log_writers[place] = (LogWriter(table, log.table), log)
        writer, log = known
        # The base's token: it chooses the stream.
        token, now_us = self._stores[place].token(mutation.key), request.now_us

        def stream_for(timestamp: int) -> bytes:
            return self.cluster.stream_for(table, token, timestamp, now_us)

        images = PartitionImages(self._prior, table, mutation.key, request.now_s) if writer.has_images else None
        for record in writer.records(mutation, stream_for, self._random.getrandbits, images):
            # Rows of a record share all but their wires, and so the objects.
            stamp = (record.timestamp, writer.ttl, expiry)
            key = (record.stream_id,)
            for seq, wire in enumerate(record.wires):
                logged.append((log, key, (record.time, seq.to_bytes(4, "big")), wire, stamp))

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
            store = self._system.store(table, self.cluster.nodes[0].index, store) or store
        partition = store.get(key)
        return unpacked(partition, store.position) if isinstance(partition, PackedPartition) else partition

    def expire_rows(self) -> int:
        """Delete the rows whose TTL column says they have expired, and return how many there were.

        Scylla's expiration service does this now and then. Each delete is a write of its own, in the log as well.
        """
        node = self.cluster.nodes[0].index
        now_s = self.clock.now_us() // 1_000_000
        stores = [store for store in self._stores.values() if store.table.ttl_column is not None]
        # A list, as the deletes below write to the stores.
        found = [(store.table, key, ck) for store in stores for key, ck in list(expired_rows(store, now_s))]
        for table, key, ck in found:
            request = self._request((), QueryParams(node=node), is_write=True)
            mutations = Mutations(ListKeys(self._list_node), self._prior)
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
        now_s = self.clock.now_us() // 1_000_000
        for (keyspace, _), store in self._stores.items():
            if keyspace not in self._system.protected:
                store.forget(now_s)

    def show(self, serving: Serving) -> None:
        """Let the system tables show the clients and ports of *serving*."""
        self._system.serving = serving

    def begin_trace(self) -> uuid.UUID:
        """Return the id of a new trace."""
        return self._system.traces.new_id()

    def end_trace(self, trace: Trace) -> None:
        """Put a trace into the tables of ``system_traces``."""
        self._system.traces.add(trace)

    # ------------------------------------------------------------ everything else

    def _use(self, statement: ast.Use, _: str | None) -> Result:
        if statement.keyspace not in self.schema.keyspaces:
            raise InvalidRequest(f"Keyspace '{statement.keyspace}' does not exist")
        return SetKeyspaceResult(statement.keyspace)

    def _truncate(self, statement: ast.Truncate, keyspace: str | None) -> Result:
        table = self._table(statement.table, keyspace)
        scope = Scope(self.schema, table, self._calls)
        timeout = _timeout(scope, statement)
        if scope.variables:
            raise InvalidRequest("bind variables cannot be used here, write a constant")
        if timeout is not None and not timeout_us(timeout, Request((), QueryParams(), 0, 0)):
            raise TruncateError(f"Timeout during truncate of {table.keyspace}.{table.name}")
        if table.keyspace in self._system.protected:
            raise Unauthorized(f"Cannot TRUNCATE {table.keyspace}.{table.name}")
        # Before the rows go, as with a write.
        if self.journal is not None:
            self.journal.truncated(table)
        self._stores[table.keyspace, table.name].truncate()
        return VoidResult()

    def _describe(self, statement: ast.Describe, keyspace: str | None) -> Result:
        return describe(self.schema, self.cluster, statement, keyspace, self._system.protected)

    def _refuse(self, statement: ast.Unsupported, keyspace: str | None) -> Result:
        self._check_view(statement, keyspace)
        raise InvalidRequest(f"{statement.what} is not supported by the embedded server")

    def _change_schema(self, statement: DdlStatement, keyspace: str | None) -> Result:
        change, all_changes = self._edit_schema(statement, keyspace)
        # Logs included: drivers have to know the columns of a log as well.
        for each in all_changes:
            self._forget_statements(each)
            for listener in list(self.schema_listeners):
                listener(each)
        return VoidResult() if change is None else change

    def upgrade(self, rewriting: Rewriting) -> None:
        """Go from 4.3 to 4.4: the new description tables appear. Raises ValueError when this is not 4.3."""
        self.cluster.upgrade(rewriting)
        for table in self._system.install(self.table_changed):
            self.schema.version = uuid.uuid4()
            for listener in list(self.schema_listeners):
                listener(SchemaChange("CREATED", "TABLE", table.keyspace, table.name))

    def _edit_schema(
        self, statement: DdlStatement, keyspace: str | None
    ) -> tuple[SchemaChange | None, list[SchemaChange]]:
        if self.journal is None:
            return self._editor.apply(statement, keyspace)
        self.journal.schema_changing()
        changes: list[SchemaChange] = []
        try:
            change, changes = self._editor.apply(statement, keyspace)
        finally:
            # After a failure, too: the journal waits for the end of what schema_changing began.
            self.journal.schema_changed(changes)
        return change, changes

    def _forget_statements(self, change: SchemaChange) -> None:
        """Drop prepared statements of what changed, so that clients prepare them again and learn the new columns."""
        if change.change == "CREATED":
            return
        for identity, prepared in list(self._prepared.items()):
            names = getattr(prepared.statement, "table", None)
            inner = getattr(prepared.statement, "statements", ())
            touched = [names] if isinstance(names, ast.TableName) else [s.table for s in inner]
            for name in touched:
                if (name.keyspace or prepared.keyspace) == change.keyspace and (
                    change.target != "TABLE" or name.name == change.name
                ):
                    self._prepared.pop(identity, None)

    # ------------------------------------------------------------ tables

    @property
    def stores(self) -> Mapping[tuple[str, str], TableStore]:
        """The data of all tables by keyspace and name, for who keeps it. Change it only by the stores' own methods."""
        return self._stores

    @property
    def protected(self) -> frozenset[str]:
        """The names of the system keyspaces."""
        return self._system.protected

    def clear(self) -> None:
        """Forget all keyspaces, data and statements; the system tables are as at the start."""
        self._prepared.clear()
        self._plans.clear()
        self._stores.clear()
        self._log_writers.clear()
        self._last_timestamp.clear()
        self._ballots.clear()
        self.schema.keyspaces.clear()
        self.install_system_tables()

    def install_system_tables(self) -> None:
        """Put the system tables of the cluster's version in their places; those that are there stay."""
        self._system.install(self.table_changed)

    def is_current(self, table: TableSchema) -> bool:
        """Return whether *table* is in use as it is: not dropped and not altered."""
        keyspace = self.schema.keyspaces.get(table.keyspace)
        return keyspace is not None and keyspace.tables.get(table.name) is table

    def _table(self, name: ast.TableName, current: str | None) -> TableSchema:
        keyspace_name = name.keyspace or current
        if keyspace_name is None:
            raise InvalidRequest(
                "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename"
            )
        keyspace: Keyspace | None = self.schema.keyspaces.get(keyspace_name)
        if keyspace is None:
            raise InvalidRequest(f"Keyspace {keyspace_name} does not exist")
        table = keyspace.tables.get(name.name)
        if table is None:
            raise InvalidRequest(f"unconfigured table {name.name}")
        return table

    def _check_writable(self, table: TableSchema) -> None:
        if table.keyspace in self._system.protected and not self._system.is_writable(table):
            raise Unauthorized(f"Cannot modify {table.keyspace}.{table.name}: system tables are read-only here")

    def _check_view(self, statement: ast.Unsupported, keyspace: str | None) -> None:
        """Refuse a view of a log, and one with a log, as Scylla does: no others are refused there."""
        if statement.cdc:
            raise InvalidRequest("Cannot enable CDC for a materialized view")
        if statement.table is not None:
            table = self._table(statement.table, keyspace)
            base = self.schema.keyspaces[table.keyspace].tables.get(table.cdc_base or "")
            if table.is_cdc_log and base is not None and base.cdc is not None and base.cdc.enabled:
                raise InvalidRequest("Materialized views cannot be created on CDC Log tables")

    def _check_conditional(self, plan: WritePlan) -> None:
        table = plan.table
        if plan.is_conditional and table.is_cdc_log and self.schema.keyspaces[table.keyspace].tablets is not None:
            raise InvalidRequest(f"LWT is not supported on CDC log tables: {table.keyspace}.{table.name}")

    def _store(self, table: TableSchema, request: Request) -> TableStore:
        written = self._stores[table.keyspace, table.name]
        return self._system.store(table, request.params.node, written) or written

    def table_changed(self, table: TableSchema) -> None:
        place = (table.keyspace, table.name)
        store = self._stores.get(place)
        # A new id under an old name is another table, which starts empty.
        if store is None or store.table.id != table.id:
            self._stores[place] = TableStore(table, table_token(table))
            self._log_writers.clear()
        else:
            store.set_table(table)
        self.cluster.tablets.table_changed(self.schema.keyspaces[table.keyspace], table, self.clock.now_us())

    def table_dropped(self, table: TableSchema) -> None:
        self._stores.pop((table.keyspace, table.name), None)
        self._log_writers.clear()
        self.cluster.table_dropped(table)


def _no_counters() -> InvalidRequest:
    return InvalidRequest("Cannot include non-counter statement in a counter batch")


def _answer_columns(plan: WritePlan | tuple[list[WritePlan], Any]) -> tuple[ColumnSpec, ...] | None:
    """Return what describes the answer of a write, None if it has none."""
    plans, is_batch = ([plan], False) if isinstance(plan, WritePlan) else (plan[0], True)
    if not any(each.is_conditional for each in plans):
        return None
    return lwt.cas_specs(plans[0].table, lwt.columns_of(plans, is_batch=is_batch))


def _timeout(scope: Scope, statement: Any) -> Getter | None:
    """Return what gives USING TIMEOUT of a statement, None for none."""
    using = getattr(statement, "using", None)
    term = statement.timeout if using is None else using.timeout
    return None if term is None else scope.getter(term, DURATION, "[timeout]")


def _in_order(variables: Mapping[int, ColumnSpec], markers: int) -> tuple[ColumnSpec, ...]:
    """Return the bind variables by index. Raises InvalidRequest if a marker is where nothing gives it a type."""
    if len(variables) < markers:
        raise InvalidRequest("a bind marker has no type: it is in an empty batch, or USING has the same part again")
    return tuple(variables[at] for at in range(markers))


def _positional(variables: tuple[ColumnSpec, ...], values: Values) -> Sequence[BindValue]:
    """Return one value for each variable. Raises InvalidRequest when the numbers differ or a name is missing."""
    if isinstance(values, Mapping):
        missing = [spec.name for spec in variables if spec.name not in values]
        if missing:
            raise InvalidRequest(f"Missing value for bind variable {missing[0]}")
        return [values[spec.name] for spec in variables]
    if len(values) != len(variables):
        raise InvalidRequest(
            f"Invalid amount of bind variables: expected {len(variables)} but got {len(values)} bind variables"
        )
    return values
