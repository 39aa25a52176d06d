"""Compiled columns and their twins in Python: the same Arrow arrays of the same cells, and errors for the same ones."""

# ruff: noqa: E402 - what follows needs pyarrow and the compiled module
from __future__ import annotations

import gc
import struct
from typing import Any

import pytest

pytestmark = pytest.mark.arrow
pa = pytest.importorskip("pyarrow", reason="pip install 'rscylla[spark]'")

fast = pytest.importorskip("rscylla.types.compiled", reason="rscylla was built without a C compiler")

from arrays import numbers_for_moments
from cellbox import INT, any_types, broken, cell, nested
from hypothesis import example, given
from hypothesis import strategies as st

from rscylla.types import Type, arrow, log_list, parse_type
from rscylla.types.arrow import Build, arrow_type

beyonds = st.sampled_from(["null", "raise", "bound"])


def twins(type_: Type, **options: Any) -> tuple[Build, Build]:
    """Return the compiled builder, and the one in Python."""
    built = []
    for choice in (fast.ArrowBuilder, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrow, "_compiled_builder", choice)
            built.append(arrow.builder_for(type_, **options))
    return built[0], built[1]


def outcome(build: Build, cells: Any) -> Any:
    """Return the values of an array in a form in which NaN and the two zeros are themselves, or what was raised."""
    try:
        array = build(cells)
    except (ValueError, OverflowError) as e:
        return OverflowError if isinstance(e, OverflowError) else ValueError
    array.validate(full=True)
    return array.type, len(array), array.null_count, repr(numbers_for_moments(array).to_pylist())


def columns(cell: Any) -> st.SearchStrategy[tuple[Type, list[bytes | None]]]:
    """Draw a type, and cells that *cell* draws for it, with nulls and empty ones among them."""
    return any_types.flatmap(
        lambda t: st.tuples(st.just(t), st.lists(st.none() | st.just(b"") | cell(t) | cell(t), max_size=20))
    )


@given(columns(nested), beyonds)
def test_both_build_the_same_arrays(column: tuple[Type, list[bytes | None]], beyond: Any) -> None:
    type_, cells = column
    compiled, pure = twins(type_, beyond=beyond)
    expected = outcome(pure, cells)
    for of in (cells, tuple(cells), fast.CellList(cells)):
        assert outcome(compiled, of) == expected


@given(columns(broken), beyonds)
@example((parse_type("list<int>"), [INT.pack(2**31 - 1) + bytes(8)]), "null")
@example((parse_type("list<int>"), [INT.pack(-1)]), "null")
@example((parse_type("list<int>"), [b"\0"]), "null")
@example((parse_type("vector<text, 1>"), [b"\xff" * 9]), "null")
@example((parse_type("duration"), [b"\xff\xff"]), "null")
@example((parse_type("duration"), [b"\xf8\1\0\0\0\0\0\0"]), "null")
@example((parse_type("int"), [bytes(3), bytes(5)]), "null")
def test_both_refuse_the_same_cells(column: tuple[Type, list[bytes | None]], beyond: Any) -> None:
    type_, cells = column
    compiled, pure = twins(type_, beyond=beyond)
    assert outcome(compiled, cells) == outcome(pure, cells)


@given(st.data())
def test_both_read_lists_and_types_that_are_not_frozen(data: st.DataObject) -> None:
    element = data.draw(any_types)
    as_list = log_list(Type("map", (Type("timeuuid"), element)))
    udt = Type("udt", (element, Type("int")), ("a", "b"))
    for type_, raw, loose in ((as_list, Type("map", as_list.args), False), (udt, udt, True)):
        cells = data.draw(st.lists(st.none() | nested(raw) | broken(raw), max_size=6))
        compiled, pure = twins(type_, loose=loose)
        assert outcome(compiled, cells) == outcome(pure, cells)


TEXTS = [
    *(
        "",
        "a" * 7,
        "a" * 8,
        "a" * 9,
        "ä",
        "€",
        "\U0001f600",
        "\0",
        "\x7f",
        "\x80",
        "\u07ff",
        "\u0800",
        "\ud7ff",
        "\ue000",
    ),
    *("\uffff", "\U00010000", "\U0010ffff", "a" * 100 + "ä"),
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_all_lengths_is_taken(text: str) -> None:
    for build in twins(Type("text")):
        assert build([text.encode(), None, b"x"]).to_pylist() == [text, None, "x"]


@given(st.binary(max_size=6) | st.sampled_from(TEXTS).flatmap(lambda t: st.binary(max_size=2).map(t.encode().__add__)))
@example(b"\xc0\x80")
@example(b"\xed\xa0\x80")  # a surrogate
@example(b"\xf4\x90\x80\x80")  # beyond Unicode
@example(b"\xe2\x82")
@example(b"\xe0\x80\x80")
@example(b"\xf0\x80\x80\x80")
@example(b"\x80")
def test_text_is_utf_8(raw: bytes) -> None:
    compiled, pure = twins(Type("text"))
    assert outcome(compiled, [raw]) == outcome(pure, [raw])
    halves = [raw[: len(raw) // 2], raw[len(raw) // 2 :]]  # a letter does not go on in the next cell
    assert outcome(compiled, halves) == outcome(pure, halves)


@pytest.mark.parametrize(
    ("text", "cell", "error", "says"),
    [
        ("int", bytes(3), ValueError, "a cell does not have the 4 bytes of its type"),
        ("text", b"\xff", ValueError, "a text is not UTF-8"),
        ("map<int, int>", INT.pack(1) + cell(None) * 2, ValueError, "a map has a null as a key"),
        ("tuple<int>", INT.pack(4), ValueError, "a value is longer than the cell that holds it"),
        ("list<int>", INT.pack(2) + cell(None), ValueError, "another number of elements than it says"),
        ("timestamp", struct.pack(">q", 2**62), OverflowError, "a timestamp is beyond what Arrow can hold"),
    ],
)
def test_errors_say_the_same(text: str, cell: bytes, error: type[Exception], says: str) -> None:
    for build in twins(parse_type(text), beyond="raise"):
        with pytest.raises(error, match=says):
            build([cell])


def test_a_column_without_values_is_that_of_nulls() -> None:
    type_ = parse_type("map<text, frozen<list<int>>>")
    found = twins(type_)[0]([None] * 5)
    assert found.equals(pa.nulls(5, arrow_type(type_)))


def test_arrays_outlive_what_they_were_made_of_and_free_their_memory() -> None:
    type_ = parse_type("list<frozen<map<text, duration>>>")
    entry = INT.pack(1) + cell(b"key") + cell(b"\x01\x04\x05")
    build = twins(type_)[0]
    before = pa.total_allocated_bytes()
    arrays = [build([INT.pack(1) + cell(entry), None]) for _ in range(3)]
    gc.collect()
    assert arrays[0].to_pylist() == [[[("key", {"months": -1, "days": 2, "nanoseconds": -3})]], None]
    assert pa.total_allocated_bytes() == before, "the memory is ours, and was not copied"


def test_a_column_that_pyarrow_does_not_take_is_freed() -> None:
    column = fast.ArrowBuilder("text", 0, 0, (), "null", False, None).build([b"a", None], pa.string())
    capsules = column.__arrow_c_array__()
    with pytest.raises(ValueError, match="taken already"):
        column.__arrow_c_array__()
    del capsules, column
    fast.ArrowBuilder("text", 0, 0, (), "null", False, None).build([b"a", None], pa.string())


def test_cells_that_are_not_bytes_are_refused() -> None:
    with pytest.raises(TypeError):
        twins(Type("int"))[0](["text"])
