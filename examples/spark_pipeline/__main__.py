"""From orders in Scylla to current state, aggregates and a picture, through CDC and Spark.

python examples/spark_pipeline --embedded --out /tmp/orders
python examples/spark_pipeline --host 10.0.0.1 --out /tmp/orders

An hour of orders is read window by window. Of each window the changes are merged into a Parquet table of current
orders, and counted by minute. Both steps may be repeated after a crash: the table knows which windows it has, and the
counts of a window overwrite themselves.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.spark import ParquetTable, ensure_java, register, windows

TABLE = (
    "CREATE TABLE IF NOT EXISTS shop.orders (id int PRIMARY KEY, status text, amount int, items map<text, int>) "
    "WITH cdc = {'enabled': true}"
)
COUNTS = "minute timestamp, created bigint, revenue bigint, cancelled bigint"


# ---------------------------------------------------------------- the pipeline


def per_minute(changes: DataFrame) -> DataFrame:
    """Return what happened in each minute: orders created, what was paid for, orders cancelled."""
    created = F.col("cdc_operation") == "insert"
    paid = F.array_contains("cdc_touched", "status") & (F.col("cdc_values.status") == "paid")
    return changes.groupBy(F.date_trunc("minute", "cdc_timestamp").alias("minute")).agg(
        F.count(F.when(created, 1)).alias("created"),
        F.coalesce(F.sum(F.when(paid, F.col("cdc_values.amount"))), F.lit(0)).alias("revenue"),
        F.count(F.when(F.col("cdc_operation").endswith("delete"), 1)).alias("cancelled"),
    )


def pipeline(spark: SparkSession, session: rscylla.Session, out: Path, lag: rscylla.StreamLag) -> int:
    """Bring the tables in *out* up to date, and return how many windows that took."""
    stream = rscylla.NewStream(session, "shop", "orders")
    store = ScyllaCursorStore(session, "shop", create=True)
    orders = ParquetTable(spark, str(out / "orders"))
    done = 0
    to_head = rscylla.StreamToHead()
    for window, changes in windows(spark, stream, store, "lake", lag, to_head, longest=timedelta(minutes=15)):
        orders.apply(changes, window)
        per_minute(changes).coalesce(1).write.mode("overwrite").parquet(
            str(out / "per_minute" / f"window={window.start_name}")
        )
        sys.stderr.write(f"{window.start_time:%H:%M:%S} to {window.end_time:%H:%M:%S}\n")
        done += 1
    return done


def picture(spark: SparkSession, out: Path) -> None:
    """Draw what the two tables hold to ``orders.png``."""
    counts = spark.read.schema(COUNTS).parquet(str(out / "per_minute"))
    # Two windows may share a minute.
    minutes = counts.groupBy("minute").agg(*(F.sum(n).alias(n) for n in ("created", "revenue", "cancelled")))
    states = ParquetTable(spark, str(out / "orders")).rows().groupBy("status").count().orderBy("status")
    draw(minutes.orderBy("minute").collect(), states.collect(), out / "orders.png")


def draw(minutes: Sequence[Row], states: Sequence[Row], path: Path) -> None:
    """Draw orders and revenue by minute, and how many orders are in which state."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.dates as mdates
    import matplotlib.pyplot as plt

    figure, axes = plt.subplot_mosaic(
        [["orders", "now"], ["revenue", "now"]], figsize=(11, 5), width_ratios=(3, 1), layout="constrained"
    )
    # Spark gives times without a zone: those of this machine.
    times, width = [r["minute"].astimezone(UTC) for r in minutes], timedelta(seconds=50)
    orders, revenue, now = axes["orders"], axes["revenue"], axes["now"]
    orders.bar(times, [r["created"] for r in minutes], width, label="created", color="#4c78a8")
    orders.bar(times, [-r["cancelled"] for r in minutes], width, label="cancelled", color="#e45756")
    orders.axhline(0, color="black", linewidth=0.8)
    orders.margins(y=0.25)
    orders.legend(loc="upper left", ncols=2, frameon=False)
    orders.set(title="Orders by minute", ylabel="orders/min")
    revenue.bar(times, [r["revenue"] for r in minutes], width, color="#f58518")
    revenue.set(title="Revenue by minute", xlabel="time of day (UTC)", ylabel="€/min")
    revenue.sharex(orders)
    revenue.xaxis.set_major_formatter(mdates.DateFormatter("%H:%M", tz=UTC))
    orders.tick_params(labelbottom=False)
    now.bar_label(now.bar([r["status"] for r in states], [r["count"] for r in states], color="#72b7b2"))
    now.set(title="Orders at the end", xlabel="status", ylabel="orders")
    figure.savefig(path, dpi=120)
    plt.close(figure)


# ---------------------------------------------------------------- something to read


class LateClock:
    """The machine's clock, set back by some time, which can be made up for."""

    def __init__(self, behind: timedelta) -> None:
        self._clock = rscylla.SystemClock()
        self._behind_us = behind // timedelta(microseconds=1)

    def now_us(self) -> int:
        return self._clock.now_us() - self._behind_us

    def advance(self, seconds: float) -> None:
        self._behind_us = max(0, self._behind_us - int(seconds * 1_000_000))

    def catch_up(self) -> None:
        self._behind_us = 0


@contextmanager
def embedded_shop(orders: int) -> Iterator[rscylla.Session]:
    """Start a server whose clock was set back by an hour, and let that hour of orders pass."""
    from rscylla.embedded import EmbeddedScylla

    clock = LateClock(timedelta(hours=1))
    with EmbeddedScylla(clock=clock) as scylla:
        session = scylla.connect()
        session.use_client_timestamp = False  # the server's clock stamps the rows
        session.execute(
            "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        session.execute(TABLE)
        clock.advance(60)
        rng = random.Random(4)
        insert = session.prepare("INSERT INTO shop.orders (id, status, amount, items) VALUES (?, 'new', ?, ?)")
        pay = session.prepare("UPDATE shop.orders SET status = 'paid', amount = ? WHERE id = ?")
        ship = session.prepare("UPDATE shop.orders SET status = 'shipped' WHERE id = ?")
        cancel = session.prepare("DELETE FROM shop.orders WHERE id = ?")
        amounts = [rng.randrange(5, 200) for _ in range(orders)]
        todo = [(rng.betavariate(2, 1.5) * 3400, "new", i) for i in range(orders)]
        for at, _, i in list(todo):
            later = [at + rng.uniform(20, 300), at + rng.uniform(300, 1500)]
            kinds = ("cancel",) if rng.random() < 0.15 else ("pay", "ship")
            todo += [(t, kind, i) for t, kind in zip(later, kinds, strict=False) if t < 3500]
        passed = 0.0
        for at, kind, i in sorted(todo):
            clock.advance(at - passed)
            passed = at
            if kind == "new":
                session.execute(insert, (i, amounts[i], {f"part-{rng.randrange(9)}": rng.randrange(1, 4)}))
            elif kind == "pay":
                session.execute(pay, (amounts[i], i))
            else:
                session.execute(ship if kind == "ship" else cancel, (i,))
        clock.catch_up()
        yield session


@contextmanager
def cluster(hosts: list[str]) -> Iterator[rscylla.Session]:
    session = rscylla.connect(hosts)
    try:
        yield session
    finally:
        session.cluster.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--host", action="append", help="contact point, host or host:port; may be repeated")
    where.add_argument("--embedded", action="store_true", help="start an embedded server with an hour of orders")
    parser.add_argument("--out", type=Path, required=True, help="directory for the tables and the picture")
    parser.add_argument("--orders", type=int, default=600, help="how many orders the embedded server has")
    args = parser.parse_args()
    lag = rscylla.StreamLag(seconds=30)
    ensure_java()
    builder = SparkSession.builder.master("local[2]").appName("orders").config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)  # Spark does not find the source in an editable install
    with embedded_shop(args.orders) if args.embedded else cluster(args.host) as session:
        done = pipeline(spark, session, args.out, lag)
    picture(spark, args.out)
    now = ParquetTable(spark, str(args.out / "orders")).rows()
    sys.stdout.write(f"{done} windows, {now.count()} orders now, see {args.out / 'orders.png'}\n")
    spark.stop()


if __name__ == "__main__":
    main()
