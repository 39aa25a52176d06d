"""A service of two lanes that stands by for a lease, waits while a warehouse is down, and puts bad orders aside.

python examples/service --embedded                   # brings its own server, orders and trouble; ends when all is done
python examples/service --host 10.0.0.1 --port 9100  # a real cluster with CDC tables shop.orders and shop.parcels
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
import threading
import urllib.request
from collections.abc import Iterator
from datetime import timedelta

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore, ScyllaDeadLetters, ScyllaLease
from rscylla.abc import Consumer

log = logging.getLogger("shop")

ORDERS = 20
BAD_ORDER = 13


class Warehouse:
    """What parcels are sent by. With ``--embedded`` it is down at first, and for a while."""

    def __init__(self, refusals: int) -> None:
        self._refusals = refusals

    def ship(self, event: rscylla.Event, run: rscylla.Run) -> None:
        """Send a parcel. Idempotent: the same parcel may be asked for twice."""
        if self._refusals:
            self._refusals -= 1
            raise ConnectionError("the warehouse does not answer")
        log.info("parcel %s is on its way", event.foreign_id)


def bill(event: rscylla.Event, run: rscylla.Run) -> None:
    """Bill an order. Idempotent, too."""
    run.tempt()  # now and then an error, to see that billing twice is harmless
    if event.key["id"] == BAD_ORDER:
        raise ValueError("an order without a customer")
    log.info("order %s is billed", event.foreign_id)


def service(session: rscylla.Session, args: argparse.Namespace) -> rscylla.Service:
    """Return the service: a lane that bills orders, one that ships parcels."""
    # One of all replicas of this service works, the others stand by. The store makes sure of that, too.
    lease = ScyllaLease(session, "shop", "shop-service", create=True)
    store = BufferedCursorStore(ScyllaCursorStore(session, "shop", create=True, lease=lease))
    letters = ScyllaDeadLetters(session, "shop", create=True)
    breaker = rscylla.CircuitBreaker(
        "warehouse",
        outage=ConnectionError,
        failures=3,
        reset_after=timedelta(seconds=0.2 if args.embedded else 30),
    )
    ship = Warehouse(refusals=5 if args.embedded else 0).ship
    quick = rscylla.Backoff(initial=timedelta(milliseconds=20)) if args.embedded else None

    def spec(table: str, consumer: Consumer) -> rscylla.Spec:
        stream = rscylla.NewStream(session, "shop", table)
        lag = rscylla.StreamLag(seconds=0.2 if args.embedded else 30)
        return rscylla.Spec(stream, store, consumer, lag, fate=rscylla.Fate(0.02))

    billing = rscylla.dead_letter(rscylla.Consumer("billing", bill), letters, retries=2, backoff=quick)
    shipping = rscylla.dead_letter(breaker.guard(rscylla.Consumer("shipping", ship)), letters, backoff=quick)
    return rscylla.Service(
        [spec("orders", billing), spec("parcels", shipping)],
        restarts=rscylla.Restarts(most=20, backoff=quick or rscylla.Backoff()),
        lease=lease,
        dead_letters=letters,
        port=args.port,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--host", action="append", help="contact point, host or host:port; may be repeated")
    where.add_argument("--embedded", action="store_true", help="start an embedded server, end after its orders")
    parser.add_argument("--port", type=int, default=0, help="of /metrics, /healthz and /readyz on 127.0.0.1; 0: any")
    args = parser.parse_args()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(rscylla.reflex.JsonFormatter(tracebacks=False))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("cassandra").setLevel(logging.WARNING)

    with sessions(args) as session:
        shop = service(session, args)
        if args.embedded:
            threading.Thread(target=watch, args=(shop,), daemon=True).start()
        code = shop.run()
    log.info("stopped with exit code %d", code)
    return code


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
        for table in ("orders", "parcels"):
            columns = "(id int PRIMARY KEY, state text)"
            session.execute(f"CREATE TABLE shop.{table} {columns} WITH cdc = {{'enabled': true}}")
            for number in range(ORDERS):
                session.execute(f"INSERT INTO shop.{table} (id, state) VALUES (%s, 'new')", (number,))
        yield session


def watch(shop: rscylla.Service) -> None:
    """Wait until all was read, show what a probe and a scraper see, and stop the service."""
    clock, never = rscylla.SystemClock(), rscylla.Stop()
    written_us = clock.now_us()

    def done(lag_s: float | None) -> bool:
        return lag_s is not None and clock.now_us() - lag_s * 1e6 >= written_us

    while not all(done(lane.watermark_lag_s) for lane in shop.facts().lanes):
        clock.wait(never, 0.05)
    assert shop.address is not None
    url = "http://{}:{}".format(*shop.address)
    with urllib.request.urlopen(f"{url}/readyz", timeout=60) as answer:
        print("ready:", json.load(answer)["status"])
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(("rscylla_consumed", "reflex_consumer_dead", "rscylla_circuit_breaker_changes_total")):
                print(line)
    shop.stop()


if __name__ == "__main__":
    sys.exit(main())
