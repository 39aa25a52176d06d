"""The contract suites of cursor stores for operators, and of those that several processes share."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import cast

import pytest

from rscylla.abc import CursorAdmin, CursorRecord, CursorStore, EventSaver
from rscylla.errors import ConfigError, CursorConflict, CursorError, CursorRegression, InvalidCursor
from rscylla.event import SimpleEvent

from .cursors import CursorStoreContract, EventCursorStoreContract

__all__ = ["CursorAdminContract", "SharedCursorStoreContract"]


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
        save = EventSaver(store, consumer)
        assert store.get_cursor(consumer) == ""
        save(SimpleEvent(self.cursors[1]))
        save(SimpleEvent(self.cursors[2]))
        [record] = [r for r in self.admin(store).list_cursors() if r.consumer == consumer]
        assert record.cursor == self.cursors[2]
        self.admin(store).reset_cursor(consumer, self.cursors[1], reason="replay")
        for _ in range(2):
            with pytest.raises(CursorConflict):
                save(SimpleEvent(self.cursors[3]))
        assert store.get_cursor(consumer) == self.cursors[1]
        for cursor in self.cursors[2:4]:
            save(SimpleEvent(cursor))
        store.flush()
        assert store.get_cursor(consumer) == self.cursors[3]
        assert [r.cursor for r in self.admin(store).cursor_history(consumer)] == [self.cursors[3], self.cursors[2]]

    def test_events_that_come_again_after_a_reset_are_saved_again(self, store: CursorStore, consumer: str) -> None:
        events = [SimpleEvent(cursor) for cursor in self.cursors[1:4]]
        for _ in range(2):
            store.get_cursor(consumer)
            save = EventSaver(store, consumer)
            for event in events:
                save(event)
            store.flush()
            assert store.get_cursor(consumer) == self.cursors[3]
            self.admin(store).reset_cursor(consumer, self.cursors[0], reason="replay")

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
