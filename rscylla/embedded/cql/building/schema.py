"""CREATE, ALTER and DROP of keyspaces, tables and types, and their properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import InvalidRequest, SyntaxException
from .. import ast
from ..names import NATIVE_TYPE_NAMES
from .parts import Parts, as_tuple, first_or_none, true, word

__all__ = ["Schema"]


def _change(name: str, value: Callable[[Parts], Any]) -> Any:
    """Return what gives a part of an ALTER by the name that its statement has for it."""
    return staticmethod(lambda parts: {name: value(parts)})


class Schema:
    """Keyspaces, tables and types."""

    def property_(self, parts: Parts) -> tuple[str, Any]:
        return (parts[0], _property_value(parts[1]))

    properties = staticmethod(lambda parts: _options(parts))

    def with_properties(self, parts: Parts) -> dict[str, Any]:
        return parts[0] if parts else {}

    def create_keyspace(self, parts: Parts) -> ast.CreateKeyspace:
        return ast.CreateKeyspace(name=parts[1], if_not_exists=parts[0], options=parts[2])

    def alter_keyspace(self, parts: Parts) -> ast.AlterKeyspace:
        return ast.AlterKeyspace(name=parts[0], options=parts[1])

    def drop_keyspace(self, parts: Parts) -> ast.DropKeyspace:
        return ast.DropKeyspace(name=parts[1], if_exists=parts[0])

    def column(self, parts: Parts) -> tuple[str, Any]:
        name, type_text, expires, static = parts
        return ("column", ast.ColumnDef(name, type_text, static, expires))

    column_def = staticmethod(lambda parts: ast.ColumnDef(*parts))

    def key_column(self, parts: Parts) -> tuple[str, Any]:
        return ("key_column", self.column(parts)[1])

    def primary_key(self, parts: Parts) -> tuple[str, Any]:
        return ("key", (parts[0], tuple(parts[1:])))

    partition_key = staticmethod(as_tuple)
    composite_key = staticmethod(first_or_none)
    compact_storage = staticmethod(word(("compact storage", True)))

    def clustering_order(self, parts: Parts) -> tuple[str, Any]:
        return ("clustering order", tuple(parts))

    table_options = staticmethod(as_tuple)

    def create_table(self, parts: Parts) -> ast.CreateTable:
        if_not_exists, table, *items, options = parts
        items = [item for item in items if item is not None]
        columns = tuple(value for kind, value in items if kind != "key")
        keys = [value for kind, value in items if kind == "key"]
        keys += [((value.name,), ()) for kind, value in items if kind == "key_column"]
        if len(keys) > 1:
            raise InvalidRequest("Multiple PRIMARY KEYs specified (exactly one required)")
        partition_key, clustering_key = keys[0] if keys else ((), ())
        # The two special options have names with a space, which no property can have.
        special = {name: value for name, value in options if " " in name}
        return ast.CreateTable(
            table=table,
            if_not_exists=if_not_exists,
            columns=columns,
            partition_key=partition_key,
            clustering_key=clustering_key,
            clustering_order=special.get("clustering order", ()),
            compact_storage="compact storage" in special,
            options=_options([option for option in options if " " not in option[0]]),
        )

    add_columns = _change("add", as_tuple)
    rename_columns = rename_fields = _change("rename", as_tuple)
    alter_column = _change("alter_type", as_tuple)
    set_row_ttl = _change("row_ttl", first_or_none)
    drop_row_ttl = _change("drop_row_ttl", true)
    alter_properties = _change("options", first_or_none)
    add_field = _change("add", as_tuple)
    retype_field = _change("retype", as_tuple)
    renaming = staticmethod(as_tuple)

    def drop_column(self, parts: Parts) -> dict[str, Any]:
        return {"drop": (parts[0],), "drop_timestamp": parts[1]}

    def drop_columns(self, parts: Parts) -> dict[str, Any]:
        return {"drop": parts[0], "drop_timestamp": parts[1]}

    def alter_table(self, parts: Parts) -> ast.AlterTable:
        return ast.AlterTable(parts[0], **parts[1])

    def drop_table(self, parts: Parts) -> ast.DropTable:
        return ast.DropTable(parts[1], if_exists=parts[0])

    type_field = staticmethod(as_tuple)
    no_item = staticmethod(word(None))

    def create_type(self, parts: Parts) -> ast.CreateType:
        return ast.CreateType(parts[1], if_not_exists=parts[0], fields=tuple(filter(None, parts[2:])))

    def alter_type(self, parts: Parts) -> ast.AlterType:
        return ast.AlterType(parts[0], **parts[1])

    def plain_type_name(self, parts: Parts) -> str:
        name = str(parts[0])
        if name in NATIVE_TYPE_NAMES:
            raise SyntaxException(f"Invalid (reserved) user type name {name}")
        return name

    def drop_type(self, parts: Parts) -> ast.DropType:
        return ast.DropType(parts[1], if_exists=parts[0])


def _options(pairs: Parts) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in pairs:
        if name in options:
            raise SyntaxException(f"Multiple definition for property '{name}'")
        options[name] = value
    return options


def _property_value(value: Any) -> Any:
    """Return a property as text: str, a dict of str for a map (of lists of str where lists were written)."""
    match value:
        case str():
            return value
        case ast.Constant():
            # The tree holds null without text and blobs without 0x; properties show them as they were written.
            return {"null": "null", "blob": "0x" + value.text}.get(value.kind, value.text)
        case ast.MapTerm():
            return _options([(_property_word(key), _property_item(item)) for key, item in value.items])
        # The grammar reads {} as a set; among properties only an empty map makes sense.
        case ast.SetTerm() if not value.items:
            return {}
    raise SyntaxException("a property takes a constant or a map of constants")


def _property_item(value: Any) -> Any:
    if isinstance(value, ast.ListTerm):
        return [_property_word(item) for item in value.items]
    return _property_word(value)


def _property_word(value: Any) -> str:
    if not isinstance(value, ast.Constant) or value.kind == "null":
        raise SyntaxException("a property takes a constant or a map of constants")
    return value.text
