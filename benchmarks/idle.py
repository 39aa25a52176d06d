"""What an idle table costs: queries and CPU of one look at the head, by number of streams; and a year of emptiness."""

from __future__ import annotations

import argparse
import time
from datetime import timedelta

from read_log import cpu_of

import rscylla
from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaProcess
from rscylla.testing import ManualClock

CLUSTERS = {768: (1, 3, 256), 12_288: (3, 16, 256), 73_728: (4, 72, 256)}
"""Streams, and the nodes, shards of a node, and vnodes of a node that have as many."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--looks", type=int, default=5)
    args = parser.parse_args()
    print(f"{'streams':>8}{'open s':>9}{'queries':>9}{'client ms':>11}{'server ms':>11}{'a look every s':>16}")
    for streams, (nodes, shards, vnodes) in CLUSTERS.items():
        with EmbeddedScyllaProcess(nodes=nodes, shards=shards, vnodes=vnodes) as server:
            session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
            session.execute(
                "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} "
                "AND tablets = {'enabled': false}"
            )
            session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
            look(session, server.pid, streams, args.looks)
            session.cluster.shutdown()
    year_of_emptiness()


def look(session: rscylla.Session, pid: int, streams: int, looks: int) -> None:
    started = time.perf_counter()
    stream = rscylla.NewStream(session, "ks", "t", prefetch=0, progress_every=timedelta(0))
    client = stream("", rscylla.StreamLag(milliseconds=10))
    client.recv()
    opened = time.perf_counter() - started
    for _ in range(3):  # what lies before the head is read without a pause
        client.recv()
    scanner = client._reader._scanner
    pages, cpu, child, began = scanner.pages, time.process_time(), cpu_of(pid), time.perf_counter()
    for _ in range(looks):
        client.recv()
    queries = (scanner.pages - pages) / looks
    spent, server = (time.process_time() - cpu) / looks, (cpu_of(pid) - child) / looks
    apart = (time.perf_counter() - began) / looks
    client.close()
    print(
        f"{streams:>8}{opened:>9.2f}{queries:>9.0f}{1e3 * spent:>11.1f}{1e3 * server:>11.1f}{apart:>16.2f}", flush=True
    )


def year_of_emptiness() -> None:
    """Read two changes that are a year apart, on a driven clock, and print what that took."""
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, vnodes=256, shards=3) as scylla:
        session = scylla.connect()
        session.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} "
            "AND tablets = {'enabled': false}"
        )
        session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'ttl': 0}")
        session.execute("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
        clock.advance(365 * 86_400)
        session.execute("INSERT INTO ks.t (pk, v) VALUES (1, 2)")
        clock.advance(60)
        stream = rscylla.NewStream(session, "ks", "t", prefetch=0, clock=clock)
        started = time.perf_counter()
        client = stream("", rscylla.StreamLag(seconds=30), rscylla.StreamToHead())
        events = 0
        try:
            while True:
                events += isinstance(client.recv(), rscylla.Event)
        except rscylla.HeadReached:
            spent, pages = time.perf_counter() - started, client._reader._scanner.pages
        client.close()
    print(f"a year of emptiness, 768 streams: {events} events, {pages} queries, {1e3 * spent:.0f} ms")


if __name__ == "__main__":
    main()
