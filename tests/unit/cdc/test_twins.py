"""The compiled decoder and its twin in Python give the same rows and events, and both refuse pages that are none."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cassandra.metadata import Murmur3Token
from fakelog import body_of, log_time, stream_id
from hypothesis import example, given
from hypothesis import strategies as st
from logcells import END, LAYOUT, T, cells, ints, layout_of, person

from rscylla import _decoder
from rscylla._tokens import slice_at
from rscylla.cdc.log.routing import routing_key_of
from rscylla.cdc.rows import Layout, rows, token_of_key
from rscylla.cdc.rows.changes import Change, PartsInPython
from rscylla.cdc.rows.events import ChangeEvent, EventContext, changes_of, rows_as_events
from rscylla.driver.pages import Page, split_rows
from rscylla.errors import MalformedData
from rscylla.event import Event, Operation

LOW = (0, 7, 2**64 - 1)
compiled: Any = _decoder.compiled("cdc.rows")
if compiled is None:
    pytest.skip("the compiled decoder does not run", allow_module_level=True)

OPERATIONS = [*range(10), -3, -4, 17, -100]
NO_CLUSTERING = layout_of((("pk", "partition_key", "int"), ("v", "regular", "int")))

log_rows = st.fixed_dictionaries(
    {
        "cdc$stream_id": st.sampled_from([stream_id(n) for n in (5, 6, -9)]),
        "cdc$time": st.sampled_from(
            [log_time(T + us, low) for us in (-1, 0, 1, 3_000_000) for low in (0, 7, 2**64 - 1)]
        ),
        "cdc$batch_seq_no": st.integers(0, 5) | st.just(2**31 - 1),
        "op": st.sampled_from(OPERATIONS),
        "pk": st.integers(1, 2),
        "ck": st.none() | st.integers(1, 2),
        "v": st.none() | st.integers(-1, 1),
        "w": st.none() | st.sampled_from([b"", b"x", "\N{SNOWMAN}".encode()]),
        "s": st.none() | st.just(3),
        "tags": st.none() | st.just(ints(1, 2)),
        "u": st.none() | st.just(person("x", None)),
        "gone": st.lists(st.sampled_from(["v", "w", "tags", "u"]), unique=True),
    },
    optional={"cdc$end_of_batch": st.sampled_from([b"\x00", b"\x01"]), "cdc$ttl": st.just(b"\x00" * 7 + b"\x09")},
)


def pages_of(values: list[dict[str, Any]], sizes: list[int], layout: Layout) -> list[Page]:
    """Return pages of *sizes* rows, and one of the rest."""
    pages, at = [], 0
    for size in (*sizes, len(values)):
        own = [cells(row, layout.columns) for row in values[at : at + size]]
        pages.append(Page(layout.columns, b"head" + body_of(own), 4, None))
        at += size
    return pages


def both(pages: list[Page], layout: Layout) -> list[rows.LogRows]:
    made: list[Any] = [rows.LogRows(), compiled.LogRows()]
    for found in made:
        for page in pages:
            assert found.add(page, layout) is found
    return made


def shown(event: ChangeEvent) -> list[Any]:
    """Return all that an event says."""
    change = event.change
    assert isinstance(event, ChangeEvent)
    assert isinstance(event, Event)
    said: list[Any] = [getattr(event, name) for name in NAMES]
    said += [event.raw_key(), event.raw_partition_key(), event.raw_rows(), change.as_dict(), change.batch_index]
    twin = PartsInPython(change._layout, *event.raw_rows())
    assert [change.key, change.before, change.after] == [twin.key, twin.before, twin.after]
    said += [change.key, change.before, change.after, event.key]
    said += [len(change.batch.changes), [c.as_dict() for c in change.batch.changes], type(event.operation), str(event)]
    return said


NAMES = (
    "id",
    "position",
    "order_key",
    "type",
    "operation",
    "foreign_id",
    "timestamp",
    "timestamp_us",
    "metadata",
    "trace",
    "key",
    "late",
    "row",
    "layout",
    "table",
)


@given(
    st.lists(log_rows, max_size=12),
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from([LAYOUT, NO_CLUSTERING]),
    st.booleans(),
    st.integers(-1, 12),
)
def test_both_make_the_same_events(
    values: list[dict[str, Any]], sizes: list[int], layout: Layout, joined: bool, after: int
) -> None:
    twins = both(pages_of(values, sizes, layout), layout)
    for found in twins:
        found.sort()
    pure, fast = twins
    assert len(pure) == len(fast) == len(values)
    assert pure.positions == fast.positions
    assert sorted(pure.cells, key=repr) == sorted(fast.cells, key=repr)
    if len(set(pure.positions)) < len(values):  # the order of equal rows is not defined
        return
    assert pure.cells == fast.cells
    position = pure.positions[after] if 0 <= after < len(values) else b""
    for index in range(len(layout.columns)) if values else ():
        assert pure.column(index) == list(fast.column(index))
        for chosen in ([-1, 0, -1], [len(values) - 1]):
            assert pure.column(index, chosen) == list(fast.column(index, chosen))
    numbers = [found.changes(joined=joined) for found in twins]
    for name in ("delta", "before", "after", "range_end", "record"):
        assert list(getattr(numbers[0], name)) == list(getattr(numbers[1], name))
    assert list(fast.by_layout()) == [fast]
    contexts = [EventContext(1_700_000_000_000) for _ in twins]
    build = changes_of if joined else rows_as_events
    made = [list(build(f, c, after=position)) for f, c in zip(twins, contexts, strict=True)]
    assert [shown(e) for e in made[0]] == [shown(e) for e in made[1]]
    assert contexts[0].counters.incomplete_records == contexts[1].counters.incomplete_records
    for event in made[1]:
        assert event.as_late().late
        assert event.as_late().metadata == event.metadata
        assert copy.copy(event) is copy.deepcopy(event) is event


@given(st.binary(max_size=80), st.sampled_from([1, 2, 3, 64, 999]))
@example(b"\x80" * 15, 3)
@example(routing_key_of(stream_id(-(2**63))), 64)
def test_both_hash_keys_to_the_same_tokens(key: bytes, count: int) -> None:
    token = Murmur3Token.hash_fn(key)
    assert compiled.token_of_key(key) == token > -(2**63), "no key has the least token"
    layout = layout_of((("pk", "partition_key", "blob"), ("v", "regular", "int")))
    row = {"cdc$stream_id": stream_id(5), "cdc$time": log_time(T), "cdc$batch_seq_no": 0, "pk": key}
    found = both(pages_of([row], [], layout), layout)[1]
    assert list(found.owners(token_of_key, count, {stream_id(5): tuple(range(count))}, {})) == [slice_at(token, count)]


TWO_KEYS = layout_of((("pk", "partition_key", "int"), ("ck", "partition_key", "int"), ("v", "regular", "int")))


@given(
    st.lists(st.builds(lambda row, pk: {**row, "pk": pk}, log_rows, st.integers(-9, 9)), max_size=12),
    st.sampled_from([LAYOUT, TWO_KEYS]),
    st.sets(st.integers(0, 2)),
    st.sampled_from([token_of_key, Murmur3Token.hash_fn]),
    st.none() | st.lists(st.integers(0, 11), max_size=12),
)
def test_both_divide_rows_among_the_same_slices(
    values: list[dict[str, Any]],
    layout: Layout,
    indexes: set[int],
    token: Callable[[bytes], int],
    taken: list[int] | None,
) -> None:
    shared, only = {stream_id(5): (0, 2), stream_id(6): (0, 1, 2)}, {stream_id(-9): 1}
    twins = both(pages_of(values, [3], layout), layout)
    for found in twins:
        found.take(range(len(values)) if taken is None else [i for i in taken if i < len(values)])
    owners = [
        twins[0].owners(Murmur3Token.hash_fn, 3, shared, only),
        twins[1].owners(token, 3, shared, only),
    ]
    assert list(owners[0]) == list(owners[1])
    pure, fast = (found.divided(o, sorted(indexes)) for found, o in zip(twins, owners, strict=True))
    assert pure.keys() == fast.keys() == set(owners[0]) & indexes
    for index in pure:
        assert pure[index].cells == fast[index].cells
        assert pure[index].cells == [c for c, o in zip(twins[0].cells, owners[0], strict=True) if o == index]
        assert pure[index].positions == fast[index].positions
        assert list(pure[index].column(layout.time)) == list(fast[index].column(layout.time))


@given(st.lists(log_rows, max_size=12), st.data())
def test_both_keep_the_same_rows(values: list[dict[str, Any]], data: st.DataObject) -> None:
    """Also rows that are taken twice."""
    twins = both(pages_of(values, [3], LAYOUT), LAYOUT)
    kept = data.draw(st.lists(st.sampled_from(range(len(values))), max_size=40)) if values else []
    for found in twins:
        found.take(kept)
    assert twins[0].cells == twins[1].cells
    assert twins[0].positions == twins[1].positions
    for found in twins:
        found.add(pages_of(values, [], LAYOUT)[0], LAYOUT)
        found.sort()
    assert twins[0].positions == twins[1].positions


@pytest.mark.parametrize("kept", [[2, 0], [0, 2], [1, 1, 0], [2, 1, 0]])
def test_a_page_of_another_layout_follows_rows_that_were_taken(kept: list[int]) -> None:
    wide = pages_of([{"ck": n, "cdc$batch_seq_no": n} for n in range(3)], [2], LAYOUT)
    narrow = pages_of([{"cdc$batch_seq_no": 9}], [], NO_CLUSTERING)[0]
    shown = []
    for found in both(wide, LAYOUT):
        found.take(kept)
        found = found.add(narrow, NO_CLUSTERING)
        shown.append((found.cells, found.positions, [found.layout_at(n) for n in range(len(found))]))
    assert shown[0] == shown[1]
    assert shown[0][2] == [LAYOUT] * len(kept) + [NO_CLUSTERING]


@pytest.mark.parametrize("count", [3, 700, 5_000])
def test_many_rows_of_one_time_are_sorted(count: int) -> None:
    """As after an import that gave all rows one timestamp."""
    values = [
        {"cdc$stream_id": stream_id(n * 7919 % 11), "cdc$time": log_time(T, n * 31 % 13), "cdc$batch_seq_no": n}
        for n in range(count)
    ]
    pure, fast = both(pages_of(values, [count // 3], LAYOUT), LAYOUT)
    pure.sort()
    fast.sort()
    assert fast.positions == sorted(fast.positions) == pure.positions


def test_times_far_apart_are_sorted() -> None:
    values = [{"cdc$time": log_time((n * 7919 % 1009) * 10**12, 0)} for n in range(1000)]
    pure, fast = both(pages_of([{**v, "cdc$batch_seq_no": 0} for v in values], [], LAYOUT), LAYOUT)
    pure.sort()
    fast.sort()
    assert fast.positions == pure.positions


def test_pages_with_other_columns_are_read_in_python() -> None:
    found: Any = compiled.LogRows()
    first = found.add(pages_of([{"ck": 1, "cdc$batch_seq_no": 0, "v": 5, **END}], [], LAYOUT)[0], LAYOUT)
    assert first is found
    empty = pages_of([], [], NO_CLUSTERING)[0]
    assert found.add(empty, NO_CLUSTERING) is found
    second = found.add(
        pages_of([{"cdc$batch_seq_no": 0, "cdc$time": log_time(T + 1, 7), "v": 6, **END}], [], NO_CLUSTERING)[0],
        NO_CLUSTERING,
    )
    assert type(second) is rows.LogRows
    second.sort()
    assert [e.change.values for e in changes_of(second, EventContext(0))] == [{"v": 5}, {"v": 6}]


def test_an_event_keeps_no_page() -> None:
    (page,) = pages_of([{"ck": n, "cdc$batch_seq_no": n} for n in range(3)], [], LAYOUT)[:1]
    found: Any = compiled.LogRows()
    found.add(page, LAYOUT)
    events = list(changes_of(found, EventContext(0)))
    del found
    gc.collect()
    assert not [r for r in gc.get_referrers(page.body) if type(r) in (list, compiled.LogRows)]
    assert [e.key["ck"] for e in events] == [0, 1, 2]


def test_a_change_is_made_once() -> None:
    found: Any = compiled.LogRows()
    found.add(
        pages_of([{"op": 0, "ck": 1, "cdc$batch_seq_no": 0}, {"ck": 1, "cdc$batch_seq_no": 1, **END}], [], LAYOUT)[0],
        LAYOUT,
    )
    (event,) = changes_of(found, EventContext(0))
    assert isinstance(event.change, Change)
    assert event.change is event.change
    assert event.foreign_id is event.foreign_id


@pytest.mark.parametrize("name", ["after", "values", "note"])
def test_a_change_is_immutable_with_either_decoder(name: str) -> None:
    row = tuple(cells({"ck": 1, "cdc$batch_seq_no": 0, "v": 4}, LAYOUT.columns))
    for change in (Change(LAYOUT, row), PartsInPython(LAYOUT, row)):
        with pytest.raises(AttributeError):
            setattr(change, name, {})
        assert change.after == {"v": 4}


def test_changes_can_be_copied_with_either_decoder() -> None:
    values = [{"op": 0, "ck": 1, "cdc$batch_seq_no": 0, "v": 4}, {"ck": 1, "cdc$batch_seq_no": 1, "v": 5, **END}]
    for found in both(pages_of(values, [], LAYOUT), LAYOUT):
        (event,) = changes_of(found, EventContext(0))
        for copied in (copy.copy(event.change), copy.deepcopy(event.change), copy.deepcopy(event).change):
            assert copied.as_dict() == event.change.as_dict()


@pytest.mark.parametrize("count", [0, len(LAYOUT.columns) - 1, len(LAYOUT.columns) + 1])
def test_a_change_of_other_cells_than_its_layout_has_is_refused(count: int) -> None:
    right = cells({"ck": 1, "cdc$batch_seq_no": 0}, LAYOUT.columns)
    with pytest.raises(ValueError, match=f"a row has {count} cells"):
        Change(LAYOUT, (None,) * count)
    with pytest.raises(ValueError, match=f"a row has {count} cells"):
        Change(LAYOUT, right, (None,) * count)
    with pytest.raises(TypeError):
        Change(LAYOUT, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Change(LAYOUT, (*right[:-1], memoryview(b"12345678").cast("i")))  # type: ignore[arg-type]


def test_a_column_or_row_that_is_not_there_is_refused() -> None:
    found: Any = compiled.LogRows()
    assert list(found.column(0)) == []
    found.add(pages_of([{"ck": 1, "cdc$batch_seq_no": 0}], [], LAYOUT)[0], LAYOUT)
    for index, chosen in ((-1, None), (len(LAYOUT.columns), None), (0, [1]), (0, [-2])):
        with pytest.raises(IndexError):
            found.column(index, chosen)


def test_threads_may_ask_for_columns_of_a_window_at_once() -> None:
    row = body_of([cells({"ck": 1, "cdc$batch_seq_no": 0, "v": 5, **END}, LAYOUT.columns)])[4:]
    count, threads = 50_000, 4
    page = Page(LAYOUT.columns, count.to_bytes(4, "big") + row * count, 0, None)
    value = next(column.index for column in LAYOUT.values if column.name == "v")
    for _ in range(3):
        found: Any = compiled.LogRows().add(page, LAYOUT)
        start = threading.Barrier(threads)

        def ask(found: Any = found, start: threading.Barrier = start) -> set[bytes]:
            start.wait()
            return set(found.column(value))

        with ThreadPoolExecutor(threads) as pool:
            asked = [pool.submit(ask) for _ in range(threads)]
            assert [one.result() for one in asked] == [{(5).to_bytes(4, "big")}] * threads


def test_rows_of_another_layout_that_were_all_taken_out_leave_nothing() -> None:
    narrow = pages_of([{"cdc$batch_seq_no": 0, "v": 7, **END}], [], NO_CLUSTERING)[0]
    wide = pages_of([{"ck": 1, "cdc$batch_seq_no": 0, "v": 5, **END}], [], LAYOUT)[0]
    for found in (rows.LogRows(), compiled.LogRows()):
        found.add(narrow, NO_CLUSTERING)
        found.take([])
        found = found.add(wide, LAYOUT)
        assert [list(found.column(n)) for n in range(len(LAYOUT.columns))] == [[c] for c in wide.cells("ks.t")[0]]
        found = found.add(narrow, NO_CLUSTERING)
        found.sort()
        assert sorted(e.change.values["v"] for e in changes_of(found, EventContext(0))) == [5, 7]


def test_a_column_outlives_its_rows() -> None:
    found: Any = compiled.LogRows()
    found.add(pages_of([{"ck": n, "cdc$batch_seq_no": n} for n in range(9)], [4], LAYOUT)[0], LAYOUT)
    column = found.column(LAYOUT.seq)
    found.take([0])
    del found
    assert list(column) == [n.to_bytes(4, "big") for n in range(4)]


# ---------------------------------------------------------------- pages that are none


@given(st.lists(log_rows, min_size=1, max_size=4), st.data())
def test_a_page_that_is_cut_or_changed_is_refused_or_read_by_both(
    values: list[dict[str, Any]], data: st.DataObject
) -> None:
    body = bytearray(pages_of(values, [], LAYOUT)[0].body)
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(4, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 4, 16, 127, 128, 255]))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))]) if data.draw(st.booleans()) else bytes(body)
    outcomes = []
    for split in (split_rows, compiled.split_rows):
        try:
            outcomes.append(split(cut, 4, len(LAYOUT.columns)))
        except ValueError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]
    page = Page(LAYOUT.columns, cut, 4, None)
    found: Any = compiled.LogRows()
    try:
        found.add(page, LAYOUT)
    except MalformedData:
        return
    found.sort()
    for event in changes_of(found, EventContext(0)):
        assert event.id
        assert len(event.raw_rows()[0]) == len(LAYOUT.columns)


def test_a_row_without_its_time_is_refused() -> None:
    for name in ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no"):
        (page, *_) = pages_of([{"ck": 1, "cdc$batch_seq_no": 0, name: None}], [], LAYOUT)
        with pytest.raises(MalformedData, match="lacks its time, stream id or sequence number"):
            compiled.LogRows().add(page, LAYOUT)


def test_only_streams_make_events() -> None:
    found: Any = compiled.LogRows()
    found.add(pages_of([{"ck": 1, "cdc$batch_seq_no": 0}], [], LAYOUT)[0], LAYOUT)
    (event,) = changes_of(found, EventContext(0))
    with pytest.raises(TypeError, match="pickle its id"):
        pickle.dumps(event)
    with pytest.raises(TypeError, match="made by the stream"):
        compiled.ChangeEvent()  # type: ignore[call-arg]


def test_operations_have_the_same_numbers() -> None:
    assert {name: int(Operation[name]) & 0xFF for name in compiled.OPERATIONS} == compiled.OPERATIONS
    # Those that are missing need nothing but their rows.
    assert set(Operation.__members__) - set(compiled.OPERATIONS) == {"ROW_DELETE", "SERVICE_ROW_DELETE"}


# ---------------------------------------------------------------- events and the garbage collector


def one_row() -> Any:
    return compiled.LogRows().add(pages_of([{"ck": 1, "cdc$batch_seq_no": 0, "v": 4, **END}], [], LAYOUT)[0], LAYOUT)


def test_an_event_that_can_be_in_no_cycle_is_not_walked_by_the_garbage_collector() -> None:
    (event,) = changes_of(one_row(), EventContext(0))
    assert not gc.is_tracked(event)
    assert event.change.after == {"v": 4}
    assert not gc.is_tracked(event)


def test_an_event_that_its_own_type_function_refers_to_is_freed() -> None:
    class Last:
        event: Any = None

        def type_of(self, change: Change) -> int:
            return 1

    last = Last()
    (last.event,) = changes_of(one_row(), EventContext(0, last.type_of))
    assert last.event.type == 1
    freed = weakref.ref(last)
    del last
    gc.collect()
    assert freed() is None
