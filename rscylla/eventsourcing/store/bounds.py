"""What all event stores refuse before they write."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import attrs

from ...errors import ConfigError, VersionConflict
from ..envelope import AggregateID, EventRecord

__all__ = ["Bounds", "conflict", "content"]

_ROW = 100
"""Bytes of a row besides its texts, about."""


@attrs.frozen
class Bounds:
    """How much one append may have. Scylla refuses batches of 1 MB, and warns of those of 128 kB."""

    events: int = 100
    bytes: int = 500_000

    def __attrs_post_init__(self) -> None:
        if min(self.events, self.bytes) < 1:
            raise ConfigError("max_events and max_bytes must be 1 or more")

    def check(self, records: Sequence[EventRecord]) -> tuple[AggregateID, int]:
        """Return the aggregate of *records*, and the version that it must have before them.

        Raises:
            ConfigError: they cannot be appended; see ``EventStore.append``.
        """
        if not records:
            raise ConfigError("there are no events to append")
        aggregate, first = records[0].aggregate, records[0].version
        if first < 1:
            raise ConfigError(f"{aggregate}: the first version is 1, not {first}")
        for n, record in enumerate(records):
            if record.aggregate != aggregate:
                raise ConfigError(
                    f"an append of events of {aggregate} and of {record.aggregate}; append to one aggregate at a time, "
                    "because no write spans two"
                )
            if record.version != first + n:
                raise ConfigError(
                    f"{aggregate}: the versions to append are not one after the other: {record.version} follows "
                    f"{first + n - 1}"
                )
        if len(records) > self.events:
            raise ConfigError(f"{aggregate}: {len(records)} events in one append, at most {self.events} are allowed")
        size = sum(map(_size, records))
        if size > self.bytes:
            raise ConfigError(
                f"{aggregate}: an append of {size} bytes, at most {self.bytes} are allowed; keep large data elsewhere, "
                "and refer to them in the event"
            )
        return aggregate, first - 1


def _size(record: EventRecord) -> int:
    aggregate = record.aggregate
    texts = (aggregate.type, aggregate.id, record.type, record.data, record.correlation_id, record.causation_id)
    try:
        every = chain(texts, (record.user,), chain.from_iterable(record.metadata.items()))
        return _ROW + sum(len(text.encode()) for text in every)
    except (UnicodeEncodeError, AttributeError) as e:
        raise ConfigError(f"{aggregate}: event {record.version} has a value that is not a valid text") from e


def content(record: EventRecord) -> tuple[Any, ...]:
    """Return what makes an event that is there the same as *record*: not its id alone."""
    return record.event_id, record.type, record.schema, record.data


def conflict(aggregate: AggregateID, expected: int, actual: int) -> VersionConflict:
    """Return the error of an append that expects another version than the aggregate has."""
    return VersionConflict(
        f"{aggregate} has version {actual}, and not {expected}; load it again, and decide again",
        expected=expected,
        actual=actual,
    )
