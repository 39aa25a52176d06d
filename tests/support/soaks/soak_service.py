"""A replica of the service that the soak test breaks: a lease, a dead-letter table, and poison events.

python soak_service.py HOSTS OUT LAG_MS TTL_S

Appends a line for each event to OUT, in one write: process, epoch of the lease, key, number, event id.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import rscylla
from cursorstore import ScyllaCursorStore, ScyllaDeadLetters, ScyllaLease

POISON = 41
"""Events with a number that this divides are never handled."""


def main() -> int:
    hosts, path, lag_ms, ttl_s = sys.argv[1:]
    out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    session = rscylla.connect(hosts.split(","))
    lease = ScyllaLease(session, "shop", "soak", ttl=timedelta(seconds=int(ttl_s)), create=True)
    store = ScyllaCursorStore(session, "shop", create=True, lease=lease, epoch_check=timedelta(seconds=1))
    letters = ScyllaDeadLetters(session, "shop", create=True)

    def consume(event: rscylla.Event, _fate: object) -> None:
        number = event.change.after["n"]
        if number % POISON == 0:
            raise ValueError("poison")
        os.write(out, f"{os.getpid()}\t{lease.epoch}\t{event.foreign_id}\t{number}\t{event.id}\n".encode())

    pauses = rscylla.Backoff(initial=timedelta(milliseconds=5), maximum=timedelta(milliseconds=50))
    consumer = rscylla.dead_letter(rscylla.Consumer("soak", consume), letters, retries=2, backoff=pauses)
    stream = rscylla.NewStream(session, "shop", "orders", poll=timedelta(milliseconds=50))
    spec = rscylla.Spec(stream, store, consumer, rscylla.StreamLag(milliseconds=int(lag_ms)))
    restarts = rscylla.Restarts(
        most=None, backoff=rscylla.Backoff(initial=timedelta(milliseconds=50), maximum=timedelta(seconds=1))
    )
    service = rscylla.Service([spec], restarts=restarts, lease=lease)
    print("started", flush=True)
    try:
        return service.run()
    finally:
        session.cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
