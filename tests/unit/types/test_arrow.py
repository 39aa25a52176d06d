"""Cells as Arrow: each CQL type, nulls, and the same values as the decoder of events returns."""

# ruff: noqa: E402 - what follows needs pyarrow, which is not everywhere
from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest

pytestmark = pytest.mark.arrow
pa = pytest.importorskip("pyarrow", reason="pip install 'rscylla[spark]'")
np = pytest.importorskip("numpy", reason="pip install 'rscylla[spark]'")

from arrays import numbers_for_moments
from cassandra.util import Date, Duration, Time
from cellbox import INT, NATIVE, cell, nested, types, varint
from fakelog import log_time, type_of
from hypothesis import example, given
from hypothesis import strategies as st

from rscylla.types import Type, arrow, decoder_for, encoder_for, log_list
from rscylla.types.arrow import arrow_type, builder_for

MARSHAL = "org.apache.cassandra.db.marshal."
MOST_MS = (2**63 - 1) // 1000


@pytest.fixture(scope="module", autouse=True, params=["compiled", "pure"])
def _twin(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run each test on the compiled builders and on those in Python."""
    if request.param == "compiled" and arrow._compiled_builder is None:
        pytest.skip("rscylla was built without a C compiler, or RSCYLLA_PURE is set")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "pure":
            patch.setattr(arrow, "_compiled_builder", None)
        yield


def as_arrow(value: Any, type_: Type) -> Any:
    """Return a decoded value in the form that Arrow returns."""
    kind, args = type_.kind, type_.args
    if value is None:
        return None
    if kind in ("list", "set", "vector"):
        return [as_arrow(v, args[0]) for v in value]
    if kind == "map":
        return [(as_arrow(k, args[0]), as_arrow(v, args[1])) for k, v in value.items()]
    if kind == "tuple":
        return {f"_{i}": as_arrow(v, t) for i, (v, t) in enumerate(zip(value, args, strict=True), 1)}
    if kind == "udt":
        return {n: as_arrow(value[n], t) for n, t in zip(type_.fields, args, strict=True)}
    if isinstance(value, Date):
        return value.days_from_epoch
    if isinstance(value, Time):
        return value.nanosecond_time
    if isinstance(value, Duration):
        return {"months": value.months, "days": value.days, "nanoseconds": value.nanoseconds}
    if kind == "timestamp":
        ms = (
            value if isinstance(value, int) else round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e3)
        )
        return ms * 1000 if abs(ms) <= MOST_MS else None
    return str(value) if kind in ("varint", "decimal", "inet", "uuid", "timeuuid") else value


def hashable(type_: Type) -> bool:
    """Whether the decoder keeps the elements of such a set or map as they are."""
    return type_.kind not in ("list", "set", "map", "udt", "vector") and all(map(hashable, type_.args))


def plain_keys(type_: Type) -> bool:
    """Whether the keys are kept as they are, and none is a timestamp, which can be beyond what Arrow can hold."""
    if type_.kind in ("set", "map") and not hashable(type_.args[0]):
        return False
    if type_.kind == "map" and has_timestamps(type_.args[0]):
        return False
    return all(map(plain_keys, type_.args))


def has_timestamps(type_: Type) -> bool:
    return type_.kind == "timestamp" or any(map(has_timestamps, type_.args))


columns = types.filter(plain_keys).flatmap(lambda t: st.tuples(st.just(t), st.lists(st.none() | nested(t), max_size=6)))


@given(columns)
def test_arrays_hold_what_the_decoder_gives(column: tuple[Type, list[bytes | None]]) -> None:
    type_, cells = column
    array = builder_for(type_)(cells)
    array.validate(full=True)
    assert array.type == arrow_type(type_)
    decode = decoder_for(type_)
    expected = [None if c is None else as_arrow(decode(c), type_) for c in cells]
    found = numbers_for_moments(array).to_pylist()
    assert [in_any_order(v, type_) for v in found] == [in_any_order(v, type_) for v in expected]


def in_any_order(value: Any, type_: Type) -> Any:
    """Return *value* with sets in one order; Python's have none."""
    if value is None:
        return None
    if type_.kind == "set":
        return sorted((in_any_order(v, type_.args[0]) for v in value), key=repr)
    if type_.kind in ("list", "vector"):
        return [in_any_order(v, type_.args[0]) for v in value]
    if type_.kind == "map":
        return [(in_any_order(k, type_.args[0]), in_any_order(v, type_.args[1])) for k, v in value]
    if type_.kind in ("tuple", "udt"):
        return {n: in_any_order(v, t) for (n, v), t in zip(value.items(), type_.args, strict=True)}
    return value


@given(columns)
@pytest.mark.spark
def test_spark_takes_each_type_as_it_is(column: tuple[Type, list[bytes | None]]) -> None:
    pytest.importorskip("pyspark", reason="pip install 'rscylla[spark]'")
    from pyspark.sql.pandas.types import from_arrow_schema

    from rscylla.spark.source.versions import arrow_schema

    schema = pa.schema([("c", arrow_type(column[0]))])
    struct = from_arrow_schema(schema, prefer_timestamp_ntz=False)
    assert arrow_schema(struct).equals(schema)


@pytest.mark.parametrize("name", [*sorted(NATIVE), "duration"])
def test_a_value_without_bytes_is_null_but_for_text_and_blobs(name: str) -> None:
    type_ = type_of(name)
    empty = {"text": "", "ascii": "", "blob": b""}.get(name)
    assert builder_for(type_)([b"", None]).to_pylist() == [empty, None]
    assert builder_for(type_)([]).type == arrow_type(type_)


@pytest.mark.parametrize(
    ("kind", "scale", "text"),
    [("varint", b"", "-7{}1"), ("decimal", INT.pack(4), "-7{}.0001"), ("decimal", INT.pack(-4), "-7.{}0001E+5005")],
)
def test_numbers_have_any_size(kind: str, scale: bytes, text: str) -> None:
    raw = scale + (-(7 * 10**5001 + 1)).to_bytes(2078, "big", signed=True)
    text = text.format("0" * (5000 if kind == "varint" else 4997))
    assert builder_for(type_of(kind))([raw, None, b""]).to_pylist() == [text, None, None]
    assert encoder_for(type_of(kind), arrow=True)(text) == raw


def test_timestamps_beyond_what_spark_has_are_null() -> None:
    build = builder_for(type_of("timestamp"))
    cells = [struct.pack(">q", ms) for ms in (0, MOST_MS, MOST_MS + 1, -(2**63), -MOST_MS)]
    found = build([*cells, None]).view(pa.int64()).to_pylist()
    assert found == [0, MOST_MS * 1000, None, None, -MOST_MS * 1000, None]


def test_dates_and_durations() -> None:
    assert builder_for(type_of("date"))([struct.pack(">I", 2**31 - 1)]).to_pylist() == [date(1969, 12, 31)]
    raw = Duration(-1, 2, -3)
    packed = type_of("duration")
    assert decoder_for(packed)(b"\x01\x04\x05") == raw
    assert builder_for(packed)([b"\x01\x04\x05"]).to_pylist() == [{"months": -1, "days": 2, "nanoseconds": -3}]


def test_a_list_that_is_not_frozen_is_a_map_in_the_log_and_a_list_as_a_value() -> None:
    log_type = type_of(f"{MARSHAL}MapType({MARSHAL}TimeUUIDType,{MARSHAL}Int32Type)")
    key = log_time(1_700_000_000_000_000)
    raw = INT.pack(1) + cell(key) + cell(INT.pack(7))
    assert builder_for(log_type)([raw, None]).to_pylist() == [[(str(uuid.UUID(bytes=key)), 7)], None]
    assert builder_for(log_list(log_type))([raw, b"\0\0\0\0", None]).to_pylist() == [[7], [], None]


def test_a_loose_udt_without_fields_is_null_and_a_short_one_is_filled_up() -> None:
    udt = Type("udt", (type_of("int"), type_of("text")), ("x", "y"))
    nulls, short = cell(None) * 2, cell(INT.pack(1))
    assert builder_for(udt)([nulls, short, b""]).to_pylist() == [
        {"x": None, "y": None},
        {"x": 1, "y": None},
        {"x": None, "y": None},
    ]
    assert builder_for(udt, loose=True)([nulls, short, None]).to_pylist() == [None, {"x": 1, "y": None}, None]


def test_vectors_of_either_sort() -> None:
    floats = Type("vector", (type_of("float"),), size=2)
    assert builder_for(floats)([struct.pack(">ff", 1.5, -2), None]).to_pylist() == [[1.5, -2.0], None]
    texts = Type("vector", (type_of("text"),), size=2)
    long = "x" * 300
    raw = b"\x01a" + b"\x81\x2c" + long.encode()
    assert builder_for(texts)([raw]).to_pylist() == [["a", long]]


def test_cells_of_a_wrong_length_are_not_values() -> None:
    with pytest.raises(ValueError, match="4 bytes of its type"):
        builder_for(type_of("int"))([b"\x00"])


def test_an_unknown_type_stays_bytes() -> None:
    odd = Type("org.example.Odd")
    assert builder_for(odd)([b"\x01", None, b""]).to_pylist() == [b"\x01", None, b""]


BEYOND = (MOST_MS + 1, 2**63 - 1, -MOST_MS - 1, -(2**63))


@pytest.mark.parametrize("ms", BEYOND)
def test_a_timestamp_beyond_those_of_arrow_is_what_was_asked_for(ms: int) -> None:
    cells = [ms.to_bytes(8, "big", signed=True), None, bytes(8)]
    end = 2**63 - 1 if ms > 0 else -(2**63)
    type_ = type_of("timestamp")
    assert builder_for(type_)(cells).cast(pa.int64()).to_pylist() == [None, None, 0]
    assert builder_for(type_, beyond="bound")(cells).cast(pa.int64()).to_pylist() == [end, None, 0]
    assert end % 1000, "no timestamp of Arrow's is that"
    with pytest.raises(OverflowError):
        builder_for(type_, beyond="raise")(cells)
    inner = Type("list", (type_,))
    with pytest.raises(OverflowError):
        builder_for(inner, beyond="raise")([b"\0\0\0\1\0\0\0\x08" + cells[0]])


@pytest.mark.parametrize("ms", BEYOND)
def test_a_timestamp_beyond_those_of_arrow_is_an_error_in_a_key_of_a_map(ms: int) -> None:
    at = Type("timestamp")
    for key, wrapped in [(at, lambda raw: raw), (Type("tuple", (at,)), cell)]:
        type_ = Type("list", (Type("map", (key, at)),))

        def cell_with(key_ms: int, value_ms: int, wrapped: Callable[[bytes], bytes] = wrapped) -> bytes:
            raw = [n.to_bytes(8, "big", signed=True) for n in (key_ms, value_ms)]
            return INT.pack(1) + cell(INT.pack(1) + cell(wrapped(raw[0])) + cell(raw[1]))

        in_value = builder_for(type_)([cell_with(0, ms)])
        assert in_value.flatten().items.to_pylist() == [None]
        with pytest.raises(OverflowError, match="a timestamp is beyond what Arrow can hold"):
            builder_for(type_)([cell_with(ms, 0)])
        bound = builder_for(type_, beyond="bound")([cell_with(ms, 0)]).flatten().keys
        ends = bound.flatten()[0] if key is not at else bound
        assert ends.cast(pa.int64()).to_pylist() == [2**63 - 1 if ms > 0 else -(2**63)]


@given(st.dictionaries(st.integers(-MOST_MS, MOST_MS), st.integers(), max_size=4))
def test_maps_with_timestamps_as_keys(entries: dict[int, int]) -> None:
    type_ = Type("map", (Type("timestamp"), Type("varint")))
    raw = INT.pack(len(entries))
    for ms, value in entries.items():
        raw += cell(ms.to_bytes(8, "big", signed=True)) + cell(varint(value))
    array = builder_for(type_)([raw])
    assert array.keys.cast(pa.int64()).to_pylist() == [ms * 1000 for ms in entries]
    assert array.items.to_pylist() == [str(value) for value in entries.values()]


natives = st.sampled_from(sorted(NATIVE)).map(Type)


@given((natives | types.filter(plain_keys)).flatmap(lambda t: st.tuples(st.just(t), st.lists(nested(t), max_size=4))))
@example((Type("vector", (Type("timestamp"),), size=1), [(MOST_MS + 1).to_bytes(8, "big")]))
def test_what_arrow_has_becomes_bytes_again(column: tuple[Type, list[bytes]]) -> None:
    type_, cells = column
    build = builder_for(type_, beyond="bound")  # a vector cannot have nulls
    array = build(cells)
    encode = encoder_for(type_, arrow=True)
    again = [None if v is None else encode(v) for v in numbers_for_moments(array).to_pylist()]
    assert build(again).equals(array)


@pytest.mark.parametrize("end", [2**63 - 1, -(2**63)])
def test_times_beyond_arrows_range_become_its_ends_as_bounds(end: int) -> None:
    raw = encoder_for(Type("timestamp"), arrow=True)(end)
    assert abs(int.from_bytes(raw, "big", signed=True)) > MOST_MS
    assert builder_for(Type("timestamp"), beyond="bound")([raw]).cast(pa.int64()).to_pylist() == [end]
