"""A consumer that gets changes within a fraction of a second, and the late ones by a sweep behind it.

python examples/fast_and_sweep.py --embedded          # brings its own server, and holds some orders back
python examples/fast_and_sweep.py --host 10.0.0.1     # a real cluster with a CDC table shop.orders; ends with Ctrl+C
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore

EMBEDDED_SWEEP_S = 3.0
HELD_S = 1.0
PATIENCE_S = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--host", action="append", help="contact point, host or host:port; may be repeated")
    where.add_argument("--embedded", action="store_true", help="start an embedded server, and write some orders")
    parser.add_argument("--fast", type=float, default=0.2, help="the fast lane's lag, seconds")
    parser.add_argument("--sweep", type=float, default=None, help="the sweep's lag; 60, and 3 with --embedded")
    parser.add_argument("--orders", type=int, default=100, help="how many to write, with --embedded")
    args = parser.parse_args()
    stop = rscylla.Stop()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    sweep = args.sweep or (EMBEDDED_SWEEP_S if args.embedded else 60.0)
    ages: list[float] = []
    late: list[str] = []

    def on_order(event: rscylla.Event, run: rscylla.Run) -> None:
        if event.late:
            late.append(event.foreign_id)
            print(f"late, {age(event):.1f} s old: {event.foreign_id}", flush=True)
        else:
            ages.append(age(event))
        if args.embedded and len(ages) + len(late) == args.orders:
            stop.set()

    with cluster(args, stop) as session:
        store = BufferedCursorStore(ScyllaCursorStore(session, "shop", create=True))
        lanes = rscylla.fast_and_sweep(
            rscylla.NewStream(session, "shop", "orders"),
            store,
            rscylla.Consumer("orders-fast", on_order),
            fast=rscylla.StreamLag(seconds=args.fast),
            sweep=rscylla.StreamLag(seconds=sweep),
            force=args.embedded,  # a sweep of a few seconds is for looking at it only
        )
        rscylla.parallel(lanes, stop=stop)
        store.close()
    latency = f"{statistics.median(ages):.3f} s" if ages else "unknown"
    print(f"{len(ages)} orders in time, median latency {latency}; {len(late)} late, found by the sweep")


def age(event: rscylla.Event) -> float:
    return (datetime.now(UTC) - event.timestamp).total_seconds()


@contextlib.contextmanager
def cluster(args: argparse.Namespace, stop: rscylla.Stop) -> Iterator[rscylla.Session]:
    """Yield a session to the cluster that the arguments name, or to an embedded one while orders are written to it."""
    if args.host:
        session = rscylla.connect(args.host)
        try:
            yield session
        finally:
            session.cluster.shutdown()
        return
    from rscylla.embedded import EmbeddedScylla

    with EmbeddedScylla() as scylla:
        session = scylla.connect()
        session.execute(
            "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, state text) WITH cdc = {'enabled': true}")

        def write() -> None:
            """Write orders for two seconds; every tenth is answered at once, but carried out up to a second later."""
            delivered = datetime.now(UTC)
            for order in range(args.orders):
                if order % 10 == 0:
                    scylla.faults.hold_writes("shop", "orders", times=1)
                session.execute("INSERT INTO shop.orders (id, state) VALUES (%s, 'new')", (order,))
                if stop.wait(2 / args.orders):
                    break
                if datetime.now(UTC) - delivered > timedelta(seconds=HELD_S):
                    scylla.faults.deliver_held()
                    delivered = datetime.now(UTC)
            stop.wait(HELD_S / 2)
            scylla.faults.deliver_held()
            stop.wait(PATIENCE_S)  # an order that was held for longer than the sweep's lag is never found
            stop.set()

        writing = threading.Thread(target=write)
        writing.start()
        yield session
        writing.join()


if __name__ == "__main__":
    main()
