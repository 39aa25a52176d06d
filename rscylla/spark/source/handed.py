"""A read that ``windows`` planned in the driver: one option of the data source, which has nothing left to plan.

Whoever may write SQL may write the option, too. It is therefore plain JSON, from which only the classes of a plan are
made, by their constructors.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from pyspark.sql.types import StructType

from ...cdc.log import BaseColumn, Lifetimes, LoggedTable, LogWindow, Promise
from ...cdc.read import Span
from ...errors import ConfigError
from ...types import Digits, Type
from .options import Connection
from .reading import SpanRead

__all__ = ["HandedRead"]

_OPTION = "handedread"

_CLASSES = (BaseColumn, Connection, Digits, Lifetimes, LoggedTable, LogWindow, Promise, SpanRead, Type)

_MADE: dict[str, Callable[..., Any]] = {
    "bytes": bytes.fromhex,
    "dict": dict,
    "UUID": uuid.UUID,
    "StructType": lambda text: StructType.fromJson(json.loads(text)),
    **{c.__name__: c for c in _CLASSES},
}
"""What an object of the JSON stands for, by its only name; its value has the arguments."""

_FORM = hashlib.blake2b(repr([attrs.fields_dict(c).keys() for c in _CLASSES]).encode(), digest_size=4).hexdigest()
"""What the JSON begins with: it is the same for versions of rscylla that read it alike."""


@attrs.frozen
class HandedRead:
    """How the executors read, and the spans that they read, which differ in their windows and streams alone."""

    read: SpanRead = attrs.field(validator=attrs.validators.instance_of(SpanRead))
    spans: tuple[Span, ...]

    def options(self) -> dict[str, str]:
        """Return the options of the data source for this read. The password is one of its own, which Spark hides."""
        connection, first = self.read.connection, self.spans[0]
        secret = {} if connection.password is None else {"password": connection.password}
        connection = attrs.evolve(connection, password=None)
        read = attrs.evolve(self.read, connection=connection)
        spans = [(s.window, " ".join(map(bytes.hex, s.streams)), s.part, s.parts) for s in self.spans]
        told = json.dumps((read, first.table, first.after, first.promise, spans), default=_plain)
        return {**secret, _OPTION: f"{_FORM} {told}"}

    @classmethod
    def given(cls, options: Mapping[str, str]) -> HandedRead | None:
        """Return the read that *options* hand over, or None.

        Raises:
            ConfigError: the option is not what ``windows`` of this version wrote.
        """
        lower = {name.lower(): value for name, value in options.items()}
        if _OPTION not in lower:
            return None
        form, _, told = lower[_OPTION].partition(" ")
        try:
            if form != _FORM:
                raise ValueError("a plan of another version")
            read, table, after, promise, spans = _tuples(json.loads(told, object_hook=_made))
            connection = attrs.evolve(read.connection, password=lower.get("password"))
            return cls(
                attrs.evolve(read, connection=connection),
                tuple(
                    Span(table, window, tuple(map(bytes.fromhex, streams.split())), after, promise, part, parts)
                    for window, streams, part, parts in spans
                ),
            )
        except Exception as e:  # constructors may raise anything
            raise ConfigError(
                f"option {_OPTION} is for windows() alone, and of one version of rscylla; omit it, or install the same "
                "version in the driver and for all of Spark's Python workers"
            ) from e


def _plain(value: Any) -> Any:
    """Return the JSON of what is not a JSON value itself."""
    match value:
        case bytes():
            told: Any = [value.hex()]
        case uuid.UUID():
            told = [value.hex]
        case StructType():
            told = [value.json()]
        case _:
            fields = (getattr(value, field.name) for field in attrs.fields(type(value)))
            told = [{"dict": [[*f.items()]]} if isinstance(f, Mapping) else f for f in fields]
    return {type(value).__name__: told}


def _made(told: dict[str, Any]) -> Any:
    [(name, arguments)] = told.items()
    return _MADE[name](*_tuples(arguments))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
