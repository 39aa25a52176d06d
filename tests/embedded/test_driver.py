"""scylla-driver against the embedded server over TCP: connecting, schema, writing, the log, paging, topology."""

from __future__ import annotations

import datetime as dt
import decimal
import ipaddress
import uuid
from datetime import timedelta
from typing import Any

import pytest
from cassandra import AlreadyExists, AuthenticationFailed, ConsistencyLevel, InvalidRequest, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable, Session
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.protocol import ConfigurationException, SyntaxException
from cassandra.query import BatchStatement, SimpleStatement, dict_factory
from cassandra.util import Duration, OrderedMapSerializedKey, SortedSet, uuid_from_time
from waiting import eventually

from rscylla.embedded import EmbeddedScylla

REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}"


UNIX_EPOCH_TICKS = 0x01B21DD213814000  # 100 ns ticks from 1582-10-15, where UUID time starts, to 1970


def log_rows(session: Session, table: str) -> list[dict[str, Any]]:
    return list(session.execute(f"SELECT * FROM {table}_scylla_cdc_log"))


# ---------------------------------------------------------------- connecting


def test_a_cluster_with_the_drivers_defaults_connects() -> None:
    """The driver tries protocol v5, is refused, and uses v4; it negotiates lz4 and connects to both shards."""
    with EmbeddedScylla() as scylla:
        cluster = Cluster(scylla.contact_points, port=scylla.port)
        try:
            session = cluster.connect()
            row = session.execute("SELECT release_version, cql_version FROM system.local WHERE key = 'local'").one()
            assert row == ("3.0.8", "3.3.1")
            assert cluster.protocol_version == 4
            (host,) = cluster.metadata.all_hosts()
            assert host.host_id in {node.host_id for node in scylla._cluster.nodes}
            (pool,) = session.get_pools()
            eventually(lambda: set(pool._connections) == {0, 1})
            # The first connection tells the driver of the port that it opens the others on.
            ports = {connection.endpoint.port for connection in pool._connections.values()}
            assert scylla.shard_aware_port in ports
        finally:
            cluster.shutdown()


def test_a_server_that_keeps_its_shards_to_itself_is_used_like_any_other() -> None:
    """The driver then takes it for Cassandra and asks for system.peers_v2 first, which must be refused."""
    with EmbeddedScylla(2, shard_aware=False) as scylla:
        session = scylla.connect()
        assert len(session.cluster.metadata.all_hosts()) == 2
        assert {host.sharding_info for host in session.cluster.metadata.all_hosts()} == {None}
        assert session.execute("SELECT key FROM system.local").one() == ("local",)


def test_answers_can_be_compressed(scylla: EmbeddedScylla) -> None:
    with EmbeddedScylla(compression=True) as packed:
        session = packed.connect(compression="lz4")
        keyspaces = "SELECT keyspace_name FROM system_schema.keyspaces"
        assert {row.keyspace_name for row in session.execute(keyspaces)} >= {"system", "system_schema"}


def test_connecting_is_quiet_and_leaves_the_session_to_the_caller(
    scylla: EmbeddedScylla, caplog: pytest.LogCaptureFixture
) -> None:
    session = scylla.connect()
    session.row_factory = dict_factory
    assert session.execute("SELECT key FROM system.local").one() == {"key": "local"}
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_protocol_version_three_connects(scylla: EmbeddedScylla) -> None:
    session = scylla.connect(protocol_version=3)
    statement = session.prepare("SELECT key FROM system.local WHERE key = ?")
    assert session.execute(statement, ["local"]).one() == ("local",)


def test_the_driver_knows_the_ring(shared: Session, scylla: EmbeddedScylla) -> None:
    (node,) = scylla._cluster.nodes
    ring = shared.cluster.metadata.token_map.ring
    assert [token.value for token in ring] == list(node.tokens)


def test_wrong_credentials_are_refused() -> None:
    with EmbeddedScylla(users={"ann": "right"}) as scylla:
        for auth in (PlainTextAuthProvider("ann", "wrong"), PlainTextAuthProvider("bob", "right")):
            with pytest.raises(NoHostAvailable) as caught:
                scylla.connect(auth_provider=auth)
            (error,) = caught.value.errors.values()
            assert isinstance(error, AuthenticationFailed)
            assert "Username and/or password are incorrect" in str(error)
        assert scylla.connect().execute("SELECT key FROM system.local").one() == ("local",)


def test_missing_credentials_are_refused() -> None:
    with EmbeddedScylla(users={"ann": "right"}) as scylla:
        cluster = Cluster(scylla.contact_points, port=scylla.port)
        try:
            with pytest.raises(NoHostAvailable) as caught:
                cluster.connect()
            assert isinstance(next(iter(caught.value.errors.values())), AuthenticationFailed)
        finally:
            cluster.shutdown()


def test_a_session_can_start_in_a_keyspace(scylla: EmbeddedScylla, session: Session) -> None:
    session.execute("CREATE TABLE t (pk int PRIMARY KEY)")
    other = scylla.connect(session.keyspace)
    assert list(other.execute("SELECT * FROM t")) == []
    with pytest.raises(NoHostAvailable, match="nowhere"):
        scylla.connect("nowhere")


# ---------------------------------------------------------------- schema


def test_the_driver_sees_base_and_log_with_their_columns(session: Session) -> None:
    session.execute(
        "CREATE TABLE t (pk int, ck text, s int static, v map<text, int>, PRIMARY KEY (pk, ck)) "
        "WITH CLUSTERING ORDER BY (ck DESC) AND cdc = {'enabled': true} AND comment = 'orders'"
    )
    tables = session.cluster.metadata.keyspaces[session.keyspace].tables
    base = tables["t"]
    assert [column.name for column in base.primary_key] == ["pk", "ck"]
    assert base.clustering_key[0].is_reversed
    assert base.columns["s"].is_static
    assert base.columns["v"].cql_type == "map<text, int>"
    assert base.options["comment"] == "orders"
    assert b"enabled" in base.extensions["cdc"]
    log = eventually(lambda: tables.get("t_scylla_cdc_log"))
    assert [column.name for column in log.partition_key] == ["cdc$stream_id"]
    assert [column.name for column in log.clustering_key] == ["cdc$time", "cdc$batch_seq_no"]
    assert log.columns["v"].cql_type == "frozen<map<text, int>>"
    assert log.columns["cdc$deleted_elements_v"].cql_type == "frozen<set<text>>"
    assert not log.columns["s"].is_static


def test_another_session_hears_of_schema_changes(scylla: EmbeddedScylla, session: Session) -> None:
    """The log's own event matters: without it, other clients would not know the log."""
    other = scylla.connect().cluster.metadata
    session.execute("CREATE TABLE t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    eventually(lambda: {"t", "t_scylla_cdc_log"} <= other.keyspaces[session.keyspace].tables.keys())
    session.execute("ALTER TABLE t ADD w text")
    tables = other.keyspaces[session.keyspace].tables
    eventually(lambda: "w" in tables["t"].columns and "cdc$deleted_w" in tables["t_scylla_cdc_log"].columns)
    session.execute("DROP TABLE t")
    eventually(lambda: not {"t", "t_scylla_cdc_log"} & tables.keys())
    keyspace = session.keyspace
    session.execute(f"DROP KEYSPACE {keyspace}")
    eventually(lambda: keyspace not in other.keyspaces)


def test_system_tables_have_metadata(shared: Session) -> None:
    tables = shared.cluster.metadata.keyspaces["system_distributed"].tables
    assert tables["cdc_generation_timestamps"].clustering_key[0].is_reversed
    assert tables["cdc_streams_descriptions_v2"].columns["streams"].cql_type == "frozen<set<blob>>"


def test_user_types_travel(session: Session) -> None:
    session.execute("CREATE TYPE address (street text, no int)")
    session.execute("CREATE TABLE t (pk int PRIMARY KEY, a frozen<address>) WITH cdc = {'enabled': true}")
    session.execute("INSERT INTO t (pk, a) VALUES (1, {street: 'Hill', no: 3})")
    (row,) = session.execute("SELECT a FROM t")
    assert (row["a"].street, row["a"].no) == ("Hill", 3)
    (row,) = log_rows(session, "t")
    assert (row["a"].street, row["a"].no) == ("Hill", 3)
    types = session.cluster.metadata.keyspaces[session.keyspace].user_types
    assert types["address"].field_names == ["street", "no"]


# ---------------------------------------------------------------- statements


def test_an_insert_appears_in_the_log_with_its_exact_time(session: Session) -> None:
    session.execute("CREATE TABLE t (pk int, ck int, v text, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    session.execute("INSERT INTO t (pk, ck, v) VALUES (%s, %s, %s)", [1, 2, "three"])
    (written,) = session.execute("SELECT writetime(v) AS at FROM t WHERE pk = 1 AND ck = 2")
    (row,) = log_rows(session, "t")
    assert (row["cdc$operation"], row["cdc$batch_seq_no"], row["cdc$end_of_batch"]) == (2, 0, True)
    assert (row["pk"], row["ck"], row["v"], row["cdc$deleted_v"], row["cdc$ttl"]) == (1, 2, "three", None, None)
    assert (row["cdc$time"].time - UNIX_EPOCH_TICKS) // 10 == written["at"]
    streams = {
        stream
        for found in session.execute("SELECT streams FROM system_distributed.cdc_streams_descriptions_v2")
        for stream in found["streams"]
    }
    assert row["cdc$stream_id"] in streams


def test_the_log_can_be_read_by_stream_and_time(session: Session) -> None:
    session.execute("CREATE TABLE t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    for value in range(5):
        session.execute("UPDATE t SET v = %s WHERE pk = 1", [value])
    rows = log_rows(session, "t")
    assert [row["v"] for row in rows] == [0, 1, 2, 3, 4]
    (stream,) = {row["cdc$stream_id"] for row in rows}
    statement = session.prepare(
        'SELECT v FROM t_scylla_cdc_log WHERE "cdc$stream_id" IN ? AND "cdc$time" >= ? AND "cdc$time" < ? BYPASS CACHE'
    )
    found = session.execute(statement, [[stream], rows[1]["cdc$time"], rows[4]["cdc$time"]])
    assert [row["v"] for row in found] == [1, 2, 3]
    text = (
        'SELECT v FROM t_scylla_cdc_log WHERE "cdc$stream_id" = %s AND "cdc$time" > minTimeuuid(%s) '
        'AND "cdc$time" <= maxTimeuuid(%s) USING TIMEOUT 2000ms'
    )
    now = dt.datetime.now(dt.UTC)
    found = session.execute(text, [stream, now - timedelta(hours=1), now + timedelta(hours=1)])
    assert [row["v"] for row in found] == [0, 1, 2, 3, 4]


def test_every_native_type_round_trips_prepared(session: Session) -> None:
    values: dict[str, tuple[str, Any]] = {
        "a": ("ascii", "ascii"),
        "b": ("bigint", -(2**63)),
        "c": ("blob", b"\0\xff"),
        "d": ("boolean", True),
        "e": ("date", dt.date(2026, 11, 21)),
        "f": ("decimal", decimal.Decimal("-12.345")),
        "g": ("double", 1.5e300),
        "h": ("duration", Duration(1, 2, 3)),
        "i": ("float", 0.5),
        "j": ("inet", "2001:db8::1"),
        "k": ("int", -5),
        "l": ("smallint", -3),
        "m": ("text", "grün"),
        "n": ("time", dt.time(1, 2, 3, 456)),
        "o": ("timestamp", dt.datetime(2026, 11, 21, 12, 0, 0, 123000)),
        "p": ("timeuuid", uuid_from_time(1_700_000_000)),
        "q": ("tinyint", -1),
        "r": ("uuid", uuid.UUID(int=7)),
        "s": ("varint", -(2**80)),
        "t": ("frozen<list<int>>", [1, 2]),
        "u": ("frozen<set<text>>", {"x", "y"}),
        "v": ("frozen<map<int, text>>", {1: "one"}),
        "w": ("tuple<int, text>", (1, None)),
        "x": ("frozen<map<text, frozen<list<inet>>>>", {"x": ["127.0.0.1"]}),
    }
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in values.items())
    session.execute(f"CREATE TABLE t (pk int PRIMARY KEY, {columns}) WITH cdc = {{'enabled': true}}")
    markers = ", ".join("?" * (len(values) + 1))
    insert = session.prepare(f"INSERT INTO t (pk, {', '.join(values)}) VALUES ({markers})")
    session.execute(insert, [1, *(value for _, value in values.values())])
    for row in (*session.execute("SELECT * FROM t"), *log_rows(session, "t")):
        read = {name: plain(row[name]) for name in values}
        assert read == {name: value for name, (_, value) in values.items()}


def plain(value: Any) -> Any:
    """Return the driver's own value classes as Python's, where both exist."""
    match value:
        case SortedSet():
            return set(value)
        case OrderedMapSerializedKey():
            return {key: plain(item) for key, item in value.items()}
        case _ if hasattr(value, "nanosecond_time"):
            return value.time()
        case _ if hasattr(value, "days_from_epoch"):
            return value.date()
        case ipaddress.IPv6Address():
            return str(value)
        case _:
            return value


def test_named_and_unset_values(session: Session) -> None:
    session.execute("CREATE TABLE t (pk int PRIMARY KEY, v int, w int) WITH cdc = {'enabled': true}")
    insert = session.prepare("INSERT INTO t (pk, v, w) VALUES (:pk, :v, :w)")
    session.execute(insert, {"pk": 1, "v": 2})
    session.execute(insert, {"pk": 1, "v": None, "w": 3})
    first, second = log_rows(session, "t")
    assert (first["v"], first["w"], first["cdc$deleted_w"]) == (2, None, None)
    assert (second["v"], second["cdc$deleted_v"], second["w"]) == (None, True, 3)


def test_prepared_routing_knows_the_partition_key(session: Session) -> None:
    session.execute("CREATE TABLE t (a int, b text, c int, PRIMARY KEY ((a, b), c))")
    insert = session.prepare("INSERT INTO t (c, b, a) VALUES (?, ?, ?)")
    assert insert.routing_key_indexes == [2, 1]
    assert insert.bind([1, "x", 2]).routing_key == b"\0\4\0\0\0\2\0\0\1x\0"


def test_a_tuple_may_stand_for_a_udt_and_bind_its_fields(session: Session) -> None:
    session.execute("CREATE TYPE addr (street text, zip int)")
    session.execute("CREATE TABLE t (pk int PRIMARY KEY, u addr, f frozen<addr>, s set<frozen<addr>>)")
    insert = session.prepare("INSERT INTO t (pk, u, f, s) VALUES (1, (?, 2), ('a'), {('b', ?)})")
    assert [(c.name, c.type.typename) for c in insert.column_metadata] == [("u[0]", "varchar"), ("value(s)[1]", "int")]
    session.execute(insert, ("x", 5))
    row = session.execute("SELECT u, f, s FROM t").one()
    assert (tuple(row["u"]), tuple(row["f"]), [tuple(a) for a in row["s"]]) == (("x", 2), ("a", None), [("b", 5)])
    session.execute("UPDATE t SET u = ('y', null) WHERE pk = 1")
    assert tuple(session.execute("SELECT u FROM t").one()["u"]) == ("y", None)


def test_the_key_of_a_list_element_is_bound_as_a_uuid(session: Session) -> None:
    session.execute("CREATE TABLE t (pk int PRIMARY KEY, v list<int>)")
    update = session.prepare("UPDATE t SET v[SCYLLA_TIMEUUID_LIST_INDEX(?)] = ? WHERE pk = 1")
    assert [(c.name, c.type.typename) for c in update.column_metadata] == [("uuid_idx(v)", "uuid"), ("value(v)", "int")]
    session.execute(update, (uuid.UUID("6f1f8f10-10b9-11f2-ba7e-2b8c92c13c26"), 5))
    assert session.execute("SELECT v FROM t").one()["v"] == [5]


def test_a_batch_of_prepared_and_plain_statements_is_one_record(session: Session) -> None:
    session.execute("CREATE TABLE t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    insert = session.prepare("INSERT INTO t (pk, ck, v) VALUES (?, ?, ?)")
    batch = BatchStatement()
    batch.add(insert, (1, 2, 3))
    batch.add(SimpleStatement("DELETE FROM t WHERE pk = 1 AND ck = 1"))
    batch.add("UPDATE t SET v = %s WHERE pk = %s AND ck = %s", (9, 1, 3))
    session.execute(batch)
    rows = log_rows(session, "t")
    assert len({row["cdc$time"] for row in rows}) == 1
    assert [(row["cdc$batch_seq_no"], row["ck"], row["cdc$operation"]) for row in rows] == [
        (0, 1, 3),
        (1, 2, 2),
        (2, 3, 1),
    ]


def test_conditional_writes_say_whether_they_were_applied(session: Session) -> None:
    session.execute("CREATE TABLE t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    insert = session.prepare("INSERT INTO t (pk, v) VALUES (?, ?) IF NOT EXISTS")
    assert session.execute(insert, [1, 2]).was_applied
    refused = session.execute(insert, [1, 3])
    assert not refused.was_applied
    assert session.execute(insert, [2, 2]).was_applied
    assert not session.execute("UPDATE t SET v = 5 WHERE pk = 1 IF v = 4").was_applied
    assert session.execute("UPDATE t SET v = 5 WHERE pk = 1 IF v = 2").was_applied
    assert len(log_rows(session, "t")) == 3


@pytest.mark.parametrize("level", ["ANY", "ONE", "TWO", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "LOCAL_ONE"])
def test_consistency_is_accepted(session: Session, level: str) -> None:
    session.execute("CREATE TABLE t (pk int PRIMARY KEY)")
    statement = SimpleStatement(
        "INSERT INTO t (pk) VALUES (1)", consistency_level=ConsistencyLevel.name_to_value[level]
    )
    session.execute(statement)
    assert session.execute("SELECT count(*) AS n FROM t").one() == {"n": 1}


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("SELEKT * FROM t", SyntaxException, "line 1"),
        ("SELECT * FROM nosuch", InvalidRequest, "nosuch"),
        ("SELECT nosuch FROM t", InvalidRequest, "nosuch"),
        ("CREATE TABLE t (pk int PRIMARY KEY)", AlreadyExists, "t"),
        ("CREATE TABLE u (pk int PRIMARY KEY) WITH cdc = {'preimage': 'maybe'}", ConfigurationException, "preimage"),
        ("ALTER TABLE t WITH cdc = {'ttl': 5}", InvalidRequest, 'requires specifying "enabled" flag'),
        ("DROP TABLE t_scylla_cdc_log", Unauthorized, "Cannot DROP cdc log table"),
        ("INSERT INTO t (pk, v) VALUES (1, 'text')", InvalidRequest, "v"),
        ("INSERT INTO t (pk, v) VALUES (1, 2) USING TIMESTAMP 123", InvalidRequest, 'from the past"'),
        ("CREATE MATERIALIZED VIEW mv AS SELECT * FROM t WHERE pk IS NOT NULL PRIMARY KEY (pk)", InvalidRequest, ""),
    ],
)
def test_errors_reach_the_driver_as_its_own_classes(
    session: Session, text: str, kind: type[Exception], says: str
) -> None:
    session.execute("CREATE TABLE t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    with pytest.raises(kind) as caught:
        session.execute(text)
    assert says in str(caught.value)


def test_a_prepared_select_star_follows_the_schema(session: Session) -> None:
    """The driver omits result metadata once it knows it; the server must report when it changes."""
    session.execute("CREATE TABLE t (pk int PRIMARY KEY, v int)")
    session.execute("INSERT INTO t (pk, v) VALUES (1, 2)")
    statement = session.prepare("SELECT * FROM t")
    for _ in range(2):
        assert session.execute(statement).one() == {"pk": 1, "v": 2}
    session.execute("ALTER TABLE t ADD a text")
    for _ in range(2):
        assert session.execute(statement).one() == {"pk": 1, "a": None, "v": 2}


def test_many_writers_at_once_lose_nothing(session: Session) -> None:
    session.execute("CREATE TABLE t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    insert = session.prepare("INSERT INTO t (pk, ck, v) VALUES (?, ?, ?)")
    rows = [(number % 10, number, number) for number in range(500)]
    assert all(result.success for result in execute_concurrent_with_args(session, insert, rows, concurrency=50))
    assert session.execute("SELECT count(*) AS n FROM t").one() == {"n": 500}
    assert {row["v"] for row in log_rows(session, "t")} == set(range(500))


# ---------------------------------------------------------------- paging


@pytest.mark.parametrize("prepared", [True, False])
def test_pages_join_to_the_whole(session: Session, prepared: bool) -> None:
    session.execute("CREATE TABLE t (pk int, ck int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    insert = session.prepare("INSERT INTO t (pk, ck) VALUES (?, ?)")
    execute_concurrent_with_args(session, insert, [(pk, ck) for pk in range(3) for ck in range(11)])
    for table in ("t", "t_scylla_cdc_log"):
        text = f"SELECT pk, ck FROM {table}"
        statement = session.prepare(text) if prepared else SimpleStatement(text)
        statement.fetch_size = 5
        result = session.execute(statement)
        sizes = [len(result.current_rows)]
        rows = list(result.current_rows)
        while result.has_more_pages:
            result.fetch_next_page()
            sizes.append(len(result.current_rows))
            rows += result.current_rows
        assert max(sizes) == 5
        assert sorted((row["pk"], row["ck"]) for row in rows) == [(pk, ck) for pk in range(3) for ck in range(11)]


def test_a_paging_state_works_in_another_session(scylla: EmbeddedScylla, session: Session) -> None:
    session.execute("CREATE TABLE t (pk int, ck int, PRIMARY KEY (pk, ck))")
    for ck in range(10):
        session.execute("INSERT INTO t (pk, ck) VALUES (1, %s)", [ck])
    text = SimpleStatement(f"SELECT ck FROM {session.keyspace}.t WHERE pk = 1", fetch_size=4)
    first = session.execute(text)
    rest = scylla.connect().execute(text, paging_state=first.paging_state)
    assert [row["ck"] for row in first.current_rows] == [0, 1, 2, 3]
    assert [row.ck for row in rest] == [4, 5, 6, 7, 8, 9]
