"""What a base table with CDC looks like, and its log: columns, options, and when they were changed."""

from __future__ import annotations

import struct
import uuid

import attrs

from .._timeuuid import datetime_of, ticks_of, ticks_to_us
from ..errors import CDCDisabled, MetadataError, TableNotFound
from ..types import quote_name
from .driver import LogSession
from .query import LOG_SUFFIX

__all__ = ["BaseColumn", "TableInfo", "dropped_us", "read_log_id", "read_table"]

DEFAULT_TTL_S = 86_400

_U32 = struct.Struct("<I")


@attrs.frozen
class BaseColumn:
    """A column of the base table. ``kind``: partition_key, clustering, static or regular.

    ``descending``: a clustering column declared DESC.
    """

    name: str
    kind: str
    position: int
    type_text: str
    descending: bool = False


LOG_DROP_AHEAD_US = 5_000_000
"""Columns of a log are dropped as of this much later. Source: Scylla ``cdc/log.cc``."""


@attrs.frozen
class TableInfo:
    """A base table with CDC.

    ``log_id`` is the log table's id, which changes when it is dropped and created again. ``ttl_s`` is the TTL of log
    rows written now, 0 for none. ``enabled``: whether new writes are logged. ``dropped``: name and CQL type of columns
    that the base table had. ``renamed_us``: when a key column was renamed last, None if never: the log cannot tell the
    keys of rows from before that. ``altered_us``: when the table was created or altered last, so that all options are
    as they have been since; None if the cluster does not tell.
    """

    keyspace: str
    name: str
    log_id: uuid.UUID
    ttl_s: int
    enabled: bool
    preimage: str
    postimage: str
    columns: tuple[BaseColumn, ...]
    delta: str = "full"
    dropped: tuple[tuple[str, str], ...] = ()
    renamed_us: int | None = None
    altered_us: int | None = None

    @property
    def partition_key(self) -> tuple[BaseColumn, ...]:
        return self._keys("partition_key")

    @property
    def clustering_key(self) -> tuple[BaseColumn, ...]:
        return self._keys("clustering")

    @property
    def full_name(self) -> str:
        return f"{quote_name(self.keyspace)}.{quote_name(self.name)}"

    @property
    def log_created_us(self) -> int | None:
        """When the log was created, by the clock of the node that did it; None if its id does not tell.

        Source: Scylla's ``schema_builder`` makes the id of each new table from the time, and altering a table keeps it.
        """
        return ticks_to_us(ticks_of(self.log_id.bytes)) if self.log_id.version == 1 else None

    def may_lack_keys(self, start_us: int) -> bool:
        """Whether rows from *start_us* on may have had their key in a column that was renamed since."""
        return self.renamed_us is not None and start_us < self.renamed_us + LOG_DROP_AHEAD_US

    @property
    def lost_keys(self) -> str:
        """What to say of rows that lack their key."""
        assert self.renamed_us is not None
        renamed = f"{datetime_of(self.renamed_us):%Y-%m-%d %H:%M:%S} UTC"
        return (
            f"a key column of {self.full_name} was renamed at {renamed}, and the log no longer tells the keys of "
            "changes from before that"
        )

    def _keys(self, kind: str) -> tuple[BaseColumn, ...]:
        return tuple(sorted((c for c in self.columns if c.kind == kind), key=lambda c: c.position))


def read_table(session: LogSession, keyspace: str, table: str) -> TableInfo:
    """Read what the source needs to know of a base table. Blocks.

    Raises:
        TableNotFound: there is no such keyspace or table; similar names are pointed out.
        CDCDisabled: it has no CDC log.
    """
    doing = f"looking up table {quote_name(keyspace)}.{quote_name(table)}"
    # By name: a keyspace may have thousands of tables, and this is asked again and again.
    names = sorted({table, table + LOG_SUFFIX, table.removesuffix(LOG_SUFFIX)})
    found = {
        row[0]: row[1:]
        for row in session.rows(
            "SELECT table_name, id, extensions, WRITETIME(extensions) FROM system_schema.tables "
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
    columns = session.rows(
        "SELECT column_name, kind, position, type, clustering_order FROM system_schema.columns "
        "WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, table),
        doing=doing,
    )
    dropped = session.rows(
        "SELECT table_name, column_name, type, toUnixTimestamp(dropped_time) FROM system_schema.dropped_columns "
        "WHERE keyspace_name = %s AND table_name IN (%s, %s)",
        (keyspace, table, table + LOG_SUFFIX),
        doing=doing,
    )
    return TableInfo(
        keyspace,
        table,
        log_id=log_row[0],
        ttl_s=int(options.get("ttl", DEFAULT_TTL_S)),
        enabled=options.get("enabled") == "true",
        preimage=options.get("preimage", "false"),
        postimage=options.get("postimage", "false"),
        columns=tuple(BaseColumn(name, kind, at, text, order == "desc") for name, kind, at, text, order in columns),
        delta=options.get("delta", "full"),
        dropped=tuple((column, text) for of, column, text, _ in dropped if of == table),
        renamed_us=_renamed_us({column: dropped_us(told) for of, column, _, told in dropped if of != table}),
        altered_us=found[table][2],
    )


def read_log_id(session: LogSession, keyspace: str, table: str) -> uuid.UUID | None:
    """Return the id of the log of a base table, None if there is no such log. Blocks on one query."""
    found = session.rows(
        "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, table + LOG_SUFFIX),
        doing=f"looking up table {quote_name(keyspace)}.{quote_name(table)}",
    )
    return found[0][0] if found else None


def dropped_us(told: int) -> int:
    """Return the write time of a drop, in microseconds; *told*: ``dropped_time`` as a number of milliseconds.

    Scylla puts microseconds into this column of milliseconds. Of milliseconds it is the last microsecond.
    Source: Scylla ``db/schema_tables.cc``, ``db_clock::duration(column.timestamp)``.
    """
    return told if told > _LAST_MS else told * 1000 + 999


_LAST_MS = 10**14
"""As milliseconds in the year 5138, as microseconds in 1973."""


def _renamed_us(dropped: dict[str, int]) -> int | None:
    """Return when a key column was renamed last, by the columns of the log and when they were dropped, None if never.

    A column of the key that is renamed is dropped from the log and a new one added. Other columns are dropped together
    with the one that marks their deletion, which key columns do not have.
    """
    of_keys = [
        us
        for name, us in dropped.items()
        if not name.startswith(_DELETED) and abs(dropped.get(_DELETED + name, -TOGETHER_US) - us) >= TOGETHER_US
    ]
    return max(of_keys) - LOG_DROP_AHEAD_US if of_keys else None


_DELETED = "cdc$deleted_"

TOGETHER_US = 1_000_000
"""Columns dropped by one statement have about the same time."""


def _not_found(session: LogSession, keyspace: str, table: str, doing: str) -> str:
    cql = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
    tables = {row[0] for row in session.rows(cql, (keyspace,), doing=doing)}
    if tables:
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
    """Decode ``extensions['cdc']``: uint32 LE count, then length-prefixed keys and values.

    Source: Scylla ``serializer_impl.hh``, which writes maps so.
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
        raise MetadataError("the table's CDC options cannot be read; is this Scylla newer than rscylla knows?") from e
    return dict(zip(texts[::2], texts[1::2], strict=True))
