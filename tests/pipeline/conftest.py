"""A session for the pipeline tests: on the embedded server, or on the real cluster of RSCYLLA_CONTACT_POINTS."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import rscylla
from rscylla.embedded import EmbeddedScylla

CONTACT_POINTS = os.environ.get("RSCYLLA_CONTACT_POINTS", "")


@pytest.fixture(scope="module")
def session() -> Iterator[rscylla.Session]:
    with ExitStack() as stack:
        hosts = [h for h in CONTACT_POINTS.split(",") if h]
        if not hosts:
            scylla = stack.enter_context(EmbeddedScylla())
            hosts = [f"{host}:{scylla.port}" for host in scylla.contact_points]
        session = rscylla.connect(
            hosts, username=os.environ.get("RSCYLLA_USERNAME"), password=os.environ.get("RSCYLLA_PASSWORD")
        )
        stack.callback(session.cluster.shutdown)
        # Rows are stamped where they are written: then none is late, however slow the machine is.
        session.use_client_timestamp = False
        yield session


@pytest.fixture(params=["vnodes", "tablets"])
def keyspace(session: rscylla.Session, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"rscylla_test_{uuid.uuid4().hex[:12]}"
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}} "
        f"AND tablets = {{'enabled': {str(request.param == 'tablets').lower()}}}"
    )
    yield name
    session.execute(f"DROP KEYSPACE {name}")
