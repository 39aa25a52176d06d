"""What following an idle log costs, and how long a change is on its way: rscylla beside Scylla's libraries.

Each follower is a process with a table of its own; all follow at the same time, once with their defaults and once with
the pauses of rscylla between queries. At first nothing is written; then a row now and then, which says when. All stay
the same lag behind, and the delays are those beyond it. Stops by itself.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from statistics import median, quantiles

import attrs
from compare import contestant
from peers.measure import Contestant, Running, started
from peers.shapes import KEYSPACE, Log, cpu_of, create_keyspace

import rscylla
from rscylla.embedded import EmbeddedScyllaProcess, Rule, Statements

CLUSTERS = {768: (1, 3, 256), 12_288: (3, 16, 256), 73_728: (4, 72, 256)}
"""Streams, and the nodes, shards of a node, and vnodes of a node that have as many."""

POLL_MS = 1000
"""The pause of rscylla between polls."""


@attrs.frozen
class Follower:
    """``pause_ms``: between queries; 0: the library's default."""

    who: Contestant
    pause_ms: int

    @property
    def name(self) -> str:
        return f"{self.who.name}, pauses of {self.pause_ms / 1000:.0f} s" if self.pause_ms else self.who.name

    @property
    def table(self) -> str:
        return f"{self.who.name.replace('-', '_')}_{self.pause_ms}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[768, 12_288], choices=list(CLUSTERS))
    parser.add_argument("--readers", nargs="+", default=["run", "go", "rust"], choices=["run", "go", "rust"])
    parser.add_argument("--lag", type=float, default=10.0, help="seconds that all stay behind")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds in which nothing is written")
    parser.add_argument("--writes", type=float, default=60.0, help="seconds in which rows are written")
    parser.add_argument("--rate", type=float, default=3.0, help="rows a second and follower")
    args = parser.parse_args()
    followers = [
        Follower(who, pause_ms)
        for who in filter(None, map(contestant, args.readers))
        for pause_ms in ((0,) if who.name == "run" else (0, POLL_MS))
    ]
    for streams in args.streams:
        measure(streams, followers, args)


def measure(streams: int, followers: list[Follower], args: argparse.Namespace) -> None:
    nodes, shards, vnodes = CLUSTERS[streams]
    settle, tail = args.lag + 10, args.lag + 75  # until all poll an idle log; until the slowest has read the last row
    whole = settle + args.idle + args.writes + tail
    print(f"\n{streams} streams, {args.lag:g} s behind; {whole:.0f} s", flush=True)
    with EmbeddedScyllaProcess(nodes=nodes, shards=shards, vnodes=vnodes) as server, ExitStack() as stack:
        host, port = server.contact_points[0], server.port
        session = rscylla.connect([f"{host}:{port}"])
        stack.callback(session.cluster.shutdown)
        create_keyspace(session)
        for each in followers:
            session.execute(
                f"CREATE TABLE {KEYSPACE}.{each.table} (pk int PRIMARY KEY, n bigint) WITH cdc = {{'enabled': true}}"
            )
        counted = [
            server.faults.delay(
                timedelta(0), Statements(kind="select", table=f"{each.table}_scylla_cdc_log"), times=None
            )
            for each in followers
        ]
        running = [stack.enter_context(started(each.who, host, port)) for each in followers]
        pool = stack.enter_context(ThreadPoolExecutor(len(followers)))
        since_ms = time.time_ns() // 1_000_000
        answers = [
            pool.submit(
                process.read,
                Log(each.table, round(whole), 0, since_ms),
                f"follow:{1000 * args.lag:.0f}:{each.pause_ms}",
            )
            for each, process in zip(followers, running, strict=True)
        ]
        time.sleep(settle)
        before = state_of(running, counted)
        time.sleep(args.idle)
        after = state_of(running, counted)
        write(session, followers, args.writes, args.rate)
        print(f"{'':<24}{'CPU ms/s':>10}{'queries/s':>11}{'rows':>7}{'median s':>10}{'p99 s':>8}")
        for each, was, now, answer in zip(followers, before, after, answers, strict=True):
            delays = [ms / 1000 - args.lag for ms in answer.result()["delays_ms"]]
            late = f"{median(delays):>10.2f}{quantiles(delays, n=100)[98]:>8.2f}" if len(delays) > 1 else ""
            print(
                f"{each.name:<24}{1000 * (now[0] - was[0]) / args.idle:>10.2f}{(now[1] - was[1]) / args.idle:>11.1f}"
                f"{len(delays):>7}{late}",
                flush=True,
            )


def state_of(running: list[Running], counted: list[Rule]) -> list[tuple[float, int]]:
    """Return the CPU seconds of each follower, and the queries that it has sent."""
    return [(cpu_of(each.process.pid), rule.hits) for each, rule in zip(running, counted, strict=True)]


def write(session: rscylla.Session, followers: list[Follower], seconds: float, rate: float) -> None:
    inserts = [session.prepare(f"INSERT INTO {KEYSPACE}.{each.table} (pk, n) VALUES (?, ?)") for each in followers]
    began = time.monotonic()
    for row in range(round(seconds * rate)):
        time.sleep(max(0.0, began + row / rate - time.monotonic()))
        for insert in inserts:
            session.execute(insert, (row, time.time_ns() // 1000))


if __name__ == "__main__":
    main()
