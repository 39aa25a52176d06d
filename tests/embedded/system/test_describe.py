"""DESCRIBE: names, the layout of statements, and the history of columns, as Scylla shows them."""

from __future__ import annotations

import pytest
from enginebox import EngineBox, Row, decoded

from rscylla.embedded.errors import InvalidRequest
from rscylla.embedded.result import QueryParams, RowsResult

CDC = "WITH cdc = {'enabled': true}"
LOG_HEAD = (
    "/* Do NOT execute this statement! It's only for informational purposes.\n"
    "   A CDC log table is created automatically when creating the base with CDC\n"
    "   enabled option or creating the vector index on the base table's vector column.\n\n"
)


@pytest.fixture
def box() -> EngineBox:
    return EngineBox()


def described(box: EngineBox, text: str, keyspace: str | None) -> list[Row]:
    """Return the rows as a client sees them that uses this keyspace."""
    result = box.engine.query(text, [], QueryParams(keyspace=keyspace))
    assert isinstance(result, RowsResult)
    return decoded(result)


def test_names_are_quoted_where_they_have_to_be(box: EngineBox) -> None:
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    box.run(f'CREATE KEYSPACE "KS" WITH replication = {replication}')
    box.run('CREATE TYPE "KS"."select" (a int, "B" text)')
    box.run('CREATE TABLE "KS"."T" (a int PRIMARY KEY, "!@#$%" int, m map<int, frozen<"select">>)')
    rows = box.rows('DESCRIBE KEYSPACE "KS"')
    assert [(row["keyspace_name"], row["type"], row["name"]) for row in rows] == [
        ('"KS"', "keyspace", '"KS"'),
        ('"KS"', "type", '"select"'),
        ('"KS"', "table", '"T"'),
    ]
    assert rows[0]["create_statement"].startswith('CREATE KEYSPACE "KS" WITH')
    assert rows[1]["create_statement"] == 'CREATE TYPE "KS"."select" (\n    a int,\n    "B" text\n);'
    columns = ["a int", '"!@#$%" int', 'm map<int, frozen<"select">>', "PRIMARY KEY (a)"]
    assert rows[2]["create_statement"].startswith('CREATE TABLE "KS"."T" (\n    ' + ",\n    ".join(columns) + "\n)")
    for kind, name in (("keyspace", '"KS"'), ("table", '"T"'), ("type", '"select"')):
        expected = {"keyspace_name": '"KS"', "type": kind, "name": name}
        assert expected in described(box, f"DESCRIBE {kind}s", None)


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        ("a int PRIMARY KEY", ["a int", "PRIMARY KEY (a)"]),
        (
            "a int, b int, c int, d int static, PRIMARY KEY ((a, b), c)",
            ["a int", "b int", "c int", "d int STATIC", "PRIMARY KEY ((a, b), c)"],
        ),
    ],
)
def test_the_primary_key_is_the_last_of_the_list(box: EngineBox, columns: str, shown: list[str]) -> None:
    box.run(f"CREATE TABLE t ({columns})")
    text = box.row("DESCRIBE TABLE t")["create_statement"]
    assert text.startswith("CREATE TABLE ks.t (\n    " + ",\n    ".join(shown) + "\n) WITH ")
    assert text.endswith(";\n")


def test_options_come_in_the_order_of_scylla(box: EngineBox) -> None:
    box.run(
        f"CREATE TABLE t (a int PRIMARY KEY) {CDC} AND compaction = {{'class': 'SizeTieredCompactionStrategy',"
        " 'bucket_high': '2'} AND paxos_grace_seconds = 7 AND comment = 'it''s'"
    )
    options = box.rows("DESCRIBE TABLE t")[0]["create_statement"].split(" WITH ")[1].split("\n    AND ")
    assert [option.split(" = ")[0] for option in options] == [
        "bloom_filter_fp_chance",
        "caching",
        "comment",
        "compaction",
        "compression",
        "crc_check_chance",
        "default_time_to_live",
        "gc_grace_seconds",
        "max_index_interval",
        "memtable_flush_period_in_ms",
        "min_index_interval",
        "speculative_retry",
        "cdc",
        "paxos_grace_seconds",
        "tombstone_gc",
    ]
    assert "compaction = {'class': 'SizeTieredCompactionStrategy', 'bucket_high': '2'}" in options
    assert "comment = 'it''s'" in options


def test_a_column_that_came_back_is_made_dropped_and_added(box: EngineBox) -> None:
    box.run("CREATE TABLE t (a int PRIMARY KEY, b int, c int)")
    box.run("ALTER TABLE t DROP (b, c)")
    box.run("ALTER TABLE t ADD b text")
    text = box.row("DESCRIBE TABLE t WITH INTERNALS")["create_statement"]
    assert text.startswith("CREATE TABLE ks.t (\n    a int,\n    c int,\n    b int,\n    PRIMARY KEY (a)\n) WITH ID = ")
    now = box.clock.now_us()
    assert text.endswith(
        ";\n"
        f"\nALTER TABLE ks.t DROP c USING TIMESTAMP {now};"
        f"\nALTER TABLE ks.t DROP b USING TIMESTAMP {now};"
        "\nALTER TABLE ks.t ADD b text;"
    )
    plain = box.row("DESCRIBE TABLE t")["create_statement"]
    assert plain.startswith("CREATE TABLE ks.t (\n    a int,\n    b text,\n    PRIMARY KEY (a)\n) WITH bloom")
    assert "ALTER" not in plain


def test_a_log_attached_again_shows_what_it_lost_in_the_order_of_scylla(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (p int, v int, u int, a int, PRIMARY KEY (p, v)) {CDC}")
    box.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    box.run("ALTER TABLE t DROP a")
    box.run("ALTER TABLE t ADD b double")
    box.run("ALTER TABLE t RENAME v TO v2")
    box.run(f"ALTER TABLE t {CDC}")
    text = box.row("DESCRIBE TABLE t_scylla_cdc_log WITH INTERNALS")["create_statement"]
    columns = (
        '    p int,\n    u int,\n    v2 int,\n    v int,\n    "cdc$deleted_a" boolean,\n    a int,\n    PRIMARY KEY ('
    )
    assert columns in text
    dropped = [line.split(" USING ")[0] for line in text.splitlines() if line.startswith("ALTER")]
    assert dropped == [f"ALTER TABLE ks.t_scylla_cdc_log DROP {name}" for name in ("v", '"cdc$deleted_a"', "a")]


def test_the_comment_around_a_log_can_be_stripped(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (p int PRIMARY KEY) {CDC}")
    box.run("ALTER TABLE t_scylla_cdc_log WITH comment = 'mine'")
    text = box.row("DESCRIBE TABLE t_scylla_cdc_log")["create_statement"]
    assert text.startswith(LOG_HEAD + "CREATE TABLE ks.t_scylla_cdc_log (\n")
    assert text.endswith(";\n\n*/")
    assert "\n    AND comment = 'mine'\n" in text
    alter = box.rows("DESCRIBE TABLE t")[1]["create_statement"]
    assert alter.startswith("ALTER TABLE ks.t_scylla_cdc_log WITH bloom_filter_fp_chance = 0.01\n    AND caching = ")
    assert "\n    AND comment = 'mine'\n" in alter
    box.run(alter)
    assert box.rows("DESCRIBE TABLE t")[1]["create_statement"] == alter


def test_a_column_of_a_detached_log_cannot_be_renamed(box: EngineBox) -> None:
    box.run(f"CREATE TABLE t (p int PRIMARY KEY, u int) {CDC}")
    box.run("ALTER TABLE t WITH cdc = {'enabled': false}")
    message = (
        "^You cannot rename a column of a CDC log table. Although the base table has deactivated CDC, this table will"
        " continue being a CDC log table until it is dropped.$"
    )
    for renaming in ("u TO c", '"cdc$stream_id" TO c', '"cdc$stream_id" TO "cdc$c"'):
        with pytest.raises(InvalidRequest, match=message):
            box.run(f"ALTER TABLE t_scylla_cdc_log RENAME {renaming}")


def test_racks_are_shown_as_they_were_given(box: EngineBox) -> None:
    box.run(
        "CREATE KEYSPACE r WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': ['rack1']}"
        " AND tablets = {'enabled': true}"
    )
    text = box.row("DESCRIBE KEYSPACE r")["create_statement"]
    assert "NetworkTopologyStrategy', 'datacenter1': ['rack1']} AND durable" in text
    box.run(text.replace("KEYSPACE r", "KEYSPACE again"))
    assert box.row("DESCRIBE KEYSPACE again")["create_statement"] == text.replace("KEYSPACE r", "KEYSPACE again")


def test_only_a_keyspace_of_vnodes_in_use_shows_who_owns_which_range(box: EngineBox) -> None:
    assert "range_ownership" in box.row("DESCRIBE CLUSTER")
    box.run(
        "CREATE KEYSPACE tab WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        " AND tablets = {'enabled': true}"
    )
    for keyspace in ("tab", "system"):
        assert list(described(box, "DESCRIBE CLUSTER", keyspace)[0]) == ["cluster", "partitioner", "snitch"]


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_the_ranges_are_those_of_the_token_ring(copies: int) -> None:
    box = EngineBox(nodes=3)
    box.run(f"ALTER KEYSPACE ks WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {copies}}}")
    ranges = box.row("DESCRIBE CLUSTER")["range_ownership"]
    listed = box.rows("SELECT end_token, endpoint FROM system.token_ring WHERE keyspace_name = 'ks'")
    assert sorted((end, node) for end, nodes in ranges.items() for node in nodes) == sorted(
        (row["end_token"], str(row["endpoint"])) for row in listed
    )
    assert {len(nodes) for nodes in ranges.values()} == {min(copies, 3)}


def test_describe_schema_takes_passwords(box: EngineBox) -> None:
    box.run("CREATE TABLE t (p int PRIMARY KEY)")
    with_passwords = box.rows("DESC SCHEMA WITH INTERNALS AND PASSWORDS")
    assert with_passwords == box.rows("DESC SCHEMA WITH INTERNALS")
    assert [row["name"] for row in with_passwords] == ["ks", "t"]
