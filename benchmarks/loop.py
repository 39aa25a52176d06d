"""Compares what a consumer costs with what reading costs: client CPU for each row, in one process and one run.

The readers take turns, round by round, so that all of them meet the same machine. The table has the median of the
rounds, their spread, and the ratio to the driver's own rows. ``--profile NAME`` profiles one reader instead.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import rscylla
from cursorstore import BufferedCursorStore, MemoryCursorStore, ScyllaCursorStore
from rscylla.embedded import EmbeddedScyllaProcess

KEYSPACE, TABLE = "bench", "wide"
LAG = rscylla.StreamLag(milliseconds=1)
COLUMNS = {
    "pk": "int",
    "ck": "bigint",
    "name": "text",
    "city": "text",
    "note": "text",
    "code": "int",
    "amount": "bigint",
    "price": "double",
    "paid": "boolean",
    "ref": "uuid",
    "at": "timestamp",
    "raw": "blob",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(READERS), choices=list(READERS), metavar="NAME")
    parser.add_argument("--profile", choices=list(READERS), metavar="NAME")
    args = parser.parse_args()
    with EmbeddedScyllaProcess(vnodes=16) as server:
        session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
        try:
            write(session, args.rows)
            if args.profile:
                profile(READERS[args.profile], session)
            else:
                report(session, args.rows, args.rounds, args.only)
        finally:
            session.cluster.shutdown()


def write(session: rscylla.Session, rows: int) -> None:
    """Write *rows* inserts of 12 columns, a hundred rows of a partition at a time."""
    from cassandra.concurrent import execute_concurrent
    from cassandra.query import BatchStatement, BatchType

    session.execute(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}} "
        "AND tablets = {'enabled': false}"
    )
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    session.execute(f"CREATE TABLE {KEYSPACE}.{TABLE} ({columns}, PRIMARY KEY (pk, ck)) WITH cdc = {{'enabled': true}}")
    ScyllaCursorStore(session, KEYSPACE).create_schema()
    insert = session.prepare(
        f"INSERT INTO {KEYSPACE}.{TABLE} ({', '.join(COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, "
        "6ab09bec-e68e-48d9-a5f8-97e6fb4c9b47, 1763719205000, 0x00112233445566778899)"
    )

    def batches() -> Iterator[tuple[Any, None]]:
        for start in range(0, rows, 100):
            batch = BatchStatement(BatchType.UNLOGGED)
            for i in range(start, min(rows, start + 100)):
                name = f"customer {i}"
                batch.add(insert, (i // 100, i, name, "Reykjavík", "to the door", i % 97, i * 3, i / 7, i % 2 == 0))
            yield batch, None

    for ok, result in execute_concurrent(session, batches(), concurrency=8, results_generator=True):
        if not ok:
            raise result


def by_driver(session: rscylla.Session) -> int:
    """Return the number of rows that the plain driver reads: one query per stream, rows as named tuples."""
    rows = 0
    source = rscylla.NewStream(session, KEYSPACE, TABLE).describe()
    query = session.prepare(f'SELECT * FROM {KEYSPACE}.{TABLE}_scylla_cdc_log WHERE "cdc$stream_id" = ?')
    for generation in source.generations:
        for stream in source.streams(generation):
            for _ in session.execute(query, (stream,)):
                rows += 1
    return rows


def read(session: rscylla.Session, touch: Callable[[rscylla.Event], object] | None = None) -> int:
    """Return the number of events that the stream returns, *touch* called with each."""
    client = rscylla.NewStream(session, KEYSPACE, TABLE)("", LAG, rscylla.StreamToHead())
    recv = client.recv
    rows = 0
    try:
        while True:
            got = recv()
            if isinstance(got, rscylla.Progress):
                continue
            rows += 1
            if touch is not None:
                touch(got)
    except rscylla.HeadReached:
        return rows
    finally:
        client.close()


def loop(
    session: rscylla.Session,
    store: Callable[[rscylla.Session], rscylla.CursorStore],
    touch: Callable[[rscylla.Event], object] | None = None,
) -> int:
    """Return the number of events that ``run`` delivers to a consumer that does nothing but *touch*."""
    rows = 0

    def count(event: rscylla.Event, _run: rscylla.Run) -> None:
        nonlocal rows
        rows += 1
        if touch is not None:
            touch(event)

    run(session, store(session), rscylla.Consumer(f"bench-{time.monotonic_ns()}", count))
    return rows


def in_batches(session: rscylla.Session) -> int:
    """Return the number of events that ``run`` delivers to a batch consumer that does nothing."""
    rows = 0

    def count(events: Sequence[rscylla.Event], _run: rscylla.Run) -> None:
        nonlocal rows
        rows += len(events)

    run(session, memory(session), rscylla.batch(f"bench-{time.monotonic_ns()}", count))
    return rows


def run(session: rscylla.Session, store: rscylla.CursorStore, consumer: Any) -> None:
    stream = rscylla.NewStream(session, KEYSPACE, TABLE)
    try:
        rscylla.run(rscylla.Spec(stream, store, consumer, LAG, rscylla.StreamToHead()))
    except rscylla.HeadReached:
        store.close()


def memory(_session: rscylla.Session) -> rscylla.CursorStore:
    return MemoryCursorStore()


def buffered(session: rscylla.Session) -> rscylla.CursorStore:
    return BufferedCursorStore(ScyllaCursorStore(session, KEYSPACE))


def look(event: rscylla.Event) -> object:
    assert event.change is not None
    return event.key, event.change.after


READERS: dict[str, Callable[[rscylla.Session], int]] = {
    "driver": by_driver,
    "events": read,
    "events-id": lambda s: read(s, lambda e: e.id),
    "events-values": lambda s: read(s, look),
    "run-memory": lambda s: loop(s, memory),
    "run-buffered": lambda s: loop(s, buffered),
    "run-values": lambda s: loop(s, buffered, look),
    "batch": in_batches,
}


def report(session: rscylla.Session, rows: int, rounds: int, names: Sequence[str]) -> None:
    spent: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        for name in names:
            began = time.process_time()
            found = READERS[name](session)
            took = time.process_time() - began
            if found != rows:
                raise SystemExit(f"{name}: {found} rows read, {rows} written")
            if number:  # the first round warms up
                spent[name].append(1e6 * took / rows)
    base = median(spent[names[0]])
    print(f"{rows:,} rows, {rounds} rounds\n{'reader':<16}{'us/row':>8}{'min':>8}{'max':>8}{'ratio':>8}")
    for name, found_us in spent.items():
        middle = median(found_us)
        print(f"{name:<16}{middle:>8.2f}{min(found_us):>8.2f}{max(found_us):>8.2f}{middle / base:>8.2f}")


def profile(reader: Callable[[rscylla.Session], int], session: rscylla.Session) -> None:
    reader(session)
    profiler = cProfile.Profile()
    profiler.runcall(reader, session)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
