"""A table and its store, without an engine around them."""

from __future__ import annotations

import uuid

from rscylla.embedded.schema.tables import Column, TableSchema
from rscylla.embedded.storage.partitions import TableStore
from rscylla.embedded.storage.tokens import table_token
from rscylla.embedded.types import INT, TEXT

NOW_S = 1000


def int_bytes(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def make_table(*, descending: bool = False, depth: int = 1) -> TableSchema:
    keys = [Column(f"ck{at}", INT, "clustering", at, descending) for at in range(depth)]
    columns = (Column("pk", INT, "partition_key", 0), *keys, Column("v", TEXT, "regular"), Column("w", INT, "regular"))
    return TableSchema("ks", "t", uuid.UUID(int=1), uuid.UUID(int=2), columns)


def make_store(table: TableSchema) -> TableStore:
    return TableStore(table, table_token(table))
