"""A session of the driver on one embedded server a module."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from cassandra.cluster import Session
from cassandra.query import dict_factory

from rscylla.embedded import EmbeddedScylla

_numbers = itertools.count()


@pytest.fixture(scope="module")
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(seed=1) as server:
        yield server


@pytest.fixture(scope="module")
def shared(scylla: EmbeddedScylla) -> Session:
    return scylla.connect()


@pytest.fixture
def session(shared: Session) -> Session:
    """A session in a keyspace of the test's own; rows are dicts."""
    keyspace, replication = f"ks{next(_numbers)}", "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    shared.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {replication}")
    shared.set_keyspace(keyspace)
    shared.row_factory = dict_factory
    return shared
