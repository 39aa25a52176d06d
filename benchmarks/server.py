"""What the embedded server spends, over sockets: CPU of each row written in several ways, and of a log row served.

``--memory`` prints instead the resident memory that each written row takes: in all, of the base table alone (the table
has no CDC), and of the log alone (the same thousand rows are written again and again).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import attrs
from peers.readers import raw_pages
from peers.shapes import resident, timed
from server_core import CREATE_KEYSPACE, WORKLOADS, Workload

import rscylla
from rscylla.embedded import EmbeddedScyllaProcess


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a request each; ten times as many in batches")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), metavar="WORKLOAD")
    parser.add_argument("--memory", action="store_true", help="what rows take instead of what they cost")
    args = parser.parse_args()
    if args.memory:
        print(f"{'bytes a row':<28}{'in all':>12}{'base table':>12}{'log':>12}")
        for name in args.only:
            memory(name, args.rows)
        return
    print(f"{'what':<28}{'per second':>12}{'server us each':>16}{'server CPU':>12}{'client CPU':>12}")
    for name in args.only:
        measure(name, args.rows)


def measure(name: str, rows: int) -> None:
    workload = WORKLOADS[name]
    with EmbeddedScyllaProcess() as server:
        session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
        tell(name, server.pid, write(session, workload, rows * 10 if workload.batch else rows))
        if workload.batch:
            tell("log rows served, pages", server.pid, lambda: raw_pages(session, "orders", "count").rows)
        session.cluster.shutdown()


def memory(name: str, rows: int) -> None:
    """Print what a row takes."""
    workload = WORKLOADS[name]
    rows *= 10 if workload.batch else 1
    without_cdc = attrs.evolve(workload, cdc="'enabled': false")
    same_rows = attrs.evolve(workload, values=lambda i: workload.values(i % 1000))
    # The first rows come with all that a server keeps once.
    found = [(held(each, 2 * rows) - held(each, rows)) / rows for each in (workload, without_cdc, same_rows)]
    print(f"{name:<28}" + "".join(f"{size:>12,.0f}" for size in found), flush=True)


def held(workload: Workload, rows: int) -> int:
    """Return the resident bytes of a server that has so many rows."""
    with EmbeddedScyllaProcess() as server:
        session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
        write(session, workload, rows)()
        size = resident(server.pid)
        session.cluster.shutdown()
    return size


def write(session: rscylla.Session, workload: Workload, rows: int) -> Callable[[], int]:
    """Return what writes *rows* rows and returns that number."""
    from cassandra.concurrent import execute_concurrent
    from cassandra.query import BatchStatement, BatchType

    session.execute(CREATE_KEYSPACE)
    session.execute(workload.ddl)
    statement = session.prepare(workload.statement)

    def requests() -> Iterator[tuple[Any, Any]]:
        for request in workload.requests(rows):
            if not workload.batch:
                yield statement, workload.values(request[0])
                continue
            batch = BatchStatement(BatchType.UNLOGGED)
            for i in request:
                batch.add(statement, workload.values(i))
            yield batch, None

    def work() -> int:
        for ok, result in execute_concurrent(session, requests(), concurrency=16, results_generator=True):
            if not ok:
                raise result
        return rows

    return work


def tell(what: str, pid: int, work: Callable[[], int]) -> None:
    """Print how fast *work* is, which returns how much it did, and what part of a core each side used."""
    with timed(pid) as spent:
        done = work()
    wall, client, server = spent
    each, shares = 1e6 * server / done, (server / wall, client / wall)
    print(f"{what:<28}{done / wall:>12,.0f}{each:>16.2f}{shares[0]:>12.0%}{shares[1]:>12.0%}", flush=True)


if __name__ == "__main__":
    main()
