# %% [markdown]
# # An hour of orders, without Spark
#
# The changes of a table as windows of Arrow record batches, in Polars and DuckDB. This page is
# `examples/orders_analysis.py`, a script in cells: open it as a notebook in VS Code, Spyder, or JupyterLab (with
# Jupytext), or run it whole.
#
# ```sh
# pip install -e ".[cli,arrow]" duckdb matplotlib polars
# python examples/orders_analysis.py
# ```
#
# An embedded server on a driven clock has the hour: orders are placed, most are paid and shipped, some are cancelled.
# On a cluster, this cell is `session = rscylla.connect(["10.0.0.1"])`.

# %%
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import matplotlib as mpl
import polars as pl
from matplotlib import style

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.embedded import EmbeddedScylla
from rscylla.testing import ManualClock

clock = ManualClock(datetime(2026, 11, 23, 9, tzinfo=UTC))
scylla = EmbeddedScylla(clock=clock).start()
session = scylla.connect()
session.use_client_timestamp = False  # the server's clock stamps the changes
session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, status text, euros int) WITH cdc = {'enabled': true}")

dice = random.Random(4)
steps = []
for order in range(600):
    placed, euros = 3400 * dice.betavariate(2, 1.5), round(5 + dice.expovariate(1 / 40))
    steps.append((placed, f"INSERT INTO shop.orders (id, status, euros) VALUES ({order}, 'new', {euros})"))
    if dice.random() < 0.15:
        steps.append((placed + dice.uniform(20, 300), f"DELETE FROM shop.orders WHERE id = {order}"))
        continue
    paid = placed + 20 + dice.expovariate(1 / 90)
    steps.append((paid, f"UPDATE shop.orders SET status = 'paid' WHERE id = {order}"))
    steps.append((paid + dice.uniform(200, 1200), f"UPDATE shop.orders SET status = 'shipped' WHERE id = {order}"))
passed = 0.0
for at, statement in sorted(steps):
    if at < 3570:
        clock.advance(at - passed)
        session.execute(statement)
        passed = at
clock.advance(3600 - passed)

# %% [markdown]
# ## Windows
#
# Each window is complete: its rows do not change any more. The cursor is saved in the cluster when the loop asks for
# the next window, so running the cell of the loop again adds only what has come since. A window may come twice after a
# crash; its start is the same, so the loop deletes its rows first. Keep the database in a file,
# `duckdb.connect("orders.duckdb")`, if the notebook is to continue where it was.

# %%
database = duckdb.connect()
database.sql("CREATE TABLE steps (part TEXT, id INT, moment TIMESTAMPTZ, operation TEXT, status TEXT, euros INT)")

# %%
stream = rscylla.NewStream(session, "shop", "orders", clock=clock)
store = ScyllaCursorStore(session, "shop", create=True)
lag, head, most = rscylla.StreamLag(seconds=30), rscylla.StreamToHead(), timedelta(minutes=15)
loop = rscylla.windows_as_arrow(stream, store, "analysis", lag, head, longest=most)
for window, changes in loop:  # noqa: B007 - DuckDB finds it by its name
    database.execute("DELETE FROM steps WHERE part = $1", [window.start_name])
    database.execute(
        """
        INSERT INTO steps SELECT $1, id, cdc_timestamp, cdc_operation, cdc_values.status, cdc_values.euros FROM changes
        """,
        [window.start_name],
    )
    [(rows,)] = database.execute("SELECT count(*) FROM steps WHERE part = $1", [window.start_name]).fetchall()
    print(f"{window.start_time:%H:%M:%S} to {window.end_time:%H:%M:%S} UTC: {rows} changes")

# %% [markdown]
# ## Questions
#
# DuckDB asks for one row an order, and Polars takes the answer as Arrow.

# %%
orders = database.sql("""
    SELECT id, max(euros) AS euros, min(moment) AS placed, min(moment) FILTER (status = 'paid') AS paid,
           CASE WHEN bool_or(operation LIKE '%delete') THEN 'cancelled' ELSE arg_max(status, moment) END AS status
    FROM steps GROUP BY id ORDER BY id
""").pl()
states = orders.group_by("status").agg(orders=pl.len(), euros=pl.col("euros").sum()).sort("status")
for status, count, euros in states.iter_rows():
    print(f"{status:<10}{count:>5} orders{euros:>8} €")

minutes = (
    orders.group_by(minute=pl.col("placed").dt.convert_time_zone("UTC").dt.truncate("2m"))
    .agg(orders=pl.len() / 2, euros=pl.col("euros").filter(pl.col("paid").is_not_null()).sum() / 2)
    .sort("minute")
)
waits = orders.select(((pl.col("paid") - pl.col("placed")).dt.total_seconds() / 60).alias("wait")).drop_nulls()
print(f"half of the orders are paid within {waits['wait'].median():.1f} min")

# %% [markdown]
# ## Plots


# %%
def draw(path: Path) -> None:
    """Draw the orders and their revenue by time, how long payments take, and the orders by status."""
    from matplotlib import dates
    from matplotlib import pyplot as plt

    figure, axes = plt.subplot_mosaic(
        [["orders", "waits"], ["revenue", "states"]], figsize=(10, 5.4), width_ratios=(3, 2), layout="constrained"
    )
    times = minutes["minute"].to_list()
    axes["orders"].bar(times, minutes["orders"], timedelta(seconds=110), align="edge", color="#4c78a8")
    axes["orders"].set(title="Orders placed", ylabel="orders/min", xlabel="time of day (UTC)")
    axes["revenue"].bar(times, minutes["euros"], timedelta(seconds=110), align="edge", color="#f58518")
    axes["revenue"].set(title="Revenue, by when the order was placed", ylabel="€/min", xlabel="time of day (UTC)")
    for name in ("orders", "revenue"):
        axes[name].xaxis.set_major_formatter(dates.DateFormatter("%H:%M", tz=UTC))
    axes["waits"].hist(waits["wait"], bins=[n / 2 for n in range(17)], color="#54a24b")
    axes["waits"].set(title="From the order to its payment", xlabel="time (min)", ylabel="orders")
    bars = axes["states"].barh(states["status"], states["orders"], color="#b279a2")
    axes["states"].bar_label(bars, padding=3)
    axes["states"].margins(x=0.12)
    axes["states"].set(title="Orders at the end of the hour", xlabel="orders", ylabel="status")
    figure.savefig(path, dpi=80)
    plt.close(figure)


mpl.use("Agg")  # no window: the plots go to files in the current directory
for theme, name in (("light", "default"), ("dark", "dark_background")):
    with style.context(name):
        draw(Path(f"orders-analysis-{theme}.png"))

# %% [markdown]
# ![Orders and revenue a minute; the minutes until payment; orders by status](orders-analysis-light.png)
#
# [The same in the dark](orders-analysis-dark.png).

# %%
scylla.stop()
