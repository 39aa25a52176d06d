"""Reads one log with other settings than a stream's defaults, and prints the time each takes as a ratio to theirs.

Once as the server is, and once with an answer that takes a while to come, as from another rack or zone.
"""

from __future__ import annotations

import argparse
import time
from datetime import timedelta
from typing import Any

from peers.shapes import KEYSPACE, LAG, SHAPES, fill

import rscylla
from rscylla.embedded import EmbeddedScyllaProcess, Statements

TABLE = "narrow"

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "prefetch=0": {"prefetch": 0},
    "prefetch=2": {"prefetch": 2},
    "streams_per_query=10": {"streams_per_query": 10},
    "streams_per_query=1": {"streams_per_query": 1},
    "in_flight=1": {"limits": rscylla.Limits(in_flight=1)},
    "in_flight=4": {"limits": rscylla.Limits(in_flight=4)},
    "in_flight=64": {"limits": rscylla.Limits(in_flight=64)},
    "page_size=500": {"limits": rscylla.Limits(page_size=500)},
    "page_size=1000": {"limits": rscylla.Limits(page_size=1000)},
    "page_size=20000": {"limits": rscylla.Limits(page_size=20_000)},
    "window_rows=1000": {"limits": rscylla.Limits(window_rows=1000)},
    "window_rows=10000": {"limits": rscylla.Limits(window_rows=10_000)},
    "window_rows=1000000": {"limits": rscylla.Limits(window_rows=1_000_000)},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--delay-ms", type=float, default=5.0, help="by which the second round's answers are late")
    args = parser.parse_args()
    with EmbeddedScyllaProcess() as server:
        session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
        fill(session, SHAPES[TABLE], args.rows, batch=20)
        late = f"+{args.delay_ms:g} ms"
        print(f"{'settings':<24}{'queries':>9}{'ratio':>9}{late:>11}   (1.00 is {args.rows:,} rows with the defaults)")
        first: list[float] = []
        found: dict[str, list[float]] = {name: [] for name in SETTINGS}
        queries: dict[str, int] = {}
        where = Statements(kind="select", table=f"{TABLE}_scylla_cdc_log")
        for delay_ms in (0.0, args.delay_ms):
            # A delay of nothing counts the queries, too.
            with server.faults.delay(timedelta(milliseconds=delay_ms), where, times=None) as rule:
                for name, settings in SETTINGS.items():
                    before = rule.hits
                    found[name].append(min(read(session, args.rows, settings) for _ in range(args.repeat)))
                    queries[name] = (rule.hits - before) // args.repeat
            first.append(found["defaults"][-1])
        for name, (near, far) in found.items():
            print(f"{name:<24}{queries[name]:>9,}{near / first[0]:>9.2f}{far / first[1]:>11.2f}")
        print(f"the defaults: {args.rows / first[0]:,.0f} and {args.rows / first[1]:,.0f} rows/s")
        session.cluster.shutdown()


def read(session: rscylla.Session, rows: int, settings: dict[str, Any]) -> float:
    """Return the seconds that reading all rows took, each event with its id and values."""
    client = rscylla.NewStream(session, KEYSPACE, TABLE, **settings)("", LAG, rscylla.StreamToHead())
    began, events = time.perf_counter(), 0
    try:
        while True:
            got = client.recv()
            if isinstance(got, rscylla.Event):
                _ = got.id, got.change.after
                events += 1
    except rscylla.HeadReached:
        pass
    finally:
        client.close()
    if events != rows:
        raise SystemExit(f"{events} rows read, {rows} written")
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
