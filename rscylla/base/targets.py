"""Checks whether a table can take changes of certain columns. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..cdc.log import BaseColumn, Table
from ..errors import CannotReplicate

__all__ = ["check_columns"]


def check_columns(columns: Sequence[BaseColumn], target: Table, *, source: str, same_types: bool = True) -> None:
    """Check that *target* can take the changes of a table with *columns*. Columns that only *target* has stay null.

    Args:
        columns: those of the source, with the columns of the primary key in their order.
        source: what messages call the source.
        same_types: whether types must be the same; otherwise, only whether a value has one cell or many.

    Raises:
        CannotReplicate: the primary keys differ, or the target lacks a column or has it with another kind or type.
    """
    if _key_of(columns) != _key_of(target.columns):
        raise CannotReplicate(
            f"{target.full_name} has a different primary key from {source}; key columns and their clustering order "
            "must be the same"
        )
    others = {c.name: c for c in target.columns}
    for column in columns:
        other = others.get(column.name)
        if other is None:
            raise CannotReplicate(
                f"{target.full_name} lacks the column {column.name!r}; run ALTER TABLE {target.full_name} "
                f"ADD {column.definition}"
            )
        # By their bytes: that is how values are copied and compared.
        if (column.kind, column.is_multicell) != (other.kind, other.is_multicell) or (
            same_types and not column.type.same_bytes(other.type)
        ):
            raise CannotReplicate(
                f"the column {column.name!r} is {_in_words(other)} in {target.full_name}, but {_in_words(column)} in "
                f"{source}; they must be the same"
                + " (a type of that name has other fields)"
                * (_in_words(column) == _in_words(other))
            )


def _key_of(columns: Sequence[BaseColumn]) -> list[tuple[str, str, bool]]:
    return [(c.name, c.kind, c.descending) for c in columns if c.in_key]


def _in_words(column: BaseColumn) -> str:
    return column.type_text + " static" * (column.kind == "static")
