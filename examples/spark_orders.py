"""Spark keeps a table of Parquet files up to date with a table of an embedded Scylla, and compares the two.

    python examples/spark_orders.py

Orders are written for ten seconds, and halfway a node joins, which starts a new generation of streams.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.embedded import EmbeddedScyllaProcess
from rscylla.spark import ParquetTable, ensure_java, register, spark_errors, windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYSPACE, TABLE, CONSUMER = "shop", "orders", "lake"

_CREATE = f"""
CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}};
CREATE TABLE {KEYSPACE}.{TABLE} (id int PRIMARY KEY, status text, amount int, items map<text, int>)
    WITH cdc = {{'enabled': true}}
"""

_ORDERS = 300

_LAG = rscylla.StreamLag(milliseconds=500)
"""Safe here, because the reader uses the clock that stamps all rows; on a cluster, use 30 s or more."""

_TIME_LIMIT_S = 600.0


@attrs.define
class Progress:
    """How far it is. Written by the threads that work, read by the one that shows it."""

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


def keep_table(events: int, seed: int | None, stop: rscylla.Stop, *, as_json: bool) -> bool:
    """Write, follow, and compare; return whether the tables are equal.

    Raises:
        ConfigError: Java is missing.
        Stopped: a signal arrived.
        RscyllaError: it took too long, or Spark failed.
    """
    ensure_java()
    seed = random.SystemRandom().getrandbits(31) if seed is None else seed
    progress = Progress(events)
    with EmbeddedScyllaProcess(seed=seed) as scylla:
        _shown(_Work(scylla, progress, seed, stop).run, progress, as_json=as_json)
    stop.check()
    return _conclude(progress, seed, as_json=as_json)


# ---------------------------------------------------------------- the work


@contextmanager
def local_spark() -> Iterator[SparkSession]:
    """Start Spark in this process, on loopback, without its web page and messages; stop it at the end of the block."""
    from pyspark.sql import SparkSession

    loopback = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.master("local[2]").appName("orders").config(map=loopback | quiet).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        register(spark)  # Spark does not find it in an editable install
        yield spark
    finally:
        spark.stop()


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
        progress = self._progress
        session = rscylla.connect(self._scylla.contact_points, port=self._scylla.port)
        session.use_client_timestamp = False  # the server stamps writes, so none can arrive behind the reader
        try:
            for cql in _CREATE.split(";"):
                session.execute(cql)
            with (
                spark_errors(),
                local_spark() as spark,
                tempfile.TemporaryDirectory(prefix="orders-") as directory,
            ):
                writer = threading.Thread(target=self._write, args=(session,), name="writer", daemon=True)
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
        except BaseException as e:  # noqa: BLE001 - raised by the thread that follows
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
                        f"this did not end within {_TIME_LIMIT_S:g} s; run it on a less busy machine"
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

    threading.Thread(target=run, name="work", daemon=True).start()
    if not as_json:
        print(
            f"{progress.events} changes to {_ORDERS} orders in Scylla; Spark reads their CDC log window by window "
            "and keeps a table of Parquet files up to date. Halfway, a node joins."
        )
    ended = False
    while not ended:
        ended = done.wait(1.0)
        numbers = progress.numbers()
        text = "  ".join([progress.phase, *(f"{name} {value}" for name, value in numbers.items())])
        print(json.dumps({"progress": {"phase": progress.phase, **numbers}}) if as_json else text, flush=True)
    if failures:
        raise failures[0]


def _conclude(progress: Progress, seed: int, *, as_json: bool) -> bool:
    """Show the verdict; return whether nothing is lost or different."""
    lost = progress.written - progress.applied
    if as_json:
        print(json.dumps({**progress.numbers(), "lost": lost}))
    good = not lost and not progress.different and progress.written == progress.events
    if good and not as_json:
        print(
            f"{progress.applied} changes in {progress.windows} windows of {progress.generations} generations: "
            f"all {progress.rows} rows of the Spark table match the Scylla table (seed {seed})"
        )
    if not good:
        print(f"error: {lost} changes were lost and {progress.different} rows differ (seed {seed})", file=sys.stderr)
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description="Let Spark keep a table up to date with a table of Scylla.")
    parser.add_argument("--events", type=int, default=8_000, metavar="N", help="number of changes to write")
    parser.add_argument("--seed", type=int, help="write the orders of this seed; default: a random one")
    parser.add_argument("--json", action="store_true", help="show progress and verdict as JSON")
    arguments = parser.parse_args()
    # A node joins on purpose, and a short lag is safe here.
    logging.getLogger("rscylla").setLevel(logging.ERROR)
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)
    stop = rscylla.Stop()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        sys.exit(not keep_table(arguments.events, arguments.seed, stop, as_json=arguments.json))
    except rscylla.RscyllaError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
