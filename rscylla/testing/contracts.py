"""Contract suites: the required behavior of each Protocol's implementations, as test classes to subclass.

    class TestMyStore(SharedCursorStoreContract):
        def open_store(self) -> CursorStore:
            return MyStore(...)

Requires pytest. A subclass that needs fixtures requests them in an ``autouse`` fixture and stores them on ``self``.
Each test uses its own consumers, so the data of the stores may be shared and old.
"""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import ClassVar, cast

import pytest

from rscylla.abc import CursorAdmin, CursorRecord, CursorStore, saver_of
from rscylla.errors import ConfigError, CursorConflict, CursorError, CursorRegression, InvalidCursor
from rscylla.event import Event, EventID, LogMark, cursor_key

from .publishcontracts import PublisherContract

__all__ = [
    "CursorAdminContract",
    "CursorStoreContract",
    "EventCursorStoreContract",
    "PublisherContract",
    "SharedCursorStoreContract",
]

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


class _Ordered(Event):
    """An event with an order key of its own, as events of CDC streams have."""

    def __init__(self, cursor: str) -> None:
        self._cursor = cursor

    type = 0
    foreign_id = ""
    timestamp = datetime(2026, 11, 21, tzinfo=UTC)

    @property
    def id(self) -> str:
        return self._cursor

    @property
    def order_key(self) -> tuple[int, bytes]:
        return cursor_key(self._cursor)


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
        """Of a ``LazyCursorStore``, and of any other through ``saver_of``, in any mixture with texts."""
        save = saver_of(store)
        low, *rest = (_row(seq=seq) for seq in range(5))
        for number, cursor in enumerate(rest):
            for _ in range(2):
                save(consumer, _Ordered(cursor))
            if number % 2:
                store.set_cursor(consumer, cursor)
            assert store.get_cursor(consumer) == cursor
            for lower in (low, *rest[:number]):
                with pytest.raises(CursorRegression) as caught:
                    save(consumer, _Ordered(lower))
                assert (caught.value.stored, caught.value.given) == (cursor, lower)
        store.flush()
        with pytest.raises(CursorRegression):
            save(consumer, _Ordered(low))
        with pytest.raises(CursorRegression):
            store.set_cursor(consumer, low)
        for cursor in (_row(us=_AT_US + 1), _row(us=_AT_US + 2)):
            save(consumer, _Ordered(cursor))
        store.set_cursor(consumer, _progress(_AT_US + 60_000_000))
        save(consumer, _Ordered(_row(us=_AT_US + 60_000_000)))
        save(consumer, _Ordered(_row(us=_AT_US, later=1)))
        store.flush()
        assert store.get_cursor(consumer) == _row(us=_AT_US, later=1)

    def test_an_event_needs_a_consumer_with_a_name(self, store: CursorStore) -> None:
        with pytest.raises(ConfigError):
            saver_of(store)("", _Ordered(_row()))


class CursorAdminContract(CursorStoreContract):
    """The additional contract of ``CursorAdmin``."""

    def admin(self, store: CursorStore) -> CursorAdmin:
        """Return *store* as a store for operators."""
        return cast("CursorAdmin", store)

    def record(self, store: CursorStore, consumer: str) -> CursorRecord:
        """Return the one record of *consumer* in the list."""
        [record] = [r for r in self.admin(store).list_cursors() if r.consumer == consumer]
        return record

    def test_reset_moves_the_cursor_back(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[4])
        store.flush()
        self.admin(store).reset_cursor(consumer, self.cursors[1], reason="replay")
        assert store.get_cursor(consumer) == self.cursors[1]
        store.set_cursor(consumer, self.cursors[2])
        store.flush()
        assert store.get_cursor(consumer) == self.cursors[2]

    def test_reset_drops_cursors_that_were_not_flushed(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[4])
        self.admin(store).reset_cursor(consumer, self.cursors[1], reason="replay")
        store.flush()
        assert store.get_cursor(consumer) == self.cursors[1]

    def test_an_event_is_refused_after_a_reset_until_the_cursor_is_read(
        self, store: CursorStore, consumer: str
    ) -> None:
        save = saver_of(store)
        assert store.get_cursor(consumer) == ""
        save(consumer, _Ordered(self.cursors[1]))
        save(consumer, _Ordered(self.cursors[2]))
        [record] = [r for r in self.admin(store).list_cursors() if r.consumer == consumer]
        assert record.cursor == self.cursors[2]
        self.admin(store).reset_cursor(consumer, self.cursors[1], reason="replay")
        for _ in range(2):
            with pytest.raises(CursorConflict):
                save(consumer, _Ordered(self.cursors[3]))
        assert store.get_cursor(consumer) == self.cursors[1]
        for cursor in self.cursors[2:4]:
            save(consumer, _Ordered(cursor))
        store.flush()
        assert store.get_cursor(consumer) == self.cursors[3]
        assert [r.cursor for r in self.admin(store).cursor_history(consumer)] == [self.cursors[3], self.cursors[2]]

    def test_reset_to_the_beginning(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[4])
        store.flush()
        self.admin(store).reset_cursor(consumer, "", reason="from the start")
        assert store.get_cursor(consumer) == ""
        store.set_cursor(consumer, self.cursors[0])
        store.flush()
        assert store.get_cursor(consumer) == self.cursors[0]

    def test_reset_forward_and_of_an_unknown_consumer(self, store: CursorStore, consumer: str) -> None:
        self.admin(store).reset_cursor(consumer, self.cursors[1], reason="first")
        self.admin(store).reset_cursor(consumer, self.cursors[4], reason="second")
        assert store.get_cursor(consumer) == self.cursors[4]
        with pytest.raises(CursorRegression):
            store.set_cursor(consumer, self.cursors[1])

    def test_running_consumer_learns_of_a_reset(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[2])
        self.admin(store).reset_cursor(consumer, self.cursors[0], reason="replay")
        for _ in range(2):
            with pytest.raises(CursorConflict, match="read it again"):
                store.set_cursor(consumer, self.cursors[3])
        assert store.get_cursor(consumer) == self.cursors[0]
        store.set_cursor(consumer, self.cursors[1])
        store.flush()
        assert store.get_cursor(consumer) == self.cursors[1]

    def test_reset_needs_a_reason_and_a_cursor(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[2])
        with pytest.raises(ConfigError, match="reason"):
            self.admin(store).reset_cursor(consumer, self.cursors[0], reason=" ")
        with pytest.raises(InvalidCursor):
            self.admin(store).reset_cursor(consumer, self.no_cursor, reason="a try")
        store.flush()
        assert store.get_cursor(consumer) == self.cursors[2]
        store.set_cursor(consumer, self.cursors[3])

    def test_list_is_sorted_and_shows_cursors_times_and_reasons(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(f"{consumer}-b", self.cursors[1])
        store.set_cursor(f"{consumer}-a", self.cursors[2])
        store.flush()
        self.admin(store).reset_cursor(f"{consumer}-c", self.cursors[0], reason="bad deploy")
        ours = [r for r in self.admin(store).list_cursors() if r.consumer.startswith(consumer)]
        assert [(r.consumer, r.cursor) for r in ours] == [
            (f"{consumer}-a", self.cursors[2]),
            (f"{consumer}-b", self.cursors[1]),
            (f"{consumer}-c", self.cursors[0]),
        ]
        # Without a reset, the reason is "", or names the lease holder of a store under a lease.
        assert [r.reason == "bad deploy" for r in ours] == [False, False, True]
        for record in ours:
            assert record.updated_at is not None
            assert abs(record.updated_at - datetime.now(UTC)).total_seconds() < 60

    def test_list_includes_cursors_that_were_not_flushed(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[1])
        assert self.record(store, consumer).cursor == self.cursors[1]

    def test_find_distinguishes_an_unknown_consumer_from_one_reset_to_the_oldest(
        self, store: CursorStore, consumer: str
    ) -> None:
        assert self.admin(store).find_cursor(consumer) is None
        assert list(self.admin(store).cursor_history(consumer)) == []
        self.admin(store).reset_cursor(consumer, "", reason="from the start")
        found = self.admin(store).find_cursor(consumer)
        assert found is not None
        assert (found.consumer, found.cursor, found.reason, found.takeover) == (consumer, "", "from the start", False)
        assert store.get_cursor(consumer) == ""

    def test_find_returns_the_record_of_the_list(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[1])
        store.flush()
        store.set_cursor(f"{consumer}-b", self.cursors[2])
        for name in (consumer, f"{consumer}-b"):
            assert self.admin(store).find_cursor(name) == self.record(store, name)

    def test_find_and_history_need_a_name(self, store: CursorStore) -> None:
        with pytest.raises(ConfigError):
            self.admin(store).find_cursor("")
        with pytest.raises(ConfigError):
            self.admin(store).cursor_history("")

    def test_find_does_not_count_as_a_read(self, store: CursorStore, consumer: str) -> None:
        """After a reset, a consumer must read its cursor itself; reads by operators do not count."""
        store.set_cursor(consumer, self.cursors[2])
        self.admin(store).reset_cursor(consumer, self.cursors[0], reason="replay")
        self.admin(store).find_cursor(consumer)
        list(self.admin(store).list_cursors())
        list(self.admin(store).cursor_history(consumer))
        with pytest.raises(CursorConflict):
            store.set_cursor(consumer, self.cursors[3])

    def test_history_has_the_last_cursor_of_each_epoch_the_newest_first(
        self, store: CursorStore, consumer: str
    ) -> None:
        for first, last in ((0, 3), (1, 4), (2, 2)):
            if first:
                self.admin(store).reset_cursor(consumer, self.cursors[first], reason=f"reset {first}")
                store.get_cursor(consumer)
            for cursor in self.cursors[first : last + 1]:
                store.set_cursor(consumer, cursor)
            store.flush()
        history = list(self.admin(store).cursor_history(consumer))
        assert [record.cursor for record in history] == [self.cursors[n] for n in (2, 4, 3)]
        assert [record.reason for record in history[:2]] == ["reset 2", "reset 1"]
        assert not history[2].reason or history[2].takeover, "the first epoch does not come from a reset"
        assert [record.epoch - history[2].epoch for record in history] == [2, 1, 0]
        assert history[0] == self.admin(store).find_cursor(consumer)
        assert {record.consumer for record in history} == {consumer}
        moments = [record.updated_at for record in history if record.updated_at is not None]
        assert len(moments) == 3
        assert moments == sorted(moments, reverse=True)

    def test_epoch_counts_the_resets(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[1])
        store.flush()
        first = self.record(store, consumer).epoch
        for count in (1, 2, 3):
            self.admin(store).reset_cursor(consumer, self.cursors[0], reason=f"reset {count}")
            assert (self.record(store, consumer).epoch, self.record(store, consumer).reason) == (
                first + count,
                f"reset {count}",
            )


class SharedCursorStoreContract(EventCursorStoreContract, CursorAdminContract):
    """The contract of stores whose cursors outlive a process: each ``open_store`` simulates a process."""

    def saved(self, consumer: str) -> str:
        """Return the cursor that a process reads when it starts now."""
        store = self.open_store()
        try:
            return store.get_cursor(consumer)
        finally:
            store.close()

    def try_to_set(self, store: CursorStore, consumer: str, cursor: str) -> None:
        """Set and flush. The store may raise a ``CursorError``, or the write may have no effect."""
        with contextlib.suppress(CursorError):
            store.set_cursor(consumer, cursor)
        with contextlib.suppress(CursorError):
            store.flush()

    @pytest.fixture
    def other(self) -> Iterator[CursorStore]:
        store = self.open_store()
        yield store
        with contextlib.suppress(CursorError):
            store.close()

    def test_next_process_reads_the_flushed_cursor(self, store: CursorStore, consumer: str) -> None:
        store.set_cursor(consumer, self.cursors[2])
        store.flush()
        assert self.saved(consumer) == self.cursors[2]

    def test_close_flushes(self, consumer: str) -> None:
        store = self.open_store()
        store.set_cursor(consumer, self.cursors[2])
        store.close()
        assert self.saved(consumer) == self.cursors[2]

    def test_stale_process_cannot_move_the_cursor_back(
        self, store: CursorStore, other: CursorStore, consumer: str
    ) -> None:
        store.set_cursor(consumer, self.cursors[0])
        store.flush()
        assert other.get_cursor(consumer) == self.cursors[0]
        store.set_cursor(consumer, self.cursors[4])
        store.flush()
        for late in self.cursors[1:4]:
            self.try_to_set(other, consumer, late)
            assert self.saved(consumer) == self.cursors[4]
        self.try_to_set(store, consumer, self.cursors[5])
        assert self.saved(consumer) == self.cursors[5]

    def test_stale_process_cannot_undo_a_reset(self, store: CursorStore, other: CursorStore, consumer: str) -> None:
        other.set_cursor(consumer, self.cursors[2])
        other.flush()
        self.admin(store).reset_cursor(consumer, self.cursors[0], reason="replay")
        self.try_to_set(other, consumer, self.cursors[5])
        assert self.saved(consumer) == self.cursors[0]
        assert store.get_cursor(consumer) == self.cursors[0]
        store.set_cursor(consumer, self.cursors[1])
        store.flush()
        assert self.saved(consumer) == self.cursors[1]

    def test_stale_process_continues_after_reading_again(
        self, store: CursorStore, other: CursorStore, consumer: str
    ) -> None:
        other.set_cursor(consumer, self.cursors[2])
        other.flush()
        self.admin(store).reset_cursor(consumer, self.cursors[0], reason="replay")
        self.try_to_set(other, consumer, self.cursors[3])
        with contextlib.suppress(CursorError):
            other.flush()
        assert other.get_cursor(consumer) == self.cursors[0]
        other.set_cursor(consumer, self.cursors[1])
        other.flush()
        assert self.saved(consumer) == self.cursors[1]

    def test_reset_takes_effect_at_the_next_read_despite_unflushed_cursors(
        self, store: CursorStore, other: CursorStore, consumer: str
    ) -> None:
        other.set_cursor(consumer, self.cursors[1])
        other.flush()
        other.set_cursor(consumer, self.cursors[2])
        self.admin(store).reset_cursor(consumer, self.cursors[0], reason="replay")
        assert other.get_cursor(consumer) == self.cursors[0]
        other.set_cursor(consumer, self.cursors[1])
        other.flush()
        assert self.saved(consumer) == self.cursors[1]

    def test_each_reset_opens_an_epoch(self, store: CursorStore, other: CursorStore, consumer: str) -> None:
        self.admin(store).reset_cursor(consumer, self.cursors[3], reason="one")
        self.admin(other).reset_cursor(consumer, self.cursors[1], reason="two")
        record = self.record(store, consumer)
        assert (record.epoch, record.cursor, record.reason) == (2, self.cursors[1], "two")

    def test_resets_at_the_same_moment_all_count(self, consumer: str) -> None:
        def reset(n: int) -> None:
            process = self.open_store()
            self.admin(process).reset_cursor(consumer, self.cursors[n], reason=f"reset {n}")
            process.close()

        threads = [threading.Thread(target=reset, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store = self.open_store()
        record = self.record(store, consumer)
        assert record.epoch == 4
        assert record.reason == f"reset {self.cursors.index(record.cursor)}"
        store.close()
