"""A connector whose Kafka is down at the start, or whose keyspaces and tables of cursors are dropped while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from mockkafka import MockKafka
from runningconnector import LONG_S, Running
from waiting import eventually

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import QueryFailed
from rscylla.kafka import KafkaCursorStore
from rscylla.kafka.cursors.scylla import Stores
from rscylla.kafka.lanes import Lanes


@pytest.fixture(scope="module")
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(vnodes=2, shards=1) as server:
        yield server


@pytest.fixture
def session(scylla: EmbeddedScylla) -> Iterator[rscylla.Session]:
    session = scylla.connect()
    for keyspace in ("shop", "other", "cursors"):
        session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
    for keyspace in ("shop", "other"):
        create(session, keyspace)
    yield session
    session.cluster.shutdown()


def create(session: rscylla.Session, keyspace: str, *tables: str) -> None:
    strategy = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {strategy}")
    for table in tables or ("a",):
        session.execute(f"CREATE TABLE {keyspace}.{table} (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka(partitions=1) as cluster:
        yield cluster


QUICK = {"rscylla_tables_interval_ms": "100", "scylla_table_names": "shop.*,other.*"}


# ---------------------------------------------------------------- Kafka is down at the start


@pytest.mark.parametrize(
    "mode",
    [{"exactly_once_support": "required"}, {"auto_create_topics_enable": "true"}, {"heartbeat_interval_ms": "50"}],
)
def test_a_stop_does_not_wait_for_a_kafka_that_is_down(
    session: rscylla.Session, kafka: MockKafka, mode: dict[str, str]
) -> None:
    """A lane that is left behind makes the code 3."""
    for table in ("b", "c", "d"):
        session.execute(f"CREATE TABLE shop.{table} (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    kafka.down()
    with Running(session, kafka, in_memory=False, **QUICK, **mode) as running:
        for table in "abcd":
            running.insert(table, 1)
        eventually(lambda: running.connector.service is not None, LONG_S)
        eventually(lambda: len(running.connector.service.facts().lanes) == 5, LONG_S)  # type: ignore[union-attr]
        eventually(running.not_ready, LONG_S)
    assert (running.code, running.error) == (0, None)


# ---------------------------------------------------------------- keyspaces and tables of cursors are dropped


@pytest.mark.slow
def test_a_keyspace_that_is_dropped_and_made_again_stops_no_other_table(
    session: rscylla.Session, kafka: MockKafka
) -> None:
    with Running(session, kafka, in_memory=False, **QUICK) as running:
        for keyspace in ("shop", "other"):
            running.insert("a", 1, keyspace=keyspace)
        eventually(lambda: [running.records("a", keyspace=k) for k in ("shop", "other")] == [1, 1], LONG_S)
        session.execute("DROP KEYSPACE shop")
        eventually(lambda: running.lanes() == {"demo.other.a"}, LONG_S)
        create(session, "shop")
        running.insert("a", 2, keyspace="shop")
        running.insert("a", 2, keyspace="other")
        eventually(lambda: [running.records("a", keyspace=k) for k in ("shop", "other")] == [2, 2], LONG_S)
        eventually(lambda: running.lanes() == {"demo.shop.a", "demo.other.a"}, LONG_S)
    assert (running.code, running.error) == (0, None)


@pytest.mark.slow
def test_a_keyspace_that_stays_away_makes_no_stop_fail(session: rscylla.Session, kafka: MockKafka) -> None:
    with Running(session, kafka, in_memory=False, **QUICK) as running:
        for keyspace in ("shop", "other"):
            running.insert("a", 1, keyspace=keyspace)
        eventually(lambda: [running.records("a", keyspace=k) for k in ("shop", "other")] == [1, 1], LONG_S)
        session.execute("DROP KEYSPACE shop")
        running.insert("a", 2, keyspace="other")
        eventually(lambda: running.records("a", keyspace="other") == 2, LONG_S)
    assert (running.code, running.error) == (0, None)


@pytest.mark.parametrize("place", ["", "cursors"])
@pytest.mark.slow
def test_cursors_that_are_dropped_are_kept_again(session: rscylla.Session, kafka: MockKafka, place: str) -> None:
    if place:
        create(session, place)
    options = QUICK | ({"rscylla_store_keyspace": place} if place else {})
    with Running(session, kafka, in_memory=False, **options) as running:
        running.insert("a", 1)
        eventually(lambda: running.records("a") == 1, LONG_S)
        if place:
            session.execute(f"DROP KEYSPACE {place}")
            create(session, place)
        else:
            session.execute("DROP TABLE shop.rscylla_cursors")
        running.insert("a", 2)
        eventually(lambda: len({m.key for m in kafka.read("demo.shop.a")}) == 2, LONG_S)
        eventually(lambda: running.cursor("demo.shop.a", place or "shop"), LONG_S)
        eventually(lambda: running.not_ready() == "", LONG_S)


GROUP = {"rscylla_group": "team", "rscylla_group_slices": "2", "rscylla_store_keyspace": "cursors"}


class Unreadable:
    """Makes the cursors of ``shop.a`` unreadable while ``on``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, *, on: bool) -> None:
        self.on = on
        real = getattr(owner, method)

        def failing(store: object, name: str) -> object:
            if self.on and name.startswith(("demo.shop.a", "shop")):
                raise QueryFailed("no right to read the cursors of shop")
            return real(store, name)

        monkeypatch.setattr(owner, method, failing)


@pytest.mark.slow
@pytest.mark.parametrize("where", [(Stores, "of"), (ScyllaCursorStore, "get_cursor")])
def test_a_table_whose_cursors_cannot_be_read_keeps_no_other_table_back(
    session: rscylla.Session, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch, where: tuple[type, str]
) -> None:
    cursors = Unreadable(monkeypatch, *where, on=False)
    with Running(session, kafka, in_memory=False, **QUICK) as running:
        running.insert("a", 1, keyspace="other")
        eventually(lambda: running.records("a", keyspace="other") == 1, LONG_S)
        cursors.on = True
        session.execute("CREATE TABLE other.late (id int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        running.insert("late", 1, keyspace="other")
        eventually(lambda: running.records("late", keyspace="other") == 1, LONG_S)
        eventually(lambda: "no right to read the cursors of shop" in running.not_ready(), LONG_S)
        cursors.on = False
        running.insert("a", 1)
        eventually(lambda: running.records("a") == 1, LONG_S)
        eventually(lambda: running.not_ready() == "", LONG_S)


@pytest.mark.slow
@pytest.mark.parametrize("group", [{}, GROUP])
def test_a_lane_that_cannot_begin_tries_again_alone(
    session: rscylla.Session, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch, group: dict[str, str]
) -> None:
    create(session, "cursors")
    cursors = Unreadable(monkeypatch, ScyllaCursorStore, "get_cursor", on=True)
    with Running(session, kafka, in_memory=False, **QUICK, **group) as running:
        running.insert("a", *range(8), keyspace="other")
        running.insert("a", *range(8))
        eventually(lambda: running.records("a", keyspace="other") == 8, LONG_S)
        eventually(lambda: "demo.shop.a" in running.not_ready(), LONG_S)
        assert "no right to read the cursors of shop" in running.not_ready()
        others, service = running.lanes(), running.connector.service
        assert others == {f"demo.other.a{part}" for part in (("[0/2]", "[1/2]") if group else ("",))}
        cursors.on = False
        eventually(lambda: running.records("a") == 8, LONG_S)
        eventually(lambda: running.not_ready() == "", LONG_S)
        assert running.connector.service is service
        assert [running.records("a", keyspace=keyspace) for keyspace in ("shop", "other")] == [8, 8]
    assert (running.code, running.error) == (0, None)


@pytest.mark.slow
@pytest.mark.parametrize(("group", "had"), [({}, "demo.shop.a[1/4]"), (GROUP, "demo.shop.a")])
@pytest.mark.parametrize("mode", ["requested", "required"])
def test_a_table_whose_cursors_are_in_other_slices_keeps_no_other_table_back(
    session: rscylla.Session,
    kafka: MockKafka,
    monkeypatch: pytest.MonkeyPatch,
    group: dict[str, str],
    had: str,
    mode: str,
) -> None:
    """It does not begin anew, which would publish its changes again, or pass them over with rscylla.start=head."""
    monkeypatch.setattr(KafkaCursorStore, "_check_policy", lambda self, admin: None)  # the mock cluster knows none
    kafka.create("rscylla_cursors", 2)
    create(session, "cursors")
    head = rscylla.NewStream(session, "shop", "a").head_cursor(timedelta())
    ScyllaCursorStore(session, "cursors", create=True).set_cursor(had, head)
    more = {"exactly_once_support": mode, "rscylla_store_keyspace": "cursors"} | group
    with Running(session, kafka, in_memory=False, **QUICK, **more) as running:
        running.insert("a", *range(8), keyspace="other")
        running.insert("a", *range(8))
        eventually(lambda: running.records("a", keyspace="other") == 8, LONG_S)
        eventually(lambda: f"'{had}' has a cursor" in running.not_ready(), LONG_S)
        assert "rscylla cursor reslice demo.shop.a --from" in running.not_ready()
        assert running.records("a") == 0


def test_the_first_start_says_what_is_wrong(
    session: rscylla.Session, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(lanes: Lanes, *_: object, **__: object) -> None:
        raise QueryFailed("no right to read the cursors of shop")

    monkeypatch.setattr(Lanes, "lane", failing)
    running = Running(session, kafka, in_memory=False, **QUICK)
    running.thread.start()
    running.thread.join(LONG_S)
    assert str(running.error) == "no right to read the cursors of shop"
