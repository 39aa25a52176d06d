"""A real Kafka broker for the tests of this folder, if RSCYLLA_KAFKA=start; without it, or Java, they are skipped."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kafka_broker import ARTIFACTS, KafkaBroker
from maven import NoJars, fetch_jars, lacking_tools

START_S = 600
"""Time limit of each test; the one that happens to come first starts the broker."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(START_S))


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that all tests of this process share. A test that kills it starts it again."""
    if os.environ.get("RSCYLLA_KAFKA") != "start":
        pytest.skip("no broker: set RSCYLLA_KAFKA=start to start one")
    if reason := lacking_tools():
        pytest.skip(f"Kafka cannot be started: {reason}")
    try:
        jars = fetch_jars(Path(request.config.cache.mkdir("kafka")), *ARTIFACTS)
    except NoJars as e:
        pytest.skip(str(e))
    home = tmp_path_factory.mktemp("kafka")
    with KafkaBroker(jars, home) as broker:
        yield broker
    shutil.rmtree(home / "data", ignore_errors=True)  # the log stays, as long as pytest keeps its directories


@pytest.fixture
def topic(broker: KafkaBroker) -> Callable[..., str]:
    """Return a function that creates a topic with a new name, and returns the name."""
    kafka_admin = pytest.importorskip("confluent_kafka.admin")
    admin = kafka_admin.AdminClient({"bootstrap.servers": broker.address})

    def create(partitions: int = 1, **config: str) -> str:
        name = f"t{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        [made] = admin.create_topics([kafka_admin.NewTopic(name, partitions, 1, config=settings)]).values()
        made.result(60)
        return name

    return create
