"""Time arithmetic, against a naive model that shares no code with it: ``uuid.UUID``, ``Fraction`` and tuples."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rscylla import _timeuuid as tu

MIN_US = tu.us_of(datetime(1, 1, 1, tzinfo=UTC))
MAX_US = tu.us_of(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
UUID_MIN_US = tu.us_of(datetime(1582, 10, 15, tzinfo=UTC))
UUID_MAX_US = ((1 << 60) - 1 - 0x01B21DD213814000) // 10

raws = st.binary(min_size=16, max_size=16)
times = st.integers(MIN_US, MAX_US)
zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def model_ticks(raw: bytes) -> int:
    return uuid.UUID(bytes=raw).time


def model_order(raw: bytes) -> tuple[int, tuple[int, ...]]:
    """The database's order: time first, then the last eight bytes as signed numbers."""
    return model_ticks(raw), tuple(byte - 256 if byte > 127 else byte for byte in raw[8:])


def model_us(moment: datetime) -> int:
    days = moment.astimezone(UTC).toordinal() - datetime(1970, 1, 1).toordinal()
    clock = moment.astimezone(UTC)
    return ((days * 24 + clock.hour) * 60 + clock.minute) * 60_000_000 + clock.second * 1_000_000 + clock.microsecond


@given(raws)
def test_ticks_are_those_of_the_standard_library(raw: bytes) -> None:
    assert tu.ticks_of(raw) == model_ticks(raw)


@given(raws, raws)
def test_the_key_orders_as_the_database_does(left: bytes, right: bytes) -> None:
    keys, models = [tu.order_key(left), tu.order_key(right)], [model_order(left), model_order(right)]
    assert (keys[0] < keys[1], keys[0] == keys[1]) == (models[0] < models[1], models[0] == models[1])


@given(st.uuids(version=1))
def test_the_key_holds_the_whole_timeuuid(value: uuid.UUID) -> None:
    assert tu.of_order_key(tu.order_key(value.bytes)) == value.bytes


@given(raws, raws, raws)
def test_ties_of_time_are_ordered_by_signed_bytes(head: bytes, left: bytes, right: bytes) -> None:
    left, right = head[:8] + left[8:], head[:8] + right[8:]
    assert (tu.order_key(left) < tu.order_key(right)) == (model_order(left)[1] < model_order(right)[1])
    assert (tu.order_low(left) < tu.order_low(right)) == (model_order(left)[1] < model_order(right)[1])


@given(raws)
def test_the_version_nibble_does_not_take_part(raw: bytes) -> None:
    other = raw[:6] + bytes([raw[6] ^ 0xF0]) + raw[7:]
    assert tu.order_key(other) == tu.order_key(raw)


@given(st.integers(UUID_MIN_US, UUID_MAX_US), raws)
def test_the_smallest_timeuuid_of_a_microsecond_is_the_smallest(us: int, raw: bytes) -> None:
    smallest = tu.min_timeuuid(us)
    assert smallest.time == Fraction(us) * 10 + 0x01B21DD213814000
    assert smallest.bytes[6] >> 4 == 1
    # Any other timeuuid of that time, or of a later one, is not before it.
    same_time = smallest.bytes[:8] + raw[8:]
    assert model_order(smallest.bytes) <= model_order(same_time)
    assert tu.order_key(smallest.bytes) <= tu.order_key(same_time)


def test_the_smallest_low_half_is_the_documented_one() -> None:
    assert str(tu.min_timeuuid(0)) == "13814000-1dd2-11b2-8080-808080808080"


def test_a_known_timeuuid() -> None:
    raw = uuid.UUID("ddea0820-7057-11eb-c419-1f717873d8fa").bytes
    assert tu.ticks_to_us(tu.ticks_of(raw)) == model_us(datetime(2021, 2, 16, 13, 7, 5, 250_000, tzinfo=UTC))


@given(times)
def test_ticks_and_microseconds_are_exact_both_ways(us: int) -> None:
    assert tu.ticks_to_us(tu.us_to_ticks(us)) == us
    assert tu.us_to_ticks(us) - tu.us_to_ticks(0) == Fraction(us) * 10


@given(st.integers(0, (1 << 60) - 1))
def test_ticks_are_rounded_down(ticks: int) -> None:
    us = tu.ticks_to_us(ticks)
    assert us <= Fraction(ticks - tu.us_to_ticks(0), 10) < us + 1


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31), timezones=zones))
def test_datetimes_are_exact_in_every_zone(moment: datetime) -> None:
    assert tu.us_of(moment) == model_us(moment)
    assert tu.datetime_of(tu.us_of(moment)) == moment
    assert tu.datetime_of(tu.us_of(moment)).tzinfo is UTC


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="without time zone"):
        tu.us_of(datetime(2026, 11, 21))


def model_text(us: int) -> str:
    """RFC 3339 as Go writes it, put together digit by digit."""
    moment = datetime(1970, 1, 1) + timedelta(microseconds=us)
    parts = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
    parts += f"T{moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}"
    digits = f"{moment.microsecond:06d}"
    while digits.endswith("0"):
        digits = digits[:-1]
    return parts + ("." + digits if digits else "") + "Z"


@given(times)
def test_times_are_written_as_go_writes_them_and_read_back(us: int) -> None:
    assert tu.format_time(us) == model_text(us)
    assert tu.parse_time(tu.format_time(us)) == us


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
        (datetime(999, 12, 31, 23, 59, 59, 1, tzinfo=UTC), "0999-12-31T23:59:59.000001Z"),
        (datetime(1000, 1, 1, tzinfo=UTC), "1000-01-01T00:00:00Z"),
        (datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC), "1969-12-31T23:59:59.5Z"),
        (datetime(2021, 2, 16, 12, 0, 43, 100_000, tzinfo=UTC), "2021-02-16T12:00:43.1Z"),
    ],
)
def test_times_at_the_edges(moment: datetime, text: str) -> None:
    assert tu.format_time(model_us(moment)) == text
    assert tu.parse_time(text) == model_us(moment)


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31), timezones=zones))
def test_times_of_any_zone_are_read(moment: datetime) -> None:
    assert tu.parse_time(moment.isoformat()) == model_us(moment)


@given(times, st.integers(0, 999))
def test_digits_below_the_microsecond_are_cut_off(us: int, nanoseconds: int) -> None:
    second, fraction = divmod(us, 1_000_000)
    text = tu.format_time(second * 1_000_000).removesuffix("Z")
    assert tu.parse_time(f"{text}.{fraction:06d}{nanoseconds:03d}Z") == us


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-21",
        "2026-11-21T10:00:05",
        "2026-11-21 10:00:05Z",
        "2026-11-21T10:00:05.Z",
        "2026-11-21T10:00:05.1234567890Z",
        "2026-13-21T10:00:05Z",
        "2026-11-21T25:00:05Z",
        "2026-11-21T10:00:05z",
        "2026-11-21T10:00:05Z\n",
        "٢٠٢٦-11-21T10:00:05Z",
        "2026-11-21T10:00:05+0100",
    ],
)
def test_text_that_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        tu.parse_time(text)
