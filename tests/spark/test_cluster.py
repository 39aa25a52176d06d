"""A standalone cluster with two workers: what is killed in the middle, and that nothing is lost, and nothing twice.

RSCYLLA_SPARK_KILLS says how often the driver of each job is killed, once unless told.
"""

from __future__ import annotations

import json
import os
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import cluster_app
import pyarrow.parquet as pq
import pytest
from spark_oracle import events_of
from sparkapps import SparkApp, at, wait_until
from sparkcluster import SparkCluster, spark_cluster

import rscylla
from rscylla._timeuuid import format_time
from rscylla.embedded import EmbeddedScyllaProcess

if TYPE_CHECKING:
    from subprocess import Popen

ROWS = 1_500
KILLS = int(os.environ.get("RSCYLLA_SPARK_KILLS", "1"))
WINDOWS = 2 * KILLS + 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@attrs.frozen
class Shop:
    """A table ``t`` with changes, an empty one ``copy`` of the same columns, and how to read the changes."""

    session: rscylla.Session
    keyspace: str
    events: list[rscylla.ChangeEvent]
    config: dict[str, Any]

    def rows(self, table: str) -> list[Any]:
        return sorted(self.session.execute(f"SELECT pk, ck, v, writetime(v) FROM {self.keyspace}.{table}"))


@pytest.fixture
def shop(session: rscylla.Session, vnodes: str, scylla_process: EmbeddedScyllaProcess) -> Shop:
    columns = "(pk int, ck int, v int, PRIMARY KEY (pk, ck))"
    session.execute(f"CREATE TABLE {vnodes}.t {columns} WITH cdc = {{'enabled': true}}")
    session.execute(f"CREATE TABLE {vnodes}.copy {columns}")
    return fill(session, vnodes, f"{scylla_process.contact_points[0]}:{scylla_process.port}")


def fill(session: rscylla.Session, keyspace: str, point: str) -> Shop:
    insert = session.prepare(f"INSERT INTO {keyspace}.t (pk, ck, v) VALUES (?, ?, ?)")
    for i in range(ROWS):
        session.execute(insert, (i % 40, i % 700, i))
    stream = rscylla.NewStream(session, keyspace, "t")
    events = events_of(stream)
    first, last = events[0].timestamp_us, events[-1].timestamp_us
    span = f"{(last - first) // WINDOWS + 1}us"
    start, until = format_time(first), format_time(last + 1)
    source = {"contactPoints": point, "keyspace": keyspace, "table": "t", "lag": "0s", "parallelism": "4"}
    config = {
        "source": source,
        "stream": {
            "windowSpan": span,
            "maxWindowsPerTrigger": "1",
            "startingPosition": start,
            "endingPosition": until,
        },
        "sink": {"contactPoints": point, "keyspace": keyspace, "table": "copy"},
        "span": span,
        "from": str(stream.describe().at(first)),
        "until": until,
    }
    return Shop(session, keyspace, events, config)


def application(shop: Shop, master: str, home: Path, *jobs: str) -> tuple[SparkApp, Path, Path]:
    """Return the application of ``cluster_app``, the directory of what it writes, and that of its strikes."""
    out, strikes = home / "out", home / "strikes"
    out.mkdir()
    strikes.mkdir()
    places = {"out": str(out), "strikes": str(strikes), "master": master, "jobs": jobs}
    (home / "config").write_text(json.dumps({**shop.config, **places}))
    app = SparkApp(cluster_app.__file__, str(home / "config"), evidence=home / "evidence")
    return app, out, strikes


def column(directory: Path, name: str) -> list[Any]:
    """Return what committed files hold."""
    return pq.read_table(directory).column(name).to_pylist()


def committed(directory: Path) -> Counter[Any]:
    """Return the ids in the files that a streaming query has committed; others may be left by attempts that died."""
    found: Counter[Any] = Counter()
    for log in sorted((directory / "_spark_metadata").glob("[0-9]*")):
        for line in log.read_text().splitlines()[1:]:
            found.update(pq.read_table(json.loads(line)["path"].removeprefix("file://")).column("id").to_pylist())
    return found


def check(shop: Shop, out: Path, jobs: tuple[str, ...]) -> None:
    """Check that what the jobs wrote has each change once."""
    ids = [rscylla.EventID.parse(e.id) for e in shop.events]
    if "batches" in jobs:
        assert Counter(column(out / "events", "id")) == Counter(e.id for e in shop.events)
        assert Counter(column(out / "changes", "cdc_sequence")) == Counter(i.position for i in ids)
        times = Counter(str(uuid.UUID(bytes=i.stream_time)) for i in ids)
        assert Counter(column(out / "log", "cdc_time")) == times
    if "stream" in jobs:
        assert committed(out / "stream") == Counter(e.id for e in shop.events)
    if "copy" in jobs:
        assert shop.rows("copy") == shop.rows("t")
    if "table" in jobs:
        manifest = json.loads((out / "table" / "_rscylla.json").read_text())
        rows = pq.read_table(out / "table" / f"v{manifest['version']:08d}" / "rows").to_pylist()
        assert sorted((r["pk"], r["ck"], r["v"]) for r in rows) == [row[:3] for row in shop.rows("t")]


Step = tuple[Callable[[], object], Callable[[], object]]


def play(app: SparkApp, running: Popen[bytes], steps: list[Step]) -> None:
    """Do each step when its time has come, one after the other, while the application runs; then wait for its end."""
    for number, (ready, act) in enumerate(steps):

        def now(ready: Callable[[], object] = ready, number: int = number) -> object:
            assert running.poll() is None, app.evidently(f"it ended before step {number}")
            return ready()

        wait_until(now, lambda n=number: app.evidently(f"step {n} does not come"))
        act()
    wait_until(lambda: running.poll() is not None, lambda: app.evidently("it does not end"))
    assert running.returncode == 0, app.evidently(f"it ended with code {running.returncode}")


JOBS = ("batches", "stream", "copy", "table")


def test_executors_workers_and_the_master_are_killed_in_the_middle(
    cluster: SparkCluster, shop: Shop, tmp_path: Path
) -> None:
    app, out, strikes = application(shop, cluster.master, tmp_path, *JOBS)
    first, second = cluster.hosts

    def arm(name: str) -> None:
        (strikes / f"{name}.armed").touch()

    def struck(name: str) -> bool:
        return (strikes / f"{name}.done").exists()

    def worker_returns() -> None:
        """Start the worker that was killed by its task again."""
        wait_until(lambda: not (cluster.runs(first) and cluster.runs(second)), "no worker was killed")
        for number, host in enumerate(cluster.hosts):
            if not cluster.runs(host):
                cluster.kill(host)  # what is left of its session
                cluster.start_worker(number)

    def master_returns() -> None:
        cluster.kill("master")
        cluster.start_master()

    def batches_in(name: str) -> int:
        return len(list((out / f"{name}-checkpoint" / "commits").glob("[0-9]*")))

    def kill_executor() -> None:
        # There may be none just now: one that was killed is being replaced.
        wait_until(lambda: cluster.kill_executor(first) or cluster.kill_executor(second), "there is no executor")

    steps: list[Step] = [
        (lambda: struck("executor 1"), lambda: arm("python 2")),  # in mode events, each after half of a batch
        (lambda: struck("python 2"), lambda: arm("worker 3")),
        (lambda: struck("worker 3"), worker_returns),
        (lambda: (out / "log" / "_SUCCESS").exists(), lambda: arm("executor 4")),  # in the streaming query
        (lambda: struck("executor 4") and batches_in("stream") >= 2, master_returns),
        (lambda: batches_in("copy") >= 1, kill_executor),
        (lambda: (out / "table" / "_rscylla.json").exists(), kill_executor),
    ]
    arm("executor 1")
    with app.running() as running:
        play(app, running, steps)
    check(shop, out, JOBS)


@pytest.mark.timeout(3600)
def test_a_driver_is_killed_again_and_again(cluster: SparkCluster, shop: Shop, tmp_path: Path) -> None:
    dice = random.Random(16)
    for job, moment in (("copy", at("written", nth=(1, 2))), ("table", at("applied", nth=(1, 2)))):
        home = tmp_path / job
        home.mkdir()
        app, out, _ = application(shop, cluster.master, home, job)
        assert app.run_until_done(dice, kills=KILLS, moments=[moment]).total() == KILLS
        check(shop, out, (job,))


def test_a_local_cluster_retries_a_task_that_died_after_half_its_rows(shop: Shop, tmp_path: Path) -> None:
    jobs = ("batches",)
    app, out, strikes = application(shop, "local-cluster[2,1,600]", tmp_path, *jobs)
    (strikes / "executor.armed").touch()
    app.run()
    assert (strikes / "executor.done").exists()
    check(shop, out, jobs)
