"""CQL text in, CDC log rows out: every statement form through parser, engine and log."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import attrs
import pytest

from rscylla.embedded.clock import ManualClock
from rscylla.embedded.cluster.topology import Cluster
from rscylla.embedded.engine.engine import Engine
from rscylla.embedded.errors import ConfigError, CqlError, InvalidRequest, ServerError, Unauthorized
from rscylla.embedded.result import QueryParams, RowsResult

START_US = 1_800_000_000_000_000
UNIX_TICKS = 0x01B21DD213814000


@attrs.define
class Server:
    """An engine with a driven clock and a keyspace; each write gets a timestamp that the test knows."""

    clock: ManualClock = attrs.field(factory=lambda: ManualClock(START_US))
    cluster: Cluster = attrs.field(init=False)
    engine: Engine = attrs.field(init=False)
    seen: int = 0
    table: str = "t"

    def __attrs_post_init__(self) -> None:
        self.cluster = Cluster(clock=self.clock, seed=5)
        self.engine = Engine(self.cluster, self.clock)
        self.cql("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        self.clock.advance(1)

    def cql(self, text: str, *values: bytes | None, timestamp: int | None = None) -> list[dict[str, Any]]:
        result = self.engine.query(text, values, QueryParams(keyspace="ks", default_timestamp=timestamp))
        if not isinstance(result, RowsResult):
            return []
        return [dict(zip([c.name for c in result.columns], _cells(row, result), strict=True)) for row in result.rows]

    def log(self) -> list[dict[str, Any]]:
        """All rows of the log in order of time, then sequence."""
        rows = self.cql(f"SELECT * FROM {self.table}_scylla_cdc_log")
        return sorted(rows, key=lambda row: (row["cdc$time"].time, row["cdc$time"].bytes, row["cdc$batch_seq_no"]))

    def written(self, *statements: str, timestamp: int | None = None) -> list[list[dict[str, Any]]]:
        """The records that the statements add to the log, each a list of its rows' non-null cells by short name."""
        before = {(row["cdc$time"], row["cdc$batch_seq_no"]) for row in self.log()}
        for statement in statements:
            self.cql(statement, timestamp=timestamp)
        records: dict[uuid.UUID, list[dict[str, Any]]] = {}
        for row in self.log():
            if (row["cdc$time"], row["cdc$batch_seq_no"]) not in before:
                records.setdefault(row["cdc$time"], []).append(row)
        for rows in records.values():
            assert [row["cdc$batch_seq_no"] for row in rows] == list(range(len(rows)))
            assert [row["cdc$end_of_batch"] for row in rows] == [None] * (len(rows) - 1) + [True]
        return [[_short(row) for row in rows] for rows in records.values()]

    def times(self) -> list[int]:
        """The microsecond of each record in the log."""
        return sorted({(row["cdc$time"].time - UNIX_TICKS) // 10 for row in self.log()})


def _cells(row: bytes, result: RowsResult) -> list[Any]:
    out: list[Any] = []
    offset = 0
    for column in result.columns:
        (size,) = struct.unpack_from(">i", row, offset)
        offset += 4
        out.append(None if size < 0 else column.type.decode(row[offset : offset + size]))
        offset += max(size, 0)
    assert offset == len(row)
    return out


def _short(row: dict[str, Any]) -> dict[str, Any]:
    hidden = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$end_of_batch", "pk")
    names = {"cdc$operation": "op", "cdc$ttl": "ttl"}
    return {
        names.get(name, name.removeprefix("cdc$")): value
        for name, value in row.items()
        if value is not None and name not in hidden
    }


WIDE = """CREATE TABLE t (
    pk int, ck int, a int, b int, v int, s int STATIC,
    m map<int, int>, st set<int>, l list<int>, u pair, fm frozen<map<int, int>>, sm map<int, int> STATIC,
    PRIMARY KEY (pk, ck)) WITH {order}cdc = {{'enabled': true{options}}}"""


def wide(options: str = "", order: str = "") -> Server:
    server = Server()
    server.cql("CREATE TYPE pair (x int, y text)")
    server.cql(WIDE.format(options=options, order=order))
    return server


@pytest.fixture
def server() -> Server:
    return wide()


U_NULL = {"x": None, "y": None}
KEY = "WHERE pk = 1 AND ck = 2"

STATEMENTS: list[tuple[str, list[dict[str, Any]]]] = [
    ("INSERT INTO t (pk, ck, v) VALUES (1, 2, 3)", [{"op": 2, "ck": 2, "v": 3}]),
    ("INSERT INTO t (pk, ck) VALUES (1, 2)", [{"op": 2, "ck": 2}]),
    ("INSERT INTO t (pk, ck, v) VALUES (1, 2, null)", [{"op": 2, "ck": 2, "deleted_v": True}]),
    ("INSERT INTO t (pk, ck, v) VALUES (1, 2, 3) USING TTL 60", [{"op": 2, "ck": 2, "v": 3, "ttl": 60}]),
    ("INSERT INTO t (pk, ck, v) VALUES (1, 2, 3) USING TTL 0", [{"op": 2, "ck": 2, "v": 3}]),
    (
        "INSERT INTO t (pk, ck, v, a) VALUES (1, 2, 3, null) USING TTL 60",
        [{"op": 2, "ck": 2, "v": 3, "ttl": 60}, {"op": 1, "ck": 2, "deleted_a": True}],
    ),
    (
        "INSERT INTO t (pk, ck, m, st, u) VALUES (1, 2, {3: 4}, {5}, {x: 6})",
        [
            {
                "op": 2,
                "ck": 2,
                "m": {3: 4},
                "deleted_m": True,
                "st": frozenset({5}),
                "deleted_st": True,
                "u": {"x": 6, "y": None},
                "deleted_u": True,
            }
        ],
    ),
    (
        "INSERT INTO t (pk, ck, m, st) VALUES (1, 2, {3: 4}, {5}) USING TTL 60",
        [
            {"op": 2, "ck": 2, "ttl": 60},
            {"op": 1, "ck": 2, "deleted_m": True, "deleted_st": True},
            {"op": 1, "ck": 2, "m": {3: 4}, "st": frozenset({5}), "ttl": 60},
        ],
    ),
    ("INSERT INTO t (pk, ck, m) VALUES (1, 2, null)", [{"op": 2, "ck": 2, "deleted_m": True}]),
    ("INSERT INTO t (pk, ck, m) VALUES (1, 2, {})", [{"op": 2, "ck": 2, "deleted_m": True}]),
    ("INSERT INTO t (pk, ck, fm) VALUES (1, 2, {3: 4})", [{"op": 2, "ck": 2, "fm": {3: 4}}]),
    ("INSERT INTO t (pk, ck, s, v) VALUES (1, 2, 9, 3)", [{"op": 1, "s": 9}, {"op": 2, "ck": 2, "v": 3}]),
    ("INSERT INTO t (pk, s) VALUES (1, 9)", [{"op": 1, "s": 9}]),
    (f"UPDATE t SET v = 3 {KEY}", [{"op": 1, "ck": 2, "v": 3}]),
    (f"UPDATE t SET v = null {KEY}", [{"op": 1, "ck": 2, "deleted_v": True}]),
    (f"DELETE v FROM t {KEY}", [{"op": 1, "ck": 2, "deleted_v": True}]),
    ("DELETE s FROM t WHERE pk = 1", [{"op": 1, "deleted_s": True}]),
    (f"UPDATE t SET a = 1, b = null {KEY}", [{"op": 1, "ck": 2, "a": 1, "deleted_b": True}]),
    (
        f"UPDATE t USING TTL 60 SET a = 1, b = null {KEY}",
        [{"op": 1, "ck": 2, "deleted_b": True}, {"op": 1, "ck": 2, "a": 1, "ttl": 60}],
    ),
    (f"UPDATE t SET s = 9, v = 3 {KEY}", [{"op": 1, "s": 9}, {"op": 1, "ck": 2, "v": 3}]),
    ("UPDATE t SET s = 9 WHERE pk = 1", [{"op": 1, "s": 9}]),
    (f"UPDATE t SET m = m + {{3: 4}} {KEY}", [{"op": 1, "ck": 2, "m": {3: 4}}]),
    (f"UPDATE t SET m[3] = 4 {KEY}", [{"op": 1, "ck": 2, "m": {3: 4}}]),
    (f"UPDATE t SET st = st + {{3}} {KEY}", [{"op": 1, "ck": 2, "st": frozenset({3})}]),
    (f"UPDATE t SET m = m - {{3}} {KEY}", [{"op": 1, "ck": 2, "deleted_elements_m": frozenset({3})}]),
    (f"UPDATE t SET m[3] = null {KEY}", [{"op": 1, "ck": 2, "deleted_elements_m": frozenset({3})}]),
    (f"DELETE m[3] FROM t {KEY}", [{"op": 1, "ck": 2, "deleted_elements_m": frozenset({3})}]),
    (f"UPDATE t SET st = st - {{3}} {KEY}", [{"op": 1, "ck": 2, "deleted_elements_st": frozenset({3})}]),
    (
        f"UPDATE t SET m[3] = 4, m[5] = null {KEY}",
        [{"op": 1, "ck": 2, "m": {3: 4}, "deleted_elements_m": frozenset({5})}],
    ),
    (f"UPDATE t SET m = {{3: 4}} {KEY}", [{"op": 1, "ck": 2, "m": {3: 4}, "deleted_m": True}]),
    (
        f"UPDATE t USING TTL 60 SET m = {{3: 4}} {KEY}",
        [{"op": 1, "ck": 2, "deleted_m": True}, {"op": 1, "ck": 2, "m": {3: 4}, "ttl": 60}],
    ),
    (f"UPDATE t SET m = null {KEY}", [{"op": 1, "ck": 2, "deleted_m": True}]),
    (f"UPDATE t SET st = {{}} {KEY}", [{"op": 1, "ck": 2, "deleted_st": True}]),
    (f"DELETE m FROM t {KEY}", [{"op": 1, "ck": 2, "deleted_m": True}]),
    (f"UPDATE t SET u.x = 1 {KEY}", [{"op": 1, "ck": 2, "u": {"x": 1, "y": None}}]),
    (f"UPDATE t SET u.y = null {KEY}", [{"op": 1, "ck": 2, "u": U_NULL, "deleted_elements_u": frozenset({1})}]),
    (f"UPDATE t SET u = null {KEY}", [{"op": 1, "ck": 2, "u": U_NULL, "deleted_u": True}]),
    (f"UPDATE t SET m = m + {{}} {KEY}", []),
    (f"UPDATE t SET l = l - [7] {KEY}", []),
    (f"DELETE FROM t {KEY}", [{"op": 3, "ck": 2}]),
    ("DELETE FROM t WHERE pk = 1", [{"op": 4}]),
    ("DELETE FROM t WHERE pk = 1 AND ck > 1 AND ck < 5", [{"op": 6, "ck": 1}, {"op": 8, "ck": 5}]),
    ("DELETE FROM t WHERE pk = 1 AND ck >= 1 AND ck <= 5", [{"op": 5, "ck": 1}, {"op": 7, "ck": 5}]),
    ("DELETE FROM t WHERE pk = 1 AND ck < 3", [{"op": 5}, {"op": 8, "ck": 3}]),
    ("DELETE FROM t WHERE pk = 1 AND ck >= 3", [{"op": 5, "ck": 3}, {"op": 7}]),
    ("DELETE FROM t WHERE pk = 1 AND ck >= 3 AND ck <= 3", [{"op": 3, "ck": 3}]),
    ("DELETE FROM t WHERE pk = 1 AND ck < 1 AND ck > 2", []),
    ("DELETE FROM t WHERE pk = 1 AND ck IN (3, 2)", [{"op": 3, "ck": 2}, {"op": 3, "ck": 3}]),
    (
        "BEGIN BATCH UPDATE t SET v = 1 WHERE pk = 1 AND ck = 3; INSERT INTO t (pk, ck) VALUES (1, 2); APPLY BATCH",
        [{"op": 2, "ck": 2}, {"op": 1, "ck": 3, "v": 1}],
    ),
    (
        f"BEGIN UNLOGGED BATCH UPDATE t SET v = 1 {KEY}; DELETE FROM t {KEY}; APPLY BATCH",
        [{"op": 1, "ck": 2, "v": 1}, {"op": 3, "ck": 2}],
    ),
    (
        "BEGIN BATCH INSERT INTO t (pk, ck) VALUES (1, 2); DELETE FROM t WHERE pk = 1; APPLY BATCH",
        [{"op": 2, "ck": 2}, {"op": 4}],
    ),
    (
        "BEGIN BATCH INSERT INTO t (pk, ck) VALUES (1, 2); DELETE FROM t WHERE pk = 1 AND ck > 0; APPLY BATCH",
        [{"op": 2, "ck": 2}, {"op": 6, "ck": 0}, {"op": 7}],
    ),
    ("INSERT INTO t (pk, ck, v) VALUES (1, 2, 3) IF NOT EXISTS", [{"op": 2, "ck": 2, "v": 3}]),
    (f"UPDATE t SET v = 3 {KEY} IF EXISTS", []),
    (f"UPDATE t SET v = 3 {KEY} IF v = 4", []),
    (f"UPDATE t SET v = 3 {KEY} IF v = null", [{"op": 1, "ck": 2, "v": 3}]),
]


@pytest.mark.parametrize(("statement", "rows"), STATEMENTS, ids=[s for s, _ in STATEMENTS])
def test_log_of_a_statement(server: Server, statement: str, rows: list[dict[str, Any]]) -> None:
    assert server.written(statement) == ([rows] if rows else [])


@pytest.mark.parametrize(("statement", "rows"), STATEMENTS[:3], ids=[s for s, _ in STATEMENTS[:3]])
def test_delta_keys(statement: str, rows: list[dict[str, Any]]) -> None:
    kept = [{name: value for name, value in row.items() if name in ("op", "ck", "ttl")} for row in rows]
    assert wide(", 'delta': 'keys'").written(statement) == [kept]


def test_ranges_and_rows_of_a_descending_table() -> None:
    server = wide(order="CLUSTERING ORDER BY (ck DESC) AND ")
    assert server.written("DELETE FROM t WHERE pk = 1 AND ck > 1 AND ck < 5") == [
        [{"op": 6, "ck": 5}, {"op": 8, "ck": 1}]
    ]
    batch = "BEGIN BATCH INSERT INTO t (pk, ck) VALUES (1, 1); INSERT INTO t (pk, ck) VALUES (1, 2); APPLY BATCH"
    assert server.written(batch) == [[{"op": 2, "ck": 2}, {"op": 2, "ck": 1}]]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("ck1 = 0", [{"op": 5, "ck1": 0}, {"op": 7, "ck1": 0}]),
        (
            "ck1 = 0 AND ck2 > 0 AND ck2 < 3",
            [{"op": 6, "ck1": 0, "ck2": 0}, {"op": 8, "ck1": 0, "ck2": 3}],
        ),
        ("ck1 = 0 AND ck2 > 0", [{"op": 6, "ck1": 0, "ck2": 0}, {"op": 7, "ck1": 0}]),
        ("ck1 = 0 AND ck2 <= 3", [{"op": 5, "ck1": 0}, {"op": 7, "ck1": 0, "ck2": 3}]),
        ("ck1 < 3", [{"op": 5}, {"op": 8, "ck1": 3}]),
        ("(ck1, ck2) > (0, 1)", [{"op": 6, "ck1": 0, "ck2": 1}, {"op": 7}]),
        ("(ck1, ck2) >= (0, 1) AND (ck1) < (3)", [{"op": 5, "ck1": 0, "ck2": 1}, {"op": 8, "ck1": 3}]),
    ],
)
def test_ranges_of_a_compound_key(where: str, rows: list[dict[str, Any]]) -> None:
    server = Server()
    server.cql(
        "CREATE TABLE t (pk int, ck1 int, ck2 int, v int, PRIMARY KEY (pk, ck1, ck2)) WITH cdc = {'enabled': true}"
    )
    assert server.written(f"DELETE FROM t WHERE pk = 1 AND {where}") == [rows]


def test_a_table_without_clustering_columns() -> None:
    server = Server()
    server.cql("CREATE TABLE t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'preimage': true}")
    assert server.written("INSERT INTO t (pk, v) VALUES (1, 2)") == [[{"op": 2, "v": 2}]]
    assert server.written("DELETE FROM t WHERE pk = 1") == [[{"op": 0, "v": 2}, {"op": 4}]]


# ---------------------------------------------------------------- lists


def test_list_edits_name_the_elements_by_their_time(server: Server) -> None:
    [[row]] = server.written(f"UPDATE t SET l = [10, 20] {KEY}")
    assert (list(row["l"].values()), row["deleted_l"]) == ([10, 20], True)
    first, second = row["l"]
    [[row]] = server.written(f"UPDATE t SET l[1] = 21 {KEY}")
    assert row == {"op": 1, "ck": 2, "l": {second: 21}}
    [[row]] = server.written(f"UPDATE t SET l = l - [10] {KEY}")
    assert row == {"op": 1, "ck": 2, "deleted_elements_l": frozenset({first})}
    [[row]] = server.written(f"DELETE l[0] FROM t {KEY}")
    assert row == {"op": 1, "ck": 2, "deleted_elements_l": frozenset({second})}
    [[row]] = server.written(f"UPDATE t SET l = l + [30, 40] {KEY}")
    assert list(row["l"].values()) == [30, 40]
    [[row]] = server.written(f"UPDATE t SET l = [5, 6] + l {KEY}")
    assert list(row["l"].values()) == [5, 6]
    assert server.cql(f"SELECT l FROM t {KEY}") == [{"l": [5, 6, 30, 40]}]


# ---------------------------------------------------------------- times


def test_the_time_of_a_record_is_the_write_timestamp_to_the_microsecond(server: Server) -> None:
    server.cql("INSERT INTO t (pk, ck) VALUES (1, 2)", timestamp=START_US + 123_457)
    server.cql(f"INSERT INTO t (pk, ck) VALUES (1, 2) USING TIMESTAMP {START_US + 200_001}")
    assert server.times() == [START_US + 123_457, START_US + 200_001]
    stamps = server.cql('SELECT writetime("cdc$operation") AS w FROM t_scylla_cdc_log')
    assert sorted(row["w"] for row in stamps) == server.times()


def test_delete_of_a_collection_column_is_logged_a_microsecond_later(server: Server) -> None:
    stamp = START_US + 500_000
    assert server.written(f"DELETE m, v FROM t {KEY}", timestamp=stamp) == [
        [{"op": 1, "ck": 2, "deleted_v": True}],
        [{"op": 1, "ck": 2, "deleted_m": True}],
    ]
    assert server.times() == [stamp, stamp + 1]


def test_a_collection_that_is_set_to_null_keeps_its_time(server: Server) -> None:
    server.cql(f"UPDATE t SET m = null {KEY}", timestamp=START_US + 500_000)
    assert server.times() == [START_US + 500_000]


def test_a_batch_of_several_timestamps_is_several_records(server: Server) -> None:
    first, second = START_US + 500_000, START_US + 500_007
    assert server.written(
        f"BEGIN BATCH INSERT INTO t (pk, ck, b) VALUES (1, 2, 3) USING TIMESTAMP {second}; "
        f"INSERT INTO t (pk, ck, a) VALUES (1, 2, 4) USING TIMESTAMP {first}; APPLY BATCH"
    ) == [[{"op": 1, "ck": 2, "a": 4}], [{"op": 2, "ck": 2, "b": 3}]]
    assert server.times() == [first, second]


def test_a_batch_over_partitions_is_a_record_for_each(server: Server) -> None:
    batch = "BEGIN BATCH INSERT INTO t (pk, ck) VALUES (1, 2); INSERT INTO t (pk, ck) VALUES (2, 2); APPLY BATCH"
    assert server.written(batch) == [[{"op": 2, "ck": 2}], [{"op": 2, "ck": 2}]]


def test_a_batch_over_tables_is_a_record_in_each_log_and_equal_keys_share_a_stream(server: Server) -> None:
    server.cql("CREATE TABLE other (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    server.cql("BEGIN BATCH INSERT INTO t (pk, ck) VALUES (1, 2); INSERT INTO other (pk, v) VALUES (1, 3); APPLY BATCH")
    [first], [second] = server.log(), server.cql("SELECT * FROM other_scylla_cdc_log")
    assert first["cdc$stream_id"] == second["cdc$stream_id"]
    assert first["cdc$time"] != second["cdc$time"]
    assert (first["cdc$batch_seq_no"], second["cdc$batch_seq_no"], second["v"]) == (0, 0, 3)


def test_a_table_without_cdc_writes_no_log(server: Server) -> None:
    server.cql("CREATE TABLE plain (pk int PRIMARY KEY)")
    assert server.written("INSERT INTO plain (pk) VALUES (1)") == []
    with pytest.raises(InvalidRequest):
        server.cql("SELECT * FROM plain_scylla_cdc_log")


def test_the_time_of_a_conditional_write_is_the_servers(server: Server) -> None:
    server.cql("INSERT INTO t (pk, ck) VALUES (1, 2) IF NOT EXISTS", timestamp=123)
    assert server.times() == [server.clock.now_us()]


def test_an_in_on_the_partition_key_is_a_record_for_each(server: Server) -> None:
    assert server.written("UPDATE t SET s = 1 WHERE pk IN (1, 2, 3)") == [[{"op": 1, "s": 1}]] * 3


def test_two_unconditional_writes_are_never_stamped_alike(server: Server) -> None:
    for _ in range(3):
        server.cql("INSERT INTO t (pk, ck) VALUES (1, 2)")
    assert len(server.times()) == 3


def test_default_time_to_live_shows_as_the_ttl() -> None:
    server = wide()
    server.cql("ALTER TABLE t WITH default_time_to_live = 30")
    assert server.written("INSERT INTO t (pk, ck) VALUES (1, 2)") == [[{"op": 2, "ck": 2, "ttl": 30}]]
    assert server.written("INSERT INTO t (pk, ck) VALUES (1, 2) USING TTL 0") == [[{"op": 2, "ck": 2}]]


def test_log_rows_live_as_long_as_the_option_says() -> None:
    server = wide(", 'ttl': 100")
    server.cql("INSERT INTO t (pk, ck) VALUES (1, 2)")
    [left] = server.cql('SELECT TTL("cdc$operation") AS left FROM t_scylla_cdc_log')
    assert left == {"left": 100}
    server.clock.advance(99)
    assert len(server.log()) == 1
    server.clock.advance(1)
    assert server.log() == []
    assert len(server.cql("SELECT * FROM t")) == 1


# ---------------------------------------------------------------- streams


def test_a_record_lies_in_the_stream_of_its_time_across_a_switch(server: Server) -> None:
    server.cluster.new_generation(3000)
    switch_us = server.cluster.generations[-1].time_us
    server.clock.set_us(switch_us + 1_000_000)
    for offset in (-1, 0, 1):
        server.cql("INSERT INTO t (pk, ck) VALUES (1, 2)", timestamp=switch_us + offset)
    old, new = (set(generation.streams) for generation in server.cluster.generations)
    streams = [row["cdc$stream_id"] for row in server.log()]
    assert [stream in old for stream in streams] == [True, False, False]
    assert [stream in new for stream in streams] == [False, True, True]


@pytest.mark.parametrize(("offset_us", "side"), [(5_000_001, "future"), (-10_000_000, "past")])
def test_a_timestamp_outside_the_window_is_refused_and_writes_nothing(
    server: Server, offset_us: int, side: str
) -> None:
    stamp = server.clock.now_us() + offset_us
    with pytest.raises(InvalidRequest, match=f'^cdc: attempted to get a stream "from the {side}"'):
        server.cql("INSERT INTO t (pk, ck) VALUES (1, 2)", timestamp=stamp)
    assert server.cql("SELECT * FROM t") == server.log() == []


def test_a_batch_with_one_refused_timestamp_writes_nothing_at_all(server: Server) -> None:
    with pytest.raises(InvalidRequest):
        server.cql(
            "BEGIN BATCH INSERT INTO t (pk, ck) VALUES (1, 1); "
            "INSERT INTO t (pk, ck) VALUES (2, 2) USING TIMESTAMP 123; APPLY BATCH"
        )
    assert server.cql("SELECT * FROM t") == server.log() == []


def test_one_streams_rows_can_be_read_by_time(server: Server) -> None:
    stamps = [START_US + 500_000 + n for n in range(4)]
    for stamp in stamps:
        server.cql("INSERT INTO t (pk, ck) VALUES (1, 2)", timestamp=stamp)
    stream = server.log()[0]["cdc$stream_id"]
    query = (
        f'SELECT "cdc$time" AS t FROM t_scylla_cdc_log WHERE "cdc$stream_id" = 0x{stream.hex()} '
        'AND "cdc$time" > ? AND "cdc$time" <= ?'
    )
    times = [row["cdc$time"] for row in server.log()]
    found = server.cql(query, times[0].bytes, times[2].bytes)
    assert [row["t"] for row in found] == times[1:3]


# ---------------------------------------------------------------- images


def test_preimage_and_postimage_of_an_update() -> None:
    server = wide(", 'preimage': true, 'postimage': true")
    server.cql("INSERT INTO t (pk, ck, v, a, m) VALUES (1, 2, 3, 4, {1: 1, 2: 2})")
    assert server.written(f"UPDATE t SET v = 5, m = m - {{1}} {KEY}") == [
        [
            {"op": 0, "ck": 2, "v": 3, "m": {1: 1, 2: 2}},
            {"op": 1, "ck": 2, "v": 5, "deleted_elements_m": frozenset({1})},
            {"op": 9, "ck": 2, "v": 5, "a": 4, "m": {2: 2}},
        ]
    ]


def test_an_expired_row_has_no_preimage() -> None:
    server = wide(", 'preimage': 'full'")
    server.cql("INSERT INTO t (pk, ck, v) VALUES (1, 2, 3) USING TTL 10")
    server.clock.advance(11)
    assert server.written(f"UPDATE t SET v = 5 {KEY}") == [[{"op": 1, "ck": 2, "v": 5}]]


def test_a_row_with_only_a_marker_has_a_preimage_of_nulls() -> None:
    server = wide(", 'preimage': true")
    server.cql("INSERT INTO t (pk, ck) VALUES (1, 2)")
    assert server.written(f"UPDATE t SET v = 5 {KEY}")[0][0] == {"op": 0, "ck": 2, "deleted_v": True}


def test_static_images_stand_apart() -> None:
    server = wide(", 'preimage': true, 'postimage': true")
    server.cql("INSERT INTO t (pk, s) VALUES (1, 8)")
    assert server.written(f"UPDATE t SET s = 9, v = 3 {KEY}") == [
        [
            {"op": 0, "s": 8},
            {"op": 1, "s": 9},
            {"op": 1, "ck": 2, "v": 3},
            {"op": 9, "s": 9},
            {"op": 9, "ck": 2, "v": 3},
        ]
    ]


# ---------------------------------------------------------------- the life of a log


def test_disabling_cdc_keeps_the_log_and_enabling_it_continues_the_log(server: Server) -> None:
    server.cql("INSERT INTO t (pk, ck) VALUES (1, 2)")
    server.cql("ALTER TABLE t WITH cdc = {'enabled': false}")
    server.cql("INSERT INTO t (pk, ck) VALUES (1, 3)")
    assert len(server.log()) == 1
    server.cql("ALTER TABLE t WITH cdc = {'enabled': true}")
    server.cql("INSERT INTO t (pk, ck) VALUES (1, 4)")
    assert [row["ck"] for row in server.log()] == [2, 4]


def test_a_new_column_is_logged_and_old_rows_show_null(server: Server) -> None:
    server.cql("INSERT INTO t (pk, ck, v) VALUES (1, 2, 3)")
    server.cql("ALTER TABLE t ADD extra text")
    server.cql("INSERT INTO t (pk, ck, extra) VALUES (1, 2, 'x')")
    assert [(row["v"], row["extra"]) for row in server.log()] == [(3, None), (None, "x")]


def test_a_dropped_column_leaves_the_log(server: Server) -> None:
    server.cql("INSERT INTO t (pk, ck, v, a) VALUES (1, 2, 3, 4)")
    server.cql("ALTER TABLE t DROP v")
    [row] = server.log()
    assert "v" not in row
    assert "cdc$deleted_v" not in row
    assert row["a"] == 4


def test_columns_of_the_log_in_select_star() -> None:
    server = Server()
    server.cql("CREATE TABLE t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    server.cql("INSERT INTO t (pk, ck, v) VALUES (1, 2, 3)")
    assert list(server.cql("SELECT * FROM t_scylla_cdc_log")[0]) == [
        "cdc$stream_id",
        "cdc$time",
        "cdc$batch_seq_no",
        "cdc$deleted_v",
        "cdc$end_of_batch",
        "cdc$operation",
        "cdc$ttl",
        "ck",
        "pk",
        "v",
    ]


@pytest.mark.parametrize(
    ("statement", "kind", "text"),
    [
        ("CREATE TABLE x (pk int PRIMARY KEY) WITH cdc = {'enabled': 'maybe'}", ConfigError, '"enabled": maybe'),
        ("CREATE TABLE x (pk int PRIMARY KEY) WITH cdc = {'speed': 1}", ConfigError, "Invalid CDC option: speed"),
        ("CREATE TABLE x (pk int PRIMARY KEY) WITH cdc = 'x'", ServerError, "cdc"),
        ("ALTER TABLE t WITH cdc = {'ttl': 5}", InvalidRequest, 'requires specifying "enabled" flag'),
        ("DROP TABLE t_scylla_cdc_log", Unauthorized, "Cannot DROP cdc log table t_scylla_cdc_log"),
        ("ALTER TABLE t_scylla_cdc_log ADD x int", InvalidRequest, "You cannot modify the set of columns of a CDC log"),
        ("ALTER TABLE t_scylla_cdc_log RENAME pk TO x", InvalidRequest, "Cannot rename a column of a CDC log table."),
        (
            "ALTER TABLE t_scylla_cdc_log WITH cdc = {'enabled': true}",
            InvalidRequest,
            "because creating nested CDC logs is not allowed",
        ),
        (
            "CREATE TABLE x (pk int PRIMARY KEY, c counter) WITH cdc = {'enabled': true}",
            InvalidRequest,
            "",
        ),
    ],
)
def test_refusals(server: Server, statement: str, kind: type[CqlError], text: str) -> None:
    with pytest.raises(kind) as caught:
        server.cql(statement)
    assert text in caught.value.message


def test_a_table_of_the_logs_name_is_in_the_way() -> None:
    server = Server()
    server.cql("CREATE TABLE t_scylla_cdc_log (pk int PRIMARY KEY)")
    with pytest.raises(InvalidRequest, match=r"because a table of name ks\.t_scylla_cdc_log already exists"):
        server.cql("CREATE TABLE t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")


def test_dropping_the_base_drops_the_log_also_when_switched_off(server: Server) -> None:
    server.cql("ALTER TABLE t WITH cdc = {'enabled': false}")
    server.cql("DROP TABLE t")
    with pytest.raises(InvalidRequest):
        server.log()


# ---------------------------------------------------------------- the description tables


def test_generations_are_described_with_their_streams(server: Server) -> None:
    server.cluster.add_node(1000)
    for generation in server.cluster.generations:
        rows = server.cql(
            f"SELECT streams, range_end FROM system_distributed.cdc_streams_descriptions_v2 "
            f"WHERE time = {generation.time_ms}"
        )
        assert [(row["range_end"], frozenset(row["streams"])) for row in rows] == [
            (entry.range_end, frozenset(entry.streams)) for entry in generation.entries
        ]
    times = server.cql("SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'")
    assert [row["time"] for row in times] == [g.time_ms for g in reversed(server.cluster.generations)]
