"""``rscylla demo --spark``: Spark keeps a table up to date with a table of Scylla, and shows the progress."""

from __future__ import annotations

import random
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs

import rscylla
from cursorstore import ScyllaCursorStore

from ..shared.common import Exit, stopping
from ..shared.output import json_line
from ..shared.standard import say, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rscylla.embedded import EmbeddedScyllaProcess

__all__ = ["demo_spark"]

KEYSPACE, TABLE, CONSUMER = "shop", "orders", "lake"

_CREATE = f"""
CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}};
CREATE TABLE {KEYSPACE}.{TABLE} (id int PRIMARY KEY, status text, amount int, items map<text, int>)
    WITH cdc = {{'enabled': true}}
"""

_ORDERS = 300

_LAG = rscylla.StreamLag(milliseconds=500)
"""Safe here, because the reader uses the clock that stamps all rows; on a cluster, use 30 s or more."""

_TIME_LIMIT_S = 600.0


@attrs.define
class Progress:
    """How far the demo is. Written by its threads, read by the one that shows it."""

    events: int
    phase: str = "starting Spark"
    written: int = 0
    applied: int = 0
    windows: int = 0
    rows: int = 0
    different: int = 0
    generations: int = 0
    nodes: int = 1

    def numbers(self) -> dict[str, Any]:
        return attrs.asdict(self, filter=lambda a, _: a.name not in ("events", "phase"))


def demo_spark(events: int, seed: int | None, *, as_json: bool) -> int:
    """Run the demo and return the exit code.

    Raises:
        ConfigError: pyspark or Java is missing.
        Stopped: a signal arrived.
        RscyllaError: it took too long, or Spark failed.
    """
    from rscylla.spark import check_spark

    check_spark()
    from rscylla.embedded import EmbeddedScyllaProcess

    seed = random.SystemRandom().getrandbits(31) if seed is None else seed
    progress = Progress(events)
    with stopping() as stop, EmbeddedScyllaProcess(seed=seed) as scylla:
        _shown(lambda: _Work(scylla, progress, seed, stop).run(), progress, as_json=as_json)
    stop.check()
    return _conclude(progress, seed, as_json=as_json)


# ---------------------------------------------------------------- the work


class _Work:
    """Writes orders, and follows them with Spark, window by window."""

    def __init__(self, scylla: EmbeddedScyllaProcess, progress: Progress, seed: int, stop: rscylla.Stop) -> None:
        self._scylla = scylla
        self._progress = progress
        self._random = random.Random(seed)
        self._stop = stop
        self._clock = rscylla.SystemClock()
        self._written = rscylla.Stop()
        self._failures: list[BaseException] = []

    def run(self) -> None:
        from rscylla.spark import local_spark, spark_errors

        progress = self._progress
        session = rscylla.connect(self._scylla.contact_points, port=self._scylla.port)
        session.use_client_timestamp = False  # the server stamps writes, so none can arrive behind the reader
        try:
            for cql in _CREATE.split(";"):
                session.execute(cql)
            with (
                spark_errors(),
                local_spark("rscylla-demo") as spark,
                tempfile.TemporaryDirectory(prefix="rscylla-demo-") as directory,
            ):
                writer = threading.Thread(target=self._write, args=(session,), name="rscylla-demo-writer", daemon=True)
                writer.start()
                table = self._follow(spark, session, f"{directory}/orders")
                writer.join()
                if self._failures:
                    raise self._failures[0]
                if self._stop.is_set():
                    return
                progress.phase = "comparing"
                progress.different, progress.rows = _compared(table.rows().collect(), session)
                progress.phase = "done"
        finally:
            session.cluster.shutdown()

    def _write(self, session: rscylla.Session) -> None:
        try:
            self._write_all(session)
        except BaseException as e:  # noqa: BLE001 - raised by the thread that runs the demo
            self._failures.append(e)
        finally:
            self._written.set()

    def _write_all(self, session: rscylla.Session) -> None:
        """Write for about ten seconds. Halfway, add a node, which starts a new generation of streams."""
        rng, events = self._random, self._progress.events
        name = f"{KEYSPACE}.{TABLE}"
        insert = session.prepare(f"INSERT INTO {name} (id, status, amount, items) VALUES (?, 'new', ?, ?)")
        update = session.prepare(f"UPDATE {name} SET status = ?, items = items + ? WHERE id = ?")
        delete = session.prepare(f"DELETE FROM {name} WHERE id = ?")
        began = joined = self._clock.monotonic()
        for number in range(events):
            ahead = began + 10.0 * number / events - self._clock.monotonic()
            if ahead > 0 and self._clock.wait(self._stop, ahead):
                return
            if number == events // 2:
                self._scylla.add_node(timedelta(seconds=1))
                self._progress.nodes += 1
                joined = self._clock.monotonic()
            order = rng.randrange(_ORDERS)
            chance = rng.random()
            if chance < 0.3:
                session.execute(insert, (order, rng.randrange(1, 100), {"book": 1}))
            elif chance < 0.9:
                status = rng.choice(("paid", "packed", "shipped"))
                session.execute(update, (status, {rng.choice(("pen", "ink", "map")): rng.randrange(1, 9)}, order))
            else:
                session.execute(delete, (order,))
            self._progress.written = number + 1
        # The new generation must begin before the last window ends, however fast the writes were.
        self._clock.wait(self._stop, max(0.0, joined + 2.0 - self._clock.monotonic()))

    def _follow(self, spark: SparkSession, session: rscylla.Session, path: str) -> Any:
        """Apply each window to a table in files, until the table has all writes."""
        from rscylla.spark import ParquetTable, windows

        progress = self._progress
        stream = rscylla.NewStream(session, KEYSPACE, TABLE)
        store = ScyllaCursorStore(session, KEYSPACE, create=True)
        table = ParquetTable(spark, path)
        generations = set()
        deadline = self._clock.monotonic() + _TIME_LIMIT_S
        last = False
        while not last and not self._stop.is_set():
            last = self._written.is_set()  # then this round reads all remaining changes
            until = rscylla.StreamUntil(datetime.now(UTC))
            batches = windows(spark, stream, store, CONSUMER, _LAG, until, stop=self._stop)
            progress.phase = "following"
            for window, changes in batches:
                table.apply(changes, window)
                progress.applied += changes.count()
                progress.windows += 1
                generations.add(window.generation)
                progress.generations = len(generations)
                if self._clock.monotonic() > deadline:
                    raise rscylla.RscyllaError(
                        f"the demo did not end within {_TIME_LIMIT_S:g} s; run it on a less busy machine"
                    )
        return table


def _compared(rows: list[Any], session: rscylla.Session) -> tuple[int, int]:
    """Return how many rows of the table in files are wrong, missing, or extra, and how many rows it has."""
    ours = {r["id"]: (r["status"], r["amount"], r["items"]) for r in rows}
    found = session.execute(f"SELECT id, status, amount, items FROM {KEYSPACE}.{TABLE}")
    theirs = {id_: (status, amount, dict(items) if items else None) for id_, status, amount, items in found}
    return sum(ours.get(key) != theirs.get(key) for key in ours.keys() | theirs.keys()), len(ours)


# ---------------------------------------------------------------- while it runs


def _shown(work: Callable[[], None], progress: Progress, *, as_json: bool) -> None:
    """Do *work* in another thread; this one shows the progress and handles signals."""
    failures: list[BaseException] = []
    done = rscylla.Stop()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below, in the main thread
            failures.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="rscylla-demo", daemon=True).start()
    show, around = _display(progress, as_json=as_json)
    with around:
        while not done.wait(1.0):
            show()
        show()
    if failures:
        raise failures[0]


def _display(progress: Progress, *, as_json: bool) -> tuple[Callable[[], None], AbstractContextManager[Any]]:
    """Return a function that shows the progress, and a context manager to enter while it is used."""
    if as_json:
        return lambda: write(json_line({"progress": {"phase": progress.phase, **progress.numbers()}})), nullcontext()
    write(
        f"{progress.events} changes to {_ORDERS} orders in Scylla; Spark reads their CDC log window by window "
        "and keeps a table of Parquet files up to date. Halfway, a node joins."
    )
    if not sys.stdout.isatty():
        numbers = progress.numbers
        return lambda: write("  ".join([progress.phase, *(f"{k} {v}" for k, v in numbers().items())])), nullcontext()
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    bars = Bars(TextColumn("{task.description:24}"), BarColumn(50), MofNCompleteColumn())
    written = bars.add_task("written to Scylla", total=progress.events)
    applied = bars.add_task("in the table of Spark", total=progress.events)
    phase = bars.add_task("", total=None)

    def show() -> None:
        bars.update(written, completed=progress.written)
        bars.update(applied, completed=progress.applied)
        bars.update(phase, description=f"{progress.phase}, {progress.windows} windows", visible=True)

    return show, bars


def _conclude(progress: Progress, seed: int, *, as_json: bool) -> int:
    """Show the verdict; return the exit code."""
    lost = progress.written - progress.applied
    if as_json:
        write(json_line({**progress.numbers(), "lost": lost}))
    good = not lost and not progress.different and progress.written == progress.events
    if good:
        if not as_json:
            write(
                f"{progress.applied} changes in {progress.windows} windows of {progress.generations} generations: "
                f"all {progress.rows} rows of the Spark table match the Scylla table (seed {seed})"
            )
        return Exit.DONE
    say(f"error: {lost} changes were lost and {progress.different} rows differ (seed {seed})")
    return Exit.FAILED
