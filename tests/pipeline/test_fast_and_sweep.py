"""Fast lane and sweep over CDC logs, on a driven clock, with rows that arrive late."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import MemoryCursorStore, ScyllaCursorStore
from rscylla.embedded import EmbeddedScylla
from rscylla.testing import ManualClock

names = itertools.count()


class SteppedClock(ManualClock):
    """A clock that only the test moves: who waits by it does so until then, or until the stop signal."""

    def __init__(self) -> None:
        super().__init__()
        self._moved = threading.Condition()

    def advance(self, span: timedelta | float) -> None:
        super().advance(span)
        self._wake()

    def wait(self, stop: rscylla.Stop, seconds: float) -> bool:
        due = self.monotonic() + seconds
        forget = stop.on_set(self._wake)
        with self._moved:
            assert self._moved.wait_for(lambda: stop.is_set() or self.monotonic() >= due, timeout=100)
        forget()
        return stop.is_set()

    def _wake(self) -> None:
        with self._moved:
            self._moved.notify_all()


class Shop:
    """A server with a table, and a consumer in two lanes that read to the head on request."""

    def __init__(self, scylla: EmbeddedScylla, clock: ManualClock, model: str) -> None:
        self.scylla, self.clock = scylla, clock
        self.session = scylla.connect()
        self.keyspace = f"shop_{next(names)}"
        self.session.execute(
            f"CREATE KEYSPACE {self.keyspace} "
            "WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
            f"AND tablets = {{'enabled': {str(model == 'tablets').lower()}}}"
        )
        self.session.execute(
            f"CREATE TABLE {self.keyspace}.orders (id int, n int, PRIMARY KEY (id, n)) "
            "WITH cdc = {'enabled': true, 'postimage': true}"
        )
        clock.advance(1)
        self.stream = rscylla.NewStream(self.session, self.keyspace, "orders", clock=clock, prefetch=0)
        self.store = ScyllaCursorStore(self.session, self.keyspace, create=True, clock=clock)
        self.registry = CollectorRegistry()
        self.got: list[tuple[int, int, bool]] = []
        self.written: list[tuple[int, int]] = []
        self.start()

    def start(self) -> None:
        self.lanes = self.lanes_with(rscylla.StreamToHead())

    def lanes_with(self, *options: rscylla.StreamToHead) -> rscylla.reflex.Lanes:
        consumer = rscylla.Consumer("billing", self.consume, registry=self.registry, clock=self.clock)
        return rscylla.fast_and_sweep(self.stream, self.store, consumer, *options, clock=self.clock)

    def consume(self, event: rscylla.Event, fate: rscylla.Fate) -> None:
        assert isinstance(event, rscylla.ChangeEvent)
        assert event.change.after is not None
        self.got.append((event.key["id"], event.key["n"], event.late))

    def write(self, key: int) -> None:
        n = len(self.written)
        self.session.execute(f"INSERT INTO {self.keyspace}.orders (id, n) VALUES (%s, %s)", (key, n))
        self.written.append((key, n))

    def run(self, *specs: rscylla.Spec) -> None:
        for spec in specs:
            with pytest.raises(rscylla.HeadReached):
                rscylla.run(spec)


@pytest.fixture(params=["vnodes", "tablets"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    clock = SteppedClock()
    with EmbeddedScylla(clock=clock, shards=2, vnodes=4, seed=7) as scylla:
        clock.advance(120)
        yield Shop(scylla, clock, request.param)


def test_every_late_row_comes_once_by_the_sweep(shop: Shop) -> None:
    dice = random.Random(1)
    held: list[tuple[int, int]] = []
    for _ in range(8):
        for key in range(3):
            shop.write(key)
            shop.clock.advance(0.1)
        with shop.scylla.faults.hold_writes(shop.keyspace, "orders"):
            shop.write(dice.randrange(3))
            held.append(shop.written[-1])
        shop.clock.advance(5)
        shop.run(shop.lanes.fast)
        shop.scylla.faults.deliver_held()
        shop.run(shop.lanes.fast)
        shop.clock.advance(dice.choice([1, 30, 100]))
        shop.run(*shop.lanes)
    shop.clock.advance(100)
    shop.run(*shop.lanes)
    assert Counter((key, n) for key, n, _ in shop.got) == Counter(shop.written)
    assert [(key, n) for key, n, late in shop.got if late] == held
    for key in range(3):
        order = [n for k, n, late in shop.got if k == key and not late]
        assert order == sorted(order)
    late = shop.registry.get_sample_value("rscylla_late_events_total", {"consumer_name": "billing"})
    assert late == len(held)


def test_a_new_process_repeats_what_the_sweep_had_not_reached_and_finds_what_was_late(shop: Shop) -> None:
    shop.write(0)
    shop.clock.advance(100)
    shop.run(*shop.lanes)
    with shop.scylla.faults.hold_writes(shop.keyspace, "orders"):
        shop.write(0)
    shop.write(0)
    shop.clock.advance(2)
    shop.run(shop.lanes.fast)
    shop.start()
    shop.clock.advance(2)
    shop.run(shop.lanes.fast)
    shop.scylla.faults.deliver_held()
    shop.clock.advance(100)
    shop.run(*shop.lanes)
    assert shop.got == [(0, 0, False), (0, 2, False), (0, 2, False), (0, 1, True)]


def test_a_new_generation_or_split_between_the_lanes_changes_nothing(shop: Shop) -> None:
    for _ in range(3):
        with shop.scylla.faults.hold_writes(shop.keyspace, "orders"):
            shop.write(1)
        for key in range(4):
            shop.write(key)
        shop.clock.advance(2)
        shop.run(shop.lanes.fast)
        shop.scylla.faults.deliver_held()
        if "tablets" in shop.stream.describe().topology.model:
            shop.scylla.split_tablets(shop.keyspace, "orders")
        else:
            shop.scylla.add_node()
        shop.clock.advance(61)
        shop.write(2)
        shop.clock.advance(30)
        shop.run(*shop.lanes)
    shop.clock.advance(100)
    shop.run(*shop.lanes)
    assert Counter((key, n) for key, n, _ in shop.got) == Counter(shop.written)
    assert [n for _, n, late in shop.got if late] == [0, 6, 12]


def test_the_lookup_takes_a_late_event(shop: Shop) -> None:
    found: list[dict[str, object] | None] = []
    with shop.scylla.faults.hold_writes(shop.keyspace, "orders"):
        shop.write(5)
    shop.write(6)
    shop.clock.advance(2)
    consumer = rscylla.Consumer(
        "lookup", lambda event, fate: found.append(shop.stream.lookup(event)), registry=shop.registry
    )
    lanes = rscylla.fast_and_sweep(
        shop.stream, MemoryCursorStore(), consumer, rscylla.StreamToHead(), clock=shop.clock, registry=shop.registry
    )
    shop.run(lanes.fast)
    shop.scylla.faults.deliver_held()
    shop.clock.advance(100)
    shop.run(*lanes)
    assert found == [{"id": 6, "n": 1}, {"id": 5, "n": 0}]


def pass_time_until(shop: Shop, changed: threading.Condition, wanted: list[tuple[int, int, bool]]) -> None:
    """Move the clock until the consumer got what is *wanted*.

    A lane that measures the node's clock just when ours is moved takes the node for slow until it looks again, which is
    15 seconds later.
    """
    shop.clock.advance(60)
    for _ in range(60):
        with changed:
            if changed.wait_for(lambda: shop.got == wanted, timeout=1):
                return
        shop.clock.advance(16)
    assert shop.got == wanted


def test_both_lanes_at_once_for_as_long_as_they_are_wanted(shop: Shop) -> None:
    """As a service runs them: a thread each, until the stop signal."""
    stop, changed = rscylla.Stop(), threading.Condition()

    def consume(event: rscylla.Event, fate: rscylla.Fate) -> None:
        with changed:
            shop.got.append((event.key["id"], event.key["n"], event.late))
            changed.notify_all()

    consumer = rscylla.Consumer("parallel", consume, registry=shop.registry, clock=shop.clock)
    lanes = rscylla.fast_and_sweep(shop.stream, shop.store, consumer, clock=shop.clock)
    running = threading.Thread(target=rscylla.parallel, args=(lanes,), kwargs={"stop": stop})
    with shop.scylla.faults.hold_writes(shop.keyspace, "orders"):
        shop.write(1)
    shop.write(2)
    shop.clock.advance(2)
    running.start()
    try:
        with changed:
            assert changed.wait_for(lambda: shop.got == [(2, 1, False)], timeout=60)
        shop.scylla.faults.deliver_held()
        pass_time_until(shop, changed, [(2, 1, False), (1, 0, True)])
    finally:
        stop.set()
        running.join(60)
    assert not running.is_alive()


def test_a_service_takes_both_lanes(shop: Shop) -> None:
    changed = threading.Condition()

    def consume(event: rscylla.Event, fate: rscylla.Fate) -> None:
        with changed:
            shop.got.append((event.key["id"], event.key["n"], event.late))
            changed.notify_all()

    consumer = rscylla.Consumer("served", consume, registry=shop.registry, clock=shop.clock)
    lanes = rscylla.fast_and_sweep(shop.stream, shop.store, consumer, clock=shop.clock)
    with shop.scylla.faults.hold_writes(shop.keyspace, "orders"):
        shop.write(1)
    shop.write(2)
    shop.clock.advance(2)
    with rscylla.Service(lanes, registry=shop.registry, clock=shop.clock):
        with changed:
            assert changed.wait_for(lambda: shop.got == [(2, 1, False)], timeout=60)
        shop.scylla.faults.deliver_held()
        pass_time_until(shop, changed, [(2, 1, False), (1, 0, True)])
    cursors = [shop.store.get_cursor(spec.name) for spec in lanes]
    assert all(cursors)


def test_the_key_of_an_event_is_that_of_its_cursor(shop: Shop) -> None:
    shop.write(1)
    shop.clock.advance(2)
    event = shop.stream("", rscylla.StreamLag(seconds=1)).recv()
    assert isinstance(event, rscylla.Event)
    assert event.order_key == rscylla.cursor_key(event.id) == event.as_late().order_key
