"""A service that bills paid orders and resumes where it stopped.

python examples/billing_service.py --embedded          # brings its own server and some orders
python examples/billing_service.py --host 10.0.0.1     # a real cluster with a CDC table shop.orders
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
from collections.abc import Iterator

from prometheus_client import start_http_server

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore

log = logging.getLogger("billing")


def was_paid(event: rscylla.Event) -> bool:
    """Whether the event says that an order's state became "paid": the consumer's filter, fast and without I/O."""
    return event.change is not None and (event.change.after or {}).get("state") == "paid"


def bill(event: rscylla.Event) -> None:
    """Bill an order. Idempotent: the same order may come twice and must not be charged twice."""
    log.info("billing order %s, because of %s", event.foreign_id, event.id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--host", action="append", help="contact point, host or host:port; may be repeated")
    where.add_argument("--embedded", action="store_true", help="start an embedded server with a few orders")
    parser.add_argument("--lag", type=float, default=None, help="seconds; 30, and 0.2 with --embedded")
    parser.add_argument("--orders", type=int, default=None, help="stop after that many paid orders")
    parser.add_argument(
        "--metrics-port", type=int, default=0, help="serve Prometheus metrics on this port of 127.0.0.1"
    )
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    lag = args.lag if args.lag is not None else 0.2 if args.embedded else 30.0

    stop = rscylla.Stop()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    if args.metrics_port:
        start_http_server(args.metrics_port, addr="127.0.0.1")

    billed = set[str]()

    def on_event(event: rscylla.Event, run: rscylla.Run) -> None:
        bill(event)
        run.tempt()  # now and then an error, to see that billing twice is harmless
        billed.add(event.foreign_id)
        if args.orders and len(billed) >= args.orders:
            stop.set()

    with sessions(args) as session:
        store = BufferedCursorStore(ScyllaCursorStore(session, "shop", create=True))
        spec = rscylla.Spec(
            rscylla.NewStream(session, "shop", "orders"),
            store,
            rscylla.Consumer("billing", on_event, event_filter=was_paid),
            rscylla.StreamLag(seconds=lag),
            fate=rscylla.Fate(0.01),
        )
        rscylla.run_forever(spec, stop=stop)
        store.close()
    log.info("stopped; %d orders billed, the cursor is saved", len(billed))


@contextlib.contextmanager
def sessions(args: argparse.Namespace) -> Iterator[rscylla.Session]:
    """Yield a session to the cluster that the arguments name."""
    if not args.embedded:
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
        for order in range(10):
            session.execute("INSERT INTO shop.orders (id, state) VALUES (%s, 'new')", (order,))
            session.execute("UPDATE shop.orders SET state = 'paid' WHERE id = %s", (order,))
        yield session


if __name__ == "__main__":
    main()
