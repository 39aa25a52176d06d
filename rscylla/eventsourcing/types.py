"""The types of events: classes with names and schema numbers, as JSON text and back.

An event is stored with the name and schema number of its class. When the class changes so that old data do not fit, it
gets the next number, and a function that converts data of the old one. Stored events are never changed: they are
converted, step by step, each time they are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, overload

import attrs

from ..errors import ConfigError, UnreadableEvent
from .codec import Codec, quietly
from .envelope import Envelope, EventRecord
from .shredding import PersonalData

__all__ = ["EventTypes", "Upcaster"]

T = TypeVar("T")

_PLAIN = (dict, list, tuple, set, frozenset, deque, type(None), object, Any)

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts the data of an event, as JSON has them, to the next schema. Pure; must not fail for data of its schema."""


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
    """

    def __init__(self, *, personal: PersonalData | None = None) -> None:
        self._codec = Codec(personal)
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
            ConfigError: the class or the name is registered already, or the class is not one of attrs; or a type of its
                fields can be ambiguous in JSON, says nothing of its values, or hides them from the sealing.
        """
        if cls is None:
            return lambda decorated: self.register(decorated, name=name, schema=schema)
        name = name or cls.__name__
        if not isinstance(cls, type) or not attrs.has(cls):
            raise ConfigError(f"{name} is not a class of attrs; decorate it with @attrs.frozen")
        if schema < 1:
            raise ConfigError(f"{name}: schemas are counted from 1, not {schema}")
        if name in self._by_name or cls in self._by_class:
            raise ConfigError(f"the event type {name} or its class is registered already")
        kind = _Kind(cls, name, schema, self._codec.check(cls.__name__, cls).has_personal)
        self._by_class[cls] = self._by_name[name] = kind
        return cls

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
        """Return the name, the schema, and the JSON text of *event*, which ``decode`` makes the same event of.

        Raises:
            ConfigError: its class is not registered, or it would be read as another event: a value is not of the type
                that its field declares, or JSON does not have it.
            SubjectForgotten: it has personal data of a subject that was forgotten.
        """
        kind = self._by_class.get(type(event))
        if kind is None:
            raise ConfigError(f"{type(event).__name__} is not registered as a type of event; use EventTypes.register")
        return kind.name, kind.schema, self._codec.dump(kind.name, kind.cls, event)

    def decode(self, record: EventRecord) -> Envelope[Any]:
        """Return the event of *record*, converted to the schema of its class, with the record around it.

        Raises:
            UnreadableEvent: its type or schema is unknown, or its data do not fit.
            Others: those of the keys of personal data.
        """
        event = quietly(
            lambda: self._decoded(record),
            lambda: _unreadable(record, "has data that are not of its type; see the cause"),
        )
        return Envelope(event, record)

    def _decoded(self, record: EventRecord) -> Any:
        name, schema = record.type, record.schema
        raw = self._codec.opened(name, record.data)
        for _ in range(len(self._upcasters) + 1):
            kind = self._by_name.get(name)
            if kind is not None and kind.schema == schema:
                return self._codec.structured(kind.cls, raw)
            step = self._upcasters.get((name, schema))
            if step is None:
                break
            name, schema, function = step
            raw = function(raw)
        why = "is of an unknown type or schema" if kind is None or schema > kind.schema else "has no upcaster"
        raise _unreadable(record, f"{why}; use a version of the application that knows it")

    # ------------------------------------------------------------ states

    def check_state(self, name: str, cls: Any, state: object) -> None:
        """Raise ``ConfigError`` if states of type *cls*, such as *state*, cannot be kept in snapshots.

        A plain type, such as ``dict``, says nothing of what it holds. Where events have personal data, texts of a state
        have to be in fields of classes, for only these can be marked; keys of a mapping stay readable.
        """
        self._check_state(name, cls)
        self._codec.prove(f"state of {name}", cls, state)

    def _check_state(self, name: str, cls: Any) -> None:
        if cls in _PLAIN:
            raise ConfigError(
                f"the state of {name} is a plain {getattr(cls, '__name__', cls)}, which does not say what it holds; "
                "pass Aggregate(state_type=...), such as dict[str, int]"
            )
        checked = self._codec.check(f"state of {name}", cls)
        if checked.has_plain_text and any(kind.is_personal for kind in self._by_class.values()):
            raise ConfigError(
                f"the state of {name} has texts outside of classes, and events have personal data; make the state a "
                "class of attrs, and mark what is personal in it"
            )

    def encode_state(self, name: str, state: object, cls: Any = None) -> str:
        """Return *state* as JSON text, with personal fields sealed, which ``decode_state`` makes the same state of.

        Args:
            name: That of the aggregate.
            cls: The type of the state, such as ``dict[int, Seat]``; default: its class.

        Raises:
            ConfigError: it would be read as another state.
            SubjectForgotten: it has personal data of a subject that was forgotten.
        """
        kind = type(state) if cls is None else cls
        self._check_state(name, kind)
        return self._codec.dump(f"state of {name}", kind, state)

    def decode_state(self, name: str, cls: Any, text: str) -> Any:
        """Return the state of type *cls* that ``encode_state`` returned the text of.

        Raises:
            UnreadableEvent: the text is not one of such a state.
        """
        return quietly(
            lambda: self._codec.loaded(f"state of {name}", cls, text),
            lambda: UnreadableEvent(f"a snapshot of {name} is not one of its state", type=name, schema=0),
        )


def _unreadable(record: EventRecord, why: str) -> UnreadableEvent:
    return UnreadableEvent(
        f"event {record.version} of {record.aggregate}, type {record.type}, schema {record.schema}: it {why}",
        type=record.type,
        schema=record.schema,
    )
