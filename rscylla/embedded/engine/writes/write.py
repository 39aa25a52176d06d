"""INSERT, UPDATE and DELETE: from a statement to the mutations that it makes of the partitions it names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

from ...cql import ast
from ...errors import InvalidRequest
from ...result import UNSET, BindValue
from ...schema.tables import Column
from ...storage.mutation import Key, Marker, PlainRow, RangeTombstone, RowMutation, Shape
from ...storage.reconcile import NEVER, MutationBuilder, delete_row, put_marker
from ...storage.rowpacking import shape_of
from ...types import BIGINT, INT, TEXT
from ...types.jsontext import decode_document, from_json
from ..binding import Getter, Request, Scope
from ..where.filtering import Predicate
from ..where.keys import check_length
from ..where.ranges import Range
from ..where.restrictions import Restrictions
from .mutations import Mutations
from .operations import ColumnEdit, WriteContext, setter_of

__all__ = ["JsonPlan", "WritePlan"]

_MAX_TTL = 20 * 365 * 24 * 60 * 60  # seconds; Scylla refuses more
_MOST_AHEAD = 3 * 24 * 60 * 60 * 1_000_000  # microseconds that USING TIMESTAMP may be ahead of the server's clock


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


def _option(scope: Scope, term: Any, cql_type: Any, name: str) -> Getter | None:
    return None if term is None else scope.getter(term, cql_type, name)


def _check_key(key: Key) -> None:
    # Only a key of a single column may not be empty; a part of a composite key may.
    if len(key) == 1 and not key[0]:
        raise InvalidRequest("Key may not be empty")
