"""Relations of several clustering columns: ``(a, b) > (1, 2)``."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from ...cql import ast
from ...errors import InvalidRequest
from ...schema.tables import Column
from ...storage.mutation import Key
from ...types import TupleType
from ..binding import Request

__all__ = ["SLICES", "TupleRelation", "Values", "check_sizes", "check_together", "tuple_key"]

SLICES = ("<", "<=", ">", ">=")

Values = Callable[[Request], list[bytes | None]]


@attrs.frozen
class TupleRelation:
    """A relation of several clustering columns; ``in_order`` of SCYLLA_CLUSTERING_BOUND, which knows no DESC."""

    columns: tuple[Column, ...]
    type: TupleType
    op: str
    values: Values
    in_order: bool


def tuple_key(relation: TupleRelation, value: bytes) -> Key:
    parts = relation.type.split(value)
    for column, part in zip(relation.columns, parts, strict=True):
        if part is None:
            raise InvalidRequest(f"Invalid null value in condition for column {column.name}")
    return tuple(part for part in parts if part is not None)


def check_sizes(columns: tuple[Column, ...], relation: ast.Relation) -> None:
    """Refuse tuples of another length than the columns they are compared with."""
    terms = relation.right if isinstance(relation.right, tuple) else (relation.right,)
    for term in terms:
        # In CQL "(1)" is a tuple of one; the parser cannot tell it from a term in parentheses.
        size = len(term.items) if isinstance(term, ast.TupleTerm) else len(columns)
        if relation.op == "IN" and size > len(columns):
            names, types = ",".join(c.name for c in columns), ", ".join(c.type.name for c in columns)
            raise InvalidRequest(
                f"Invalid list literal for IN(({names})): a value of {size} elements is not of type"
                f" frozen<tuple<{types}>>"
            )
        if size != len(columns):
            raise InvalidRequest(f"Expected {len(columns)} elements in value tuple, but got {size}")


def check_together(known: list[TupleRelation], new: TupleRelation) -> None:
    """Refuse a tuple relation that may not stand beside those before."""
    first = known[0]
    common = ", ".join(c.name for c in new.columns if c in first.columns)
    if new.op in ("=", "IN"):
        what = "an Equal" if new.op == "=" else "a IN"
        raise InvalidRequest(f"{common} cannot be restricted by more than one relation if it includes {what}")
    if first.op not in SLICES:
        raise InvalidRequest(f'Column "{common}" cannot be restricted by both an equality and an inequality relation')
    if first.in_order != new.in_order:
        names = ["SCYLLA_CLUSTERING_BOUND" if t.in_order else "plain" for t in (first, new)]
        raise InvalidRequest(f"Invalid combination of restrictions ({' / '.join(names)})")
    if any(t.op[0] == new.op[0] for t in known):
        side = "start" if new.op[0] == ">" else "end"
        raise InvalidRequest(f"More than one restriction was found for the {side} bound on {common}")
