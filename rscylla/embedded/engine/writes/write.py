"""INSERT, UPDATE and DELETE: from a statement to the mutations that it makes of the partitions it names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Literal

from ...cql import ast
from ...errors import InvalidRequest
from ...result import UNSET, BindValue
from ...schema.tables import Column, TableSchema
from ...storage.mutation import Cell, Key, Marker, PartitionMutation, PlainRow, RangeTombstone, RowMutation, Shape
from ...storage.reconcile import NEVER, MutationBuilder, delete_row, put_marker
from ...storage.rowpacking import shape_of
from ...types import BIGINT, INT, TEXT
from ...types.jsontext import decode_document, from_json
from ..binding import Getter, Request, Scope
from ..where.conditions import condition
from ..where.filtering import Predicate
from ..where.ranges import Range
from ..where.restrictions import Restrictions, check_length
from .operations import ColumnEdit, ListKeys, PriorRow, WriteContext, assignment, deletion, setter, setter_of

__all__ = ["Mutations", "WritePlan", "compile_write"]

_MAX_TTL = 20 * 365 * 24 * 60 * 60  # seconds; Scylla refuses more
_MOST_AHEAD = 3 * 24 * 60 * 60 * 1_000_000  # microseconds that USING TIMESTAMP may be ahead of the server's clock
_MOST_BATCH = 1024 * 1024  # bytes, Scylla's default of batch_size_fail_threshold_in_kb
_BESIDE_ROW = 281  # bytes: for Scylla, an int key with a text of 743 bytes takes a KiB (its test_batch.py)


class Mutations:
    """The mutations of one request, one for each partition, in the order the partitions were first named.

    ``prior(table, key, ck)`` gives a stored row (ck None: the static row) as it was before the request.
    ``list_node`` is the node in the keys of list elements.
    """

    def __init__(self, list_node: bytes, prior: PriorRow) -> None:
        self.prior = prior
        self._list_node = list_node
        self._mutations: dict[tuple[str, str, Key], PartitionMutation] = {}
        self._builders: dict[tuple[str, str, Key], MutationBuilder] = {}

    @functools.cached_property
    def list_keys(self) -> ListKeys:
        return ListKeys(self._list_node)

    def mutation(self, table: TableSchema, key: Key) -> PartitionMutation:
        """Return the mutation of a partition; a new one if it has none yet."""
        place = (table.keyspace, table.name, key)
        mutation = self._mutations.get(place)
        if mutation is None:
            mutation = self._mutations[place] = PartitionMutation(table, key)
        return mutation

    def of(self, table: TableSchema, key: Key) -> MutationBuilder:
        """Return what merges further edits into the mutation of a partition."""
        place = (table.keyspace, table.name, key)
        builder = self._builders.get(place)
        if builder is None:
            builder = self._builders[place] = MutationBuilder(self.mutation(table, key))
        return builder

    def __iter__(self) -> Iterator[PartitionMutation]:
        return iter(self._mutations.values())

    def __len__(self) -> int:
        return len(self._mutations)

    def check_size(self) -> None:
        """Refuse a large batch of more than one partition: of its values, and of the memory that rows take beside."""
        if len(self._mutations) > 1 and sum(map(_values_size, self)) > _MOST_BATCH:
            raise InvalidRequest("Batch too large")


def _values_size(mutation: PartitionMutation) -> int:
    size = 0
    static = () if mutation.static_row is None else (mutation.static_row,)
    for row in (*static, *mutation.rows.values()):
        size += _BESIDE_ROW
        if isinstance(row, PlainRow) and row.shape is not None:
            size += sum([len(value) for value in row.values if value is not None])
            continue
        for cell in row.cells.values():
            if isinstance(cell, Cell):
                size += len(cell.value or b"")
            else:
                size += sum(len(key) + len(each.value or b"") for key, each in cell.cells.items())
    return size


class WritePlan:
    """One compiled INSERT, UPDATE or DELETE. ``existence`` and ``conditions`` are its IF clause."""

    def __init__(self, scope: Scope, kind: Literal["INSERT", "UPDATE", "DELETE"], using: ast.Using) -> None:
        self.table = scope.table
        self.kind = kind
        self.operations: list[ColumnEdit] = []
        self.existence: Literal["exists", "not exists"] | None = None
        self.conditions: list[Predicate] = []
        self.sets_timestamp = using.timestamp is not None
        self._timestamp = _option(scope, using.timestamp, BIGINT, "[timestamp]")
        self._ttl = _option(scope, using.ttl, INT, "[ttl]")
        self.restrictions: Restrictions  # set by the function that compiles the statement
        # INSERT with only static columns and no clustering key touches no row.
        self.static_only = False
        self._static: list[ColumnEdit] = []
        self._regular: list[ColumnEdit] = []
        self.needs_read = False
        """Whether an operation looks at the row before the write."""
        self._default_ttl = int(scope.table.options.get("default_time_to_live", 0))
        # The one partition and the one row that most statements name.
        self._point: Callable[[Request], Key] | None = None
        self._row_point: Callable[[Request], Key] | None = None
        # If all it does is to set columns of that row: what such rows share, and what gives their values.
        self._shape: Shape | None = None
        self._values: list[Getter] = []
        self.is_conditional = False
        """Whether there is an IF clause."""

    @property
    def looks_at_static_only(self) -> bool:
        """Whether its IF clause looks at static columns alone, so that any row of the partition will do."""
        if self.existence is not None:
            return bool(self.table.static_columns) and not self.restrictions.restricts_clustering
        return bool(self.conditions) and all(c.column.kind == "static" for c in self.conditions)

    def settle(self) -> None:
        """Work out what is the same for all requests, once the statement has been read."""
        self.is_conditional = self.existence is not None or bool(self.conditions)
        self._point = self.restrictions.point(self.table.partition_key)
        self._row_point = self.restrictions.point(self.table.clustering_key)
        self.needs_read = any(operation.needs_read for operation in self.operations)
        self._static = [op for op in self.operations if op.column.kind == "static"]
        self._regular = [op for op in self.operations if op.column.kind != "static"]
        values = [operation.value for operation in self._regular if operation.value is not None]
        sets_all = len(values) == len(self.operations) and (values or self.kind == "INSERT")
        if sets_all and self._point is not None and self._row_point is not None and not self.static_only:
            self._values = values
            self._shape = shape_of(self.kind == "INSERT", *[operation.column.name for operation in self._regular])

    # ------------------------------------------------------------ for a request

    def keys(self, request: Request) -> list[Key]:
        keys = [self._point(request)] if self._point else self.restrictions.keys(request, null_error=True)
        for key in keys:
            _check_key(key)
        return keys

    def clustering_keys(self, request: Request) -> list[Key]:
        """Return the full clustering keys named; ``[()]`` in a table without clustering columns."""
        if self._row_point is not None:
            return [self._row_point(request)]
        return [r.start.prefix for r in self.ranges(request)]

    def ranges(self, request: Request) -> list[Range]:
        found = self.restrictions.ranges(request, null_error=True)
        for r in found:
            check_length(r.start.prefix)
            if r.end is not r.start:
                check_length(r.end.prefix)
        return found

    def timestamp(self, request: Request) -> int:
        """Return the write timestamp in microseconds: USING TIMESTAMP, else the request's."""
        if self._timestamp is None:
            return request.timestamp
        raw = self._timestamp(request)
        if raw is UNSET:
            return request.timestamp
        if not isinstance(raw, bytes):
            raise InvalidRequest("Invalid null value of timestamp")
        timestamp = int.from_bytes(raw, "big", signed=True)
        if timestamp == NEVER:
            raise InvalidRequest("Out of bound timestamp, must be in [-9223372036854775807, 9223372036854775807]")
        if timestamp > request.now_us + _MOST_AHEAD:
            raise InvalidRequest(
                "Cannot provide a timestamp more than 3 days into the future. If this was not intended, make sure the"
                " timestamp is in microseconds"
            )
        return timestamp

    def ttl(self, request: Request) -> int:
        """Return the TTL in seconds, 0 for none: USING TTL, else the table's default."""
        raw = None if self._ttl is None else self._ttl(request)
        if raw is UNSET or self._ttl is None:
            return self._default_ttl
        if not isinstance(raw, bytes):
            raise InvalidRequest("Invalid null value of TTL")
        ttl = int.from_bytes(raw, "big", signed=True)
        if ttl < 0:
            raise InvalidRequest("A TTL must be greater or equal to 0")
        if ttl > _MAX_TTL:
            raise InvalidRequest(f"ttl is too large. requested ({ttl}) maximum ({_MAX_TTL})")
        return ttl

    def add_to(self, mutations: Mutations, request: Request, timestamp: int | None = None) -> None:
        """Put what the statement does into ``mutations``. ``timestamp`` overrides the statement's own (LWT)."""
        if timestamp is None:
            timestamp = request.timestamp if self._timestamp is None else self.timestamp(request)
        ttl = self._default_ttl if self._ttl is None else self.ttl(request)
        expiry = request.now_s + ttl if ttl else None
        if self._shape is not None and self._set(mutations, request, timestamp, ttl, expiry):
            return
        for key in self.keys(request):
            builder = mutations.of(self.table, key)
            if self.kind == "DELETE" and not self.operations:
                self._delete(builder, request, timestamp)
            else:
                place = (self.table, key)
                context = WriteContext(request, timestamp, ttl, expiry, mutations.list_keys, mutations.prior, place)
                self._edit(builder, context)

    def _set(self, mutations: Mutations, request: Request, timestamp: int, ttl: int, expiry: int | None) -> bool:
        """Put in the row of a statement that only sets columns. Returns False, with nothing done, if it is not so."""
        assert self._point is not None
        assert self._row_point is not None
        key = self._point(request)
        _check_key(key)
        clustering = self._row_point(request)
        values: list[bytes | None] = []
        for get in self._values:
            value = get(request)
            if value is UNSET or (ttl and value is None):
                return False
            values.append(value)  # type: ignore[arg-type]  # UNSET is excluded above
        rows = mutations.mutation(self.table, key).rows
        if clustering in rows:
            return False
        rows[clustering] = PlainRow(self._shape, timestamp, ttl, expiry, values)  # type: ignore[arg-type]  # it has one
        return True

    def _edit(self, builder: MutationBuilder, ctx: WriteContext) -> None:
        if self._static:
            # Aside at first: with all values unset, the mutation must not get a static row.
            edits = RowMutation()
            for operation in self._static:
                operation.apply(ctx, edits if builder.mutation.static_row is None else builder.static_row())
            if edits.cells:
                builder.static_row().cells.update(edits.cells)
        if self.static_only:
            return
        if not self._regular and self.kind != "INSERT":
            return
        rows = builder.mutation.rows
        for ck in self.clustering_keys(ctx.request):
            ctx.ck = ck
            known = rows.get(ck)
            row = RowMutation() if known is None else known
            if self.kind == "INSERT":
                # Only INSERT writes a marker. A row made by UPDATE is there as long as one of its cells is.
                put_marker(row, Marker(ctx.timestamp, ctx.ttl, ctx.expiry))
            for operation in self._regular:
                operation.apply(ctx, row)
            # Likewise, an UPDATE that sets nothing leaves no row.
            if known is None and (row.marker is not None or row.cells):
                rows[ck] = row

    def _delete(self, builder: MutationBuilder, request: Request, timestamp: int) -> None:
        if not self.table.clustering_key or not self.restrictions.restricts_clustering:
            builder.delete_partition(timestamp)
            return
        if self._row_point is not None:
            delete_row(builder.row(self._row_point(request)), timestamp)
            return
        full = len(self.table.clustering_key)
        for r in self.ranges(request):
            start, end = r.start, r.end
            # As in Scylla, ck >= 1 AND ck <= 1 is a row delete, too.
            if len(start.prefix) == full and start == end and start.inclusive:
                delete_row(builder.row(start.prefix), timestamp)
            else:
                builder.delete_range(RangeTombstone(start, end, timestamp))


class JsonPlan(WritePlan):
    """INSERT JSON. The document comes with the request, so keys and values are found then.

    As in Scylla, static columns in the document are taken and not written, and a regular column that is not in it is
    written as null unless the statement says DEFAULT UNSET. Source: Scylla ``cql3/statements/update_statement.cc``.
    """

    def __init__(self, scope: Scope, statement: ast.Insert) -> None:
        super().__init__(scope, "INSERT", statement.using)
        self.restrictions = Restrictions(scope, ())
        self._text = scope.getter(statement.json, TEXT, "[json]")
        self._default: Any = UNSET if statement.json_default_unset else None
        self._known: tuple[Request, dict[str, bytes | None]] | None = None
        if statement.if_not_exists:
            self.existence = "not exists"
        for column in self.table.regular_columns:
            self.operations.append(setter_of(column, functools.partial(self._value, column.name)))

    @property
    def looks_at_static_only(self) -> bool:
        return False  # the document names a row

    def _document(self, request: Request) -> dict[str, bytes | None]:
        # Key, ranges and every column ask for the document; it is read once for a request.
        if self._known is None or self._known[0] is not request:
            raw = self._text(request)
            if not isinstance(raw, bytes):
                raise InvalidRequest("Got null for INSERT JSON values")
            given = decode_document(raw.decode())
            columns = {name: self.table.by_name.get(name) for name in given}
            unknown = [name for name, column in columns.items() if column is None]
            if unknown:
                raise InvalidRequest(f"JSON values map contains unrecognized column: {unknown[0]}")
            encoded = {n: from_json(c.type, given[n]) for n, c in columns.items() if c is not None}
            self._known = (request, encoded)
        return self._known[1]

    def _value(self, name: str, request: Request) -> BindValue:
        value: BindValue = self._document(request).get(name, self._default)
        return value

    def _key(self, columns: tuple[Column, ...], request: Request) -> Key:
        document = self._document(request)
        parts: list[bytes] = []
        for column in columns:
            part = document.get(column.name)
            if part is None:
                raise InvalidRequest(f"Missing mandatory PRIMARY KEY part {column.name}")
            parts.append(part)
        return tuple(parts)

    def keys(self, request: Request) -> list[Key]:
        key = self._key(self.table.partition_key, request)
        _check_key(key)
        check_length(key)
        return [key]

    def ranges(self, request: Request) -> list[Range]:
        return [self.restrictions.row(self._key(self.table.clustering_key, request))]


def compile_write(scope: Scope, statement: ast.Insert | ast.Update | ast.Delete) -> WritePlan:
    """Return the plan of a statement against ``scope.table``. Raises InvalidRequest for what does not fit it."""
    if isinstance(statement, ast.Insert):
        plan = _insert(scope, statement)
    elif isinstance(statement, ast.Update):
        plan = _update(scope, statement)
    else:
        plan = _delete(scope, statement)
    plan.settle()
    if plan.is_conditional:
        _check_conditional(plan)
    if plan.operations and plan.restrictions.has_slice:
        raise InvalidRequest("Range deletions are not supported for specific columns")
    return plan


def _insert(scope: Scope, statement: ast.Insert) -> WritePlan:
    if statement.json is not None:
        return JsonPlan(scope, statement)
    if len(statement.columns) != len(statement.values):
        raise InvalidRequest("Unmatched column names/values")
    table = scope.table
    plan = WritePlan(scope, "INSERT", statement.using)
    relations: list[ast.Relation] = []
    seen: set[str] = set()
    for name, term in zip(statement.columns, statement.values, strict=True):
        column = _column(table, name)
        if name in seen:
            raise InvalidRequest(f"Multiple definitions found for column {name}")
        seen.add(name)
        if column.kind in ("partition_key", "clustering"):
            # The keys of an INSERT are read as those of a WHERE clause.
            relations.append(ast.Relation(("column", name), "=", term))
        else:
            plan.operations.append(setter(scope, column, term))
    plan.restrictions = Restrictions(scope, relations)
    if statement.if_not_exists:
        plan.existence = "not exists"
    _require_partition_key(plan)
    only_static = bool(plan.operations) and all(op.column.kind == "static" for op in plan.operations)
    plan.static_only = only_static and bool(table.clustering_key) and not plan.restrictions.restricts_clustering
    if not plan.static_only:
        _require_clustering_key(plan)
    return plan


def _update(scope: Scope, statement: ast.Update) -> WritePlan:
    table = scope.table
    plan = WritePlan(scope, "UPDATE", statement.using)
    is_conditional = statement.if_exists or bool(statement.conditions)
    for item in statement.assignments:
        column = _column(table, item.column)
        if column.kind in ("partition_key", "clustering"):
            raise InvalidRequest(f"PRIMARY KEY part {column.name} found in SET part")
        plan.operations.append(assignment(scope, column, item, is_conditional=is_conditional))
    plan.restrictions = Restrictions(scope, statement.where)
    _conditions(scope, plan, statement)
    _require_only_keys(plan)
    _require_partition_key(plan)
    # Conditions count, too: one on a regular column looks at a row, which has to be named.
    touched = [op.column for op in plan.operations] + [c.column for c in plan.conditions]
    if all(column.kind == "static" for column in touched):
        _forbid_clustering(plan)
        plan.static_only = bool(table.clustering_key)
    else:
        _require_clustering_key(plan)
    return plan


def _delete(scope: Scope, statement: ast.Delete) -> WritePlan:
    table = scope.table
    if statement.using.ttl is not None:
        raise InvalidRequest("TTL attribute is not allowed for deletes")
    plan = WritePlan(scope, "DELETE", statement.using)
    for item in statement.deletions:
        column = _column(table, item.column)
        if column.kind in ("partition_key", "clustering"):
            raise InvalidRequest(f"Invalid identifier {column.name} for deletion (should not be a PRIMARY KEY part)")
        plan.operations.append(deletion(scope, column, item))
    plan.restrictions = Restrictions(scope, statement.where)
    _conditions(scope, plan, statement)
    _require_only_keys(plan)
    _require_partition_key(plan)
    touched = [op.column for op in plan.operations] + [c.column for c in plan.conditions]
    regular = [op.column for op in plan.operations if op.column.kind != "static"]
    if plan.operations and all(column.kind == "static" for column in touched):
        _forbid_clustering(plan)
        plan.static_only = bool(table.clustering_key)
        return plan
    plan.restrictions.require_prefix()
    missing = _missing_clustering(plan)
    if regular and missing is not None and not plan.restrictions.has_slice:
        raise InvalidRequest(
            f"Primary key column '{missing.name}' must be specified in order to modify column '{regular[0].name}'"
        )
    return plan


def _conditions(scope: Scope, plan: WritePlan, statement: ast.Update | ast.Delete) -> None:
    if statement.if_exists:
        plan.existence = "exists"
    plan.conditions = [condition(scope, relation) for relation in statement.conditions]


def _check_conditional(plan: WritePlan) -> None:
    what = "deletions" if plan.kind == "DELETE" else "updates"
    if plan.sets_timestamp:
        raise InvalidRequest("Cannot provide custom timestamp for conditional updates")
    if plan.restrictions.key_is_in:
        raise InvalidRequest(f"IN on the partition key is not supported with conditional {what}")
    if plan.restrictions.clustering_is_in:
        raise InvalidRequest(f"IN on the clustering key columns is not supported with conditional {what}")
    if plan.kind != "DELETE" or plan.static_only or plan.restrictions.full_clustering:
        return
    if not plan.operations or any(op.column.kind != "static" for op in plan.operations):
        raise InvalidRequest(
            "DELETE statements must restrict all PRIMARY KEY columns with equality relations"
            " in order to delete non static columns"
        )
    if not plan.looks_at_static_only:
        raise InvalidRequest(
            "DELETE statements must restrict all PRIMARY KEY columns with equality relations"
            " in order to use IF condition on non static columns"
        )


def _column(table: TableSchema, name: str) -> Column:
    column = table.by_name.get(name)
    if column is None:
        raise InvalidRequest(f"Unknown identifier {name}")
    return column


def _option(scope: Scope, term: Any, cql_type: Any, name: str) -> Getter | None:
    return None if term is None else scope.getter(term, cql_type, name)


def _require_only_keys(plan: WritePlan) -> None:
    restrictions = plan.restrictions
    if restrictions.has_token:
        raise InvalidRequest("The token function cannot be used in WHERE clauses for UPDATE and DELETE statements")
    keys = {c.name for c in (*plan.table.partition_key, *plan.table.clustering_key)}
    others = [name for name in restrictions.filtered_names if name not in keys]
    if others:
        raise InvalidRequest(f"Invalid where clause contains non PRIMARY KEY columns: {', '.join(others)}")
    if restrictions.looks_into_clustering:
        raise InvalidRequest(
            "Cannot restrict clustering columns by a CONTAINS relation without a secondary index or filtering"
        )
    if restrictions.filters:
        raise InvalidRequest("Invalid operator in where clause")


def _require_partition_key(plan: WritePlan) -> None:
    restrictions = plan.restrictions
    if restrictions.full_key:
        return
    for column in plan.table.partition_key:
        if restrictions.sliced(column):
            raise InvalidRequest(
                "Only EQ and IN relation are supported on the partition key (unless you use the token() function or"
                " ALLOW FILTERING)"
            )
        if not restrictions.names(column):
            raise InvalidRequest(f"Missing mandatory PRIMARY KEY part {column.name}")


def _missing_clustering(plan: WritePlan) -> Column | None:
    if plan.restrictions.full_clustering:
        return None
    at = plan.restrictions.restricted_prefix()
    return plan.table.clustering_key[min(at, len(plan.table.clustering_key) - 1)]


def _require_clustering_key(plan: WritePlan) -> None:
    if plan.restrictions.has_slice:
        raise InvalidRequest("Invalid operator in where clause: clustering columns need = or IN to be updated")
    plan.restrictions.require_prefix()
    missing = _missing_clustering(plan)
    if missing is not None:
        raise InvalidRequest(f"Missing mandatory PRIMARY KEY part {missing.name}")


def _forbid_clustering(plan: WritePlan) -> None:
    if plan.restrictions.restricts_clustering:
        raise InvalidRequest(
            f"Invalid restrictions on clustering columns since the {plan.kind} statement modifies only static columns"
        )


def _check_key(key: Key) -> None:
    # Only a key of a single column may not be empty; a part of a composite key may.
    if len(key) == 1 and not key[0]:
        raise InvalidRequest("Key may not be empty")
