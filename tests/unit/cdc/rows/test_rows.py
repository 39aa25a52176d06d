"""Bytes to values: cutting pages, the natural value of every CQL type, and the stock driver as a second opinion."""

from __future__ import annotations

import io
import struct
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import attrs
import pytest
from cassandra import cqltypes
from cassandra.cqltypes import Int32Type, UserType, UTF8Type
from cassandra.protocol import ResultMessage
from cassandra.util import Date, Duration, Time
from fakelog import SIMPLE, body_of, columns_of, log_time, stream_id, type_of
from hypothesis import given
from hypothesis import strategies as st

from rscylla.cdc.log.table import BaseColumn, LoggedTable
from rscylla.cdc.rows import Layout, Layouts, LogRows
from rscylla.driver import pages as raw_pages
from rscylla.driver.pages import Column, Page, raw_handler, split_rows
from rscylla.errors import MetadataError
from rscylla.event import EventID
from rscylla.types import decoder_for, log_list
from rscylla.types.json import dumps, plain

MARSHAL = "org.apache.cassandra.db.marshal."
CODES = {"blob": 0x0003, "int": 0x0009, "text": 0x000D, "timestamp": 0x000B, "uuid": 0x000C, "boolean": 0x0004}

cell = st.none() | st.binary(max_size=40)


def pages(least_width: int = 1) -> st.SearchStrategy[list[tuple[bytes | None, ...]]]:
    return st.integers(least_width, 6).flatmap(lambda width: st.lists(st.tuples(*[cell] * width), max_size=12))


@given(pages(), st.binary(max_size=9), st.binary(max_size=9))
def test_both_ways_to_cut_a_page_give_its_cells(
    rows: list[tuple[bytes | None, ...]], before: bytes, after: bytes
) -> None:
    width = len(rows[0]) if rows else 1
    body = before + body_of(rows) + after
    page = Page(tuple(Column(f"c{n}", type_of("blob")) for n in range(width)), body, len(before), None)
    assert split_rows(body, len(before), width) == rows
    assert page.cells("ks.t") == rows
    assert page.row_count == len(rows)


# ---------------------------------------------------------------- over the wire


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def frame(
    names: list[tuple[str, str]], rows: list[tuple[bytes | None, ...]], *, state: bytes | None, shared: bool
) -> bytes:
    """Return the body of a RESULT of kind rows, as in the protocol."""
    flags = (0x0001 if shared else 0) | (0x0002 if state is not None else 0)
    out = struct.pack(">iii", 2, flags, len(names))
    if state is not None:
        out += struct.pack(">i", len(state)) + state
    if shared:
        out += text("ks") + text("t_scylla_cdc_log")
    for name, kind in names:
        out += (b"" if shared else text("ks") + text("t_scylla_cdc_log")) + text(name) + struct.pack(">H", CODES[kind])
    return out + body_of(rows)


def decoded(handler: type, body: bytes) -> Any:
    message = handler.message_types_by_opcode[ResultMessage.opcode]  # type: ignore[attr-defined]
    return message.recv_body(io.BytesIO(body), 4, None, {}, [], None)


@given(st.data(), st.booleans())
def test_a_raw_page_says_what_the_stock_decoder_says(data: st.DataObject, shared: bool) -> None:
    handler, stock = raw_handler(), raw_pages.ProtocolHandler
    names = [(f"c{n}", kind) for n, kind in enumerate(CODES)]
    seen: list[tuple[Column, ...]] = []
    for _ in range(3):
        row = st.tuples(
            cell,
            st.none() | st.integers(-(2**31), 2**31 - 1).map(lambda v: struct.pack(">i", v)),
            st.none() | st.text(max_size=9).map(str.encode),
            st.none() | st.integers(-(10**12), 10**13).map(lambda v: struct.pack(">q", v)),
            st.none() | st.binary(min_size=16, max_size=16),
            st.none() | st.sampled_from([b"\x00", b"\x01"]),
        )
        rows = data.draw(st.lists(row, max_size=5))
        state = data.draw(st.none() | st.binary(min_size=1, max_size=20))
        body = frame(names, rows, state=state, shared=shared)
        raw, oracle = decoded(handler, body), decoded(stock, body)
        page = raw.parsed_rows
        assert (page.state, raw.paging_state, raw.column_names) == (state, oracle.paging_state, oracle.column_names)
        decoders = [decoder_for(c.type) for c in page.columns]
        ours = [[None if v is None else d(v) for d, v in zip(decoders, r, strict=True)] for r in page.cells("ks.t")]
        theirs = [[v.replace(tzinfo=UTC) if isinstance(v, datetime) else v for v in r] for r in oracle.parsed_rows]
        for mine, other, raw_row in zip(ours, theirs, rows, strict=True):
            assert mine[0] == raw_row[0]
            assert mine[1:] == list(other)[1:]
        seen.append(page.columns)
    assert seen[0] is seen[1] is seen[2]
    changed = decoded(handler, frame(names[:2], [], state=None, shared=shared)).parsed_rows
    assert [c.name for c in changed.columns] == ["c0", "c1"]


# ---------------------------------------------------------------- values


def wire(name: str, value: Any) -> bytes:
    return (
        cqltypes.lookup_casstype(name).serialize(value, 4)
        if "(" in name
        else cqltypes._cqltypes[name].serialize(value, 4)
    )  # type: ignore[no-any-return]


NATIVE: list[tuple[str, Any]] = [
    ("ascii", "abc"),
    ("bigint", -(2**63)),
    ("blob", b"\x00\xff"),
    ("boolean", True),
    ("counter", 7),
    ("date", Date("2026-11-21")),
    ("decimal", Decimal("-12.3400")),
    ("double", 1.5),
    ("duration", Duration(1, 2, 3)),
    ("float", 0.5),
    ("inet", "10.0.0.1"),
    ("inet", "::1"),
    ("int", -1),
    ("smallint", -2),
    ("text", 'a"b\\ü'),
    ("time", Time("10:00:00.000000001")),
    ("timeuuid", uuid.UUID(bytes=log_time(10**15))),
    ("tinyint", -3),
    ("uuid", uuid.UUID(int=5)),
    ("varint", -(10**40)),
]


@pytest.mark.parametrize(("name", "value"), NATIVE)
def test_native_values_come_back(name: str, value: Any) -> None:
    decode = decoder_for(type_of(name))
    assert decode(wire(name, value)) == value
    assert type(decode(wire(name, value))) is type(value)


@given(st.integers(-(2**63), 2**63 - 1))
def test_timestamps_are_aware_and_exact_or_plain_milliseconds(ms: int) -> None:
    raw = struct.pack(">q", ms)
    for decode, cell_ in (
        (decoder_for(type_of("timestamp")), raw),
        (decoder_for(type_of(f"{MARSHAL}ListType({MARSHAL}TimestampType)")), body_of([(raw,)])),
    ):
        value = decode(cell_)
        value = value[0] if isinstance(value, list) else value
        if isinstance(value, datetime):
            assert value.tzinfo is UTC
            assert (value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() == pytest.approx(ms / 1000)
        else:
            assert value == ms
            assert not -62_135_596_800_000 <= ms < 253_402_300_800_000
        assert dumps(value)


def collection(*cells: bytes | None) -> bytes:
    return struct.pack(">i", len(cells)) + fields(*cells)


def mapping(*cells: bytes | None) -> bytes:
    return struct.pack(">i", len(cells) // 2) + fields(*cells)


def fields(*cells: bytes | None) -> bytes:
    return b"".join(struct.pack(">i", -1) if c is None else struct.pack(">i", len(c)) + c for c in cells)


def number(value: int) -> bytes:
    return struct.pack(">i", value)


INT, TEXT = f"{MARSHAL}Int32Type", f"{MARSHAL}UTF8Type"
LIST, SET, MAP, TUPLE = (f"{MARSHAL}{k}Type" for k in ("List", "Set", "Map", "Tuple"))


@pytest.mark.parametrize(
    ("name", "raw", "value", "json"),
    [
        (f"{LIST}({INT})", collection(number(1), None, number(2)), [1, None, 2], "[1,null,2]"),
        (f"{LIST}({INT})", collection(), [], "[]"),
        (f"{SET}({TEXT})", collection(b"a", b"b"), {"a", "b"}, '["a","b"]'),
        (f"{SET}({SET}({INT}))", collection(collection(number(2)), collection()), [{2}, set()], "[[2],[]]"),
        (f"{SET}({LIST}({INT}))", collection(collection(number(2)), collection()), [[2], []], "[[2],[]]"),
        (f"{SET}({TUPLE}({INT},{TEXT}))", collection(fields(number(2), None)), {(2, None)}, "[[2,null]]"),
        (f"{MAP}({TEXT},{INT})", mapping(b"b", number(1), b"a", None), {"b": 1, "a": None}, '{"b":1,"a":null}'),
        (f"{MAP}({INT},{INT})", mapping(number(1), number(2)), {1: 2}, "[[1,2]]"),
        (f"{MAP}({LIST}({INT}),{INT})", mapping(collection(number(1)), number(2)), {(1,): 2}, "[[[1],2]]"),
        (f"{MAP}({SET}({INT}),{INT})", mapping(collection(number(1)), number(2)), {frozenset({1}): 2}, "[[[1],2]]"),
        (f"{TUPLE}({INT},{TEXT},{INT})", fields(number(1), None), (1, None, None), "[1,null,null]"),
        (f"{MARSHAL}VectorType({MARSHAL}FloatType, 2)", struct.pack(">ff", 1, 2), [1.0, 2.0], "[1.0,2.0]"),
    ],
)
def test_containers_have_natural_values(name: str, raw: bytes, value: Any, json: str) -> None:
    found = decoder_for(type_of(name))(raw)
    assert (found, type(found)) == (value, type(value))
    assert dumps(found) == json


def test_a_udt_is_a_dict_whatever_the_application_registered_for_it() -> None:
    udt = UserType.make_udt_class("ks", "person", ("class", "b"), (Int32Type, UTF8Type))
    udt.mapped_class = object
    decode = decoder_for(raw_pages.type_of(udt))
    assert decode(fields(number(1), b"x")) == {"class": 1, "b": "x"}
    assert decode(fields(number(1))) == {"class": 1, "b": None}
    assert decode(fields(None, None)) == {"class": None, "b": None}


def test_a_list_column_is_the_elements_in_the_order_of_their_cells() -> None:
    log_type = type_of(f"{MAP}({MARSHAL}TimeUUIDType,{TEXT})")
    raw = mapping(log_time(10**15), b"a", log_time(10**15 + 1), b"b")
    assert decoder_for(log_list(log_type))(raw) == ["a", "b"]
    assert list(decoder_for(log_type)(raw).values()) == ["a", "b"]


@pytest.mark.parametrize(
    "name", ["int", "timestamp", "uuid", f"{LIST}({INT})", f"{SET}({INT})", f"{MAP}({INT},{INT})", f"{TUPLE}({INT})"]
)
def test_an_empty_cell_does_not_crash(name: str) -> None:
    found = decoder_for(type_of(name))(b"")
    assert found in (None, [], set(), {}, (None,))


@pytest.mark.parametrize("raw", [collection(number(1))[:-1], number(2) + fields(number(1))])
def test_a_collection_that_is_cut_is_an_error_and_not_a_shorter_one(raw: bytes) -> None:
    with pytest.raises(ValueError):
        decoder_for(type_of(f"{LIST}({INT})"))(raw)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.uuids() | st.decimals(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_any_value_has_json(value: Any) -> None:
    assert dumps(value) == dumps(value)
    assert plain(plain(value)) == plain(value)


@given(st.sets(st.text()) | st.sets(st.floats()) | st.sets(st.binary()) | st.sets(st.tuples(st.none() | st.integers())))
def test_a_set_has_one_text_whatever_its_order(value: set[Any]) -> None:
    again: set[Any] = set()
    for element in sorted(value, key=repr, reverse=True):
        again.add(element)
    assert dumps(again) == dumps(value) == dumps(frozenset(value))


# ---------------------------------------------------------------- layouts


def table(base: Any = SIMPLE) -> LoggedTable:
    columns = tuple(BaseColumn(n, kind, at, text_) for at, (n, kind, text_) in enumerate(base))
    return LoggedTable("ks", "t", columns, uuid.uuid4())


def test_columns_are_found_by_name_in_any_order() -> None:
    columns = columns_of(SIMPLE)
    layout = Layout.of(columns[::-1], table())
    assert [c.name for c in layout.keys] == ["pk", "ck"]
    assert [c.name for c in layout.values] == ["v"]
    assert columns[::-1][layout.time].name == "cdc$time"


@pytest.mark.parametrize("missing", ["cdc$operation", "ck"])
def test_a_column_that_must_be_there_is_named(missing: str) -> None:
    with pytest.raises(MetadataError, match=rf"has no column '{missing.replace('$', '.')}'"):
        Layout.of(tuple(c for c in columns_of(SIMPLE) if c.name != missing), table())


@given(st.binary(min_size=16, max_size=16), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**31 - 1))
def test_positions_are_those_of_event_ids(time: bytes, token: int, seq: int) -> None:
    columns = columns_of(SIMPLE)
    own = {"cdc$time": time, "cdc$stream_id": stream_id(token), "cdc$batch_seq_no": number(seq)}
    page = Page(columns, body_of([[own.get(c.name) for c in columns]]), 0, None)
    rows = LogRows()
    rows.add(page, Layout.of(columns, table()))
    (position,) = rows.positions
    assert position == EventID(0, 0, stream_id(token), time, seq).position


def test_a_page_from_before_a_change_means_what_the_table_was_then() -> None:
    """The page of a node, or of a query, that was slow comes when the table is known as it is now."""
    renamed = (("pk", "partition_key", "int"), ("cc", "clustering", "int"), ("v", "static", "text"))
    old, new = table(), table(renamed)
    reread: list[LoggedTable] = []

    def read() -> LoggedTable:
        reread.append(new)
        return new

    layouts = Layouts(read)
    pages = [Page(columns_of(base), body_of([]), 0, None) for base in (SIMPLE, renamed)]
    first = layouts.of(pages[0], old)
    assert reread == []
    assert [c.name for c in layouts.of(pages[1], old).keys] == ["pk", "cc"]
    assert reread == [new]
    again = layouts.of(pages[0], new)
    assert [[c.name for c in layout.keys] for layout in (first, again)] == [["pk", "ck"]] * 2
    assert [c.cql_type for c in again.values] == ["int"]
    assert [c.static for c in layouts.of(pages[1], new).values] == [True]
    assert layouts.of(pages[0], old) is first
    assert again.table is old


LOG_TYPES = {
    "frozen<map<int, frozen<list<int>>>>": f"{MAP}({INT},{LIST}({INT}))",
    "map<int, int>": f"{MAP}({INT},{INT})",
    "list<int>": f"{MAP}({MARSHAL}TimeUUIDType,{INT})",
    "frozen<tuple<int, int>>": f"{TUPLE}({INT},{INT})",
    "vector<float, 2>": f"{MARSHAL}VectorType({MARSHAL}FloatType, 2)",
    "text": TEXT,
}
LOG_TYPES |= {f"elements:{text_}": f"{SET}({INT})" for text_ in ("map<int, int>", "list<int>")}


@pytest.mark.parametrize("text_", [t for t in LOG_TYPES if not t.startswith("elements:")])
def test_a_column_that_was_dropped_unseen_has_the_type_that_the_log_tells(text_: str) -> None:
    columns = columns_of((*SIMPLE, ("gone", "regular", text_)), LOG_TYPES)
    (column,) = [c for c in Layout.of(columns, table()).values if c.name == "gone"]
    assert column.cql_type == text_
    assert column.kind == {"map<int, int>": "map", "list<int>": "list"}.get(text_, "value")


@pytest.mark.parametrize(
    ("now", "before"), [("bigint", "int"), ("map<int, int>", "list<int>"), ("set<int>", "list<int>")]
)
def test_old_pages_keep_the_type_of_a_column_that_was_added_again(now: str, before: str) -> None:
    columns = columns_of((*SIMPLE[:2], ("v", "regular", before)), LOG_TYPES)
    fresh = attrs.evolve(table((*SIMPLE[:2], ("v", "regular", now))), dropped=(("v", before),))
    for layout in (
        Layout.of(columns, fresh),
        Layout.of(columns, fresh, [table((*SIMPLE[:2], ("v", "regular", before)))]),
    ):
        assert [c.cql_type for c in layout.values] == [before]


MAP_BY_TIME = "map<timeuuid, int>"
"""The log has a list as such a map, frozen or not."""


@pytest.mark.parametrize(
    ("now", "before"),
    [
        ("frozen<set<int>>", "set<int>"),
        (f"frozen<{MAP_BY_TIME}>", "list<int>"),
        (f"frozen<{MAP_BY_TIME}>", MAP_BY_TIME),
        ("text", MAP_BY_TIME),
    ],
)
def test_a_column_with_separate_elements_is_distinguished_from_a_frozen_one(now: str, before: str) -> None:
    """Their values have the same type in the log; only one of them has a column of removed elements."""
    types = {"set<int>": f"{SET}({INT})", "elements:set<int>": f"{SET}({INT})"}
    types |= dict.fromkeys((MAP_BY_TIME, "list<int>"), f"{MAP}({MARSHAL}TimeUUIDType,{INT})")
    types |= {f"elements:{of}": f"{SET}({MARSHAL}TimeUUIDType)" for of in (MAP_BY_TIME, "list<int>")}
    page = Page(columns_of((*SIMPLE[:2], ("v", "regular", before)), types), body_of([]), 0, None)
    fresh = attrs.evolve(table((*SIMPLE[:2], ("v", "regular", now))), dropped=(("v", before),))
    reread: list[LoggedTable] = []

    def read() -> LoggedTable:
        reread.append(fresh)
        return fresh

    layout = Layouts(read).of(page, fresh)
    assert [c.cql_type for c in layout.values] == [before]
    assert reread == [fresh]


@pytest.mark.parametrize("lacks", ["page", "table"])
def test_a_table_that_has_other_columns_than_the_page_is_read_again(lacks: str) -> None:
    wide = (*SIMPLE, ("w", "regular", "int"))
    of_page, before = (SIMPLE, wide) if lacks == "page" else (wide, SIMPLE)
    reread = [table(of_page)]
    layout = Layouts(reread.pop).of(Page(columns_of(of_page), body_of([]), 0, None), table(before))
    assert layout.table.columns == table(of_page).columns
    assert reread == []
