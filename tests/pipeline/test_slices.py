"""Slices of a table over the embedded server: several consumers of different speed, while streams change under them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest

import rscylla
from cursorstore import MemoryCursorStore, reslice_cursors
from rscylla.embedded import CqlError, EmbeddedScylla, EmbeddedScyllaError
from rscylla.testing import ManualClock

LAG = rscylla.StreamLag(seconds=30)
KEYS = 40


class World:
    """A table with two columns of partition key, written while its streams change. ``written``: times by key."""

    def __init__(self, scylla: EmbeddedScylla, clock: ManualClock, *, tablets: bool, seed: int) -> None:
        self.scylla, self.clock, self.tablets = scylla, clock, tablets
        self.dice = random.Random(seed)
        self.session = scylla.connect()
        self.session.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
            f"AND tablets = {{'enabled': {str(tablets).lower()}}}"
        )
        self.session.execute(
            "CREATE TABLE ks.t (a int, b text, ck int, PRIMARY KEY ((a, b), ck)) "
            "WITH cdc = {'enabled': true, 'preimage': true}"
        )
        clock.advance(60)
        self.written: dict[int, list[int]] = {}
        self.count = 0
        self.switches = 0
        self.size = 1

    def go_on(self, seconds: int) -> None:
        for second in range(seconds):
            self.clock.advance(1)
            if second % 7 == 0:
                self.switch()
            for _ in range(self.dice.randrange(6)):
                self.write()

    def switch(self) -> None:
        delay = timedelta(seconds=self.dice.uniform(5, 9))
        with suppress(EmbeddedScyllaError):  # it would start before one that is on its way
            if self.tablets:
                grow = self.size < 16 and (self.size == 1 or self.dice.random() < 0.6)
                (self.scylla.split_tablets if grow else self.scylla.merge_tablets)("ks", "t", delay)
                self.size = self.size * 2 if grow else self.size // 2
            elif self.switches % 3 == 2:
                self.scylla.new_generation(delay)
            else:
                self.scylla.add_node(delay)
            self.switches += 1

    def write(self) -> None:
        time_us = self.clock.now_us() - int(self.dice.random() ** 3 * 20_000_000)
        key = self.dice.randrange(KEYS)
        cql = f"INSERT INTO ks.t (a, b, ck) VALUES ({key}, 'b{key}', {self.count}) USING TIMESTAMP {time_us}"
        # Not through the driver: one that loses its connection sends a write again, and the log has it twice.
        with suppress(CqlError):  # of a generation that is over
            self.scylla.execute(cql)
            self.written.setdefault(key, []).append(time_us * 1_000_000 + self.count)
            self.count += 1

    def read(self, store: MemoryCursorStore, count: int, *, end: bool) -> dict[int, list[int]]:
        """Let *count* slices read on from their cursors, each as far as chance takes it; return what came, by key."""
        options = (LAG, rscylla.StreamToHead())
        whole = rscylla.NewStream(self.session, "ks", "t", clock=self.clock, prefetch=0)
        names = [rscylla.slice_name("c", i, count) for i in range(count)]
        clients = {name: whole.sliced(i, count)(store.get_cursor(name), *options) for i, name in enumerate(names)}
        speed = {name: self.dice.random() ** 2 + 0.01 for name in names}
        got: dict[int, list[int]] = {}
        while clients:
            name = self.dice.choices(list(clients), [speed[n] for n in clients])[0]
            try:
                item = clients[name].recv()
            except rscylla.HeadReached as head:
                store.set_cursor(name, head.cursor)
                clients.pop(name).close()
                continue
            store.set_cursor(name, item.cursor if isinstance(item, rscylla.Progress) else item.id)
            if isinstance(item, rscylla.Event):
                got.setdefault(item.key["a"], []).append(item.timestamp_us * 1_000_000 + item.key["ck"])
            if not end and self.dice.random() < 0.003:
                clients.pop(name).close()
        return got


@pytest.fixture(params=[False, True], ids=["vnodes", "tablets"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, seed=5, shards=3, vnodes=4, max_connections=100_000) as scylla:
        yield World(scylla, clock, tablets=request.param, seed=7)


def test_slices_deliver_all_once_and_keys_in_order_across_switches_and_reslicing(world: World) -> None:
    store = MemoryCursorStore(clock=world.clock)
    counts = [3, 3, 2, 5, 1, 4]
    turns: list[dict[int, list[int]]] = []
    for turn, count in enumerate(counts):
        if turn and count != counts[turn - 1]:
            reslice_cursors(store, "c", counts[turn - 1], count)
        world.go_on(12)
        last = turn == len(counts) - 1
        if last:
            world.clock.advance(60)
        turns.append(world.read(store, count, end=last))
    assert world.switches >= 8
    assert world.count > 100
    for key in range(KEYS):
        came = [turn.get(key, []) for turn in turns]
        assert {t for times in came for t in times} == set(world.written.get(key, [])), "lost"
        assert all(times == in_order(times) for times in came), "out of order"
        assert not set(came[0]) & set(came[1]), "only reslicing repeats"


def in_order(times: list[int]) -> list[int]:
    return sorted(times, key=lambda t: t // 1_000_000)


def test_the_slices_of_a_table_that_stays_are_the_whole_once(world: World) -> None:
    world.go_on(40)
    world.clock.advance(60)
    for count in (1, 2, 7):
        store = MemoryCursorStore(clock=world.clock)
        got = world.read(store, count, end=True)
        assert {k: sorted(v) for k, v in got.items()} == {k: sorted(v) for k, v in world.written.items()}
        for times in got.values():
            assert times == in_order(times)
