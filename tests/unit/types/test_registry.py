"""Each row of the registry, by the driver's word: values, CQL text of types, samples."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from cassandra import cqltypes
from cellbox import NATIVE, nested, types
from fakelog import type_of
from hypothesis import given
from hypothesis import strategies as st

from rscylla.types import Type, decoder_for, encoder_for, parse_type, sample_of
from rscylla.types.json import plain
from rscylla.types.registry import CONTAINERS, NATIVES

OF_OTHERS = {"LineStringType", "PointType", "PolygonType", "daterange"}
"""Types of the driver that ScyllaDB does not have."""

NO_TYPES = {"frozen", "reversed"}


def test_the_registry_has_a_row_for_each_type_of_the_driver() -> None:
    classes = [c for c in vars(cqltypes).values() if isinstance(c, type) and issubclass(c, cqltypes._CassandraType)]
    names = {getattr(c, "typename", "-") for c in classes}
    known = {name for name in names if name.isidentifier()} - OF_OTHERS - NO_TYPES - {"varchar"}
    assert {"int", "list", "duration"} <= known <= NATIVES.keys() | CONTAINERS.keys()
    assert NATIVES.keys() == NATIVE.keys()


@pytest.mark.parametrize("kind", sorted(NATIVE))
@given(st.data())
def test_a_native_value_is_what_the_driver_says(kind: str, data: st.DataObject) -> None:
    raw = data.draw(NATIVE[kind])
    found = decoder_for(Type(kind))(raw)
    if kind == "timestamp":
        ms = int.from_bytes(raw, "big", signed=True)
        assert found == (ms if isinstance(found, int) else cqltypes.DateType.from_binary(raw, 4).replace(tzinfo=UTC))
        return
    theirs = cqltypes._cqltypes[kind].from_binary(raw, 4)
    assert (found, type(found)) == (theirs, type(theirs))


def bare(type_: Type) -> Type:
    """Return *type_* as ``parse_type`` returns it without knowing UDTs."""
    args = () if type_.kind == "udt" else tuple(bare(t) for t in type_.args)
    return Type(type_.kind, args, (), type_.name, type_.size, type_.frozen)


def udts_of(type_: Type) -> dict[str, Any]:
    found = {name: fields for t in type_.args for name, fields in udts_of(t).items()}
    if type_.kind == "udt":
        found[type_.name] = [(f, str(t)) for f, t in zip(type_.fields, type_.args, strict=True)]
    return found


@given(types, st.booleans())
def test_the_text_of_a_type_is_parsed_back_to_the_type(type_: Type, spaced: bool) -> None:
    text = str(type_).replace("<", " < ").replace(",", " , ") if spaced else str(type_)
    assert parse_type(text) == bare(type_)


@given(types)
def test_a_udt_has_the_fields_that_the_schema_gives_it(type_: Type) -> None:
    udts = udts_of(type_)
    names = [t for t in _all(type_) if t.kind == "udt"]
    if len({t.name for t in names}) == len(names):  # names depend on the number of fields alone
        assert parse_type(str(type_), udts) == type_


def _all(type_: Type) -> list[Type]:
    return [type_, *(t for arg in type_.args for t in _all(arg))]


@pytest.mark.parametrize(
    ("text", "type_", "again", "multicell"),
    [
        ("int", Type("int"), "int", False),
        ("varchar", Type("text"), "text", False),
        ("list<int>", Type("list", (Type("int"),)), "list<int>", True),
        ("frozen<set<int>>", Type("set", (Type("int"),), frozen=True), "frozen<set<int>>", False),
        (
            "map<text,frozen<list<int>>>",
            Type("map", (Type("text"), Type("list", (Type("int"),), frozen=True))),
            "map<text, frozen<list<int>>>",
            True,
        ),
        ("tuple<int>", Type("tuple", (Type("int"),)), "frozen<tuple<int>>", False),
        ("frozen<tuple<int>>", Type("tuple", (Type("int"),)), "frozen<tuple<int>>", False),
        ("vector<float, 3>", Type("vector", (Type("float"),), size=3), "vector<float, 3>", False),
        ("addr", Type("udt", name="addr"), "addr", True),
        ('frozen<"A ""b""">', Type("udt", name='A "b"', frozen=True), 'frozen<"A ""b""">', False),
        ('"list"', Type("udt", name="list"), "list", True),
        ("udt", Type("udt", name="udt"), "udt", True),
        ("'org.example.Odd'", Type("org.example.Odd"), "org.example.Odd", False),
    ],
)
def test_types_are_read_and_written(text: str, type_: Type, again: str, multicell: bool) -> None:
    found = parse_type(text)
    assert (found, str(found), found.is_multicell) == (type_, again, multicell)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "list<>", "list<int", "list<int>>", "list<int, int>", "map<int>", "int>", "<int>", "int<int>"),
        *(
            "vector<int>",
            "vector<int, 0>",
            "vector<int, 2, 3>",
            "vector<int, x>",
            "udt<int>",
            "frozen<>",
            'a"',
            "a b",
            "list<int>,",
            "'",
        ),
    ],
)
def test_text_that_is_not_a_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a CQL type"):
        parse_type(text)


def test_types_whose_values_have_the_same_bytes() -> None:
    one = Type("udt", (Type("int"), Type("list", (Type("text"),), frozen=True)), ("a", "b"), "one")
    assert one.same_bytes(Type("udt", one.args, one.fields, "other", frozen=True))
    for other in (
        Type("udt", one.args, ("a", "c"), "one"),
        Type("udt", (Type("bigint"), one.args[1]), one.fields, "one"),
        Type("udt", one.args[:1], one.fields[:1], "one"),
        Type("tuple", one.args),
    ):
        assert not one.same_bytes(other)
    assert not Type("vector", (Type("int"),), size=2).same_bytes(Type("vector", (Type("int"),), size=3))


@given(types)
def test_a_sample_is_a_value(type_: Type) -> None:
    raw = sample_of(type_)
    value = decoder_for(type_)(raw)
    assert value is not None
    assert type_.kind != "vector" or len(value) == type_.size


def test_samples_are_such_as_the_server_takes() -> None:
    assert decoder_for(Type("timeuuid"))(sample_of(Type("timeuuid"))).version == 1
    assert len(decoder_for(Type("vector", (Type("text"),), size=3))(sample_of(parse_type("vector<text, 3>")))) == 3


@pytest.mark.parametrize("kind", sorted(NATIVES.keys() - {"counter"}))
def test_elements_of_vectors_have_the_width_that_the_driver_takes_for_them(kind: str) -> None:
    assert NATIVES[kind].in_vector == cqltypes._cqltypes[kind].serial_size()


def test_a_type_that_is_not_known_stays_bytes() -> None:
    odd = Type("org.example.Odd")
    assert decoder_for(odd)(b"\x01") == encoder_for(odd)("0x01") == b"\x01"


@given(st.data())
def test_the_driver_says_the_same_of_containers(data: st.DataObject) -> None:
    """Uses CQL types for which the driver also returns natural values."""
    kind = data.draw(st.sampled_from(["text", "int", "double", "uuid", "duration", "inet", "decimal"]))
    for container, driver in (("list", cqltypes.ListType), ("vector", cqltypes.VectorType)):
        type_ = Type(container, (Type(kind),), size=2 if container == "vector" else 0)
        raw = data.draw(nested(type_))
        theirs = driver.apply_parameters([cqltypes._cqltypes[kind], *([2] if container == "vector" else [])], None)
        assert decoder_for(type_)(raw) == list(theirs.from_binary(raw, 4) or [])


@pytest.mark.parametrize("kind", ["float", "smallint", "uuid", "text"])
def test_the_driver_says_the_same_of_vectors_of_vectors(kind: str) -> None:
    """Vectors of elements with a fixed size have a fixed size themselves."""
    element = cqltypes._cqltypes[kind]
    theirs = cqltypes.VectorType.apply_parameters([cqltypes.VectorType.apply_parameters([element, 2], None), 2], None)
    type_ = Type("vector", (Type("vector", (Type(kind),), size=2),), size=2)
    values = [[element.deserialize(sample_of(Type(kind)), 4)] * 2] * 2
    raw = theirs.serialize(values, 4)
    assert decoder_for(type_)(raw) == values
    assert sample_of(type_) == raw
    assert encoder_for(type_)(plain(values)) == raw


def test_a_driver_class_is_the_type_that_its_text_is() -> None:
    assert type_of("varchar") == parse_type("text")


@pytest.mark.parametrize("raw", [b"\x02a", b"\x01a\x05b", b"\x01a\x01"])
def test_a_vector_that_is_cut_is_an_error_and_not_a_shorter_one(raw: bytes) -> None:
    with pytest.raises(ValueError, match="longer than the cell"):
        decoder_for(Type("vector", (Type("text"),), size=2))(raw)


@pytest.mark.parametrize("kind", sorted(kind for kind, row in NATIVES.items() if row.in_vector and row.packed))
@given(st.data())
def test_numbers_of_a_vector_are_those_that_they_are_alone(kind: str, data: st.DataObject) -> None:
    parts = data.draw(st.lists(NATIVE[kind], min_size=1, max_size=5))
    vector = Type("vector", (Type(kind),), size=len(parts))
    assert decoder_for(vector)(b"".join(parts)) == [decoder_for(Type(kind))(part) for part in parts]


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        *[(kind, b"\x01" * 17) for kind in sorted(NATIVES.keys() - {"text", "ascii", "blob", "decimal", "varint"})],
        *[("decimal", b"\x01"), ("text", b"\xff"), ("ascii", b"\xff")],
        *[("list<int>", raw) for raw in (b"\0", b"\0\0\0\1\0", b"\0\0\0\2\xff\xff\xff\xff", b"\0\0\0\1" + b"\xff" * 8)],
        ("map<int, int>", b"\0\0\0\2" + b"\xff" * 8),
        *[("tuple<int, int>", b"\0\0\0"), ("tuple<int>", b"\0\0\0\1\0"), ("vector<float, 2>", bytes(7))],
        *[("vector<uuid, 1>", bytes(15)), ("vector<text, 1>", b"\xff\x80\0\0\0\0\0\0\1a")],
    ],
)
def test_bytes_that_are_no_value_are_a_value_error(text: str, raw: bytes) -> None:
    with pytest.raises(ValueError):
        decoder_for(parse_type(text))(raw)
