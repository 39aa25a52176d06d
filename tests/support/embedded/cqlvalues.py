"""Types and values of them for tests, and how the driver, which is the oracle, has the same."""

from __future__ import annotations

import datetime as dt
import ipaddress
import uuid

from cassandra import cqltypes
from cassandra.util import Date, OrderedMapSerializedKey, Time, sortedset
from cassandra.util import Duration as DriverDuration
from hypothesis import strategies as st

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
    DURATION,
    FLOAT,
    INET,
    INT,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMEUUID,
    TINYINT,
    UUID,
    VARINT,
    CqlType,
    Duration,
    ListType,
    MapType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
    parse_type,
)

PROTOCOL = 4
ADDRESS = UdtType("ks", "addr", ("street", "zip"), (TEXT, INT))


def lookup(name: str) -> UdtType:
    if name in ("addr", "ks.addr"):
        return ADDRESS
    raise InvalidRequest(f"Unknown type {name}")


def of(text: str) -> CqlType:
    return parse_type(text, lookup)


def driver_type(cql_type: CqlType):
    """Return the driver's own class for a type, made from parts and not from our wire bytes."""
    match cql_type:
        case ListType():
            return cqltypes.ListType.apply_parameters([driver_type(cql_type.element)])
        case SetType():
            return cqltypes.SetType.apply_parameters([driver_type(cql_type.element)])
        case MapType():
            return cqltypes.MapType.apply_parameters([driver_type(cql_type.key), driver_type(cql_type.value)])
        case TupleType():
            return cqltypes.TupleType.apply_parameters([driver_type(item) for item in cql_type.items])
        case UdtType():
            parts = tuple(driver_type(item) for item in cql_type.items)
            return cqltypes.UserType.make_udt_class(cql_type.keyspace, cql_type.type_name, cql_type.field_names, parts)
        case VectorType():
            name = f"org.apache.cassandra.db.marshal.VectorType({driver_type(cql_type.element).cassname}, "
            return cqltypes.lookup_casstype(f"{name}{cql_type.dimension})")
    return cqltypes._cqltypes[cql_type.name]


def for_driver(cql_type: CqlType, value):
    """Return our Python value in the classes that the driver encodes."""
    if value is None:
        return None
    match cql_type:
        case ListType() | VectorType():
            return [for_driver(cql_type.element, item) for item in value]
        case SetType():
            # The driver keeps the order it is given; the server stores element order.
            return sorted(
                (for_driver(cql_type.element, item) for item in value), key=lambda v: key_of(cql_type.element, v)
            )
        case MapType():
            items = value.items() if isinstance(value, dict) else value
            pairs = [(for_driver(cql_type.key, k), for_driver(cql_type.value, v)) for k, v in items]
            pairs.sort(key=lambda pair: key_of(cql_type.key, pair[0]))
            return dict(pairs)
        case TupleType():
            return tuple(for_driver(t, v) for t, v in zip(cql_type.items, value, strict=True))
        case UdtType():
            return tuple(
                for_driver(t, value[n]) for n, t in zip(cql_type.field_names, cql_type.field_types, strict=True)
            )
    if cql_type is DATE:
        return Date(value)
    if cql_type is TIME:
        return Time(value)
    if cql_type is DURATION:
        return DriverDuration(value.months, value.days, value.nanoseconds)
    if cql_type is INET:
        return str(value)
    return value


def key_of(cql_type: CqlType, driver_value):
    return cql_type.sort_key(driver_type(cql_type).serialize(driver_value, PROTOCOL))


def from_driver(cql_type: CqlType, value):
    """Return what the driver decoded in our own Python classes."""
    if value is None:
        return None
    match cql_type:
        case ListType() | VectorType():
            return [from_driver(cql_type.element, item) for item in value]
        case SetType():
            assert isinstance(value, sortedset)
            return frozenset(from_driver(cql_type.element, item) for item in value)
        case MapType():
            assert isinstance(value, OrderedMapSerializedKey)
            return {from_driver(cql_type.key, k): from_driver(cql_type.value, v) for k, v in value.items()}
        case TupleType():
            return tuple(from_driver(t, v) for t, v in zip(cql_type.items, value, strict=True))
        case UdtType():
            parts = zip(cql_type.field_names, cql_type.field_types, value, strict=True)
            return {name: from_driver(t, v) for name, t, v in parts}
    if cql_type is TIMESTAMP:
        return (value.replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
    if cql_type is DATE:
        return value.days_from_epoch
    if cql_type is TIME:
        return value.nanosecond_time
    if cql_type is DURATION:
        return Duration(value.months, value.days, value.nanoseconds)
    if cql_type is INET:
        return ipaddress.ip_address(value)
    return value


def integers(bits: int):
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


@st.composite
def durations(draw):
    sign = draw(st.sampled_from([1, -1]))
    parts = [draw(st.integers(0, (1 << bits) - 1)) for bits in (31, 31, 63)]
    return Duration(*(sign * part for part in parts))


@st.composite
def timeuuids(draw):
    high = draw(st.integers(0, (1 << 60) - 1))
    raw = (high & 0xFFFFFFFF) << 96 | (high >> 32 & 0xFFFF) << 80 | 1 << 76 | high >> 48 << 64
    return uuid.UUID(int=raw | draw(st.integers(0, (1 << 64) - 1)))


# Years that the driver's own datetime can hold.
YEAR_1_MS = -62_135_596_800_000
YEAR_9999_MS = 253_402_300_799_999
NATIVE_VALUES = {
    ASCII: st.text(st.characters(max_codepoint=127), max_size=10),
    BIGINT: integers(64),
    BLOB: st.binary(max_size=10),
    BOOLEAN: st.booleans(),
    COUNTER: integers(64),
    DATE: st.integers(-(1 << 31), (1 << 31) - 1),
    DECIMAL: st.decimals(allow_nan=False, allow_infinity=False),
    DOUBLE: st.floats(allow_nan=False),
    DURATION: durations(),
    FLOAT: st.floats(width=32, allow_nan=False),
    INET: st.ip_addresses(),
    INT: integers(32),
    SMALLINT: integers(16),
    TEXT: st.text(max_size=10),
    TIME: st.integers(0, 86_399_999_999_999),
    TIMESTAMP: st.integers(YEAR_1_MS, YEAR_9999_MS),
    TIMEUUID: timeuuids(),
    TINYINT: integers(8),
    UUID: st.uuids(),
    VARINT: st.integers(),
}
NATIVES = list(NATIVE_VALUES)


def values(cql_type: CqlType):
    match cql_type:
        case ListType():
            return st.lists(values(cql_type.element), max_size=4)
        case SetType():
            return st.frozensets(values(cql_type.element), max_size=4)
        case MapType():
            return st.dictionaries(values(cql_type.key), values(cql_type.value), max_size=4)
        case TupleType():
            return st.tuples(*(st.none() | values(item) for item in cql_type.items))
        case UdtType():
            parts = zip(cql_type.field_names, cql_type.field_types, strict=True)
            return st.fixed_dictionaries({name: st.none() | values(item) for name, item in parts})
        case VectorType():
            return st.lists(values(cql_type.element), min_size=cql_type.dimension, max_size=cql_type.dimension)
    return NATIVE_VALUES[cql_type]


# Sets and map keys hold types whose Python values are equal exactly when their encodings are.
KEYS = [t for t in NATIVES if t not in (DECIMAL, FLOAT, DOUBLE, DURATION, COUNTER, BOOLEAN)]
key_types = st.sampled_from(KEYS)
natives = st.sampled_from([t for t in NATIVES if t is not COUNTER])
all_types = st.recursive(
    natives,
    lambda inner: st.one_of(
        st.builds(lambda t: ListType(t.freeze()), inner),
        st.builds(lambda t: SetType(t), key_types),
        st.builds(lambda k, v: MapType(k, v.freeze()), key_types, inner),
        st.builds(lambda items: TupleType(tuple(t.freeze() for t in items)), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda a, b: UdtType("ks", "kind", ("a", "b"), (a.freeze(), b.freeze())), inner, inner),
    ),
    max_leaves=4,
)
