"""The views of a log as columns: what they show of a change is what its event says, although none is made."""

# ruff: noqa: E402 - what follows needs pyarrow, which is not everywhere
from __future__ import annotations

import uuid
from typing import Any

import pytest

pytestmark = pytest.mark.arrow
pa = pytest.importorskip("pyarrow", reason="pip install 'rscylla[spark]'")
pytest.importorskip("numpy", reason="pip install 'rscylla[spark]'")

from fakelog import body_of, log_time, stream_id
from hypothesis import given, settings
from hypothesis import strategies as st
from logcells import BASE, LAYOUT, T, cells, ints, layout_of, packed, person

from rscylla.cdc.arrow.batches import Changes, ChangeView, EventView, LogView, Mode, in_batches, table_of
from rscylla.cdc.arrow.columnar import times_of
from rscylla.cdc.log.table import BaseColumn, LoggedTable, log_columns
from rscylla.cdc.rows import Layout, LogRows, new_rows
from rscylla.cdc.rows.changes import operation_of
from rscylla.cdc.rows.events import ChangeEvent, EventContext, changes_of
from rscylla.driver.pages import Column, Page
from rscylla.errors import MetadataError, SourceError
from rscylla.types import Type
from rscylla.types.arrow import builder_for

GENERATION = 1_699_999_000_000
OTHER = layout_of(tuple(c for c in BASE if c[0] not in ("w", "notes")))
KEYS_ONLY = layout_of((("pk", "partition_key", "int"),))
ODD_KEY = layout_of((("z", "partition_key", "text"), ("a", "clustering", "double"), ("v", "regular", "blob")))

STEPS = packed(log_time(T, 9), b"\0\0\0\7", log_time(T, 8), b"\0\0\0\6", count=2)

log_rows = st.fixed_dictionaries(
    {
        "op": st.sampled_from([0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 9, -3, -4, 77]),
        "pk": st.integers(1, 2),
        "ck": st.sampled_from([1, 2, None]),
        "cdc$stream_id": st.sampled_from([stream_id(5), stream_id(-9)]),
        "cdc$time": st.sampled_from([log_time(T + us, low) for us in (0, 1, 3_000_000) for low in (7, 2**64 - 1)]),
        "gone": st.lists(st.sampled_from(["v", "w", "tags", "u", "s"]), unique=True),
    },
    optional={
        "v": st.integers(-1, 1) | st.just(b""),
        "w": st.sampled_from([b"", b"x", b'a "quote"', "\N{SNOWMAN}".encode()]),
        "s": st.just(3),
        "z": st.sampled_from([b"key", b"\\"]),
        "a": st.sampled_from([b"\x3f\xf8" + bytes(6), bytes(8), b""]),
        "tags": st.sampled_from([ints(), ints(1, 2)]),
        "notes": st.just(ints(1, 2, 3, 4, count=2)),
        "steps": st.sampled_from([STEPS, packed()]),
        "u": st.sampled_from([person("x", None), person(None, None)]),
        "cdc$deleted_elements_tags": st.just(ints(3)),
        "cdc$deleted_elements_steps": st.just(packed(log_time(T, 6))),
        "cdc$deleted_elements_u": st.just(packed(b"\0\0", b"\0\7")),
        "cdc$ttl": st.just(bytes(7) + b"\x09"),
        "cdc$end_of_batch": st.just(b"\x01"),
    },
)
layouts = st.sampled_from([[LAYOUT], [LAYOUT, OTHER], [KEYS_ONLY], [ODD_KEY]])


@st.composite
def windows(draw: st.DrawFn) -> LogRows:
    """Sorted windows of few keys and times, so that their rows meet in records."""
    choice, rows = draw(layouts), draw(st.sampled_from([LogRows, new_rows]))()
    for number, row in enumerate(draw(st.lists(log_rows, min_size=1, max_size=8))):
        layout = draw(st.sampled_from(choice))
        own = cells({"cdc$batch_seq_no": number, "z": b"key", **row}, layout.columns)
        rows = rows.add(Page(layout.columns, body_of([own]), 0, None), layout)
    rows.sort()
    return rows


def shown(view: Any, rows: LogRows, size: int = 100) -> list[dict[str, Any]]:
    """Return the rows of a view, of batches of *size* rows."""
    changes = Changes.of(rows, GENERATION)
    parts = [changes.at(slice(at, at + size)) for at in range(0, len(changes), size)]
    found = []
    for batch in in_batches(view, parts, view.schema.names):
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


@settings(max_examples=60)
@given(windows(), st.integers(1, 4))
def test_events_by_columns_are_the_events(rows: LogRows, size: int) -> None:
    found = [row for part in rows.by_layout() for row in shown(EventView(part.layouts[0]), part, size)]
    assert found == [
        {
            "id": e.id,
            "type": e.operation.name.lower(),
            "foreign_id": e.foreign_id,
            "timestamp": e.timestamp,
            "metadata": e.metadata.decode(),
        }
        for e in changes_of(rows, EventContext(GENERATION))
    ]


@settings(max_examples=60)
@given(windows(), st.integers(1, 4))
def test_changes_by_columns_are_the_events(rows: LogRows, size: int) -> None:
    found = [row for part in rows.by_layout() for row in shown(ChangeView(part.layouts[0]), part, size)]
    assert found == [by_rows(e) for e in changes_of(rows, EventContext(GENERATION))]


def by_rows(event: ChangeEvent) -> dict[str, Any]:
    """Return what the view shows of an event, made of its rows one by one."""
    layout, (delta, before, after, end) = event.layout, event.raw_rows()
    operation = event.operation
    if operation.name == "PREIMAGE":
        before = delta
    if operation.name == "POSTIMAGE":
        after = delta
    is_image = operation.name in ("PREIMAGE", "POSTIMAGE")
    is_range = operation.name.startswith("RANGE")
    written = (None,) * len(delta) if is_image else delta
    change = event.change
    row = {
        "cdc_stream_id": delta[layout.stream_id],
        "cdc_time": str(change.batch.time),
        "cdc_batch_seq_no": int.from_bytes(delta[layout.seq] or b"", "big"),
        "cdc_timestamp": event.timestamp,
        "cdc_sequence": event.position,
        "cdc_operation": operation.name.lower(),
        "cdc_ttl": change.ttl,
    }
    split = len(layout.table.partition_key)
    for n, key in enumerate(layout.keys):
        row[key.name] = None if is_range and n >= split else arrow(key.type, delta[key.index])
    if layout.values:
        row["cdc_values"] = image(layout, written)
    touched = [] if is_image else [c.name for c in layout.values if c.touched_in(delta)]
    row |= {"cdc_touched": sorted(touched), "cdc_deleted": sorted(change.deleted)}
    types = [c.type for c in layout.columns]
    lists = [c for c in layout.values if c.kind == "list"]
    loose = [c for c in layout.values if c.kind != "value"]
    if lists:
        row["cdc_added"] = {c.name: arrow(types[c.index], written[c.index]) or None for c in lists}
    if loose:
        removed = {c.name: arrow(types[c.elements], written[c.elements]) for c in loose if c.kind != "udt"}
        udts = {c.name: None if written[c.elements] is None else ["name", "7"] for c in loose if c.kind == "udt"}
        row["cdc_removed"] = {**removed, **udts}
    if layout.values:
        row["cdc_before"] = None if before is None else image(layout, before)
        row["cdc_after"] = None if after is None else image(layout, after)
    if layout.keys[split:]:
        row["cdc_range"] = None
        if is_range:
            is_end = "END" in operation.name
            ends = (None, delta) if is_end else (delta, end)
            row["cdc_range"] = {n: bound(layout, of) for n, of in zip(("start", "end"), ends, strict=True)}
    return row


def arrow(type_: Any, cell: bytes | None, **how: Any) -> Any:
    return builder_for(type_, **how)([cell]).to_pylist()[0]


def image(layout: Layout, row: Any) -> dict[str, Any]:
    return {c.name: arrow(c.type, row[c.index], loose=c.kind == "udt") for c in layout.values}


def bound(layout: Layout, row: Any) -> dict[str, Any] | None:
    if row is None:
        return None
    keys = {c.name: arrow(c.type, row[c.index]) for c in layout.keys[len(layout.table.partition_key) :]}
    return {**keys, "inclusive": operation_of(row[layout.operation]).name.endswith("INCLUSIVE")}


@settings(max_examples=30)
@given(windows())
def test_the_log_by_columns_is_its_rows(rows: LogRows) -> None:
    for part in rows.by_layout():
        view = LogView(part.layouts[0])
        (batch,) = in_batches(view, [part], view.schema.names)
        assert batch.num_rows == len(part)
        assert batch["cdc_time"].equals(builder_for(part.layouts[0].columns[1].type)(part.column(1)))
        for n, column in enumerate(part.layouts[0].columns):
            assert batch.column(n).to_pylist() == [arrow(column.type, row[n]) for row in part.cells]


@settings(max_examples=30)
@given(windows(), st.data())
def test_what_lies_behind_a_position_keeps_its_place_in_the_record(rows: LogRows, data: st.DataObject) -> None:
    after = data.draw(st.sampled_from(rows.positions))
    found = []
    for part in rows.by_layout():
        changes = Changes.of(part, GENERATION).behind(after)
        found += EventView(part.layouts[0]).columns(changes, ["metadata"])[0].to_pylist()
    events = changes_of(rows, EventContext(GENERATION))
    assert found == [e.metadata.decode() for e in events if e.position > after]


def test_batches_have_the_rows_of_a_window_once() -> None:
    rows = LogRows()
    columns = LAYOUT.columns
    own = [cells({"ck": n, "cdc$batch_seq_no": n}, columns) for n in range(5_001)]
    rows.add(Page(columns, body_of(own), 0, None), LAYOUT)
    parts = list(Changes.of(rows, GENERATION).batches())
    assert [len(p) for p in parts] == [5_000, 1]
    assert [n for p in parts for n in p.delta] == list(range(5_001))


@pytest.mark.parametrize(("mode", "name"), [("log", "m"), ("changes", "m"), ("changes", "ck")])
def test_a_key_beyond_arrow_is_named_by_table_and_column(mode: Mode, name: str) -> None:
    base = (
        ("pk", "partition_key", "int"),
        ("ck", "clustering", "timestamp"),
        ("m", "regular", "frozen<map<timestamp, int>>"),
    )
    layout = layout_of(base)
    far = (2**62).to_bytes(8, "big")
    row = {"ck": bytes(8), "m": packed(bytes(8), bytes(4), count=1)}
    row[name] = far if name == "ck" else packed(far, bytes(4), count=1)
    own = cells({"cdc$batch_seq_no": 0, **row}, layout.columns)
    rows = LogRows().add(Page(layout.columns, body_of([own]), 0, None), layout)
    with pytest.raises(SourceError, match=rf"^a change of ks\.t has a timestamp in a key, in column '{name}', that is"):
        table_of(mode, rows, GENERATION, b"")


def nested(kind: str, depth: int) -> Type:
    """Return a type with *depth* levels around an int."""
    found = Type("int")
    for _ in range(depth):
        found = Type(kind, (Type("int"), found) if kind == "map" else (found,), frozen=True)
    return found


def layout_with(type_: Type) -> Layout:
    key = BaseColumn("pk", "partition_key", 0, "int")
    table = LoggedTable("ks", "t", (key, BaseColumn("deep", "regular", -1, "x", False, type_)), uuid.UUID(int=1))
    return Layout.of([Column(name, of) for name, of in log_columns(table).items()], table)


@pytest.mark.parametrize(
    ("view", "kind", "most"),
    [
        (LogView, "list", 63),
        (LogView, "map", 31),
        (LogView, "tuple", 63),
        (ChangeView, "list", 62),
        (ChangeView, "map", 31),
    ],
)
def test_a_type_that_arrow_cannot_nest_is_told_when_the_schema_is_made(view: Any, kind: str, most: int) -> None:
    view(layout_with(nested(kind, most)))
    with pytest.raises(MetadataError, match=r"ks\.t cannot be in Arrow: the type of column .* levels of nesting"):
        view(layout_with(nested(kind, most + 1)))


def test_events_have_values_of_any_nesting() -> None:
    EventView(layout_with(nested("list", 100)))


@given(st.lists(st.integers(0, 4_000_000_000_000_000), max_size=5))
def test_times_of_timeuuids(times: list[int]) -> None:
    assert times_of([log_time(us) for us in times]).tolist() == times


@pytest.mark.parametrize("cell", [None, b"", bytes(15), bytes(17)])
def test_what_is_no_timeuuid_has_no_time(cell: bytes | None) -> None:
    with pytest.raises(ValueError, match="16 bytes of its type"):
        times_of([log_time(T), cell])
