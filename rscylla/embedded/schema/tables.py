"""Keyspaces, tables, columns and user-defined types as values; ``engine/ddl`` makes and changes them."""

from __future__ import annotations

import uuid
from typing import Any, Literal

import attrs

from ..types import CqlType

__all__ = ["LOG_SUFFIX", "PAXOS_SUFFIX", "CdcOptions", "Column", "Keyspace", "Schema", "TableSchema"]

LOG_SUFFIX = "_scylla_cdc_log"
PAXOS_SUFFIX = "$paxos"
"""Ends the name of the table that holds the Paxos rounds of another one. No CREATE TABLE may give such a name."""

ColumnKind = Literal["partition_key", "clustering", "static", "regular"]


@attrs.frozen
class Column:
    """``position`` counts from 0 inside partition_key and clustering, -1 otherwise. ``descending``: clustering only.

    ``by_token``: a clustering blob of stream ids, whose first byte counts as signed. ``written_us``: when it was added
    or changed last, which is the write time of its schema row.
    """

    name: str
    type: CqlType
    kind: ColumnKind
    position: int = -1
    descending: bool = False
    by_token: bool = False
    written_us: int = attrs.field(default=0, eq=False)


@attrs.frozen
class CdcOptions:
    """The stored ``cdc`` option map of a base table. ``ttl`` in seconds, 0 for none."""

    enabled: bool = False
    preimage: Literal["false", "true", "full"] = "false"
    postimage: bool = False
    delta: Literal["full", "keys"] = "full"
    ttl: int = 86400  # a day, Scylla's default


@attrs.frozen
class TableSchema:
    """An immutable snapshot; every ALTER makes a new one (same ``id``, new ``version``).

    ``columns`` in ``SELECT *`` order: partition key, clustering key, then static and regular columns by name.
    ``cdc`` is None if the option was never given. ``is_cdc_log`` marks a real log (CDC partitioner); ``cdc_base`` is
    then the base table's name. ``options`` are the other table properties. ``ttl_column`` says when a row expires.
    ``dropped``: type and drop time (us) of each column that was dropped, also of one that was added again since.
    ``written_us``: when the table was created or altered last, which is the write time of its schema rows.
    """

    keyspace: str
    name: str
    id: uuid.UUID
    version: uuid.UUID
    columns: tuple[Column, ...]
    options: dict[str, Any] = attrs.field(factory=dict)
    cdc: CdcOptions | None = None
    is_cdc_log: bool = False
    cdc_base: str | None = None
    dropped: dict[str, Any] = attrs.field(factory=dict)
    ttl_column: str | None = None
    written_us: int = 0
    by_name: dict[str, Column] = attrs.field(init=False, repr=False, eq=False)
    partition_key: tuple[Column, ...] = attrs.field(init=False, repr=False, eq=False)
    clustering_key: tuple[Column, ...] = attrs.field(init=False, repr=False, eq=False)
    static_columns: tuple[Column, ...] = attrs.field(init=False, repr=False, eq=False)
    regular_columns: tuple[Column, ...] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        def of(kind: str) -> tuple[Column, ...]:
            return tuple(c for c in self.columns if c.kind == kind)

        # Worked out once for each form of the table, as every statement asks for them.
        object.__setattr__(self, "by_name", {c.name: c for c in self.columns})
        object.__setattr__(self, "partition_key", of("partition_key"))
        object.__setattr__(self, "clustering_key", of("clustering"))
        object.__setattr__(self, "static_columns", of("static"))
        object.__setattr__(self, "regular_columns", of("regular"))


@attrs.define
class Keyspace:
    """``options`` as written (replication map and durable_writes); ``tablets`` None for a vnode keyspace."""

    name: str
    options: dict[str, Any]
    tablets: int | None = None
    tables: dict[str, TableSchema] = attrs.field(factory=dict)
    types: dict[str, CqlType] = attrs.field(factory=dict)


@attrs.define
class Schema:
    """All keyspaces and the schema version, a fresh UUID after each change.

    ``history``: a timeuuid for each statement that changed it, and its text. It is not kept over a restart.
    """

    keyspaces: dict[str, Keyspace] = attrs.field(factory=dict)
    version: uuid.UUID = attrs.field(factory=uuid.uuid4)  # after a change, drivers wait until all nodes show the same
    history: list[tuple[bytes, str]] = attrs.field(factory=list)
