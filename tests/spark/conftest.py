"""One Spark session for all tests, as starting one takes ten seconds, and embedded servers for them to read."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rscylla
from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if find_spec("pyspark") is None or find_spec("pyarrow") is None:
    collect_ignore_glob = ["test_*.py"]  # what is in the extra "spark" is tested where that is installed

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java that starts sooner and runs slower, which suits tests."""

SPARK_PYTHON = Path(__file__).resolve().parents[1] / "support" / "spark_python"
"""What Spark's own Python processes run when they start."""

CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.maxPlanStringLength": "1000",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow these tests more time: a cold query takes ten seconds, and several times that on a busy machine."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all tests share; it finds the data source by itself."""
    from pyspark.sql import SparkSession

    from rscylla.spark import ensure_java

    os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (str(SPARK_PYTHON), os.environ.get("PYTHONPATH")) if p)
    ensure_java()
    builder = SparkSession.builder.master("local[2]").appName("rscylla-tests")
    for name, value in CONFIG.items():
        builder = builder.config(name, value)
    session = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse"))).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def scylla_process() -> Iterator[EmbeddedScyllaProcess]:
    """A server that all tests share, in a process of its own: those of Spark and of the tests keep this one busy."""
    with EmbeddedScyllaProcess() as scylla:
        yield scylla


@pytest.fixture(scope="session")
def session(scylla_process: EmbeddedScyllaProcess) -> Iterator[rscylla.Session]:
    session = rscylla.connect([f"{scylla_process.contact_points[0]}:{scylla_process.port}"])
    yield session
    session.cluster.shutdown()


@pytest.fixture(params=["vnodes", "tablets"])
def keyspace(session: rscylla.Session, request: pytest.FixtureRequest) -> Iterator[str]:
    """A keyspace of the test's own, of either kind."""
    yield from _keyspace(session, tablets=request.param == "tablets")


@pytest.fixture
def vnodes(session: rscylla.Session) -> Iterator[str]:
    """A keyspace of the test's own, with vnodes."""
    yield from _keyspace(session, tablets=False)


def _keyspace(session: rscylla.Session, *, tablets: bool) -> Iterator[str]:
    name = f"spark_{uuid.uuid4().hex[:12]}"
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}} "
        f"AND tablets = {{'enabled': {str(tablets).lower()}}}"
    )
    yield name
    session.execute(f"DROP KEYSPACE {name}")


@pytest.fixture
def options(scylla_process: EmbeddedScyllaProcess) -> Callable[..., dict[str, str]]:
    """Makes the options to read a table of the shared server; no lag, as nothing comes late there."""
    return lambda keyspace, table, **more: options_for(scylla_process, keyspace, table, **more)


def options_for(
    scylla: EmbeddedScylla | EmbeddedScyllaProcess, keyspace: str, table: str, **more: object
) -> dict[str, str]:
    given = {
        "contactPoints": f"{scylla.contact_points[0]}:{scylla.port}",
        "keyspace": keyspace,
        "table": table,
        "lag": "0s",
        "consistency": "ONE",
        "parallelism": "2",
    }
    return given | {name: str(value) for name, value in more.items()}


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
