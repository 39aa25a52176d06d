"""A consumer process for the kill test: appends a line for each event to a file, in one write, then saves its cursor.

python kill_consumer.py HOST:PORT OUT LAG_MS [--buffered MS] [--to-head]
"""

from __future__ import annotations

import argparse
import os
from datetime import timedelta

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore
from rscylla.abc import CursorStore
from rscylla.options import StreamOption


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("out")
    parser.add_argument("lag_ms", type=int)
    parser.add_argument("--buffered", type=int, default=0)
    parser.add_argument("--to-head", action="store_true")
    args = parser.parse_args()
    out = os.open(args.out, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    session = rscylla.connect([args.host])
    store: CursorStore = ScyllaCursorStore(session, "shop", create=True)
    if args.buffered:
        store = BufferedCursorStore(store, interval=timedelta(milliseconds=args.buffered))

    def consume(event: rscylla.Event, _fate: rscylla.Fate) -> None:
        os.write(out, f"{os.getpid()}\t{event.foreign_id}\t{event.change.after['n']}\t{event.id}\n".encode())

    options: list[StreamOption] = [rscylla.StreamLag(milliseconds=args.lag_ms)]
    if args.to_head:
        options.append(rscylla.StreamToHead())
    stream = rscylla.NewStream(session, "shop", "orders", poll=timedelta(milliseconds=20))
    print("started", flush=True)
    try:
        rscylla.run_forever(rscylla.Spec(stream, store, rscylla.Consumer("kill", consume), *options))
    finally:
        session.cluster.shutdown()


if __name__ == "__main__":
    main()
