"""Reads a CDC log of many rows in several ways and prints rows/s and CPU per row, of the client and of the server."""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import rscylla
from cursorstore import MemoryCursorStore
from rscylla.cdc.driver import ReadSession, consistency_named
from rscylla.embedded import EmbeddedScyllaProcess

KEYSPACE, TABLE = "bench", "orders"
LAG = rscylla.StreamLag(milliseconds=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=200, help="rows of one batch while writing")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    with EmbeddedScyllaProcess() as server:
        session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
        try:
            write(session, args.rows, args.batch, server.pid)
            print(f"{'how':<34}{'rows/s':>12}{'client us/row':>15}{'server us/row':>15}")
            for name, read in READERS.items():
                best = min((measure(read, session, server.pid) for _ in range(args.repeat)), key=lambda m: m[1])
                rows, wall, client, child = best
                print(
                    f"{name:<34}{rows / wall:>12,.0f}{1e6 * client / rows:>15.2f}{1e6 * child / rows:>15.2f}",
                    flush=True,
                )
                if rows != args.rows:
                    raise SystemExit(f"{name}: {rows} rows read, {args.rows} written")
        finally:
            session.cluster.shutdown()


def write(session: rscylla.Session, rows: int, batch: int, pid: int) -> None:
    """Write *rows* changes of 2 % deletes, in batches of one partition each."""
    from cassandra.concurrent import execute_concurrent
    from cassandra.query import BatchStatement, BatchType

    session.execute(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}} "
        "AND tablets = {'enabled': false}"
    )
    session.execute(
        f"CREATE TABLE {KEYSPACE}.{TABLE} (pk int, ck int, v text, n bigint, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}"
    )
    insert = session.prepare(f"INSERT INTO {KEYSPACE}.{TABLE} (pk, ck, v, n) VALUES (?, ?, ?, ?)")
    dice = random.Random(1)

    def batches() -> Iterator[tuple[BatchStatement, None]]:
        for start in range(0, rows, batch):
            statement = BatchStatement(BatchType.UNLOGGED)
            for i in range(start, min(rows, start + batch)):
                statement.add(insert, (start // batch % 5000, i, f"order {dice.random():.12f}", i))
            yield statement, None

    with timed(pid) as spent:
        for ok, result in execute_concurrent(session, batches(), concurrency=8, results_generator=True):
            if not ok:
                raise result
    wall, client, child = spent
    print(
        f"wrote {rows:,} rows in {wall:.1f} s: {rows / wall:,.0f} rows/s, "
        f"client {1e6 * client / rows:.1f} us/row, server {1e6 * child / rows:.1f} us/row"
    )


def by_driver(session: rscylla.Session) -> int:
    """The plain way: one query per stream, and rows as the driver returns them."""
    rows = 0
    source = rscylla.NewStream(session, KEYSPACE, TABLE).describe()
    query = session.prepare(f'SELECT * FROM {KEYSPACE}.{TABLE}_scylla_cdc_log WHERE "cdc$stream_id" = ?')
    for generation in source.generations:
        for stream in source.streams(generation):
            for _ in session.execute(query, (stream,)):
                rows += 1
    return rows


def raw_pages(session: rscylla.Session) -> int:
    """Pages as they come, nothing decoded: what the transport costs."""
    import threading

    log = ReadSession(session, consistency=consistency_named("ONE"))
    source = rscylla.NewStream(session, KEYSPACE, TABLE).describe()
    statement = log.prepare(
        f'SELECT * FROM {KEYSPACE}.{TABLE}_scylla_cdc_log WHERE "cdc$stream_id" = ?', page_size=5000, doing="benchmark"
    )
    rows = 0
    for generation in source.generations:
        for stream in source.streams(generation):
            state: bytes | None = None
            while True:
                got: list[object] = []
                done = threading.Event()
                log.fetch(
                    statement,
                    (stream,),
                    state,
                    on_page=lambda p, got=got, done=done: (got.append(p), done.set()),
                    on_error=lambda e, got=got, done=done: (got.append(e), done.set()),
                )
                done.wait()
                page = got[0]
                if isinstance(page, BaseException):
                    raise page
                rows += page.row_count
                state = page.state
                if state is None:
                    break
    return rows


def events(session: rscylla.Session, touch: Callable[[rscylla.Event], object] | None = None) -> int:
    stream = rscylla.NewStream(session, KEYSPACE, TABLE)
    client = stream("", LAG, rscylla.StreamToHead())
    rows = 0
    try:
        while True:
            got = client.recv()
            if isinstance(got, rscylla.Progress):
                continue
            rows += 1
            if touch is not None:
                touch(got)
    except rscylla.HeadReached:
        return rows
    finally:
        client.close()


def through_run(session: rscylla.Session) -> int:
    rows = 0

    def count(_event: rscylla.Event, _fate: rscylla.Fate) -> None:
        nonlocal rows
        rows += 1

    stream = rscylla.NewStream(session, KEYSPACE, TABLE)
    spec = rscylla.Spec(stream, MemoryCursorStore(), rscylla.Consumer("bench", count), LAG, rscylla.StreamToHead())
    try:
        rscylla.run(spec)
    except rscylla.HeadReached:
        return rows


READERS: dict[str, Callable[[rscylla.Session], int]] = {
    "driver rows, a query a stream": by_driver,
    "raw pages, nothing decoded": raw_pages,
    "events": events,
    "events with id": lambda s: events(s, lambda e: e.id),
    "events with id, foreign id, after": lambda s: events(s, lambda e: (e.id, e.foreign_id, e.change.after)),
    "run with a consumer and a store": through_run,
}


def measure(
    read: Callable[[rscylla.Session], int], session: rscylla.Session, pid: int
) -> tuple[int, float, float, float]:
    with timed(pid) as spent:
        rows = read(session)
    return rows, *spent


@contextmanager
def timed(pid: int) -> Iterator[list[float]]:
    """Yield a list that holds, after the block, its wall time, own CPU time, and the CPU time of process *pid*."""
    spent: list[float] = []
    child, client, wall = cpu_of(pid), time.process_time(), time.perf_counter()
    yield spent
    spent += [time.perf_counter() - wall, time.process_time() - client, cpu_of(pid) - child]


def cpu_of(pid: int) -> float:
    """Return the CPU seconds a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
