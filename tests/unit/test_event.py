"""Event ids, cursors and their order."""

from __future__ import annotations

import json
import pickle
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rscylla._letters import KeptEvent
from rscylla._timeuuid import us_of
from rscylla.errors import InvalidCursor
from rscylla.event import Event, EventID, Operation, Progress, SimpleEvent, cursor_key

ROW = (
    '{"cursor_gen":"2021-02-16T12:00:43.1Z","cursor_time":"2021-02-16T13:07:05Z",'
    '"stream_id":"ced00000000000009663c8dc500005a1","stream_time":"ddea0820-7057-11eb-c419-1f717873d8fa",'
    '"stream_seq":0,"v":2}'
)
POINT = (
    '{"cursor_gen":"2021-02-16T12:00:43.1Z","cursor_time":"2021-02-16T13:07:05.25Z",'
    '"stream_id":"","stream_time":"","stream_seq":0,"v":2}'
)
FROM_GO = ROW.replace(',"v":2', "")

generations = st.integers(0, 4_000_000_000_000)
stream_ids = st.binary(min_size=16, max_size=16)


def timeuuid(us: int, low: bytes) -> bytes:
    """Return the raw bytes of a timeuuid, assembled from its parts."""
    ticks = us * 10 + 0x01B21DD213814000
    text = f"{ticks:015x}"
    return bytes.fromhex(text[7:] + text[3:7] + "1" + text[:3]) + low


rows = st.builds(
    lambda generation, stream_id, us, low, seq: EventID.row(generation, stream_id, timeuuid(us, low), seq),
    generations,
    stream_ids,
    st.integers(0, 4_000_000_000_000_000),
    st.binary(min_size=8, max_size=8),
    st.integers(0, 2**31 - 1),
)
points = st.builds(EventID, generations, st.integers(0, 4_000_000_000_000_000))


def test_an_id_of_a_row_is_this_text() -> None:
    stream_time = uuid.UUID("ddea0820-7057-11eb-c419-1f717873d8fa").bytes
    generation = us_of(datetime(2021, 2, 16, 12, 0, 43, 100_000, tzinfo=UTC)) // 1000
    made = EventID.row(generation, bytes.fromhex("ced00000000000009663c8dc500005a1"), stream_time, 0)
    assert str(made) == ROW
    assert EventID.parse(ROW) == made
    assert made.is_row
    assert made.exact_us == us_of(datetime(2021, 2, 16, 13, 7, 5, 250_000, tzinfo=UTC))


def test_a_point_has_an_empty_row_part_and_its_exact_time() -> None:
    point = EventID.parse(POINT)
    assert (point.is_row, str(point)) == (False, POINT)
    assert point.exact_us == point.time == us_of(datetime(2021, 2, 16, 13, 7, 5, 250_000, tzinfo=UTC))


@given(rows | points)
def test_ids_are_read_back_as_they_were(made: EventID) -> None:
    assert EventID.parse(str(made)) == made
    assert json.dumps(json.loads(str(made)), separators=(",", ":")) == str(made), "compact JSON"


@given(rows)
def test_a_row_is_known_by_its_position(made: EventID) -> None:
    assert EventID.at(made.generation, made.position) == made


@given(rows)
def test_the_window_in_an_id_is_on_a_fixed_grid(made: EventID) -> None:
    """So it is the same whatever lag, width or start a reader has."""
    ticks = uuid.UUID(bytes=made.stream_time).time
    us = (ticks - 0x01B21DD213814000) // 10
    assert made.time % 1_000_000 == 0
    assert made.time <= us < made.time + 1_000_000


def test_ids_of_go_mean_the_start_of_their_window() -> None:
    assert EventID.parse(FROM_GO) == EventID.parse(
        ROW.replace("ced00000000000009663c8dc500005a1", "").replace("ddea0820-7057-11eb-c419-1f717873d8fa", "")
    )


def test_go_can_read_ours() -> None:
    """Its parser wants these keys in this spelling, and ignores others."""
    assert list(json.loads(ROW)) == ["cursor_gen", "cursor_time", "stream_id", "stream_time", "stream_seq", "v"]


def model_key(one: EventID) -> tuple[Any, ...]:
    """The order of delivery: generation, time, signed low half, stream id, number; points come first."""
    if not one.is_row:
        return one.generation, one.time * 10 + 0x01B21DD213814000, ()
    low = tuple(byte - 256 if byte > 127 else byte for byte in one.stream_time[8:])
    return one.generation, uuid.UUID(bytes=one.stream_time).time, (low, one.stream_id, one.seq)


@given(rows | points, rows | points)
def test_the_key_orders_as_events_are_delivered(left: EventID, right: EventID) -> None:
    assert (left.key < right.key) == (model_key(left) < model_key(right))
    assert (left.key == right.key) == (model_key(left) == model_key(right))
    assert (cursor_key(str(left)) < cursor_key(str(right))) == (left.key < right.key)


near_rows = st.builds(
    lambda stream_id, us, low, seq: EventID.row(1, stream_id, timeuuid(us, low), seq),
    st.sampled_from([b"\x00" * 16, b"\x7f" * 16, b"\xff" * 16]),
    st.sampled_from([1_000_000, 1_000_001]),
    st.sampled_from([b"\x80" * 8, b"\x00" * 8, b"\x7f" * 8, b"\xff" * 8]),
    st.sampled_from([0, 1, 255, 256, 65_536]),
)


@given(st.lists(near_rows, min_size=2, max_size=8))
def test_rows_that_differ_little_are_ordered_right(ids: list[EventID]) -> None:
    assert sorted(ids, key=lambda one: one.key) == sorted(ids, key=model_key)


@given(rows)
def test_a_point_is_before_all_rows_of_its_time_and_after_earlier_ones(row: EventID) -> None:
    point = EventID(row.generation, row.exact_us)
    after = EventID(row.generation, row.exact_us + 1)
    assert point.key < row.key < after.key


@given(rows | points)
def test_the_empty_cursor_is_below_all(one: EventID) -> None:
    assert cursor_key("") < cursor_key(str(one))


def changed(**fields: Any) -> str:
    return json.dumps({key: value for key, value in (json.loads(ROW) | fields).items() if value is not ...})


LOG = "6b1c0000c6a211f08d4b0242ac110002"


def point(**fields: Any) -> str:
    return changed(stream_id="", stream_time="", stream_seq=0, **fields)


@pytest.mark.parametrize(
    "fields", [{}, {"log": LOG}, {"log": LOG, "start": True}, {"log": LOG, "ttl": 0}, {"log": LOG, "ttl": 86400}]
)
def test_a_point_names_its_log_which_has_no_part_in_the_order(fields: dict[str, Any]) -> None:
    named = EventID.parse(point(**fields))
    assert json.loads(str(named)) == json.loads(point(**fields))
    assert EventID.parse(str(named)) == named
    assert named.key == EventID.parse(point()).key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "null",
        "[]",
        '"text"',
        "{}",
        "not json",
        "[" * 100_000,
        changed(cursor_gen=...),
        changed(cursor_time=...),
        changed(stream_id=...),
        changed(stream_time=...),
        changed(stream_seq=...),
        changed(cursor_gen="yesterday"),
        changed(cursor_time=5),
        changed(stream_id="xyz"),
        changed(stream_id="ced0"),
        changed(stream_id=""),
        changed(stream_time=""),
        changed(stream_time="ddea0820"),
        changed(stream_seq="0"),
        changed(stream_seq=True),
        changed(stream_seq=1.0),
        changed(stream_id="", stream_time="", stream_seq=False),
        changed(stream_seq=-1),
        changed(stream_seq=2**31),
        changed(stream_id="", stream_time="", stream_seq=1),
        point(log="xyz"),
        point(log="6b1c"),
        point(log=7),
        point(log=LOG, start=1),
        point(log=LOG, ttl=-1),
        point(log=LOG, ttl=0.5),
        point(log=LOG, ttl=True),
        point(log=LOG, ttl="60"),
        point(log=LOG, ttl=float("inf")),
        point(log=LOG, ttl=float("nan")),
        *(
            point(log=LOG, seen=seen)
            for seen in (1, "zz.1", "off.", ".1", "1", "1.2.3", "on.1.2", "off.off.1.2", "-1.2")
        ),
    ],
)
def test_text_that_is_not_a_cursor_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(InvalidCursor) as caught:
        EventID.parse(text)
    assert "ced00000" not in str(caught.value)


@pytest.mark.parametrize("version", [0, 3, "2", None, True])
def test_cursors_of_other_versions_are_refused(version: Any) -> None:
    with pytest.raises(InvalidCursor, match="this rscylla reads 1 and 2"):
        EventID.parse(changed(v=version))


def test_operations_have_scyllas_numbers() -> None:
    assert [Operation(number).name for number in range(10)] == [
        "PREIMAGE",
        "UPDATE",
        "INSERT",
        "ROW_DELETE",
        "PARTITION_DELETE",
        "RANGE_START_INCLUSIVE",
        "RANGE_START_EXCLUSIVE",
        "RANGE_END_INCLUSIVE",
        "RANGE_END_EXCLUSIVE",
        "POSTIMAGE",
    ]
    assert (Operation(-3).name, Operation(-4).name) == ("SERVICE_ROW_DELETE", "SERVICE_PARTITION_DELETE")


def test_an_unknown_operation_is_named_by_its_number() -> None:
    unknown = Operation(42)
    assert (unknown.name, unknown == 42, isinstance(unknown, Operation)) == ("UNKNOWN_42", True, True)
    wrong: Any = "insert"
    with pytest.raises(ValueError):
        Operation(wrong)


def test_a_simple_event_has_all_parts() -> None:
    moment = datetime(2026, 11, 21, 12, 0, 0, 7, tzinfo=UTC)
    event: Event = SimpleEvent("e1", 2, '{"ck":1,"pk":"a"}', moment, b"{}", b"trace")
    assert (event.id, event.type, event.timestamp, event.metadata, event.trace) == ("e1", 2, moment, b"{}", b"trace")
    assert event.timestamp_us == us_of(moment)
    assert event.key == {"ck": 1, "pk": "a"}
    assert (event.change, event.late, repr(event)) == (None, False, "<SimpleEvent e1>")
    assert SimpleEvent("e1").key == {}


def test_a_number_of_any_size_is_read_from_what_an_event_has_as_text() -> None:
    digits = "9" * 5000
    event = SimpleEvent("e1", foreign_id=f'{{"k":{digits}}}', metadata=f'{{"operation":1,"after":{digits}}}'.encode())
    assert event.key == {"k": 10**5000 - 1}
    change = KeptEvent.of(event).change
    assert change is not None
    assert change.after == 10**5000 - 1


def test_events_ids_and_progress_can_be_pickled_and_are_frozen() -> None:
    for value in (SimpleEvent("e1", 3), EventID.parse(ROW), Progress("p", 5)):
        assert pickle.loads(pickle.dumps(value)) == value
        with pytest.raises(AttributeError):
            value.extra = 1  # type: ignore[union-attr]
