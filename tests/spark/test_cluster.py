"""A standalone cluster with two workers: what is killed in the middle, and that nothing is lost, and nothing twice.

RSCYLLA_SPARK_KILLS says how often the driver of each job is killed, once unless told. Also: an environment that is
shipped as an archive, and where secrets are found.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tarfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import cluster_app
import pyarrow.parquet as pq
import pyspark
import pytest
import trustme
from spark_oracle import events_of
from sparkapps import ALONE, SparkApp, at, quick_environment, wait_until
from sparkcluster import SparkCluster, spark_cluster

import rscylla
from rscylla._timeuuid import format_time
from rscylla.embedded import EmbeddedScyllaProcess, Tls

if TYPE_CHECKING:
    from subprocess import Popen

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "spark-cluster.md"

ROWS = 1_500
KILLS = int(os.environ.get("RSCYLLA_SPARK_KILLS", "1"))
WINDOWS = KILLS + 2


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
        "modes": ["events", "changes", "log"],
        "settings": {},
    }
    return Shop(session, keyspace, events, config)


def application(
    shop: Shop, master: str, home: Path, *jobs: str, environment: Mapping[str, str] | None = None
) -> tuple[SparkApp, Path, Path]:
    """Return the application of ``cluster_app``, the directory of what it writes, and that of strikes at its jobs."""
    out, strikes = home / "out", home / "strikes"
    out.mkdir()
    for job in jobs:
        (strikes / job).mkdir(parents=True)
    places = {"out": str(out), "strikes": str(strikes), "master": master, "jobs": jobs}
    (home / "config").write_text(json.dumps({**shop.config, **places}))
    app = SparkApp(cluster_app.__file__, str(home / "config"), evidence=home / "evidence", environment=environment)
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
        expected = {
            "events": ("id", [e.id for e in shop.events]),
            "changes": ("cdc_sequence", [i.position for i in ids]),
            "log": ("cdc_time", [str(uuid.UUID(bytes=i.stream_time)) for i in ids]),
        }
        for mode in shop.config["modes"]:
            name, values = expected[mode]
            assert Counter(column(out / mode, name)) == Counter(values), mode
    if "stream" in jobs:
        assert committed(out / "stream") == Counter(e.id for e in shop.events)
    if "copy" in jobs:
        assert shop.rows("copy") == shop.rows("t")
    if "table" in jobs:
        manifest = json.loads((out / "table" / "_rscylla.json").read_text())
        rows = pq.read_table(out / "table" / manifest["directory"] / "rows").to_pylist()
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
        (
            lambda: struck("batches/executor 1"),
            lambda: arm("batches/python 2"),
        ),  # in mode events, each after half of a batch
        (lambda: struck("batches/python 2"), lambda: arm("batches/worker 3")),
        (lambda: struck("batches/worker 3"), worker_returns),
        (lambda: (out / "log" / "_SUCCESS").exists(), lambda: arm("stream/executor 4")),  # in the streaming query
        (lambda: struck("stream/executor 4") and batches_in("stream") >= 2, master_returns),
        (lambda: batches_in("copy") >= 1, kill_executor),
        (lambda: (out / "table" / "_rscylla.json").exists(), kill_executor),
    ]
    arm("batches/executor 1")
    with app.running() as running:
        play(app, running, steps)
    check(shop, out, JOBS)


@pytest.mark.timeout(3600)
def test_a_driver_is_killed_while_slow_tasks_run_twice(cluster: SparkCluster, shop: Shop, tmp_path: Path) -> None:
    """It dies when a batch or a window is written, before that is noted; both attempts of a task write, too."""
    jobs = ("copy", "table")
    shop.config["settings"] = {"spark.speculation": "true", "spark.speculation.quantile": "0.1"}
    app, out, strikes = application(shop, cluster.master, tmp_path, *jobs)
    for job in jobs:
        (strikes / job / "slow.armed").touch()
    moments = [at("written", nth=(1, 2))] * KILLS + [at("applied", nth=(1, 2))] * KILLS
    found = app.run_until_done(random.Random(16), kills=len(moments), moments=moments, in_order=True)
    assert found == {"at written": KILLS, "at applied": KILLS}
    for job in jobs:
        assert (strikes / job / "slow.done").exists()
        assert (strikes / job / "again").exists()
    check(shop, out, jobs)


def test_a_local_cluster_retries_a_task_that_died_after_half_its_rows(shop: Shop, tmp_path: Path) -> None:
    jobs = ("batches",)
    shop.config["modes"] = ["changes"]
    app, out, strikes = application(shop, "local-cluster[2,1,600]", tmp_path, *jobs)
    (strikes / "batches" / "executor.armed").touch()
    app.run()
    assert (strikes / "batches" / "executor.done").exists()
    check(shop, out, jobs)


# ---------------------------------------------------------------- an archive

JOB = """
import json
from pathlib import Path
from pyspark.sql import SparkSession
from rscylla.spark import register

spark = SparkSession.builder.getOrCreate()
for prepare in (lambda spark: None, register):  # Spark finds the source by itself, then it is registered
    prepare(spark)
    frame = spark.read.format("scylla-cdc").options(**json.loads(Path("options").read_text())).load()
    print("rows:", frame.count())
spark.stop()
"""

PYTHON = """#!/bin/sh
echo "$0 in $PWD" >> '{log}'
exec '{python}' "$@"
"""
"""An interpreter that notes under which name it runs, and where."""


def archive_recipe(master: str) -> str:
    """Return the guide's commands for an archive that exists, and for the cluster of *master*."""
    block = re.search(r"^\*\*As an archive\*\*.*?^```sh\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    commands = re.sub(r"^conda .*\n", "", block[1], flags=re.MULTILINE)
    assert "spark://master:7077" in commands
    return commands.replace("spark://master:7077", master)


def test_an_environment_in_an_archive_reads_in_the_driver_and_in_the_executors(
    cluster: SparkCluster,
    session: rscylla.Session,
    vnodes: str,
    options: Callable[..., dict[str, str]],
    tmp_path: Path,
) -> None:
    """The guide's commands run. The archive has only an interpreter, which leads to the one of the tests."""
    session.execute(f"CREATE TABLE {vnodes}.t (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    session.execute(f"INSERT INTO {vnodes}.t (id) VALUES (1)")
    driver, path, conf, log = (tmp_path / name for name in ("driver", "path", "conf", "log"))
    for directory in (driver, path, conf):
        directory.mkdir()
    for name in ("python", "python3"):
        (path / name).write_text(PYTHON.format(log=log, python=sys.executable))
        (path / name).chmod(0o755)
    with tarfile.open(driver / "rscylla.tar.gz", "w:gz") as archive:
        archive.add(path / "python", "bin/python")
    (driver / "job.py").write_text(JOB)
    (driver / "options").write_text(json.dumps(options(vnodes, "t", parallelism=1)))
    settings = {**ALONE, "spark.executor.memory": "512m", "spark.cores.max": "1", "spark.log.level": "ERROR"}
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    environment = {name: value for name, value in quick_environment().items() if not name.startswith("PYSPARK_")}
    environment["SPARK_CONF_DIR"] = str(conf)
    environment["PATH"] = f"{path}:{Path(pyspark.__file__).parent / 'bin'}:{environment['PATH']}"
    # Spark finds no source in an editable install, but on the path.
    environment["PYTHONPATH"] += f":{Path(rscylla.__file__).parents[1]}"

    done = subprocess.run(
        ["bash", "-ec", archive_recipe(cluster.master)],
        cwd=driver,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.splitlines() == ["rows: 1"] * 2, done.stderr[-3000:]
    ran = [line.split(" in ") for line in log.read_text().splitlines()]
    assert {name for name, _ in ran} == {"./environment/bin/python"}
    beside = {directory for _, directory in ran if Path(directory) != driver}
    assert str(driver) in {directory for _, directory in ran}
    assert beside
    assert all(Path(directory).is_relative_to(cluster.home) for directory in beside)


# ---------------------------------------------------------------- secrets


def test_secrets_are_where_the_guide_says_and_nowhere_else(cluster: SparkCluster, tmp_path: Path) -> None:
    """Executors log in over mutual TLS, with an event log and logs of level INFO."""
    users = {name: f"{name}-{uuid.uuid4().hex}" for name in ("variable", "file", "option")}
    variables = {name: f"{name.lower()}-{uuid.uuid4().hex}" for name in ("SHOP_PASSWORD", "SHOP_LOGIN", "SHOP_PIN")}
    authority = trustme.CA()
    ca, cert, key, credentials = (tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem", "login.json"))
    authority.cert_pem.write_to_path(ca)
    leaf = authority.issue_cert("127.0.0.1")
    leaf.cert_chain_pems[0].write_to_path(cert)
    leaf.private_key_pem.write_to_path(key)
    credentials.write_text(json.dumps({"username": "file", "password": users["file"]}))
    events, conf = tmp_path / "events", tmp_path / "conf"
    events.mkdir()
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        f"spark.executorEnv.SCYLLA_PASSWORD {users['variable']}\n"
        "spark.redaction.regex (?i)secret|password|token|access[.]?key|credential|shop_login\n"
    )
    environment = {"SPARK_CONF_DIR": str(conf), "SCYLLA_PASSWORD": users["variable"], **variables}
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
        "spark.logConf": "true",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    }
    logins = {
        "variable": {"username": "variable", "passwordEnv": "SCYLLA_PASSWORD"},
        "file": {"credentialsFile": str(credentials)},
        "option": {"username": "option", "password": users["option"]},
    }
    with EmbeddedScyllaProcess(users=users, tls=Tls(cert, key, ca)) as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
        shop = fill(session, "ks", f"{scylla.contact_points[0]}:{scylla.port}")
        shop.config["source"] |= {"tlsCa": str(ca), "tlsCert": str(cert), "tlsKey": str(key)}
        shop.config["stream"]["maxWindowsPerTrigger"] = str(WINDOWS)
        shop.config.update(settings=settings, logins=logins, executor_env=list(variables))
        shop.config.update(pages=cluster.pages, recovery=str(cluster.recovery))
        app, out, _ = application(shop, cluster.master, tmp_path, "logins", "shown", environment=environment)
        app.run()
    for way in logins:
        assert Counter(column(out / f"batch-{way}", "id")) == Counter(e.id for e in shop.events)
    check(shop, out, ("stream",))

    shown = out / "shown"
    places = {place.name: list(place.iterdir()) for place in shown.iterdir()}
    places["event log"] = list(events.rglob("*"))
    places["driver's output"] = list(app.evidence.iterdir())
    places["executors' files"] = [p for d in cluster.home.glob("work-*") for p in d.rglob("*")]
    places["logs of master and workers"] = list(cluster.home.glob("*.log"))
    places["data and checkpoints"] = [p for p in out.rglob("*") if not p.is_relative_to(shown)]
    text = {place: b"".join(p.read_bytes() for p in found if p.is_file()) for place, found in places.items()}
    assert all(text.values())

    def holding(secret: str) -> set[str]:
        return {place for place, read in text.items() if secret.encode() in read}

    assert holding(key.read_text().splitlines()[1]) == set()
    assert {name: holding(secret) for name, secret in {**users, **variables}.items()} == {
        "file": set(),
        "option": set(),
        "variable": {"recovery"},
        "SHOP_PASSWORD": {"recovery", "processes"},
        "SHOP_LOGIN": {"recovery", "processes", "workers' pages"},
        "SHOP_PIN": {"recovery", "processes", "workers' pages", "application's pages", "event log"},
    }
