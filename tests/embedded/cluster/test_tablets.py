"""Tablets keyspaces: their options, each table's own stream sets, splits and merges, and what goes when rows expire."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import cassandra
import pytest
from enginebox import START_US, EngineBox, Row, decoded

from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaError, EmbeddedScyllaProcess, ManualClock
from rscylla.embedded.cluster.generation import shard_of
from rscylla.embedded.cluster.tablets import StreamSet, TableStreams, last_tokens
from rscylla.embedded.errors import ConfigError, InvalidRequest, ServerError, SyntaxException, Unauthorized
from rscylla.embedded.result import QueryParams, RowsResult
from rscylla.embedded.schema.replication import MOST_TABLETS
from rscylla.embedded.storage.tokens import murmur3_token

REPLICATION = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
SECOND = 1_000_000


class Box(EngineBox):
    """An engine with a tablets keyspace ``tab`` of four tablets a table."""

    def __init__(self, initial: int = 4, *, nodes: int = 1) -> None:
        super().__init__(nodes)
        self.run(f"CREATE KEYSPACE tab WITH replication = {REPLICATION} AND tablets = {{'initial': {initial}}}")

    def times(self, table: str = "t", keyspace: str = "tab") -> list[int]:
        """Return the times of a table's stream sets as listed, in seconds after the present."""
        rows = self.rows(
            "SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = ? AND table_name = ?", [keyspace, table]
        )
        return [(row["timestamp"] * 1000 - self.clock.now_us()) // SECOND for row in rows]

    def streams(self, state: int | None = 0, table: str = "t") -> list[list[bytes]]:
        """Return the streams of each set, oldest first, in the order of the answer."""
        found: dict[int, list[bytes]] = {}
        for row in self.rows(
            "SELECT timestamp, stream_state, stream_id FROM system.cdc_streams "
            "WHERE keyspace_name = 'tab' AND table_name = ?",
            [table],
        ):
            found.setdefault(row["timestamp"], [])
            if state is None or row["stream_state"] == state:
                found[row["timestamp"]].append(row["stream_id"])
        return list(found.values())

    def resize(self, factor: float, delay_s: int | None = None, table: str = "t") -> StreamSet:
        delay_ms = None if delay_s is None else delay_s * 1000
        return self.cluster.tablets.resize("tab", table, factor, self.clock.now_us(), delay_ms)

    def stream_of(self, pk: int) -> bytes:
        """Return the stream of the newest log row of a partition."""
        rows = self.rows('SELECT "cdc$stream_id", "cdc$time", pk FROM tab.t_scylla_cdc_log')
        newest = max((row for row in rows if row["pk"] == pk), key=lambda row: row["cdc$time"].time)
        return bytes(newest["cdc$stream_id"])


@pytest.fixture
def box() -> Box:
    box = Box()
    box.run("CREATE TABLE tab.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    return box


# ---------------------------------------------------------------- keyspaces


@pytest.mark.parametrize(
    ("text", "initial"),
    [
        ("{'enabled': true}", 0),
        ("{'enabled': 'TRUE'}", 0),
        ("{'initial': 8}", 8),
        ("{'enabled': true, 'initial': 3}", 3),
        ("{}", 0),
        ("{'enabled': false}", None),
        ("{'enabled': false, 'initial': 3}", None),
    ],
)
def test_what_a_keyspace_says_of_tablets(text: str, initial: int | None) -> None:
    box = EngineBox()
    box.run(f"CREATE KEYSPACE k WITH replication = {REPLICATION} AND tablets = {text}")
    rows = box.rows("SELECT initial_tablets FROM system_schema.scylla_keyspaces WHERE keyspace_name = 'k'")
    assert rows == ([] if initial is None else [{"initial_tablets": initial}])


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("'yes'", SyntaxException, "should be a map"),
        ("{'enabled': 'perhaps'}", ConfigError, "must be true or false; found: perhaps"),
        ("{'initial': 'many'}", ConfigError, "should be numeric; found many"),
        ("{'initial': -1}", ConfigError, "should be numeric; found -1"),
        (f"{{'initial': {MOST_TABLETS + 1}}}", ConfigError, "at most 65536 tablets"),
        ("{'number': 4}", ConfigError, "Unrecognized tablets option number"),
    ],
)
def test_refused_tablets_options(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        EngineBox().run(f"CREATE KEYSPACE k WITH replication = {REPLICATION} AND tablets = {text}")


def test_simple_strategy_has_no_tablets() -> None:
    simple = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    with pytest.raises(ConfigError, match="SimpleStrategy doesn't support tablet replication"):
        EngineBox().run(f"CREATE KEYSPACE k WITH replication = {simple} AND tablets = {{'enabled': true}}")
    with EmbeddedScylla(tablets=True) as scylla:
        with pytest.raises(ConfigError, match="doesn't support tablet replication"):
            scylla.execute(f"CREATE KEYSPACE simple WITH replication = {simple}")
        scylla.execute(f"CREATE KEYSPACE net WITH replication = {REPLICATION}")
        scylla.execute(f"CREATE KEYSPACE old WITH replication = {REPLICATION} AND tablets = {{'enabled': false}}")
        rows = scylla.execute("SELECT keyspace_name, initial_tablets FROM system_schema.scylla_keyspaces")
        assert rows == [{"keyspace_name": "net", "initial_tablets": 0}]


def test_a_keyspace_stays_what_it_is(box: Box) -> None:
    flavour = "Cannot alter replication strategy vnode/tablets flavor"
    with pytest.raises(InvalidRequest, match=flavour):
        box.run("ALTER KEYSPACE tab WITH tablets = {'enabled': false}")
    box.run(f"CREATE KEYSPACE v WITH replication = {REPLICATION}")
    with pytest.raises(InvalidRequest, match=flavour):
        box.run("ALTER KEYSPACE v WITH tablets = {'enabled': true}")
    box.run("ALTER KEYSPACE tab WITH durable_writes = false")
    box.run("ALTER KEYSPACE tab WITH tablets = {'initial': 16}")
    assert box.column("SELECT initial_tablets FROM system_schema.scylla_keyspaces") == [16]
    assert [len(s) for s in box.streams()] == [4, 8, 16], "its tables follow"


def test_describe_says_what_to_create_again(box: Box) -> None:
    box.run(f"CREATE KEYSPACE auto WITH replication = {REPLICATION} AND tablets = {{'enabled': true}}")
    for keyspace, text in (
        ("tab", "{'enabled': true, 'initial': 4}"),
        ("auto", "{'enabled': true}"),
        ("ks", "{'enabled': false}"),
    ):
        (statement, *_) = [row["create_statement"] for row in box.rows(f"DESCRIBE KEYSPACE {keyspace}")]
        assert statement.endswith(f" AND tablets = {text};")
        box.run(statement.replace(keyspace, "again", 1))
        (again, *_) = [row["create_statement"] for row in box.rows("DESCRIBE KEYSPACE again")]
        assert again == statement.replace(keyspace, "again", 1)
        box.run("DROP KEYSPACE again")


# ---------------------------------------------------------------- the first set


def test_last_tokens_are_those_of_equal_parts() -> None:
    assert [f"{t % 2**64:016x}"[:4] for t in last_tokens(1)] == ["7fff"]
    assert [f"{t % 2**64:016x}"[:4] for t in last_tokens(2)] == ["ffff", "7fff"]
    assert [f"{t % 2**64:016x}"[:4] for t in last_tokens(4)] == ["bfff", "ffff", "3fff", "7fff"]
    for exponent in range(12):
        assert last_tokens(2**exponent) == tuple(
            -(2**63) + (i + 1) * 2 ** (64 - exponent) - 1 for i in range(2**exponent)
        )


def test_the_first_set_is_made_with_the_log_five_seconds_back(box: Box) -> None:
    assert box.times() == [-5]
    (streams,) = box.streams()
    assert [int.from_bytes(s[:8], "big", signed=True) for s in streams] == list(last_tokens(4))
    assert all(int.from_bytes(s[8:], "big") & 0x3FF_FFFF == 1 for s in streams), "version 1, index 0"
    assert box.streams(1) == [[]]
    assert box.streams(2) == [streams], "the oldest set has been opened"


def test_each_table_has_streams_of_its_own(box: Box) -> None:
    box.run("CREATE TABLE tab.u (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    assert not set(box.streams()[0]) & set(box.streams(table="u")[0])
    assert box.times("nothing") == []
    box.run("CREATE TABLE tab.plain (pk int PRIMARY KEY)")
    assert box.times("plain") == []
    box.run("CREATE TABLE ks.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    assert box.times("t", "ks") == [], "vnode tables are not listed"
    assert {(r["keyspace_name"], r["table_name"]) for r in box.rows("SELECT * FROM system.cdc_timestamps")} == {
        ("tab", "t"),
        ("tab", "u"),
    }


def test_the_list_goes_with_the_log_and_not_before(box: Box) -> None:
    before = box.streams()
    box.run("ALTER TABLE tab.t WITH cdc = {'enabled': false}")
    assert box.streams() == before
    box.run("ALTER TABLE tab.t WITH cdc = {'enabled': true}")
    box.run("ALTER TABLE tab.t ADD w int")
    assert box.streams() == before, "the same log is attached again"
    box.run("ALTER TABLE tab.t WITH cdc = {'enabled': false}")
    box.run("DROP TABLE tab.t_scylla_cdc_log")
    assert box.streams() == []
    box.run("ALTER TABLE tab.t WITH cdc = {'enabled': true}")
    assert not set(box.streams()[0]) & set(before[0]), "a new log has new streams"
    box.run("DROP TABLE tab.t")
    assert box.times() == box.streams() == []


def test_the_list_goes_with_the_keyspace(box: Box) -> None:
    box.run("DROP KEYSPACE tab")
    assert box.rows("SELECT * FROM system.cdc_timestamps") == []
    assert box.rows("SELECT * FROM system_schema.scylla_keyspaces") == []


def test_the_lists_are_read_only(box: Box) -> None:
    for table in ("cdc_timestamps", "cdc_streams"):
        with pytest.raises(Unauthorized):
            box.run(f"DELETE FROM system.{table} WHERE keyspace_name = 'tab' AND table_name = 't'")


def test_the_oldest_set_and_all_changes_since_make_the_sets(box: Box) -> None:
    for factor in (2, 0.5):
        box.resize(factor)
    log_id = box.engine.schema.keyspaces["tab"].tables["t_scylla_cdc_log"].id
    rows = box.rows("SELECT * FROM system.cdc_streams_state WHERE table_id = ?", [log_id])
    streams = {row["stream_id"] for row in rows}
    sets, times = [streams], [{row["timestamp"] for row in rows}]
    assert [row["last_token"] for row in rows] == list(last_tokens(4))
    history = box.rows("SELECT * FROM system.cdc_streams_history WHERE table_id = ?", [log_id])
    for time in dict.fromkeys(row["timestamp"] for row in history):
        closed, opened = (
            {row["stream_id"] for row in history if (row["timestamp"], row["stream_state"]) == (time, state)}
            for state in (1, 2)
        )
        assert closed <= sets[-1]
        sets.append(sets[-1] - closed | opened)
        times.append({time})
    assert sets == [set(each) for each in box.streams()]
    assert times == [{time} for time in reversed(box.column("SELECT timestamp FROM system.cdc_timestamps"))]


def test_the_tablets_of_each_table_are_listed(box: Box) -> None:
    box.run("CREATE TABLE tab.plain (pk int PRIMARY KEY) WITH tablets = {'min_tablet_count': 8}")
    query = "SELECT * FROM system.tablets WHERE keyspace_name = 'tab' AND table_name = ? ALLOW FILTERING"
    tables = box.engine.schema.keyspaces["tab"].tables
    for name, base, count in (("t", None, 4), ("t_scylla_cdc_log", tables["t"].id, 4), ("plain", None, 8)):
        rows = box.rows(query, [name])
        assert [row["last_token"] for row in rows] == list(last_tokens(count))
        assert {(row["table_id"], row["tablet_count"], row["base_table"]) for row in rows} == {
            (tables[name].id, count, base)
        }
        replicas = [replica for row in rows for replica in row["replicas"]]
        assert {(node.host_id, shard) for node in box.cluster.nodes for shard in range(2)} == set(replicas)
    box.resize(2)
    assert len(box.rows(query, ["t"])) == 8
    box.run("DROP TABLE tab.plain")
    assert box.rows(query, ["plain"]) == []


# ---------------------------------------------------------------- which stream a write goes to


def test_a_write_goes_to_the_stream_of_its_tablet(box: Box) -> None:
    (streams,) = box.streams()
    used = set()
    for pk in range(64):
        box.run(f"INSERT INTO tab.t (pk) VALUES ({pk})")
        token = murmur3_token(pk.to_bytes(4, "big"))
        expected = next(s for s in streams if int.from_bytes(s[:8], "big", signed=True) >= token)
        assert box.stream_of(pk) == expected
        assert streams.index(expected) == shard_of(token, 4, 0)
        used.add(expected)
    assert used == set(streams)


def test_tokens_at_the_edges_belong_to_the_tablet_that_ends_there() -> None:
    streams = StreamSet.make(0, 4, lambda: 0)
    for at, end in enumerate(last_tokens(4)):
        assert streams.stream_of(end) == streams.streams[at]
        if at < 3:
            assert streams.stream_of(end + 1) == streams.streams[at + 1]
    assert streams.stream_of(-(2**63)) == streams.streams[0]


@pytest.mark.parametrize(("offset_us", "ok"), [(5 * SECOND, True), (5 * SECOND + 1, False)])
def test_the_future_ends_in_five_seconds(box: Box, offset_us: int, ok: bool) -> None:
    write = f"INSERT INTO tab.t (pk) VALUES (1) USING TIMESTAMP {box.clock.now_us() + offset_us}"
    if ok:
        box.run(write)
        return
    with pytest.raises(InvalidRequest, match='cdc: attempted to get a stream "from the future"'):
        box.run(write)


def test_the_past_has_no_limit_but_the_oldest_set(box: Box) -> None:
    made_us = box.clock.now_us() - 5 * SECOND
    box.clock.advance(3600)
    box.run(f"INSERT INTO tab.t (pk) VALUES (1) USING TIMESTAMP {made_us}")
    log_id = box.engine.schema.keyspaces["tab"].tables["t_scylla_cdc_log"].id
    with pytest.raises(ServerError, match=f"could not find any CDC streams for table {log_id} for timestamp 123."):
        box.run("INSERT INTO tab.t (pk) VALUES (1) USING TIMESTAMP 123")
    with pytest.raises(ServerError):
        box.run(f"INSERT INTO tab.t (pk) VALUES (1) USING TIMESTAMP {made_us - 1}")
    assert len(box.rows("SELECT * FROM tab.t_scylla_cdc_log")) == 1, "what is refused leaves nothing"


def test_conditional_writes_to_a_log_are_refused_with_tablets_only(box: Box) -> None:
    key = '"cdc$stream_id" = 0x00 AND "cdc$time" = now() AND "cdc$batch_seq_no" = 0'
    delete = f"DELETE FROM {{}}.t_scylla_cdc_log WHERE {key} IF EXISTS"
    for statement in (delete.format("tab"), f"BEGIN BATCH {delete.format('tab')} APPLY BATCH"):
        with pytest.raises(InvalidRequest, match=r"LWT is not supported on CDC log tables: tab\.t_scylla_cdc_log"):
            box.run(statement)
    box.run("INSERT INTO tab.t (pk, v) VALUES (1, 1) IF NOT EXISTS")
    assert len(box.rows("SELECT * FROM tab.t_scylla_cdc_log")) == 1, "the base takes them"
    box.run("CREATE TABLE ks.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    box.run(delete.format("ks"))


# ---------------------------------------------------------------- split and merge


def test_a_split_makes_a_whole_new_set_a_minute_ahead(box: Box) -> None:
    (old,) = box.streams()
    box.resize(2)
    assert box.times() == [65, -5], "newest first"
    assert [len(s) for s in box.streams()] == [4, 8]
    new = box.streams()[1]
    assert not set(new) & set(old)
    assert box.streams(1) == [[], old]
    assert box.streams(2) == [old, new]
    tokens = [int.from_bytes(s[:8], "big", signed=True) for s in new]
    assert tokens == list(last_tokens(8)), "in the order of tokens, not of bytes"


def test_a_merge_halves_and_sets_follow_each_other(box: Box) -> None:
    for factor in (2, 0.5, 0.5, 0.5):
        box.resize(factor)
    assert [len(s) for s in box.streams()] == [4, 8, 4, 2, 1]
    listed = box.column("SELECT timestamp FROM system.cdc_timestamps")
    assert [a - b for a, b in pairwise(listed)][:-1] == [1, 1, 1], "a millisecond after the one before"
    with pytest.raises(ValueError, match=r"tab\.t cannot have 0 tablets"):
        box.resize(0.5)


def test_the_times_of_writes_choose_the_set(box: Box) -> None:
    box.resize(2, delay_s=10)
    old, new = (set(s) for s in box.streams())
    at_us = box.clock.now_us() + 10 * SECOND
    box.clock.advance(8)
    for pk, timestamp_us, expected in ((1, at_us - 1, old), (2, at_us, new)):
        box.run(f"INSERT INTO tab.t (pk) VALUES ({pk}) USING TIMESTAMP {timestamp_us}")
        assert box.stream_of(pk) in expected
    box.clock.advance(100)
    box.run(f"INSERT INTO tab.t (pk) VALUES (3) USING TIMESTAMP {at_us - 1}")
    assert box.stream_of(3) in old, "long after the switch"


def test_rows_and_pages_of_the_list_are_read_by_any_part_of_the_key(box: Box) -> None:
    box.resize(2)
    where = "FROM system.cdc_streams WHERE keyspace_name = 'tab' AND table_name = 't'"
    everything = box.rows(f"SELECT timestamp, stream_state, stream_id {where}")
    assert len(everything) == 4 + 4 + 8 + 4 + 8
    pages = box.pages(f"SELECT timestamp, stream_state, stream_id {where}", page_size=3)
    assert [row for page in pages for row in page] == everything
    for row in everything:
        key = "timestamp = ? AND stream_state = ? AND stream_id = ?"
        found = box.rows(f"SELECT timestamp, stream_state, stream_id {where} AND {key}", list(row.values()))
        assert found == [row]
    newest = box.column("SELECT timestamp FROM system.cdc_timestamps LIMIT 1")[0]
    where = "FROM system.cdc_timestamps WHERE keyspace_name = 'tab' AND table_name = 't'"
    later = f"SELECT min(timestamp) AS t {where} {{}}"
    oldest = box.row(later.format("ORDER BY timestamp ASC LIMIT 1"))["t"]
    assert box.row(later.format(f"AND timestamp > {oldest} ORDER BY timestamp ASC LIMIT 1"))["t"] == newest


@pytest.mark.parametrize("case", ["no such table", "no log", "vnodes", "a delay in the past"])
def test_what_cannot_be_split(box: Box, case: str) -> None:
    box.run("CREATE TABLE tab.plain (pk int PRIMARY KEY)")
    box.run("CREATE TABLE ks.v (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    place = {"no such table": ("tab", "x"), "no log": ("tab", "plain"), "vnodes": ("ks", "v")}.get(case, ("tab", "t"))
    with pytest.raises(ValueError, match="in the past" if "past" in case else "is no table with a CDC log"):
        box.cluster.tablets.resize(*place, 2, box.clock.now_us(), -1)


def test_tablets_are_not_split_without_bound() -> None:
    box = Box(MOST_TABLETS)
    box.run("CREATE TABLE tab.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    with pytest.raises(ValueError, match="only 1 to 65536"):
        box.resize(2)


# ---------------------------------------------------------------- garbage


def ages(box: Box) -> list[int]:
    return [len(s) for s in box.streams()]


def test_a_set_goes_when_its_successor_is_older_than_the_ttl() -> None:
    box = Box(1)
    box.run("CREATE TABLE tab.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 600}")
    for _ in range(3):
        box.resize(2, delay_s=10)
        box.clock.advance(100)
    assert ages(box) == [1, 2, 4, 8]
    box.clock.advance(309)  # the second set was in use 599 seconds ago
    assert ages(box) == [1, 2, 4, 8]
    box.clock.advance(61)  # it is looked at once a minute
    assert ages(box) == [2, 4, 8]
    assert box.streams(2)[0] == box.streams()[0], "the oldest listed set is shown as opened"
    box.clock.advance(100_000)
    assert ages(box) == [8], "the newest stays for ever"


def test_a_log_without_ttl_keeps_all_sets_until_it_gets_one(box: Box) -> None:
    box.run("ALTER TABLE tab.t WITH cdc = {'enabled': true, 'ttl': 0}")
    box.resize(2, delay_s=10)
    box.clock.advance(10_000_000)
    assert ages(box) == [4, 8]
    box.run("ALTER TABLE tab.t WITH cdc = {'enabled': true, 'ttl': 60}")
    box.clock.advance(61)
    assert ages(box) == [8]


def test_a_write_before_the_oldest_set_that_is_left_is_refused() -> None:
    box = Box(1)
    box.run("CREATE TABLE tab.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 60}")
    first_us = box.clock.now_us()
    box.resize(2, delay_s=10)
    box.run(f"INSERT INTO tab.t (pk) VALUES (1) USING TIMESTAMP {first_us}")
    box.clock.advance(3600)
    with pytest.raises(ServerError, match="could not find any CDC streams"):
        box.run(f"INSERT INTO tab.t (pk) VALUES (1) USING TIMESTAMP {first_us}")


def test_a_clock_that_jumps_back_collects_nothing_and_breaks_nothing() -> None:
    streams = EngineBox().cluster.tablets
    streams.collect(START_US)
    streams.collect(START_US - 3600 * SECOND)
    assert list(streams) == []


def test_stream_sets_are_kept_and_become_themselves_again(box: Box) -> None:
    box.resize(2)
    state = box.cluster.tablets.state()
    other = EngineBox()
    other.cluster.tablets.restore(state)
    assert other.cluster.tablets.state() == state
    kept = other.cluster.tablets.of("tab", "t")
    assert isinstance(kept, TableStreams)
    assert kept == box.cluster.tablets.of("tab", "t")


# ---------------------------------------------------------------- several nodes, the facade, the wire


def test_all_nodes_show_the_same_and_shards_of_all_count() -> None:
    box = Box(0, nodes=3)
    box.run("CREATE TABLE tab.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    shown: list[list[Row]] = []
    for node in range(3):
        prepared = box.engine.prepare("SELECT * FROM system.cdc_streams", None)
        result = box.engine.execute(prepared, [], QueryParams(node=node))
        assert isinstance(result, RowsResult)
        shown.append(decoded(result))
    assert shown[0] == shown[1] == shown[2]
    assert len(shown[0]) == 2 * 8, "six shards, so eight tablets"


def test_the_facade_splits_and_merges() -> None:
    clock = ManualClock(START_US)
    with EmbeddedScylla(tablets=True, shards=1, clock=clock, ring_delay=timedelta(seconds=1)) as scylla:
        scylla.execute(f"CREATE KEYSPACE k WITH replication = {REPLICATION}")
        scylla.execute("CREATE TABLE k.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
        scylla.split_tablets("k", "t")
        scylla.merge_tablets("k", "t", timedelta(seconds=60))
        rows = scylla.execute("SELECT timestamp FROM system.cdc_timestamps")
        assert [row["timestamp"] - START_US // 1000 for row in rows] == [60_000, 7_000, -5_000]
        with pytest.raises(EmbeddedScyllaError, match="is no table with a CDC log"):
            scylla.split_tablets("k", "nothing")
        with pytest.raises(EmbeddedScyllaError, match="cannot have 0 tablets"):
            scylla.merge_tablets("k", "t")


def test_a_process_of_its_own_splits_and_merges_and_a_driver_sees_it() -> None:
    with EmbeddedScyllaProcess(tablets=True, shards=2) as scylla:
        session = scylla.connect()
        session.execute(f"CREATE KEYSPACE k WITH replication = {REPLICATION}")
        session.execute("CREATE TABLE k.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        scylla.split_tablets("k", "t", timedelta(seconds=5))
        scylla.merge_tablets("k", "t")
        with pytest.raises(EmbeddedScyllaError, match="is no table with a CDC log"):
            scylla.merge_tablets("k", "nothing")
        insert = session.prepare("INSERT INTO k.t (pk, v) VALUES (?, ?)")
        for pk in range(10):
            session.execute(insert, (pk, pk))
        current = "SELECT stream_id FROM system.cdc_streams WHERE stream_state = 0 ALLOW FILTERING"
        rows: list[Any] = list(session.execute(current))
        assert len(rows) == 2 + 4 + 2
        used = {row[0] for row in session.execute('SELECT "cdc$stream_id" FROM k.t_scylla_cdc_log')}
        assert used <= {row[0] for row in rows[:2]}
        with pytest.raises(cassandra.InvalidRequest, match="LWT is not supported on CDC log tables"):
            session.execute(
                'DELETE FROM k.t_scylla_cdc_log WHERE "cdc$stream_id" = 0x00 AND "cdc$time" = now() '
                'AND "cdc$batch_seq_no" = 0 IF EXISTS'
            )


def test_a_data_directory_keeps_the_stream_sets(tmp_path: Path) -> None:
    listed = "SELECT * FROM system.cdc_streams"
    with EmbeddedScylla(tablets=True, data_dir=tmp_path / "data") as scylla:
        scylla.execute(f"CREATE KEYSPACE k WITH replication = {REPLICATION}")
        scylla.execute("CREATE TABLE k.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
        scylla.split_tablets("k", "t")
        before = scylla.execute(listed)
    with EmbeddedScylla(tablets=True, data_dir=tmp_path / "data") as scylla:
        assert scylla.execute(listed) == before
        assert scylla.execute("SELECT initial_tablets FROM system_schema.scylla_keyspaces") == [{"initial_tablets": 0}]
        scylla.execute("INSERT INTO k.t (pk) VALUES (1)")
        (row,) = scylla.execute("SELECT * FROM k.t_scylla_cdc_log")
        assert row["cdc$stream_id"] in [each["stream_id"] for each in before]
        scylla.merge_tablets("k", "t")
        assert len(scylla.execute(listed)) > len(before)
