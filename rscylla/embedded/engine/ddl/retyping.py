"""ALTER ... TYPE: which types may take the place of which. Values are left as they were written."""

from __future__ import annotations

from ...errors import ConfigError, InvalidRequest
from ...schema.tables import Column
from ...types import ASCII, BIGINT, BLOB, INT, TEXT, TIMESTAMP, TIMEUUID, UUID, VARINT, CqlType, NativeType, UdtType

__all__ = ["check_column_type", "check_field_type"]

# New type, old types. Source: Scylla ``types/types.cc``, is_compatible_with and is_value_compatible_with.
_SAME_ORDER: dict[CqlType, tuple[CqlType, ...]] = {TEXT: (ASCII,), BLOB: (ASCII, TEXT)}
_SAME_VALUES: dict[CqlType, tuple[CqlType, ...]] = {TEXT: (ASCII,), UUID: (TIMEUUID,)}
_OTHER_VALUES: dict[CqlType, tuple[CqlType, ...]] = {VARINT: (INT, BIGINT), BIGINT: (TIMESTAMP,), TIMESTAMP: (BIGINT,)}
_UNSUPPORTED = "is not supported by the embedded server for these types"


def check_column_type(column: Column, new: CqlType) -> None:
    """Raise ConfigError if *column* cannot get the type *new*, InvalidRequest if it can in Scylla only."""
    old = column.type
    if new == old:
        return
    words = f"Cannot change {column.name} from type {old.name} to type {new.name}: types are"
    if column.kind == "clustering":
        if old not in _SAME_ORDER.get(new, ()):
            raise ConfigError(f"{words} not order-compatible.")
        # Rows are kept at positions that were made of the old type.
        raise InvalidRequest(f"ALTER TABLE ... TYPE of a clustering column {_UNSUPPORTED}")
    if old in _OTHER_VALUES.get(new, ()):
        raise InvalidRequest(f"ALTER TABLE ... TYPE {_UNSUPPORTED}")
    if old not in _SAME_VALUES.get(new, ()) and not (new == BLOB and isinstance(old, NativeType)):
        raise ConfigError(f"{words} incompatible.")


def check_field_type(udt: UdtType, field: str, new: CqlType) -> None:
    """Raise InvalidRequest if *field* cannot get the type *new*."""
    full = f"{udt.keyspace}.{udt.type_name}"
    if field not in udt.field_names:
        raise InvalidRequest(f"Unknown field {field} in type {full}")
    old = udt.field_types[udt.field_names.index(field)]
    if new == old:
        return
    if old not in _SAME_ORDER.get(new, ()):
        raise InvalidRequest(
            f"Type {new.name} in incompatible with previous type {old.name} of field {field} in user type {full}"
        )
    # Values of the type may be keys, which are kept in the order of the old type.
    raise InvalidRequest(f"ALTER TYPE ... ALTER ... TYPE {_UNSUPPORTED}")
