"""The types of events: classes with names and schema numbers, as JSON text and back; the only door to ``cattrs``.

An event is stored with the name and schema number of its class. When the class changes so that old data do not fit, it
gets the next number, and a function that converts data of the old one. Stored events are never changed: they are
converted, step by step, each time they are read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar, get_args, overload

import attrs
from cattrs import Converter
from cattrs.preconf.json import make_converter

from ..errors import ConfigError, RscyllaError, UnreadableEvent
from .envelope import Envelope, EventRecord
from .shredding import SEALED, PersonalData, has_personal, placeholder_of

__all__ = ["EventTypes", "Upcaster", "json_converter"]

T = TypeVar("T")

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts the data of an event, as JSON has them, to the next schema. Pure; must not fail for data of its schema."""


def json_converter() -> Converter:
    """Return a converter between classes and what JSON has, which accepts no value of another type.

    Times are texts in ISO 8601, ``Decimal`` and ``UUID`` are texts. Attributes that a class does not have are ignored.
    """
    converter: Converter = make_converter(forbid_extra_keys=False)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _number)
    for text in (Decimal, uuid.UUID):
        converter.register_unstructure_hook(text, str)
        converter.register_structure_hook(text, lambda value, kind: kind(_text(value)))
    for moment in (datetime, date):
        converter.register_unstructure_hook(moment, lambda value: value.isoformat())
        converter.register_structure_hook(moment, lambda value, kind: kind.fromisoformat(_text(value)))
    return converter


def _exactly(kind: type) -> Callable[[Any, Any], Any]:
    def same(value: Any, wanted: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"a {type(value).__name__} instead of a {kind.__name__}")
        # The hook of a class serves its subclasses, too, such as enumerations of texts.
        return value if wanted is kind else wanted(value)

    return same


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"a {type(value).__name__} instead of a float")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} instead of a text")
    return value


def _has_personal_field(cls: type) -> bool:
    return any(placeholder_of(field) for field in attrs.fields(cls))


@cache
def _classes_in(cls: type) -> list[type]:
    """Return *cls* and all classes of attrs in the types of its fields, however deep."""
    found: dict[type, None] = {}
    waiting: list[Any] = [cls]
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        if isinstance(kind, type) and attrs.has(kind) and kind not in found:
            found[kind] = None
            waiting += [field.type for field in attrs.fields(attrs.resolve_types(kind))]
    return list(found)


@attrs.frozen
class _Kind:
    cls: type
    name: str
    schema: int
    is_personal: bool


class EventTypes:
    """Classes of events and how they are stored. Thread-safe once all are registered.

    ::

        events = EventTypes()

        @events.register(schema=2)
        @attrs.frozen
        class OrderPlaced:
            order_id: str
            lines: tuple[Line, ...]

        @events.upcaster("OrderPlaced", 1)
        def _(data: dict[str, Any]) -> dict[str, Any]:
            return {"order_id": data["order"], "lines": data["lines"]}

    Args:
        personal: Seals and opens personal fields; needed where a class has any.
        converter: Between classes and what JSON has; default: ``json_converter()``.
    """

    def __init__(self, *, personal: PersonalData | None = None, converter: Converter | None = None) -> None:
        self._personal = personal
        self._converter = converter or json_converter()
        self._by_class: dict[type, _Kind] = {}
        self._by_name: dict[str, _Kind] = {}
        self._upcasters: dict[tuple[str, int], tuple[str, int, Upcaster]] = {}

    @overload
    def register(self, cls: type[T], /, *, name: str | None = None, schema: int = 1) -> type[T]: ...
    @overload
    def register(
        self, cls: None = None, /, *, name: str | None = None, schema: int = 1
    ) -> Callable[[type[T]], type[T]]: ...
    def register(self, cls: type[Any] | None = None, /, *, name: str | None = None, schema: int = 1) -> Any:
        """Register an attrs class as a type of event. Also a decorator.

        Args:
            name: What is stored; default: the name of the class. A class that is renamed keeps its old name here.
            schema: The number of its schema, from 1. Give the class the next one when old data do not fit any more.

        Raises:
            ConfigError: the class or the name is registered already, or the class is not one of attrs, or its personal
                fields cannot be sealed.
        """
        if cls is None:
            return lambda decorated: self.register(decorated, name=name, schema=schema)
        name = name or cls.__name__
        if not attrs.has(cls):
            raise ConfigError(f"{cls.__name__} is not a class of attrs; decorate it with @attrs.frozen")
        if schema < 1:
            raise ConfigError(f"{name}: schemas are counted from 1, not {schema}")
        if name in self._by_name or cls in self._by_class:
            raise ConfigError(f"the event type {name} or its class is registered already")
        kind = _Kind(cls, name, schema, self._check_personal(cls))
        self._by_class[cls] = self._by_name[name] = kind
        return cls

    def _check_personal(self, cls: type) -> bool:
        if not has_personal(cls):
            inner = next(filter(_has_personal_field, _classes_in(cls)), None)
            if inner is not None:
                raise ConfigError(
                    f"{cls.__name__} has personal fields in {inner.__name__}, but no subject(); mark the field that "
                    "names the person"
                )
            return False
        if self._personal is None:
            raise ConfigError(f"{cls.__name__} has personal fields; pass EventTypes(personal=PersonalData(keys))")
        for field in attrs.fields(attrs.resolve_types(cls)):
            if placeholder := placeholder_of(field):
                try:
                    self._converter.structure(placeholder[0], field.type or Any)
                except Exception as e:
                    raise ConfigError(
                        f"the placeholder of {cls.__name__}.{field.name} is not a value of its type; pass "
                        "personal(placeholder=...)"
                    ) from e
        return True

    def upcaster(self, name: str, schema: int, *, to: tuple[str, int] | None = None) -> Callable[[Upcaster], Upcaster]:
        """Return a decorator for the function that converts data of *name* and *schema* to those of *to*.

        Args:
            to: name and schema of the result; default: the same name, and the next schema.

        Raises:
            ConfigError: there is one already.
        """
        if (name, schema) in self._upcasters:
            raise ConfigError(f"there is already an upcaster of {name}, schema {schema}")
        target = to or (name, schema + 1)

        def decorate(function: Upcaster) -> Upcaster:
            self._upcasters[name, schema] = (*target, function)
            return function

        return decorate

    def encode(self, event: object) -> tuple[str, int, str]:
        """Return the name, the schema, and the JSON text of *event*.

        Raises:
            ConfigError: its class is not registered, or it has a value that JSON does not have.
            SubjectForgotten: it has personal data of a subject that was forgotten.
        """
        kind = self._by_class.get(type(event))
        if kind is None:
            raise ConfigError(f"{type(event).__name__} is not registered as a type of event; use EventTypes.register")
        return kind.name, kind.schema, self._dumped(kind.name, event, is_personal=kind.is_personal)

    def decode(self, record: EventRecord) -> Envelope[Any]:
        """Return the event of *record*, converted to the schema of its class, with the record around it.

        Raises:
            UnreadableEvent: its type or schema is unknown, or its data do not fit.
            Others: those of the keys of personal data.
        """
        name, schema = record.type, record.schema
        try:
            raw = self._loaded(name, record.data)
            for _ in range(len(self._upcasters) + 1):
                kind = self._by_name.get(name)
                if kind is not None and kind.schema == schema:
                    return Envelope(self._converter.structure(raw, kind.cls), record)
                step = self._upcasters.get((name, schema))
                if step is None:
                    break
                name, schema, function = step
                raw = function(raw)
        except RscyllaError:
            raise
        except Exception as e:
            raise self._unreadable(record, "has data that are not of its type; see the cause") from e
        why = "is of an unknown type or schema" if kind is None or schema > kind.schema else "has no upcaster"
        raise self._unreadable(record, f"{why}; use a version of the application that knows it")

    def _unreadable(self, record: EventRecord, why: str) -> UnreadableEvent:
        return UnreadableEvent(
            f"event {record.version} of {record.aggregate}, type {record.type}, schema {record.schema}: it {why}",
            type=record.type,
            schema=record.schema,
        )

    # ------------------------------------------------------------ states

    def encode_state(self, name: str, state: object) -> str:
        """Return *state* as JSON text, with personal fields sealed. *name* is that of the aggregate.

        Raises:
            ConfigError: it has a value that JSON does not have.
            SubjectForgotten: it has personal data of a subject that was forgotten.
        """
        is_personal = attrs.has(type(state)) and self._check_personal(type(state))
        return self._dumped(f"state of {name}", state, is_personal=is_personal)

    def decode_state(self, name: str, cls: type[T], text: str) -> T:
        """Return the state that ``encode_state`` returned the text of.

        Raises:
            UnreadableEvent: the text is not one of such a state.
        """
        try:
            raw = self._loaded(f"state of {name}", text)
            state: T = self._converter.structure(raw, cls)
        except RscyllaError:
            raise
        except Exception as e:
            raise UnreadableEvent(f"a snapshot of {name} is not one of its state", type=name, schema=0) from e
        return state

    # ------------------------------------------------------------ text

    def _dumped(self, name: str, value: object, *, is_personal: bool) -> str:
        raw = self._converter.unstructure(value)
        if is_personal:
            assert self._personal is not None
            self._personal.seal(name, value, raw)
        try:
            return json.dumps(raw, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as e:
            raise ConfigError(f"{name} has a value that JSON does not have; see the cause") from e

    def _loaded(self, name: str, text: str) -> Any:
        raw = json.loads(text)
        if self._personal is not None and isinstance(raw, dict):
            self._personal.open(name, raw)
        elif isinstance(raw, dict):
            raw.pop(SEALED, None)  # without keys, a reader has the placeholders
        return raw
