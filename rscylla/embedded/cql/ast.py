"""What CQL text says, as values: one class per statement, names already folded (unquoted names in lower case).

The parser builds these and knows no schema; the engine binds them to one.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs

# ---------------------------------------------------------------- terms


@attrs.frozen
class Constant:
    """A literal as written. ``kind`` tells how ``text`` reads.

    string: text without quotes; integer/float: the digits (also nan, infinity); boolean: "true"/"false";
    uuid: canonical text; blob: hex digits without 0x; duration: as written; null: "".
    """

    kind: Literal["string", "integer", "float", "boolean", "uuid", "blob", "duration", "null"]
    text: str


@attrs.frozen
class Marker:
    """A bind marker: ``index`` counts from 0 in order of appearance; ``name`` for ``:name``, else None."""

    index: int
    name: str | None


@attrs.frozen
class Call:
    """A function call. ``name`` is lower-cased unless quoted; ``keyspace`` None when not qualified."""

    keyspace: str | None
    name: str
    args: tuple[Any, ...]


@attrs.frozen
class Cast:
    """A type hint ``(int) term``. ``type_text`` is CQL type text."""

    type_text: str
    term: Any


@attrs.frozen
class ListTerm:
    items: tuple[Any, ...]


@attrs.frozen
class SetTerm:
    """``{a, b}``. An empty ``{}`` is a SetTerm with no items; it also means an empty map."""

    items: tuple[Any, ...]


@attrs.frozen
class MapTerm:
    items: tuple[tuple[Any, Any], ...]


@attrs.frozen
class UdtTerm:
    """``{field: term}``, field names folded."""

    fields: tuple[tuple[str, Any], ...]


@attrs.frozen
class TupleTerm:
    items: tuple[Any, ...]


Term = Constant | Marker | Call | Cast | ListTerm | SetTerm | MapTerm | UdtTerm | TupleTerm

# ---------------------------------------------------------------- names and relations


@attrs.frozen
class TableName:
    keyspace: str | None
    name: str


@attrs.frozen
class Relation:
    """One term of a WHERE or IF clause.

    ``left``: ("column", name) | ("token", (names...)) | ("tuple", (names...)) | ("element", name, key term)
    | ("field", column, field) | ("clustering_bound", (names...)) for ``(c1, c2) > SCYLLA_CLUSTERING_BOUND (1, 2)``,
    which compares in clustering order.
    ``op``: = < <= > >= != IN "NOT IN" CONTAINS "CONTAINS KEY" "IS NOT NULL" LIKE.
    ``right``: a Term; for IN a tuple of Terms, or one Marker for ``IN ?``; None for IS NOT NULL.
    """

    left: tuple[Any, ...]
    op: str
    right: Any


# ---------------------------------------------------------------- reading


@attrs.frozen
class ColumnSelector:
    name: str


@attrs.frozen
class ElementSelector:
    """``m[k]`` in a select list; ``of`` is a selector or a Term."""

    of: Any
    key: Any


@attrs.frozen
class FieldSelector:
    """``u.f`` in a select list; ``of`` is a selector or a Term."""

    of: Any
    field: str


@attrs.frozen
class FunctionSelector:
    """``f(a, b)`` in a select list: args are selectors or Terms. COUNT(*) and COUNT(1) are name "count", no args."""

    keyspace: str | None
    name: str
    args: tuple[Any, ...]


@attrs.frozen
class CastSelector:
    """``CAST(selector AS type)``."""

    selector: Any
    type_text: str


@attrs.frozen
class Selector:
    """An item of the select list: ``item`` is one of the *Selector classes or a Term; ``alias`` None if not given."""

    item: Any
    alias: str | None


@attrs.frozen
class Select:
    """``selectors`` None means ``*``. ``order_by`` is ((column, "asc"|"desc"), ...). Limits are Terms or None."""

    table: TableName
    selectors: tuple[Selector, ...] | None
    distinct: bool
    json: bool
    where: tuple[Relation, ...]
    group_by: tuple[str, ...]
    order_by: tuple[tuple[str, str], ...]
    per_partition_limit: Any
    limit: Any
    allow_filtering: bool
    bypass_cache: bool
    timeout: Any
    markers: int = 0
    """Number of bind markers in the statement. In a Batch only the batch's own number counts them all."""


# ---------------------------------------------------------------- writing


@attrs.frozen
class Using:
    """USING clause: each part a Term or None."""

    timestamp: Any = None
    ttl: Any = None
    timeout: Any = None


@attrs.frozen
class Insert:
    """``columns`` and ``values`` have the same length; both are empty for INSERT JSON, whose Term is ``json``."""

    table: TableName
    columns: tuple[str, ...]
    values: tuple[Any, ...]
    using: Using
    if_not_exists: bool
    json: Any = None
    json_default_unset: bool = False
    markers: int = 0


@attrs.frozen
class Assignment:
    """One SET item of UPDATE.

    ``kind`` "set": column = value. "add": column = column + value. "subtract": column = column - value.
    "prepend": column = value + column. "element": column[key] = value. "field": column.key = value (key a name).
    ``l[SCYLLA_TIMEUUID_LIST_INDEX(u)] = v`` is an "element" whose key is a Call of scylla_timeuuid_list_index.
    """

    kind: Literal["set", "add", "subtract", "prepend", "element", "field"]
    column: str
    value: Any
    key: Any = None


@attrs.frozen
class Update:
    """``conditions`` is the IF clause; ``if_exists`` for IF EXISTS."""

    table: TableName
    assignments: tuple[Assignment, ...]
    where: tuple[Relation, ...]
    using: Using
    if_exists: bool
    conditions: tuple[Relation, ...]
    markers: int = 0


@attrs.frozen
class Deletion:
    """One thing named by DELETE: a column (key None), or ``column[key]``, or ``column.field`` (field set)."""

    column: str
    key: Any = None
    field: str | None = None


@attrs.frozen
class Delete:
    """``deletions`` empty means whole rows or ranges."""

    table: TableName
    deletions: tuple[Deletion, ...]
    where: tuple[Relation, ...]
    using: Using
    if_exists: bool
    conditions: tuple[Relation, ...]
    markers: int = 0


@attrs.frozen
class Batch:
    kind: Literal["logged", "unlogged", "counter"]
    using: Using
    statements: tuple[Insert | Update | Delete, ...]
    markers: int = 0


@attrs.frozen
class Truncate:
    table: TableName
    timeout: Any = None


# ---------------------------------------------------------------- schema


@attrs.frozen
class Use:
    keyspace: str


@attrs.frozen
class CreateKeyspace:
    """``options`` maps property name to a str, or a dict[str, str] for map-valued ones (replication, tablets)."""

    name: str
    if_not_exists: bool
    options: dict[str, Any]


@attrs.frozen
class AlterKeyspace:
    name: str
    options: dict[str, Any]


@attrs.frozen
class DropKeyspace:
    name: str
    if_exists: bool


@attrs.frozen
class ColumnDef:
    """``expires``: the column tells when its row expires (per-row TTL)."""

    name: str
    type_text: str
    static: bool
    expires: bool = False


@attrs.frozen
class CreateTable:
    """``clustering_order`` is ((column, "asc"|"desc"), ...) as written. ``options`` as in CreateKeyspace."""

    table: TableName
    if_not_exists: bool
    columns: tuple[ColumnDef, ...]
    partition_key: tuple[str, ...]
    clustering_key: tuple[str, ...]
    clustering_order: tuple[tuple[str, str], ...]
    compact_storage: bool
    options: dict[str, Any]


@attrs.frozen
class AlterTable:
    """Exactly one of the parts is set. ``row_ttl`` is the column of ``TTL name``, ``drop_row_ttl`` is ``TTL NULL``."""

    table: TableName
    add: tuple[ColumnDef, ...] = ()
    drop: tuple[str, ...] = ()
    drop_timestamp: Any = None
    rename: tuple[tuple[str, str], ...] = ()
    alter_type: tuple[str, str] | None = None
    options: dict[str, Any] | None = None
    row_ttl: str | None = None
    drop_row_ttl: bool = False


@attrs.frozen
class DropTable:
    table: TableName
    if_exists: bool


@attrs.frozen
class CreateType:
    name: TableName
    if_not_exists: bool
    fields: tuple[tuple[str, str], ...]


@attrs.frozen
class AlterType:
    name: TableName
    add: tuple[tuple[str, str], ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    retype: tuple[str, str] | None = None


@attrs.frozen
class DropType:
    name: TableName
    if_exists: bool


@attrs.frozen
class Describe:
    """DESCRIBE as cqlsh sends it. ``what``: cluster, schema, full schema, keyspaces, keyspace, only keyspace, tables,
    table, types, type, functions, function, aggregates, aggregate, index, materialized view, or "" for a bare name."""

    what: str
    keyspace: str | None
    name: str | None
    internals: bool


@attrs.frozen
class ListRoles:
    """``of``: the role whose roles are listed, None for all."""

    of: str | None = None


@attrs.frozen
class ListUsers:
    pass


@attrs.frozen
class Unsupported:
    """A statement the parser knows by name and the server refuses by name (materialized views, indexes, UDF, roles).

    Of CREATE MATERIALIZED VIEW, ``table`` is what it looks at, and ``cdc`` tells whether it has that option.
    """

    what: str
    table: TableName | None = None
    cdc: bool = False


Statement = (
    Use
    | CreateKeyspace
    | AlterKeyspace
    | DropKeyspace
    | CreateTable
    | AlterTable
    | DropTable
    | CreateType
    | AlterType
    | DropType
    | Truncate
    | Select
    | Insert
    | Update
    | Delete
    | Batch
    | Describe
    | ListRoles
    | ListUsers
    | Unsupported
)
