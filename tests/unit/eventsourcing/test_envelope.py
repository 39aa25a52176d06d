"""Ids of aggregates, records, envelopes, and ranges of tokens."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest

from rscylla.errors import ConfigError
from rscylla.eventsourcing import AggregateID, Envelope, EventRecord

ORDER = AggregateID("order", "1")
EVENT_ID = uuid.UUID("11111111-2222-5333-8444-555555555555")


def record(at: datetime) -> EventRecord:
    return EventRecord(ORDER, 1, EVENT_ID, "Placed", 1, "{}", at)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("", "1"),
        ("order", ""),
        (None, "1"),
        ("order", 1),
        ("order", "\ud83d"),
        ("\ud83d", "1"),
        ("order", "x" * 65_536),
    ],
)
def test_both_parts_of_an_id_are_texts(kind: str, name: str) -> None:
    with pytest.raises(ConfigError, match="of an aggregate must be text of 1 to 65535 bytes"):
        AggregateID(kind, name)


def test_the_time_of_a_record_is_in_utc_and_whole_milliseconds() -> None:
    at = datetime(2026, 11, 21, 12, 0, 0, 123_999, tzinfo=timezone(timedelta(hours=2)))
    assert record(at).at == datetime(2026, 11, 21, 10, 0, 0, 123_000, tzinfo=UTC)
    assert record(at).at.tzinfo is UTC
    with pytest.raises(ConfigError, match="no time zone"):
        record(at.replace(tzinfo=None))


def test_an_envelope_has_the_fields_of_its_record() -> None:
    one = record(datetime(2026, 11, 21, tzinfo=UTC))
    found = Envelope("an event", one)
    for name in EventRecord.__slots__:
        if name not in ("data", "__weakref__"):
            assert getattr(found, name) == getattr(one, name)
