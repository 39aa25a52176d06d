"""Dates and timestamps in years that Python's calendar lacks have one text, from which they are read again."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from cassandra.cqltypes import DateType
from cassandra.util import Date
from hypothesis import given
from hypothesis import strategies as st

from rscylla.types import decoder_for, encoder_for, parse_type
from rscylla.types.json import dumps, dumps_key
from rscylla.types.moments import FarTime, date_text, parse_days
from rscylla.types.natives import decode_timestamp

TIMESTAMP, DATE = parse_type("timestamp"), parse_type("date")
FIRST_MS, END_MS = -62_135_596_800_000, 253_402_300_800_000


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (2**63 - 1, "+292278994-08-17T07:12:55.807Z"),
        (-(2**63), "-292275055-05-16T16:47:04.192Z"),
        (END_MS, "+10000-01-01T00:00:00Z"),
        (END_MS + 500, "+10000-01-01T00:00:00.5Z"),
        (END_MS - 1, "9999-12-31T23:59:59.999Z"),
        (FIRST_MS, "0001-01-01T00:00:00Z"),
        (FIRST_MS - 1, "0000-12-31T23:59:59.999Z"),
        (-62_167_219_200_001, "-0001-12-31T23:59:59.999Z"),
    ],
)
def test_a_timestamp_is_the_text_that_java_has_for_it(ms: int, text: str) -> None:
    cell = ms.to_bytes(8, "big", signed=True)
    for decode in (decoder_for(TIMESTAMP), decode_timestamp):
        value = decode(cell)
        assert json.loads(dumps(value)) == text
        assert json.loads(dumps_key({"k": value})) == {"k": text}
        assert json.loads(dumps({"deep": [{"x": (value,)}, {value}]})) == {"deep": [{"x": [text]}, [text]]}
    assert encoder_for(TIMESTAMP)(text) == cell


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (2**31 - 1, "+5881580-07-11"),
        (-(2**31), "-5877641-06-23"),
        (2_932_897, "+10000-01-01"),
        (2_932_896, "9999-12-31"),
        (-719_162, "0001-01-01"),
        (-719_163, "0000-12-31"),
        (-719_529, "-0001-12-31"),
        (0, "1970-01-01"),
    ],
)
def test_a_date_is_the_text_that_java_has_for_it(days: int, text: str) -> None:
    cell = (days + 2**31).to_bytes(4, "big")
    assert json.loads(dumps(decoder_for(DATE)(cell))) == text
    assert encoder_for(DATE)(text) == cell


@given(st.integers(-(2**63), 2**63 - 1))
def test_each_timestamp_comes_back_and_both_twins_have_it(ms: int) -> None:
    cell = ms.to_bytes(8, "big", signed=True)
    one, other = decoder_for(TIMESTAMP)(cell), decode_timestamp(cell)
    assert (type(one), one) == (type(other), other)
    assert isinstance(one, FarTime) is not (FIRST_MS <= ms < END_MS)
    assert encoder_for(TIMESTAMP)(json.loads(dumps(one))) == cell
    assert pickle.loads(pickle.dumps(one)) == one
    assert DateType.serialize(one, 4) == cell  # bound by the driver


@given(st.integers(-(2**31), 2**31 - 1))
def test_each_date_comes_back(days: int) -> None:
    assert parse_days(date_text(days)) == days
    assert encoder_for(DATE)(json.loads(dumps(Date(days)))) == (days + 2**31).to_bytes(4, "big")


def test_a_far_time_is_its_milliseconds() -> None:
    value: Any = decode_timestamp(END_MS.to_bytes(8, "big", signed=True))
    assert (value, hash(value), value + 1) == (END_MS, hash(END_MS), END_MS + 1)
    assert encoder_for(TIMESTAMP)(END_MS) == END_MS.to_bytes(8, "big", signed=True)


@pytest.mark.parametrize("text", ["", "+10000", "+10000-13-01T00:00:00Z", "+999999999-01-01T00:00:00Z", "0000-12-31"])
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        encoder_for(TIMESTAMP)(text)


@pytest.mark.parametrize("text", ["", "+10000", "+10000-02-30", "+99999999-01-01", "tomorrow"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        encoder_for(DATE)(text)
