"""The contract suites of cursor stores for one process."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest

from rscylla.abc import CursorStore, EventSaver, flush_cursor
from rscylla.errors import ConfigError, CursorRegression, InvalidCursor
from rscylla.event import EventID, LogMark, SimpleEvent, cursor_key

__all__ = ["CursorStoreContract", "EventCursorStoreContract"]

_GENERATION_MS = 1_795_251_600_000  # 2026-11-21T09:00:00Z
_HOUR_US = 3_600_000_000
_AT_US = _GENERATION_MS * 1000 + _HOUR_US + 5_250_000
_STREAM = bytes.fromhex("ced00000000000009663c8dc500005a1")


def _row(
    *, us: int = _AT_US, tick: int = 0, low: bytes = b"\x80" * 8, stream: bytes = _STREAM, seq: int = 0, later: int = 0
) -> str:
    """Return the id of a log row; *later* moves its generation, in milliseconds."""
    # 122192928000000000 ticks of 100 ns lie between 1582-10-15 and 1970-01-01.
    ticks = us * 10 + tick + 122_192_928_000_000_000
    head = (ticks & 0xFFFFFFFF) << 32 | (ticks >> 32 & 0xFFFF) << 16 | 0x1000 | ticks >> 48
    return str(EventID.row(_GENERATION_MS + later, stream, head.to_bytes(8, "big") + low, seq))


def _progress(us: int, mark: LogMark | None = None) -> str:
    return str(EventID(_GENERATION_MS, us, mark=mark))


_MARKS = (
    None,
    LogMark(b"\x01" * 16, is_start=True),
    LogMark(b"\x01" * 16),
    LogMark(b"\x01" * 16, ttl_s=86_400),
    LogMark(b"\x01" * 16, ttl_s=172_800, seen="off.6461f3a1b2c00.00c0ffee"),
    LogMark(b"\x00" * 16, ttl_s=0),
)
"""Marks of the log that cursors without a row part may have. They do not affect the order."""


class CursorStoreContract:
    """The contract of ``CursorStore`` for one process. ``cursors`` are at least five canonical cursors, ascending."""

    cursors: ClassVar[Sequence[str]] = (
        _progress(_AT_US - 250_000),
        _row(),
        _row(seq=1),
        _row(us=_AT_US + 1),
        _progress(_AT_US + 60_000_000),
        _row(us=_AT_US + _HOUR_US, later=_HOUR_US // 1000),
    )
    no_cursor: ClassVar[str] = "not a cursor"

    def open_store(self) -> CursorStore:
        """Return a new store. Called once for each process that a test simulates; all of them share their data."""
        raise NotImplementedError("a contract suite needs open_store(), which returns the store to test")

    @pytest.fixture
    def store(self) -> Iterator[CursorStore]:
        store = self.open_store()
        yield store
        store.close()

    @pytest.fixture
    def consumer(self) -> str:
        return f"contract-{uuid.uuid4()}"

    def test_unknown_consumer_has_the_empty_cursor(self, store: CursorStore, consumer: str) -> None:
        assert store.get_cursor(consumer) == ""

    def test_cursor_that_was_set_is_read_back(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[0])
        assert store.get_cursor(consumer) == self.cursors[0]
        store.flush()
        assert store.get_cursor(consumer) == self.cursors[0]

    def test_cursor_moves_forward(self, store: CursorStore, consumer: str) -> None:
        for cursor in self.cursors:
            store.set_cursor(consumer, cursor)
            assert store.get_cursor(consumer) == cursor
        store.flush()
        assert store.get_cursor(consumer) == self.cursors[-1]

    def test_setting_the_same_cursor_again_is_allowed(self, store: CursorStore, consumer: str) -> None:
        for _ in range(3):
            store.set_cursor(consumer, self.cursors[2])
            store.flush()
        assert store.get_cursor(consumer) == self.cursors[2]

    def test_lower_cursor_is_refused_and_the_saved_one_stays(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[3])
        for lower in self.cursors[:3]:
            with pytest.raises(CursorRegression) as caught:
                store.set_cursor(consumer, lower)
            assert consumer in str(caught.value)
            assert (caught.value.consumer, caught.value.stored, caught.value.given) == (
                consumer,
                self.cursors[3],
                lower,
            )
        store.flush()
        assert store.get_cursor(consumer) == self.cursors[3]

    def test_lower_cursor_is_refused_after_a_flush(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[3])
        store.flush()
        with pytest.raises(CursorRegression):
            store.set_cursor(consumer, self.cursors[0])
        assert store.get_cursor(consumer) == self.cursors[3]

    def test_consumer_continues_after_a_refused_cursor(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[2])
        with pytest.raises(CursorRegression):
            store.set_cursor(consumer, self.cursors[1])
        store.set_cursor(consumer, self.cursors[3])
        store.flush()
        assert store.get_cursor(consumer) == self.cursors[3]

    def test_empty_cursor_is_below_all_others(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, "")
        assert store.get_cursor(consumer) == ""
        store.set_cursor(consumer, self.cursors[0])
        with pytest.raises(CursorRegression):
            store.set_cursor(consumer, "")
        assert store.get_cursor(consumer) == self.cursors[0]

    def test_text_that_is_not_a_cursor_is_refused_and_the_saved_one_stays(
        self, store: CursorStore, consumer: str
    ) -> None:
        store.set_cursor(consumer, self.cursors[1])
        with pytest.raises(InvalidCursor):
            store.set_cursor(consumer, self.no_cursor)
        store.flush()
        assert store.get_cursor(consumer) == self.cursors[1]

    def test_consumers_do_not_share_cursors(self, store: CursorStore, consumer: str) -> None:
        others = [f"{consumer}-{i}" for i in range(3)]
        for cursor, other in zip(self.cursors, others, strict=False):
            store.set_cursor(other, cursor)
        store.flush()
        assert [store.get_cursor(other) for other in others] == list(self.cursors[:3])
        assert store.get_cursor(consumer) == ""

    @pytest.mark.parametrize("name", ["a b", "'; DROP TABLE x; --", 'say "hi"', "größe-日本", "a" * 500, "None", "0"])
    def test_consumer_may_have_any_name(self, store: CursorStore, consumer: str, name: str) -> None:
        store.set_cursor(f"{consumer} {name}", self.cursors[0])
        store.flush()
        assert store.get_cursor(f"{consumer} {name}") == self.cursors[0]

    def test_consumer_needs_a_name(self, store: CursorStore) -> None:
        with pytest.raises(ConfigError):
            store.set_cursor("", self.cursors[0])
        with pytest.raises(ConfigError):
            store.get_cursor("")

    def test_flush_and_close_can_be_repeated(self, consumer: str) -> None:
        store = self.open_store()
        store.flush()
        store.set_cursor(consumer, self.cursors[0])
        store.flush()
        store.flush()
        store.close()
        store.close()

    def test_highest_cursor_of_several_threads_remains(self, store: CursorStore, consumer: str) -> None:
        failures: list[BaseException] = []

        def work(cursors: Sequence[str]) -> None:
            for cursor in cursors:
                try:
                    store.set_cursor(consumer, cursor)
                    store.flush()
                except CursorRegression:
                    continue  # another thread was faster
                except BaseException as e:  # noqa: BLE001  shown by the assertion below
                    failures.append(e)

        threads = [threading.Thread(target=work, args=(self.cursors[i:],)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert store.get_cursor(consumer) == self.cursors[-1]


class EventCursorStoreContract(CursorStoreContract):
    """The additional contract of a store of event ids: it orders them as they are delivered, not as text."""

    def test_ids_of_one_window_are_saved_in_the_order_of_delivery(self, store: CursorStore, consumer: str) -> None:
        high, low = b"\xff" * 16, b"\x00" * 16
        ids = [_row(stream=high), _row(tick=1, stream=low), _row(tick=2, stream=high), _row(us=_AT_US + 1, stream=low)]
        assert sorted(ids) != ids
        for event_id in ids:
            store.set_cursor(consumer, event_id)
        store.flush()
        assert store.get_cursor(consumer) == ids[-1]
        for earlier in ids[:-1]:
            with pytest.raises(CursorRegression):
                store.set_cursor(consumer, earlier)

    def test_ties_of_time_are_ordered_by_signed_bytes(self, store: CursorStore, consumer: str) -> None:
        negative, positive = b"\x80" + bytes(7), bytes(8)
        store.set_cursor(consumer, _row(low=negative))
        store.set_cursor(consumer, _row(low=positive))
        with pytest.raises(CursorRegression):
            store.set_cursor(consumer, _row(low=negative))

    @pytest.mark.parametrize("first", _MARKS, ids=str)
    def test_cursors_that_differ_only_in_their_mark_are_equal(
        self, store: CursorStore, consumer: str, first: LogMark | None
    ) -> None:
        store.set_cursor(consumer, _progress(_AT_US, first))
        for other in _MARKS:
            store.set_cursor(consumer, _progress(_AT_US, other))
        store.flush()
        assert cursor_key(store.get_cursor(consumer)) == cursor_key(_progress(_AT_US))
        with pytest.raises(CursorRegression):
            store.set_cursor(consumer, _progress(_AT_US - 1, first))
        store.set_cursor(consumer, _progress(_AT_US + 1, first))
        store.flush()
        assert store.get_cursor(consumer) == _progress(_AT_US + 1, first)

    def test_cursors_are_not_compared_as_text(self, store: CursorStore, consumer: str) -> None:
        whole, half = _progress(_AT_US - 250_000), _progress(_AT_US + 250_000)
        assert half < whole
        store.set_cursor(consumer, whole)
        store.set_cursor(consumer, half)
        assert store.get_cursor(consumer) == half
        with pytest.raises(CursorRegression):
            store.set_cursor(consumer, whole)

    def test_later_generation_is_higher_at_an_earlier_time(self, store: CursorStore, consumer: str) -> None:
        """A reader that learns late about a generation goes back to its start and must be able to save that cursor."""
        ahead, back = _row(us=_AT_US + 9_000_000), _row(us=_AT_US, later=1)
        store.set_cursor(consumer, ahead)
        store.flush()
        store.set_cursor(consumer, back)
        store.flush()
        assert store.get_cursor(consumer) == back

    def test_cursor_of_go_rscylla_becomes_the_start_of_its_window(self, store: CursorStore, consumer: str) -> None:
        fields = json.loads(_row())
        del fields["v"]
        store.set_cursor(consumer, json.dumps(fields))
        store.flush()
        assert store.get_cursor(consumer) == _progress(_AT_US - 250_000)
        store.set_cursor(consumer, _row())

    def test_cursor_is_read_back_byte_for_byte(self, store: CursorStore, consumer: str) -> None:
        event_id = _row(tick=7, low=bytes(range(120, 128)), stream=bytes(range(16)), seq=2**31 - 1)
        store.set_cursor(consumer, event_id)
        store.flush()
        assert store.get_cursor(consumer) == event_id

    def test_an_event_is_saved_as_its_id_is(self, store: CursorStore, consumer: str) -> None:
        """A run saves its events in the order of their cursors, in any mixture with texts."""
        save = EventSaver(store, consumer)
        low, *rest = (_row(seq=seq) for seq in range(5))
        for number, cursor in enumerate(rest):
            for _ in range(2):
                save(SimpleEvent(cursor))
            if number % 2:
                store.set_cursor(consumer, cursor)
            assert store.get_cursor(consumer) == cursor
        store.flush()
        with pytest.raises(CursorRegression) as caught:
            store.set_cursor(consumer, low)
        assert (caught.value.stored, caught.value.given) == (rest[-1], low)
        for cursor in (_row(us=_AT_US + 1), _row(us=_AT_US + 2)):
            save(SimpleEvent(cursor))
        store.set_cursor(consumer, _progress(_AT_US + 60_000_000))
        save(SimpleEvent(_row(us=_AT_US + 60_000_000)))
        save(SimpleEvent(_row(us=_AT_US, later=1)))
        store.flush()
        assert store.get_cursor(consumer) == _row(us=_AT_US, later=1)

    def test_an_event_behind_the_cursor_is_refused_at_the_latest_by_a_flush(
        self, store: CursorStore, consumer: str
    ) -> None:
        save = EventSaver(store, consumer)
        save(SimpleEvent(_row(seq=2)))

        def save_lower() -> None:
            save(SimpleEvent(_row(seq=1)))
            store.flush()

        with pytest.raises(CursorRegression):
            save_lower()
        assert store.get_cursor(consumer) == _row(seq=2)

    def test_an_event_behind_the_cursor_is_the_error_of_its_consumer_alone(
        self, store: CursorStore, consumer: str
    ) -> None:
        save, other = EventSaver(store, consumer), f"{consumer}-other"
        for one in (save, EventSaver(store, other)):
            one(SimpleEvent(_row(seq=2)))
        try:
            save(SimpleEvent(_row(seq=1)))
        except CursorRegression:
            return  # nobody else can be told
        flush_cursor(store, other)
        with pytest.raises(CursorRegression):
            flush_cursor(store, consumer)

    def test_an_event_needs_a_consumer_with_a_name(self, store: CursorStore) -> None:
        with pytest.raises(ConfigError):
            EventSaver(store, "")(SimpleEvent(_row()))
