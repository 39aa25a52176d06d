"""A process for the kill test of Arrow windows: appends each batch of rows to a file, and says so, until it is killed.

python kill_arrow.py HOST:PORT OUT UNTIL_US

A line of OUT is the name of a window and ``begin``, or the numbers of a batch.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla._timeuuid import datetime_of


def main() -> None:
    host, path, until_us = sys.argv[1:]
    out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    session = rscylla.connect([host])
    stream = rscylla.NewStream(session, "shop", "orders", limits=rscylla.Limits(page_size=20, window_rows=60))
    store = ScyllaCursorStore(session, "shop", create=True)
    until = rscylla.StreamUntil(datetime_of(int(until_us)))
    lag, most = rscylla.StreamLag(milliseconds=0), timedelta(milliseconds=50)
    loop = rscylla.windows_as_arrow(stream, store, "kill", lag, until, shortest=most, longest=most)
    for window, rows in loop:
        os.write(out, f"{window.name} begin\n".encode())
        for batch in rows:
            numbers = " ".join(str(values["n"]) for values in batch.column("cdc_values").to_pylist())
            os.write(out, f"{window.name} {numbers}\n".encode())
            print("batch", flush=True)
    session.cluster.shutdown()


if __name__ == "__main__":
    main()
