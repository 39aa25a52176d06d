"""What docs/spark-pipelines.md says of Spark and Kafka: both ways, with a kill; where Spark is installed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_broker import KafkaBroker

pytest.importorskip("confluent_kafka")
pytest.importorskip("pyspark")

import kafka_spark
from kafka_load import Reader, create_orders, read
from sparkapps import SparkApp, at

import rscylla
from rscylla.embedded import EmbeddedScyllaProcess
from rscylla.spark.session.formats import KAFKA, pyspark_version

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(pyspark_version() not in KAFKA, reason="no Kafka package for this PySpark"),
]

KEYS, ROWS = 7, 60


@pytest.fixture(scope="module")
def scylla() -> Iterator[EmbeddedScyllaProcess]:
    with EmbeddedScyllaProcess() as scylla:
        yield scylla


@pytest.fixture(scope="module")
def session(scylla: EmbeddedScyllaProcess) -> Iterator[rscylla.Session]:
    session = rscylla.connect([f"{scylla.contact_points[0]}:{scylla.port}"])
    create_orders(session)
    insert = session.prepare("INSERT INTO shop.orders (id, n) VALUES (?, ?)")
    for n in range(ROWS):
        session.execute(insert, (n % KEYS, n))
    yield session
    session.cluster.shutdown()


def test_a_query_that_is_killed_repeats_records_and_keeps_the_order_of_each_key(
    broker: KafkaBroker,
    topic: Callable[..., str],
    scylla: EmbeddedScyllaProcess,
    session: rscylla.Session,
    tmp_path: Path,
) -> None:
    name = topic(3)
    contact = f"{scylla.contact_points[0]}:{scylla.port}"
    arguments = ["write", contact, "shop", "orders", broker.address, name, str(tmp_path / "checkpoint")]
    app = SparkApp(kafka_spark.__file__, *arguments, evidence=tmp_path / "evidence")
    app.run_until_done(random.Random(1), kills=1, moments=[at("applied")], last=["now"])
    newest: dict[int, str] = defaultdict(str)
    numbers: dict[int, list[int]] = defaultdict(list)
    partitions: dict[int, set[int]] = defaultdict(set)
    records = read(broker, name)
    for record in records:
        change = json.loads(record.value())
        key = json.loads(record.key())["id"]
        partitions[key].add(record.partition())
        if change["cdc_sequence"] > newest[key]:  # what a consumer does about records that come again
            newest[key] = change["cdc_sequence"]
            numbers[key].append(change["cdc_values"]["n"])
    assert numbers == {key: list(range(key, ROWS, KEYS)) for key in range(KEYS)}
    assert all(len(found) == 1 for found in partitions.values())
    assert len(records) > ROWS, "the batch that was killed after it was written came again"


def test_spark_reads_what_the_connector_publishes(
    broker: KafkaBroker,
    topic: Callable[..., str],
    scylla: EmbeddedScyllaProcess,
    session: rscylla.Session,
    tmp_path: Path,
) -> None:
    prefix = topic()  # a name that no other test has
    file = tmp_path / "connector.properties"
    file.write_text(
        f"topic.prefix={prefix}\nscylla.cluster.ip.addresses={scylla.contact_points[0]}:{scylla.port}\n"
        f"scylla.table.names=shop.orders\nbootstrap.servers={broker.address}\nscylla.confidence.window.size=200\n"
        "topic.creation.default.partitions=3\ntopic.creation.default.replication.factor=1\n"
        "key.converter.schemas.enable=false\nvalue.converter.schemas.enable=false\n"
    )
    command = [sys.executable, "-c", "from rscylla.cli import main; main()", "kafka", "run", str(file)]
    reader = Reader(broker, f"{prefix}.shop.orders", 3)
    with (tmp_path / "log").open("wb") as log:
        connector = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        try:
            reader.until(lambda: len(reader.numbers) == ROWS, connector)
        finally:
            connector.terminate()
            connector.wait(60)
            reader.close()
    out = tmp_path / "newest.json"
    SparkApp(
        kafka_spark.__file__, "read", broker.address, f"{prefix}.shop.orders", str(out), evidence=tmp_path / "evidence"
    ).run()
    rows: Any = session.execute("SELECT id, n FROM shop.orders")
    assert json.loads(out.read_text()) == {str(row.id): row.n for row in rows}
