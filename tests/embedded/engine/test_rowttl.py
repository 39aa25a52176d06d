"""Per-row TTL: a column that says when its row expires, and the deletes of the server's own in the log."""

from __future__ import annotations

import datetime as dt
from datetime import UTC

import pytest
from enginebox import START_US, EngineBox

from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaProcess
from rscylla.embedded.clock import ManualClock, SystemClock
from rscylla.embedded.errors import CqlError, InvalidRequest

CDC = "WITH cdc = {'enabled': true, 'preimage': true}"
PAST = START_US // 1_000_000  # seconds; the box's clock is a minute later
WIDE = f"CREATE TABLE t (pk int, ck int, v int, gone bigint TTL, PRIMARY KEY (pk, ck)) {CDC}"


@pytest.fixture
def box() -> EngineBox:
    return EngineBox()


def now_s(box: EngineBox) -> int:
    return box.clock.now_us() // 1_000_000


def test_an_expired_row_is_deleted_by_the_server(box: EngineBox) -> None:
    box.run(WIDE)
    for ck, life in ((1, 10), (2, 20), (3, None)):
        box.run("INSERT INTO t (pk, ck, gone) VALUES (1, ?, ?)", [ck, None if life is None else now_s(box) + life])
    assert box.engine.writer.expire_rows() == 0
    box.clock.advance(10)
    # Until the service comes by, the row is there.
    assert box.column("SELECT ck FROM t") == [1, 2, 3]
    assert box.engine.writer.expire_rows() == 1
    assert box.column("SELECT ck FROM t") == [2, 3]
    preimage, delete = box.log()[-2:]
    assert (preimage["operation"], preimage["ck"]) == (0, 1)
    assert delete == {"operation": -3, "pk": 1, "ck": 1, "end_of_batch": True}
    box.clock.advance(100)
    assert [box.engine.writer.expire_rows() for _ in range(2)] == [1, 0]


def test_without_clustering_columns_the_partition_goes(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int, gone int TTL) {CDC}")
    box.run(f"INSERT INTO t (pk, v, gone) VALUES (1, 2, {PAST})")
    assert box.engine.writer.expire_rows() == 1
    assert [row["operation"] for row in box.log()] == [2, 0, -4]
    assert box.rows("SELECT * FROM t") == []


def test_each_row_is_a_record_of_its_own(box: EngineBox) -> None:
    box.run(WIDE)
    box.run(
        f"BEGIN BATCH INSERT INTO t (pk, ck, gone) VALUES (1, 1, {PAST});"
        f" INSERT INTO t (pk, ck, gone) VALUES (1, 2, {PAST}); APPLY BATCH"
    )
    assert box.engine.writer.expire_rows() == 2
    times = {row["cdc$time"] for row in box.rows("SELECT * FROM t_scylla_cdc_log") if row["cdc$operation"] == -3}
    assert len(times) == 2


def test_deletes_by_users_keep_their_operation(box: EngineBox) -> None:
    box.run(WIDE)
    box.run(f"INSERT INTO t (pk, ck, gone) VALUES (1, 1, {PAST})")
    box.run("DELETE FROM t WHERE pk = 1 AND ck = 1")
    box.run("DELETE FROM t WHERE pk = 1")
    assert [row["operation"] for row in box.log()] == [2, 0, 3, 4]
    assert box.engine.writer.expire_rows() == 0


def test_timestamps_count_in_milliseconds(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, gone timestamp TTL)")
    moment = dt.datetime.fromtimestamp(now_s(box) + 5, UTC)
    box.run("INSERT INTO t (pk, gone) VALUES (1, ?)", [moment])
    box.clock.advance(4)
    assert box.engine.writer.expire_rows() == 0
    box.clock.advance(1)
    assert box.engine.writer.expire_rows() == 1


def test_it_can_be_switched_off_and_on(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, a int, b int TTL)")
    box.run(f"INSERT INTO t (pk, a, b) VALUES (1, {PAST}, {PAST})")
    with pytest.raises(InvalidRequest, match="already has a TTL column, b"):
        box.run("ALTER TABLE t TTL a")
    box.run("ALTER TABLE t TTL NULL")
    assert box.engine.writer.expire_rows() == 0
    with pytest.raises(InvalidRequest, match="does not have a TTL column"):
        box.run("ALTER TABLE t TTL NULL")
    box.run("ALTER TABLE t TTL a")
    assert box.engine.writer.expire_rows() == 1


def test_a_dropped_column_is_no_ttl_column_when_it_comes_back(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, a int, b int TTL)")
    box.run("ALTER TABLE t DROP a")
    assert box.engine.schema.keyspaces["ks"].tables["t"].ttl_column == "b"
    box.run("ALTER TABLE t DROP b")
    box.run("ALTER TABLE t ADD b int")
    assert box.engine.schema.keyspaces["ks"].tables["t"].ttl_column is None
    box.run(f"INSERT INTO t (pk, b) VALUES (1, {PAST})")
    assert box.engine.writer.expire_rows() == 0


def test_describe_shows_the_column(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, gone bigint TTL)")
    text = box.row("DESCRIBE TABLE t")["create_statement"]
    assert "    gone bigint TTL" in text
    box.run("DROP TABLE t")
    box.run(text)
    assert box.row("DESCRIBE TABLE t")["create_statement"] == text


@pytest.mark.parametrize(("kind", "unit"), [("int", 1), ("bigint", 1), ("timestamp", 1000)])
def test_a_time_of_more_than_five_years_ago_is_no_expiration(box: EngineBox, kind: str, unit: int) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, gone {kind} TTL)")
    five_years = 5 * 31_556_952
    for pk, age in enumerate((five_years, five_years - 1, 0, -1)):
        box.run(f"INSERT INTO t (pk, gone) VALUES ({pk}, {(now_s(box) - age) * unit})")
    box.run("INSERT INTO t (pk, gone) VALUES (9, 0)")
    assert box.engine.writer.expire_rows() == 2
    assert sorted(box.column("SELECT pk FROM t")) == [0, 3, 9]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE x (pk int PRIMARY KEY, a text TTL)", "must be of type timestamp, bigint or int, not text"),
        ("CREATE TABLE x (pk int PRIMARY KEY, a int TTL, b int TTL)", "more than one TTL column"),
        ("CREATE TABLE x (pk int, a int TTL, PRIMARY KEY (pk, a))", "Cannot use a primary key column as TTL column a"),
        ("ALTER TABLE t TTL pk", "Cannot use a primary key column as TTL column pk"),
        ("ALTER TABLE t TTL nothere", "Column nothere does not exist"),
        ("ALTER TABLE t TTL v", "must be of type"),
    ],
)
def test_refusals(box: EngineBox, statement: str, message: str) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, v text)")
    with pytest.raises(CqlError, match=message):
        box.run(statement)


def test_a_column_may_be_named_ttl(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, ttl int TTL)")
    box.run("ALTER TABLE t TTL NULL")
    box.run("ALTER TABLE t TTL ttl")
    assert box.engine.schema.keyspaces["ks"].tables["t"].ttl_column == "ttl"


def test_from_the_servers_own_interface() -> None:
    with EmbeddedScylla(clock=ManualClock(1_800_000_000_000_000), seed=1) as scylla:
        scylla.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        scylla.execute("CREATE TABLE k.t (pk int PRIMARY KEY, gone int TTL) WITH cdc = {'enabled': true}")
        scylla.execute("INSERT INTO k.t (pk, gone) VALUES (1, 1799999999)")
        assert scylla.expire_rows() == 1
        operations = scylla.execute('SELECT "cdc$operation" AS op FROM k.t_scylla_cdc_log')
    assert [row["op"] for row in operations] == [2, -4]


def test_from_a_server_in_a_process_of_its_own() -> None:
    with EmbeddedScyllaProcess() as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE k.t (pk int PRIMARY KEY, gone int TTL)")
        session.execute("INSERT INTO k.t (pk, gone) VALUES (1, %s)", (SystemClock().now_us() // 1_000_000,))
        assert [scylla.expire_rows() for _ in range(2)] == [1, 0]
