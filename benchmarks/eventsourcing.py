"""What event sourcing costs: appends, loads with and without snapshots, layouts, projections, and rebuilds.

The server is a process of its own. Client CPU is the time of all threads of this process, by its own clock. Each round
takes the variants in turns, and ratios are of the same round. ``tenants`` counts what following idle logs asks of the
server, with the events of all tenants in one table, and with a table for each.
"""

from __future__ import annotations

import argparse
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median
from typing import Any

import attrs
from peers.shapes import LAG
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import MemoryCursorStore
from rscylla.base.reading import pages
from rscylla.clock import Stop, SystemClock
from rscylla.driver.session import ReadSession, consistency_named
from rscylla.embedded import EmbeddedScyllaProcess, Statements
from rscylla.eventsourcing import (
    Aggregate,
    AggregateID,
    CommandHandler,
    Envelope,
    EventRecord,
    EventTypes,
    MemorySnapshotStore,
    MemorySubjectKeys,
    PersonalData,
    Projector,
    ScyllaBuilds,
    ScyllaEventStore,
    ScyllaSnapshotStore,
    event_schema_cql,
    personal,
    subject,
)
from rscylla.testing import FakeStream

KEYSPACE = "bench"
PARTS = ["appends", "loads", "tenants", "latency", "rebuilds"]
DATA = '{"order_id":"11111111-2222-3333-4444-555555555555","lines":[{"sku":"A-4711","count":2,"price":"19.90"}]}'
AT = datetime(2026, 11, 21, 10, tzinfo=UTC)


@attrs.frozen
class Cost:
    """Seconds that passed, and of client CPU, for ``count`` operations."""

    passed_s: float
    cpu_s: float
    count: int


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--appends", type=int, default=800, help="of each pass")
    parser.add_argument("--events", type=int, nargs="+", default=[10, 100, 1000], help="of aggregates that are loaded")
    parser.add_argument("--tables", type=int, nargs="+", default=[1, 4, 16], help="that are followed while idle")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds in which the queries are counted")
    parser.add_argument("--lags", type=int, nargs="+", default=[100, 1000], help="of the projection's stream, in ms")
    parser.add_argument("--commands", type=int, default=40, help="whose effects are waited for")
    parser.add_argument("--orders", type=int, default=1000, help="that are rebuilt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="default: all")
    args = parser.parse_args(argv)
    parts = args.parts or PARTS
    with EmbeddedScyllaProcess() as server:
        session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
        session.execute(
            f"CREATE KEYSPACE {KEYSPACE} WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {'enabled': false}"
        )
        try:
            if "appends" in parts:
                appends(session, args.appends, args.rounds)
                sizes(session)
            if "loads" in parts:
                loads(session, args.events, args.rounds)
            if "tenants" in parts:
                tenants(server, session, args.tables, args.idle)
            if "latency" in parts:
                latencies(session, args.lags, args.commands)
            if "rebuilds" in parts:
                rebuilds(session, args.orders, args.rounds)
        finally:
            session.cluster.shutdown()


def measured(work: Callable[[], int]) -> Cost:
    began, cpu = time.perf_counter(), time.process_time()
    count = work()
    return Cost(time.perf_counter() - began, time.process_time() - cpu, count)


def in_turns(variants: dict[str, Callable[[], int]], rounds: int) -> dict[str, list[Cost]]:
    """Return the costs of each variant, after a first round that is not counted; every other round goes backward."""
    found: dict[str, list[Cost]] = {name: [] for name in variants}
    for turn in range(rounds + 1):
        for name in sorted(variants, reverse=turn % 2 == 1):
            cost = measured(variants[name])
            if turn:
                found[name].append(cost)
    return found


def report(title: str, costs: dict[str, list[Cost]], first: str) -> None:
    """Print the medians, and the ratios of CPU time to the variant *first*, each within its round."""
    print(f"\n{title:<44}{'a second':>10}{'client CPU µs':>15}{'ratio':>8}")
    for name, passes in costs.items():
        rate = median(one.count / one.passed_s for one in passes)
        cpu_us = median(one.cpu_s / one.count * 1e6 for one in passes)
        pairs = zip(passes, costs[first], strict=True)
        ratio = median(one.cpu_s / one.count / (base.cpu_s / base.count) for one, base in pairs)
        print(f"{name:<44}{rate:>10,.0f}{cpu_us:>15,.0f}{ratio:>8.2f}", flush=True)


# ---------------------------------------------------------------- appends


def appends(session: Any, count: int, rounds: int) -> None:
    """Append by 1 and 4 threads, each to aggregates of its own, and by 4 to one; beside plain inserts by the driver."""
    store = ScyllaEventStore(session, KEYSPACE, create=True)
    store.head(AggregateID("none", "none"))
    session.execute(f"CREATE TABLE {KEYSPACE}.plain (a text, v bigint, d text, PRIMARY KEY (a, v))")
    insert = session.prepare(f"INSERT INTO {KEYSPACE}.plain (a, v, d) VALUES (?, ?, ?)")

    def plain() -> int:
        name = str(uuid.uuid4())
        for n in range(count):
            session.execute(insert, (name, n, DATA))
        return count

    def own(events: int) -> Callable[[], None]:
        def work() -> None:
            aggregate, version = AggregateID("order", str(uuid.uuid4())), 0
            for _ in range(count // 4):
                store.append(records(aggregate, version, events))
                version += events

        return work

    def threads(number: int, events: int = 1) -> Callable[[], int]:
        def work() -> int:
            for _ in range(4 // number):
                together([own(events)] * number)
            return count // 4 * 4

        return work

    def shared() -> int:
        aggregate = AggregateID("hot", str(uuid.uuid4()))
        some = count // 40

        def work() -> None:
            done = 0
            while done < some:
                try:
                    store.append(records(aggregate, store.head(aggregate), 1))
                except rscylla.errors.VersionConflict:
                    continue
                done += 1

        together([work] * 4)
        return 4 * some

    variants: dict[str, Callable[[], int]] = {
        "driver, plain INSERT, 1 thread": plain,
        "append of 1 event, 1 thread": threads(1),
        "append of 1 event, 4 threads": threads(4),
        "append of 10 events, 1 thread": threads(1, 10),
        "append of 1 event, 4 threads, one aggregate": shared,
    }
    report("writes", in_turns(variants, rounds), "driver, plain INSERT, 1 thread")


def records(aggregate: AggregateID, after: int, count: int) -> list[EventRecord]:
    return [
        EventRecord(aggregate, after + 1 + n, uuid.uuid4(), "OrderLineAdded", 1, DATA, AT, "c", "c", "u")
        for n in range(count)
    ]


def together(work: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ---------------------------------------------------------------- loads


@attrs.frozen
class Added:
    """An event of the size of an order line."""

    order_id: str
    sku: str
    count: int
    price: str


@attrs.frozen
class SealedAdded:
    """The same with a personal field."""

    order_id: str = subject()
    sku: str = personal()
    count: int = 0
    price: str = ""


@attrs.frozen
class State:
    """A small state."""

    lines: int = 0
    total: int = 0


def aggregate(cls: type[Any], types: EventTypes) -> Aggregate[State, int, Any]:
    types.register(cls)

    def decide(state: State, count: int) -> list[Any]:
        return [cls("11111111-2222-3333-4444-555555555555", "A-4711", n, "19.90") for n in range(count)]

    def evolve(state: State, event: Any) -> State:
        return State(state.lines + 1, state.total + event.count)

    return Aggregate(cls.__name__, State(), decide, evolve, types)


def load(handler: CommandHandler[Any, Any, Any], name: str) -> int:
    for _ in range(20):
        handler.load(name)
    return 20


def loads(session: Any, sizes: list[int], rounds: int) -> None:
    store = ScyllaEventStore(session, KEYSPACE, create=True)
    snapshots = ScyllaSnapshotStore(session, KEYSPACE, create=True)
    snapshots.get_snapshot(AggregateID("none", "none"))
    plain = aggregate(Added, EventTypes())
    sealed = aggregate(SealedAdded, EventTypes(personal=PersonalData(MemorySubjectKeys())))
    costs: dict[str, list[Cost]] = {}
    for size in sizes:
        name = str(uuid.uuid4())
        variants: dict[str, Callable[[], int]] = {}
        for label, kind, kept in (
            ("", plain, None),
            (", with personal data", sealed, None),
            (", a snapshot within 10 events", plain, snapshots),
        ):
            handler = CommandHandler(kind, store, snapshots=kept, snapshot_every=10)
            writer = CommandHandler(kind, store, snapshots=kept or MemorySnapshotStore(), snapshot_every=size)
            if kept is None and store.head(kind.id(name)) == 0:
                for _ in range(0, size - 5, 50):
                    writer.handle(name, min(50, size - 5))
                writer.handle(name, 5)
            elif kept is not None:
                CommandHandler(kind, store, snapshots=kept, snapshot_every=1).handle(name, 1)

            variants[f"{size} events{label}"] = partial(load, handler, name)
        costs |= in_turns(variants, rounds)
    report("loads", costs, next(iter(costs)))


# ---------------------------------------------------------------- layouts


def sizes(session: Any) -> None:
    """Print the bytes of an event as a client reads it, from the table and from its log, with a head row an append."""
    store = ScyllaEventStore(session, KEYSPACE, "sizes", create=True)
    for n in range(100):
        store.append(records(AggregateID("order", str(n)), 0, 1))
    read = ReadSession(session, consistency=consistency_named("ONE"))
    print(f"\n{'bytes of an event of ' + str(len(DATA)) + ' bytes of JSON':<44}")
    for name in ("sizes", "sizes_scylla_cdc_log"):
        statement = read.prepare(f"SELECT * FROM {KEYSPACE}.{name}", page_size=5000, doing="reading")
        found = pages(read, statement, (), doing="reading", clock=SystemClock(), stop=Stop())
        print(f"{name:<44}{sum(page.size for page in found) / 100:>10,.0f}")


def following(session: Any, table: str) -> rscylla.Spec:
    stream, consumer = rscylla.NewStream(session, KEYSPACE, table), rscylla.Consumer(table, lambda *_: None)
    return rscylla.Spec(stream, MemoryCursorStore(), consumer, LAG, rscylla.StreamFromHead())


def tenants(server: EmbeddedScyllaProcess, session: Any, tables: list[int], seconds: float) -> None:
    """Follow idle tables, one stream each, and print the queries and the client CPU of a second."""
    print(f"\n{'tables that are followed while idle':<44}{'queries/s':>10}{'client CPU ms/s':>17}")
    for number in tables:
        names = [f"tenant_{number}_{n}" for n in range(number)]
        for name in names:
            session.execute(event_schema_cql(KEYSPACE, name))
        specs = [following(session, name) for name in names]
        rule = server.faults.delay(timedelta(0), Statements(matching="_scylla_cdc_log"), times=None)
        with rule, rscylla.Service(specs):
            time.sleep(10)  # until all poll an idle log
            before, cpu = rule.hits, time.process_time()
            time.sleep(seconds)
            queries, cpu = rule.hits - before, time.process_time() - cpu
        print(f"{number:<44}{queries / seconds:>10.1f}{cpu / seconds * 1000:>17.1f}", flush=True)


# ---------------------------------------------------------------- projections


class Totals:
    """A projection of sums: in memory, or with *session* a row for each order, which has its version."""

    def __init__(self, name: str, session: Any = None) -> None:
        self.name = name
        self._session = session
        self._rows: dict[tuple[int, AggregateID], tuple[int, int]] = {}
        if session is not None:
            session.execute(
                f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.totals "
                "(build bigint, type text, id text, version bigint, total bigint, PRIMARY KEY ((build, type, id)))"
            )
            table = f"{KEYSPACE}.totals"
            self._read = session.prepare(f"SELECT version, total FROM {table} WHERE build = ? AND type = ? AND id = ?")
            self._write = session.prepare(
                f"INSERT INTO {table} (build, type, id, version, total) VALUES (?, ?, ?, ?, ?)"
            )

    def prepare(self, build: int) -> None: ...
    def drop(self, build: int) -> None: ...

    def version(self, build: int, aggregate: AggregateID) -> int:
        if self._session is not None and (build, aggregate) not in self._rows:
            row = self._session.execute(self._read, (build, aggregate.type, aggregate.id)).one()
            self._rows[build, aggregate] = (row[0], row[1]) if row else (0, 0)
        return self._rows.get((build, aggregate), (0, 0))[0]

    def apply(self, build: int, envelope: Envelope[Any]) -> None:
        aggregate = envelope.aggregate
        total = self._rows.get((build, aggregate), (0, 0))[1] + envelope.event.count
        if self._session is not None:
            self._session.execute(self._write, (build, aggregate.type, aggregate.id, envelope.version, total))
        self._rows[build, aggregate] = envelope.version, total


def latencies(session: Any, lags: list[int], count: int) -> None:
    """Print how long it takes from a command to its effect in a projection of the same process, by the stream's lag."""
    store = ScyllaEventStore(session, KEYSPACE, create=True)
    kind = aggregate(Added, EventTypes())
    handler = CommandHandler(kind, store)
    handler.handle("first", 1)
    print(f"\n{'from command to projection, ms':<44}{'median':>10}{'95 %':>10}{'median - lag':>14}")
    for lag in lags:
        projector = Projector(
            Totals(f"totals-{lag}", session),
            store,
            kind.events.decode,
            ScyllaBuilds(session, KEYSPACE, create=True),
            look_every=timedelta(seconds=0.1),
        )
        stream = rscylla.NewStream(session, KEYSPACE, "rscylla_events", poll=timedelta(milliseconds=20))
        spec = rscylla.Spec(
            stream,
            MemoryCursorStore(),
            projector.consumer(),
            rscylla.StreamLag(milliseconds=lag),
            rscylla.StreamFromHead(),
        )
        passed = []
        with rscylla.Service([spec]):
            while not projector.active():
                time.sleep(0.05)
            for n in range(count):
                began = time.perf_counter()
                handled = handler.handle(f"{lag}-{n}", 1)
                projector.wait_for(handled.aggregate, handled.version, timedelta(minutes=1))
                passed.append((time.perf_counter() - began) * 1000)
        middle, most = median(passed), sorted(passed)[int(count * 0.95)]
        print(f"{f'lag {lag} ms':<44}{middle:>10.0f}{most:>10.0f}{middle - lag:>14.0f}", flush=True)


def rebuilds(session: Any, orders: int, rounds: int) -> None:
    """Scan a store of *orders* aggregates with 10 events each into a projection; beside the scan alone."""
    store = ScyllaEventStore(session, KEYSPACE, "rebuilt", create=True)
    kind = aggregate(Added, EventTypes())
    handler = CommandHandler(kind, store)
    for n in range(orders):
        handler.handle(str(n), 10)

    def scan() -> int:
        return sum(len(page.records) for page in store.scan())

    def decode() -> int:
        return sum(1 for page in store.scan() for record in page.records if kind.events.decode(record))

    def rebuild(where: Any) -> int:
        view = Totals(str(uuid.uuid4()), where)
        projector = Projector(
            view,
            store,
            kind.events.decode,
            ScyllaBuilds(session, KEYSPACE, create=True),
            look_every=timedelta(seconds=0.01),
        )
        registry = CollectorRegistry()
        consumer = projector.consumer(registry=registry)
        with rscylla.Service([rscylla.Spec(FakeStream(), MemoryCursorStore(), consumer)], registry=registry):
            while not projector.find_builds(fresh=True).active:
                time.sleep(0.005)
        return orders * 10

    report(
        "rows of a rebuild",
        in_turns(
            {
                "scan alone": scan,
                "scan, decoded": decode,
                "rebuild of a projection in memory": lambda: rebuild(None),
                "rebuild of a projection in a table": lambda: rebuild(session),
            },
            rounds,
        ),
        "scan alone",
    )


if __name__ == "__main__":
    main()
