"""What a schema registry refuses, or does not answer, is waited for; what is dropped is of the change, and counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fakeregistry import FakeRegistry
from mockkafka import MockKafka
from runningconnector import LONG_S, Running
from waiting import eventually

import rscylla
from rscylla.debezium.formats import registry as registry_module
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import AuthenticationFailed, ConfigError, MalformedData, PublishFailed
from rscylla.publish import DebeziumMessages

AVRO = "io.confluent.connect.avro.AvroConverter"


@pytest.fixture(scope="module")
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(vnodes=2, shards=1) as server:
        yield server


@pytest.fixture
def session(scylla: EmbeddedScylla) -> Iterator[rscylla.Session]:
    session = scylla.connect()
    session.execute("DROP KEYSPACE IF EXISTS shop")
    session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    for table in ("a", "b"):
        session.execute(f"CREATE TABLE shop.{table} (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    yield session
    session.cluster.shutdown()


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka(partitions=1) as cluster:
        yield cluster


@pytest.fixture
def schemas() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


def avro(schemas: FakeRegistry) -> dict[str, str]:
    names = ("key_converter", "value_converter")
    return dict.fromkeys(names, AVRO) | {f"{name}_schema_registry_url": schemas.url for name in names}


@pytest.mark.parametrize(
    ("mode", "status"), [("fail", 401), ("fail", 409), ("warn", 401), ("warn", 404), ("warn", 409), ("skip", 503)]
)
@pytest.mark.slow
def test_whatever_the_registry_refuses_is_tried_again_and_no_change_is_dropped(
    session: rscylla.Session, kafka: MockKafka, schemas: FakeRegistry, mode: str, status: int
) -> None:
    options = avro(schemas) | {"event_processing_failure_handling_mode": mode}
    with Running(session, kafka, **options) as running:
        running.insert("a", *range(5))
        running.insert("b", *range(5))
        eventually(lambda: (running.records("a"), running.records("b")) == (5, 5), LONG_S)
        schemas.refuses, schemas.subjects = status, "shop.a-value"
        session.execute("ALTER TABLE shop.a ADD w text")
        for number in range(5, 10):
            session.execute(f"INSERT INTO shop.a (id, v, w) VALUES ({number}, 1, 'x')")
        eventually(lambda: schemas.asked >= 2, LONG_S)
        assert "'demo.shop.a-value'" in running.not_ready()
        assert "secret" not in running.not_ready()
        running.insert("b", *range(5, 10))
        eventually(lambda: running.records("b") == 10, LONG_S)
        assert running.records("a") == 5
        schemas.refuses = 0
        eventually(lambda: running.records("a") == 10, LONG_S)
        eventually(lambda: running.not_ready() == "", LONG_S)
        assert running.count("rscylla_given_up_events_total") == 0
        assert running.count("rscylla_lane_restarts_total") == 0


@pytest.mark.parametrize("how", ["silent", "drips"])
def test_a_registry_that_never_answers_is_seen_and_a_stop_does_not_wait_for_it(
    session: rscylla.Session, kafka: MockKafka, schemas: FakeRegistry, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(registry_module, "ANSWER_S", 0.2)
    setattr(schemas, how, True)
    with Running(session, kafka, **avro(schemas)) as running:
        running.insert("a", 1)
        eventually(lambda: "does not answer for 'demo.shop.a-" in running.not_ready(), LONG_S)
        setattr(schemas, how, False)
        eventually(lambda: running.records("a") == 1, LONG_S)
        setattr(schemas, how, True)
        running.insert("b", 1)
        eventually(lambda: "does not answer for 'demo.shop.b-" in running.not_ready(), LONG_S)
    assert running.records("b") == 0


@pytest.mark.slow
def test_rows_of_a_snapshot_wait_for_the_registry_too(
    session: rscylla.Session, kafka: MockKafka, schemas: FakeRegistry
) -> None:
    schemas.refuses, schemas.subjects = 401, "-value"
    running = Running(session, kafka, **avro(schemas), snapshot_mode="initial")
    running.insert("a", *range(5))
    with running:
        eventually(lambda: schemas.asked >= 3, LONG_S)
        schemas.refuses = 0
        eventually(lambda: running.records("a") >= 5, LONG_S)


class Odd:
    """Stands for ``DebeziumMessages.__call__``: the changes of the key 2 have an error of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        made = DebeziumMessages.__call__
        self.left = 3

        def odd(messages: DebeziumMessages, event: Any) -> Any:
            if event.foreign_id == json.dumps({"id": 2}, separators=(",", ":")) and self.left:
                self.left -= 1
                raise error
            return made(messages, event)

        monkeypatch.setattr(DebeziumMessages, "__call__", odd)


@pytest.mark.parametrize("mode", ["warn", "skip", "ignore"])
def test_a_change_that_is_malformed_itself_is_passed_over_as_told_and_counted(
    session: rscylla.Session, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    Odd(monkeypatch, MalformedData("bytes that are no value"))
    with Running(session, kafka, event_processing_failure_handling_mode=mode) as running:
        running.insert("a", 1, 2, 3)
        eventually(lambda: running.records("a") == 2, LONG_S)
        eventually(lambda: running.count("rscylla_given_up_events_total") == 1, LONG_S)


@pytest.mark.parametrize("error", [PublishFailed("not now"), OSError("no network")])
@pytest.mark.slow
def test_what_may_pass_is_tried_again_in_mode_warn(
    session: rscylla.Session, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    Odd(monkeypatch, error)
    with Running(session, kafka, event_processing_failure_handling_mode="warn", worker_max_retries="9") as running:
        running.insert("a", 1, 2, 3)
        eventually(
            lambda: {m.key for m in kafka.read("demo.shop.a")} == {b'{"id":1}', b'{"id":2}', b'{"id":3}'}, LONG_S
        )
        assert running.count("rscylla_given_up_events_total") == 0


@pytest.mark.parametrize("error", [AuthenticationFailed("who is it?"), ConfigError("two fields have one name")])
def test_what_is_wrong_beside_the_change_stops_its_table_in_mode_warn(
    session: rscylla.Session, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    Odd(monkeypatch, error)
    with Running(session, kafka, event_processing_failure_handling_mode="warn") as running:
        running.insert("a", 2, 3)
        eventually(lambda: str(error) in running.not_ready(), LONG_S)
        assert (running.records("a"), running.count("rscylla_given_up_events_total")) == (0, 0)
