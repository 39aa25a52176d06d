"""What an idle table costs: an empty query, a poll of the head by number of streams, and a year of emptiness.

The client's CPU stands beside that of the plain driver in the same run, in turns: ``execute_async`` as it comes, with
its default rows, for the same query, and one query a stream for a poll.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from statistics import median
from threading import Semaphore
from typing import Any

from peers.shapes import cpu_of

import rscylla
from rscylla._timeuuid import min_timeuuid
from rscylla.cdc.log.query import group_streams, scan_cql
from rscylla.cdc.log.walk import LogWindow
from rscylla.cdc.read.scan import LogScan
from rscylla.clock import Stop, SystemClock
from rscylla.driver.session import ReadSession, consistency_named
from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaProcess
from rscylla.testing import ManualClock

CLUSTERS = {768: (1, 3, 256), 12_288: (3, 16, 256), 73_728: (4, 72, 256)}
"""Streams, and the nodes, shards of a node, and vnodes of a node that have as many."""

IN_FLIGHT = rscylla.Limits().in_flight


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--polls", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=7)
    args = parser.parse_args()
    head = f"{'streams':>8}{'open s':>8}{'queries':>9}{'every s':>9}{'client ms':>11}{'server ms':>11}"
    print(f"{head}{'a query a stream':>18}{'ratio':>7}{'empty query us':>16}{'the driver':>12}{'ratio':>7}", flush=True)
    with counted() as sent:
        for streams, (nodes, shards, vnodes) in CLUSTERS.items():
            with EmbeddedScyllaProcess(nodes=nodes, shards=shards, vnodes=vnodes) as server:
                session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
                session.execute(
                    "CREATE KEYSPACE ks WITH "
                    "replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
                    "AND tablets = {'enabled': false}"
                )
                session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
                poll(session, server.pid, streams, sent, args.polls, args.repeat)
                session.cluster.shutdown()
        year_of_emptiness(sent)


@contextmanager
def counted() -> Iterator[list[None]]:
    """Yield a list that has an element for each request of a page, until the end of the block."""
    sent: list[None] = []
    send = ReadSession.send

    def counting(*args: Any, **kwargs: Any) -> None:
        sent.append(None)
        send(*args, **kwargs)

    ReadSession.send = counting
    try:
        yield sent
    finally:
        ReadSession.send = send


def poll(session: rscylla.Session, pid: int, streams: int, sent: list[None], polls: int, repeat: int) -> None:
    started = time.perf_counter()
    stream = rscylla.NewStream(session, "ks", "t", prefetch=0, progress_every=timedelta(0))
    client = stream("", rscylla.StreamLag(milliseconds=10))
    client.recv()
    opened = time.perf_counter() - started
    for _ in range(3):  # what lies before the head is read without a pause
        client.recv()
    queries, cpu, child, began = len(sent), time.process_time(), cpu_of(pid), time.perf_counter()
    for _ in range(polls):
        client.recv()
    spent, server = (time.process_time() - cpu) / polls, (cpu_of(pid) - child) / polls
    apart, each = (time.perf_counter() - began) / polls, (len(sent) - queries) / polls
    client.close()
    ours, same, single = empty_queries(session, repeat)
    print(
        f"{streams:>8}{opened:>8.2f}{each:>9.0f}{apart:>9.2f}{1e3 * spent:>11.1f}{1e3 * server:>11.1f}"
        f"{1e3 * streams * single:>15.0f} ms{streams * single / spent:>7.0f}"
        f"{1e6 * ours:>16.0f}{1e6 * same:>12.0f}{ours / same:>7.2f}",
        flush=True,
    )


def empty_queries(session: rscylla.Session, repeat: int, queries: int = 400) -> tuple[float, float, float]:
    """Return the CPU seconds of an empty query: of a scan, of the driver for the same, of the driver for one stream."""
    source = rscylla.NewStream(session, "ks", "t").describe()
    groups = group_streams(source.streams(source.generations[-1]))
    many = [groups[n % len(groups)] for n in range(queries)]
    at_us = time.time_ns() // 1000
    window = LogWindow(source.generations[-1].time, at_us, at_us + 1)
    scan = LogScan(
        ReadSession(session, consistency=consistency_named("ONE")),
        "ks",
        "t",
        clock=SystemClock(),
        limits=rscylla.Limits(),
        stop=Stop(),
    )
    cql = scan_cql("ks", "t")
    same, single = session.prepare(cql), session.prepare(cql.replace("IN ?", "= ?"))
    bounds = min_timeuuid(window.start_us), min_timeuuid(window.end_us)
    ways: list[Callable[[], object]] = [
        lambda: list(scan.pages(window, many)),
        lambda: by_driver(session, same, [(list(group), *bounds) for group in many]),
        lambda: by_driver(session, single, [(group[0], *bounds) for group in many]),
    ]
    spent: list[list[float]] = [[] for _ in ways]
    for turn in range(repeat + 1):
        for way, found in zip(ways, spent, strict=True):
            cpu = time.process_time()
            way()
            if turn:  # the first one warms up
                found.append((time.process_time() - cpu) / queries)
    ours, theirs, one = (median(found) for found in spent)
    return ours, theirs, one


def by_driver(session: rscylla.Session, statement: Any, values: Sequence[Sequence[Any]]) -> None:
    """Run a query for each of *values* with the plain driver, as many at a time as a scan has."""
    slots, errors = Semaphore(IN_FLIGHT), []

    def failed(error: BaseException) -> None:
        errors.append(error)
        slots.release()

    for each in values:
        slots.acquire()
        session.execute_async(statement, each).add_callbacks(lambda _: slots.release(), failed)
    for _ in range(IN_FLIGHT):
        slots.acquire()
    if errors:
        raise errors[0]


def year_of_emptiness(sent: list[None]) -> None:
    """Read two changes that are a year apart, on a driven clock, and print what that took."""
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, vnodes=256, shards=3) as scylla:
        session = scylla.connect()
        session.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
            "AND tablets = {'enabled': false}"
        )
        session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'ttl': 0}")
        session.execute("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
        clock.advance(365 * 86_400)
        session.execute("INSERT INTO ks.t (pk, v) VALUES (1, 2)")
        clock.advance(60)
        stream = rscylla.NewStream(session, "ks", "t", prefetch=0, clock=clock)
        queries, started = len(sent), time.perf_counter()
        client = stream("", rscylla.StreamLag(seconds=30), rscylla.StreamToHead())
        events = 0
        try:
            while True:
                events += isinstance(client.recv(), rscylla.Event)
        except rscylla.HeadReached:
            spent, queries = time.perf_counter() - started, len(sent) - queries
        client.close()
    print(f"a year of emptiness, 768 streams: {events} events, {queries} queries, {1e3 * spent:.0f} ms")


if __name__ == "__main__":
    main()
