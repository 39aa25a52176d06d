"""Dead letters: events that a consumer could not handle, kept until an operator replays or discards them."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import attrs

from ._integers import parse_int
from .errors import InvalidCursor
from .event import ChangeLike, Event, Operation, cursor_key

__all__ = [
    "CLAIM_S",
    "DEAD",
    "DISCARDED",
    "REPLAYED",
    "STATUSES",
    "DeadLetter",
    "KeptChange",
    "KeptEvent",
    "letter_order",
]

T = TypeVar("T")

DEAD, REPLAYED, DISCARDED = "dead", "replayed", "discarded"
STATUSES = (DEAD, REPLAYED, DISCARDED)
"""The states of a letter: not resolved yet, handled later, or dropped by decision of an operator."""

CLAIM_S = 30
"""Seconds that a claim of a letter lasts after it was made or renewed: a process that dies leaves it for so long."""

MAX_TRACEBACK = 16_000
"""Characters of a traceback that are kept: its end, where the cause is."""


@attrs.frozen
class KeptChange:
    """The change of a stored event, from its metadata.

    Values are JSON values, as ``rscylla.to_json`` produces them: uuids, timestamps, blobs, and decimals are text. For
    the original values, read the event from its log again.
    """

    _fields: Mapping[str, Any] = attrs.field(repr=False)

    @property
    def operation(self) -> int:
        name = str(self._fields["operation"])
        return Operation[name] if name in Operation.__members__ else int(name.rpartition("_")[2])

    @property
    def key(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._fields.get("key") or {}
        return found

    @property
    def before(self) -> Mapping[str, Any] | None:
        return self._fields.get("before")

    @property
    def after(self) -> Mapping[str, Any] | None:
        return self._fields.get("after")

    @property
    def ttl(self) -> int | None:
        return self._fields.get("ttl")

    def as_dict(self) -> Mapping[str, Any]:
        """Return all stored members."""
        return self._fields


@attrs.frozen(repr=False)
class KeptEvent(Event):
    """An event stored outside its stream. Its change, if its metadata contains one, is a ``KeptChange``."""

    id: str
    type: int
    foreign_id: str
    timestamp: datetime
    metadata: bytes = b""
    trace: bytes = b""
    late: bool = False

    @classmethod
    def of(cls, event: Event) -> KeptEvent:
        """Return *event* in its stored form; its metadata and key are computed now, and left empty if that fails."""
        # The part that cannot be computed may be why the consumer failed; it must not prevent the letter.
        return cls(
            event.id,
            _made(lambda: int(event.type), 0),
            _made(lambda: event.foreign_id, ""),
            event.timestamp,
            _made(lambda: bytes(event.metadata), b""),
            _made(lambda: bytes(event.trace), b""),
            _made(lambda: bool(event.late), False),
        )

    @property
    def change(self) -> ChangeLike | None:
        try:
            fields = json.loads(self.metadata, parse_int=parse_int)
        except ValueError:
            return None
        return KeptChange(fields) if isinstance(fields, dict) and "operation" in fields else None


def _storable(text: str) -> str:
    """Return *text* as a database takes it: half surrogates, which broken input leaves in messages, are spelled out."""
    return text.encode(errors="backslashreplace").decode()


def _made(make: Callable[[], T], otherwise: T) -> T:
    try:
        return make()
    except Exception:  # noqa: BLE001 - the event's own code, or the user's event_type=
        return otherwise


@attrs.frozen
class DeadLetter:
    """An event that *consumer* could not handle in *attempts* attempts, and the reason.

    ``error`` is the type of the last error, ``traceback`` its whole text, which may contain row values. ``failed_at``
    and the times of ``audit`` are aware UTC. ``audit`` lists what was done about the letter: time and process, action.
    ``park`` stands for the key that the event parks, "" for none; equal keys have an equal one, which tells no value.
    """

    consumer: str
    event: KeptEvent
    attempts: int
    error: str
    traceback: str = attrs.field(repr=False)
    failed_at: datetime
    status: str = DEAD
    audit: tuple[tuple[str, str], ...] = ()
    park: str = ""

    @classmethod
    def of(
        cls, consumer: str, event: Event, error: Exception, *, attempts: int, failed_at: datetime, park: str = ""
    ) -> DeadLetter:
        """Return the letter for *event*, which failed *attempts* times, the last time with *error*."""
        kind = type(error)
        return cls(
            consumer,
            KeptEvent.of(event),
            attempts,
            kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}",
            _storable("".join(traceback.format_exception(error)))[-MAX_TRACEBACK:],
            failed_at,
            park=park,
        )


def letter_order(event_us: int, event_id: str) -> tuple[int, bool, tuple[int, bytes], str]:
    """Return a key that orders the letters of a consumer as their events came.

    A write may change a row several times, all at one time: what orders these is in their ids, but not as text.
    """
    try:
        return event_us, False, cursor_key(event_id), ""
    except InvalidCursor:  # of another kind of stream
        return event_us, True, (0, b""), event_id
