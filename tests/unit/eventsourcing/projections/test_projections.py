"""Projections: idempotent by version, rebuilt while live, and read after one's own writes."""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import attrs
import pytest
from eventcounters import TYPES, Shop, Totals, change_of, counter, totals_of
from eventmemory import MemoryBuilds
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from waiting import eventually

import rscylla
from cursorstore import MemoryCursorStore, MemoryDeadLetters
from rscylla.clock import Stop
from rscylla.errors import ConfigError
from rscylla.eventsourcing import Projector, ScanPage, TokenRange, aggregate_of, parking_key

SOON = timedelta(milliseconds=5)


class Running:
    """A projection of a shop, and lanes that run."""

    def __init__(self, shop: Shop, **options: Any) -> None:
        self.shop = shop
        self.stream: Any = shop.stream
        self.view = Totals()
        self.builds = MemoryBuilds()
        self.projector = Projector(
            self.view, shop.store, TYPES.decode, self.builds, **{"look_every": SOON, "keep_retired": SOON, **options}
        )
        self.cursors = MemoryCursorStore()
        self.registry = CollectorRegistry()
        self.name: str | None = None
        self.key_slice = 0, 1
        self._stop: Stop | None = None
        self._thread: threading.Thread | None = None
        self.errors: list[Exception] = []

    def consumer(self) -> Any:
        return self.projector.consumer(self.name, registry=self.registry)

    def start(self, wrap: Any = lambda consumer: consumer) -> None:
        self._stop = Stop()
        given = {"registry": self.registry, "key_slice": self.key_slice}
        spec = rscylla.Spec(self.stream, self.cursors, wrap(self.consumer()), **given)  # type: ignore[arg-type]
        pauses = rscylla.Backoff(initial=timedelta(milliseconds=1), maximum=SOON)
        self._failed: list[Exception] = []

        def work() -> None:
            try:
                rscylla.run_forever(spec, stop=self._stop, backoff=pauses, on_error=self.errors.append)
            except Exception as error:  # noqa: BLE001 - raised by join
                self._failed.append(error)

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join(60)
        if self._failed:
            raise self._failed[0]

    def stop(self) -> None:
        if self._stop is not None and self._thread is not None:
            self._stop.set()
            self._thread.join()

    def totals(self) -> dict[str, int]:
        return self.view.totals(self.projector.find_builds(fresh=True).active)

    def await_built(self, build: int) -> None:
        eventually(lambda: self.builds.find_builds("totals").active == build)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def running(shop: Shop) -> Iterator[Running]:
    found = Running(shop)
    yield found
    found.stop()


def test_events_are_applied_in_order_and_those_that_come_again_are_skipped(shop: Shop, running: Running) -> None:
    shop.add("a", 1, 2)
    running.start()
    running.await_built(1)
    shop.tell(*shop.store.read(counter("a")))
    version = shop.add("a", 4)
    assert running.projector.wait_for(counter("a"), version, timedelta(seconds=10)) == 3
    assert running.totals() == {"a": 7}
    assert [call[2] for call in running.view.calls] == [1, 2, 3]
    assert running.errors == []


def test_a_new_projection_has_what_happened_before_the_stream_begins(shop: Shop, running: Running) -> None:
    shop.add("a", 1, 2, told=False)
    shop.add("b", 5, told=False)
    running.start()
    running.await_built(1)
    assert running.totals() == {"a": 3, "b": 5}


@pytest.mark.parametrize(("name", "key_slice"), [("totals[0/2]", (0, 1)), ("totals", (0, 2)), ("totals-0", (0, 2))])
def test_a_build_is_active_when_all_is_scanned_however_the_consumer_is_named(
    shop: Shop, running: Running, name: str, key_slice: tuple[int, int]
) -> None:
    keys = [f"k{n}" for n in range(16)]
    for key in keys:
        shop.add(key, 1, told=False)
    running.name, running.key_slice = name, key_slice
    running.start()
    running.await_built(1)
    assert running.totals() == dict.fromkeys(keys, 1)


def test_the_scan_begins_after_the_stream_was_opened_at_its_head(shop: Shop) -> None:
    """Otherwise, an event between the two would be in neither."""
    running = Running(shop)
    opened = shop.stream.__class__.__call__

    class Opening:
        def __call__(self, after: str, *options: Any, stop: Stop | None = None) -> Any:
            shop.add("a", 7)  # as late as it can come
            rscylla.Stop().wait(0.05)
            return opened(shop.stream, after, *options, rscylla.StreamFromHead(), stop=stop)

    running.stream = Opening()
    running.start()
    try:
        running.await_built(1)
        assert running.totals() == {"a": 7}
    finally:
        running.stop()


def test_missing_versions_are_told_and_read_from_the_store(
    shop: Shop, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.start()
    running.await_built(1)
    shop.add("a", 1)
    shop.add("a", 2, 3, told=False)
    version = shop.add("a", 4)
    with caplog.at_level(logging.WARNING):
        running.projector.wait_for(counter("a"), version, timedelta(seconds=10))
    assert running.totals() == {"a": 10}
    assert "event 4 of counter/a came after 1" in caplog.text
    assert running.registry.get_sample_value("rscylla_version_gaps_total", {"consumer_name": "totals"}) == 1


def test_an_event_that_cannot_be_applied_is_parked_and_replayed_after_the_fix(shop: Shop, running: Running) -> None:
    letters = MemoryDeadLetters()
    pauses = rscylla.Backoff(initial=timedelta(milliseconds=1), maximum=SOON)

    def wrap(consumer: Any) -> Any:
        return rscylla.dead_letter(consumer, letters, retries=1, backoff=pauses, park=parking_key)

    running.start(wrap)
    running.await_built(1)
    shop.add("a", 1)
    shop.add("a", 0, data='{"amount": "broken', kind="Added")
    shop.add("a", 4)
    version = shop.add("b", 8)
    running.projector.wait_for(counter("b"), version, timedelta(seconds=10))
    assert running.totals() == {"a": 1, "b": 8}
    errors = [letter.error.rpartition(".")[2] for letter in letters.list_letters("totals")]
    assert errors == ["UnreadableEvent", "KeyParked"]

    def repaired(event: Any) -> None:
        fixed = event.metadata.replace(rb"{\"amount\": \"broken", rb"{\"amount\": 2}")
        running.consumer().consume(attrs.evolve(event, metadata=fixed), rscylla.Run("totals"))

    assert rscylla.replay_letters(letters, "totals", repaired, key=aggregate_of) == (2, 0)
    assert running.totals() == {"a": 7, "b": 8}
    shop.add("a", 16)
    assert not list(letters.list_letters("totals"))


def test_a_rebuild_takes_the_place_of_the_live_build_which_is_dropped(shop: Shop, running: Running) -> None:
    shop.add("a", 1, 2)
    shop.add("b", 3, told=False)
    running.start()
    running.await_built(1)
    assert running.projector.rebuild() == 2
    assert running.projector.rebuild() in (2, 3)
    running.await_built(2)
    assert running.totals() == {"a": 3, "b": 3}
    eventually(lambda: 1 in running.view.dropped)
    eventually(lambda: running.builds.find_builds("totals").retired == 0)


def test_a_rebuild_that_fails_does_not_stop_the_live_build(
    shop: Shop, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    shop.add("a", 1)
    running.start()
    running.await_built(1)
    failing = threading.Event()
    scan = shop.store.scan

    def broken(*args: Any) -> Iterator[ScanPage]:
        if not failing.is_set():
            failing.set()
            raise rscylla.QueryTimeout("too slow")
        return scan(*args)

    shop.store.scan = broken  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        running.projector.rebuild()
        assert failing.wait(60)
        running.projector.wait_for(counter("a"), shop.add("a", 2), timedelta(seconds=10))
        running.await_built(2)
    assert running.totals() == {"a": 3}
    assert "too slow" in caplog.text
    assert running.errors == []


def test_a_build_can_be_given_up_and_another_one_made(shop: Shop, running: Running) -> None:
    running.start()
    running.await_built(1)
    running.stop()
    assert running.projector.rebuild() == 2
    assert running.projector.abandon(2)
    assert not running.projector.abandon(2)
    assert running.projector.rebuild() == 3
    running.start()
    running.await_built(3)


def test_a_lane_that_has_not_seen_that_a_build_was_given_up_goes_on(shop: Shop) -> None:
    """It looks for builds seldom, so it still applies events to the one that is gone."""
    running = Running(shop)
    shop.add("a", 1)
    running.start()
    running.await_built(1)
    running.stop()
    held = threading.Event()
    running.projector.look_s = 3600.0
    running.projector.rebuild()
    go, scan = threading.Event(), shop.store.scan

    def holding(within: TokenRange = TokenRange()) -> Iterator[ScanPage]:  # noqa: B008 - a value
        held.set()
        go.wait(60)
        yield from scan(within)

    shop.store.scan = holding  # type: ignore[method-assign]
    running.start()
    try:
        assert held.wait(60)
        assert running.projector.abandon(2)
        for amount in (2, 3):  # with the second one, the first is done
            version = shop.add("a", amount)
            assert running.projector.wait_for(counter("a"), version, timedelta(seconds=10)) == version
        assert running.totals() == {"a": 6}
        assert running.errors == []
    finally:
        go.set()
        running.stop()


def test_the_build_that_queries_read_gets_an_event_last(shop: Shop, running: Running) -> None:
    """So what a client was shown is shown after the switch, too."""
    lane = running.consumer()
    running.builds.activate("totals", running.builds.find_builds("totals").building)
    running.projector.rebuild()
    shop.add("a", 1, told=False)
    for record in shop.store.read(counter("a")):
        lane.consume(change_of(record), rscylla.Run("totals"))
    assert [build for build, _, _ in running.view.calls] == [2, 1]


def test_a_page_of_the_scan_that_is_older_than_an_event_of_the_log_loses_nothing(shop: Shop, running: Running) -> None:
    """The lane leaves an event to the scan, whose page was read before the event was appended."""
    shop.add("a", 1)
    running.start()
    running.await_built(1)
    scan, read, go = shop.store.scan, threading.Event(), threading.Event()

    def slow(*args: Any) -> Iterator[ScanPage]:
        pages = list(scan(*args))
        read.set()
        assert go.wait(60)
        return iter(pages)

    shop.store.scan = slow  # type: ignore[method-assign]
    running.projector.rebuild()
    assert read.wait(60)
    shop.add("a", 2)
    shop.add("new", 3)
    eventually(lambda: running.view.version(1, counter("new")) == 1)
    go.set()
    running.await_built(2)
    assert running.totals() == {"a": 3, "new": 3}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6))
@pytest.mark.slow
def test_a_projection_rebuilt_while_events_flow_and_lanes_restart_equals_the_live_one(seed: int, names: int) -> None:
    dice, shop = random.Random(seed), Shop()
    running = Running(shop)
    keys = [f"k{n}" for n in range(names)]
    for _ in range(dice.randrange(20)):
        shop.add(dice.choice(keys), dice.randrange(100), told=dice.random() < 0.5)
    running.start()
    try:
        running.await_built(1)
        for build in itertools.islice(itertools.count(2), 2):
            eventually(lambda: not running.builds.find_builds("totals").retired)
            assert running.projector.rebuild() == build
            for _ in range(dice.randrange(30)):
                shop.add(dice.choice(keys), *(dice.randrange(100) for _ in range(dice.randrange(1, 4))))
                if dice.random() < 0.1:
                    running.stop()
                    running.start()
            running.await_built(build)
        for key in keys:
            running.projector.wait_for(counter(key), shop.store.head(counter(key)), timedelta(seconds=10))
        assert running.totals() == totals_of(shop.store, keys)
        applied = [call for call in running.view.calls if call[0] == 3]
        assert len(applied) == len(set(applied)) == sum(shop.store.head(counter(key)) for key in keys)
    finally:
        running.stop()
    assert running.errors == []


def test_waiting_for_a_version_ends(shop: Shop, running: Running) -> None:
    shop.add("a", 1)
    running.start()
    running.await_built(1)
    with pytest.raises(TimeoutError, match="shows version 1 of counter/a, and not 2"):
        running.projector.wait_for(counter("a"), 2, timedelta(milliseconds=30))
    stop = Stop()
    stop.set()
    with pytest.raises(rscylla.Stopped):
        running.projector.wait_for(counter("a"), 2, timedelta(seconds=30), stop=stop)


def test_arguments_are_checked(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="look_every"):
        Projector(Totals(), shop.store, TYPES.decode, MemoryBuilds(), look_every=timedelta())
