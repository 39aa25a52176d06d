"""The whole stack on a driven clock, under seeded schedules of writes, restarts, faults and new streams.

The seed also picks what the streams follow: vnodes with new generations, tablets that are split and merged, or a
cluster of 4.3 that is upgraded meanwhile.

The oracle is the list of writes that the server accepted: every one is delivered, in order per partition key, and the
saved cursor never passes a write that was not. A failing seed prints the command that repeats it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Literal

import attrs
import pytest
from cassandra import InvalidRequest

import rscylla
from cursorstore import MemoryCursorStore, ScyllaCursorStore, reshard_cursors
from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaError
from rscylla.embedded.murmur3 import murmur3_token
from rscylla.testing import ManualClock

SEEDS = int(os.environ.get("RSCYLLA_SIMULATION_SEEDS", "60"))
ONE_SEED = os.environ.get("RSCYLLA_SIMULATION_SEED")
SEEDS_PER_SERVER = 20
LAG_US = 30_000_000


class Crash(Exception):
    """The consumer's process is gone: nothing is flushed, nothing is closed in order."""


@attrs.frozen
class Write:
    """A change as it was accepted: when, on which partition, and what the event must say."""

    time_us: int
    pk: int
    says: str


@attrs.define
class Counts:
    writes: int = 0
    events: int = 0
    duplicates: int = 0
    crashes: int = 0
    fates: int = 0
    generations: int = 0
    splits: int = 0
    merges: int = 0
    upgrades: int = 0
    refused: int = 0
    late: int = 0
    reshards: int = 0


Rewriting = Literal["done", "held", "disabled"]
MODELS = ("vnodes", "tablets", "vnodes", "tablets", "legacy")


def model_of(seed: int) -> str:
    return MODELS[seed % len(MODELS)]


class Simulation:
    """One seed: a table of its own on a server and a clock that are shared and only move forward.

    A cluster of 4.3 is upgraded once, so those seeds have a server of their own.
    """

    def __init__(self, seed: int, scylla: EmbeddedScylla, clock: ManualClock, session: rscylla.Session) -> None:
        self.model = model_of(seed)
        self.tablets = 2
        self.rewriting: Rewriting | None = None  # of a cluster of 4.3 that was upgraded
        self.dice = random.Random(seed)
        self.slices = self.dice.choice([1, 1, 1, 2, 3, 5])
        self.scylla, self.clock, self.session = scylla, clock, session
        self.keyspace = f"sim_{seed}"
        self.counts = Counts()
        self.written: list[Write] = []
        self.delivered: dict[str, Write] = {}
        self.order: list[Write] = []
        self.fresh = iter(range(1, 1_000_000))
        replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        option = {
            "vnodes": " AND tablets = {'enabled': false}",
            "tablets": f" AND tablets = {{'initial': {self.tablets}}}",
        }.get(self.model, "")
        session.execute(f"CREATE KEYSPACE {self.keyspace} WITH replication = {replication}{option}")
        session.execute(
            f'CREATE TABLE {self.keyspace}."Orders" (pk int, ck int, n int, s text static, PRIMARY KEY (pk, ck)) '
            "WITH cdc = {'enabled': true}"
        )
        if self.model == "tablets":
            clock.advance(LAG_US / 1e6)  # a late write must not be older than the table's first streams
        self.store = MemoryCursorStore(clock=clock)
        if self.dice.random() < 0.3:
            self.store = ScyllaCursorStore(session, self.keyspace, create=True, clock=clock)

    # ------------------------------------------------------------ writing

    def write(self) -> None:
        dice = self.dice
        late_us = int(dice.random() ** 4 * 0.9 * LAG_US) if dice.random() < 0.3 else 0
        time_us = self.clock.now_us() - late_us
        pk, n = dice.randrange(12), next(self.fresh)
        table = f'{self.keyspace}."Orders"'
        using = f"USING TIMESTAMP {time_us}"
        kind = dice.choice(["insert"] * 5 + ["update"] * 3 + ["static", "row", "range", "partition", "batch"])
        says = [f"{kind} {n}"]
        if kind == "insert":
            cql = f"INSERT INTO {table} (pk, ck, n) VALUES ({pk}, {n}, {n}) {using}"
        elif kind == "update":
            cql = f"UPDATE {table} {using} SET n = {n} WHERE pk = {pk} AND ck = {n}"
        elif kind == "static":
            cql = f"UPDATE {table} {using} SET s = '{n}' WHERE pk = {pk}"
        elif kind == "row":
            cql = f"DELETE FROM {table} {using} WHERE pk = {pk} AND ck = {n}"
        elif kind == "range":
            cql = f"DELETE FROM {table} {using} WHERE pk = {pk} AND ck >= {n} AND ck < {n + 5}"
        elif kind == "partition":
            cql, says = f"DELETE FROM {table} {using} WHERE pk = {pk}", ["partition"]
        else:
            rows = [next(self.fresh) for _ in range(dice.randrange(2, 6))]
            inserts = "".join(f"INSERT INTO {table} (pk, ck, n) VALUES ({pk}, {r}, {r}); " for r in rows)
            cql, says = f"BEGIN BATCH {using} {inserts} APPLY BATCH", [f"insert {r}" for r in rows]
        try:
            self.session.execute(cql)
        except InvalidRequest:
            self.counts.refused += 1  # a timestamp of a generation that is over
            return
        self.counts.writes += len(says)
        self.counts.late += late_us > 0
        self.written += [Write(time_us, pk, s) for s in says]

    def change_streams(self) -> None:
        if self.model == "tablets":
            self.resize_tablets()
        elif self.model == "legacy" and self.dice.random() < 0.5:
            self.upgrade()
        else:
            self.new_generation()

    def resize_tablets(self) -> None:
        is_split = self.tablets == 1 or (self.tablets < 16 and self.dice.random() < 0.5)
        resize = self.scylla.split_tablets if is_split else self.scylla.merge_tablets
        resize(self.keyspace, "Orders", timedelta(seconds=self.dice.uniform(5, 40)))
        self.tablets = self.tablets * 2 if is_split else self.tablets // 2
        self.counts.splits += is_split
        self.counts.merges += not is_split

    def upgrade(self) -> None:
        if self.rewriting is None:
            choices: list[Rewriting] = ["done", "held", "held", "disabled"]
            self.rewriting = self.dice.choice(choices)
            self.scylla.upgrade(self.rewriting)
            self.counts.upgrades += 1
        elif self.rewriting == "held":
            self.scylla.finish_rewriting()
            self.rewriting = "done"

    def new_generation(self) -> None:
        try:
            self.scylla.new_generation(delay=timedelta(seconds=self.dice.uniform(5, 40)))
        except EmbeddedScyllaError:
            return  # it would start before one that is already on its way
        self.counts.generations += 1

    def pause(self) -> None:
        dice = self.dice
        spans = [dice.uniform(0, 0.01), dice.uniform(0, 3), dice.uniform(3, 90), dice.uniform(60, 7200)]
        self.clock.advance(dice.choices(spans, [10, 6, 3, 0.3])[0])

    # ------------------------------------------------------------ reading

    def consume(self) -> None:
        """Run one of the consumers that share the table."""
        self.consume_slice(self.dice.randrange(self.slices))

    def reshard(self) -> None:
        """Share the table between another number of consumers, from where the old ones are."""
        count = self.dice.choice([n for n in (1, 2, 3, 5) if n != self.slices])
        for name in (rscylla.shard_name("sim", i, self.slices) for i in range(self.slices)):
            if self.store.find_cursor(name) is None:
                self.store.reset_cursor(name, "", reason="it never ran")
        reshard_cursors(self.store, "sim", self.slices, count, rewind=True)
        self.slices = count
        self.counts.reshards += 1

    def consume_slice(self, index: int, *, to_end: bool = False) -> None:
        """Run a new consumer, as a new process would, until the head, an injected error, or a crash."""
        dice = self.dice
        stream = rscylla.NewStream(
            self.session,
            self.keyspace,
            "Orders",
            prefetch=dice.choice([0, 0, 1]) if to_end else 0,
            streams_per_query=dice.choice([1, 3, 16, 100]),
            limits=rscylla.Limits(
                page_size=dice.choice([1, 2, 7, 5000]),
                in_flight=dice.choice([1, 2, 16]),
                window_rows=dice.choice([1, 5, 50, 100_000]),
            ),
            progress_every=timedelta(seconds=dice.choice([0, 10, 60])),
            clock=self.clock,
            shard=(index, self.slices),
        )
        left = dice.randrange(1, 60)

        def on_event(event: rscylla.Event, fate: rscylla.Fate) -> None:
            nonlocal left
            self.deliver(event)
            fate.tempt("simulated")
            left -= 1
            if left == 0 and not to_end:
                raise Crash

        lag = rscylla.StreamLag(seconds=LAG_US / 1e6)
        spec = rscylla.Spec(
            stream,
            CheckedStore(self, index),
            rscylla.Consumer(rscylla.shard_name("sim", index, self.slices), on_event, registry=None),
            lag,
            rscylla.StreamToHead(),
            fate=rscylla.NO_FATE if to_end else rscylla.Fate(0.02, seed=dice.randrange(2**32)),
            clock=self.clock,
        )
        try:
            rscylla.run(spec)
        except rscylla.HeadReached:
            pass
        except rscylla.RunError as e:
            if isinstance(e.__cause__, Crash):
                self.counts.crashes += 1
            elif isinstance(e.__cause__, rscylla.FateError):
                self.counts.fates += 1
            else:
                raise

    def deliver(self, event: rscylla.Event) -> None:
        self.counts.events += 1
        change = event.change
        assert change is not None
        write = Write(event.timestamp_us, event.key["pk"], said(event))
        if event.id in self.delivered:
            self.counts.duplicates += 1
            assert self.delivered[event.id] == write
        else:
            self.delivered[event.id] = write
            self.order.append(write)

    def check(self) -> None:
        assert Counter(self.written) == Counter(self.order)
        for pk in range(12):
            times = [w.time_us for w in self.order if w.pk == pk]
            assert times == sorted(times)

    def run(self) -> Counts:
        dice = self.dice
        for _ in range(dice.randrange(30, 120)):
            step = dice.choices(
                [self.write, self.pause, self.consume, self.change_streams, self.reshard], [10, 5, 2, 0.5, 0.1]
            )[0]
            step()
        self.clock.advance(LAG_US / 1e6 + 1)
        for index in range(self.slices):
            self.consume_slice(index, to_end=True)
        self.check()
        return self.counts


class CheckedStore:
    """The simulation's cursor store; no cursor may pass a write, to a key of its slice, that was not delivered."""

    def __init__(self, simulation: Simulation, index: int) -> None:
        self._simulation = simulation
        self._keys = {pk for pk in range(12) if slice_of(pk, simulation.slices) == index}
        self._store = simulation.store

    def get_cursor(self, consumer: str) -> str:
        return self._store.get_cursor(consumer)

    def set_cursor(self, consumer: str, cursor: str) -> None:
        simulation = self._simulation
        passed_us = rscylla.EventID.parse(cursor).exact_us
        undelivered = Counter(w for w in simulation.written if w.time_us < passed_us and w.pk in self._keys)
        undelivered -= Counter(simulation.order)
        assert not undelivered, f"the cursor {cursor} passes {undelivered}"
        self._store.set_cursor(consumer, cursor)

    def flush(self) -> None:
        self._store.flush()

    def close(self) -> None:
        """The simulation's own store outlives its consumers."""


def slice_of(pk: int, count: int) -> int:
    """Return the slice of a key, worked out without the code under test."""
    return (murmur3_token(pk.to_bytes(4, "big", signed=True)) + 2**63) * count // 2**64


def said(event: rscylla.Event) -> str:
    change = event.change
    assert isinstance(change, rscylla.Change)
    operation = change.operation
    if operation == rscylla.Operation.INSERT:
        return f"insert {change.values['n']}"
    if operation == rscylla.Operation.UPDATE:
        return f"static {change.values['s']}" if "s" in change.values else f"update {change.values['n']}"
    if operation == rscylla.Operation.ROW_DELETE:
        return f"row {change.key['ck']}"
    if operation == rscylla.Operation.PARTITION_DELETE:
        return "partition"
    assert change.range is not None
    start, end = change.range
    assert start is not None
    assert end is not None
    assert (start.inclusive, end.inclusive, end.key["ck"]) == (True, False, start.key["ck"] + 5)
    return f"range {start.key['ck']}"


def seeds() -> list[int]:
    return [int(ONE_SEED)] if ONE_SEED else list(range(SEEDS))


def servers() -> Iterator[list[int]]:
    every = seeds()
    for i in range(0, len(every), SEEDS_PER_SERVER):
        yield every[i : i + SEEDS_PER_SERVER]


@contextmanager
def server(
    clock: ManualClock, seed: int, version: Literal["4.3"] | None
) -> Iterator[tuple[EmbeddedScylla, rscylla.Session]]:
    with EmbeddedScylla(clock=clock, seed=seed, shards=2, vnodes=4, version=version) as scylla:
        clock.advance(LAG_US / 1e6)  # a late write must not be older than the first generation
        yield scylla, scylla.connect()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("group", list(servers()), ids=lambda g: f"{g[0]}-{g[-1]}")
def test_R27_everything_written_is_delivered_in_order(group: list[int]) -> None:
    total = Counter[str]()
    clock = ManualClock()
    with ExitStack() as servers:
        shared = servers.enter_context(server(clock, group[0], None))
        for seed in group:
            try:
                if model_of(seed) == "legacy":
                    with server(clock, seed, "4.3") as (scylla, session):
                        counts = Simulation(seed, scylla, clock, session).run()
                else:
                    counts = Simulation(seed, shared[0], clock, shared[1]).run()
            except BaseException:
                print(f"repeat with: RSCYLLA_SIMULATION_SEED={seed} pytest tests/simulation -s")
                raise
            total.update(attrs.asdict(counts))
    print(dict(total))
    # A simulation in which nothing happened proves nothing.
    assert total["events"] >= total["writes"] > 0
    if len(group) == SEEDS_PER_SERVER:
        happened = ("crashes", "fates", "generations", "splits", "merges", "upgrades", "late", "duplicates", "reshards")
        assert min(total[name] for name in happened) > 0
