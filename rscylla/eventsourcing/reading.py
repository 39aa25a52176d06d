"""Changes of the event table, read as events: what a stream of its log delivers, in the order of each aggregate.

The static ``head`` of an append is a change of its own, and is no event. Anything but an insert was not written by the
store, and is refused.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from .. import _timeuuid as tu
from ..errors import UnreadableEvent
from ..event import Event, Operation
from .envelope import AggregateID, EventRecord

__all__ = ["aggregate_of", "parking_key", "record_of"]

_WRITES = (Operation.INSERT, Operation.UPDATE)


def aggregate_of(event: Event) -> AggregateID:
    """Return the aggregate of a change of the event table: the key whose events are in order. Also of a dead letter's.

    Raises:
        UnreadableEvent: it is not a change of an event table.
    """
    key = event.key
    try:
        return AggregateID(key["aggregate_type"], key["aggregate_id"])
    except (KeyError, ValueError) as e:
        raise _unreadable("a change of another table, or one without its key; read the log of the event table") from e


def parking_key(event: Event) -> AggregateID | None:
    """Return the aggregate whose later events have to wait when *event* is a dead letter: for ``dead_letter(park=)``.

    None for the change of ``head``, which nothing waits for.
    """
    if event.change is not None and _is_head(event, event.change.operation):
        return None
    return aggregate_of(event)


def _is_head(event: Event, operation: int) -> bool:
    return operation in _WRITES and "version" not in event.key


def record_of(event: Event) -> EventRecord | None:
    """Return the record that a change of the event table inserted; None if it is the one of ``head``, which is none.

    *event* comes from a stream of the table, or from a dead letter of it.

    Raises:
        UnreadableEvent: it is not an insert of a whole row: something else has written to the table.
    """
    change = event.change
    if change is None:
        raise _unreadable("an event without a change; use a stream of the event table")
    operation, aggregate = change.operation, aggregate_of(event)
    if _is_head(event, operation):
        return None
    version = event.key.get("version")
    if version is None or operation != Operation.INSERT:
        raise _unreadable(
            f"{Operation(operation).name} of a row of {aggregate}; events are only inserted, so another program has "
            "changed the table"
        )
    row = change.after or {}
    try:
        return EventRecord(
            aggregate,
            int(version),
            _uuid(row["event_id"]),
            row["event_type"],
            int(row["event_schema"]),
            row["data"],
            _time(row["at"]),
            row.get("correlation_id") or "",
            row.get("causation_id") or "",
            row.get("user") or "",
            dict(row.get("metadata") or {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise _unreadable(f"event {version} of {aggregate} lacks a value; it was not written by an event store") from e


def _uuid(value: Any) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)


def _time(value: Any) -> datetime:
    return value if isinstance(value, datetime) else tu.datetime_of(tu.parse_time(value))


def _unreadable(why: str) -> UnreadableEvent:
    return UnreadableEvent(why, type="", schema=0)
