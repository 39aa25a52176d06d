"""What is applied to a build is decided by the version that it shows, and only while the lane may write."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from eventcounters import TYPES, Shop, Totals, change_of, counter
from eventmemory import MemoryBuilds
from prometheus_client import CollectorRegistry
from waiting import eventually

import rscylla
from cursorstore import MemoryDeadLetters
from rscylla.clock import Stop
from rscylla.errors import Stopped, VersionGap
from rscylla.eventsourcing import (
    AggregateID,
    Envelope,
    EventRecord,
    Projector,
    ScanPage,
    TokenRange,
    aggregate_of,
    parking_key,
)
from rscylla.service.lease import LeasedStop
from rscylla.testing import FakeCursorStore, FakeStream

SOON = timedelta(milliseconds=5)
QUICK = rscylla.Backoff(initial=timedelta(milliseconds=1), maximum=SOON)


class Lease:
    """A lease that is lost when the test says so."""

    def __init__(self) -> None:
        self.lost = False

    def held(self) -> bool:
        return not self.lost


class Watched(Totals):
    """Totals that call *before* before they apply an event."""

    def __init__(self, before: Callable[[int, Envelope[Any]], None] = lambda build, envelope: None) -> None:
        super().__init__()
        self.before = before

    def apply(self, build: int, envelope: Envelope[Any]) -> None:
        self.before(build, envelope)
        super().apply(build, envelope)

    def applied(self, build: int, name: str) -> list[int]:
        return [version for at, aggregate, version in self.calls if (at, aggregate) == (build, counter(name))]


class Lane:
    """A lane of a projection whose events the test delivers."""

    def __init__(self, shop: Shop, view: Any = None, *, stop: Stop | None = None, **options: Any) -> None:
        self.shop = shop
        self.view = view or Watched()
        self.builds = MemoryBuilds()
        self.failing: set[int] = set()
        options = {"look_every": SOON, "keep_retired": timedelta(hours=1), **options}
        self.projector = Projector(self.view, shop.store, self._decode, self.builds, **options)
        self.run = rscylla.Run("totals", stop=stop or Stop())
        self.letters = MemoryDeadLetters()
        consumer = self.projector.consumer(registry=CollectorRegistry())
        self.consumer: Any = rscylla.dead_letter(consumer, self.letters, retries=0, backoff=QUICK, park=parking_key)

    def _decode(self, record: EventRecord) -> Envelope[Any]:
        if record.version in self.failing:
            raise rscylla.QueryTimeout("a key was not read in time")
        return TYPES.decode(record)

    def __enter__(self) -> Lane:
        self.consumer.run_begins(self.run)
        self.consumer.reset()
        return self

    def __exit__(self, *error: object) -> None:
        self.consumer.stop()

    def tell(self, name: str, *versions: int) -> None:
        for record in self.shop.store.read(counter(name)):
            if record.version in versions:
                self.consumer.consume(change_of(record), self.run)

    def add(self, name: str, *amounts: int) -> None:
        """Append events, and deliver them."""
        head = self.shop.store.head(counter(name))
        version = self.shop.add(name, *amounts, told=False)
        self.tell(name, *range(head + 1, version + 1))

    def replay(self) -> tuple[int, int]:
        direct = self.projector.consumer(registry=CollectorRegistry())
        return rscylla.replay_letters(
            self.letters, "totals", lambda event: direct.consume(event, rscylla.Run("replay")), key=aggregate_of
        )

    def await_built(self, build: int) -> None:
        eventually(lambda: self.builds.find_builds("totals").active == build)


@pytest.fixture
def shop() -> Shop:
    return Shop()


# ---------------------------------------------------------------- decided by what the build shows


def test_events_that_a_replay_applied_are_not_applied_again_by_the_lane(shop: Shop) -> None:
    with Lane(shop) as lane:
        lane.add("a", 1)
        lane.await_built(1)
        lane.failing.add(2)
        lane.add("a", 10, 100)
        lane.failing.clear()
        assert lane.replay() == (2, 0)
        lane.add("a", 1000)
        assert lane.view.totals(1) == {"a": 1111}
        assert lane.view.applied(1, "a") == [1, 2, 3, 4]


def test_events_that_failed_in_the_active_build_alone_are_applied_once_to_the_other(shop: Shop) -> None:
    def fails(build: int, envelope: Envelope[Any]) -> None:
        if (build, envelope.version) in failing:
            raise ValueError("not now")

    failing, hold, scan = {(1, 2)}, threading.Event(), shop.store.scan
    with Lane(shop, Watched(fails)) as lane:
        lane.add("a", 1)
        lane.await_built(1)

        def held(within: TokenRange) -> Iterator[ScanPage]:
            yield from scan(within)
            assert hold.wait(60)

        shop.store.scan = held  # type: ignore[method-assign]
        lane.projector.rebuild()
        eventually(lambda: lane.view.applied(2, "a") == [1])
        lane.add("a", 10, 100)
        failing.clear()
        assert lane.replay() == (2, 0)
        lane.add("a", 1000)
        hold.set()
        lane.await_built(2)
        assert [lane.view.applied(build, "a") for build in (1, 2)] == [[1, 2, 3, 4]] * 2
        assert lane.view.totals(2) == {"a": 1111}


def test_a_row_that_a_late_write_has_set_back_is_brought_to_the_next_event(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    with Lane(shop) as lane:
        lane.add("a", 1, 2, 4)
        lane.await_built(1)
        lane.view.builds[1][counter("a")] = 1, 1
        with caplog.at_level(logging.WARNING):
            lane.add("a", 8)
        assert lane.view.builds[1][counter("a")] == (4, 15)
        assert "event 4 of counter/a came after 1" in caplog.text


def test_a_row_that_is_set_back_in_the_middle_of_a_scan_is_brought_up_again(shop: Shop) -> None:
    def late(build: int, envelope: Envelope[Any]) -> None:
        if envelope.version == 4 and late_writes:
            late_writes.pop()
            view.builds[build][counter("a")] = 1, 1
            raise ConnectionError("the process was paused here")

    late_writes = [1]
    view = Watched(late)
    shop.add("a", 1, 2, 4, 8, 16, told=False)
    with Lane(shop, view) as lane:
        lane.add("b", 1)
        lane.await_built(1)
        assert view.totals(1) == {"a": 31, "b": 1}


def test_a_store_that_lacks_an_event_is_told(shop: Shop) -> None:
    shop.add("a", 1, 2, told=False)
    with Lane(shop) as lane:
        lane.add("b", 1)
        lane.await_built(1)
        del shop.store._events[counter("a")][:]
        shop.add("a", 1, told=False)
        [record] = shop.store.read(counter("a"))
        applier = lane.projector.applier
        with pytest.raises(VersionGap, match="the store lacks event 3 of counter/a"):
            applier.fill(1, counter("a"), 4, lambda: None)
        assert applier.bring(1, record, lambda: None) == 2


class OnlyA(Watched):
    """Totals that have nothing to do with other counters than "a"."""

    def version(self, build: int, aggregate: AggregateID) -> int:
        return super().version(build, aggregate) if aggregate == counter("a") else 0

    def apply(self, build: int, envelope: Envelope[Any]) -> None:
        if envelope.aggregate == counter("a"):
            super().apply(build, envelope)


def test_aggregates_that_the_projection_has_nothing_to_do_with_hold_nothing_up(shop: Shop) -> None:
    shop.add("a", 1, 2, told=False)
    shop.add("other", 1, 2, 3, told=False)
    with Lane(shop, OnlyA()) as lane:
        lane.add("other", 4, 5)
        lane.await_built(1)
        lane.add("a", 4)
        reads, read = list[AggregateID](), shop.store.read

        def counted(aggregate: AggregateID, after: int = 0) -> Iterator[EventRecord]:
            reads.append(aggregate)
            return read(aggregate, after)

        shop.store.read = counted  # type: ignore[method-assign]
        records = list(read(counter("other")))
        for record in records[-2:]:
            lane.consumer.consume(change_of(record), lane.run)
        assert lane.view.totals(1) == {"a": 7}
        assert reads == []
        assert not list(lane.letters.list_letters())


# ---------------------------------------------------------------- only while the lane may write


@pytest.mark.parametrize("ends", ["stop", "lease"])
def test_a_scan_ends_between_two_events_of_an_aggregate(shop: Shop, ends: str) -> None:
    lease = Lease()
    stop = LeasedStop(lease)

    def end(build: int, envelope: Envelope[Any]) -> None:
        if envelope.version == 3:
            if ends == "stop":
                stop.set()
            else:
                lease.lost = True

    shop.add("a", *range(100), told=False)
    saved: list[Any] = []
    with Lane(shop, Watched(end), stop=stop) as lane:
        lane.builds.scanned = lambda *args: not saved.append(args)  # type: ignore[func-returns-value, method-assign]
        lane.add("b", 1)
        eventually(lambda: lane.view.applied(1, "a") == [1, 2, 3])
        with pytest.raises(Stopped):
            lane.run.stop.check()
    assert lane.view.applied(1, "a") == [1, 2, 3]
    assert saved == []
    assert lane.builds.find_builds("totals").active == 0


def test_a_stop_does_not_wait_for_a_scan_that_waits_for_the_cluster(shop: Shop) -> None:
    waits, answers, over = threading.Event(), threading.Event(), threading.Event()
    shop.add("a", 1, told=False)
    scan = shop.store.scan

    def hanging(within: TokenRange) -> Iterator[ScanPage]:
        try:
            waits.set()
            assert answers.wait(60)
            yield from scan(within)
        finally:
            over.set()

    shop.store.scan = hanging  # type: ignore[method-assign]
    with Lane(shop) as lane:
        lane.add("b", 1)
        assert waits.wait(60)
    assert not over.is_set()
    answers.set()
    assert over.wait(60)
    assert lane.view.applied(1, "a") == []


def test_a_stop_waits_for_the_event_that_is_being_applied(shop: Shop) -> None:
    begins, goes_on = threading.Event(), threading.Event()

    def slow(build: int, envelope: Envelope[Any]) -> None:
        if envelope.aggregate == counter("a"):
            begins.set()
            assert goes_on.wait(60)

    shop.add("a", 1, 2, told=False)
    with Lane(shop, Watched(slow)) as lane:
        lane.add("b", 1)
        assert begins.wait(60)
        ending = threading.Thread(target=lane.consumer.stop)
        ending.start()
        ending.join(0.05)
        assert ending.is_alive()
        goes_on.set()
        ending.join(60)
        assert lane.view.applied(1, "a") == [1]


@pytest.mark.parametrize("ends", ["stop", "lease"])
def test_a_gap_is_filled_until_the_run_ends(shop: Shop, ends: str) -> None:
    lease = Lease()
    stop = LeasedStop(lease)

    def end(build: int, envelope: Envelope[Any]) -> None:
        if envelope.aggregate == counter("a") and envelope.version == 3:
            stop.set() if ends == "stop" else setattr(lease, "lost", True)

    with Lane(shop, Watched(end), stop=stop) as lane:
        lane.add("b", 1)
        lane.await_built(1)
        version = shop.add("a", *range(100), told=False)
        with pytest.raises(Stopped):
            lane.tell("a", version)
    assert lane.view.applied(1, "a") == [1, 2, 3]
    assert not list(lane.letters.list_letters())


def test_a_lane_whose_lease_was_lost_makes_no_build_active_and_drops_none(shop: Shop) -> None:
    lease = Lease()
    with Lane(shop, stop=LeasedStop(lease), keep_retired=timedelta()) as lane:
        lane.add("a", 1)
        lane.await_built(1)
        activate, retired = lane.builds.activate, threading.Event()

        def losing(projection: str, build: int) -> bool:
            found = activate(projection, build)
            lease.lost = True
            retired.set()
            return found

        lane.builds.activate = losing  # type: ignore[method-assign]
        lane.projector.rebuild()
        assert retired.wait(60)
    assert lane.builds.find_builds("totals").retired == 1
    assert lane.view.dropped == []


def test_a_consumer_of_two_lanes_scans_again_in_the_next_run(shop: Shop) -> None:
    """As that of fast_and_sweep: it is told of each run, and stopped after the last one."""
    first = Stop()
    with Lane(shop, stop=first) as lane:
        lane.add("a", 1)
        lane.await_built(1)
        first.set()
        lane.run = rscylla.Run("totals")
        lane.consumer.run_begins(lane.run)
        lane.add("a", 2)
        lane.projector.rebuild()
        lane.await_built(2)
        assert lane.view.totals(2) == {"a": 3}


class Hiding:
    """A wrapper of a user, which passes on no more than *passed*."""

    def __init__(self, inner: Any, *passed: str) -> None:
        self.name, self.inner = inner.name, inner
        for name in passed:
            setattr(self, name, getattr(inner, name))

    def consume(self, event: Any, run: Any) -> None:
        self.inner.consume(event, run)


@pytest.mark.parametrize(
    ("passed", "missing"),
    [
        ((), "reset"),
        (("stop",), "reset"),
        (("reset", "stop"), "run_begins"),
        (("run_begins", "stop"), "reset"),
    ],
)
def test_a_wrapper_that_passes_a_run_not_on_is_refused_before_anything_is_applied(
    shop: Shop, passed: tuple[str, ...], missing: str
) -> None:
    lane = Lane(shop)
    shop.add("a", 1, told=False)
    changes = [change_of(record) for record in shop.store.read(counter("a"))]
    consumer = Hiding(lane.projector.consumer(registry=CollectorRegistry()), *passed)
    store = FakeCursorStore()
    spec = rscylla.Spec(
        FakeStream(changes), store, consumer, rscylla.StreamToHead(), registry=CollectorRegistry(), key_slice=(0, 2)
    )
    with pytest.raises(rscylla.RunError) as raised:
        rscylla.run(spec)
    assert isinstance(raised.value.__cause__, rscylla.ConfigError)
    assert f"{missing} was not called in its run" in str(raised.value.__cause__)
    assert not store.get_cursor("totals")


def test_a_wrapper_that_passes_all_on_is_as_none(shop: Shop) -> None:
    lane = Lane(shop)
    shop.add("a", 1, told=False)
    changes = [change_of(record) for record in shop.store.read(counter("a"))]
    consumer = Hiding(lane.projector.consumer(registry=CollectorRegistry()), "run_begins", "reset", "stop")
    spec = rscylla.Spec(
        FakeStream(changes), FakeCursorStore(), consumer, rscylla.StreamToHead(), registry=CollectorRegistry()
    )
    with pytest.raises(rscylla.HeadReached):
        rscylla.run(spec)
    assert lane.projector.projection.version(lane.projector.active() or 1, counter("a")) == 1
