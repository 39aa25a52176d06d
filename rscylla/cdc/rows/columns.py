"""``ColumnChange``: what a change did to one column: set, made null, overwritten, or edited element by element.

The states of each kind of CQL column, and the parts of ``ColumnChange`` that they use:

    column                  written          made null    overwritten             edited
    native, frozen, tuple   SET: ``value``   NULL         -                       -
    set                     -                NULL         OVERWRITTEN: ``value``  EDITED: ``added`` set, ``removed`` set
    map                     -                NULL         OVERWRITTEN: ``value``  EDITED: ``added`` dict, ``removed`` set of keys
    list                    -                NULL         OVERWRITTEN: ``value``  EDITED: ``added`` dict by timeuuid, ``removed`` set of timeuuids
    user-defined type       -                NULL         OVERWRITTEN: ``value``  EDITED: ``added`` dict of fields, ``removed`` set of fields

An overwritten collection also has ``added``: for a list, it has the timeuuids of the new elements, which later changes
use. List elements are in the order of their timeuuids. Elements and keys that cannot be hashed are in a list instead of
a set. ``rscylla.types`` defines the Python types of single values.

An INSERT or overwrite of a collection with a TTL arrives as two changes of one record: the first makes the column null,
and the second adds its elements with the TTL.
"""  # noqa: E501 - a table

from __future__ import annotations

import enum
import uuid
from collections.abc import Collection, Mapping
from typing import Any, cast

import attrs

from ... import _timeuuid as tu
from .layout import Cells, ColumnKind, ValueColumn

__all__ = ["ColumnChange", "ColumnState", "column_change", "untouched"]


class ColumnState(enum.Enum):
    """What a change did to a column."""

    UNTOUCHED = "untouched"
    SET = "set"
    NULL = "null"
    OVERWRITTEN = "overwritten"
    EDITED = "edited"


@attrs.frozen
class ColumnChange:
    """What one change did to one column; the table at the top of the module shows which parts each state uses.

    ``kind`` is "value" for columns that are written as a whole, otherwise "list", "set", "map", or "udt".
    """

    name: str
    kind: ColumnKind
    state: ColumnState
    static: bool = False
    value: Any = None
    added: Any = None
    removed: Collection[Any] | None = None
    _fields: tuple[str, ...] = attrs.field(default=(), repr=False)

    @property
    def touched(self) -> bool:
        """Whether the change affected the column. If not, its value is not known."""
        return self.state is not ColumnState.UNTOUCHED

    @property
    def known(self) -> bool:
        """Whether ``value`` is the column's whole value after the change: set, null, or overwritten."""
        return self.state in (ColumnState.SET, ColumnState.NULL, ColumnState.OVERWRITTEN)

    def apply(self, old: Any) -> Any:
        """Return the column's value after the change, given the value *old* before it.

        Lists are dicts by timeuuid in both directions, like ``added``, because edits identify elements by timeuuid.
        A collection without elements is None, as in the database.

        Raises:
            TypeError: *old* does not match the column's kind.
        """
        if self.state is ColumnState.UNTOUCHED:
            return old
        if self.state is ColumnState.NULL:
            return None
        if self.kind == "value":
            return self.value
        if self.state is ColumnState.OVERWRITTEN:
            old = None
        if old is not None and not isinstance(old, _CONTAINERS[self.kind]):
            raise TypeError(f"the old value of {self.kind} {self.name!r} must not be a {type(old).__name__}")
        return self._edited(old) or None

    def _edited(self, old: Any) -> Any:
        added, removed = self.added, self.removed or ()
        if self.kind == "set":
            # Elements that cannot be hashed, such as maps, arrive in a list; see ``rscylla.types``.
            if isinstance(added, list) or isinstance(old, list):
                kept = [e for e in old or () if e not in removed and e not in (added or ())]
                return kept + list(added or ())
            return (set(old or ()) | set(added or ())) - set(removed)
        found = {**(old or {}), **(added or {})}
        if self.kind == "udt":
            # As in a SELECT: the value has all fields, and a non-frozen UDT without any value is null.
            found = {**dict.fromkeys(self._fields), **found, **dict.fromkeys(removed)}
            return found if any(v is not None for v in found.values()) else None
        found = {k: v for k, v in found.items() if k not in removed}
        if self.kind == "list":
            return {k: found[k] for k in sorted(found, key=_list_order)}
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the parts that are used, by name; values are not converted."""
        parts = {"value": self.value if self.state in _WITH_VALUE else None, "added": self.added}
        parts["removed"] = self.removed
        out: dict[str, Any] = {"state": self.state.value}
        return out | {k: v for k, v in parts.items() if v is not None and (k != "added" or self._shows_added)}

    @property
    def _shows_added(self) -> bool:
        """Whether ``added`` contains more than ``value``."""
        return self.kind == "list" or self.state is ColumnState.EDITED


_CONTAINERS: dict[str, tuple[type, ...]] = {
    "set": (set, frozenset, list),
    "map": (Mapping,),
    "list": (Mapping,),
    "udt": (Mapping,),
}
_WITH_VALUE = (ColumnState.SET, ColumnState.OVERWRITTEN)


def untouched(column: ValueColumn) -> ColumnChange:
    """Return the change of a column that was not touched."""
    return ColumnChange(column.name, column.kind, ColumnState.UNTOUCHED, column.static)


def column_change(column: ValueColumn, cells: Cells) -> ColumnChange | None:
    """Return the change of *column* by the delta row *cells*; None if there is none.

    Source: Scylla ``cdc/log.cc``. When a UDT or one of its fields is made null, the log has a UDT of null fields.
    """
    raw = cells[column.index]
    marked = column.marked_in(cells)
    if column.kind == "value":
        if raw is None and not marked:
            return None
        state = ColumnState.NULL if raw is None else ColumnState.SET
        value = None if raw is None else column.decode(raw)
        return ColumnChange(column.name, column.kind, state, column.static, value)
    added = _added(column, raw)
    removed = _removed(column, cells)
    if marked and added is None:
        return ColumnChange(column.name, column.kind, ColumnState.NULL, column.static, None, None, removed)
    if added is None and removed is None:
        return None
    state = ColumnState.OVERWRITTEN if marked else ColumnState.EDITED
    value = column.value_in(cells) if marked else None
    return ColumnChange(column.name, column.kind, state, column.static, value, added, removed, column.fields)


def _added(column: ValueColumn, raw: bytes | None) -> Any:
    """Return the written elements; None if there are none."""
    if raw is None:
        return None
    found = (column.decode_cells or column.decode)(raw)
    if column.kind == "udt":
        found = {name: value for name, value in found.items() if value is not None}
    return found or None


def _removed(column: ValueColumn, cells: Cells) -> Collection[Any] | None:
    """Return the removed elements; fields of a UDT by name, or by number if they were added to the type later."""
    raw = cells[column.elements]
    if raw is None or column.decode_elements is None:
        return None
    found = column.decode_elements(raw)
    if column.kind == "udt":
        found = {column.fields[n] if 0 <= n < len(column.fields) else n for n in found}
    return cast("Collection[Any]", found)


def _list_order(key: Any) -> bytes:
    return tu.order_key(cast("uuid.UUID", key).bytes)
