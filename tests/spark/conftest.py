"""One Spark session for all tests, as starting one takes ten seconds, and embedded servers for them to read."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark_formats import FORMAT_CONFIG, NOT_COMPILED, TableFormat, one_at_a_time, runs_here
from sparkapps import ALONE, quick_environment

import rscylla
from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from sparkreader import World

if find_spec("pyspark") is None or find_spec("pyarrow") is None:
    collect_ignore_glob = ["test_*.py"]  # what is in the extra "spark" is tested where that is installed

LEAVES_SOCKETS = find_spec("pyspark") is not None and find_spec("pyspark.sql.streaming.datasource") is None
"""Whether PySpark (4.1) leaves it to the garbage collector to close the sockets by which results come."""

CONFIG = {
    **ALONE,
    # The widest plans fill most of what Spark takes unless told, 1 GB, which then is collected again and again.
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.maxPlanStringLength": "1000",
    **FORMAT_CONFIG,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow these tests more time, as a cold query takes ten seconds or more, and mark those of a table format."""
    here = Path(__file__).parent
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if "table_format" in parameters:
            item.add_marker(parameters["table_format"])
        if here in item.path.parents and LEAVES_SOCKETS:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:.*<socket:pytest.PytestUnraisableExceptionWarning"))
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A server on a driven clock, for readers that are called without Spark."""
    from sparkreader import world_of

    with world_of(monkeypatch, tablets=getattr(request, "param", "tablets") == "tablets") as world:
        yield world


@pytest.fixture(params=["delta", "iceberg"])
def table_format(request: pytest.FixtureRequest, warehouse: Path) -> TableFormat:
    """Each format with MERGE; skips those without a release for the installed PySpark."""
    from rscylla.spark.session import formats

    name = request.param
    if not runs_here(name):
        pytest.skip(formats.FORMATS[name].unsupported(formats.pyspark_version()))
    request.getfixturevalue("spark")
    return TableFormat(name, formats.FORMATS[name].catalog, warehouse)


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, warehouse: Path) -> Iterator[SparkSession]:
    """The session that all tests share. It has the formats that tests of this run ask for."""
    from pyspark.sql import SparkSession

    from rscylla.spark import ensure_java, with_format

    os.environ |= quick_environment()
    ensure_java()
    builder = SparkSession.builder.master("local[2]").appName("rscylla-tests")
    builder = builder.config(map=CONFIG).config("spark.sql.warehouse.dir", str(warehouse))
    asked = {item.callspec.params.get("table_format") for item in request.session.items if hasattr(item, "callspec")}
    for name in sorted(asked - {None}):
        if runs_here(name):
            builder = with_format(builder, name, warehouse=str(warehouse))
    with one_at_a_time():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def not_compiled(spark: SparkSession) -> Iterator[None]:
    """Plans are not compiled: with many columns and few rows, that takes longer than to work through them."""
    for name, value in NOT_COMPILED.items():
        spark.conf.set(name, value)
    yield
    for name in NOT_COMPILED:
        spark.conf.unset(name)


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
