"""Throughput of the embedded server: writes into a CDC table, and pages of a log, with the share of CPU it takes."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from read_log import raw_pages, timed, write

import rscylla
from rscylla.embedded import EmbeddedScyllaProcess


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 200], help="rows of one request while writing")
    args = parser.parse_args()
    print(f"{'what':<28}{'per second':>12}{'server us each':>16}{'server CPU':>12}{'client CPU':>12}")
    for batch in args.batch:
        measure(args.rows if batch > 1 else args.rows // 10, batch)


def measure(rows: int, batch: int) -> None:
    def written() -> int:
        write(session, rows, batch, server.pid)
        return rows

    with EmbeddedScyllaProcess() as server:
        session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
        tell(f"rows written, {batch} a request", server.pid, written)
        tell("log rows served, pages", server.pid, lambda: raw_pages(session))
        session.cluster.shutdown()


def tell(what: str, pid: int, work: Callable[[], int]) -> None:
    """Print how fast *work* is, which returns how much it did, and what part of a core each side used."""
    with timed(pid) as spent:
        done = work()
    wall, client, server = spent
    each, shares = 1e6 * server / done, (server / wall, client / wall)
    print(f"{what:<28}{done / wall:>12,.0f}{each:>16.2f}{shares[0]:>12.0%}{shares[1]:>12.0%}", flush=True)


if __name__ == "__main__":
    main()
