"""Checks whether one table can take the changes of another, and creates a table that can."""

from __future__ import annotations

from collections.abc import Iterable

from ..base import check_columns
from ..cdc.log import Table, read_types
from ..driver import ReadSession
from ..errors import TableNotFound
from ..types import Fields, Type, quote_name

__all__ = ["check_target", "create_target"]


def check_target(source: Table, target: Table | None, *, names: tuple[str, str]) -> Table:
    """Return *target* if every change of *source* can be applied to it. Columns that only *target* has stay null.

    Args:
        names: keyspace and name of the target, for the message if it does not exist.

    Raises:
        TableNotFound: *target* is None.
        CannotReplicate: the primary keys differ, or the target lacks a column or has it with another type.
    """
    if target is None:
        where = ".".join(map(quote_name, names))
        raise TableNotFound(
            f"the target table {where} does not exist; create it, or use create=True (--create on the command line)"
        )
    check_columns(source.columns, target, source=source.full_name)
    return target


def create_target(
    source_session: ReadSession, source: Table, target_session: ReadSession, keyspace: str, name: str
) -> None:
    """Create a table like *source*, without CDC and with default options, and the types that it needs. Blocks.

    Existing objects do not change. The keyspace must exist.

    Raises:
        QueryFailed: the cluster refused: the user may not create tables, or the keyspace does not exist.
    """
    doing = f"creating table {quote_name(keyspace)}.{quote_name(name)}"
    for type_name, fields in _types_of(source_session, source):
        parts = ", ".join(f"{quote_name(field)} {text}" for field, text in fields)
        cql = f"CREATE TYPE IF NOT EXISTS {quote_name(keyspace)}.{quote_name(type_name)} ({parts})"
        target_session.rows(cql, doing=doing)
    target_session.rows(_create_cql(source, keyspace, name), doing=doing)


def _create_cql(source: Table, keyspace: str, name: str) -> str:
    columns = [c.definition for c in source.columns]
    partition = ", ".join(quote_name(c.name) for c in source.partition_key)
    clustering = source.clustering_key
    key = ", ".join([f"({partition})", *(quote_name(c.name) for c in clustering)])
    full_name = f"{quote_name(keyspace)}.{quote_name(name)}"
    cql = f"CREATE TABLE IF NOT EXISTS {full_name} ({', '.join(columns)}, PRIMARY KEY ({key}))"
    if clustering:
        order = ", ".join(f"{quote_name(c.name)} {'DESC' if c.descending else 'ASC'}" for c in clustering)
        cql += f" WITH CLUSTERING ORDER BY ({order})"
    return cql


def _types_of(session: ReadSession, source: Table) -> list[tuple[str, Fields]]:
    """Return the names and fields of the user-defined types that *source* needs, dependencies first."""
    ordered: dict[str, None] = {}

    def need(types: Iterable[Type]) -> None:
        for type_ in types:
            need(type_.args)
            if type_.kind == "udt":
                ordered[type_.name] = None

    need(c.type for c in source.columns)
    if not ordered:
        return []
    known = read_types(session, source.keyspace, doing=f"looking up the types of {source.full_name}")
    return [(name, known[name]) for name in ordered]
