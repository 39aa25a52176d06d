"""Services of a group over a cluster: each change is delivered, in order per key, while members come, go, and die."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore, ScyllaDeadLetters, ScyllaMembership
from rscylla.abc import GroupView
from rscylla.errors import ConnectionFailed
from tests.support.drivenclock import PATIENCE_S, until

SLICES = 16
KEYS = 24
TTL = timedelta(seconds=3)
LAG = rscylla.StreamLag(milliseconds=100)


class Mortal(ScyllaMembership):
    """A membership of a process that can be cut off from the cluster, or die."""

    dead = False
    cut = False

    def _reach(self) -> None:
        if self.dead or self.cut:
            raise ConnectionFailed("the network is down; mend it")

    def join(self) -> None:
        self._reach()
        super().join()

    def renew(self) -> None:
        self._reach()
        super().renew()

    def leave(self) -> None:
        self._reach()
        super().leave()

    def look(self) -> GroupView:
        self._reach()
        return super().look()

    def take(self, view: GroupView, indexes: Collection[int]) -> frozenset[int]:
        self._reach()
        return super().take(view, indexes)

    def give(self, index: int, to: str) -> bool:
        self._reach()
        return super().give(index, to)

    def held(self) -> frozenset[int]:
        return frozenset() if self.dead else super().held()

    def _holds(self, key_slice: Any) -> bool:
        return not self.dead and super()._holds(key_slice)


class Shop:
    """A table that is written to all the time, and services that share it."""

    def __init__(self, session: rscylla.Session, keyspace: str) -> None:
        self.session = session
        self.keyspace = keyspace
        self.lock = threading.Lock()
        self.seen: dict[int, list[int]] = defaultdict(list)
        self.written = 0
        self.closing = rscylla.Stop()
        self.services: list[rscylla.Service] = []
        session.execute(f"CREATE TABLE {keyspace}.orders (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
        self.writer = threading.Thread(target=self._write, name="writer")

    def _write(self) -> None:
        statement = self.session.prepare(f"INSERT INTO {self.keyspace}.orders (id, v) VALUES (?, ?)")
        while not self.closing.wait(0.05):
            for key in range(KEYS):
                self.session.execute(statement, (key, self.written + 1))
            self.written += 1

    def handle(self, event: Any, run: Any) -> None:
        with self.lock:
            self.seen[event.key["id"]].append(event.change.after["v"])

    def membership(self, owner: str, ttl: timedelta = TTL) -> Mortal:
        return Mortal(self.session, self.keyspace, "shop", owner=owner, slices=SLICES, ttl=ttl, create=True)

    def store(self, membership: Any) -> BufferedCursorStore:
        inner = ScyllaCursorStore(self.session, self.keyspace, create=True, lease=membership)
        return BufferedCursorStore(inner, interval=timedelta(milliseconds=200))

    def join(self, owner: str, ttl: timedelta = TTL) -> tuple[rscylla.Service, Mortal]:
        membership, registry = self.membership(owner, ttl), CollectorRegistry()

        def make(name: str) -> rscylla.Consumer:
            return rscylla.Consumer(name, self.handle, registry=registry)

        lanes = rscylla.group_lanes(
            "billing",
            rscylla.NewStream(self.session, self.keyspace, "orders"),
            self.store(membership),
            make,
            LAG,
            registry=registry,
        )
        service = rscylla.Service(group=rscylla.Group(membership, lanes), registry=registry)
        service.start()
        self.services.append(service)
        return service, membership

    def delivered(self) -> bool:
        with self.lock:
            return all(set(self.seen[key]) == set(range(1, self.written + 1)) for key in range(KEYS))

    def close(self) -> None:
        self.closing.set()
        for service in self.services:
            service.stop()
        for service in self.services:
            assert service.wait(timedelta(seconds=PATIENCE_S))


@pytest.fixture
def shop(session: rscylla.Session, keyspace: str) -> Iterator[Shop]:
    shop = Shop(session, keyspace)
    yield shop
    shop.close()


def hold(*members: Mortal) -> bool:
    """Return whether the members hold all slices, and fair shares of them."""
    held = [member.held() for member in members]
    numbers = sorted(map(len, held))
    return sum(numbers) == len(frozenset().union(*held)) == SLICES and numbers[-1] - numbers[0] <= 1


def test_each_change_is_delivered_in_order_while_members_come_go_lapse_and_die(shop: Shop) -> None:
    shop.writer.start()
    _, one = shop.join("one")
    until(lambda: hold(one), "the first has all")
    second, two = shop.join("two")
    until(lambda: hold(one, two), "two share")
    third, three = shop.join("three")
    until(lambda: hold(one, two, three), "three share")
    two.dead = True
    second.stop()
    until(lambda: hold(one, three), "the others have taken over from who died")
    before, one.cut = one.token, True
    until(lambda: hold(three), "the other has taken over from who was cut off")
    one.cut = False
    until(lambda: one.token not in ("", before) and hold(one, three), "who was cut off has joined again")
    third.stop()
    until(lambda: hold(one), "who stops hands over")
    shop.closing.set()
    shop.writer.join()
    until(shop.delivered, "every change is delivered")
    for key, values in shop.seen.items():
        first_times = list(dict.fromkeys(values))
        assert first_times == sorted(first_times), f"key {key}"
    assert shop.written > 20
    assert all(service.failure is None for service in shop.services)


def test_a_group_whose_table_was_emptied_goes_on_at_its_cursors(shop: Shop) -> None:
    """Epochs count from 1 again, below those that are kept with the cursors."""
    shop.writer.start()
    for owner in ("first", "second", "third"):
        service, member = shop.join(owner)
        until(lambda: hold(member), "it has all")  # noqa: B023
        service.stop()
        assert service.wait(timedelta(seconds=PATIENCE_S))
    _, running = shop.join("running")
    until(lambda: hold(running), "it has all")
    token = running.token
    shop.session.execute(f"TRUNCATE {shop.keyspace}.rscylla_groups")
    until(lambda: running.token not in ("", token) and hold(running), "it has joined again")
    at = shop.written
    until(lambda: shop.written > at + 3, "more changes")
    shop.closing.set()
    shop.writer.join()
    until(shop.delivered, "every change is delivered")
    assert all(service.failure is None for service in shop.services)
    for key, values in shop.seen.items():
        first_times = list(dict.fromkeys(values))
        assert first_times == sorted(first_times), f"key {key}"


def test_a_clean_hand_over_delivers_nothing_twice(shop: Shop) -> None:
    shop.writer.start()
    ttl = timedelta(seconds=30)  # no membership lapses because the machine is busy
    first, one = shop.join("one", ttl)
    _, two = shop.join("two", ttl)
    until(lambda: hold(one, two), "two share")
    first.stop()
    assert first.wait(timedelta(seconds=PATIENCE_S))
    until(lambda: hold(two), "one has all")
    shop.closing.set()
    shop.writer.join()
    until(shop.delivered, "every change is delivered")
    assert all(values == list(range(1, shop.written + 1)) for values in shop.seen.values())


def test_fast_and_sweep_and_dead_letters_and_batches_run_in_a_group(shop: Shop) -> None:
    letters = ScyllaDeadLetters(shop.session, shop.keyspace, create=True)
    seen: dict[str, set[tuple[int, int]]] = defaultdict(set)
    stream = rscylla.NewStream(shop.session, shop.keyspace, "orders")
    services = []

    def note(kind: str, event: Any) -> None:
        with shop.lock:
            seen[kind].add((event.key["id"], event.change.after["v"]))

    def service(owner: str) -> rscylla.Service:
        membership, registry = shop.membership(owner), CollectorRegistry()
        store = shop.store(membership)

        def poisoned(event: Any, run: Any) -> None:
            if event.key["id"] == 3:
                raise ValueError("poison")
            note("letters", event)

        def lanes(index: int, count: int) -> Iterator[Any]:
            def named(kind: str, fn: Any) -> rscylla.Consumer:
                return rscylla.Consumer(rscylla.slice_name(kind, index, count), fn, registry=registry)

            part = stream.sliced(index, count)
            yield rscylla.fast_and_sweep(
                part,
                store,
                named("swept", lambda event, run: note("swept", event)),
                fast=LAG,
                sweep=rscylla.StreamLag(milliseconds=400),
                force=True,
                registry=registry,
            )
            consumers = [
                rscylla.dead_letter(named("letters", poisoned), letters),
                rscylla.batch(
                    rscylla.slice_name("batches", index, count),
                    lambda events, run: [note("batches", event) for event in events],
                    size=10,
                    period=timedelta(milliseconds=100),
                    registry=registry,
                ),
                rscylla.concurrent(named("concurrent", lambda event, run: note("concurrent", event)), workers=2),
            ]
            for consumer in consumers:
                yield rscylla.Spec(part, store, consumer, LAG, registry=registry)

        made = rscylla.Service(group=rscylla.Group(membership, lanes), registry=registry, dead_letters=letters)
        made.start()
        services.append((made, membership))
        return made

    first = service("one")
    service("two")
    shop.services += [made for made, _ in services]
    shop.writer.start()
    until(lambda: hold(*(membership for _, membership in services)), "two share")
    first.stop()
    assert first.wait(timedelta(seconds=PATIENCE_S))
    shop.closing.set()
    shop.writer.join()
    wanted = {(key, value) for key in range(KEYS) for value in range(1, shop.written + 1)}
    for kind in ("swept", "batches", "concurrent"):
        until(lambda: seen[kind] == wanted, f"all changes for {kind}")  # noqa: B023
    until(lambda: seen["letters"] == {pair for pair in wanted if pair[0] != 3}, "all but the poison")
    until(lambda: sum(letters.count_letters().values()) == shop.written, "the letters")
    assert all(made.failure is None for made, _ in services)
