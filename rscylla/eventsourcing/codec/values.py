"""Values: whether two are the same, and what JSON has for one without the personal data in it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from ...errors import ConfigError
from .fields import Field, Fields, fields_of

__all__ = ["LEAVES", "Hiding", "difference", "patched", "personal_leaves"]

LEAVES = (str, bytes, bool, int, float, Decimal, UUID, datetime, date, Enum, PurePath, type(None))
"""Classes whose values hold no others, with their subclasses."""

_SETS = (set, frozenset)
_LISTS = (list, tuple, deque)


# ---------------------------------------------------------------- sameness


def difference(one: Any, other: Any, path: str = "") -> str:
    """Return where *other* is not the same as *one*, and "" if it is: equal, of the same types at any depth.

    An int that was read as an equal float is the same: it is a legal value where a float is declared. The text has
    names of fields and of types, and no value.
    """
    cls = type(one)
    if cls is int and type(other) is float:
        return "" if one == other else _changed(path)
    if cls is not type(other) and not _is_stand_in(cls, other):
        return f"{path or 'it'} would be of type {type(other).__name__} instead of {cls.__name__}"
    if isinstance(one, Enum):
        return "" if one is other else _changed(path)
    fields = fields_of(cls)
    if fields is not None:
        return _different_fields(fields, one, other, path)
    if isinstance(one, Mapping):
        return _different_items(one, other, path)
    if isinstance(one, _SETS):
        found = {inner: inner for inner in other}
        pairs = [(inner, found.get(inner, _MISSING)) for inner in one]
    elif isinstance(one, _LISTS):
        if len(one) == len(other) and getattr(one, "maxlen", None) != getattr(other, "maxlen", None):
            return f"{path or 'it'} would lose its maxlen"
        pairs = list(zip(one, other, strict=False))
    else:
        is_same = one == other and _exact(one) == _exact(other)
        is_same = is_same and getattr(one, "__dict__", None) == getattr(other, "__dict__", None)
        return "" if is_same else (_lost_of_time(one, other, path) or _changed(path))
    if len(one) != len(other):
        return _changed(path)
    return next(filter(None, (difference(a, b, f"{path}[]") for a, b in pairs)), "")


def _is_stand_in(cls: type, other: Any) -> bool:
    # freezegun puts classes of its own in the place of these, here as well, and makes its values of them.
    return (cls is datetime and isinstance(other, datetime)) or (cls is date and isinstance(other, date))


def _exact(value: Any) -> object:
    """Return what equal values can differ in: a sign, trailing zeros, a time zone or fold."""
    if isinstance(value, datetime):
        return repr(value.tzinfo), value.fold
    return repr(value) if isinstance(value, float | Decimal) else None


def _lost_of_time(one: Any, other: Any, path: str) -> str:
    if not isinstance(one, datetime) or not isinstance(other, datetime):
        return ""
    if one.fold != other.fold and one.tzinfo is None:
        return f"{path or 'it'} would lose its fold; give it a time zone: use datetime.UTC"
    if one.replace(tzinfo=None, fold=0) == other.replace(tzinfo=None, fold=0) and one.tzinfo is not None:
        return f"{path or 'it'} would keep the offset of its time zone alone; use .astimezone(datetime.UTC)"
    return ""


_MISSING = object()


def _changed(path: str) -> str:
    return f"{path or 'it'} would have another value"


def _different_fields(fields: Fields, one: Any, other: Any, path: str) -> str:
    for field in fields.all:
        where = f"{path}.{field.name}" if path else field.name
        if found := difference(getattr(one, field.name), getattr(other, field.name), where):
            return found
    known = {field.name for field in fields.all}
    # What a class keeps for itself, such as a cached property or the hash, is made again.
    extra = [name for name in getattr(one, "__dict__", ()) if name not in known and not hasattr(type(one), name)]
    extra = [name for name in extra if name != "_attrs_cached_hash"]
    return f"{path or 'it'} would lose {extra[0]!r}, which is not a field" if extra else ""


def _different_items(one: Mapping[Any, Any], other: Mapping[Any, Any], path: str) -> str:
    if len(one) != len(other):
        return _changed(path)
    if getattr(one, "default_factory", None) is not getattr(other, "default_factory", None):
        return f"{path or 'it'} would have another default_factory"
    keys = {key: key for key in other}
    for key, value in one.items():
        if key not in keys:
            return f"a key of {path or 'it'} would be another one"
        found = difference(key, keys[key], f"a key of {path or 'it'}") or difference(value, other[key], f"{path}[]")
        if found:
            return found
    return ""


# ---------------------------------------------------------------- personal data


Change = list[Any]
"""``[path, value]``: where JSON has a value; ``[path]``: where it has none."""


class Hiding:
    """Takes the personal data out of what JSON has for values; the fields that are marked get their placeholders.

    After a call, ``found`` has what was in their place, by subject; "" for one that is no text. A call raises
    ``ConfigError`` if JSON has the value in another shape, where something personal may be anywhere.

    Args:
        placeholder: Returns the placeholder of a field of a class, as JSON has it.
    """

    def __init__(self, placeholder: Callable[[type, Field], Any]) -> None:
        self._placeholder = placeholder
        self.found: dict[str, list[Change]] = {}

    def __call__(self, value: Any, raw: Any, owner: str = "", path: tuple[str | int, ...] = ()) -> Any:
        """Return *raw*, which is *value* as it is read again, without its personal data. They are those of *owner*."""
        fields = None if isinstance(value, Enum) else fields_of(type(value))
        if fields is not None and isinstance(raw, dict):
            return self._fields(fields, value, raw, owner, path)
        if fields is None and isinstance(value, LEAVES) and not isinstance(raw, dict | list):
            return raw
        if fields is None and isinstance(value, Mapping) and isinstance(raw, dict) and _has_keys(value, raw):
            pairs = zip(value.values(), raw.items(), strict=True)
            return {key: self(inner, of, owner, (*path, key)) for inner, (key, of) in pairs}
        if fields is None and isinstance(value, (*_SETS, *_LISTS)) and isinstance(raw, list) and len(value) == len(raw):
            return [self(inner, of, owner, (*path, n)) for n, (inner, of) in enumerate(zip(value, raw, strict=True))]
        raise _otherwise(value)

    def _fields(self, fields: Fields, value: Any, raw: Any, owner: str, path: tuple[str | int, ...]) -> Any:
        if fields.subject:
            who = getattr(value, fields.subject)
            owner = who if isinstance(who, str) else ""
        if raw.keys() != fields.stored:
            raise _otherwise(value)
        clear = {}
        for field in fields.all:
            if field.name not in fields.stored:
                continue
            at, of = (*path, field.name), raw[field.name]
            if not field.is_personal:
                clear[field.name] = self(getattr(value, field.name), of, owner, at)
                continue
            clear[field.name] = placeholder = self._placeholder(type(value), field)
            if json.dumps(of, sort_keys=True) != json.dumps(placeholder, sort_keys=True):
                self.found.setdefault(owner, []).append([list(at), of])
        return clear


def _has_keys(value: Mapping[Any, Any], raw: dict[str, Any]) -> bool:
    """Return whether *raw* has the keys of *value*, in the same order; those that are no texts are not compared."""
    pairs = zip(value, raw, strict=False)
    return len(value) == len(raw) and all(key == text for key, text in pairs if type(key) is str)


def _otherwise(value: object) -> ConfigError:
    return ConfigError(f"JSON would have a {type(value).__name__} in another shape, so its data cannot be sealed")


def patched(value: Any, by: Iterable[Change]) -> Any:
    """Return *value*, as JSON has it, with the changes *by*. It may be changed."""
    root = [value]
    for path, *new in by:
        holder: Any = root
        steps = [0, *path]
        for step in steps[:-1]:
            holder = holder[step]
        if new:
            holder[steps[-1]] = new[0]
        else:
            del holder[steps[-1]]
    return root[0]


def personal_leaves(value: Any, *, inside: bool = False) -> Iterator[Any]:
    """Yield the values in all personal fields in *value*, at any depth."""
    fields = None if isinstance(value, Enum) else fields_of(type(value))
    if fields is not None:
        for field in fields.all:
            yield from personal_leaves(getattr(value, field.name), inside=inside or field.is_personal)
    elif isinstance(value, LEAVES):
        if inside and value is not None:
            yield value.value if isinstance(value, Enum) else value
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from personal_leaves(pair, inside=inside)
    elif isinstance(value, (*_SETS, *_LISTS)):
        for inner in value:
            yield from personal_leaves(inner, inside=inside)
    elif inside:
        yield value
