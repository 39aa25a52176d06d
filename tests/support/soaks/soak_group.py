"""A process of the group that the soak tests break: shares the slices of its consumers with others like it.

python soak_group.py HOSTS OUT SLICES LAG_MS TTL_S [KEYSPACE KINDS KAFKA]

KINDS are names of ``soak_kinds.py``, with commas, and "projection", which needs the keyspace of ``eventbank.py``; of
KEYSPACE, the table orders is read. With KINDS, the clock of the process is stepped. Appends a line for each event to
OUT, in one write: process, name of the lane, epoch of its slice, key, number, event id. Appends a line to OUT.errors
for each run of a lane that failed.
"""

from __future__ import annotations

import logging
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import eventbank
from soak_kinds import Kinds, Stepping

import rscylla
from cursorstore import ScyllaCursorStore, ScyllaDeadLetters, ScyllaMembership


def main() -> int:
    hosts, path, slices, lag_ms, ttl_s, *more = sys.argv[1:]
    keyspace, kinds, kafka = more or ("shop", "plain", "")
    logging.basicConfig(format="%(asctime)s %(process)d %(name)s %(message)s")
    logging.getLogger("rscylla").setLevel(logging.INFO)
    errors = os.open(f"{path}.errors", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    session = rscylla.connect(hosts.split(","))
    clock = Stepping() if more else rscylla.SystemClock()
    membership = ScyllaMembership(
        session,
        "shop",
        "soak",
        owner=str(os.getpid()),
        slices=int(slices),
        ttl=timedelta(seconds=int(ttl_s)),
        create=True,
        clock=clock,
    )
    store = ScyllaCursorStore(
        session, "shop", create=True, lease=membership, epoch_check=timedelta(seconds=1), clock=clock
    )
    letters = ScyllaDeadLetters(session, "shop", create=True, clock=clock)
    made = Kinds(Path(path), letters, lambda name: membership.fence_of(name).epoch, kafka)
    poll = timedelta(milliseconds=50)
    stream = rscylla.NewStream(session, keyspace, "orders", poll=poll, on_expired="oldest", clock=clock)
    lag = rscylla.StreamLag(milliseconds=int(lag_ms))

    def lanes(kind: str) -> Any:
        if kind == "projection":
            events = rscylla.NewStream(session, eventbank.KEYSPACE, "rscylla_events", poll=poll, clock=clock)
            return rscylla.group_lanes(kind, events, store, eventbank.Bank(session).projecting, lag)
        if kind != "swept":
            return rscylla.group_lanes(kind, stream, store, made.maker(kind), lag)
        late = rscylla.StreamLag(seconds=3)
        return lambda index, count: [
            rscylla.fast_and_sweep(
                stream.sliced(index, count),
                store,
                made.swept(rscylla.slice_name(kind, index, count)),
                fast=lag,
                sweep=late,
                force=True,
            )
        ]

    def failed(name: str, error: Exception) -> None:
        os.write(errors, f"{os.getpid()}\t{name}\t{type(error.__cause__ or error).__name__}\t{error}\n".encode())

    restarts = rscylla.Restarts(
        most=None, backoff=rscylla.Backoff(initial=timedelta(milliseconds=50), maximum=timedelta(seconds=1))
    )
    group = rscylla.Group(membership, *map(lanes, kinds.split(",")))
    service = rscylla.Service(group=group, restarts=restarts, on_error=failed)
    try:
        return service.run()
    finally:
        made.close()
        session.cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
