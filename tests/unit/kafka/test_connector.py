"""``Connector`` on the embedded server and the mock cluster: tables, starts, outages, dead letters, verdicts."""

from __future__ import annotations

import http.client
import io
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError
from connectorcases import cases
from mockkafka import PRODUCE, MockKafka
from prometheus_client import CollectorRegistry
from waiting import eventually

import rscylla
from cursorstore import MemoryCursorStore, ScyllaCursorStore
from rscylla.abc import Message
from rscylla.clock import Stop, SystemClock
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import ConfigError, PublishFailed, ServiceFailed, TableNotFound
from rscylla.kafka import Connector, KafkaPublisher, Properties, consumer_name, verdicts
from rscylla.kafka.heartbeats import Heartbeats
from rscylla.kafka.lanes import Lanes
from rscylla.kafka.letters import letter_of
from rscylla.kafka.producer.topics import Topics, TopicSettings
from rscylla.kafka.snapshots.snapshot import request
from rscylla.publish import JsonLines

LONG_S = 60.0
NEEDED = {"topic.prefix": "demo", "scylla.cluster.ip.addresses": "h:9042", "scylla.table.names": "shop.a"}


@pytest.fixture(scope="module")
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(vnodes=2, shards=1) as server:
        yield server


@pytest.fixture
def session(scylla: EmbeddedScylla, request: pytest.FixtureRequest) -> Iterator[rscylla.Session]:
    session = scylla.connect()
    session.execute("DROP KEYSPACE IF EXISTS shop")
    session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    yield session
    session.cluster.shutdown()


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka(partitions=2) as cluster:
        yield cluster


class Bench:
    """A connector in a thread."""

    def __init__(self, session: rscylla.Session, kafka: MockKafka, **properties: str) -> None:
        self.kafka = kafka
        given = {
            "topic.prefix": "demo",
            "scylla.cluster.ip.addresses": "127.0.0.1:9042",
            "scylla.table.names": "shop.*",
            "bootstrap.servers": kafka.servers,
            "scylla.confidence.window.size": "50",
            "rscylla.tables.interval.ms": "100",
            "worker.retry.backoff.base": "10",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
        }
        self.properties = Properties.of(given | {name.replace("_", "."): value for name, value in properties.items()})
        self.store = MemoryCursorStore()
        self.session = session
        self.stop = Stop()
        self.error: BaseException | None = None
        self.code: int | None = None

    def start(self, **more: Any) -> Bench:
        self.connector = Connector(
            self.properties, self.session, store_of=lambda keyspace: self.store, registry=CollectorRegistry(), **more
        )
        self.stop = Stop()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        return self

    def _run(self) -> None:
        try:
            self.code = self.connector.run(self.stop)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def end(self) -> None:
        self.stop.set()
        self.wait()

    def wait(self) -> None:
        self.thread.join(LONG_S)
        assert not self.thread.is_alive()

    def read(self, table: str) -> list[Any]:
        return list(self.kafka.read(f"demo.shop.{table}"))

    def keys(self, table: str) -> list[int]:
        return sorted(json.loads(message.key or b"")["id"] for message in self.read(table))

    def marks(self, table: str) -> list[str]:
        return [json.loads(message.value or b"")["source"]["snapshot"] for message in self.read(table)]

    def until(self, **keys: list[int]) -> None:
        """Run until the topics of tables have records with these keys, and stop."""
        self.start()
        for table, expected in keys.items():
            eventually(lambda table=table, expected=expected: self.keys(table) == expected, LONG_S)
        self.end()
        assert (self.error, self.code) == (None, 0)

    def reading(self, table: str) -> bool:
        service = self.connector.service
        lanes = () if service is None else service.facts().lanes
        return any(lane.consumer == f"demo.shop.{table}" and lane.state == "streaming" for lane in lanes)


@pytest.fixture
def bench(session: rscylla.Session, kafka: MockKafka) -> Iterator[Bench]:
    bench = Bench(session, kafka)
    yield bench
    if hasattr(bench, "thread"):
        bench.end()
    assert bench.error is None


def create(session: rscylla.Session, table: str, more: str = "") -> None:
    session.execute(f"CREATE TABLE shop.{table} (id int PRIMARY KEY, v text) WITH cdc = {{'enabled': true{more}}}")


def insert(session: rscylla.Session, table: str, *ids: int) -> None:
    for number in ids:
        session.execute(f"INSERT INTO shop.{table} (id, v) VALUES ({number}, 'v{number}')")


def test_tables_that_match_are_published_and_continue_where_they_stopped(bench: Bench) -> None:
    create(bench.session, "items")
    create(bench.session, "orders")
    bench.session.execute("CREATE TABLE shop.plain (id int PRIMARY KEY)")
    insert(bench.session, "items", 1, 2)
    insert(bench.session, "orders", 3)
    bench.until(items=[1, 2], orders=[3])
    insert(bench.session, "items", 4)
    bench.until(items=[1, 2, 4], orders=[3])
    [value] = [json.loads(m.value) for m in bench.read("items") if b"4" in m.key]
    assert (value["op"], value["after"]) == ("c", {"id": 4, "v": {"value": "v4"}})


def test_tables_come_and_go_while_it_runs(bench: Bench) -> None:
    bench.start()
    create(bench.session, "items")
    insert(bench.session, "items", 1)
    eventually(lambda: bench.reading("items"), LONG_S)
    create(bench.session, "late")
    insert(bench.session, "late", 2)
    eventually(lambda: bench.reading("late"), LONG_S)
    eventually(lambda: bench.keys("late") == [2], LONG_S)
    bench.session.execute("DROP TABLE shop.late")
    eventually(lambda: not bench.reading("late") and bench.reading("items"), LONG_S)
    insert(bench.session, "items", 3)
    eventually(lambda: bench.keys("items") == [1, 3], LONG_S)
    bench.end()
    assert bench.code == 0


@pytest.mark.slow
def test_a_log_that_was_off_for_a_while_is_a_gap(session: rscylla.Session, kafka: MockKafka) -> None:
    create(session, "items")
    insert(session, "items", 1)
    bench = Bench(session, kafka, rscylla_on_expired="oldest").start()
    eventually(lambda: bench.keys("items") == [1], LONG_S)
    session.execute("ALTER TABLE shop.items WITH cdc = {'enabled': false}")
    session.execute("ALTER TABLE shop.items WITH cdc = {'enabled': true}")
    insert(session, "items", 5)
    eventually(lambda: bench.keys("items") == [1, 5], LONG_S)
    bench.end()
    assert (bench.error, bench.code) == (None, 0)


@pytest.mark.slow
def test_it_is_ready_only_while_all_tables_are_published(session: rscylla.Session, kafka: MockKafka) -> None:
    bench = Bench(session, kafka)

    def failed(path: str = "/readyz") -> dict[str, str] | None:
        """Return why checks fail, by check; None while nothing answers, as between two services."""
        try:
            host, port = bench.connector.service.address  # type: ignore[misc, union-attr]
            connection = http.client.HTTPConnection(host, port, timeout=LONG_S)
            connection.request("GET", path)
            checks = json.loads(connection.getresponse().read())["checks"]
        except (OSError, AttributeError, TypeError, http.client.HTTPException):
            return None
        return {check["check"]: check["why"] for check in checks if not check["ok"]}

    bench.start(port=0)
    eventually(lambda: failed() == {"tables": "no table with a log has a name of scylla.table.names"}, LONG_S)
    assert failed("/healthz") == {}
    create(session, "items")
    eventually(lambda: failed() == {} and bench.reading("items"), LONG_S)
    kafka.down()
    insert(session, "items", 1)
    eventually(lambda: "Kafka does not answer" in (failed() or {}).get("Kafka", ""), LONG_S)
    kafka.up()
    eventually(lambda: failed() == {}, LONG_S)
    session.execute("DROP TABLE shop.items")
    eventually(lambda: set(failed() or ()) == {"tables"}, LONG_S)
    bench.end()
    assert (bench.error, bench.code) == (None, 0)


def test_a_table_that_is_named_and_goes_is_not_published(session: rscylla.Session, kafka: MockKafka) -> None:
    bench = Bench(session, kafka, scylla_table_names="shop.items,shop.late")
    create(session, "items")
    create(session, "late")
    bench.start()
    eventually(lambda: bench.reading("items") and bench.reading("late"), LONG_S)
    session.execute("DROP TABLE shop.late")

    def failed() -> list[Any]:
        service = bench.connector.service
        return [] if service is None else [check for check in service.ready()["checks"] if not check["ok"]]

    gone = {"check": 'table "shop.late"', "ok": False, "why": "does not exist, or has no CDC log"}
    eventually(lambda: failed() == [gone] and bench.reading("items"), LONG_S)
    bench.end()


@pytest.mark.parametrize(
    ("more", "published", "refused"),
    [
        ({}, {1}, True),
        ({"rscylla_on_expired": "oldest"}, {1, 2}, False),
        ({"snapshot_mode": "when_needed"}, {1, 2}, False),  # as a row, and as a change if that is younger than the lag
    ],
    ids=["raise", "oldest", "snapshot"],
)
@pytest.mark.slow
def test_a_table_that_comes_back_is_another_one_unless_told(
    session: rscylla.Session, kafka: MockKafka, more: dict[str, str], published: set[int], refused: bool
) -> None:
    bench = Bench(session, kafka, scylla_table_names="shop.items", **more)
    create(session, "items")
    insert(session, "items", 1)
    if "snapshot_mode" in more:  # a cursor that is there already: no snapshot
        bench.properties = bench.properties.but({"snapshot.mode": "never"})
    bench.until(items=[1])
    bench.properties = Bench(session, kafka, scylla_table_names="shop.items", **more).properties
    session.execute("DROP TABLE shop.items")
    create(session, "items")
    insert(session, "items", 2)
    bench.start()
    if refused:
        bench.wait()
        assert isinstance(bench.error, ServiceFailed)
        assert "was dropped and created again" in str(bench.error)
    else:
        eventually(lambda: set(bench.keys("items")) == published, LONG_S)
        bench.end()
        assert ("last" in bench.marks("items")) is ("snapshot_mode" in more)
    assert set(bench.keys("items")) == published


def test_tables_that_have_one_topic_are_named(
    session: rscylla.Session, kafka: MockKafka, caplog: pytest.LogCaptureFixture
) -> None:
    create(session, "a_b")
    create(session, "c")
    session.execute("DROP KEYSPACE IF EXISTS shop_a")
    session.execute("CREATE KEYSPACE shop_a WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE shop_a.b (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
    for delimiter, expected in ((".", 0), ("_", 1)):
        caplog.clear()
        bench = Bench(session, kafka, scylla_table_names="shop*.*", topic_delimiter=delimiter).start()
        eventually(lambda bench=bench: bench.reading("c"), LONG_S)
        bench.end()
        said = [record.message for record in caplog.records if "have one topic" in record.message]
        assert len(said) == expected
    assert said == ["shop.a_b and shop_a.b have one topic, demo_shop_a_b, where their keys mix; see topic.delimiter"]
    session.execute("DROP KEYSPACE shop_a")


def test_a_cluster_that_does_not_answer_while_tables_change_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, watch = Connector.tables, Connector._watch
    failures = iter([True, True])
    failing: list[bool] = []

    def found(connector: Connector) -> Any:
        if failing and next(failures, False):
            raise rscylla.QueryTimeout("no node answers")
        return tables(connector)

    def watched(connector: Connector, *given: Any) -> bool:
        again = watch(connector, *given)
        failing.append(True)
        return again

    monkeypatch.setattr(Connector, "tables", found)
    monkeypatch.setattr(Connector, "_watch", watched)
    create(bench.session, "items")
    insert(bench.session, "items", 1)
    bench.start()
    eventually(lambda: bench.keys("items") == [1], LONG_S)
    create(bench.session, "late")
    insert(bench.session, "late", 2)
    eventually(lambda: bench.keys("late") == [2], LONG_S)
    assert not next(failures, False)


@pytest.mark.slow
def test_a_column_that_comes_while_it_runs_is_in_the_records(bench: Bench) -> None:
    create(bench.session, "items")
    insert(bench.session, "items", 1)
    bench.start()
    eventually(lambda: bench.keys("items") == [1], LONG_S)
    bench.session.execute("ALTER TABLE shop.items ADD extra int")
    bench.session.execute("INSERT INTO shop.items (id, extra) VALUES (2, 9)")
    eventually(lambda: bench.keys("items") == [1, 2], LONG_S)
    [value] = [json.loads(m.value) for m in bench.read("items") if b"2" in m.key]
    assert value["after"]["extra"] == {"value": 9}


@pytest.mark.slow
def test_a_broker_that_is_down_is_waited_for_and_nothing_is_a_dead_letter(bench: Bench) -> None:
    bench.kafka.create("demo.shop.items", 2)
    create(bench.session, "items")
    insert(bench.session, "items", 1)
    bench.start()
    eventually(lambda: bench.keys("items") == [1], LONG_S)
    bench.kafka.down()
    insert(bench.session, "items", *range(2, 30))
    eventually(lambda: bench.connector.service.facts().lanes[0].state == "streaming", LONG_S)  # type: ignore[union-attr]
    cursor = bench.store.get_cursor("demo.shop.items")
    bench.kafka.up()
    eventually(lambda: bench.keys("items") == list(range(1, 30)), LONG_S)
    eventually(lambda: bench.store.get_cursor("demo.shop.items") != cursor, LONG_S)
    assert bench.connector.service is not None
    assert bench.connector.service.facts().lanes[0].restarts == 0


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ({"rscylla_start": "head"}, []),
        ({"rscylla_start": "2020-01-01"}, [1]),
        ({"scylla_initial_lookback_ms": "1"}, []),
    ],
)
@pytest.mark.slow
def test_a_first_start_is_where_the_properties_say(
    session: rscylla.Session, kafka: MockKafka, start: dict[str, str], expected: list[int]
) -> None:
    create(session, "items")
    insert(session, "items", 1)
    Bench(session, kafka).until(items=[1])  # the change is older than the head, which is a lag behind the clock
    bench = Bench(session, kafka, topic_prefix="other", **start)
    bench.start(to_head=True).wait()
    assert bench.error is None
    insert(session, "items", 2)
    bench.start()

    def keys() -> list[int]:
        return sorted(json.loads(message.key or b"")["id"] for message in kafka.read("other.shop.items"))

    eventually(lambda: keys() == [*expected, 2], LONG_S)
    bench.end()


@pytest.mark.slow
def test_a_record_that_is_too_large_stops_the_table_unless_errors_are_tolerated(
    session: rscylla.Session, kafka: MockKafka
) -> None:
    create(session, "items")
    insert(session, "items", 1)
    session.execute("INSERT INTO shop.items (id, v) VALUES (2, %s)", ("x" * 2_000_000,))
    insert(session, "items", 3)
    bench = Bench(session, kafka)
    bench.start().wait()
    assert isinstance(bench.error, ServiceFailed)
    assert "can never be sent" in str(bench.error)
    assert 3 not in bench.keys("items")
    bench = Bench(session, kafka, errors_tolerance="all", errors_deadletterqueue_topic_name="dead").start()
    eventually(lambda: 3 in bench.keys("items"), LONG_S)
    bench.end()
    [letter] = kafka.read("dead")
    assert (json.loads(letter.key or b""), letter.value) == ({"id": 2}, None)
    assert dict(letter.headers)["__connect.errors.topic"] == b"demo.shop.items"
    count = len(bench.keys("items"))
    skipping = Bench(session, kafka, errors_tolerance="all").start()
    eventually(lambda: len(bench.keys("items")) == count + 2, LONG_S)
    skipping.end()
    assert len(kafka.read("dead")) == 1


def test_a_letter_of_a_topic_that_is_no_text_is_made() -> None:
    told = dict(letter_of(Message("t\udcff", b"k", b"v"), "dead", "no \ud83d").headers)
    assert told["__connect.errors.topic"] == rb"t\udcff"
    assert told["__connect.errors.exception.message"] == rb"no \ud83d"


def test_a_letter_has_what_fits() -> None:
    letter = letter_of(Message("t", b"k", b"v", (("h", b"1"),)), "dead", "no")
    assert (letter.topic, letter.key, letter.value, letter.headers[0]) == ("dead", b"k", b"v", ("h", b"1"))


@pytest.mark.parametrize(
    ("key", "value", "headers", "has"),
    [
        (400_000, 90_000, 9_000, (True, True, True)),
        (400_000, 90_000, 90_000, (True, True, False)),
        (400_000, 400_000, 9_000, (True, False, True)),
        (600_000, 400_000, 9_000, (False, True, True)),
        (600_000, 600_000, 600_000, (False, False, False)),
    ],
)
def test_a_letter_as_a_whole_fits(key: int, value: int, headers: int, has: tuple[bool, ...]) -> None:
    letter = letter_of(Message("t" * 10**6, b"k" * key, b"v" * value, (("h", b"x" * headers),)), "dead", "no")
    assert (letter.key is not None, letter.value is not None, letter.headers[0][0] == "h") == has
    assert sum(len(part or b"") for part in (letter.key, letter.value, *dict(letter.headers).values())) < 510_000


@pytest.mark.parametrize("creation", [{}, {"auto_create_topics_enable": "true"}])
@pytest.mark.slow
def test_a_topic_that_kafka_forbids_is_tolerated_as_told(
    session: rscylla.Session, kafka: MockKafka, creation: dict[str, str]
) -> None:
    route = {
        "transforms": "unwrap",
        "transforms_unwrap_type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms_unwrap_route.by.field": "v",
        "cdc_output_format": "advanced",
        "cdc_include_after": "full",
        "errors_tolerance": "all",
        "errors_deadletterqueue_topic_name": "dead",
    }
    create(session, "items", ", 'postimage': true")
    for number, topic in enumerate(("fine", "not fine", "other")):
        session.execute("INSERT INTO shop.items (id, v) VALUES (%s, %s)", (number, topic))
    bench = Bench(session, kafka, **route, **creation).start()
    try:
        eventually(lambda: [len(kafka.read(topic)) for topic in ("fine", "other", "dead")] == [1, 1, 1], LONG_S)
    finally:
        bench.end()
    assert (bench.error, bench.code) == (None, 0)
    [letter] = kafka.read("dead")
    assert json.loads(letter.key or b"") == {"id": 1}
    assert dict(letter.headers)["__connect.errors.topic"] == b"not fine"


def test_the_topic_of_dead_letters_is_one_that_kafka_takes(session: rscylla.Session, kafka: MockKafka) -> None:
    with pytest.raises(ConfigError, match=r"errors\.deadletterqueue\.topic\.name is 'dead letters'"):
        Bench(session, kafka, errors_tolerance="all", errors_deadletterqueue_topic_name="dead letters").start()


def test_what_kafka_does_not_allow_yet_is_tried_again(bench: Bench) -> None:
    bench.kafka.create("demo.shop.items", 1)
    bench.kafka.fail(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    create(bench.session, "items")
    insert(bench.session, "items", 1)
    bench.start()
    eventually(lambda: bench.keys("items") == [1], LONG_S)
    eventually(lambda: bench.store.get_cursor("demo.shop.items"), LONG_S)


def test_heartbeats_have_a_topic_of_their_own(session: rscylla.Session, kafka: MockKafka) -> None:
    create(session, "items")
    bench = Bench(session, kafka, heartbeat_interval_ms="20").start()
    eventually(lambda: len(kafka.read("__debezium-heartbeat.demo")) > 1, LONG_S)
    bench.end()
    assert kafka.read("__debezium-heartbeat.demo")[0].key == b'{"serverName":"demo"}'


def test_a_table_that_is_named_must_be_there(session: rscylla.Session, kafka: MockKafka) -> None:
    bench = Bench(session, kafka, scylla_table_names="shop.items,shop.none")
    create(session, "items")
    bench.start().wait()
    assert isinstance(bench.error, TableNotFound)


def test_a_table_that_cannot_be_read_stops_alone(
    session: rscylla.Session, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(session, "items")
    create(session, "bad")
    bench = Bench(session, kafka)
    insert(session, "items", 1)
    insert(session, "bad", 2)

    stream_of = Lanes.stream

    def stream(lanes: Lanes, key: tuple[str, str]) -> Any:
        found: Any = stream_of(lanes, key)
        if key[1] == "bad":
            found.event_type = lambda change: "no number"
        return found

    monkeypatch.setattr(Lanes, "stream", stream)
    bench.start()
    eventually(lambda: bench.keys("items") == [1], LONG_S)
    bench.end()


def test_properties_are_checked_before_anything_begins(session: rscylla.Session, kafka: MockKafka) -> None:
    for wrong in ({"cdc_output_format": "modern"}, {"rscylla_start": "soon"}, {"key_converter": "x.Y"}):
        with pytest.raises(ConfigError):
            Bench(session, kafka, **wrong).start()


def test_the_consumer_is_named_after_prefix_and_table(bench: Bench) -> None:
    assert consumer_name(bench.properties, "shop", "items") == "demo.shop.items"


class Member(Bench):
    """A connector in a group, with the cursor store of its own."""

    def __init__(self, session: rscylla.Session, kafka: MockKafka) -> None:
        group = {"rscylla_group": "team", "rscylla_group_slices": "4", "rscylla_store_keyspace": "shop"}
        super().__init__(session, kafka, **group)

    def start(self, **more: Any) -> Bench:
        self.connector = Connector(self.properties, self.session, registry=CollectorRegistry(), **more)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        return self

    def lanes(self) -> int:
        service = self.connector.service
        return 0 if service is None else sum(lane.state == "streaming" for lane in service.facts().lanes)


@pytest.mark.slow
def test_processes_of_a_group_share_the_keys(session: rscylla.Session, kafka: MockKafka) -> None:
    create(session, "items")
    create(session, "orders")
    first, second = (Member(session, kafka) for _ in range(2))
    first.start()
    insert(session, "items", *range(20))
    eventually(lambda: first.lanes() == 8, LONG_S)
    second.start()
    eventually(lambda: (first.lanes(), second.lanes()) == (4, 4), LONG_S)
    insert(session, "items", *range(20, 40))
    eventually(lambda: first.keys("items") == list(range(40)), LONG_S)
    first.end()
    insert(session, "orders", *range(10))
    eventually(lambda: second.keys("orders") == list(range(10)), LONG_S)
    second.end()
    assert (first.error, second.error) == (None, None)
    # A process that was paused cannot move them.
    fenced = {record.consumer: record.lease for record in ScyllaCursorStore(session, "shop").list_cursors()}
    assert fenced == {f"demo.shop.{t}[{i}/4]": f"team[{i}/4]" for t in ("items", "orders") for i in range(4)}


def test_a_process_alone_does_not_skip_what_a_group_has_not_published(
    session: rscylla.Session, kafka: MockKafka
) -> None:
    create(session, "items")
    alone = Bench(session, kafka, rscylla_start="head")
    head = rscylla.NewStream(session, "shop", "items").head_cursor(timedelta())
    alone.store.set_cursor("demo.shop.items[2/4]", head)
    alone.start()
    alone.wait()
    assert "'demo.shop.items[2/4]' has a cursor, and 'demo.shop.items' has none" in str(alone.error)


def test_a_group_needs_a_place_for_itself(session: rscylla.Session, kafka: MockKafka) -> None:
    with pytest.raises(ConfigError, match=r"needs rscylla\.store\.keyspace"):
        Bench(session, kafka, rscylla_group="team").start()


# ---------------------------------------------------------------- topics


def test_topics_are_created_by_the_first_group_that_has_them() -> None:
    given = {
        "topic.prefix": "demo",
        "topic.creation.groups": "big, small",
        "topic.creation.default.partitions": "6",
        "topic.creation.default.replication.factor": "3",
        "topic.creation.default.cleanup.policy": "compact",
        "topic.creation.big.include": r"demo\.shop\.b.*, demo\.x",
        "topic.creation.big.exclude": r".*\.bad",
        "topic.creation.big.partitions": "60",
        "topic.creation.small.include": r".*heartbeat.*, (?i)DEMO\.shop\.[a-wyz],(?i).*\.Other",
        "topic.creation.small.retention.ms": "1000",
    }
    topics = Topics.of(Properties.of(given), {})
    assert topics is not None
    assert topics.settings_of("demo.shop.big") == TopicSettings(60, 3)
    assert topics.settings_of("demo.shop.bad") == TopicSettings(6, 3, {"cleanup.policy": "compact"})
    for small in ("__heartbeat", "demo.shop.a", "X.OTHER"):
        assert topics.settings_of(small) == TopicSettings(6, 3, {"retention.ms": "1000"})
    assert topics.settings_of("demo.shop.x") == topics.default
    assert Topics.of(Properties.of({"topic.prefix": "demo"}), {}) is None
    simple = Topics.of(Properties.of({"topic.prefix": "demo", "auto.create.topics.enable": "true"}), {})
    assert simple is not None
    assert simple.settings_of("x") == TopicSettings(-1, -1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic.creation.default.partitions": "none"},
        {"topic.creation.groups": "a"},
        {"topic.creation.groups": "a", "topic.creation.default.partitions": "1", "topic.creation.a.include": "("},
    ],
)
def test_wrong_settings_of_topics_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"topic\.creation"):
        Topics.of(Properties.of(wrong), {})
    (error,) = [finding for finding in verdicts(Properties.of(NEEDED | wrong), None) if finding.level == "error"]
    assert error.property.startswith("topic.creation")


# ---------------------------------------------------------------- verdicts


def test_topics_that_brokers_do_not_create_on_request_are_left_to_them(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rscylla.kafka.producer.topics.OPTIONAL_TIMEOUT_S", 0.05)
    monkeypatch.setattr("rscylla.kafka.producer.topics.TIMEOUT_S", 5.0)
    config = {"bootstrap.servers": kafka.servers}  # the mock cluster does not answer such requests
    given = {"topic.prefix": "demo", "auto.create.topics.enable": "true"}
    left = Topics.of(Properties.of(given), config)
    assert left is not None
    left.ensure("demo.shop.left")
    assert "is left to the brokers to create" in caplog.text
    monkeypatch.setattr("rscylla.kafka.producer.topics.TIMEOUT_S", 1.0)
    explicit = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"}
    demanded = Topics.of(Properties.of(given | explicit), config)
    assert demanded is not None
    with pytest.raises(PublishFailed, match=r"record, demo\.shop\.own, cannot be .*partitions=1.*Timed out"):
        demanded.ensure("demo.shop.own")


def test_heartbeats_go_on_after_any_error(kafka: MockKafka, caplog: pytest.LogCaptureFixture) -> None:
    beats: list[Any] = []

    class Failing(JsonLines):
        def publish(self, messages: Any, done: Any) -> None:
            beats.append(messages)
            raise ValueError("it is ill")

    given = {"topic.prefix": "demo", "heartbeat.interval.ms": "1"}
    with Heartbeats(Properties.of(given), Failing(io.BytesIO()), SystemClock()):
        eventually(lambda: len(beats) >= 2)
    assert "a heartbeat is not published: it is ill" in caplog.text


@pytest.mark.parametrize("case", [case for case in cases().values() if case.is_refused], ids=lambda case: case.name)
def test_what_the_connector_refuses_is_an_error_of_a_property_and_names_the_table(case: Any) -> None:
    recorded = json.loads(case.files["validation.json"])
    with EmbeddedScylla(**json.loads(case.files["server.json"]).get("arguments", {})) as server:
        session = server.connect()
        for statement in case.files["schema.cql"].splitlines():
            session.execute(statement)
        properties = Properties.of({"scylla.cluster.ip.addresses": "h:9042"} | case.properties)
        found = [finding for finding in verdicts(properties, session) if finding.level == "error"]
    tables = {
        name for name in properties.parts("scylla.table.names") if any(name in one["message"] for one in recorded)
    }
    assert tables == {name for name in tables if any(name in one.message for one in found)} != set()
    images = {one["property"] for one in recorded if one["property"].startswith("cdc.include")}
    assert images <= {one.property for one in found}
    assert all(one.note.startswith("rscylla runs with it") for one in found)


def test_a_table_that_is_not_there_is_refused(session: rscylla.Session) -> None:
    given = {"topic.prefix": "d", "scylla.cluster.ip.addresses": "h:1"}

    def finding(table: str) -> tuple[str, str, str, str]:
        [one] = verdicts(Properties.of(given | {"scylla.table.names": table}), session)
        return one.property, one.level, one.message, one.note

    for absent in ("shop.none", "no.none"):
        wrong = f"has {absent}, which is no table of the cluster"
        assert finding(absent) == ("scylla.table.names", "error", wrong, "")
    session.execute("CREATE TABLE shop.silent (pk int PRIMARY KEY)")
    off = "has shop.silent, whose CDC is off; ALTER TABLE shop.silent WITH cdc = {'enabled': true}"
    assert finding("shop.silent") == ("scylla.table.names", "error", off, "")
    session.execute("ALTER TABLE shop.silent WITH cdc = {'enabled': true}")
    assert verdicts(Properties.of(given | {"scylla.table.names": "shop.silent"}), session) == []
    session.execute("ALTER TABLE shop.silent WITH cdc = {'enabled': false}")  # the log stays
    *said, note = finding("shop.silent")
    assert said == ["scylla.table.names", "error", off]
    assert "it reads what was logged before" in note


def test_a_log_of_keys_is_refused_in_the_legacy_format_before_it_is_read(session: rscylla.Session) -> None:
    session.execute("CREATE TABLE shop.k (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'delta': 'keys'}")
    given = {"topic.prefix": "d", "scylla.cluster.ip.addresses": "h:1", "scylla.table.names": "shop.k"}
    [found] = verdicts(Properties.of(given), session)
    assert (found.property, found.level, found.note) == ("cdc.output.format", "error", "")
    assert found.message.startswith("is legacy, but shop.k has only keys ('delta': 'keys')")
    assert verdicts(Properties.of(given | {"cdc.output.format": "advanced"}), session) == []


def test_a_publisher_of_ones_own_is_left_open(session: rscylla.Session, kafka: MockKafka) -> None:
    create(session, "items")
    insert(session, "items", 1)
    with KafkaPublisher({"bootstrap.servers": kafka.servers}) as publisher:
        bench = Bench(session, kafka).start(publisher=publisher)
        eventually(lambda: bench.keys("items") == [1], LONG_S)
        bench.end()


def test_many_changes_are_passed_to_the_publisher_at_once(
    session: rscylla.Session, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(session, kafka)
    session.execute("CREATE TABLE shop.a (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
    for i in range(50):
        session.execute("INSERT INTO shop.a (id) VALUES (%s)", (i,))
    calls: list[int] = []
    with KafkaPublisher({"bootstrap.servers": kafka.servers}) as publisher:
        publish = publisher.publish

        def counted(messages: Any, done: Any) -> None:
            if messages[0].topic == "demo.shop.a":
                calls.append(len(messages))
            publish(messages, done)

        monkeypatch.setattr(publisher, "publish", counted)
        bench.start(publisher=publisher)
        eventually(lambda: sum(calls) == 50, LONG_S)
        bench.end()
    assert bench.error is None
    assert len(calls) < 25  # as the pages came


@pytest.mark.slow
def test_rows_come_before_changes_and_again_on_request(session: rscylla.Session, kafka: MockKafka) -> None:
    create(session, "items")
    insert(session, "items", *range(20))
    # Rows on request must be published within half of the lag, or are read again.
    more = {"snapshot_mode": "initial", "signal_poll_interval_ms": "20", "scylla_confidence_window_size": "4000"}
    bench = Bench(session, kafka, **more)
    told: list[tuple[str, float, int]] = []
    bench.start(on_snapshot=lambda *args: told.append(args))
    eventually(lambda: bench.reading("items"), LONG_S)
    insert(session, "items", 100)
    eventually(lambda: bench.keys("items")[-1] == 100, LONG_S)
    operations: dict[int, str] = {}
    for message in bench.read("items"):
        key = json.loads(message.key or b"")["id"]
        operations[key] = operations.get(key, "") + json.loads(message.value or b"")["op"]
    # The changes of the last lag before the snapshot come, too.
    assert {key: found for key, found in operations.items() if found not in ("r", "rc")} == {100: "c"}
    assert told[-1] == ("shop.items", 1.0, 20)

    stream = rscylla.NewStream(session, "shop", "items")
    request(stream, bench.store, "demo.shop.items", reason="test")
    eventually(lambda: bench.marks("items").count("incremental") >= 21, LONG_S)
    bench.end()
    bench.until(items=bench.keys("items"))  # another start takes none


def test_rows_alone(session: rscylla.Session, kafka: MockKafka) -> None:
    create(session, "items")
    insert(session, "items", 1, 2, 3)
    bench = Bench(session, kafka, snapshot_mode="initial_only")
    bench.start()
    eventually(lambda: bench.marks("items")[-1:] == ["last"], LONG_S)
    insert(session, "items", 4)
    bench.wait()
    assert (bench.error, bench.code) == (None, 0)
    assert len(bench.marks("items")) == 3
