"""Contract suites of event sourcing: the required behavior of its stores, as test classes to subclass.

    class TestMyStore(EventStoreContract):
        def open_store(self) -> EventStore:
            return MyStore(...)

Each test uses its own aggregates, so the data of the stores may be shared and old. Requires pytest and the extra
``eventsourcing``.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import attrs
import pytest

from rscylla.errors import ConfigError, SubjectForgotten, VersionConflict
from rscylla.eventsourcing import (
    AggregateID,
    BuildStore,
    Built,
    EventRecord,
    EventStore,
    Snapshot,
    SnapshotStore,
    SubjectKeys,
    Timer,
    TimerStore,
    TokenRange,
)

__all__ = [
    "BuildStoreContract",
    "EventStoreContract",
    "SnapshotStoreContract",
    "SubjectKeysContract",
    "TimerStoreContract",
]

_AT = datetime(2026, 11, 21, 10, 0, 5, 250_000, tzinfo=UTC)


def _records(aggregate: AggregateID, after: int, count: int = 1, *, data: str = "{}") -> list[EventRecord]:
    return [
        EventRecord(aggregate, after + 1 + n, uuid.uuid4(), "Happened", 1, data, _AT, causation_id="c")
        for n in range(count)
    ]


def _together(*work: Callable[[], object]) -> None:
    """Run all of *work* at the same time; raise what one of them raised."""
    errors: list[BaseException] = []
    ready = threading.Barrier(len(work))

    def run(one: Callable[[], object]) -> None:
        try:
            ready.wait(30)
            one()
        except BaseException as e:  # noqa: BLE001 - raised below
            errors.append(e)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class EventStoreContract:
    """The contract of ``EventStore``. Each ``open_store`` simulates a process."""

    def open_store(self) -> EventStore:
        """Return a new object over the shared data of the test."""
        raise NotImplementedError("a contract suite needs open_store(), which returns the store to test")

    @pytest.fixture
    def store(self) -> EventStore:
        return self.open_store()

    @pytest.fixture
    def aggregate(self) -> AggregateID:
        return AggregateID("Order/é", f"contract {uuid.uuid4()}")

    def test_an_aggregate_without_events_is_at_version_0(self, store: EventStore, aggregate: AggregateID) -> None:
        assert store.head(aggregate) == 0
        assert list(store.read(aggregate)) == []

    def test_events_are_kept_whole_and_in_order(self, store: EventStore, aggregate: AggregateID) -> None:
        first = EventRecord(
            aggregate,
            1,
            uuid.uuid4(),
            "naïve \u0001",
            7,
            '{"text":"ü 🙂 \\ud83d"}',
            _AT,
            correlation_id="correlation",
            causation_id="causation",
            user="user",
            metadata={"trace": "a=b", "": "\u0000"},
        )
        rest = _records(aggregate, 1, 3)
        store.append([first])
        store.append(rest)
        for seen in (store, self.open_store()):
            assert list(seen.read(aggregate)) == [first, *rest]
            assert list(seen.read(aggregate, 2)) == rest[1:]
            assert list(seen.read(aggregate, 4)) == []
            assert seen.head(aggregate) == 4

    def test_aggregates_do_not_share_events(self, store: EventStore) -> None:
        name = str(uuid.uuid4())
        alike = [AggregateID("a", f"b/{name}"), AggregateID("a/b", name), AggregateID("A", f"b/{name}")]
        for one in alike:
            store.append(_records(one, 0, 2))
        assert [len(list(store.read(one))) for one in alike] == [2, 2, 2]

    @pytest.mark.parametrize("first", [1, 2, 4, 5])
    def test_an_append_at_another_version_conflicts(
        self, store: EventStore, aggregate: AggregateID, first: int
    ) -> None:
        there = _records(aggregate, 0, 2)
        store.append(there)
        with pytest.raises(VersionConflict) as caught:
            self.open_store().append(_records(aggregate, first - 1, 2))
        assert (caught.value.expected, caught.value.actual) == (first - 1, 2)
        assert list(store.read(aggregate)) == there

    def test_the_same_append_again_changes_nothing(self, store: EventStore, aggregate: AggregateID) -> None:
        one, two = _records(aggregate, 0, 2), _records(aggregate, 2, 1)
        for records in (one, one, two, one, two):
            store.append(records)
            self.open_store().append(records)
        assert list(store.read(aggregate)) == one + two

    def test_an_append_that_is_only_partly_the_same_conflicts(self, store: EventStore, aggregate: AggregateID) -> None:
        there = _records(aggregate, 0, 2)
        store.append(there)
        for records in ([*there, *_records(aggregate, 2)], [there[0], *_records(aggregate, 1)]):
            with pytest.raises(VersionConflict):
                store.append(records)
        assert list(store.read(aggregate)) == there

    @pytest.mark.parametrize("change", [{"data": '{"a":1}'}, {"type": "Other"}, {"schema": 2}])
    def test_the_same_ids_with_other_contents_conflict(
        self, store: EventStore, aggregate: AggregateID, change: dict[str, Any]
    ) -> None:
        there = _records(aggregate, 0, 2)
        store.append(there)
        with pytest.raises(VersionConflict):
            store.append([there[0], attrs.evolve(there[1], **change)])
        assert list(store.read(aggregate)) == there

    def test_what_cannot_be_appended_is_refused(self, store: EventStore, aggregate: AggregateID) -> None:
        good = _records(aggregate, 0, 3)
        other = _records(AggregateID("other", aggregate.id), 1)
        lone = attrs.evolve(good[0], user="\ud83d")
        wrong: list[Sequence[EventRecord]] = [[], good[::-1], [good[0], good[2]], [good[0], *other], [lone]]
        wrong += [[attrs.evolve(good[0], version=0)], _records(aggregate, 0, 1, data="x" * 3_000_000)]
        wrong += [_records(aggregate, 0, 100_000)]
        for records in wrong:
            with pytest.raises(ConfigError):
                store.append(records)
        assert store.head(aggregate) == 0

    @pytest.mark.parametrize("version", [0, 1])
    def test_of_two_appends_at_the_same_version_one_wins(self, aggregate: AggregateID, version: int) -> None:
        before = _records(aggregate, 0, version)
        if before:
            self.open_store().append(before)
        appends = [_records(aggregate, version, 2) for _ in range(2)]
        conflicts: list[VersionConflict] = []

        def append(records: Sequence[EventRecord]) -> None:
            store = self.open_store()
            try:
                store.append(records)
            except VersionConflict as e:
                conflicts.append(e)

        _together(*(lambda records=records: append(records) for records in appends))
        assert [(e.expected, e.actual) for e in conflicts] == [(version, version + 2)]
        assert list(self.open_store().read(aggregate))[version:] in appends

    def test_many_appenders_leave_versions_without_gaps(self, aggregate: AggregateID) -> None:
        appended: list[EventRecord] = []

        def work() -> None:
            store, done = self.open_store(), 0
            while done < 5:
                records = _records(aggregate, store.head(aggregate), 1 + done % 2)
                with contextlib.suppress(VersionConflict):
                    store.append(records)
                    appended.extend(records)
                    done += 1

        _together(*[work] * 4)
        assert list(self.open_store().read(aggregate)) == sorted(appended, key=lambda record: record.version)
        assert [record.version for record in self.open_store().read(aggregate)] == list(range(1, len(appended) + 1))

    def test_a_scan_yields_all_events_once_each_aggregate_in_order(self, store: EventStore) -> None:
        kind = f"scanned {uuid.uuid4()}"
        wanted = {}
        for n in range(30):
            aggregate = AggregateID(kind, str(n))
            wanted[aggregate] = _records(aggregate, 0, 1 + n % 7)
            store.append(wanted[aggregate])
        for parts in (1, 5):
            found: dict[AggregateID, list[EventRecord]] = {}
            for part in TokenRange().split(parts):
                pages = list(store.scan(part))
                assert [page.rest is None for page in pages] == [False] * (len(pages) - 1) + [True]
                for record in (record for page in pages for record in page.records):
                    if record.aggregate.type == kind:
                        found.setdefault(record.aggregate, []).append(record)
            assert found == wanted

    def test_a_scan_continues_after_any_page(self, store: EventStore) -> None:
        kind = f"resumed {uuid.uuid4()}"
        wanted: set[uuid.UUID] = set()
        for n in range(40):
            records = _records(AggregateID(kind, str(n)), 0, 60)
            store.append(records)
            wanted.update(record.event_id for record in records)
        found: list[uuid.UUID] = []
        rest: TokenRange | None = TokenRange()
        pages = 0
        while rest is not None:
            page = next(iter(self.open_store().scan(rest)))
            found += [record.event_id for record in page.records if record.aggregate.type == kind]
            assert page.rest is None or page.rest.low > rest.low
            rest, pages = page.rest, pages + 1
        assert pages > 1
        assert set(found) == wanted


class SnapshotStoreContract:
    """The contract of ``SnapshotStore``. Each ``open_store`` simulates a process."""

    def open_store(self) -> SnapshotStore:
        """Return a new object over the shared data of the test."""
        raise NotImplementedError("a contract suite needs open_store(), which returns the store to test")

    def test_the_last_snapshot_is_returned_whole(self) -> None:
        store, aggregate = self.open_store(), AggregateID("order", str(uuid.uuid4()))
        assert store.get_snapshot(aggregate) is None
        one = Snapshot(aggregate, 100, 1, '{"text":"ü \\ud83d"}', ("c1", "ü"))
        store.put_snapshot(one)
        assert self.open_store().get_snapshot(aggregate) == one
        two = Snapshot(aggregate, 250, 2, "null")
        self.open_store().put_snapshot(two)
        assert store.get_snapshot(aggregate) == two
        assert store.get_snapshot(AggregateID("orders", aggregate.id)) is None


class SubjectKeysContract:
    """The contract of ``SubjectKeys``. Each ``open_keys`` simulates a process."""

    def open_keys(self) -> SubjectKeys:
        """Return a new object over the shared data of the test."""
        raise NotImplementedError("a contract suite needs open_keys(), which returns the keys to test")

    @pytest.fixture
    def who(self) -> str:
        return f"customer ü {uuid.uuid4()}"

    def test_a_key_is_made_once(self, who: str) -> None:
        keys = self.open_keys()
        assert keys.find_key(who) is None
        key = keys.make_key(who)
        assert len(key) == 32
        for seen in (keys, self.open_keys()):
            assert (seen.find_key(who), seen.make_key(who)) == (key, key)
        assert keys.make_key(f"{who}2") != key

    def test_all_who_make_a_key_at_once_get_the_same(self, who: str) -> None:
        made: list[bytes] = []
        _together(*[lambda: made.append(self.open_keys().make_key(who))] * 4)
        assert len(made) == 4
        assert set(made) == {self.open_keys().find_key(who)}

    @pytest.mark.parametrize("made", [True, False])
    def test_who_is_forgotten_stays_so(self, who: str, made: bool) -> None:
        keys = self.open_keys()
        if made:
            keys.make_key(who)
        for _ in range(2):
            keys.forget(who)
            for seen in (keys, self.open_keys()):
                assert seen.find_key(who) is None
                with pytest.raises(SubjectForgotten):
                    seen.make_key(who)


def _claim(store: TimerStore, timer: Timer, owner: str, won: list[str]) -> None:
    if store.claim(timer, owner, timedelta(minutes=1)):
        won.append(owner)


def _cancel(store: TimerStore, timer: Timer, won: list[str]) -> None:
    if store.cancel(timer.id):
        won.append("cancelled")


class TimerStoreContract:
    """The contract of ``TimerStore``."""

    def open_timers(self) -> TimerStore:
        """Return a store. Called once for each process that a test simulates; all of them share their timers."""
        raise NotImplementedError("a contract suite needs open_timers(), which returns the timers to test")

    def pass_time(self, seconds: float) -> None:
        """Let the clock of the stores advance."""
        raise NotImplementedError("a contract suite needs pass_time(seconds), which advances the clock of the stores")

    def now(self) -> datetime:
        """Return the time by the clock of the stores, aware UTC."""
        raise NotImplementedError("a contract suite needs now(), which returns the time of the stores' clock")

    def a_timer(self, seconds: float = -1.0, data: str = "{}") -> Timer:
        """Return a new timer, which is due so many seconds from now."""
        return Timer(f"contract-{uuid.uuid4()}", self.now() + timedelta(seconds=seconds), data)

    def due(self, store: TimerStore, *timers: Timer) -> list[Timer]:
        """Return those of *timers* that the store says are due."""
        return [found for found in store.due(self.now(), 10_000) if found in timers]

    def test_timers_are_due_at_their_time_in_order(self) -> None:
        store = self.open_timers()
        later, sooner, next_day = self.a_timer(30), self.a_timer(10, "data"), self.a_timer(86_400)
        for timer in (later, sooner, next_day):
            assert store.schedule(timer)
        assert self.due(self.open_timers(), later, sooner, next_day) == []
        self.pass_time(20)
        assert self.due(store, later, sooner, next_day) == [sooner]
        self.pass_time(20)
        assert self.due(self.open_timers(), later, sooner, next_day) == [sooner, later]
        assert self.due(store, sooner)[0].data == "data"
        self.pass_time(86_400)
        assert self.due(self.open_timers(), later, sooner, next_day) == [sooner, later, next_day]

    def test_a_limit_takes_the_first_ones(self) -> None:
        store = self.open_timers()
        assert store.schedule(self.a_timer())
        assert store.schedule(self.a_timer())
        assert len(store.due(self.now(), 1)) == 1

    def test_many_timers_of_long_ago_come_one_look_after_the_other(self) -> None:
        store = self.open_timers()
        timers = [self.a_timer(60 + n) for n in range(3)]
        for timer in timers:
            assert store.schedule(timer)
        self.pass_time(3000)  # nobody looked, such as in an outage
        store = self.open_timers()
        for _ in range(100):  # other tests may have left some
            for found in store.due(self.now(), 1):
                assert store.claim(found, "a", timedelta(minutes=1)) or found not in timers
                store.finish(found)
        for timer in timers:
            assert not store.schedule(timer)

    def test_the_same_timer_again_changes_nothing(self) -> None:
        store, timer = self.open_timers(), self.a_timer()
        assert store.schedule(timer)
        assert store.schedule(timer)
        assert self.due(store, timer) == [timer]

    def test_the_first_of_two_with_one_id_counts(self) -> None:
        store, timer = self.open_timers(), self.a_timer()
        assert store.schedule(timer)
        for other in (
            Timer(timer.id, timer.due - timedelta(seconds=5), timer.data),
            Timer(timer.id, timer.due, "other"),
        ):
            assert not store.schedule(other)
            if other.due != timer.due:
                assert not store.claim(other, "a", timedelta(minutes=1))
        [found] = self.due(store, timer) or [timer]
        assert store.claim(found, "a", timedelta(minutes=1))

    def test_a_timer_that_has_fired_is_not_due_and_not_scheduled_again(self) -> None:
        store, timer = self.open_timers(), self.a_timer()
        assert store.schedule(timer)
        [found] = self.due(store, timer)
        assert store.claim(found, "a", timedelta(minutes=1))
        store.finish(found)
        store.finish(found)
        assert self.due(self.open_timers(), timer) == []
        assert not store.schedule(timer)
        assert not store.cancel(timer.id)
        assert not store.claim(timer, "b", timedelta(minutes=1))

    def test_a_timer_that_was_cancelled_is_not_fired(self) -> None:
        store, timer = self.open_timers(), self.a_timer(-1)
        assert not store.cancel(timer.id)
        assert store.schedule(timer)
        assert store.cancel(timer.id)
        assert store.cancel(timer.id)
        assert not store.schedule(timer)
        for found in self.due(store, timer):
            assert not store.claim(found, "a", timedelta(minutes=1))
        assert self.due(store, timer) == []

    def test_one_owner_has_a_claim_until_it_expires(self) -> None:
        first, second, timer = self.open_timers(), self.open_timers(), self.a_timer()
        assert first.schedule(timer)
        assert first.claim(timer, "a", timedelta(seconds=30))
        assert not second.claim(timer, "b", timedelta(seconds=30))
        assert first.claim(timer, "a", timedelta(seconds=30))
        assert not second.cancel(timer.id)
        self.pass_time(40)
        assert second.claim(timer, "b", timedelta(seconds=30))
        assert not first.claim(timer, "a", timedelta(seconds=30))

    def test_one_of_two_claims_at_once_is_granted(self) -> None:
        stores = [self.open_timers() for _ in range(4)]
        for _ in range(5):
            timer = self.a_timer()
            assert stores[0].schedule(timer)
            granted: list[str] = []

            _together(*(partial(_claim, store, timer, str(n), granted) for n, store in enumerate(stores)))
            assert len(granted) == 1

    def test_a_cancel_and_a_claim_at_once_do_not_both_win(self) -> None:
        first, second = self.open_timers(), self.open_timers()
        for _ in range(5):
            timer = self.a_timer()
            won: list[str] = []
            assert first.schedule(timer)
            _together(partial(_cancel, first, timer, won), partial(_claim, second, timer, "a", won))
            assert len(won) == 1

    def test_a_timer_of_the_past_is_due(self) -> None:
        store, timer = self.open_timers(), self.a_timer(-30 * 86_400)
        assert store.schedule(timer)
        assert self.due(self.open_timers(), timer) == [timer]

    def test_times_have_a_zone_and_ids_are_text(self) -> None:
        with pytest.raises(ConfigError, match="time zone"):
            Timer("a", datetime(2026, 11, 21))
        for wrong in ("", "\ud83d", "x" * 65_536, 1):
            with pytest.raises(ConfigError, match="the id of a timer must be text of 1 to 65535 bytes"):
                Timer(wrong, self.now())  # type: ignore[arg-type]
        for wrong in ("\ud83d", 1):
            with pytest.raises(ConfigError, match="the data of a timer must be text"):
                Timer("a", self.now(), wrong)  # type: ignore[arg-type]


class BuildStoreContract:
    """The contract of ``BuildStore``."""

    def open_builds(self) -> BuildStore:
        """Return a store. Called once for each process that a test simulates; all of them share their builds."""
        raise NotImplementedError("a contract suite needs open_builds(), which returns the store to test")

    @pytest.fixture
    def name(self) -> str:
        return f"contract-{uuid.uuid4()}"

    def test_a_new_projection_has_its_first_build_made(self, name: str) -> None:
        assert self.open_builds().find_builds(name) == Built(building=1, last=1)
        assert self.open_builds().find_builds(name) == Built(building=1, last=1)

    def test_a_build_is_made_becomes_active_and_retires(self, name: str) -> None:
        store, other = self.open_builds(), self.open_builds()
        store.find_builds(name)
        assert store.scanned(name, 1, "lane", 17)
        assert other.scanned(name, 1, "other", -5)
        assert store.find_builds(name) == Built(building=1, last=1, rest={"lane": 17, "other": -5})
        assert store.activate(name, 1)
        assert other.activate(name, 1)
        assert other.find_builds(name) == Built(active=1, last=1)
        assert other.begin_build(name, 2)
        assert store.begin_build(name, 2)
        assert store.find_builds(name) == Built(active=1, building=2, last=2)
        assert store.activate(name, 2)
        assert store.find_builds(name) == Built(active=2, retired=1, last=2)
        assert not store.begin_build(name, 3)
        assert store.dropped(name, 1)
        assert other.dropped(name, 1)
        assert store.find_builds(name) == Built(active=2, last=2)

    def test_what_is_not_being_built_does_not_change(self, name: str) -> None:
        store = self.open_builds()
        store.find_builds(name)
        assert not store.begin_build(name, 2)
        assert not store.scanned(name, 2, "lane", 3)
        assert not store.activate(name, 2)
        assert store.find_builds(name) == Built(building=1, last=1)

    def test_a_build_can_be_given_up(self, name: str) -> None:
        store = self.open_builds()
        store.find_builds(name)
        assert store.activate(name, 1)
        assert not store.dropped(name, 1)
        assert store.begin_build(name, 2)
        assert store.scanned(name, 2, "lane", 3)
        assert store.dropped(name, 2)
        assert not store.scanned(name, 2, "lane", 4)
        assert store.find_builds(name).active == 1
        assert store.find_builds(name).building == 0
        assert not store.begin_build(name, 2)
        assert store.begin_build(name, 3)
        assert store.find_builds(name) == Built(active=1, building=3, last=3)
