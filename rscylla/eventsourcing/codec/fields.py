"""The fields of classes, of attrs and dataclasses alike, and the marks that they carry."""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from typing import Any

import attrs

from ...errors import ConfigError
from ..shredding import PLACEHOLDER, SUBJECT

__all__ = ["Field", "Fields", "fields_of", "is_mark", "resolved_types"]


@attrs.frozen
class Field:
    """A field of a class. ``__init__`` takes it if ``init`` is true."""

    name: str
    init: bool
    is_personal: bool
    placeholder: Any


@attrs.frozen
class Fields:
    """The fields of a class, and the name of the one that names the subject; "" if there is none.

    ``stored`` has the names of those that ``__init__`` takes; the others are made again.
    """

    all: tuple[Field, ...]
    subject: str
    stored: frozenset[str] = attrs.field(init=False)

    @stored.default
    def _(self) -> frozenset[str]:
        return frozenset(field.name for field in self.all if field.init)

    @property
    def has_personal(self) -> bool:
        return any(field.is_personal for field in self.all)


def fields_of(cls: Any) -> Fields | None:
    """Return the fields of *cls*; None if it is no class of attrs and no dataclass.

    Raises:
        ConfigError: it names several subjects, or has a mark that would not be seen.
    """
    return _fields_of(cls)


@cache
def _fields_of(cls: Any) -> Fields | None:
    if attrs.has(cls):
        found: list[Any] = list(attrs.fields(cls))
    elif dataclasses.is_dataclass(cls):
        found = list(dataclasses.fields(cls))
    else:
        return None
    fields, subjects = [], []
    for one in found:
        if is_mark(one.default):
            raise ConfigError(
                f"{cls.__name__}.{one.name} is marked, but {cls.__name__} is not a class of attrs, so the mark would "
                "not be seen; decorate it with @attrs.frozen"
            )
        is_personal, is_subject = PLACEHOLDER in one.metadata, SUBJECT in one.metadata
        if is_personal and is_subject:
            raise ConfigError(f"{cls.__name__}.{one.name} names the subject, which stays readable: it is not personal")
        if is_subject:
            subjects.append(one.name)
        fields.append(Field(one.name, one.init, is_personal, one.metadata.get(PLACEHOLDER)))
    if len(subjects) > 1:
        raise ConfigError(f"{cls.__name__} has several subjects: {', '.join(subjects)}; a class is about one")
    return Fields(tuple(fields), *subjects or ("",))


_MARK = type(attrs.field())
"""What ``personal()`` returns: a field, if a class of attrs is made of it."""


def is_mark(value: object) -> bool:
    """Return whether *value* is what ``personal()`` and ``subject()`` return, and no class of attrs took it."""
    return isinstance(value, _MARK)


def resolved_types(cls: type) -> dict[str, Any]:
    """Return the declared types of the fields of *cls*, which may be a TypedDict or a named tuple, by name.

    It is ``Any`` where a class of attrs declares none.

    Raises:
        ConfigError: a name in them is not known.
    """
    try:
        if attrs.has(cls):
            return {field.name: field.type or Any for field in attrs.fields(attrs.resolve_types(cls))}
        return typing.get_type_hints(cls, include_extras=True)
    except NameError as e:
        raise ConfigError(
            f"{cls.__name__}: the name {e.name!r} in the type of a field is not known; define it in the module of the "
            "class"
        ) from e
