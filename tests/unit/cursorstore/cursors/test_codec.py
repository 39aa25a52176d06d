"""Positions sort like the cursors they stand for."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorstore import EventCursorCodec, IntCursorCodec
from cursorstore.cursors.codec import format_us, parse_us
from rscylla._timeuuid import us_to_ticks
from rscylla.errors import InvalidCursor
from rscylla.event import EventID, LogMark, cursor_key

EVENTS = EventCursorCodec()
INTS = IntCursorCodec()

YEAR_1, YEAR_9999 = -62_135_596_800_000, 253_402_300_799_999
YEAR_1582 = -12_219_292_800_000_000  # in microseconds: the first timeuuid

generations = st.one_of(st.integers(YEAR_1, YEAR_9999), st.integers(1_795_251_600_000, 1_795_251_600_003))
points = st.builds(EventID, generations, st.one_of(st.integers(YEAR_1582, YEAR_9999 * 1000), st.integers(0, 20)))


def timeuuid(ticks: int, low: bytes) -> bytes:
    text = f"{ticks & 0xFFFFFFFF:08x}{ticks >> 32 & 0xFFFF:04x}1{ticks >> 48:03x}"
    return bytes.fromhex(text) + low


rows = st.builds(
    EventID.row,
    generations,
    st.sampled_from([b"\x00" * 16, b"\x7f" * 16, b"\x80" * 16, bytes(range(16))]),
    st.builds(
        timeuuid,
        st.one_of(st.integers(0, 2**60 - 1), st.integers(139_871_484_000_000_000, 139_871_484_000_000_020)),
        st.one_of(st.binary(min_size=8, max_size=8), st.sampled_from([b"\x80" * 8, b"\x7f" * 8, b"\x00" * 8])),
    ),
    st.one_of(st.integers(0, 3), st.integers(0, 2**31 - 1)),
)
logs = st.sampled_from([bytes(16), bytes(range(16))])
marks = st.one_of(
    st.builds(LogMark, logs, st.just(value=True)),
    st.builds(LogMark, logs, ttl_s=st.one_of(st.none(), st.integers(0, 2**31 - 1))),
    st.builds(LogMark, logs, st.booleans(), seen=st.sampled_from(["0.00c0ffee", "off.6461f3a1b2c00.00c0ffee"])),
)
unmarked = st.one_of(st.just(""), st.builds(str, points), st.builds(str, rows))
cursors = st.one_of(unmarked, st.builds(lambda point, mark: str(attrs.evolve(point, mark=mark)), points, marks))


@given(cursors, cursors)
def test_positions_sort_like_the_cursors(a: str, b: str) -> None:
    keys, positions = (cursor_key(a), cursor_key(b)), (EVENTS.encode(a), EVENTS.encode(b))
    sort_keys = [EVENTS.sort_key(position) for position in positions]
    assert (keys[0] < keys[1]) == (sort_keys[0] < sort_keys[1])
    assert (keys[0] == keys[1]) == (sort_keys[0] == sort_keys[1])
    if keys[0] != keys[1]:
        assert (keys[0] < keys[1]) == (positions[0] < positions[1])
    assert (a == b) == (positions[0] == positions[1])


@given(unmarked, unmarked)
def test_cursors_that_name_no_log_are_equal_where_their_positions_are(a: str, b: str) -> None:
    assert (cursor_key(a) == cursor_key(b)) == (EVENTS.encode(a) == EVENTS.encode(b))


@given(points, marks)
def test_a_point_that_names_its_log_lies_behind_the_same_point_without_and_before_its_rows(
    point: EventID, mark: LogMark
) -> None:
    marked, ticks = EVENTS.encode(str(attrs.evolve(point, mark=mark))), us_to_ticks(point.time)
    assert EVENTS.encode(str(point)) < marked
    if ticks < 2**60:  # later times have no timeuuid
        first = EventID.row(point.generation, bytes(16), timeuuid(ticks, b"\x80" * 8), 0)
        assert marked < EVENTS.encode(str(first))


@given(cursors)
def test_cursor_comes_back_to_the_byte(cursor: str) -> None:
    assert EVENTS.decode(EVENTS.encode(cursor)) == cursor


@given(cursors)
def test_positions_are_ascii_so_that_the_database_agrees_on_the_order(cursor: str) -> None:
    assert EVENTS.encode(cursor).isascii()


def test_position_can_be_read_by_people() -> None:
    cursor = (
        '{"cursor_gen":"2021-02-16T12:00:43.1Z","cursor_time":"2021-02-16T13:07:05Z",'
        '"stream_id":"ced00000000000009663c8dc500005a1","stream_time":"ddea0820-7057-11eb-c419-1f717873d8fa",'
        '"stream_seq":3,"v":2}'
    )
    expected = (
        "2021-02-16T12:00:43.100Z 2021-02-16T13:07:05.2500000Z 44999ff1f8f3587a ced00000000000009663c8dc500005a1 "
        "0000000003"
    )
    assert EVENTS.encode(cursor) == expected
    assert EVENTS.encode(cursor.replace(',"v":2', "")) == "2021-02-16T12:00:43.100Z 2021-02-16T13:07:05.0000000Z"


def test_the_log_of_a_point_follows_the_part_that_orders_it() -> None:
    point, log = EventID(1_613_476_843_100, 1_613_480_825_250_000), bytes.fromhex("ced00000000000009663c8dc500005a1")
    expected = "2021-02-16T12:00:43.100Z 2021-02-16T13:07:05.2500000Z"
    for mark, text in (
        (LogMark(log), "?"),
        (LogMark(log, is_start=True), "start"),
        (LogMark(log, ttl_s=86_400), "86400"),
        (LogMark(log, ttl_s=0), "0"),
        (LogMark(log, ttl_s=0, seen="off.6461f3.c0ffee00"), "0 off.6461f3.c0ffee00"),
    ):
        cursor = str(attrs.evolve(point, mark=mark))
        assert EVENTS.encode(cursor) == f"{expected}  {log.hex()} {text}"
        assert EVENTS.sort_key(EVENTS.encode(cursor)) == EVENTS.encode(str(point)) == expected
        assert EVENTS.decode(EVENTS.encode(cursor)) == cursor


def test_zero_cursor_of_go_is_below_all_rows() -> None:
    zero = str(EventID(YEAR_1, YEAR_1 * 1000))
    assert '"cursor_time":"0001-01-01T00:00:00Z"' in zero
    row = str(EventID.row(YEAR_1, bytes(16), timeuuid(0, b"\x80" * 8), 0))
    assert EVENTS.encode("") < EVENTS.encode(zero) < EVENTS.encode(row)
    assert cursor_key("") < cursor_key(zero) < cursor_key(row)
    assert EVENTS.decode(EVENTS.encode(zero)) == zero


def test_times_that_no_calendar_has_are_refused() -> None:
    beyond = '{"cursor_gen":"0001-01-01T00:00:00+05:00","cursor_time":"2021-02-16T13:07:05Z","stream_id":""'
    with pytest.raises(InvalidCursor):
        EVENTS.encode(beyond + ',"stream_time":"","stream_seq":0,"v":2}')


@pytest.mark.parametrize(
    "position",
    [
        "x",
        "00000000000000000007",
        "2021-02-16T12:00:43.100Z",
        "2021-02-16T12:00:43.100Z 2021-02-16T13:07:05.2500000Z 44",
        "2021-02-16T12:00:43.100Z 2021-02-16T13:07:05.2500000Z 44 ced0 3",
        "2021-02-16T12:00:43.100Z 1021-02-16T13:07:05.2500000Z 44999ff1f8f3587a ced00000000000009663c8dc500005a1 3",
    ],
)
def test_position_of_another_kind_is_refused(position: str) -> None:
    with pytest.raises(InvalidCursor, match="codec"):
        EVENTS.decode(position)


@given(st.integers(0, 10**20 - 1), st.integers(0, 10**20 - 1))
def test_whole_numbers_sort_by_value(a: int, b: int) -> None:
    assert (a < b) == (INTS.encode(str(a)) < INTS.encode(str(b)))
    assert INTS.decode(INTS.encode(str(a))) == str(a)


def test_whole_numbers_have_one_form_and_the_empty_cursor_stays_empty() -> None:
    assert INTS.decode(INTS.encode("007")) == "7"
    assert INTS.encode("") == INTS.decode("") == ""


@pytest.mark.parametrize("cursor", ["-1", "1.0", "1e3", " 1", "٣", "1" * 21, "one", "{}"])
def test_text_that_is_not_a_whole_number_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        INTS.encode(cursor)


@pytest.mark.parametrize("position", ["7", "0000000000000000000x", "0" * 21])
def test_position_that_is_not_a_number_is_refused(position: str) -> None:
    with pytest.raises(InvalidCursor, match="codec"):
        INTS.decode(position)


@given(st.integers(YEAR_1 * 1000, YEAR_9999 * 1000), st.integers(YEAR_1 * 1000, YEAR_9999 * 1000))
def test_times_keep_their_zeros_and_sort(a: int, b: int) -> None:
    assert (a < b) == (format_us(a) < format_us(b))
    assert parse_us(format_us(a)) == a
