"""A consumer process for the kill test: appends a line for each event to a file, in one write, then saves its cursor.

python kill_consumer.py HOST:PORT OUT LAG_MS [--buffered MS] [--to-head] [--workers N] [--poison N] [--deadly N]

With ``--workers`` it works on several events at a time; with ``--poison`` every n-th fails, and becomes a letter;
at the number ``--deadly`` it kills itself.
"""

from __future__ import annotations

import argparse
import os
import signal
from datetime import timedelta

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore, ScyllaDeadLetters
from rscylla.abc import Consumer, CursorStore
from rscylla.options import StreamOption


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("out")
    parser.add_argument("lag_ms", type=int)
    parser.add_argument("--buffered", type=int, default=0)
    parser.add_argument("--to-head", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--poison", type=int, default=0)
    parser.add_argument("--deadly", type=int)
    args = parser.parse_args()
    out = os.open(args.out, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    session = rscylla.connect([args.host])
    store: CursorStore = ScyllaCursorStore(session, "shop", create=True)
    if args.buffered:
        store = BufferedCursorStore(store, interval=timedelta(milliseconds=args.buffered))

    def consume(event: rscylla.Event, _fate: rscylla.Fate) -> None:
        if event.change.after["n"] == args.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if args.poison and event.change.after["n"] % args.poison == 5:
            raise ValueError("poison")
        os.write(out, f"{os.getpid()}\t{event.foreign_id}\t{event.change.after['n']}\t{event.id}\n".encode())

    options: list[StreamOption] = [rscylla.StreamLag(milliseconds=args.lag_ms)]
    if args.to_head:
        options.append(rscylla.StreamToHead())
    consumer: Consumer = rscylla.Consumer("kill", consume)
    if args.poison or args.deadly is not None:
        letters = ScyllaDeadLetters(session, "shop", create=True)
        pauses = rscylla.Backoff(initial=timedelta(milliseconds=5), maximum=timedelta(milliseconds=20))
        consumer = rscylla.dead_letter(consumer, letters, retries=3, backoff=pauses)
    if args.workers:
        consumer = rscylla.concurrent(consumer, workers=args.workers)
    stream = rscylla.NewStream(session, "shop", "orders", poll=timedelta(milliseconds=20))
    print("started", flush=True)
    try:
        rscylla.run_forever(rscylla.Spec(stream, store, consumer, *options))
    finally:
        session.cluster.shutdown()


if __name__ == "__main__":
    main()
