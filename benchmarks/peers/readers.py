"""The readers in Python. Each runs in a process of its own, which takes passes as the programs in other languages do.

``python -m peers.readers NAME HOST PORT KEYSPACE``: each line on standard input is a pass, "TABLE KIND ROWS SINCE", and
is answered with a line of JSON. SINCE is ignored: these readers start with the oldest row.

KIND "follow:LAG:PAUSE" follows the log for ROWS seconds, LAG milliseconds behind, with PAUSE milliseconds between polls
or, if that is 0, with the defaults. The column n says when a row was written, in microseconds since the epoch.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import attrs

import rscylla
from cursorstore import BufferedCursorStore, MemoryCursorStore, ScyllaCursorStore
from rscylla.abc import CursorStore, Window
from rscylla.driver.session import ReadSession, consistency_named

from .shapes import KEYSPACE, LAG

KINDS = ("count", "key", "cells")
"""What is done with each row: nothing; its primary key is read; each of its cells is, as a native value."""


@attrs.frozen
class Tally:
    """What a pass found. ``check``: the sum of ``ck`` for "key"; the cells that are not null for "cells"."""

    rows: int
    check: int = 0


@attrs.frozen
class Reader:
    """``read`` makes a pass over a table. ``of_changes``: it returns changes with their images, not rows of the log."""

    read: Callable[[rscylla.Session, str, str], Tally]
    kinds: tuple[str, ...] = KINDS
    of_changes: bool = True


# ---------------------------------------------------------------- the plain driver


def by_driver(session: rscylla.Session, table: str, kind: str) -> Tally:
    """One query per stream, rows as named tuples: what one writes first."""
    query = session.prepare(f'SELECT * FROM {KEYSPACE}.{table}_scylla_cdc_log WHERE "cdc$stream_id" = ?')
    rows = check = 0
    for stream in streams_of(session, table):
        found = session.execute(query, (stream,))
        if kind == "count":
            for _ in found:
                rows += 1
        elif kind == "key":
            for row in found:
                rows += 1
                _, ck = row.pk, row.ck
                check += ck
        else:
            names = found.column_names
            values = itemgetter(*(i for i, name in enumerate(names) if not name.startswith("cdc$")))
            for row in found:
                rows += 1
                cells = values(row)
                check += len(cells) - cells.count(None)
    return Tally(rows, check)


def streams_of(session: rscylla.Session, table: str) -> list[bytes]:
    source = rscylla.NewStream(session, KEYSPACE, table).describe()
    return [stream for generation in source.generations for stream in source.streams(generation)]


# ---------------------------------------------------------------- rscylla


def raw_pages(session: rscylla.Session, table: str, _kind: str) -> Tally:
    """Pages as they come, nothing decoded: what the transport costs."""
    import threading

    log = ReadSession(session, consistency=consistency_named("ONE"))
    statement = log.prepare(
        f'SELECT * FROM {KEYSPACE}.{table}_scylla_cdc_log WHERE "cdc$stream_id" = ?', page_size=5000, doing="benchmark"
    )
    rows = 0
    for stream in streams_of(session, table):
        state: bytes | None = None
        while True:
            got: list[Any] = []
            done = threading.Event()

            def keep(answer: object, got: list[Any] = got, done: threading.Event = done) -> None:
                got.append(answer)
                done.set()

            log.fetch(statement, (stream,), state, on_page=keep, on_error=keep)
            done.wait()
            page = got[0]
            if isinstance(page, BaseException):
                raise page
            rows += page.row_count
            state = page.state
            if state is None:
                break
    return Tally(rows)


class Counter:
    """Counts events, and does with each what a kind of work asks for."""

    def __init__(self, kind: str) -> None:
        self.rows = self.check = 0
        self.consume = {"count": self._count, "key": self._key, "cells": self._cells, "id": self._id}[kind]

    def _count(self, _event: rscylla.Event, _run: rscylla.Run | None = None) -> None:
        self.rows += 1

    def _id(self, event: rscylla.Event, _run: rscylla.Run | None = None) -> None:
        self.rows += 1
        _ = event.id

    def _key(self, event: rscylla.Event, _run: rscylla.Run | None = None) -> None:
        self.rows += 1
        key = event.key
        _, ck = key["pk"], key["ck"]
        self.check += ck

    def _cells(self, event: rscylla.Event, _run: rscylla.Run | None = None) -> None:
        self.rows += 1
        change = event.change
        assert change is not None
        self.check += len(event.key)
        for part in (change.before, change.after):
            if part is not None:
                self.check += len(part)

    @property
    def tally(self) -> Tally:
        return Tally(self.rows, self.check)


def events(session: rscylla.Session, table: str, kind: str) -> Tally:
    """The stream without a loop, iterated over to the head."""
    counter = Counter(kind)
    client = rscylla.NewStream(session, KEYSPACE, table)("", LAG, rscylla.StreamToHead())
    progress, consume = rscylla.Progress, counter.consume
    try:
        if kind == "count":
            for got in client:
                counter.rows += not isinstance(got, progress)
        else:
            for got in client:
                if not isinstance(got, progress):
                    consume(got)
    except rscylla.HeadReached:
        pass
    finally:
        client.close()
    return counter.tally


def in_loop(store: Callable[[rscylla.Session], CursorStore]) -> Callable[[rscylla.Session, str, str], Tally]:
    """The loop that users run: ``run`` with a cursor store."""

    def read(session: rscylla.Session, table: str, kind: str) -> Tally:
        counter = Counter(kind)
        _run(session, table, store(session), rscylla.Consumer(_fresh(), counter.consume))
        return counter.tally

    return read


def in_batches(session: rscylla.Session, table: str, kind: str) -> Tally:
    counter = Counter(kind)

    def consume(events: Sequence[rscylla.Event], _run: rscylla.Run) -> None:
        for event in events:
            counter.consume(event)

    def count(events: Sequence[rscylla.Event], _run: rscylla.Run) -> None:
        counter.rows += len(events)

    _run(session, table, memory(session), rscylla.batch(_fresh(), count if kind == "count" else consume))
    return counter.tally


def in_slices(count: int) -> Callable[[rscylla.Session, str, str], Tally]:
    """The slices of the table in this process at once, a thread each: what sharing costs beside one reader."""

    def read(session: rscylla.Session, table: str, kind: str) -> Tally:
        counters: list[Counter] = []

        def consumer(name: str) -> rscylla.Consumer:
            counters.append(Counter(kind))
            return rscylla.Consumer(name, counters[-1].consume)

        def run(spec: rscylla.Spec) -> None:
            with suppress(rscylla.HeadReached):
                rscylla.run(spec)

        stream, store = rscylla.NewStream(session, KEYSPACE, table), memory(session)
        specs = rscylla.slice_specs(_fresh(), count, stream, store, consumer, LAG, rscylla.StreamToHead())
        with ThreadPoolExecutor(count) as threads:
            for done in [threads.submit(run, spec) for spec in specs]:
                done.result()
        return Tally(sum(c.rows for c in counters), sum(c.check for c in counters))

    return read


def _run(session: rscylla.Session, table: str, store: CursorStore, consumer: Any) -> None:
    stream = rscylla.NewStream(session, KEYSPACE, table)
    with suppress(rscylla.HeadReached):
        rscylla.run(rscylla.Spec(stream, store, consumer, LAG, rscylla.StreamToHead()))
    store.close()


def memory(_session: rscylla.Session) -> CursorStore:
    return MemoryCursorStore()


def buffered(session: rscylla.Session) -> CursorStore:
    return BufferedCursorStore(ScyllaCursorStore(session, KEYSPACE, create=True))


def _fresh() -> str:
    """Return the name of a consumer that has no cursor yet."""
    return f"bench-{time.monotonic_ns()}"


def columns(session: rscylla.Session, table: str, kind: str) -> Tally:
    """Whole windows as Arrow record batches, as Spark reads them: every cell of the columns that are asked for."""
    rows = check = 0
    for batch in _arrow(session, table, {"count": ["cdc_operation"], "key": ["pk", "ck"]}.get(kind)):
        rows += batch.num_rows
        check += _check_of(batch, kind)
    return Tally(rows, check)


def in_windows(session: rscylla.Session, table: str, kind: str) -> Tally:
    """The loop with a consumer of whole windows, which makes a table of the rows of each, with all columns."""
    tally = Tally(0)

    def consume(window: Window, _run: rscylla.Run) -> None:
        nonlocal tally
        rows = window.to_arrow("log")
        tally = Tally(tally.rows + rows.num_rows, tally.check + _check_of(rows, kind))

    _run(session, table, memory(session), rscylla.windows(_fresh(), consume))
    return tally


def _check_of(rows: Any, kind: str) -> int:
    """Return the check of a table or record batch; see ``Tally``."""
    if kind == "key":
        import pyarrow.compute as pc

        return int(pc.sum(rows.column("ck")).as_py())
    if kind == "count":
        return 0
    return sum(
        rows.num_rows - column.null_count
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
        if not name.startswith("cdc_")
    )


def _arrow(session: rscylla.Session, table: str, names: Sequence[str] | None) -> Iterator[Any]:
    """Yield record batches of these columns, None for all."""
    from rscylla.cdc.arrow.batches import ROWS_A_BATCH, in_batches, view_for
    from rscylla.cdc.log import Generation, windows_between
    from rscylla.cdc.read.span import Span, SpanReader
    from rscylla.cdc.rows import new_rows
    from rscylla.clock import Stop, SystemClock

    source = rscylla.NewStream(session, KEYSPACE, table).describe()
    log = ReadSession(session, consistency=consistency_named("ONE"))
    end_us = source.node_clocks.slowest_us()
    for window in windows_between(source.generations, source.generations[0].start_us, end_us):
        streams = source.streams(Generation(window.generation))
        span = Span(source.table, window, streams, b"")
        reader = SpanReader(log, span, clock=SystemClock(), limits=rscylla.Limits(), stop=Stop())
        views: dict[Any, Any] = {}
        for pages in reader.windows():
            layout = reader.layout_of(pages[0])
            view = views.get(layout) or views.setdefault(layout, view_for("log", layout))
            rows = new_rows()
            for page in pages:
                rows = rows.add(page, reader.layout_of(page))
                if len(rows) >= ROWS_A_BATCH:
                    yield from in_batches(view, [rows], names or view.schema.names)
                    rows = new_rows()
            if rows:
                yield from in_batches(view, [rows], names or view.schema.names)


READERS: dict[str, Reader] = {
    "driver": Reader(by_driver, of_changes=False),
    "pages": Reader(raw_pages, ("count",), of_changes=False),
    "events": Reader(events, (*KINDS, "id")),
    "run": Reader(in_loop(memory)),
    "run-scylla": Reader(in_loop(buffered)),
    "batch": Reader(in_batches),
    "windows": Reader(in_windows, of_changes=False),
    "slices": Reader(in_slices(2)),
    "slices-64": Reader(in_slices(64)),
    "arrow": Reader(columns, of_changes=False),
}


def follow(session: rscylla.Session, table: str, settings: str, seconds: float) -> list[float]:
    """Follow a log from its head with ``run``; return how many milliseconds after it was written each row came.

    Args:
        settings: milliseconds to stay behind, and between polls if that is not 0; as for the other programs.
    """
    lag_ms, pause_ms = map(int, settings.split(":"))
    delays: list[float] = []

    def consume(event: rscylla.Event, _run: rscylla.Run) -> None:
        now_us = time.time_ns() // 1000
        change = event.change
        assert change is not None
        assert change.after is not None
        delays.append((now_us - change.after["n"]) / 1e3)

    poll = {"poll": timedelta(milliseconds=pause_ms)} if pause_ms else {}
    stream = rscylla.NewStream(session, KEYSPACE, table, **poll)
    until = rscylla.StreamUntil(datetime.now(UTC) + timedelta(seconds=seconds, milliseconds=-lag_ms))
    lag, consumer = rscylla.StreamLag(milliseconds=lag_ms), rscylla.Consumer(_fresh(), consume)
    with suppress(rscylla.HeadReached):
        rscylla.run(rscylla.Spec(stream, memory(session), consumer, lag, rscylla.StreamFromHead(), until))
    return delays


def main() -> None:
    name, host, port, _keyspace = sys.argv[1:]
    reader = READERS[name]
    session = rscylla.connect([f"{host}:{port}"])
    try:
        for line in sys.stdin:
            table, kind, amount, _since = line.split()
            if kind.startswith("follow:"):
                delays = follow(session, table, kind.removeprefix("follow:"), float(amount))
                print(json.dumps({"delays_ms": delays}), flush=True)
                continue
            began, cpu = time.perf_counter(), time.process_time()
            tally = reader.read(session, table, kind)
            cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - began
            answer = {"rows": tally.rows, "check": tally.check, "cpu_s": cpu_s, "wall_s": wall_s}
            print(json.dumps(answer), flush=True)
    finally:
        session.cluster.shutdown()


if __name__ == "__main__":
    main()
