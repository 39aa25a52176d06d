"""``EventMessages``: makes records of events, for ``rscylla.publish.publishing`` and any broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from ..abc import DeadLetters, Message
from ..clock import Clock
from ..errors import ConfigError, UnreadableEvent, is_resumable
from ..event import Event
from ..publish import Messages
from ..reflex import Parked, whole_of
from .envelope import Envelope, EventRecord
from .reading import parking_key, record_of

__all__ = ["EventMessages", "parking_messages"]


class EventMessages:
    """Makes a record of each event, with the aggregate's id as its key, so that a broker keeps the aggregate's order.

    The value is JSON: the members of the envelope, and ``data``, the event as it is stored: personal data stay sealed,
    so a subject that is forgotten here is forgotten there. The headers are event_id, version, type, schema,
    correlation_id, causation_id. A record may come again after a crash: by event_id, or the version, consumers know it.

    Args:
        topic: Returns the topic of an event; default: the type of the aggregate.
        decode: Called with each record, such as ``EventTypes.decode``: what it refuses is not published. Default: only
            the JSON is checked.
    """

    def __init__(
        self,
        topic: Callable[[EventRecord], str] = lambda record: record.aggregate.type,
        *,
        decode: Callable[[EventRecord], Envelope[object]] | None = None,
    ) -> None:
        if not callable(topic):
            raise ConfigError("EventMessages: topic is not callable; pass a function of the record")
        self._topic = topic
        self._decode = decode

    def __call__(self, event: Event) -> Sequence[Message]:
        """Return the record of *event*; none for a change that is not an event.

        Raises:
            UnreadableEvent: it is not an event of an event store, or its data are not JSON, or *decode* refused it.
        """
        record = record_of(event)
        if record is None:
            return ()
        if self._decode is not None:
            self._decode(record)
        return (Message(self._topic(record), record.aggregate.id.encode(), _value(record), _headers(record)),)


def _value(record: EventRecord) -> bytes:
    try:
        data = json.loads(record.data)
    except ValueError as e:
        raise UnreadableEvent(
            f"event {record.version} of {record.aggregate}: its data are not JSON",
            type=record.type,
            schema=record.schema,
        ) from e
    members = {
        "aggregate_type": record.aggregate.type,
        "aggregate_id": record.aggregate.id,
        "version": record.version,
        "event_id": str(record.event_id),
        "type": record.type,
        "schema": record.schema,
        "at": record.at.isoformat(timespec="milliseconds"),
        "correlation_id": record.correlation_id,
        "causation_id": record.causation_id,
        "user": record.user,
        "metadata": dict(record.metadata),
        "data": data,
    }
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(record: EventRecord) -> tuple[tuple[str, bytes], ...]:
    return (
        ("event_id", str(record.event_id).encode()),
        ("version", str(record.version).encode()),
        ("type", record.type.encode()),
        ("schema", str(record.schema).encode()),
        ("correlation_id", record.correlation_id.encode()),
        ("causation_id", record.causation_id.encode()),
    )


class _Parking:
    def __init__(self, name: str, messages: Messages, parked: Parked) -> None:
        self._name = name
        self._messages = messages
        self._parked = parked

    def __call__(self, event: Event) -> Sequence[Message]:
        name = whole_of(self._name)
        if self._parked.takes(name, event):
            return ()
        try:
            return self._messages(event)
        except Exception as error:
            if is_resumable(error):
                raise
            self._parked.put(name, event, error, attempts=1)
        return ()


def parking_messages(
    name: str,
    messages: Messages,
    letters: DeadLetters,
    *,
    park: bool = True,
    clock: Clock | None = None,
) -> Messages:
    """Return *messages*, wrapped so that an event that can never be published becomes a dead letter of *name*.

    Errors that a retry may fix are raised as they are: the lane pauses. A broker that is down is no error at all.

    Args:
        name: That of the ``publishing`` consumer. Its slices share the letters, under its own name.
        letters: Also a ``DeadLetterAdmin`` with *park*, such as ``cursorstore.ScyllaDeadLetters``.
        park: Whether later events of its aggregate become letters, too, until it is replayed or discarded, so that none
            overtakes it. ``rscylla.replay_letters`` replays them in order.

    Raises:
        ConfigError: *letters* cannot list letters, which *park* needs.
    """
    return _Parking(name, messages, Parked(name, letters, parking_key if park else None, clock))
