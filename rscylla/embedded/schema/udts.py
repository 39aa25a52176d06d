"""Types inside of types: all of them, and with one user-defined type replaced by its new form, as ALTER TYPE does."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from ..types import CqlType, ListType, MapType, SetType, TupleType, UdtType, VectorType

__all__ = ["parts", "replace_udt"]


def replace_udt(cql_type: CqlType, changed: UdtType) -> CqlType:
    """Return ``cql_type`` with each occurrence of ``changed`` (by keyspace and name) in its new form."""
    if isinstance(cql_type, UdtType):
        if (cql_type.keyspace, cql_type.type_name) == (changed.keyspace, changed.type_name):
            return changed.freeze() if cql_type.frozen else changed
        return attrs.evolve(cql_type, field_types=tuple(replace_udt(t, changed) for t in cql_type.field_types))
    if isinstance(cql_type, MapType):
        return attrs.evolve(
            cql_type, key=replace_udt(cql_type.key, changed), value=replace_udt(cql_type.value, changed)
        )
    if isinstance(cql_type, ListType | SetType | VectorType):
        return attrs.evolve(cql_type, element=replace_udt(cql_type.element, changed))
    if isinstance(cql_type, TupleType):
        return attrs.evolve(cql_type, items=tuple(replace_udt(t, changed) for t in cql_type.items))
    return cql_type


def parts(cql_type: CqlType) -> Iterator[CqlType]:
    """Yield ``cql_type`` and every type inside it."""
    yield cql_type
    inner: tuple[CqlType, ...] = ()
    if isinstance(cql_type, UdtType):
        inner = cql_type.field_types
    elif isinstance(cql_type, MapType):
        inner = (cql_type.key, cql_type.value)
    elif isinstance(cql_type, ListType | SetType | VectorType):
        inner = (cql_type.element,)
    elif isinstance(cql_type, TupleType):
        inner = cql_type.items
    for part in inner:
        yield from parts(part)
