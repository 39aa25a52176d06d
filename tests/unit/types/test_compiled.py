"""The compiled decoders and their twins in Python: the same values of the same bytes, and errors for the same ones."""

# ruff: noqa: E402 - what follows needs the compiled module
from __future__ import annotations

import pickle
import struct
import uuid
from collections.abc import Sequence
from datetime import UTC
from typing import Any

import pytest

fast = pytest.importorskip("rscylla.types.compiled", reason="rscylla was built without a C compiler")

from cellbox import INT, any_types, broken, nested
from hypothesis import example, given
from hypothesis import strategies as st

from rscylla.types import Decoder, Type, log_list
from rscylla.types.registry import _decoder, _made


def twins(type_: Type) -> tuple[Decoder, Decoder]:
    return _decoder(type_, fast.native_decoder, fast.container_decoder), _made(type_, "decode")


def plain(value: Any) -> Any:
    """Return *value* so that equal means the same: with types, signs of zero, NaN, and the order of dicts."""
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, set | frozenset):
        return (type(value), sorted((plain(v) for v in value), key=repr))
    if isinstance(value, dict):
        return (dict, [(plain(k), plain(v)) for k, v in value.items()])
    if isinstance(value, list | tuple):
        return (type(value), [plain(v) for v in value])
    return (type(value), repr(value))


def outcome(decode: Decoder, raw: bytes) -> Any:
    try:
        return plain(decode(raw))
    except ValueError:
        return ValueError


@given(any_types.flatmap(lambda t: st.tuples(st.just(t), nested(t))))
@example((Type("vector", (Type("text"),), size=1), b"\x01a"))
@example((Type("vector", (Type("int"),), size=1), bytes(4)))
@example((Type("vector", (Type("uuid"),), size=1), bytes(16)))
def test_both_give_the_same_values(value: tuple[Type, bytes]) -> None:
    type_, raw = value
    compiled, pure = twins(type_)
    assert plain(compiled(raw)) == plain(pure(raw))
    assert plain(compiled(b"")) == plain(pure(b""))


@given(any_types.flatmap(lambda t: st.tuples(st.just(t), broken(t))))
@example((Type("vector", (Type("text"),), size=1), b"\xff\x80\0\0\0\0\0\0\x01a"))
@example((Type("vector", (Type("text"),), size=1), b"\xff\xff\xff"))
@example((Type("map", (Type("text"), Type("int"))), INT.pack(1) + INT.pack(0)))
@example((Type("vector", (Type("int"),), size=2), bytes(7)))
def test_both_refuse_the_same_bytes(value: tuple[Type, bytes]) -> None:
    type_, raw = value
    compiled, pure = twins(type_)
    assert outcome(compiled, raw) == outcome(pure, raw)


@given(st.data())
def test_both_read_the_list_of_a_log(data: st.DataObject) -> None:
    as_map = Type("map", (Type("timeuuid"), data.draw(any_types)))
    compiled, pure = twins(log_list(as_map))
    for strategy in (nested(as_map), broken(as_map)):
        raw = data.draw(strategy)
        assert outcome(compiled, raw) == outcome(pure, raw)


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-62_135_596_801_000, 253_402_300_801_000))
@example(-62_135_596_800_000)
@example(-62_135_596_800_001)
@example(253_402_300_799_999)
@example(253_402_300_800_000)
@example(951_782_400_000)  # 29 February of a year that is divided by 400
def test_both_read_the_same_times(ms: int) -> None:
    compiled, pure = twins(Type("timestamp"))
    raw = struct.pack(">q", ms)
    assert plain(compiled(raw)) == plain(pure(raw))
    found = compiled(raw)
    assert isinstance(found, int) or found.tzinfo is UTC


def test_a_compiled_uuid_is_a_uuid_like_any_other() -> None:
    one = uuid.uuid1()
    found = twins(Type("timeuuid"))[0](one.bytes)
    assert (found, hash(found), found.is_safe, str(found)) == (one, hash(one), uuid.SafeUUID.unknown, str(one))
    assert pickle.loads(pickle.dumps(found)) == one
    with pytest.raises(TypeError):
        found.int = 0


@pytest.mark.parametrize(
    ("type_", "raw", "text"),
    [
        (Type("int"), bytes(3), "a cell does not have the 4 bytes of its type"),
        (Type("boolean"), bytes(2), "a cell does not have the 1 bytes of its type"),
        (Type("timestamp"), bytes(9), "a cell does not have the 8 bytes of its type"),
        (Type("uuid"), bytes(15), "a cell does not have the 16 bytes of its type"),
        (Type("date"), bytes(3), "a cell does not hold a date"),
        (Type("inet"), bytes(5), "a cell does not hold a inet"),
        (Type("list", (Type("int"),)), bytes(3), "a value is longer than the cell that holds it"),
        (Type("list", (Type("int"),)), INT.pack(2), "a collection holds another number of elements than it says"),
        (Type("tuple", (Type("int"),)), INT.pack(5), "a value is longer than the cell that holds it"),
        (Type("vector", (Type("float"),), size=2), bytes(7), "a vector has another number of elements than its type"),
        (Type("vector", (Type("float"),), size=2), bytes(4), "a vector has another number of elements than its type"),
        (Type("vector", (Type("float"),), size=2), bytes(12), "a vector has another number of elements than its type"),
        (Type("vector", (Type("text"),), size=2), b"\x01a", "a vector has another number of elements than its type"),
        (
            Type("vector", (Type("text"),), size=2),
            b"\x01a" * 3,
            "a vector has another number of elements than its type",
        ),
        (Type("vector", (Type("uuid"),), size=2), bytes(16), "a vector has another number of elements than its type"),
    ],
)
def test_errors_say_the_same(type_: Type, raw: bytes, text: str) -> None:
    for decode in twins(type_):
        with pytest.raises(ValueError, match=text):
            decode(raw)


@pytest.mark.parametrize("kind", ["text", "ascii"])
def test_text_that_is_none_says_where(kind: str) -> None:
    for decode in twins(Type(kind)):
        with pytest.raises(UnicodeDecodeError) as caught:
            decode(b"ab\xff")
        assert (caught.value.object, caught.value.start) == (b"ab\xff", 2)


@pytest.mark.parametrize("raw", [None, "text", bytearray(4), 5])
def test_only_bytes_are_decoded(raw: Any) -> None:
    with pytest.raises(TypeError):
        twins(Type("int"))[0](raw)


@pytest.mark.parametrize("part", [None, bytes.decode])
def test_a_part_that_is_no_compiled_decoder_is_refused(part: Any) -> None:
    kinds: list[Any] = [fast.List, fast.Set, lambda p: fast.Fields([p]), lambda p: fast.Udt([p], ["a"])]
    for make in kinds:
        with pytest.raises(TypeError):
            make(part)


def test_cells_are_a_sequence_of_bytes_and_nulls() -> None:
    kept = [b"a", None, b"", b"\0" * 300]
    cells = fast.CellList(kept)
    assert isinstance(cells, Sequence)
    assert (list(cells), len(cells), cells[0], cells[-1], None in cells) == (kept, 4, b"a", b"\0" * 300, True)
    for wrong in (4, -5):
        with pytest.raises(IndexError):
            cells[wrong]
    assert list(fast.CellList([])) == []
    with pytest.raises(TypeError, match="bytearray"):
        fast.CellList([b"", bytearray(1)])
