"""Declared types: whether what is written as one of them can only be read as the same, and can be looked into.

A type is walked before the first value of it is stored. What says nothing of its values, what JSON text cannot tell
apart, and what hides values from the sealing is refused by name.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, MutableSequence, MutableSet, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from pathlib import PurePath
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin
from uuid import UUID

import attrs
from cattrs import Converter, override

from ...errors import ConfigError
from .converter import MAPPINGS, json_text
from .fields import Field, Fields, fields_of, is_mark, resolved_types
from .values import LEAVES, difference

__all__ = ["Checked", "Shapes"]

_ITERABLES = (list, tuple, set, frozenset, deque, Sequence, MutableSequence, AbstractSet, MutableSet)
_TEXTS = (str, bytes, Decimal, UUID, datetime, date, PurePath)
_NO_BASES = (*LEAVES, bytearray, complex, time, timedelta, dict, list, tuple, set, frozenset, deque)
"""What a class with fields must not be as well: cattrs has the one or the other of it."""


@attrs.frozen
class Checked:
    """What values of a type can have: personal fields, and texts that are in no field of a class."""

    has_personal: bool
    has_plain_text: bool


@attrs.frozen
class _At:
    """Where a type is. *owner*: a subject is known; *sealed*: it is in a personal field; *field*: in one of a class."""

    where: str
    owner: bool = False
    sealed: bool = False
    field: bool = False

    @property
    def flags(self) -> tuple[bool, ...]:
        return self.owner, self.sealed, self.field

    def inner(self) -> _At:
        return attrs.evolve(self, where=f"{self.where}[]")


class Shapes:
    """Walks a declared type.

    Args:
        converter: What values will be converted by.
        placeholder: Returns the placeholder of a personal field, or raises ``ConfigError``.
        name: What the errors call a value of the type.
    """

    def __init__(self, converter: Converter, placeholder: Callable[[type, Field], Any], name: str) -> None:
        self._converter = converter
        self._placeholder = placeholder
        self._name = name
        self._seen: set[Any] = set()
        self._has_personal = self._has_plain_text = False

    def check(self, kind: Any) -> Checked:
        """Return what values of type *kind* can have.

        Raises:
            ConfigError: values may not come back as they are, or cannot be looked into, or are marked in a way that
                makes no sense.
        """
        self._walk(kind, _At(self._name))
        return Checked(self._has_personal, self._has_plain_text)

    def _walk(self, kind: Any, at: _At) -> None:
        kind = _plain(kind, at.where)
        with suppress(TypeError):  # what is in an Annotated may have no hash; what may hold itself has one
            if (kind, at.flags) in self._seen:
                return
            self._seen.add((kind, at.flags))
        origin = get_origin(kind) or kind
        if not at.field and (kind is Any or (_is_class(kind, str, bytes) and not _is_class(kind, Enum))):
            self._has_plain_text = True
        if kind is Any:
            return
        for part, where in self._parts(kind, origin, at):
            self._walk(part, where)
        self._check_hooks(kind, origin, at.where)

    def _parts(self, kind: Any, origin: Any, at: _At) -> Iterator[tuple[Any, _At]]:
        """Yield the types in *kind*, and where they are."""
        if origin is Literal:
            self._check_constants(kind, get_args(kind), at.where)
        elif origin in (Union, types.UnionType):
            _check_union(kind, at.where)
            yield from ((member, at) for member in get_args(kind) if member is not types.NoneType)
        elif _is_class(origin, Enum):
            self._check_constants(origin, origin, at.where)
        elif isinstance(origin, type) and (fields := fields_of(origin)) is not None:
            yield from self._fields(kind, origin, fields, at)
        elif origin in MAPPINGS or origin is defaultdict:
            args = get_args(kind) or (Any,)
            self._check_key(args[0], at)
            yield from ((value, at.inner()) for value in args[1:] or (() if origin is Counter else (Any,)))
        elif origin in _ITERABLES:
            yield from ((one, at.inner()) for one in get_args(kind) or (Any,) if one is not ... and one != ())
        elif typing.is_typeddict(kind) or (_is_class(kind, tuple) and hasattr(kind, "_fields")):
            for name, hint in _hints(kind, at.where).items():
                yield hint, attrs.evolve(at, where=f"{kind.__name__}.{name}")
        elif not _is_class(kind, *LEAVES):
            raise _unreadable(kind, at.where)

    def _fields(self, kind: Any, origin: type, fields: Fields, at: _At) -> Iterator[tuple[Any, _At]]:
        if issubclass(origin, _NO_BASES) or (attrs.has(origin) and dataclasses.is_dataclass(origin)):
            raise ConfigError(
                f"{at.where}: {origin.__name__} has fields, but is also something else, of which these are no part; "
                "derive it from classes of attrs, or from dataclasses, alone"
            )
        if fields.subject and at.sealed:
            raise ConfigError(f"{at.where} is personal, and holds data of other subjects; mark only what is in it")
        if fields.has_personal and not (at.owner or fields.subject):
            inside = "" if origin.__name__ == self._name else f" in {origin.__name__}"
            raise ConfigError(
                f"{self._name} has personal fields{inside}, but no subject(); mark the field that names the person"
            )
        declared = resolved_types(origin)
        known = dict(zip(getattr(origin, "__parameters__", ()), get_args(kind), strict=False))
        for field in fields.all:
            where = f"{origin.__name__}.{field.name}"
            if field.is_personal and not at.sealed:
                self._has_personal = True
                if not field.init:
                    raise ConfigError(f"{where} is personal, but __init__ does not take it, so it cannot be sealed")
                self._placeholder(origin, field)
            _plain(declared[field.name], where)  # also of those that __init__ does not take: cattrs may store them
            if field.init:
                owner, sealed = at.owner or bool(fields.subject), at.sealed or field.is_personal
                yield _filled(declared[field.name], known), _At(where, owner, sealed, field=True)

    def _check_hooks(self, kind: Any, origin: Any, where: str) -> None:
        try:
            hooks = self._converter.get_unstructure_hook(kind), self._converter.get_structure_hook(kind)
        except Exception as e:
            raise _unreadable(kind, where) from e
        has_fields = _is_class(origin) and not _is_class(origin, Enum) and fields_of(origin) is not None
        # Functions that cattrs makes of fields say with which overrides; those of other kinds do not.
        if any(getattr(hook, "overrides", None if has_fields else {}) != {} for hook in hooks):
            raise ConfigError(f"{where}: cattrs does not write the fields of {_name(kind)} as they are; see its bases")

    def _check_constants(self, kind: Any, values: Iterable[Any], where: str) -> None:
        for value in values:
            try:
                raw = self._converter.unstructure(value, unstructure_as=kind)
                found = difference(value, self._converter.structure(json.loads(json_text(raw)), kind))
            except Exception as e:
                raise _not_kept(value, where) from e
            if found or (isinstance(value, Enum) and not isinstance(value.value, str | int | float)):
                raise _not_kept(value, where)

    def _check_key(self, kind: Any, at: _At) -> None:
        kind = _plain(kind, at.where)
        if kind is Any:
            return
        kinds = _kinds(kind)
        if len(kinds) != 1 or not kinds <= {"bool", "int", "float", "text"}:
            raise ConfigError(
                f"{at.where}: keys of type {_name(kind)} cannot be told apart as texts, which all keys are in JSON; "
                "use texts or numbers of one type"
            )
        self._walk(kind, attrs.evolve(at, where=f"a key of {at.where}", field=True))


def _unreadable(kind: Any, where: str) -> ConfigError:
    return ConfigError(
        f"{where}: {_name(kind)} cannot be read again as it was written; declare a type that says what it holds, such "
        "as a class of attrs"
    )


def _not_kept(value: Any, where: str) -> ConfigError:
    name = f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else ascii(value)
    return ConfigError(
        f"{where}: {name} cannot be read again as it was written; give it a text or a finite number as its value"
    )


def _is_class(kind: Any, *bases: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, bases or object)


def _hints(kind: Any, where: str) -> dict[str, Any]:
    """Return the types in a TypedDict, or a named tuple."""
    if any(map(is_mark, getattr(kind, "_field_defaults", {}).values())):
        raise ConfigError(f"{where}: {kind.__name__} is not a class of attrs, so its marks would not be seen")
    hints = resolved_types(kind)
    if not typing.is_typeddict(kind):
        # cattrs takes them as they are, and so as texts; attrs.resolve_types does the same to its classes.
        kind.__annotations__.update(hints)
    return hints


def _plain(kind: Any, where: str) -> Any:
    """Return *kind* without names and notes around it."""
    while True:
        if isinstance(kind, str | typing.ForwardRef):
            raise ConfigError(f"{where}: the type {kind!r} is not known; define it in the module of the class")
        if get_origin(kind) is Annotated:
            if any(map(is_mark, kind.__metadata__)):
                raise ConfigError(
                    f"{where} is marked in its annotation, where marks are not seen; assign personal() to it"
                )
            if any(isinstance(note, _OVERRIDE) for note in kind.__metadata__):
                raise ConfigError(
                    f"{where} has an override() of cattrs in its annotation, which changes what is stored; take it "
                    "out, and give the field the name that is stored"
                )
            kind = kind.__origin__
        elif isinstance(kind, NewType):
            kind = kind.__supertype__
        elif get_origin(kind) in _WRAPPERS:
            (kind,) = get_args(kind)
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        else:
            return kind


_OVERRIDE = type(override())
_WRAPPERS = (typing.Required, typing.NotRequired, typing.Final)


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


def _filled(kind: Any, known: dict[Any, Any]) -> Any:
    """Return *kind* with the types of a generic class in it."""
    if isinstance(kind, TypeVar):
        return known.get(kind, kind)
    parameters = getattr(kind, "__parameters__", ())
    if not parameters or not get_args(kind):
        return kind
    return kind[tuple(known.get(one, one) for one in parameters)]


# ---------------------------------------------------------------- what JSON tells apart


def _kinds(kind: Any) -> set[str]:
    """Return what values of *kind* are in JSON: null, bool, int, float, text, other."""
    kind = _plain(kind, "")
    origin = get_origin(kind) or kind
    if origin is Literal:
        return set().union(*(_kinds_of(value) for value in get_args(kind)))
    if origin in (Union, types.UnionType):
        return set().union(*map(_kinds, get_args(kind)))
    if not isinstance(origin, type):
        return {"other"}
    if issubclass(origin, Flag):
        return {"int"}
    if issubclass(origin, Enum):
        return set().union(*(_kinds_of(member.value) for member in origin))
    return _kind_of_class(origin)


def _kinds_of(value: Any) -> set[str]:
    return _kind_of_class(type(value.value if isinstance(value, Enum) else value))


def _kind_of_class(kind: type) -> set[str]:
    if kind is types.NoneType:
        return {"null"}
    for name, base in (("bool", bool), ("int", int), ("float", float), ("text", _TEXTS)):
        if issubclass(kind, base):
            return {name}
    return {"other"}


def _check_union(kind: Any, where: str) -> None:
    members = [_plain(member, where) for member in get_args(kind)]
    found: dict[str, Any] = {}
    for member in members:
        for one in _kinds(member) - {"other", "null"}:
            before = found.setdefault(one, member)
            if before is not member and not (_is_plain(before) and _is_plain(member)):
                raise ConfigError(
                    f"{where}: {_name(before)} and {_name(member)} are the same in JSON, so that one may be read as "
                    "the other; use one type, or a class for each"
                )


def _is_plain(kind: Any) -> bool:
    """Return whether values of *kind* are in JSON as they are."""
    if get_origin(kind) is Literal:
        return all(type(one) in _PLAIN for one in get_args(kind))
    return kind in _PLAIN


_PLAIN = (str, bool, int, float)
