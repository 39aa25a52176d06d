"""Resident memory of a process that consumes a long log slowly, sampled as the rows go by.

The server, the writer and the consumer are processes of their own. The consumer is slower than the reader, so all that
may be read ahead is read ahead. ``--spark`` reads the log as one task of Spark does instead, without the JVM: its
reader yields Arrow batches, which are dropped. ``--trace`` also prints which lines hold the memory that was added after
the first tenth of the log; a traced run takes several times longer, and more memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from peers.shapes import KEYSPACE, LAG, SHAPES, fill, peak_mb_of, resident

import rscylla
from cursorstore import BufferedCursorStore, MemoryCursorStore, ScyllaCursorStore
from rscylla.embedded import EmbeddedScyllaProcess

MEGABYTE = 1 << 20
STORES: dict[str, Callable[[rscylla.Session], Any]] = {
    "memory": lambda _session: MemoryCursorStore(),
    "buffered": lambda session: BufferedCursorStore(ScyllaCursorStore(session, KEYSPACE)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--shape", choices=list(SHAPES), default="narrow")
    parser.add_argument("--pause", type=float, default=1.0, help="milliseconds that are waited every 100 events")
    parser.add_argument("--store", choices=list(STORES), default="buffered")
    parser.add_argument("--spark", choices=["log", "changes", "events"], help="read in this mode of the data source")
    parser.add_argument("--trace", action="store_true")
    args = parser.parse_args()
    processes = multiprocessing.get_context("spawn")
    with EmbeddedScyllaProcess(vnodes=16) as server:
        before = resident(server.pid)
        place = f"{server.contact_points[0]}:{server.port}"
        for work in (write, read_in_spark if args.spark else consume):
            # New processes: what the writer has allocated is not the consumer's.
            child = processes.Process(target=work, args=(place, args))
            child.start()
            child.join()
            if child.exitcode:
                raise SystemExit(child.exitcode)
        print(f"the server: {(resident(server.pid) - before) / args.rows:,.0f} bytes a row", flush=True)


def write(place: str, args: argparse.Namespace) -> None:
    session = rscylla.connect([place])
    fill(session, SHAPES[args.shape], args.rows)
    ScyllaCursorStore(session, KEYSPACE).create_schema()
    session.cluster.shutdown()


def consume(place: str, args: argparse.Namespace) -> None:
    """Consume all rows, and print resident memory as they go by."""
    session = rscylla.connect([place])
    shape = SHAPES[args.shape]
    expected = shape.changes(shape.writes(args.rows))
    every = max(1, expected // args.samples)
    print(f"{'events':>12}{'resident MB':>16}", flush=True)
    events = 0
    before: tracemalloc.Snapshot | None = None

    def handle(event: rscylla.Event, _fate: rscylla.Fate) -> None:
        nonlocal events, before
        events += 1
        assert event.key
        if events % 100 == 0:
            time.sleep(args.pause / 1000)
        if events % every == 0:
            print(f"{events:>12,}{resident(os.getpid()) / MEGABYTE:>16.1f}", flush=True)
            if args.trace and before is None and events * 10 >= expected:
                before = tracemalloc.take_snapshot()

    if args.trace:
        tracemalloc.start(12)
    stream = rscylla.NewStream(session, KEYSPACE, shape.name)
    consumer = rscylla.Consumer("memory", handle)
    try:
        rscylla.run(rscylla.Spec(stream, STORES[args.store](session), consumer, LAG, rscylla.StreamToHead()))
    except rscylla.HeadReached:
        if events != expected:
            raise SystemExit(f"{events} events, not {expected}") from None
    if before is not None:
        for line in tracemalloc.take_snapshot().compare_to(before, "traceback")[:12]:
            print(line, *line.traceback.format()[-8:], sep="\n", flush=True)
    session.cluster.shutdown()


def read_in_spark(place: str, args: argparse.Namespace) -> None:
    """Read all rows in one partition of the data source, and print resident memory as they go by."""
    from rscylla.spark.session.session import close_sessions
    from rscylla.spark.source.source import ScyllaCdcDataSource

    source = ScyllaCdcDataSource(
        {
            "contactpoints": place,
            "keyspace": KEYSPACE,
            "table": args.shape,
            "lag": "0s",
            "consistency": "ONE",
            "mode": args.spark,
            "streamsperpartition": "1000000",
        }
    )
    shape = SHAPES[args.shape]
    written = shape.writes(args.rows)
    expected = shape.log_rows(written) if args.spark == "log" else shape.changes(written)
    every = max(1, expected // args.samples)
    reader = source.reader(source.schema())
    print(f"{'rows':>12}{'resident MB':>16}", flush=True)
    rows = 0
    for partition in reader.partitions():
        for batch in reader.read(partition):
            if (rows + batch.num_rows) // every > rows // every:
                print(f"{rows + batch.num_rows:>12,}{resident(os.getpid()) / MEGABYTE:>16.1f}", flush=True)
            rows += batch.num_rows
    if rows != expected:
        raise SystemExit(f"{rows} rows, not {expected}")
    print(f"at most {peak_mb_of(os.getpid()):.1f} MB", flush=True)
    close_sessions()


if __name__ == "__main__":
    main()
