"""Records, the events that are made of them while they are taken, and what each says of its columns."""

from __future__ import annotations

import gc
import itertools
import uuid
import weakref
from typing import Any

import attrs
import pytest
from cassandra.cqltypes import Int32Type, UserType, UTF8Type
from fakelog import NOW_US, SECOND, FakeLog, body_of, log_time, stream_id
from hypothesis import given
from hypothesis import strategies as st
from logcells import BASE, END, LAYOUT, T, cells, ints, layout_of, packed, person

import rscylla
from rscylla.cdc.rows import Layout, LogRows
from rscylla.cdc.rows.changes import Change
from rscylla.cdc.rows.columns import ColumnChange, ColumnState
from rscylla.cdc.rows.events import ChangeEvent, EventContext, changes_of, rows_as_events
from rscylla.cdc.rows.layout import larger
from rscylla.driver import pages
from rscylla.driver.pages import Page
from rscylla.errors import EventTypeError, HeadReached
from rscylla.event import Operation
from rscylla.types import Type

HEAD_US = NOW_US - 30 * SECOND
LAG = rscylla.StreamLag(seconds=30)


def rows_of(*rows: dict[str, Any], layout: Layout = LAYOUT) -> LogRows:
    """Return rows whose numbers are their places, unless they say otherwise, as one page."""
    found = LogRows()
    numbered = [cells({"cdc$batch_seq_no": n, **row}, layout.columns) for n, row in enumerate(rows)]
    found.add(Page(layout.columns, body_of(numbered), 0, None), layout)
    found.sort()
    return found


def events_of(*rows: dict[str, Any], context: EventContext | None = None) -> list[ChangeEvent]:
    return list(changes_of(rows_of(*rows), context or EventContext(0)))


def change_of(**row: Any) -> Change:
    (event,) = events_of({"ck": 1, **row})
    return event.change


ONE, TWO, THREE = (uuid.UUID(bytes=log_time(T + n, 9)) for n in range(3))


def listed(*elements: tuple[uuid.UUID, int]) -> bytes:
    return packed(*itertools.chain(*((k.bytes, v.to_bytes(4, "big")) for k, v in elements)), count=len(elements))


# ---------------------------------------------------------------- what was done to a column

S = ColumnState
STATES: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
    # column, log row, (state, value, added, removed)
    ("v", {}, (S.UNTOUCHED, None, None, None)),
    ("v", {"v": 5}, (S.SET, 5, None, None)),
    ("v", {"gone": ["v"]}, (S.NULL, None, None, None)),
    ("v", {"v": b""}, (S.SET, None, None, None)),
    ("w", {"w": b""}, (S.SET, "", None, None)),
    ("tags", {"tags": ints(1, 2)}, (S.EDITED, None, {1, 2}, None)),
    ("tags", {"tags": ints(1, 2), "gone": ["tags"]}, (S.OVERWRITTEN, {1, 2}, {1, 2}, None)),
    ("tags", {"gone": ["tags"]}, (S.NULL, None, None, None)),
    ("tags", {"cdc$deleted_elements_tags": ints(3)}, (S.EDITED, None, None, {3})),
    ("tags", {"tags": ints(1), "cdc$deleted_elements_tags": ints(3)}, (S.EDITED, None, {1}, {3})),
    ("notes", {"notes": ints(1, 10, count=1)}, (S.EDITED, None, {1: 10}, None)),
    ("notes", {"cdc$deleted_elements_notes": ints(2)}, (S.EDITED, None, None, {2})),
    ("notes", {"notes": ints(1, 10, count=1), "gone": ["notes"]}, (S.OVERWRITTEN, {1: 10}, {1: 10}, None)),
    ("steps", {"steps": listed((ONE, 4), (TWO, 4))}, (S.EDITED, None, {ONE: 4, TWO: 4}, None)),
    ("steps", {"steps": listed((ONE, 4)), "gone": ["steps"]}, (S.OVERWRITTEN, [4], {ONE: 4}, None)),
    ("steps", {"cdc$deleted_elements_steps": packed(ONE.bytes)}, (S.EDITED, None, None, {ONE})),
    ("u", {"u": person("a", None)}, (S.EDITED, None, {"name": "a"}, None)),
    ("u", {"u": person("a", None), "gone": ["u"]}, (S.OVERWRITTEN, {"name": "a", "age": None}, {"name": "a"}, None)),
    ("u", {"u": person(None, None), "gone": ["u"]}, (S.NULL, None, None, None)),
    ("u", {"u": person(None, None), "cdc$deleted_elements_u": packed(b"\x00\x01")}, (S.EDITED, None, None, {"age"})),
    ("u", {"u": person(None, None), "cdc$deleted_elements_u": packed(b"\x00\x07")}, (S.EDITED, None, None, {7})),
]


@pytest.mark.parametrize(("name", "row", "told"), STATES)
def test_null_empty_overwritten_and_untouched_are_distinguished(
    name: str, row: dict[str, Any], told: tuple[Any, ...]
) -> None:
    change = change_of(**row)
    column = change.column(name)
    assert (column.state, column.value, column.added, column.removed) == told
    assert (column.touched, name in change.columns) == ((told[0] is not S.UNTOUCHED),) * 2
    known = told[0] in (S.SET, S.NULL, S.OVERWRITTEN)
    assert change.after == ({name: told[1]} if known else {})


def test_columns_have_their_kind_and_whether_they_are_static() -> None:
    change = change_of()
    kinds = {n: change.column(n).kind for n in ("v", "tags", "notes", "steps", "u")}
    assert kinds == {"v": "value", "tags": "set", "notes": "map", "steps": "list", "u": "udt"}
    (event,) = events_of({"s": 1})
    assert (event.change.static, event.change.column("s").static, change.column("v").static) == (True, True, False)
    for name in ("pk", "none"):
        with pytest.raises(KeyError, match=name):
            change.column(name)


@pytest.mark.parametrize("op", [0, 9, 3, 4, -3, -4])
def test_images_and_deletes_touch_no_column(op: int) -> None:
    (event,) = events_of({"op": op, "ck": 1, "v": 5 if op in (0, 9) else None})
    assert event.change.columns == {}
    assert event.change.is_delete == (op not in (0, 9))
    assert event.change.expired == (op < 0)
    assert not event.change.static


OLD: dict[str, Any] = {"v": 1, "tags": {2, 3}, "notes": {2: 20}, "steps": {TWO: 1}, "u": {"name": "z", "age": 9}}
APPLIED: list[tuple[str, dict[str, Any], Any, Any]] = [
    # column, log row, what becomes of OLD, and of nothing
    ("v", {}, 1, None),
    ("v", {"v": 5}, 5, 5),
    ("v", {"gone": ["v"]}, None, None),
    ("tags", {"tags": ints(1), "cdc$deleted_elements_tags": ints(3)}, {1, 2}, {1}),
    ("tags", {"cdc$deleted_elements_tags": ints(2, 3)}, None, None),
    ("tags", {"tags": ints(1), "gone": ["tags"]}, {1}, {1}),
    ("notes", {"notes": ints(1, 10, count=1), "cdc$deleted_elements_notes": ints(2)}, {1: 10}, {1: 10}),
    ("steps", {"steps": listed((THREE, 3), (ONE, 2))}, {ONE: 2, TWO: 1, THREE: 3}, {ONE: 2, THREE: 3}),
    ("steps", {"cdc$deleted_elements_steps": packed(TWO.bytes)}, None, None),
    ("steps", {"steps": listed((ONE, 4)), "gone": ["steps"]}, {ONE: 4}, {ONE: 4}),
    ("u", {"u": person("a", None)}, {"name": "a", "age": 9}, {"name": "a", "age": None}),
    ("u", {"u": person(None, None), "cdc$deleted_elements_u": packed(b"\x00\x00")}, {"name": None, "age": 9}, None),
    ("u", {"u": person("b", None), "gone": ["u"]}, {"name": "b", "age": None}, {"name": "b", "age": None}),
]


@pytest.mark.parametrize(("name", "row", "after", "anew"), APPLIED)
def test_a_change_can_be_applied_to_an_old_value(name: str, row: dict[str, Any], after: Any, anew: Any) -> None:
    column = change_of(**row).column(name)
    found = column.apply(OLD[name])
    assert found == after
    assert column.apply(None) == anew
    if isinstance(found, dict) and name == "steps":
        assert list(found) == list(after), "in the order of the list"


def test_an_old_value_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="'steps' must not be a list"):
        change_of(steps=listed((ONE, 4))).column("steps").apply([1])


def test_sets_of_what_cannot_be_hashed_are_lists() -> None:
    column = ColumnChange("x", "set", S.EDITED, added=[{"a": 1}], removed=[{"a": 2}])
    assert column.apply([{"a": 2}, {"a": 3}]) == [{"a": 3}, {"a": 1}]


# ---------------------------------------------------------------- records


def test_the_changes_of_a_record_share_their_batch() -> None:
    first, second, third = events_of({"ck": 1, "v": 1}, {"ck": 2, "v": 2}, {"op": 3, "ck": 3, **END})
    batch = first.change.batch
    assert all(e.change.batch is batch for e in (second, third))
    assert (batch.size, batch.complete, batch.stream_id) == (3, True, stream_id(5))
    assert (batch.time, batch.timestamp_us) == (uuid.UUID(bytes=log_time(T, 7)), T)
    assert [(e.change.batch_index, e.change.batch_end) for e in (first, second, third)] == [
        (0, False),
        (1, False),
        (2, True),
    ]
    assert [dict(c.key) for c in batch.changes] == [dict(e.key) for e in (first, second, third)]
    assert repr(batch).startswith("<Record of 3 at")


def test_images_and_range_ends_are_not_separate_changes_of_a_batch() -> None:
    events = events_of(
        {"op": 0, "ck": 1, "v": 1},
        {"op": 1, "ck": 1, "v": 2},
        {"op": 5, "ck": 2},
        {"op": 8, "ck": 9},
        {"op": 9, "ck": 1, "v": 2, **END},
    )
    assert [e.operation for e in events] == [Operation.UPDATE, Operation.RANGE_START_INCLUSIVE]
    assert (events[0].change.batch.size, events[0].change.batch.complete) == (2, True)
    update, range_ = events[0].change.batch.changes
    assert (update.before, update.after) == (events[0].change.before, events[0].change.after)
    assert range_.range == events[1].change.range


@pytest.mark.parametrize(
    ("rows", "complete"),
    [
        ([{"ck": 1, **END}], True),
        ([{"ck": 1}], False),  # its end is gone
        ([{"ck": 1, "cdc$batch_seq_no": 1, **END}], False),  # its head is gone
        ([{"ck": 1}, {"ck": 2, **END}], True),
        ([{"ck": 1}, {"ck": 2}], False),
        ([{"ck": 1}, {"ck": 2, "cdc$batch_seq_no": 2, **END}], False),  # its middle is gone
        ([{"op": 0, "ck": 1}, {"ck": 1}, {"op": 9, "ck": 1, **END}], True),
        ([{"ck": 1, "cdc$batch_seq_no": 1}, {"op": 9, "ck": 1, "cdc$batch_seq_no": 2, **END}], False),
    ],
)
def test_a_record_cut_by_expiry_is_delivered_and_counted(rows: list[dict[str, Any]], complete: bool) -> None:
    for build in (changes_of, rows_as_events):
        context = EventContext(0)
        events = list(build(rows_of(*rows), context))
        assert events
        assert {e.change.batch.complete for e in events} == {complete}
        assert context.counters.incomplete_records == (not complete)


def test_a_stream_counts_incomplete_records(log: FakeLog) -> None:
    log.generation(HEAD_US - 100 * SECOND, [stream_id(1)])
    log.write(HEAD_US - 3)
    log.write(HEAD_US - 2, **{"cdc$end_of_batch": None})
    log.write(HEAD_US - 1, seq=3)
    client = rscylla.NewStream(log, "ks", "t", clock=log.clock, prefetch=0)("", LAG, rscylla.StreamToHead())
    got = [client.recv() for _ in range(4)]
    assert [isinstance(item, rscylla.Event) for item in got] == [True, True, True, False]
    with pytest.raises(HeadReached):
        client.recv()
    assert client.status().incomplete_records == 2


# ---------------------------------------------------------------- changes by the numbers of their rows


@st.composite
def windows(draw: st.DrawFn) -> LogRows:
    """Windows of few records, keys, and layouts, with rows of every operation, so that they meet."""
    layouts = [LAYOUT, layout_of(tuple(c for c in BASE if c[0] != "w"))][: draw(st.integers(1, 2))]
    rows = LogRows()
    for number in range(draw(st.integers(1, 12))):
        layout = draw(st.sampled_from(layouts))
        row = {
            "op": draw(st.sampled_from([0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, -3, -4, 77])),
            "ck": draw(st.sampled_from([1, 2, None])),
            "cdc$time": log_time(T + draw(st.integers(0, 2)), 7),
            "cdc$batch_seq_no": number,
            "v": number,
        }
        rows.add(Page(layout.columns, body_of([cells(row, layout.columns)]), 0, None), layout)
    rows.sort()
    return rows


@pytest.mark.parametrize(("joined", "build"), [(True, changes_of), (False, rows_as_events)])
@given(windows())
def test_changes_by_row_numbers_are_those_of_the_events(joined: bool, build: Any, rows: LogRows) -> None:
    found = []
    for part in rows.by_layout():
        changes, (layout,) = part.changes(joined=joined), part.layouts
        columns = range(len(layout.columns))
        named = [changes.delta, changes.before, changes.after, changes.range_end]
        whole = [list(zip(*(part.column(c, numbers) for c in columns), strict=True)) for numbers in named]
        firsts = zip(*(part.column(c, changes.record) for c in columns), strict=True)
        for numbers, of_rows, first in zip(zip(*named, strict=True), zip(*whole, strict=True), firsts, strict=True):
            assert {set(row) <= {None} for n, row in zip(numbers, of_rows, strict=True) if n < 0} <= {True}
            found.append((*(None if n < 0 else row for n, row in zip(numbers, of_rows, strict=True)), first))
    assert found == [(*e.raw_rows(), e.change.batch._rows[0]) for e in build(rows, EventContext(0))]


@given(windows())
def test_columns_are_the_cells_of_rows(rows: LogRows) -> None:
    for part in rows.by_layout():
        for column in range(len(part.layouts[0].columns)):
            assert part.column(column) == [row[column] for row in part.cells]


# ---------------------------------------------------------------- events are made as they are taken


def test_a_window_in_memory_is_nothing_that_the_garbage_collector_walks() -> None:
    rows = rows_of(*({"ck": n, "v": n} for n in range(500)))
    gc.collect()
    assert not any(gc.is_tracked(row) for row in rows.cells)
    assert not any(gc.is_tracked(position) for position in rows.positions)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_window_that_is_let_go_is_freed_at_once(count: int) -> None:
    """It would take a full garbage collection otherwise, which is rare and not caused by the size of the window."""
    rows = rows_of(*({"ck": n, "v": n} for n in range(3)))
    freed = weakref.ref(rows)
    events = changes_of(rows, EventContext(0))
    gc.disable()
    try:
        assert len(list(itertools.islice(events, count))) == count
        del rows, events
        assert freed() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("way", ["recv", "iterate"])
@pytest.mark.usefixtures("second_event_breaks")
def test_an_event_that_cannot_be_made_is_not_passed_over(log: FakeLog, way: str) -> None:
    log.generation(HEAD_US - 100 * SECOND, [stream_id(1)])
    written = [log.write(HEAD_US - 10 + n) for n in range(3)]

    client = rscylla.NewStream(log, "ks", "t", clock=log.clock, prefetch=0)("", LAG)
    receive = client.recv if way == "recv" else iter(client).__next__
    assert receive().id.count(str(uuid.UUID(bytes=written[0].time))) == 1  # type: ignore[union-attr]
    with pytest.raises(ZeroDivisionError):
        receive()
    log.clock.advance(60)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            client.recv()


def test_iterating_returns_what_recv_returns_and_may_be_mixed_with_it(log: FakeLog) -> None:
    log.generation(HEAD_US - 100 * SECOND, [stream_id(1)])
    for n in range(60):
        log.write(HEAD_US - 90 * SECOND + n * SECOND)
    stream = rscylla.NewStream(log, "ks", "t", clock=log.clock, prefetch=0)

    def taken(choose: Any) -> list[str]:
        client, got = stream("", LAG, rscylla.StreamToHead()), []
        items = iter(client)
        try:
            while True:
                item = client.recv() if choose(len(got)) else next(items)
                got.append(item.id if isinstance(item, rscylla.Event) else item.cursor)
        except HeadReached:
            pass
        with pytest.raises(HeadReached):
            next(iter(client))
        return got

    by_recv = taken(lambda _: True)
    assert len(by_recv) > 60
    assert taken(lambda _: False) == taken(lambda n: n % 3) == by_recv


def test_an_iteration_that_is_given_up_loses_no_event(log: FakeLog) -> None:
    log.generation(HEAD_US - 100 * SECOND, [stream_id(1)])
    for n in range(3):
        log.write(HEAD_US - 10 + n)
    client = rscylla.NewStream(log, "ks", "t", clock=log.clock, prefetch=0)("", LAG, rscylla.StreamToHead())
    seen: list[Any] = []
    for wanted in (1, 2, 3):
        for item in client:
            seen.append(item)
            if len(seen) == wanted:
                break
    assert [item.timestamp_us for item in seen] == [HEAD_US - 10, HEAD_US - 9, HEAD_US - 8]


@pytest.mark.parametrize("way", ["recv", "iterate"])
def test_the_watermark_follows_what_was_handed_out(log: FakeLog, way: str) -> None:
    log.generation(HEAD_US - 100 * SECOND, [stream_id(1)])
    written = [log.write(HEAD_US - 10 + n) for n in range(3)]
    client = rscylla.NewStream(log, "ks", "t", clock=log.clock, prefetch=0)("", LAG)
    receive = client.recv if way == "recv" else iter(client).__next__
    marks = []
    for row in written:
        receive()
        assert client.status().watermark_us <= row.us
        marks.append(client.status().watermark_us)
    assert marks == sorted(marks)
    log.clock.advance(60)
    receive()
    assert client.status().watermark_us > written[-1].us


# ---------------------------------------------------------------- a table that changes inside a window


@given(st.permutations([0, 1, 2]))
def test_pages_of_a_window_may_differ_in_their_columns(order: list[int]) -> None:
    """A column was added, another dropped, between the pages: no row loses a value."""
    dropped = tuple(c for c in BASE if c[0] != "w")
    added = (*dropped, ("x", "regular", "int"))
    pages = [(layout_of(BASE), {"w": b"old", "v": 1}), (layout_of(dropped), {"v": 2}), (layout_of(added), {"x": 3})]
    rows = LogRows()
    for at in order:
        layout, values = pages[at]
        own = cells({"ck": 1, "cdc$batch_seq_no": at, **values}, layout.columns)
        rows.add(Page(layout.columns, body_of([own]), 0, None), layout)
    rows.sort()
    assert [dict(e.change.values) for e in changes_of(rows, EventContext(0))] == [
        {"v": 1, "w": "old"},
        {"v": 2},
        {"x": 3},
    ]


# ---------------------------------------------------------------- types of the user's own


def wrong(_: Change) -> int:
    raise ValueError("secret")


@pytest.mark.parametrize(
    ("function", "said"), [(wrong, "ValueError"), (lambda _: "7", "str"), (lambda _: True, "bool")]
)
def test_errors_of_event_type_are_named(function: Any, said: str) -> None:
    (event,) = events_of({"ck": 1, "v": 5}, context=EventContext(0, function))
    with pytest.raises(EventTypeError, match=rf"event_type= .*{said}") as told:
        _ = event.type
    assert event.id in str(told.value)
    assert "secret" not in str(told.value)
    if said == "ValueError":
        assert isinstance(told.value.__cause__, ValueError)
    assert event.operation == Operation.UPDATE


# ---------------------------------------------------------------- lists in order


def timeuuid(ticks: int, low: int) -> uuid.UUID:
    head = ((ticks & 0xFFFFFFFF) << 96) | ((ticks >> 32 & 0xFFFF) << 80) | ((ticks >> 48 | 0x1000) << 64)
    return uuid.UUID(int=head | low)


@given(st.permutations(range(5)))
def test_elements_of_a_list_lie_in_the_order_of_their_ids_and_not_of_their_bytes(order: list[int]) -> None:
    """By time first, whose low bits come first in the bytes; of one time by the low half as signed bytes."""
    ids = [
        timeuuid(0x0000_0000_FFFF_FFFF, 0x80 << 56),
        timeuuid(0x0000_0001_0000_0001, 0x80 << 56),
        timeuuid(0x0000_0001_0000_0001, 0x01 << 56),
        timeuuid(0x0001_0000_0000_0000, 0xFF << 56),
        timeuuid(0x0001_0000_0000_0000, 0x7F << 56),
    ]
    at = order[0]
    old = {ids[i]: i for i in order[1:]}
    change = ColumnChange("l", "list", ColumnState.EDITED, added={ids[at]: at})
    assert list(change.apply(old).items()) == list(zip(ids, range(5), strict=True))
    removed = ColumnChange("l", "list", ColumnState.EDITED, removed={ids[at]})
    assert list(removed.apply({ids[i]: i for i in order}).values()) == [i for i in range(5) if i != at]


# ---------------------------------------------------------------- types of one record


def typed(name: str, fields: str = "", args: tuple[Type, ...] = ()) -> Type:
    return Type(name, args, tuple(fields.split()))


def test_the_larger_form_of_a_type_reads_both() -> None:
    text, whole = typed("text"), typed("int")
    small, large = typed("udt", "a", (text,)), typed("udt", "a b", (text, whole))
    renamed = typed("udt", "x", (text,))
    for wrap in (lambda t: t, lambda t: typed("list", args=(t,)), lambda t: typed("map", args=(whole, t))):
        assert larger(wrap(small), wrap(large)) == larger(wrap(large), wrap(small)) == wrap(large)
        assert larger(wrap(small), wrap(renamed)) == wrap(small)
        assert larger(wrap(renamed), wrap(large)) == wrap(large)
        assert larger(wrap(small), typed("udt", "a b", (whole, whole))) is None
    nested = typed("udt", "a b", (small, text)), typed("udt", "a", (large,))
    assert larger(*nested) == larger(*nested[::-1]) == typed("udt", "a b", (large, text))
    assert larger(typed("tuple", args=(text,)), typed("tuple", args=(text, whole))) is None
    assert larger(text, whole) is None
    assert larger(typed("set", args=(text,)), typed("list", args=(text,))) is None


@given(st.permutations([0, 1, 2]))
def test_a_column_that_came_again_with_another_type_in_a_record_is_read_by_the_type_it_had(order: list[int]) -> None:
    as_text = tuple(("v", "regular", "text") if c[0] == "v" else c for c in BASE)
    pages_ = [
        (layout_of(BASE), {"v": 1, "w": b"one"}),
        (layout_of(as_text), {"w": b"two"}),
        (layout_of(BASE), {"v": 3}),
    ]
    rows = LogRows()
    for at in order:
        layout, values = pages_[at]
        own = cells({"ck": at, "cdc$batch_seq_no": at, **values}, layout.columns)
        rows.add(Page(layout.columns, body_of([own]), 0, None), layout)
    rows.sort()
    assert [e.change.values for e in changes_of(rows, EventContext(0))] == [
        {"v": 1, "w": "one"},
        {"w": "two"},
        {"v": 3},
    ]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_record_in_which_a_field_gets_another_name_keeps_its_values(order: tuple[int, int]) -> None:
    renamed = pages.type_of(UserType.make_udt_class("ks", "person2", ("called", "age"), (UTF8Type, Int32Type)))
    of_new = tuple(attrs.evolve(c, type=renamed) if c.name == "u" else c for c in LAYOUT.columns)
    layouts = [LAYOUT, Layout.of(of_new, LAYOUT.table)]
    rows = LogRows()
    for at in order:
        own = cells({"ck": at, "cdc$batch_seq_no": at, "u": person("x", at), "gone": ["u"]}, layouts[at].columns)
        rows.add(Page(layouts[at].columns, body_of([own]), 0, None), layouts[at])
    rows.sort()
    assert [list(e.change.after["u"].values()) for e in changes_of(rows, EventContext(0))] == [["x", 0], ["x", 1]]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_column_that_is_dropped_inside_of_a_record_is_what_it_was(order: tuple[int, int]) -> None:
    layouts = [layout_of(BASE), layout_of(tuple(c for c in BASE if c[0] != "s"))]
    rows = LogRows()
    for at in order:
        own = cells({"ck": at, "cdc$batch_seq_no": at, "v": at}, layouts[at].columns)
        rows.add(Page(layouts[at].columns, body_of([own]), 0, None), layouts[at])
    rows.sort()
    for event in changes_of(rows, EventContext(0)):
        assert [c.name for c in event.layout.values if c.static] == ["s"]
