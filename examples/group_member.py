"""A process of a group: start it as often as you like, and all of them share the table.

python examples/group_member.py --host 10.0.0.1     # on each machine; the table is shop.orders, with CDC
python examples/group_member.py --embedded          # two members in one process, of which one stops
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter

from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore, ScyllaMembership
from rscylla.embedded import EmbeddedScylla

log = logging.getLogger("billing")


def member(
    session: rscylla.Session, owner: str | None, billed: Counter[int], lag: float, port: int | None = None
) -> rscylla.Service:
    """Return the service of one process."""
    registry = CollectorRegistry()
    membership = ScyllaMembership(session, "shop", "billing", owner=owner, slices=64, create=True)
    store = BufferedCursorStore(ScyllaCursorStore(session, "shop", create=True, lease=membership))

    def bill(event: rscylla.Event, run: rscylla.Run) -> None:
        billed[event.key["id"]] += 1  # idempotent in a real service: the same order may come twice

    def consumer(name: str) -> rscylla.Consumer:
        return rscylla.Consumer(name, bill, registry=registry)

    stream = rscylla.NewStream(session, "shop", "orders")
    lanes = rscylla.group_lanes("billing", stream, store, consumer, rscylla.StreamLag(seconds=lag), registry=registry)
    return rscylla.Service(group=rscylla.Group(membership, lanes), registry=registry, port=port)


def held(service: rscylla.Service) -> int:
    group = service.facts().group
    return len(group.held) if group is not None else 0


def show() -> None:
    """Start two members on an embedded server, and stop one."""
    pause = rscylla.Stop()
    with EmbeddedScylla() as scylla:
        session = scylla.connect()
        session.execute(
            "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, state text) WITH cdc = {'enabled': true}")
        billed = Counter[int]()
        first, second = (member(session, name, billed, lag=0.2) for name in ("first", "second"))
        with first:
            while held(first) < 64:
                pause.wait(0.05)
            print(f"first alone: {held(first)} slices")
            second.start()
            while held(second) < 32:
                pause.wait(0.05)
            print(f"two members: {held(first)} and {held(second)} slices")
            for order in range(100):
                session.execute("INSERT INTO shop.orders (id, state) VALUES (%s, 'paid')", (order,))
            second.stop()
            second.wait()
            while held(first) < 64:
                pause.wait(0.05)
            print(f"second has stopped: {held(first)} slices")
            while len(billed) < 100:
                pause.wait(0.05)
        print(f"{len(billed)} orders billed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--host", action="append", help="contact point, host or host:port; may be repeated")
    where.add_argument("--embedded", action="store_true", help="start an embedded server, and two members")
    parser.add_argument("--port", type=int, default=None, help="serve metrics and health checks on 127.0.0.1")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    if args.embedded:
        show()
        return
    session = rscylla.connect(args.host)
    service = member(session, None, Counter(), lag=30.0, port=args.port)
    code = service.run()
    session.cluster.shutdown()
    sys.exit(code)


if __name__ == "__main__":
    main()
