"""The engine: prepared statements, and the execution of every statement against the schema and the stores.

Single-threaded: everything here is called from the server's loop thread.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, cast

from ..clock import Clock
from ..cluster.descriptions import Rewriting
from ..cluster.topology import Cluster
from ..cql import ast
from ..cql.parser import parse
from ..errors import (
    CqlError,
    InvalidRequest,
    ReadTimeout,
    TruncateError,
    Unauthorized,
    Unprepared,
    WriteTimeout,
)
from ..result import (
    Prepared,
    QueryParams,
    Result,
    RowsResult,
    SchemaChange,
    SetKeyspaceResult,
    Trace,
    Unfinished,
    VoidResult,
)
from ..schema.tables import PAXOS_SUFFIX, Schema, TableSchema
from ..storage.mutation import Key
from ..storage.partitions import TableStore
from ..storage.tokens import table_token
from ..system.contents import Serving, SystemTables
from ..system.describe import describe
from ..system.roles import list_roles, list_users
from .binding import Request, timeout_us
from .compiling import LONG_TEXT, Compiled, Compiler, Values, answer_columns, no_counters, positional
from .ddl import DdlStatement, SchemaEditor
from .reads.select import SelectPlan
from .writes import lwt
from .writes.write import WritePlan
from .writes.writing import Writer

__all__ = ["Engine"]

_PREPARED_MOST: Final = 10_000
_PREPARED_CHARACTERS: Final = 32_000_000  # of all prepared texts together; beyond that the oldest statements go

# Tuples: these are asked for with each request, and a union would be made anew each time.
_MODIFYING: Final = (ast.Insert, ast.Update, ast.Delete)
_WRITES: Final = (WritePlan, tuple)


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
        self._stores: dict[tuple[str, str], TableStore] = {}
        self._system = SystemTables(self.schema, cluster, self._stores, users)
        self._compiler = Compiler(self.schema, self._system)
        self.writer = Writer(cluster, clock, self._stores, self._system, self._paxos_table)
        self._system.install(self.table_changed)
        self._editor = SchemaEditor(
            self.schema,
            self,
            clock.now_us,
            self._system.protected,
            cluster,
        )
        self._prepared: OrderedDict[bytes, Prepared] = OrderedDict()
        self._others: dict[type, Callable[[Any, str | None], Result]] = {
            ast.Use: self._use,
            ast.Truncate: self._truncate,
            ast.Describe: self._describe,
            ast.ListRoles: lambda statement, _: list_roles(statement, users),
            ast.ListUsers: lambda _statement, _: list_users(users),
            ast.Unsupported: self._refuse,
        }
        """How statements are executed that have no plan, but for those of the schema."""

    # ------------------------------------------------------------ prepared statements

    def prepare(self, text: str, keyspace: str | None) -> Prepared:
        """Return the statement with its bind variables, and keep it for ``get``."""
        statement = parse(text)
        compiled = self._compiler.compiled(text, statement, keyspace)
        plan = compiled.plan
        columns = plan.columns if isinstance(plan, SelectPlan) else None if plan is None else answer_columns(plan)
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
        if len(text) > LONG_TEXT:
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
            compiled = self._compiler.compiled(text, parse(item) if isinstance(item, str) else item.statement, keyspace)
            if compiled.timeout is None:
                return None
            request = self.writer.request(positional(compiled.variables, values), params, is_write=False)
            return timeout_us(compiled.timeout, request)
        except CqlError:
            return None

    # ------------------------------------------------------------ execution

    def _run(self, text: str, statement: Any, keyspace: str | None, values: Values, params: QueryParams) -> Result:
        compiled = self._compiler.compiled(text, statement, keyspace)
        plan = compiled.plan
        if plan is None and compiled.timeout is None and compiled.bound is None:
            # What is refused says why, whatever values come with it.
            return self._other(text, statement, keyspace)
        is_write = isinstance(plan, _WRITES)
        request = self.writer.request(positional(compiled.variables, values), params, is_write=is_write)
        if compiled.timeout is not None and (not timeout_us(compiled.timeout, request) or params.overdue):
            # But for faults, nothing that the server does takes time of its own clock.
            raise _timed_out(statement, keyspace, params)
        if plan is None:
            if compiled.bound is not None:
                statement = compiled.bound(request)
            return self._other(text, statement, keyspace)
        if isinstance(plan, WritePlan):
            result: Result = self.writer.write(plan, request)
        elif isinstance(plan, SelectPlan):
            store = self._store(plan.table, request)
            if plan.is_aggregate and params.may_pause:
                return Unfinished(self._aggregated(plan, store, compiled, request))
            result = plan.execute(request, store)
        else:
            plans, using = plan
            shared = using.timestamp(request) if using is not None else None
            return self.writer.write_batch([(inner, request) for inner in plans], shared)
        if params.shard is None:
            return result
        return self._routed(result, plan.table, compiled, request, params.shard)

    def _aggregated(
        self, plan: SelectPlan, store: TableStore, compiled: Compiled, request: Request
    ) -> Generator[None, None, Result]:
        result = yield from plan.steps(request, store)
        shard = request.params.shard
        return result if shard is None else self._routed(result, plan.table, compiled, request, shard)

    def _routed(self, result: Result, table: TableSchema, compiled: Compiled, request: Request, shard: int) -> Result:
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
            raise no_counters()
        base = self.writer.request((), params, is_write=True)
        plans: list[tuple[WritePlan, Request]] = []
        for item, values in items:
            text, keyspace = (item, params.keyspace) if isinstance(item, str) else (item.text, item.keyspace)
            statement = parse(item) if isinstance(item, str) else item.statement
            if not isinstance(statement, _MODIFYING):
                raise InvalidRequest(
                    "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed."
                )
            compiled = self._compiler.compiled(text, statement, keyspace)
            bound = positional(compiled.variables, values)
            plans.append((compiled.plan, Request(bound, params, base.now_us, base.timestamp)))
        lwt.check_one_table([plan for plan, _ in plans])
        return self.writer.write_batch(plans, None)

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
        table = self._compiler.table(statement.table, keyspace)
        if table.keyspace in self._system.protected:
            raise Unauthorized(f"Cannot TRUNCATE {table.keyspace}.{table.name}")
        # Before the rows go, as with a write.
        if self.writer.journal is not None:
            self.writer.journal.truncated(table)
        self._stores[table.keyspace, table.name].truncate()
        return VoidResult()

    def _describe(self, statement: ast.Describe, keyspace: str | None) -> Result:
        return describe(self.schema, self.cluster, statement, keyspace, self._system.protected)

    def _refuse(self, statement: ast.Unsupported, keyspace: str | None) -> Result:
        self._check_view(statement, keyspace)
        raise InvalidRequest(f"{statement.what} is not supported by the embedded server")

    def _other(self, text: str, statement: Any, keyspace: str | None) -> Result:
        """Execute a statement that has no plan."""
        if not isinstance(statement, DdlStatement):
            return self._others[type(statement)](statement, keyspace)
        changes = self._edit_schema(lambda: self._editor.apply(text, statement, keyspace))
        return changes[0] if changes else VoidResult()

    def upgrade(self, rewriting: Rewriting) -> None:
        """Go from 4.3 to 4.4: the new description tables appear. Raises ValueError when this is not 4.3."""
        self.cluster.upgrade(rewriting)
        for table in self._system.install(self.table_changed):
            self.schema.version = uuid.uuid4()
            for listener in list(self.schema_listeners):
                listener(SchemaChange("CREATED", "TABLE", table.keyspace, table.name))

    def _edit_schema(self, edit: Callable[[], list[SchemaChange]]) -> list[SchemaChange]:
        """Change the schema, write down how it is, and tell whoever listens; return the changes."""
        journal, changes = self.writer.journal, []
        if journal is not None:
            journal.schema_changing()
        try:
            changes = edit()
        finally:
            # After a failure, too: the journal waits for the end of what schema_changing began.
            if journal is not None:
                journal.schema_changed(changes)
        # Logs included: drivers have to know the columns of a log as well.
        for each in changes:
            self._forget_statements(each)
            for listener in list(self.schema_listeners):
                listener(each)
        return changes

    def _paxos_table(self, base: TableSchema) -> TableSchema | None:
        """Return the table of the Paxos rounds of a table with tablets, made if need be; None for others."""
        keyspace, name = self.schema.keyspaces[base.keyspace], base.name + PAXOS_SUFFIX
        if keyspace.tablets is None:
            return None
        if not self.cluster.release.has("LWT with tablets"):
            raise InvalidRequest(
                f"Cannot use LightWeight Transactions for table {base.keyspace}.{base.name}: LWT is not yet supported"
                " with tablets"
            )
        if name not in keyspace.tables:
            self._edit_schema(lambda: self._editor.make_paxos_table(base))
        return keyspace.tables[name]

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
        self._compiler.clear()
        self._stores.clear()
        self.writer.clear()
        self.schema.keyspaces.clear()
        self.install_system_tables()

    def install_system_tables(self) -> None:
        """Put the system tables of the cluster's version in their places; those that are there stay."""
        self._system.install(self.table_changed)

    def is_current(self, table: TableSchema) -> bool:
        """Return whether *table* is in use as it is: not dropped and not altered."""
        keyspace = self.schema.keyspaces.get(table.keyspace)
        return keyspace is not None and keyspace.tables.get(table.name) is table

    def _check_view(self, statement: ast.Unsupported, keyspace: str | None) -> None:
        """Refuse a view of a log, and one with a log, as Scylla does: no others are refused there."""
        if statement.cdc:
            raise InvalidRequest("Cannot enable CDC for a materialized view")
        if statement.table is not None:
            table = self._compiler.table(statement.table, keyspace)
            base = self.schema.keyspaces[table.keyspace].tables.get(table.cdc_base or "")
            if table.is_cdc_log and base is not None and base.cdc is not None and base.cdc.enabled:
                raise InvalidRequest("Materialized views cannot be created on CDC Log tables")

    def _store(self, table: TableSchema, request: Request) -> TableStore:
        written = self._stores[table.keyspace, table.name]
        return self._system.store(table, request.params.node, written) or written

    def table_changed(self, table: TableSchema) -> None:
        place = (table.keyspace, table.name)
        store = self._stores.get(place)
        # A new id under an old name is another table, which starts empty.
        if store is None or store.table.id != table.id:
            self._stores[place] = TableStore(table, table_token(table))
            self.writer.forget_logs()
        else:
            store.set_table(table)
        self.cluster.tablets.table_changed(self.schema.keyspaces[table.keyspace], table, self.clock.now_us())

    def table_dropped(self, table: TableSchema) -> None:
        self._stores.pop((table.keyspace, table.name), None)
        self.writer.forget_logs()
        self.cluster.table_dropped(table)


def _timed_out(statement: Any, keyspace: str | None, params: QueryParams) -> CqlError:
    """Return the error of a statement whose USING TIMEOUT is over."""
    if isinstance(statement, ast.Truncate):
        return TruncateError(
            f"Timeout during truncate of {statement.table.keyspace or keyspace}.{statement.table.name}"
        )
    if isinstance(statement, ast.Select):
        return ReadTimeout(params.consistency)
    return WriteTimeout(params.consistency, "BATCH" if isinstance(statement, ast.Batch) else "SIMPLE")
