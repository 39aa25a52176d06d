"""Describes a base table, and the log that Scylla creates for it."""

from __future__ import annotations

import hashlib
import struct
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from ..._timeuuid import datetime_of, ticks_of, ticks_to_us
from ...driver import ReadSession
from ...errors import CDCDisabled, MetadataError, TableNotFound
from ...types import Fields, Type, parse_type, quote_name
from .query import LOG_SUFFIX
from .topology import schema_has

__all__ = [
    "FIXED_COLUMNS",
    "BaseColumn",
    "LoggedTable",
    "Table",
    "deleted_elements_of",
    "deleted_of",
    "dropped_columns",
    "dropped_us",
    "log_columns",
    "logged_tables",
    "logged_type",
    "read_base_table",
    "read_table",
    "read_types",
    "type_named",
]

DEFAULT_TTL_S = 86_400
"""TTL of log rows if the CDC options do not set one."""

_U32 = struct.Struct("<I")

_KINDS = ("partition_key", "clustering", "static", "regular")


def type_named(text: str, udts: Mapping[str, Fields] | None = None) -> Type:
    """Return the type with the name *text* in the schema. Values of an unknown type, of a newer Scylla, are bytes."""
    try:
        return parse_type(text, udts)
    except ValueError:
        return Type(text)


def _in_order(columns: Iterable[BaseColumn]) -> tuple[BaseColumn, ...]:
    return tuple(sorted(columns, key=_rank))


def _rank(column: BaseColumn) -> tuple[int, int, str]:
    kind = _KINDS.index(column.kind) if column.kind in _KINDS else len(_KINDS)
    return kind, column.position if column.in_key else 0, column.name


@attrs.frozen
class BaseColumn:
    """A column of a base table.

    ``kind``: partition_key, clustering, static, or regular. ``position``: its index in its part of the primary key,
    from 0. ``type_text``: the text of the type in the schema; ``type``: the parsed type. ``descending``: whether it is
    a clustering column declared DESC.
    """

    name: str
    kind: str
    position: int
    type_text: str
    descending: bool = False
    type: Type = attrs.field(
        default=attrs.Factory(lambda self: type_named(self.type_text), takes_self=True), repr=False
    )

    @property
    def in_key(self) -> bool:
        """Whether the column belongs to the primary key."""
        return self.kind in ("partition_key", "clustering")

    @property
    def definition(self) -> str:
        """The CQL that declares the column in CREATE TABLE and ALTER TABLE ... ADD."""
        return f"{quote_name(self.name)} {self.type_text}{' STATIC' if self.kind == 'static' else ''}"

    @property
    def is_multicell(self) -> bool:
        """Whether each of its parts has its own cell, and therefore its own write time and TTL."""
        return self.type.is_multicell and not self.in_key

    @property
    def has_cell(self) -> bool:
        """Whether the column is a single cell, with one write time and TTL."""
        return not self.in_key and not self.is_multicell


@attrs.frozen
class Table:
    """A base table. ``columns`` has the key columns in their order, then the static and the regular ones by name."""

    keyspace: str
    name: str
    columns: tuple[BaseColumn, ...] = attrs.field(converter=_in_order)

    @property
    def full_name(self) -> str:
        return f"{quote_name(self.keyspace)}.{quote_name(self.name)}"

    def of_kind(self, *kinds: str) -> tuple[BaseColumn, ...]:
        return tuple(c for c in self.columns if c.kind in kinds)

    @property
    def partition_key(self) -> tuple[BaseColumn, ...]:
        return self.of_kind("partition_key")

    @property
    def clustering_key(self) -> tuple[BaseColumn, ...]:
        return self.of_kind("clustering")

    @property
    def key(self) -> tuple[BaseColumn, ...]:
        return self.of_kind("partition_key", "clustering")


LOG_DROP_AHEAD_US = 5_000_000
"""Scylla dates a drop of a log's column this much ahead. Source: Scylla ``cdc/log.cc``."""


@attrs.frozen
class LoggedTable(Table):
    """A base table with CDC.

    ``log_id`` is the log table's id, which changes when the log is dropped and created again. ``ttl_s`` is the TTL of
    log rows written now, 0 for none. ``enabled``: whether new writes are logged. ``dropped``: names and CQL types of
    columns that the base table had; ``dropped_us``: when one was dropped last, 0 if never. ``renamed_us``: when a key
    column was last renamed, None if never; the keys of earlier log rows cannot be read. ``altered_us``: when the table
    was last altered, since when its options are unchanged; None if it was not altered since its log was created, or if
    the cluster does not return it. ``created_us``: when its log was created, by the write time of that, 0 if not known.
    ``written_us``: when it was created or last altered. ``digest``: of all that the schema shows but ``enabled``.
    """

    log_id: uuid.UUID
    ttl_s: int = DEFAULT_TTL_S
    enabled: bool = True
    preimage: str = "false"
    postimage: str = "false"
    delta: str = "full"
    dropped: tuple[tuple[str, str], ...] = ()
    dropped_us: int = 0
    renamed_us: int | None = None
    altered_us: int | None = None
    created_us: int = 0
    written_us: int = 0
    digest: str = ""
    beside: str = attrs.field(default="", repr=False)
    """A digest of what other tables of the schema have of the table; it changes only when the table is written."""

    @property
    def seen(self) -> str:
        """What a cursor keeps of the table: when it was last altered, and how it is since then; see ``blanks.py``."""
        return f"{'' if self.enabled else 'off.'}{self.altered_us or 0:x}.{self.digest}"

    @property
    def log_created_us(self) -> int | None:
        """When the log was created, by the clock of the node that created it; None if its id does not contain the time.

        Source: Scylla's ``schema_builder`` creates the id of a new table from the time, and altering a table keeps it.
        """
        return ticks_to_us(ticks_of(self.log_id.bytes)) if self.log_id.version == 1 else None

    def lacks_values(self, written_us: int) -> bool:
        """Return whether the log has no values of a change without columns, written at *written_us*: ``delta: 'keys'``.

        The only column of an older one may have been dropped since. Source: Scylla logs no update that sets nothing.
        """
        return written_us > self.dropped_us

    def may_lack_keys(self, start_us: int) -> bool:
        """Return whether rows from *start_us* on may have a part of their key in a column that was renamed later."""
        return self.renamed_us is not None and start_us < self.renamed_us + LOG_DROP_AHEAD_US

    @property
    def lost_keys(self) -> str:
        """The message about rows that lack their key."""
        assert self.renamed_us is not None
        renamed = f"{datetime_of(self.renamed_us):%Y-%m-%d %H:%M:%S} UTC"
        return (
            f"a key column of {self.full_name} was renamed at {renamed}, and the log no longer has the keys of "
            "changes from before that"
        )


# ---------------------------------------------------------------- the log

FIXED_COLUMNS = {
    "cdc$stream_id": Type("blob"),
    "cdc$time": Type("timeuuid"),
    "cdc$batch_seq_no": Type("int"),
    "cdc$operation": Type("tinyint"),
    "cdc$ttl": Type("bigint"),
    "cdc$end_of_batch": Type("boolean"),
}
"""The columns that every log has, with their types. Source, for all of the log: Scylla ``cdc/log.cc``."""

_DELETED = "cdc$deleted_"
_DELETED_ELEMENTS = "cdc$deleted_elements_"


def deleted_of(name: str) -> str:
    """Return the column of the log that marks the base column *name* as null or deleted."""
    return _DELETED + name


def deleted_elements_of(name: str) -> str:
    """Return the column of the log that has the elements removed from the base column *name*."""
    return _DELETED_ELEMENTS + name


def logged_type(column: BaseColumn) -> Type:
    """Return the type of a base column in the log: frozen, and a non-frozen list as a map from timeuuids."""
    type_ = column.type
    if column.is_multicell and type_.kind == "list":
        type_ = attrs.evolve(type_, kind="map", args=(Type("timeuuid"), *type_.args))
    return attrs.evolve(type_, frozen=type_.frozen or type_.is_multicell)


def log_columns(table: Table) -> dict[str, Type]:
    """Return the columns of the log of *table*, by name."""
    columns = dict(FIXED_COLUMNS)
    for column in table.columns:
        columns[column.name] = logged = logged_type(column)
        if not column.in_key:
            columns[deleted_of(column.name)] = Type("boolean")
        if column.is_multicell:
            removed = Type("smallint") if logged.kind == "udt" else logged.args[0]
            columns[deleted_elements_of(column.name)] = Type("set", (removed,), frozen=True)
    return columns


# ---------------------------------------------------------------- reading


def read_table(session: ReadSession, keyspace: str, table: str, *, known: LoggedTable | None = None) -> LoggedTable:
    """Return the description of a base table and its log. Blocks on small queries.

    Args:
        known: what was read of the table before. What only a statement on the table changes is not read again while
            the table is as old as it was.

    Raises:
        TableNotFound: the keyspace or table does not exist; the message suggests a similar name.
        CDCDisabled: the table has no CDC log.
    """
    doing = f"looking up table {quote_name(keyspace)}.{quote_name(table)}"
    # Selected by name, because a keyspace may have thousands of tables, and streams repeat this query.
    names = sorted({table, table + LOG_SUFFIX, table.removesuffix(LOG_SUFFIX)})
    found = {
        row[0]: row[1:]
        for row in session.rows(
            f"SELECT table_name, id, extensions, WRITETIME(extensions), {_OPTIONS} FROM system_schema.tables "
            f"WHERE keyspace_name = %s AND table_name IN ({', '.join(['%s'] * len(names))})",
            (keyspace, *names),
            doing=doing,
        )
    }
    is_log = table.endswith(LOG_SUFFIX) and table.removesuffix(LOG_SUFFIX) in found and table + LOG_SUFFIX not in found
    if table not in found or is_log:
        raise TableNotFound(_not_found(session, keyspace, table, doing))
    options = _cdc_options((found[table][1] or {}).get("cdc"))
    log_row = found.get(table + LOG_SUFFIX)
    name = f"{quote_name(keyspace)}.{quote_name(table)}"
    if log_row is None or options is None:
        raise CDCDisabled(
            f"table {name} has no CDC log; enable it with ALTER TABLE {name} WITH cdc = {{'enabled': true}}"
        )
    columns = _read_columns(session, keyspace, table, doing)
    dropped = session.rows(
        "SELECT table_name, column_name, type, toUnixTimestamp(dropped_time) FROM system_schema.dropped_columns "
        "WHERE keyspace_name = %s AND table_name IN (%s, %s)",
        (keyspace, table, table + LOG_SUFFIX),
        doing=doing,
    )
    # The statement that creates a log writes its key columns with the write time of the base table's row, and no later
    # statement writes them. Source: Scylla ``cdc/log.cc`` and ``db/schema_tables.cc``.
    created = session.rows(
        "SELECT WRITETIME(type) FROM system_schema.columns "
        "WHERE keyspace_name = %s AND table_name = %s AND column_name = 'cdc$stream_id'",
        (keyspace, table + LOG_SUFFIX),
        doing=doing,
    )
    written_us, created_us = found[table][2], created[0][0] if created else None
    is_same = known is not None and known.log_id == log_row[0] and known.written_us == written_us
    beside = known.beside if known is not None and is_same else _read_beside(session, keyspace, table, doing)
    cdc = {name: text for name, text in options.items() if name != "enabled"}
    types = [repr(c.type) for c in columns if c.type.has_udt]
    others = {name: text for name, text in (found[table][1] or {}).items() if name != "cdc"}
    told = cdc, others, found[table][3:], columns, types, dropped, beside
    return LoggedTable(
        keyspace,
        table,
        columns,
        log_id=log_row[0],
        ttl_s=int(options.get("ttl", DEFAULT_TTL_S)),
        enabled=options.get("enabled") == "true",
        preimage=options.get("preimage", "false"),
        postimage=options.get("postimage", "false"),
        delta=options.get("delta", "full"),
        dropped=tuple((column, text) for of, column, text, _ in dropped if of == table),
        dropped_us=max((dropped_us(stored) for of, _, _, stored in dropped if of == table), default=0),
        renamed_us=_renamed_us({column: dropped_us(stored) for of, column, _, stored in dropped if of != table}),
        altered_us=None if created and created_us == written_us else written_us,
        created_us=created_us or 0,
        written_us=written_us or 0,
        digest=_digest(told),
        beside=beside,
    )


def _read_beside(session: ReadSession, keyspace: str, table: str, doing: str) -> str:
    """Return a digest of the views, indexes, and tablet options of a table: what makes them writes the table, too."""
    views = session.rows(
        "SELECT base_table_name, view_name FROM system_schema.views WHERE keyspace_name = %s", (keyspace,), doing=doing
    )
    indexes = session.rows(
        "SELECT index_name, options FROM system_schema.indexes WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, table),
        doing=doing,
    )
    tablets = _tablet_options(session, keyspace, table, doing)
    return _digest(([row for row in views if row[0] == table], list(indexes), tablets))


_OPTIONS = (
    "bloom_filter_fp_chance, caching, comment, compaction, compression, crc_check_chance, default_time_to_live, "
    "gc_grace_seconds, max_index_interval, memtable_flush_period_in_ms, min_index_interval, speculative_retry"
)
"""Options of a table that an ALTER TABLE may change, besides the ``extensions``; it writes all of them again. All
versions of Scylla have these columns."""


def _tablet_options(session: ReadSession, keyspace: str, table: str, doing: str) -> list[Any]:
    """Return the option ``tablets`` of a table; nothing from a version of Scylla that has no such option."""
    if not schema_has(session, "scylla_tables", "tablets"):
        return []
    cql = "SELECT tablets FROM system_schema.scylla_tables WHERE keyspace_name = %s AND table_name = %s"
    return session.rows(cql, (keyspace, table), doing=doing)


def _digest(value: object) -> str:
    return hashlib.blake2b(repr(_plain(value)).encode(), digest_size=4).hexdigest()


def _plain(value: object) -> object:
    """Return *value* with text that is the same for equal values."""
    if isinstance(value, Mapping):
        return sorted((_plain(k), _plain(v)) for k, v in value.items())
    if isinstance(value, list):
        return sorted(map(_plain, value), key=repr)
    return tuple(map(_plain, value)) if isinstance(value, tuple) else repr(value)


def read_base_table(session: ReadSession, keyspace: str, table: str) -> Table | None:
    """Return the table, with or without CDC; None if it does not exist. Blocks.

    Raises:
        ConnectionFailed, QueryTimeout, QueryFailed: the schema cannot be read.
    """
    columns = _read_columns(session, keyspace, table, f"looking up table {quote_name(keyspace)}.{quote_name(table)}")
    return Table(keyspace, table, columns) if columns else None


def _read_columns(session: ReadSession, keyspace: str, table: str, doing: str) -> list[BaseColumn]:
    found = session.rows(
        "SELECT column_name, kind, position, type, clustering_order FROM system_schema.columns "
        "WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, table),
        doing=doing,
    )
    columns = [
        BaseColumn(name, kind, at, text, order == "desc")
        for name, kind, at, text, order in found
        if text != "empty"  # a placeholder in tables WITH COMPACT STORAGE, not a column
    ]
    if not any(c.type.has_udt for c in columns):
        return columns
    udts = read_types(session, keyspace, doing=doing)
    return [attrs.evolve(c, type=type_named(c.type_text, udts)) if c.type.has_udt else c for c in columns]


def read_types(session: ReadSession, keyspace: str, *, doing: str) -> Mapping[str, Fields]:
    """Return the user-defined types of a keyspace by name. Blocks."""
    cql = "SELECT type_name, field_names, field_types FROM system_schema.types WHERE keyspace_name = %s"
    rows = session.rows(cql, (keyspace,), doing=doing)
    return {name: list(zip(fields or (), types or (), strict=True)) for name, fields, types in rows}


def dropped_columns(session: ReadSession, keyspace: str, table: str) -> dict[str, int]:
    """Return when the dropped columns of a table, which it may have again, were last dropped, by name. Blocks.

    The times are write timestamps in microseconds: values written with timestamps up to that are gone.

    Raises:
        ConnectionFailed, QueryTimeout, QueryFailed: the schema cannot be read.
    """
    found = session.rows(
        "SELECT column_name, toUnixTimestamp(dropped_time) FROM system_schema.dropped_columns "
        "WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, table),
        doing=f"looking up columns of {quote_name(keyspace)}.{quote_name(table)}",
    )
    return {name: dropped_us(stored) for name, stored in found}


def logged_tables(session: ReadSession) -> dict[tuple[str, str], uuid.UUID]:
    """Return the base tables of the cluster that have a log, by keyspace and name, and the ids of the logs. Blocks.

    Raises:
        ConnectionFailed, QueryTimeout, QueryFailed: the schema cannot be read.
    """
    cql = "SELECT keyspace_name, table_name, id FROM system_schema.tables"
    ids = {(row[0], row[1]): row[2] for row in session.rows(cql, doing="looking for tables with a log")}
    logs = {(keyspace, name): ids.get((keyspace, name + LOG_SUFFIX)) for keyspace, name in ids}
    return {name: found for name, found in logs.items() if found is not None}


def dropped_us(stored: int) -> int:
    """Return the write time of a drop, in microseconds; *stored* is the number in the column ``dropped_time``.

    Scylla stores microseconds in this column of milliseconds. For true milliseconds, return the last microsecond.
    Source: Scylla ``db/schema_tables.cc``, ``db_clock::duration(column.timestamp)``.
    """
    return stored if stored > _LAST_MS else stored * 1000 + 999


_LAST_MS = 10**14
"""Larger numbers are microseconds. As milliseconds, this is in the year 5138; as microseconds, in 1973."""


def _renamed_us(dropped: dict[str, int]) -> int | None:
    """Return when a key column was last renamed, from the drop times of the log's columns; None if never.

    When a key column is renamed, Scylla drops its column from the log and adds a new one. Other columns are dropped
    together with the column that marks their deletion, which key columns do not have.
    """
    of_keys = [
        us
        for name, us in dropped.items()
        if not name.startswith(_DELETED) and abs(dropped.get(_DELETED + name, -TOGETHER_US) - us) >= TOGETHER_US
    ]
    return max(of_keys) - LOG_DROP_AHEAD_US if of_keys else None


TOGETHER_US = 1_000_000
"""Two columns that are dropped within this time were dropped by one statement."""


def _not_found(session: ReadSession, keyspace: str, table: str, doing: str) -> str:
    cql = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
    if tables := {row[0] for row in session.rows(cql, (keyspace,), doing=doing)}:
        near = [t for t in tables if t.lower() == table.lower()]
        hint = f"did you mean {quote_name(keyspace)}.{quote_name(near[0])}?" if near else "check the name"
        if table.endswith(LOG_SUFFIX) and table.removesuffix(LOG_SUFFIX) in tables:
            hint = "name the base table, not its log"
        kind = "base table" if table in tables else "table"
        return f"keyspace {quote_name(keyspace)} has no {kind} {quote_name(table)}; {hint}"
    keyspaces = {row[0] for row in session.rows("SELECT keyspace_name FROM system_schema.keyspaces", doing=doing)}
    if keyspace in keyspaces:
        return f"keyspace {quote_name(keyspace)} has no table {quote_name(table)}; it has no tables at all"
    near = [k for k in keyspaces if k.lower() == keyspace.lower()]
    hint = f"did you mean {quote_name(near[0])}?" if near else "check the name and the cluster"
    return f"there is no keyspace {quote_name(keyspace)}; {hint}"


def _cdc_options(packed: bytes | None) -> dict[str, str] | None:
    """Return the decoded ``extensions['cdc']``: a uint32 LE count, then length-prefixed keys and values.

    Source: the serialization of maps in Scylla ``serializer_impl.hh``.
    """
    if packed is None:
        return None
    try:
        (count,) = _U32.unpack_from(packed)
        at, texts = 4, []
        for _ in range(2 * count):
            (size,) = _U32.unpack_from(packed, at)
            (text,) = struct.unpack_from(f"{size}s", packed, at + 4)
            texts.append(text.decode())
            at += 4 + size
    except (struct.error, UnicodeDecodeError) as e:
        raise MetadataError(
            "the table's CDC options cannot be read; this version of Scylla may be newer than rscylla supports"
        ) from e
    return dict(zip(texts[::2], texts[1::2], strict=True))
