"""An embedded Scylla for all contract tests, with sessions of two processes on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from rscylla.embedded import EmbeddedScylla

KEYSPACE = "Shop"
"""With a capital, so that a name that is not quoted somewhere fails."""


@pytest.fixture(scope="session")
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(seed=1) as server:
        session = server.connect()
        session.execute(
            f'CREATE KEYSPACE "{KEYSPACE}" WITH replication = '
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {'enabled': false}"
        )
        yield server


@pytest.fixture(scope="session")
def sessions(scylla: EmbeddedScylla) -> Iterator[Any]:
    """Sessions of two clusters objects, in turns: what one process prepared or knows, the other does not."""
    return itertools.cycle([scylla.connect(), scylla.connect()])
