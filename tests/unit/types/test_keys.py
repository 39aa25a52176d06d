"""Keys as JSON and back to bytes: lossless for every type that a primary key can have."""

from __future__ import annotations

import json
import math
import struct
import uuid
from typing import Any

import pytest
from cassandra import cqltypes
from cellbox import INT, NATIVE, nested, types
from fakelog import type_of
from hypothesis import given
from hypothesis import strategies as st

from rscylla._integers import parse_int
from rscylla.driver import pages
from rscylla.types import Type, decoder_for, encoder_for
from rscylla.types.cells import vector_cells
from rscylla.types.json import dumps, dumps_key
from rscylla.types.registry import width_in_vector


def through_json(type_: Type, raw: bytes) -> bytes:
    text = dumps({"k": decoder_for(type_)(raw)}, sort_keys=True)
    return encoder_for(type_)(json.loads(text, parse_int=parse_int)["k"])


def in_order(type_: Type, raw: bytes) -> Any:
    """Return *raw* as a value that is equal for the same elements in any order: the database sorts what is bound."""
    if type_.kind == "vector":
        (element,) = type_.args
        return [in_order(element, c) for c in vector_cells(width_in_vector(element), type_.size)(raw) if c is not None]
    cells = []
    at = 4 if type_.kind in ("list", "set", "map") else 0
    if type_.kind not in ("list", "set", "map", "tuple", "udt"):
        return raw
    while at < len(raw):
        size = INT.unpack_from(raw, at)[0]
        at += 4
        cells.append(None if size < 0 else raw[at : at + size])
        at += max(size, 0)
    kinds = [type_.args[i % len(type_.args)] for i in range(len(cells))]
    inner = [None if c is None else in_order(t, c) for t, c in zip(kinds, cells, strict=True)]
    if type_.kind == "set":
        return sorted(map(repr, inner))
    if type_.kind == "map":
        return sorted(map(repr, zip(inner[::2], inner[1::2], strict=True)))
    return inner


@pytest.mark.parametrize("kind", sorted(NATIVE))
@given(st.data())
def test_a_native_key_comes_back_to_the_byte(kind: str, data: st.DataObject) -> None:
    raw = data.draw(NATIVE[kind])
    assert through_json(type_of(kind), raw) == raw


@given(st.data())
def test_nested_keys_come_back(data: st.DataObject) -> None:
    type_ = data.draw(types)
    raw = data.draw(nested(type_))
    assert in_order(type_, through_json(type_, raw)) == in_order(type_, raw)


@given(
    st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.none() | st.lists(st.text()) | st.uuids())
)
def test_a_key_has_one_text(key: dict[str, Any]) -> None:
    assert dumps_key(key) == dumps(key, sort_keys=True)
    assert list(json.loads(dumps_key(key))) == sorted(key)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0])
def test_floats_that_json_lacks_come_back(value: float) -> None:
    for kind, pack in (("double", ">d"), ("float", ">f")):
        assert through_json(type_of(kind), struct.pack(pack, value)) == struct.pack(pack, value)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("kind", "scale"), [("varint", b""), ("decimal", INT.pack(2)), ("decimal", INT.pack(-2))])
def test_numbers_of_any_size_come_back(kind: str, scale: bytes, sign: int) -> None:
    raw = scale + (sign * (7 * 10**5000 + 1)).to_bytes(2077, "big", signed=True)
    assert through_json(type_of(kind), raw) == raw


@pytest.mark.parametrize("sort_keys", [False, True])
def test_a_long_number_changes_nothing_else_of_the_text(sort_keys: bool) -> None:
    value = {"z": [{"b": 'é"', "a": None}, -0.5, True, math.nan, (1,), b"\xff"], "k": -(10**5000), "": {}, "e": []}
    written = '"z":[{"b":"é\\"","a":null},-0.5,true,"NaN",[1],"0xff"]', f'"k":-1{"0" * 5000}', '"":{}', '"e":[]'
    if sort_keys:
        written = written[2], written[3], written[1], '"z":[{"a":null,"b":"é\\""},-0.5,true,"NaN",[1],"0xff"]'
    assert dumps(value, sort_keys=sort_keys) == "{" + ",".join(written) + "}"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", "1"),
        ("int", 1.0),
        ("int", True),
        ("int", 2**31),
        ("tinyint", -129),
        ("bigint", None),
        ("text", 5),
        ("ascii", "é"),
        ("blob", "ff"),
        ("blob", "0xf"),
        ("boolean", 1),
        ("date", "2026-13-01"),
        ("date", "yesterday"),
        ("time", "10:00"),
        ("timestamp", "yesterday"),
        ("timestamp", 2**63),
        ("uuid", "1"),
        ("inet", "host"),
        ("decimal", "NaN"),
        ("decimal", "x"),
        ("double", "x"),
        ("float", 1e300),
        ("varint", "1"),
    ],
)
def test_values_that_do_not_fit_are_refused(kind: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError, ArithmeticError)):
        encoder_for(type_of(kind))(value)


def test_values_of_the_wrong_shape_are_refused() -> None:
    pair = Type("tuple", (type_of("int"), type_of("int")))
    person = Type("udt", (type_of("int"),), ("age",), "person")
    for type_, value in ((pair, [1]), (pair, "ab"), (person, {"name": 1}), (person, [1])):
        with pytest.raises((ValueError, TypeError)):
            encoder_for(type_)(value)


def test_uuids_are_read_in_any_usual_form() -> None:
    one = uuid.uuid4()
    assert encoder_for(type_of("uuid"))(str(one).upper()) == one.bytes


def test_the_driver_says_the_same_of_a_frozen_udt() -> None:
    made = cqltypes.UserType.make_udt_class("ks", "u", ("a", "b"), (cqltypes.Int32Type, cqltypes.UTF8Type))
    assert encoder_for(pages.type_of(made))({"a": 1, "b": "x"}) == made.serialize((1, "x"), 4)
