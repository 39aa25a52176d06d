"""Cost and benefit of two lanes: latency of the fast lane, late changes found, CPU against one safe reader, memory."""

from __future__ import annotations

import argparse
import statistics
import threading
import time
import tracemalloc
from datetime import UTC, datetime, timedelta

import rscylla
from cursorstore import BufferedCursorStore, MemoryCursorStore
from rscylla.embedded import EmbeddedScyllaProcess
from rscylla.event import cursor_key
from rscylla.options import StreamOption
from rscylla.reflex.patterns.lanes.ledger import Ledger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=200, help="writes a second")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--fast", type=float, default=0.5)
    parser.add_argument("--sweep", type=float, default=4)
    args = parser.parse_args()
    print(f"{'':<24}{'events':>8}{'late':>6}{'median s':>10}{'p99 s':>8}{'client CPU s':>14}")
    for title in ("one reader", "fast lane and sweep"):
        with EmbeddedScyllaProcess() as server:
            session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
            session.execute(
                "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
            )
            session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
            follow(title, server, session, args)
            session.cluster.shutdown()
    remembering()


def follow(title: str, server: EmbeddedScyllaProcess, session: rscylla.Session, args: argparse.Namespace) -> None:
    ages: list[float] = []
    late: list[float] = []

    def consume(event: rscylla.Event, fate: rscylla.Fate) -> None:
        (late if event.late else ages).append(time.time() - event.timestamp_us / 1e6)

    stream = rscylla.NewStream(session, "ks", "t")
    store = BufferedCursorStore(MemoryCursorStore())
    consumer = rscylla.Consumer(f"bench {title}", consume)
    fast, sweep = rscylla.StreamLag(seconds=args.fast), rscylla.StreamLag(seconds=args.sweep)
    until: list[StreamOption] = [rscylla.StreamUntil(datetime.now(UTC) + timedelta(seconds=args.seconds + 1))]
    specs = (
        [rscylla.Spec(stream, store, consumer, sweep, *until)]
        if title == "one reader"
        else list(rscylla.fast_and_sweep(stream, store, consumer, *until, fast=fast, sweep=sweep, force=True))
    )
    writer = threading.Thread(target=write, args=(server, session, args.rate, args.seconds))
    cpu = time.process_time()
    writer.start()
    rscylla.parallel(specs)
    writer.join()
    cpu = time.process_time() - cpu
    store.close()
    print(
        f"{title:<24}{len(ages) + len(late):>8}{len(late):>6}{statistics.median(ages):>10.3f}"
        f"{statistics.quantiles(ages, n=100)[98]:>8.3f}{cpu:>14.2f}",
        flush=True,
    )


def write(server: EmbeddedScyllaProcess, session: rscylla.Session, rate: int, seconds: float) -> None:
    """Write at *rate*; of each hundred one is seen only later, up to a second."""
    insert = session.prepare("INSERT INTO ks.t (pk, v) VALUES (?, ?)")
    for i in range(int(rate * seconds)):
        if i % 100 == 50:
            server.faults.hold_writes("ks", "t", times=1)
        session.execute(insert, (i % 1000, i))
        if i % rate == rate - 1:
            server.faults.deliver_held()
        time.sleep(1 / rate)
    server.faults.deliver_held()


def remembering(count: int = 100_000) -> None:
    """Print the memory and time to remember an event of the fast lane."""
    ids = [
        str(rscylla.EventID.row(1_763_719_200_000, bytes(16), i.to_bytes(4, "big") + b"\x00\x00\x11\xf0" + bytes(8), 0))
        for i in range(count)
    ]
    ledger = Ledger("bench", cursor_key, 10 * count, rscylla.SystemClock())
    ledger.open_fast("")
    tracemalloc.start()
    for cursor in ids:
        ledger.hand(cursor, cursor_key(cursor))
        ledger.commit(cursor)
    size = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()
    started = time.perf_counter()
    other = Ledger("bench", cursor_key, 10 * count, rscylla.SystemClock())
    other.open_fast("")
    for cursor in ids:
        other.hand(cursor, cursor_key(cursor))
        other.commit(cursor)
    took = (time.perf_counter() - started) / count
    print(f"remembered: {size:.0f} bytes and {1e6 * took:.1f} µs an event")


if __name__ == "__main__":
    main()
