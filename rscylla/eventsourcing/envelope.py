"""Events as they are stored, and as the application sees them. Values: nothing here reads or writes."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Generic, TypeVar

import attrs

from cursorstore.table import check_name

from ..errors import ConfigError

__all__ = ["AggregateID", "Envelope", "EventRecord", "Snapshot"]

E = TypeVar("E")


def milliseconds(at: datetime) -> datetime:
    """Return *at* in UTC and whole milliseconds. Raises ``ConfigError`` if it has no time zone."""
    if at.tzinfo is None:
        raise ConfigError("a time has no time zone; use datetime.now(UTC)")
    # What a column of type timestamp keeps, so that a record that was read equals the one that was appended.
    return at.astimezone(UTC).replace(microsecond=at.microsecond // 1000 * 1000)


def _own(values: Mapping[str, str]) -> dict[str, str]:
    return dict(values)


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@attrs.frozen(order=True)
class AggregateID:
    """The identity of an aggregate, and the partition key of its events. Both parts are texts of 1 to 65535 bytes.

    >>> str(AggregateID("order", "4711"))
    'order/4711'
    """

    type: str
    id: str

    def __attrs_post_init__(self) -> None:
        check_name("the type of an aggregate", self.type)
        check_name("the id of an aggregate", self.id)

    def __str__(self) -> str:
        return f"{self.type}/{self.id}"


@attrs.frozen
class EventRecord:
    """An event as the store keeps it.

    ``version`` is its place among the events of its aggregate: 1, 2, ... without gaps. ``event_id`` is unique; by it,
    an append that is repeated is recognized. ``type`` and ``schema`` say how to decode ``data``, which is JSON text.
    ``at`` is when it happened, in UTC and whole milliseconds: what is finer is cut off. ``causation_id`` names the
    command or event that caused it, ``correlation_id`` what it belongs to, ``user`` who asked for it; "" if there is
    none.
    """

    aggregate: AggregateID
    version: int
    event_id: uuid.UUID
    type: str
    schema: int
    data: str = attrs.field(repr=False)
    at: datetime = attrs.field(converter=milliseconds)
    correlation_id: str = ""
    causation_id: str = ""
    user: str = ""
    metadata: Mapping[str, str] = attrs.field(factory=dict, converter=_own, hash=False)


@attrs.frozen
class Envelope(Generic[E]):
    """An event and the record that it was decoded from, with the fields of the record as its own."""

    event: E
    record: EventRecord

    @property
    def aggregate(self) -> AggregateID:
        return self.record.aggregate

    @property
    def version(self) -> int:
        return self.record.version

    @property
    def event_id(self) -> uuid.UUID:
        return self.record.event_id

    @property
    def type(self) -> str:
        return self.record.type

    @property
    def schema(self) -> int:
        """The schema that the event was stored with; ``event`` has the current one."""
        return self.record.schema

    @property
    def at(self) -> datetime:
        return self.record.at

    @property
    def correlation_id(self) -> str:
        return self.record.correlation_id

    @property
    def causation_id(self) -> str:
        return self.record.causation_id

    @property
    def user(self) -> str:
        return self.record.user

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.record.metadata


@attrs.frozen
class Snapshot:
    """The state of an aggregate after its event ``version``, as JSON text: a shortcut, which may be lost.

    ``schema`` is the number of the state's class: a snapshot with another one is not used. ``commands`` are the ids of
    the last commands before it, oldest first, so that one that comes again is still recognized.
    """

    aggregate: AggregateID
    version: int
    schema: int
    state: str = attrs.field(repr=False)
    commands: tuple[str, ...] = attrs.field(default=(), converter=_texts, repr=False)
