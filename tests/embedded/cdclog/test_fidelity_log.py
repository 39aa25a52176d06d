"""The log table as Scylla makes it: name, identity, order, properties, life of its cells, and WITH cdc in all forms."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import ConfigError, CqlError, InvalidRequest, ServerError, SyntaxException, Unauthorized
from rscylla.embedded.result import RowsResult, VoidResult
from rscylla.embedded.schema.tables import TableSchema

CDC = "WITH cdc = {'enabled': true}"
LOG = "t_scylla_cdc_log"
UPSERT = "INSERT INTO t (pk, v) VALUES (?, 1)"


@pytest.fixture
def box() -> EngineBox:
    return EngineBox()


@pytest.fixture
def logged(box: EngineBox) -> EngineBox:
    """A box with the table t (pk, v) and its log."""
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) {CDC}")
    return box


def table(box: EngineBox, name: str = LOG) -> TableSchema:
    return box.engine.schema.keyspaces["ks"].tables[name]


def text_of(box: EngineBox, statement: str, name: str) -> str:
    [text] = [row["create_statement"] for row in box.rows(statement) if row["name"] == name]
    assert isinstance(text, str)
    return text


# ---------------------------------------------------------------- name, place, identity


def test_the_longest_name_of_a_base_leaves_room_for_its_log(box: EngineBox) -> None:
    name = "t" * 192
    box.run(f"CREATE TABLE {name} (pk int PRIMARY KEY) {CDC}")
    box.run(f"INSERT INTO {name} (pk) VALUES (1)")
    assert box.log(name) == [{"operation": 2, "pk": 1, "end_of_batch": True}]


def test_a_table_named_like_a_log_is_the_users_own(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY)")
    box.run(f"CREATE TABLE {LOG} (a int, b int, c int, PRIMARY KEY (a, b))")
    for change in ("ADD d int", "DROP c", "RENAME b TO e", "WITH comment = 'mine'"):
        box.run(f"ALTER TABLE {LOG} {change}")
    box.run(f"INSERT INTO {LOG} (a, e, d) VALUES (1, 2, 3)")
    [row] = box.rows(
        f"SELECT partitioner FROM system_schema.scylla_tables WHERE keyspace_name = 'ks' AND table_name = '{LOG}'"
    )
    assert row == {"partitioner": None}
    assert {"keyspace_name": "ks", "type": "table", "name": LOG} in box.rows("DESCRIBE TABLES")
    with pytest.raises(InvalidRequest, match=rf"because a table of name ks\.{LOG} already exists"):
        box.run(f"ALTER TABLE t {CDC}")
    box.run("DROP TABLE t")
    assert box.rows(f"SELECT * FROM {LOG}") == [{"a": 1, "e": 2, "d": 3}]
    box.run(f"DROP TABLE {LOG}")


def test_a_table_with_the_logs_suffix_can_have_a_log_itself(box: EngineBox) -> None:
    box.run(f"CREATE TABLE {LOG} (pk int PRIMARY KEY) {CDC}")
    box.run(f"INSERT INTO {LOG} (pk) VALUES (1)")
    assert len(box.log(LOG)) == 1


def test_the_token_of_a_log_partition_is_the_head_of_its_key(logged: EngineBox) -> None:
    for pk in range(30):
        logged.run(UPSERT, [pk])
    rows = logged.rows(f'SELECT token("cdc$stream_id") AS t, "cdc$stream_id" AS s FROM {LOG}')
    assert [row["t"] for row in rows] == [struct.unpack_from(">q", row["s"])[0] for row in rows]
    keys = [(row["t"], row["s"]) for row in rows]
    assert keys == sorted(keys)
    assert min(keys)[0] < 0 < max(keys)[0]
    middle = keys[len(keys) // 2][0]
    part = logged.rows(f'SELECT "cdc$stream_id" AS s FROM {LOG} WHERE token("cdc$stream_id") > ?', [middle])
    assert [row["s"] for row in part] == [s for t, s in keys if t > middle]


@pytest.mark.parametrize("key", ["0x", "0x00", f"0x{'00' * 15}", f"0x{'00' * 17}"])
@pytest.mark.parametrize("relation", ["= {}", "IN ({})"])
def test_a_stream_id_of_another_length_selects_nothing(logged: EngineBox, key: str, relation: str) -> None:
    logged.run(UPSERT, [1])
    everything = logged.run(f"SELECT * FROM {LOG}")
    found = logged.run(f'SELECT * FROM {LOG} WHERE "cdc$stream_id" {relation.format(key)}')
    assert isinstance(everything, RowsResult)
    assert isinstance(found, RowsResult)
    assert found.columns == everything.columns
    assert list(found.rows) == []


def test_rows_of_a_short_key_cannot_be_read(logged: EngineBox) -> None:
    logged.run(f'INSERT INTO {LOG} ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", v) VALUES (0x00, now(), 0, 1)')
    assert logged.rows(f'SELECT v FROM {LOG} WHERE "cdc$stream_id" = 0x00') == []


# ---------------------------------------------------------------- DESCRIBE


def test_describe_shows_how_to_restore_the_logs_properties(logged: EngineBox) -> None:
    for statement in ("DESCRIBE TABLE t", "DESCRIBE KEYSPACE ks", "DESCRIBE SCHEMA"):
        text = text_of(logged, statement, LOG)
        assert text.startswith(f"ALTER TABLE ks.{LOG} WITH bloom_filter_fp_chance = 0.01\n    AND caching = ")
        assert text.endswith(";\n")
        logged.run(text)
    assert "CREATE" not in "".join(text_of(logged, s, LOG) for s in ("DESCRIBE SCHEMA", "DESCRIBE KEYSPACE"))
    result = logged.run("DESCRIBE TABLE t")
    assert isinstance(result, RowsResult)
    assert [(c.name, c.type.name) for c in result.columns] == [
        (name, "text") for name in ("keyspace_name", "type", "name", "create_statement")
    ]


def test_a_detached_log_is_described_as_any_table(logged: EngineBox) -> None:
    logged.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    assert [row["name"] for row in logged.rows("DESCRIBE TABLE t")] == ["t"]
    assert text_of(logged, f"DESCRIBE TABLE {LOG}", LOG).startswith(f"CREATE TABLE ks.{LOG} (")
    assert LOG in [row["name"] for row in logged.rows("DESCRIBE TABLES")]


def test_internals_of_a_log_with_dropped_columns(logged: EngineBox) -> None:
    logged.run("ALTER TABLE t DROP v")
    [row] = logged.rows(f"DESCRIBE TABLE {LOG} WITH INTERNALS")
    text = row["create_statement"]
    dropped_us = table(logged).dropped["v"][1]
    assert text.startswith("/*")
    assert text.endswith("*/")
    assert f"WITH ID = {table(logged).id}\n    AND CLUSTERING ORDER BY (" in text
    assert text.index('    "cdc$ttl" bigint') < text.index("    v int,") < text.index("PRIMARY KEY")
    assert f"ALTER TABLE ks.{LOG} DROP v USING TIMESTAMP {dropped_us};" in text
    assert f'ALTER TABLE ks.{LOG} DROP "cdc$deleted_v" USING TIMESTAMP {dropped_us};' in text
    assert " v int" not in logged.rows(f"DESCRIBE TABLE {LOG}")[0]["create_statement"]


def test_only_the_keyspace_is_described_when_only_it_is_asked_for(logged: EngineBox) -> None:
    [row] = logged.rows("DESCRIBE ONLY KEYSPACE ks")
    assert (row["type"], row["create_statement"][:19]) == ("keyspace", "CREATE KEYSPACE ks ")


# ---------------------------------------------------------------- properties


def test_properties_of_a_new_log(logged: EngineBox) -> None:
    text = text_of(logged, "DESCRIBE TABLE t", LOG)
    for line in (
        "bloom_filter_fp_chance = 0.01",
        "caching = {'enabled': 'false', 'keys': 'NONE', 'rows_per_partition': 'NONE'}",
        "comment = 'CDC log for ks.t'",
        "compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_size': '60', ",
        "'compaction_window_unit': 'MINUTES', 'expired_sstable_check_frequency_seconds': '1800'}",
        "compression = {'sstable_compression': 'LZ4WithDictsCompressor'}",
        "crc_check_chance = 1",
        "default_time_to_live = 0",
        "gc_grace_seconds = 0",
        "max_index_interval = 2048",
        "memtable_flush_period_in_ms = 0",
        "min_index_interval = 128",
        "speculative_retry = '99.0PERCENTILE'",
        "tombstone_gc = {'mode': 'timeout', 'propagation_delay_in_seconds': '3600'}",
    ):
        assert line in text


def test_properties_are_made_once(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'ttl': 3600}")
    first = table(box).options
    box.run("ALTER TABLE t WITH cdc = {'enabled': true, 'ttl': 7200}")
    assert table(box).options == first
    box.run(f"ALTER TABLE {LOG} WITH comment = 'mine' AND gc_grace_seconds = 7")
    box.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    box.run("ALTER TABLE t WITH cdc = {'enabled': true}")
    assert table(box).options == first | {"comment": "mine", "gc_grace_seconds": 7}


# ---------------------------------------------------------------- cells


def test_log_rows_have_no_marker(logged: EngineBox) -> None:
    logged.run(UPSERT, [1])
    [row] = logged.rows(f"SELECT * FROM {LOG}")
    where = '"cdc$stream_id" = ? AND "cdc$time" = ? AND "cdc$batch_seq_no" = 0'
    names = ", ".join(f'"{column.name}"' for column in table(logged).regular_columns)
    logged.run(f"DELETE {names} FROM {LOG} WHERE {where}", [row["cdc$stream_id"], row["cdc$time"]])
    assert logged.log() == []


@pytest.mark.parametrize(("ttl", "left"), [("10", 10), ("0", None), ("86400", 86400)])
def test_every_cell_carries_the_ttl_of_the_option(box: EngineBox, ttl: str, left: int | None) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true, 'ttl': {ttl}}}")
    stamp = box.clock.now_us() - 1
    box.run("INSERT INTO t (pk, v) VALUES (1, 2) USING TIMESTAMP ?", [stamp])
    for name in ("pk", "v", '"cdc$operation"', '"cdc$end_of_batch"'):
        assert box.row(f"SELECT ttl({name}) AS t, writetime({name}) AS w FROM {LOG}") == {"t": left, "w": stamp}


def test_cells_expire_by_the_servers_clock_not_by_the_write_timestamp(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 10}")
    ahead, behind = box.clock.now_us() + 4_000_000, box.clock.now_us() - 20_000_000
    for stamp in (ahead, behind):
        box.run("INSERT INTO t (pk) VALUES (1) USING TIMESTAMP ?", [stamp])
    box.clock.advance(9)
    assert len(box.log()) == 2
    box.clock.advance(1)
    assert box.log() == []


def test_another_ttl_is_for_new_rows_only(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 10}")
    box.run("INSERT INTO t (pk) VALUES (1)")
    box.run("ALTER TABLE t WITH cdc = {'enabled': true, 'ttl': 20}")
    box.run("INSERT INTO t (pk) VALUES (2)")
    box.clock.advance(15)
    assert [row["pk"] for row in box.log()] == [2]


def test_what_expires_in_the_base_is_not_logged(logged: EngineBox) -> None:
    logged.run("INSERT INTO t (pk, v) VALUES (1, 2) USING TTL 5")
    logged.clock.advance(6)
    assert logged.rows("SELECT * FROM t") == []
    logged.engine.writer.sweep()
    assert [row["operation"] for row in logged.log()] == [2]


def test_truncating_one_leaves_the_other(logged: EngineBox) -> None:
    logged.run(UPSERT, [1])
    logged.run("TRUNCATE t")
    assert logged.rows("SELECT * FROM t") == []
    assert [row["operation"] for row in logged.log()] == [2]
    logged.run(UPSERT, [2])
    logged.run(f"TRUNCATE TABLE {LOG} USING TIMEOUT 5m")
    assert (len(logged.rows("SELECT * FROM t")), logged.log()) == (1, [])


# ---------------------------------------------------------------- schema evolution


def test_a_renamed_key_cannot_be_named_back_at_once(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (pk int, ck int, PRIMARY KEY (pk, ck)) {CDC}")
    box.run("ALTER TABLE t RENAME ck TO c")
    assert table(box).dropped["ck"][1] == box.clock.now_us() + 5_000_000
    with pytest.raises(
        InvalidRequest, match="Cannot add column ck because a column with the same name was dropped too"
    ):
        box.run("ALTER TABLE t RENAME c TO ck")
    assert [column.name for column in table(box, "t").columns] == ["pk", "c"]
    box.clock.advance(5)
    box.run("ALTER TABLE t RENAME c TO ck")
    assert "ck" in table(box).by_name


def test_changes_while_detached_reach_the_log_when_it_comes_back(logged: EngineBox) -> None:
    logged.run(UPSERT, [1])
    identity = table(logged).id
    logged.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    logged.run("ALTER TABLE t DROP v")
    logged.run("ALTER TABLE t ADD w int")
    assert "v" in table(logged).by_name
    assert logged.log() == [{"operation": 2, "pk": 1, "v": 1, "end_of_batch": True}]
    logged.run("ALTER TABLE t WITH cdc = {'enabled': true}")
    assert table(logged).id == identity
    assert set(table(logged).dropped) == {"v", "cdc$deleted_v"}
    logged.run("INSERT INTO t (pk, w) VALUES (1, 2)")
    assert logged.log()[1] == {"operation": 2, "pk": 1, "w": 2, "end_of_batch": True}


def test_a_log_dropped_by_hand_comes_back_as_another_table(logged: EngineBox) -> None:
    identity = table(logged).id
    logged.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    logged.run(f"DROP TABLE {LOG}")
    logged.run("ALTER TABLE t WITH cdc = {'enabled': true}")
    assert table(logged).id != identity


# ---------------------------------------------------------------- WITH cdc

DEFAULT = {"delta": "full", "enabled": "true", "postimage": "false", "preimage": "false", "ttl": "86400"}


def stored_options(box: EngineBox) -> dict[str, str]:
    """The option map as readers of the schema tables decode it."""
    row = box.row("SELECT extensions FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 't'")
    raw = row["extensions"]["cdc"]
    (count,) = struct.unpack_from("<I", raw)
    words: list[str] = []
    at = 4
    for _ in range(2 * count):
        (size,) = struct.unpack_from("<I", raw, at)
        words.append(raw[at + 4 : at + 4 + size].decode())
        at += 4 + size
    assert at == len(raw)
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        ("{'enabled': true}", {}),
        ("{'enabled': 'TRUE'}", {}),
        ("{'ENABLED': 1}", {}),
        ("{'enabled': '1'}", {}),
        ("{'enabled': false}", {"enabled": "false"}),
        ("{'enabled': 0}", {"enabled": "false"}),
        ("{}", {"enabled": "false"}),
        ("{'preimage': true}", {"enabled": "false", "preimage": "true"}),
        ("{'enabled': true, 'preimage': 'Full'}", {"preimage": "full"}),
        ("{'enabled': true, 'preimage': 1, 'postimage': 1}", {"preimage": "true", "postimage": "true"}),
        ("{'enabled': true, 'delta': 'KEYS'}", {"delta": "keys"}),
        ("{'enabled': true, 'ttl': 5}", {"ttl": "5"}),
        ("{'enabled': true, 'ttl': '0'}", {"ttl": "0"}),
        ("{'enabled': true, 'ttl': ' +12 hours'}", {"ttl": "12"}),
        ("{'enabled': true, 'ttl': 1.9}", {"ttl": "1"}),
        ("{'enabled': true, 'ttl': '2147483647'}", {"ttl": "2147483647"}),
        ("{'enabled': true, 'enable_requested': true, 'tablet_merge_blocked': 0}", {}),
    ],
)
def test_options_and_their_stored_form(box: EngineBox, options: str, stored: dict[str, str]) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY) WITH cdc = {options}")
    wanted = DEFAULT | stored
    assert stored_options(box) == wanted
    assert (LOG in box.engine.schema.keyspaces["ks"].tables) == (wanted["enabled"] == "true")
    described = ", ".join(f"'{key}': '{value}'" for key, value in wanted.items())
    assert f"AND cdc = {{{described}}}" in text_of(box, "DESCRIBE TABLE t", "t")


@pytest.mark.parametrize(
    ("options", "error", "code", "message"),
    [
        ("{'enabled': 'maybe'}", ConfigError, 0x2300, 'Invalid value for CDC option "enabled": maybe'),
        ("{'enabled': 2}", ConfigError, 0x2300, 'Invalid value for CDC option "enabled": 2'),
        ("{'enabled': 'full'}", ConfigError, 0x2300, 'Invalid value for CDC option "enabled": full'),
        ("{'preimage': 'half'}", ConfigError, 0x2300, 'Invalid value for CDC option "preimage": half'),
        ("{'postimage': 'full'}", ConfigError, 0x2300, 'Invalid value for CDC option "postimage": full'),
        ("{'delta': 'some'}", ConfigError, 0x2300, 'Invalid value for CDC option "delta": some'),
        ("{'ttl': 'soon'}", ConfigError, 0x2300, 'Invalid value for CDC option "ttl": soon'),
        ("{'ttl': ''}", ConfigError, 0x2300, 'Invalid value for CDC option "ttl": '),
        ("{'ttl': '2147483648'}", ConfigError, 0x2300, "Invalid CDC option: ttl too large"),
        ("{'ttl': '-2147483649'}", ConfigError, 0x2300, "Invalid CDC option: ttl too large"),
        ("{'ttl': -1}", ConfigError, 0x2300, "Invalid CDC option: ttl must be >= 0"),
        ("{'ttl': '-2147483648'}", ConfigError, 0x2300, "Invalid CDC option: ttl must be >= 0"),
        ("{'speed': 1}", ConfigError, 0x2300, "Invalid CDC option: speed"),
        ("'x'", ServerError, 0x0000, "the cdc option takes a map"),
        ("{'enabled': null}", SyntaxException, 0x2000, ""),
    ],
)
def test_refused_options(box: EngineBox, options: str, error: type[CqlError], code: int, message: str) -> None:
    for statement in ("CREATE TABLE t (pk int PRIMARY KEY) WITH cdc = {}", "ALTER TABLE other WITH cdc = {}"):
        if "CREATE" not in statement:
            box.run("CREATE TABLE other (pk int PRIMARY KEY)")
        with pytest.raises(error) as caught:
            box.run(statement.replace("{}", options))
        assert caught.value.code == code
        assert caught.value.message.startswith(message)
    assert set(box.engine.schema.keyspaces["ks"].tables) == {"other"}


def test_alter_replaces_all_options(box: EngineBox) -> None:
    box.run(
        "CREATE TABLE t (pk int PRIMARY KEY) WITH cdc = {'enabled': true, 'preimage': full, 'ttl': 5}".replace(
            "full", "'full'"
        )
    )
    box.run("ALTER TABLE t WITH cdc = {'enabled': true, 'postimage': true}")
    assert stored_options(box) == DEFAULT | {"postimage": "true"}
    for options in ("{}", "{'ttl': 5}"):
        with pytest.raises(InvalidRequest, match='Altering CDC options requires specifying "enabled" flag'):
            box.run(f"ALTER TABLE t WITH cdc = {options}")
    box.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    assert stored_options(box) == DEFAULT | {"enabled": "false"}


def test_create_if_not_exists_leaves_a_table_as_it_is(box: EngineBox) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY)")
    assert box.run(f"CREATE TABLE IF NOT EXISTS t (pk int PRIMARY KEY) {CDC}") == VoidResult()
    assert set(box.engine.schema.keyspaces["ks"].tables) == {"t"}


def test_a_view_is_refused_for_scyllas_reasons_first(logged: EngineBox) -> None:
    view = "CREATE MATERIALIZED VIEW v AS SELECT * FROM {} WHERE pk IS NOT NULL PRIMARY KEY (pk)"
    for source, options, message in (
        (LOG, "", "Materialized views cannot be created on CDC Log tables"),
        (f'ks."{LOG}"', "", "Materialized views cannot be created on CDC Log tables"),
        ("t", CDC, "Cannot enable CDC for a materialized view"),
        ("t", "", "CREATE MATERIALIZED VIEW is not supported by the embedded server"),
        ("nothere", "", "unconfigured table nothere"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            logged.run(f"{view.format(source)} {options}")
    logged.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    with pytest.raises(InvalidRequest, match="CREATE MATERIALIZED VIEW is not supported"):
        logged.run(view.format(LOG))


def test_conditional_writes_to_a_log_of_vnodes_are_allowed(logged: EngineBox) -> None:
    logged.run(UPSERT, [1])
    [row] = logged.rows(f"SELECT * FROM {LOG}")
    where = '"cdc$stream_id" = ? AND "cdc$time" = ? AND "cdc$batch_seq_no" = 0'
    key = [row["cdc$stream_id"], row["cdc$time"]]
    assert logged.row(f"UPDATE {LOG} SET v = 9 WHERE {where} IF v = 1", key)["[applied]"] is True
    assert [r["v"] for r in logged.log()] == [9]


# ---------------------------------------------------------------- the description tables

TIMES = "system_distributed.cdc_generation_timestamps"
STREAMS = "system_distributed.cdc_streams_descriptions_v2"


def test_the_description_tables_can_be_written_but_not_altered(box: EngineBox) -> None:
    [first] = box.column(f"SELECT time FROM {TIMES} WHERE key = 'timestamps'")
    box.run(f"INSERT INTO {TIMES} (key, time) VALUES ('timestamps', ?)", [first + 1])
    box.run(f"UPDATE {TIMES} SET expired = 5 WHERE key = 'timestamps' AND time = ?", [first])
    assert box.rows(f"SELECT time, expired FROM {TIMES} WHERE key = 'timestamps'") == [
        {"time": first + 1, "expired": None},
        {"time": first, "expired": 5},
    ]
    box.run(f"DELETE FROM {STREAMS} WHERE time = ?", [first])
    assert box.rows(f"SELECT * FROM {STREAMS}") == []
    box.engine.writer.sweep()
    assert box.rows(f"SELECT * FROM {STREAMS}") == []
    # A new generation appears beside the written rows, and deleted rows stay deleted.
    box.cluster.new_generation(7000)
    second = box.cluster.generations[-1]
    assert box.column(f"SELECT DISTINCT time FROM {STREAMS}") == [second.time_ms]
    assert box.column(f"SELECT max(time) FROM {TIMES} WHERE key = 'timestamps'") == [second.time_ms]
    applied = box.row(f"DELETE FROM {TIMES} WHERE key = 'timestamps' AND time = ? IF EXISTS", [second.time_ms])
    assert applied["[applied]"] is True
    assert second.time_ms not in box.column(f"SELECT time FROM {TIMES}")


@pytest.mark.parametrize("name", [TIMES, STREAMS])
@pytest.mark.parametrize(
    "statement", ["ALTER TABLE {} ADD x int", "DROP TABLE {}", "TRUNCATE {}", "ALTER TABLE {} WITH comment = ''"]
)
def test_their_schema_is_protected(box: EngineBox, name: str, statement: str) -> None:
    with pytest.raises(Unauthorized) as caught:
        box.run(statement.format(name))
    assert caught.value.code == 0x2100


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO system.cdc_local (key) VALUES ('rewritten')",
        "DELETE FROM system_schema.tables WHERE keyspace_name = 'ks'",
        "UPDATE system.peers SET rack = 'r' WHERE peer = '127.0.0.1'",
    ],
)
def test_other_system_tables_are_not(box: EngineBox, statement: str) -> None:
    with pytest.raises(Unauthorized):
        box.run(statement)


def test_rows_as_plain_values_of_any_kind(box: EngineBox) -> None:
    """Vectors, tuples, durations and frozen values keep their type in the log."""
    box.run(
        "CREATE TABLE t (pk int PRIMARY KEY, v vector<float, 2>, tu tuple<int, text>, d duration,"
        f" f frozen<list<int>>) {CDC}"
    )
    box.run("INSERT INTO t (pk, v, tu, d, f) VALUES (1, [1.5, 2], (3, null), 1mo2d, [4])")
    box.run("UPDATE t SET v = null, tu = null, d = null, f = [] WHERE pk = 1")
    insert, update = box.log()
    values: dict[str, Any] = {name: insert[name] for name in ("v", "tu", "f")}
    assert values == {"v": [1.5, 2.0], "tu": (3, None), "f": [4]}
    assert (insert["d"].months, insert["d"].days) == (1, 2)
    gone = {"deleted_v": True, "deleted_tu": True, "deleted_d": True, "f": []}
    assert update == {"operation": 1, "pk": 1, "end_of_batch": True, **gone}
