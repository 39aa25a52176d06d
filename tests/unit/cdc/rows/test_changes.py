"""Log rows to changes: what belongs together, and what it says."""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from typing import Any

import pytest
from cassandra.cqltypes import Int32Type, UserType, UTF8Type
from fakelog import SIMPLE, body_of, columns_of, integer, log_time, stream_id
from hypothesis import given
from hypothesis import strategies as st

from rscylla.cdc.log.table import BaseColumn, LoggedTable
from rscylla.cdc.rows import Layout, LogRows
from rscylla.cdc.rows.changes import Bound, Change
from rscylla.cdc.rows.events import ChangeEvent, EventContext, changes_of, rows_as_events
from rscylla.driver import pages
from rscylla.driver.pages import Column, Page
from rscylla.event import EventID, Operation

T = 1_700_000_000_123_456
GENERATION = 1_600_000_000_000
STATIC = (*SIMPLE, ("w", "regular", "int"), ("s", "static", "int"))


def layout_of(base: Any = STATIC, columns: tuple[Column, ...] | None = None) -> tuple[Layout, tuple[Column, ...]]:
    columns = columns or columns_of(base)
    info = tuple(BaseColumn(n, kind, at, text) for at, (n, kind, text) in enumerate(base))
    table = LoggedTable("ks", "t", info, uuid.uuid4())
    return Layout.of(columns, table), columns


def rows_of(*rows: dict[str, Any], us: int = T, low: int = 7, base: Any = STATIC, columns: Any = None) -> LogRows:
    """Return the rows of one record; ``op`` and columns by name, ints or bytes; cut from a page and sorted."""
    layout, columns = layout_of(base, columns)
    cells = []
    for seq, row in enumerate(rows):
        operation = row["op"]
        own = {"cdc$operation": None if operation is None else bytes((operation & 0xFF,)), "pk": 1}
        own |= {"cdc$stream_id": stream_id(5), "cdc$time": log_time(us, low), "cdc$batch_seq_no": row.get("seq", seq)}
        own |= {f"cdc$deleted_{n}": b"\x01" for n in row.get("gone", ())}
        own |= {n: v for n, v in row.items() if n not in ("op", "gone", "seq", "ttl")}
        own |= {"cdc$ttl": None if "ttl" not in row else row["ttl"].to_bytes(8, "big")}
        cells.append([integer(v) if isinstance(v, int) else v for v in (own.get(c.name) for c in columns)])
    return log_rows(Page(columns, body_of(cells), 0, None), layout)


def log_rows(page: Page, layout: Layout) -> LogRows:
    rows = LogRows()
    rows.add(page, layout)
    rows.sort()
    return rows


def events_of(*rows: dict[str, Any], **how: Any) -> list[ChangeEvent]:
    return list(changes_of(rows_of(*rows, **how), EventContext(GENERATION)))


def told(change: Change) -> tuple[Any, ...]:
    return change.operation, dict(change.key), change.before, change.after


# ---------------------------------------------------------------- what belongs together


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_images_are_joined_wherever_they_are(order: tuple[int, ...]) -> None:
    parts = [{"op": 0, "ck": 2, "v": 1}, {"op": 1, "ck": 2, "v": 2}, {"op": 9, "ck": 2, "v": 2, "w": 4}]
    (event,) = events_of(*(parts[i] for i in order))
    assert told(event.change) == (Operation.UPDATE, {"pk": 1, "ck": 2}, {"v": 1}, {"v": 2, "w": 4})
    assert EventID.parse(event.id).seq == order.index(1)


def test_several_rows_of_a_record_each_get_their_own_images() -> None:
    events = events_of(
        {"op": 0, "ck": 1, "v": 10},
        {"op": 0, "ck": 2, "v": 20},
        {"op": 1, "ck": 1, "v": 11},
        {"op": 3, "ck": 2},
        {"op": 2, "ck": 3, "v": 31},
        {"op": 9, "ck": 1, "v": 11, "w": 0},
        {"op": 9, "ck": 3, "v": 31},
    )
    assert [told(e.change) for e in events] == [
        (1, {"pk": 1, "ck": 1}, {"v": 10}, {"v": 11, "w": 0}),
        (3, {"pk": 1, "ck": 2}, {"v": 20}, None),
        (2, {"pk": 1, "ck": 3}, None, {"v": 31, "w": None}),
    ]


def test_a_row_with_several_deltas_has_the_images_in_each() -> None:
    events = events_of(
        {"op": 0, "ck": 1, "v": 1}, {"op": 1, "ck": 1, "gone": ["w"]}, {"op": 1, "ck": 1, "v": 2, "ttl": 9}
    )
    assert [e.change.before for e in events] == [{"v": 1}] * 2
    assert [e.change.after for e in events] == [{"w": None}, {"v": 2}]
    assert [e.change.ttl for e in events] == [None, 9]


def test_a_static_image_belongs_to_static_writes_only() -> None:
    events = events_of(
        {"op": 0, "s": 1},
        {"op": 1, "s": 2},
        {"op": 5},
        {"op": 8, "ck": 3},
        {"op": 4},
        {"op": 9, "s": 2},
    )
    assert [(e.type, e.change.before, e.change.after) for e in events] == [
        (1, {"s": 1}, {"s": 2}),
        (5, None, None),
        (4, None, None),
    ]


def test_a_partition_delete_has_the_image_of_its_only_row_without_clustering_key() -> None:
    base = (("pk", "partition_key", "int"), ("v", "regular", "int"))
    (event,) = events_of({"op": 0, "v": 3}, {"op": 4}, base=base)
    assert told(event.change) == (Operation.PARTITION_DELETE, {"pk": 1}, {"v": 3}, None)


def test_a_range_delete_is_one_event() -> None:
    (event,) = events_of({"op": 6, "ck": 1}, {"op": 7, "ck": 5})
    assert event.type == Operation.RANGE_START_EXCLUSIVE
    assert event.change.range == (Bound({"ck": 1}, False), Bound({"ck": 5}, True))
    assert event.foreign_id == '{"pk":1}'
    one, two = events_of({"op": 5}, {"op": 8, "ck": 3}, {"op": 6, "ck": 7}, {"op": 7})
    assert one.change.range == (Bound({}, True), Bound({"ck": 3}, False))
    assert two.change.range == (Bound({"ck": 7}, False), Bound({}, True))


def test_what_lost_its_partner_is_not_dropped() -> None:
    orphans = [{"op": 0, "ck": 1, "v": 1}, {"op": 8, "ck": 3}, {"op": 9, "ck": 1, "v": 2}, {"op": 5, "ck": 9}]
    events = events_of(*orphans)
    assert [e.type for e in events] == [0, 8, 9, 5]
    assert events[0].change.before == {"v": 1}
    assert events[2].change.after == {"v": 2, "w": None}
    assert events[1].change.range == (None, Bound({"ck": 3}, False))
    assert events[3].change.range == (Bound({"ck": 9}, True), None)
    for event in events:
        assert json.loads(event.metadata)["operation"] == event.change.operation.name


@pytest.mark.parametrize(
    ("number", "name"), [(-3, "SERVICE_ROW_DELETE"), (-4, "SERVICE_PARTITION_DELETE"), (42, "UNKNOWN_42")]
)
def test_unknown_operations_are_events_too(number: int, name: str) -> None:
    (event,) = events_of({"op": number, "ck": 1})
    assert (int(event.type), event.change.operation.name, event.change.after) == (number, name, None)


def test_an_expired_operation_does_not_crash() -> None:
    (event,) = events_of({"op": None, "ck": 1})
    assert event.type == -128
    assert event.metadata


@given(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -3, -4, 77]), min_size=1, max_size=8), st.data())
def test_no_row_of_a_record_is_lost_or_repeated(operations: list[int], data: st.DataObject) -> None:
    rows = rows_of(*({"op": op, "ck": data.draw(st.integers(1, 3)), "v": n} for n, op in enumerate(operations)))
    events = list(changes_of(rows, EventContext(GENERATION)))
    used = [e._cells for e in events]
    parts = [e.change.raw_rows[1:] for e in events]
    images = [p for three in parts for p in three if p is not None]
    assert {*rows.cells} >= {*used, *images}
    left = [c for c in rows.cells if c not in used and c not in images]
    (layout,) = rows.layouts
    operations_left = [c[layout.operation] for c in left]
    assert not [o for o in operations_left if o not in (b"\x00", b"\x09")]  # a second image of one row may go
    assert len(used) == len(set(used))
    assert [e.position for e in events] == sorted(e.position for e in events)


# ---------------------------------------------------------------- what it says


def test_an_insert_has_the_written_and_the_nulled_columns() -> None:
    (event,) = events_of({"op": 2, "ck": 1, "v": 5, "gone": ["w"]})
    assert event.change.values == {"v": 5}
    assert event.change.deleted == {"w"}
    assert event.change.after == {"v": 5, "w": None}
    assert event.change.before is None


def test_a_preimage_says_nothing_of_columns_that_were_not_read() -> None:
    (event,) = events_of({"op": 0, "ck": 1, "gone": ["v"]}, {"op": 1, "ck": 1, "v": 5})
    assert event.change.before == {"v": None}


def test_a_postimage_has_nulls_and_omits_static_columns() -> None:
    clustered, static = events_of(
        {"op": 1, "ck": 1, "v": 5}, {"op": 1, "s": 5}, {"op": 9, "ck": 1, "v": 5}, {"op": 9, "s": 5}
    )
    assert clustered.change.after == {"v": 5, "w": None}
    assert static.change.after == {"s": 5}
    assert dict(static.change.key) == {"pk": 1}


def test_a_udt_that_is_set_to_null_is_null() -> None:
    udt = UserType.make_udt_class("ks", "u", ("a", "b"), (Int32Type, UTF8Type))
    base = (("pk", "partition_key", "int"), ("u", "regular", "u"))
    elements = "org.apache.cassandra.db.marshal.SetType(org.apache.cassandra.db.marshal.ShortType)"
    columns = list(columns_of((base[0], ("u", "regular", "blob")), {"elements:blob": elements}))
    at = [c.name for c in columns].index("u")
    columns[at] = Column("u", pages.type_of(udt))
    empty = b"\xff" * 8
    how = {"base": base, "columns": tuple(columns)}
    (gone,) = events_of({"op": 1, "u": empty, "gone": ["u"]}, **how)
    assert (gone.change.values, gone.change.after) == ({}, {"u": None})
    field = b"\x00\x00\x00\x01\x00\x00\x00\x02\x00\x01"
    (part,) = events_of({"op": 1, "u": empty, "cdc$deleted_elements_u": field}, **how)
    assert (part.change.after, part.change.deleted_elements) == ({}, {"u": {1}})
    (whole,) = events_of({"op": 1, "u": b"\x00\x00\x00\x04\x00\x00\x00\x07" + b"\xff" * 4}, **how)
    assert whole.change.values == {"u": {"a": 7, "b": None}}


def test_ids_of_different_keys_differ_and_sets_have_one_text() -> None:
    set_text = "org.apache.cassandra.db.marshal.SetType(org.apache.cassandra.db.marshal.UTF8Type)"
    base = (("pk", "partition_key", "x"), ("v", "regular", "int"))
    columns = columns_of(base, {"x": set_text})
    key = b"\x00\x00\x00\x03" + b"".join(b"\x00\x00\x00\x01" + c for c in (b"a", b"b", b"c"))
    (event,) = events_of({"op": 2, "pk": key, "v": 1}, base=base, columns=columns)
    assert event.key == {"pk": {"a", "b", "c"}}
    assert event.foreign_id == '{"pk":["a","b","c"]}'


def test_metadata_is_the_change_as_json() -> None:
    (event,) = events_of({"op": 0, "ck": 2, "v": 1}, {"op": 1, "ck": 2, "v": 2, "gone": ["w"], "ttl": 60})
    assert json.loads(event.metadata) == {
        "operation": "UPDATE",
        "key": {"pk": 1, "ck": 2},
        "before": {"v": 1},
        "after": {"v": 2, "w": None},
        "changed": ["v", "w"],
        "deleted": ["w"],
        "ttl": 60,
        "timestamp": "2023-11-14T22:13:20.123456Z",
        "batch": {
            "stream_id": "0x" + stream_id(5).hex(),
            "time": str(uuid.UUID(bytes=log_time(T, 7))),
            "size": 1,
            "complete": False,
            "index": 0,
        },
    }
    (ranged,) = events_of({"op": 5}, {"op": 8, "ck": 3})
    assert json.loads(ranged.metadata)["range"] == [
        {"key": {}, "inclusive": True},
        {"key": {"ck": 3}, "inclusive": False},
    ]


def test_rows_may_be_events_of_their_own() -> None:
    rows = rows_of({"op": 0, "ck": 2, "v": 1}, {"op": 1, "ck": 2, "v": 2}, {"op": 9, "ck": 2, "v": 2})
    events = list(rows_as_events(rows, EventContext(GENERATION)))
    assert [e.type for e in events] == [0, 1, 9]
    assert [json.loads(e.metadata)["before"] for e in events] == [{"v": 1}, None, None]
    assert [json.loads(e.metadata)["after"] for e in events] == [None, {"v": 2}, {"v": 2, "w": None}]
    assert events[1].row == {
        "cdc$stream_id": stream_id(5),
        "cdc$time": uuid.UUID(bytes=log_time(T, 7)),
        "cdc$batch_seq_no": 1,
        "cdc$operation": 1,
        "pk": 1,
        "ck": 2,
        "v": 2,
    }


def test_the_type_may_be_the_users_own() -> None:
    rows = rows_of({"op": 1, "ck": 2, "v": 200})
    (event,) = changes_of(rows, EventContext(GENERATION, lambda change: change.values["v"]))
    assert (event.type, event.operation) == (200, Operation.UPDATE)


# ---------------------------------------------------------------- identity


@given(
    st.integers(0, 2**40),
    st.binary(min_size=16, max_size=16).filter(any),
    st.integers(10**15, 3 * 10**15),
    st.integers(0, 9),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**31 - 1),
)
def test_an_event_has_the_id_of_its_row(generation: int, stream: bytes, us: int, tick: int, low: int, seq: int) -> None:
    time = log_time(us, low)
    time = (int.from_bytes(time[:4], "big") + tick & 0xFFFFFFFF).to_bytes(4, "big") + time[4:]
    layout, columns = layout_of()
    own = {"cdc$stream_id": stream, "cdc$time": time, "cdc$batch_seq_no": integer(seq), "cdc$operation": b"\x01"}
    page = Page(columns, body_of([[own.get(c.name) for c in columns]]), 0, None)
    (event,) = changes_of(log_rows(page, layout), EventContext(generation))
    wanted = EventID.row(generation, stream, time, seq)
    assert event.id == str(wanted)
    assert EventID.parse(event.id) == wanted
    assert event.position == wanted.position
    assert event.timestamp_us == wanted.exact_us


def test_ids_hold_when_threads_share_events() -> None:
    events = [e for us in range(4) for e in events_of({"op": 1, "ck": 1}, us=T + us * 1_000_000)]
    shared = EventContext(GENERATION)
    for event in events:
        event._context = shared
    wanted = [str(EventID.row(GENERATION, stream_id(5), log_time(T + us * 1_000_000, 7), 0)) for us in range(4)]
    wrong: list[str] = []

    def work() -> None:
        for _ in range(3000):
            wrong.extend(e.id for e, w in zip(events, wanted, strict=True) if e.id != w)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
