"""Values as they are: whether two are the same, and a value without the personal data in it."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any
from uuid import UUID

from ...errors import ConfigError
from .fields import Field, Fields, fields_of

__all__ = ["LEAVES", "Hiding", "difference", "personal_leaves"]

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


class Hiding:
    """Makes values without the personal data in them: fields that are marked have their placeholders instead.

    After a call, ``subjects`` has whose data were met, "" for a subject that is no text or is empty.

    Args:
        placeholder: Returns the placeholder of a field of a class, as a value.
        keep: The subject whose data stay; None: nobody's.
    """

    def __init__(self, placeholder: Callable[[type, Field], Any], keep: str | None = None) -> None:
        self._placeholder = placeholder
        self._keep = keep
        self.subjects: dict[str, None] = {}
        self.unknown = ""
        """The name of a class of a value that may hold others, which cannot be seen; "" if there is none."""

    def __call__(self, value: Any, owner: str | None = None) -> Any:
        """Return *value*, or a copy of it with placeholders. *owner* is whose data it has, None: nobody's."""
        fields = None if isinstance(value, Enum) else fields_of(type(value))
        if fields is not None:
            return self._fields(fields, value, owner)
        if isinstance(value, LEAVES):
            return value
        if isinstance(value, Mapping):
            for key in value:
                if self(key, owner) is not key:
                    raise ConfigError(
                        f"a key of a mapping is a {type(key).__name__} with personal fields; make it a value"
                    )
            return self._copied(value, owner, dict(zip(value, self._each(value.values(), owner), strict=True)))
        if isinstance(value, (*_SETS, *_LISTS)):
            inner = self._each(value, owner)
            if hasattr(value, "_fields") and isinstance(value, tuple):
                return self._copied(value, owner, type(value)(*inner))
            # In the order of the set, and with each element, though placeholders may be equal.
            return self._copied(value, owner, tuple(inner) if isinstance(value, tuple) else inner)
        self.unknown = type(value).__name__
        if any(inner.has_personal for inner in _classes_in(value)):
            raise ConfigError(f"a {self.unknown} hides an object with personal fields; make it a class of attrs")
        return value

    def _each(self, values: Any, owner: str | None) -> list[Any]:
        return [self(inner, owner) for inner in values]

    @staticmethod
    def _copied(value: Any, owner: str | None, copy: Any) -> Any:
        before = value.values() if isinstance(value, Mapping) else value
        after = copy.values() if isinstance(copy, Mapping) else copy
        return value if all(a is b for a, b in zip(before, after, strict=True)) else copy

    def _fields(self, fields: Fields, value: Any, owner: str | None) -> Any:
        cls = type(value)
        if fields.subject:
            who = getattr(value, fields.subject)
            owner = who if isinstance(who, str) else ""
        elif owner is None and fields.has_personal:
            raise ConfigError(
                f"{cls.__name__} has personal fields, but no subject(); mark the field that names the person"
            )
        changes = {}
        for field in fields.all:
            before = getattr(value, field.name)
            if not field.is_personal:
                after = self(before, owner)
            else:
                if not isinstance(before, LEAVES) and any(inner.subject for inner in _classes_in(before)):
                    raise ConfigError(
                        f"{cls.__name__}.{field.name} is personal, and holds data of other subjects; mark only "
                        "what is in it"
                    )
                self.subjects[owner or ""] = None
                after = before if owner == self._keep else self._placeholder(cls, field)
            if after is not before:
                changes[field.name] = after
        if not changes:
            return value
        given = {field.alias: changes.pop(field.name, getattr(value, field.name)) for field in fields.all if field.init}
        if changes:
            raise ConfigError(
                f"{cls.__name__}.{next(iter(changes))} is or holds personal data, but __init__ does not take it, so it "
                "cannot be sealed"
            )
        return cls(**given)


def _classes_in(value: Any) -> Iterator[Fields]:
    """Yield the fields of the classes of all objects that can be reached from *value*, whatever holds them."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType, *LEAVES)):
            continue
        seen.add(id(one))
        if (fields := fields_of(type(one))) is not None:
            yield fields
        waiting += gc.get_referents(one)


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
