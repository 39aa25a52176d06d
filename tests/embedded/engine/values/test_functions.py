"""CQL functions: the choice of the signature, the results, and the conversions of CAST."""

from __future__ import annotations

import datetime as dt
import math
import threading
import uuid
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rscylla.embedded.cql import ast
from rscylla.embedded.cql.parser import parse
from rscylla.embedded.engine.values.functions import FUNCTIONS, CallContext, cast_function, find_function
from rscylla.embedded.errors import InvalidRequest
from rscylla.embedded.types import (
    ASCII,
    BIGINT,
    BLOB,
    BOOLEAN,
    COUNTER,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INET,
    INT,
    NATIVE_TYPES,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMEUUID,
    TINYINT,
    UUID,
    VARINT,
    ListType,
    term_bytes,
    timeuuid,
)

NOW_US = 1_795_255_205_123_456  # 2026-11-21 10:00:05.123456 UTC
UUID_AT_NOW = uuid.UUID(bytes=timeuuid.from_ticks(NOW_US * 10 + timeuuid.EPOCH_TICKS + 7, b"\xbf" * 8))
CONTEXT = CallContext(NOW_US)


def call(source: str, *arguments: bytes | None, context: CallContext = CONTEXT) -> object:
    """Return the decoded result of a call as written, with the values of its markers or columns in *arguments*."""
    statement = parse(f"INSERT INTO t (a) VALUES ({source})")
    assert isinstance(statement, ast.Insert)
    written = statement.values[0]
    function = find_function(written.name, written.args, keyspace=written.keyspace)
    result = function.call(context, arguments)
    return None if result is None else function.result.decode(result)


# ---------------------------------------------------------------- time


@pytest.mark.parametrize(
    ("name", "argument", "value", "expected"),
    [
        ("dateof", TIMEUUID, UUID_AT_NOW, NOW_US // 1000),
        ("unixtimestampof", TIMEUUID, UUID_AT_NOW, NOW_US // 1000),
        ("totimestamp", TIMEUUID, UUID_AT_NOW, NOW_US // 1000),
        ("totimestamp", DATE, 20778, 20778 * 86_400_000),
        ("todate", TIMEUUID, UUID_AT_NOW, 20778),
        ("todate", TIMESTAMP, NOW_US // 1000, 20778),
        ("todate", TIMESTAMP, -1, -1),
        ("tounixtimestamp", TIMEUUID, UUID_AT_NOW, NOW_US // 1000),
        ("tounixtimestamp", TIMESTAMP, 5, 5),
        ("tounixtimestamp", DATE, -1, -86_400_000),
    ],
)
def test_conversions_of_time(name, argument, value, expected):
    function = find_function(name, [argument])
    assert expected == function.result.decode(function.call(CONTEXT, [argument.encode(value)]) or b"")


def test_current_time_comes_from_the_server_clock():
    assert call("currentTimestamp()") == NOW_US // 1000
    assert call("currentDate()") == 20778
    # Whole milliseconds, as in Scylla.
    assert call("currentTime()") == (10 * 3600 + 5) * 10**9 + 123_000_000
    for now in ("now()", "system.now()", "currentTimeUUID()"):
        value = call(now, context=CallContext(NOW_US, timeuuid.TimeUuids()))
        assert isinstance(value, uuid.UUID)
        assert (value.time - timeuuid.EPOCH_TICKS) // 10 == NOW_US


def test_now_is_never_the_same_twice_though_the_clock_stands_still():
    values = [TIMEUUID.encode(call("now()")) for _ in range(100)]  # type: ignore[arg-type]
    keys = [TIMEUUID.sort_key(value) for value in values]
    assert keys == sorted(set(keys))
    assert all(uuid.UUID(bytes=value).variant == uuid.RFC_4122 for value in values)


def test_threads_share_one_source_of_timeuuids():
    source = timeuuid.TimeUuids()
    seen: list[bytes] = []
    threads = [threading.Thread(target=lambda: seen.extend(source.next(NOW_US) for _ in range(500))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 2000


def test_uuid_is_random():
    value = call("uuid()")
    assert isinstance(value, uuid.UUID)
    assert value.version == 4
    assert value != call("uuid()")


@settings(max_examples=200)
@given(st.integers(-12_219_292_800_000, 103_072_857_660_683))
def test_min_and_max_timeuuid_enclose_exactly_their_millisecond(timestamp_ms):
    low, high = timeuuid.min_timeuuid(timestamp_ms), timeuuid.max_timeuuid(timestamp_ms)
    assert low[8:] == b"\x80" * 8
    assert high[8:] == b"\x7f" * 8
    assert uuid.UUID(bytes=low).time == timestamp_ms * 10_000 + 0x01B21DD213814000
    assert uuid.UUID(bytes=high).time == timestamp_ms * 10_000 + 0x01B21DD213814000 + 9_999
    key = TIMEUUID.sort_key
    for ticks, low_half in ((0, b"\xff" * 8), (9_999, b"\x00" * 8), (5_000, b"\x7f" * 8)):
        inside = timeuuid.from_ticks(timestamp_ms * 10_000 + timeuuid.EPOCH_TICKS + ticks, low_half)
        assert key(low) < key(inside) < key(high)
        assert timeuuid.micros(inside) // 1000 == timestamp_ms
    if timestamp_ms > -12_219_292_800_000:
        assert key(timeuuid.max_timeuuid(timestamp_ms - 1)) < key(low)


@pytest.mark.parametrize("timestamp_ms", [-12_219_292_800_001, 103_072_857_660_685, -(2**63), 2**63 - 1])
def test_a_timestamp_that_no_timeuuid_holds_is_refused(timestamp_ms):
    for function in ("minTimeuuid(?)", "maxTimeuuid(?)"):
        with pytest.raises(InvalidRequest, match="out of range"):
            call(function, TIMESTAMP.encode(timestamp_ms))


def test_bounds_of_a_timestamp_are_called_by_name():
    written = [TIMESTAMP.encode(NOW_US // 1000)]
    assert call("minTimeuuid(?)", *written) == uuid.UUID(bytes=timeuuid.min_timeuuid(NOW_US // 1000))
    assert call("maxTimeuuid('2026-11-21')", *written) == uuid.UUID(bytes=timeuuid.max_timeuuid(NOW_US // 1000))


@given(st.integers(0, (1 << 60) - 1), st.binary(min_size=8, max_size=8))
def test_ticks_of_a_timeuuid_are_those_it_was_made_of(ticks, low_half):
    data = timeuuid.from_ticks(ticks, low_half)
    assert ticks == timeuuid.ticks(data) == uuid.UUID(bytes=data).time
    assert data[6] >> 4 == 1
    assert data[8:] == low_half


def test_milliseconds_before_1970_round_towards_it():
    before = timeuuid.from_ticks(timeuuid.EPOCH_TICKS - 1, bytes(8))
    assert (timeuuid.millis(before), timeuuid.micros(before)) == (0, -1)


# ---------------------------------------------------------------- null and blobs


@pytest.mark.parametrize("function", [f for group in FUNCTIONS.values() for f in group if f.arguments], ids=str)
def test_functions_of_null_return_null(function):
    assert function.call(CONTEXT, [None] * len(function.arguments)) is None


def test_an_empty_time_becomes_null():
    for name, argument in (("totimestamp", TIMEUUID), ("mintimeuuid", TIMESTAMP), ("tounixtimestamp", DATE)):
        assert find_function(name, [argument]).call(CONTEXT, [b""]) is None


@pytest.mark.parametrize("name", sorted(set(NATIVE_TYPES) - {"blob", "duration", "counter"}))
def test_every_native_type_goes_to_blob_and_back(name):
    cql_type = NATIVE_TYPES[name]
    to_blob, from_blob = find_function(f"{name}asblob", [cql_type]), find_function(f"blobas{name}", [BLOB])
    assert (to_blob.result, from_blob.result) == (BLOB, cql_type)
    assert to_blob.call(CONTEXT, [b""]) == from_blob.call(CONTEXT, [b""]) == b""


def test_blob_conversions_keep_the_bytes():
    assert call("bigintAsBlob(?)", BIGINT.encode(1)) == b"\x00" * 7 + b"\x01"
    assert call("blobAsInt(0x00000005)", b"\x00\x00\x00\x05") == 5
    with pytest.raises(
        InvalidRequest, match=r"system.blobasint, value 0x[0-9a-f]* is not a valid binary representation for type int"
    ):
        call("blobAsInt(0x00)", b"\x00")


# ---------------------------------------------------------------- the choice among signatures


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing()", "Unknown function 'nothing'"),
        ('"Now"()', "Unknown function 'Now'"),
        ("ks.now()", "Unknown function 'ks.now'"),
        ("now(1)", "Invalid number of arguments in call to function system.now: 0 required but 1 provided"),
        ("toDate()", "none of its type signatures match"),
        ("toDate(?)", "Ambiguous call to function todate .*timeuuid.*timestamp.*: use type casts to disambiguate"),
        ("toTimestamp(null)", "Ambiguous call"),
        (
            "minTimeuuid(true)",
            "Type error: true cannot be passed as argument 0 of function system.mintimeuuid of type timestamp",
        ),
        ("textAsBlob(1)", "Type error: 1 cannot be passed as argument 0 of function system.textasblob of type text"),
        ("similarity_cosine([1.0], [2.0])", "similarity_cosine is not supported"),
        ("toTimestamp(uuid())", "none of its type signatures match"),
    ],
)
def test_calls_that_fit_no_or_several_signatures_are_refused(source, message):
    with pytest.raises(InvalidRequest, match=message):
        call(source, None)


@pytest.mark.parametrize(
    ("source", "argument"),
    [
        ("toDate((timeuuid)?)", TIMEUUID),
        ("toDate((timestamp)?)", TIMESTAMP),
        ("toDate(now())", TIMEUUID),
        ("toDate(currentTimestamp())", TIMESTAMP),
        ("toUnixTimestamp(6f1f8f10-10b9-11f2-ba7e-2b8c92c13c26)", TIMEUUID),
        ("blobAsText(textAsBlob('x'))", BLOB),
        ("bigintAsBlob(token(1))", BIGINT),
        ("textAsBlob((ascii)'x')", TEXT),
    ],
)
def test_terms_choose_the_signature(source, argument):
    statement = parse(f"INSERT INTO t (a) VALUES ({source})")
    written = statement.values[0]  # type: ignore[union-attr]
    assert find_function(written.name, written.args).arguments == (argument,)


def test_types_of_columns_choose_the_signature():
    assert find_function("todate", [TIMESTAMP]).arguments == (TIMESTAMP,)
    assert find_function("textasblob", [ASCII]).arguments == (TEXT,)
    assert find_function("uuidasblob", [TIMEUUID]).arguments == (UUID,)
    for wrong in (UUID, INT, ListType(TIMEUUID)):
        with pytest.raises(InvalidRequest, match="none of its type signatures match"):
            find_function("todate", [wrong])


def test_the_wanted_type_chooses_and_is_checked():
    assert find_function("tounixtimestamp", [DATE], wanted=BIGINT).result is BIGINT
    assert find_function("now", [], wanted=UUID).result is TIMEUUID
    with pytest.raises(
        InvalidRequest, match=r"cannot assign result of function system.now \(type timeuuid\) .* type int"
    ):
        find_function("now", [], wanted=INT)


# ---------------------------------------------------------------- CAST


@pytest.mark.parametrize(
    ("source", "value", "target", "expected"),
    [
        (INT, 5, BIGINT, 5),
        (INT, 300, TINYINT, 44),
        (INT, -129, TINYINT, 127),
        (BIGINT, (1 << 40) + 3, SMALLINT, 3),
        (VARINT, 1 << 70 | 9, BIGINT, 9),
        (INT, 5, DOUBLE, 5.0),
        (VARINT, 1 << 2000, DOUBLE, math.inf),
        (VARINT, -(1 << 2000), DOUBLE, -math.inf),
        (BIGINT, 16777217, FLOAT, 16777216.0),
        (COUNTER, 5, INT, 5),
        (DOUBLE, 1.9, INT, 1),
        (DOUBLE, -1.9, VARINT, -1),
        (DOUBLE, 0.1, FLOAT, 0.10000000149011612),
        (DOUBLE, 1e300, FLOAT, math.inf),
        (FLOAT, 1.5, DOUBLE, 1.5),
        (DECIMAL, Decimal("1.9"), INT, 1),
        (DECIMAL, Decimal("-1.9"), VARINT, -1),
        (DECIMAL, Decimal("1.5"), DOUBLE, 1.5),
        (DOUBLE, 1.1, DECIMAL, Decimal("1.1")),
        (DOUBLE, -1e22, DECIMAL, Decimal("-1E+22")),
        (DOUBLE, 5.0, DECIMAL, Decimal(5)),
        (FLOAT, 5.199999809265137, DECIMAL, Decimal("5.2")),
        (FLOAT, 1.5, DECIMAL, Decimal("1.5")),
        (INT, 5, DECIMAL, Decimal("5.0")),
        (VARINT, -50, DECIMAL, Decimal("-50.0")),
        (INT, 0, DECIMAL, Decimal("0.0")),
        (INT, -5, TEXT, "-5"),
        (DOUBLE, 1.0, TEXT, "1"),
        (DOUBLE, 1.1, ASCII, "1.1"),
        (DOUBLE, 1e20, TEXT, "1e+20"),
        (DOUBLE, math.nan, TEXT, "nan"),
        (FLOAT, 1.100000023841858, TEXT, "1.1"),
        (FLOAT, math.inf, TEXT, "inf"),
        (VARINT, 10**30, TEXT, "1" + "0" * 30),
        (DECIMAL, Decimal("1.50"), TEXT, "1.5"),
        (DECIMAL, Decimal("-100.00"), TEXT, "-100"),
        (DECIMAL, Decimal("0.00"), TEXT, "0"),
        (DECIMAL, Decimal("1.2E+3"), TEXT, "1200"),
        (DECIMAL, Decimal("1.2E-9"), TEXT, "0.0000000012"),
        (BOOLEAN, True, TEXT, "true"),
        (BOOLEAN, False, ASCII, "false"),
        (ASCII, "x", TEXT, "x"),
        (INET, "10.0.0.1", TEXT, "10.0.0.1"),
        (UUID, uuid.UUID(int=1), TEXT, "00000000-0000-0000-0000-000000000001"),
        (DATE, 20778, TEXT, "2026-11-21"),
        (DATE, -1, TEXT, "1969-12-31"),
        (DATE, -(1 << 31), TEXT, "-5877641-06-23"),
        (TIME, 36_005_000_000_001, TEXT, "10:00:05.000000001"),
        (TIMESTAMP, 1795255205123, TEXT, "2026-11-21T10:00:05.123Z"),
        (TIMESTAMP, -1, TEXT, "1969-12-31T23:59:59.999Z"),
        (TIMESTAMP, 1795255205123, DATE, 20778),
        (DATE, 20778, TIMESTAMP, 20778 * 86_400_000),
        (TIMEUUID, UUID_AT_NOW, TIMESTAMP, NOW_US // 1000),
        (TIMEUUID, UUID_AT_NOW, DATE, 20778),
        (TIMEUUID, UUID_AT_NOW, TEXT, str(UUID_AT_NOW)),
        (UUID, uuid.UUID(int=1), UUID, uuid.UUID(int=1)),
    ],
)
def test_cast(source, value, target, expected):
    cast = cast_function(source, target)(source.encode(value))
    assert cast is not None
    assert expected == target.decode(cast)
    if target is DECIMAL:
        assert str(target.decode(cast)) == str(expected)


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_date_as_text_reads_back(days):
    text = cast_function(DATE, TEXT)(DATE.encode(days))
    statement = parse(f"INSERT INTO t (a) VALUES ('{(text or b'').decode()}')")
    assert DATE.encode(days) == term_bytes(DATE, statement.values[0])  # type: ignore[union-attr]


@given(st.dates())
def test_a_date_as_text_is_that_of_the_calendar(date):
    assert cast_function(DATE, TEXT)(DATE.encode(date)) == date.isoformat().encode()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@example(3.4025001647762064e38)
def test_a_float_as_text_is_the_shortest_that_reads_back(value):
    text = cast_function(FLOAT, TEXT)(FLOAT.encode(value))
    assert text is not None
    assert FLOAT.encode(float(text)) == FLOAT.encode(value)
    assert len(text.strip(b"-").replace(b".", b"").partition(b"e")[0].strip(b"0")) <= 9


@given(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)))
def test_a_timestamp_as_text_is_that_of_the_calendar(moment):
    text = cast_function(TIMESTAMP, TEXT)(TIMESTAMP.encode(moment))
    assert (text or b"").decode() == moment.isoformat(timespec="milliseconds") + "Z"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (TEXT, INT),
        (TEXT, ASCII),
        (BLOB, TEXT),
        (INT, BLOB),
        (INT, TIMESTAMP),
        (UUID, TIMESTAMP),
        (INT, COUNTER),
        (INT, BOOLEAN),
    ],
)
def test_an_unknown_cast_is_refused(source, target):
    with pytest.raises(InvalidRequest, match=f"{source.name} cannot be cast to {target.name}"):
        cast_function(source, target)


@pytest.mark.parametrize("source", [FLOAT, DOUBLE])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (-564.0, (-52, -564, -564, -564)),
        (1e10, (-1, -1, 2147483647, 10000000000)),
        (-1e10, (0, 0, -2147483648, -10000000000)),
        (1e30, (-1, -1, 2147483647, 9223372036854775807)),
        (math.inf, (-1, -1, 2147483647, 9223372036854775807)),
        (-math.inf, (0, 0, -2147483648, -9223372036854775808)),
        (math.nan, (0, 0, 0, 0)),
    ],
)
def test_a_float_beyond_an_integer_type_stops_at_its_limits(source, value, expected):
    data = source.encode(value)
    cast = [(target, cast_function(source, target)(data) or b"") for target in (TINYINT, SMALLINT, INT, BIGINT)]
    assert expected == tuple(target.decode(result) for target, result in cast)


@pytest.mark.parametrize(
    ("source", "value", "target"),
    [
        (DOUBLE, math.inf, VARINT),
        (FLOAT, math.nan, VARINT),
        (DECIMAL, Decimal("1E+5000"), VARINT),
        (DECIMAL, Decimal("1E-2147483647"), TEXT),
    ],
)
def test_numbers_that_the_target_cannot_hold_are_refused(source, value, target):
    with pytest.raises(InvalidRequest, match="cannot be cast"):
        cast_function(source, target)(source.encode(value))


def test_a_number_of_many_digits_as_text():
    assert cast_function(VARINT, TEXT)(VARINT.encode(-(10**5000))) == b"-1" + b"0" * 5000


def test_casting_an_empty_value_returns_null():
    assert cast_function(INT, TEXT)(b"") is None
    assert cast_function(TIMEUUID, DATE)(b"") is None
