"""A job that writes the changes of a table between two times as JSON lines, and ends.

python examples/export_changes.py --embedded
python examples/export_changes.py --host 10.0.0.1 --from 2026-11-20T00:00:00+00:00 --until 2026-11-21T00:00:00+00:00
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

import rscylla


def export(session: rscylla.Session, start: datetime | None, until: datetime, lag: rscylla.StreamLag) -> int:
    """Write one line a change and return how many there were."""
    stream = rscylla.NewStream(session, "shop", "orders")
    client = stream(stream.cursor_at(start), lag, rscylla.StreamUntil(until))
    changes = 0
    try:
        while True:
            got = client.recv()
            if isinstance(got, rscylla.Event):
                sys.stdout.write(got.metadata.decode() + "\n")
                changes += 1
    except rscylla.HeadReached:
        return changes
    finally:
        client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--host", action="append", help="contact point, host or host:port; may be repeated")
    where.add_argument("--embedded", action="store_true", help="start an embedded server with a few orders")
    parser.add_argument("--from", dest="start", type=datetime.fromisoformat, help="ISO time with zone; the oldest row")
    parser.add_argument("--until", type=datetime.fromisoformat, help="ISO time with zone; now")
    args = parser.parse_args()
    if args.embedded:
        from rscylla.embedded import EmbeddedScylla

        with EmbeddedScylla() as scylla:
            session = scylla.connect()
            session.execute(
                "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
            )
            session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, state text) WITH cdc = {'enabled': true}")
            for order in range(10):
                session.execute("INSERT INTO shop.orders (id, state) VALUES (%s, 'new')", (order,))
            changes = export(session, args.start, datetime.now(UTC), rscylla.StreamLag(milliseconds=200))
    else:
        session = rscylla.connect(args.host)
        try:
            changes = export(session, args.start, args.until or datetime.now(UTC), rscylla.StreamLag(seconds=30))
        finally:
            session.cluster.shutdown()
    sys.stderr.write(f"{changes} changes\n")


if __name__ == "__main__":
    main()
