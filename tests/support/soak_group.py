"""A process of the group that the soak test breaks: shares the slices of a consumer with others like it.

python soak_group.py HOSTS OUT SLICES LAG_MS TTL_S

Appends a line for each event to OUT, in one write: process, slice, its epoch, key, number, event id. Appends a line to
OUT.errors for each run of a lane that failed, and to OUT.ended, at a clean end, how long it took to stop.
"""

from __future__ import annotations

import logging
import os
import sys
from datetime import timedelta

import rscylla
from cursorstore import ScyllaCursorStore, ScyllaMembership


def main() -> int:
    hosts, path, slices, lag_ms, ttl_s = sys.argv[1:]
    logging.basicConfig(format="%(asctime)s %(process)d %(name)s %(message)s")
    logging.getLogger("rscylla").setLevel(logging.INFO)
    out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    errors = os.open(f"{path}.errors", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    session = rscylla.connect(hosts.split(","))
    membership = ScyllaMembership(
        session,
        "shop",
        "soak",
        owner=str(os.getpid()),
        slices=int(slices),
        ttl=timedelta(seconds=int(ttl_s)),
        create=True,
    )
    store = ScyllaCursorStore(session, "shop", create=True, lease=membership, epoch_check=timedelta(seconds=1))
    stream = rscylla.NewStream(session, "shop", "orders", poll=timedelta(milliseconds=50))

    def consumer(name: str) -> rscylla.Consumer:
        fence = membership.fence_of(name)

        def consume(event: rscylla.Event, _run: object) -> None:
            line = (os.getpid(), fence.name, fence.epoch, event.foreign_id, event.change.after["n"], event.id)
            os.write(out, "\t".join(map(str, line)).encode() + b"\n")

        return rscylla.Consumer(name, consume)

    def failed(name: str, error: Exception) -> None:
        os.write(errors, f"{os.getpid()}\t{name}\t{type(error.__cause__ or error).__name__}\t{error}\n".encode())

    lanes = rscylla.group_lanes("soak", stream, store, consumer, rscylla.StreamLag(milliseconds=int(lag_ms)))
    restarts = rscylla.Restarts(
        most=None, backoff=rscylla.Backoff(initial=timedelta(milliseconds=50), maximum=timedelta(seconds=1))
    )
    service = rscylla.Service(group=rscylla.Group(membership, lanes), restarts=restarts, on_error=failed)
    try:
        return service.run()
    finally:
        session.cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
