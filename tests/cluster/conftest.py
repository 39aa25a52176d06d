"""A real cluster for the tests of this folder; without one they are skipped, and say why.

RSCYLLA_CLUSTER=cassandra starts three nodes of Apache Cassandra here. RSCYLLA_CONTACT_POINTS names a cluster that runs,
of ScyllaDB or Cassandra; its nodes are not touched, and what kills nodes is skipped.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

import rscylla
from cursorstore import ScyllaDeadLetters, group_schema_cql, lease_schema_cql, schema_cql

sys.path.insert(0, str(Path(__file__).parent))

from cassandra_cluster import CASSANDRA, CassandraCluster, TooSlow, reason_for_none
from maven import NoJars, fetch_jars
from suites import NUMBERS

CONTACT_POINTS = [host for host in os.environ.get("RSCYLLA_CONTACT_POINTS", "").split(",") if host]
START = os.environ.get("RSCYLLA_CLUSTER", "")

START_S = 900
"""Time limit of the test that happens to come first, which starts the cluster."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(START_S))


@attrs.frozen
class Database:
    """A cluster and a keyspace on it for these tests. ``nodes`` is None if they are not ours to kill."""

    hosts: list[str]
    keyspace: str
    nodes: CassandraCluster | None = None

    def connect(self) -> rscylla.Session:
        """Return a new session, of a driver's cluster object of its own."""
        username, password = os.environ.get("RSCYLLA_USERNAME"), os.environ.get("RSCYLLA_PASSWORD")
        return rscylla.connect(self.hosts, username=username, password=password)


@pytest.fixture(scope="session")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    keyspace = f"Rscylla_{uuid.uuid4().hex[:12]}"
    if CONTACT_POINTS:
        database = Database(CONTACT_POINTS, keyspace)
        create(database)
        yield database
        drop(database)
        return
    if START != "cassandra":
        pytest.skip("no cluster: set RSCYLLA_CLUSTER=cassandra to start one, or name one by RSCYLLA_CONTACT_POINTS")
    if reason := reason_for_none():
        pytest.skip(f"Cassandra cannot be started: {reason}")
    try:
        jars = fetch_jars(Path(request.config.cache.mkdir("cluster")), CASSANDRA)
    except NoJars as e:
        pytest.skip(str(e))
    nodes = CassandraCluster(jars, tmp_path_factory.mktemp("cassandra"))
    with ExitStack() as stack:
        try:
            stack.enter_context(nodes)
        except TooSlow as e:
            print(e)
            pytest.skip(f"this machine is too slow for a cluster: {str(e).splitlines()[0]}")
        database = Database([f"{host}:{nodes.port}" for host in nodes.contact_points], keyspace, nodes)
        create(database)
        yield database
    for node in nodes.nodes:  # logs stay, for as long as pytest keeps its temporary directories
        shutil.rmtree(node.home / "data", ignore_errors=True)


def create(database: Database) -> None:
    session = database.connect()
    try:
        hosts = len(session.cluster.metadata.all_hosts())
        tables = session.cluster.metadata.keyspaces["system_schema"].tables
        # Only Scylla knows the word; conditional writes need vnodes before version 2025.4.
        vnodes = " AND tablets = {'enabled': false}" if "scylla_tables" in tables else ""
        session.execute(
            f'CREATE KEYSPACE "{database.keyspace}" WITH replication = '
            f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {min(3, hosts)}}}{vnodes}"
        )
        # Once and for all: in Cassandra, clients that create one table at the same moment may make two of it.
        session.execute(schema_cql(database.keyspace))
        session.execute(schema_cql(database.keyspace, NUMBERS))
        session.execute(lease_schema_cql(database.keyspace))
        session.execute(group_schema_cql(database.keyspace))
        ScyllaDeadLetters(session, database.keyspace).create_schema()
    finally:
        session.cluster.shutdown()


def drop(database: Database) -> None:
    session = database.connect()
    session.execute(f'DROP KEYSPACE "{database.keyspace}"')
    session.cluster.shutdown()


@pytest.fixture(scope="session")
def sessions(database: Database) -> Iterator[Any]:
    """Sessions of two cluster objects, in turns: what one process prepared or knows, the other does not."""
    ours = [database.connect(), database.connect()]
    yield itertools.cycle(ours)
    for session in ours:
        session.cluster.shutdown()


@pytest.fixture
def keyspace(database: Database) -> str:
    return database.keyspace


@pytest.fixture(scope="module")
def one_node_down(database: Database) -> Iterator[None]:
    """Kill a node with kill -9 before the tests of a module, and start it again after them."""
    if database.nodes is None:
        pytest.skip("the nodes of a cluster that is named by RSCYLLA_CONTACT_POINTS are not killed")
    node = database.nodes.nodes[-1]
    database.nodes.kill(node)
    database.nodes.await_down(node)
    yield
    database.nodes.launch(node)
    database.nodes.await_up(node)
