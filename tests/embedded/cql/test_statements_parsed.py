"""Writes, schema statements and DESCRIBE as statements."""

from __future__ import annotations

import pytest
from cqltrees import INT, NULL, column, marker, text

from rscylla.embedded.cql import ast
from rscylla.embedded.cql.parser import parse
from rscylla.embedded.errors import InvalidRequest, SyntaxException

NO_USING = ast.Using()


def test_insert():
    assert parse(
        'INSERT INTO ks."T" (a, "B") VALUES (?, \'x\') IF NOT EXISTS USING TTL ? AND TIMESTAMP :ts AND TIMEOUT 1s'
    ) == ast.Insert(
        ast.TableName("ks", "T"),
        ("a", "B"),
        (marker(0), text("x")),
        ast.Using(timestamp=marker(2, "ts"), ttl=marker(1), timeout=ast.Constant("duration", "1s")),
        if_not_exists=True,
        markers=3,
    )


def test_insert_json():
    insert = parse("INSERT INTO t JSON '{}' DEFAULT UNSET IF NOT EXISTS USING TTL 1")
    assert insert == ast.Insert(
        ast.TableName(None, "t"), (), (), ast.Using(ttl=INT[1]), True, json=text("{}"), json_default_unset=True
    )
    assert parse("INSERT INTO t JSON ? DEFAULT NULL").json == marker(0)  # type: ignore[union-attr]


def test_insert_with_another_number_of_values_is_refused():
    with pytest.raises(InvalidRequest, match="Unmatched column names/values"):
        parse("INSERT INTO t (a, b) VALUES (1)")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("v = 1", ast.Assignment("set", "v", INT[1])),
        ("v = null", ast.Assignment("set", "v", NULL)),
        ("v = v + ?", ast.Assignment("add", "v", marker(0))),
        ("v = v + {1}", ast.Assignment("add", "v", ast.SetTerm((INT[1],)))),
        ("v = v - [1]", ast.Assignment("subtract", "v", ast.ListTerm((INT[1],)))),
        ("v = [1] + v", ast.Assignment("prepend", "v", ast.ListTerm((INT[1],)))),
        ("v = ? + v", ast.Assignment("prepend", "v", marker(0))),
        ("v=v-1", ast.Assignment("add", "v", ast.Constant("integer", "-1"))),
        ("v = v -1", ast.Assignment("add", "v", ast.Constant("integer", "-1"))),
        ("v = v + 1", ast.Assignment("add", "v", INT[1])),
        ("v = v + -1", ast.Assignment("add", "v", INT[-1])),
        ("v['k'] = 1", ast.Assignment("element", "v", INT[1], text("k"))),
        ("v[?] = ?", ast.Assignment("element", "v", marker(1), marker(0))),
        ("v.f = 1", ast.Assignment("field", "v", INT[1], "f")),
        ("v = f(1)", ast.Assignment("set", "v", ast.Call(None, "f", (INT[1],)))),
        ("v = ks.f(1)", ast.Assignment("set", "v", ast.Call("ks", "f", (INT[1],)))),
        (
            "v[SCYLLA_TIMEUUID_LIST_INDEX(?)] = 1",
            ast.Assignment("element", "v", INT[1], ast.Call(None, "scylla_timeuuid_list_index", (marker(0),))),
        ),
    ],
)
def test_assignments(source, expected):
    update = parse(f"UPDATE t SET {source} WHERE a = 1")
    assert isinstance(update, ast.Update)
    assert update.assignments == (expected,)


@pytest.mark.parametrize("source", ["v = w + 1", "v = w - 1", "v = 1 + w", "v = v 1", "v + 1", "v = w"])
def test_assignments_that_say_nothing_useful_are_refused(source):
    with pytest.raises(SyntaxException):
        parse(f"UPDATE t SET {source} WHERE a = 1")


def test_update_with_conditions():
    assert parse(
        "UPDATE t USING TTL 3 SET a = 1, b = ? WHERE k = ? IF c = 1 AND d IN (?, 2) AND m[1] != 3 AND u.f > 4"
    ) == (
        ast.Update(
            ast.TableName(None, "t"),
            (ast.Assignment("set", "a", INT[1]), ast.Assignment("set", "b", marker(0))),
            (column("k", "=", marker(1)),),
            ast.Using(ttl=INT[3]),
            if_exists=False,
            conditions=(
                column("c", "=", INT[1]),
                column("d", "IN", (marker(2), INT[2])),
                ast.Relation(("element", "m", INT[1]), "!=", INT[3]),
                ast.Relation(("field", "u", "f"), ">", INT[4]),
            ),
            markers=3,
        )
    )


def test_if_exists_or_a_column_named_exists():
    assert parse("UPDATE t SET a = 1 WHERE k = 1 IF EXISTS").if_exists is True  # type: ignore[union-attr]
    assert parse("DELETE FROM t WHERE k = 1 IF EXISTS;").if_exists is True  # type: ignore[union-attr]
    condition = parse("DELETE FROM t WHERE k = 1 IF exists = 1").conditions  # type: ignore[union-attr]
    assert condition == (column("exists", "=", INT[1]),)


def test_delete():
    assert parse("DELETE a, b[?], c.d FROM ks.t USING TIMESTAMP ? AND TIMEOUT 1s WHERE k = 1") == ast.Delete(
        ast.TableName("ks", "t"),
        (ast.Deletion("a"), ast.Deletion("b", key=marker(0)), ast.Deletion("c", field="d")),
        (column("k", "=", INT[1]),),
        ast.Using(timestamp=marker(1), timeout=ast.Constant("duration", "1s")),
        if_exists=False,
        conditions=(),
        markers=2,
    )
    with pytest.raises(SyntaxException):
        parse("DELETE FROM t USING TTL 1 WHERE k = 1")


def test_batch():
    batch = parse(
        "BEGIN UNLOGGED BATCH USING TIMESTAMP ? INSERT INTO t (a) VALUES (?); UPDATE t SET a = ? WHERE k = 1 "
        "DELETE FROM t WHERE k = ? IF EXISTS; INSERT INTO t JSON '{}'; APPLY BATCH;"
    )
    assert isinstance(batch, ast.Batch)
    assert (batch.kind, batch.using.timestamp, batch.markers) == ("unlogged", marker(0), 4)
    assert [type(statement).__name__ for statement in batch.statements] == ["Insert", "Update", "Delete", "Insert"]
    assert batch.statements[1].assignments[0].value == marker(2)  # type: ignore[union-attr]
    assert parse("begin batch apply batch") == ast.Batch("logged", NO_USING, ())
    assert parse("BEGIN COUNTER BATCH UPDATE t SET c = c + 1 WHERE k = 1 APPLY BATCH").kind == "counter"  # type: ignore[union-attr]


def test_truncate_and_use():
    assert parse("TRUNCATE ks.t") == parse("truncate table ks.t") == ast.Truncate(ast.TableName("ks", "t"))
    assert parse('USE "Ks"') == ast.Use("Ks")


def test_create_keyspace():
    assert parse(
        "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3} "
        "AND durable_writes = true AND tablets = {'enabled': false}"
    ) == ast.CreateKeyspace(
        "ks",
        True,
        {
            "replication": {"class": "NetworkTopologyStrategy", "dc1": "3"},
            "durable_writes": "true",
            "tablets": {"enabled": "false"},
        },
    )
    assert parse("CREATE SCHEMA ks WITH replication = {}") == ast.CreateKeyspace("ks", False, {"replication": {}})


def test_keyspaces_are_altered_and_dropped():
    assert parse("ALTER KEYSPACE ks WITH durable_writes = false") == ast.AlterKeyspace(
        "ks", {"durable_writes": "false"}
    )
    assert parse("DROP KEYSPACE IF EXISTS ks") == ast.DropKeyspace("ks", True)


def test_create_table_with_cdc():
    assert parse(
        """
        CREATE TABLE IF NOT EXISTS ks.orders (  -- orders of the shop
            id uuid, line int, total counter static, "Tags" frozen<set<text>>, t tuple<int, text>, u ks.addr,
            v vector<float, 3>, PRIMARY KEY ((id, "Tags"), line, t)
        ) WITH cdc = {'enabled': true, 'ttl': 3600} AND CLUSTERING ORDER BY (line DESC, t ASC)
          AND comment = 'it''s' AND gc_grace_seconds = 0 AND crc_check_chance = 1.0 AND speculative_retry = none
          AND ID = 6f1f8f10-10b9-11f2-ba7e-2b8c92c13c26
        """
    ) == ast.CreateTable(
        table=ast.TableName("ks", "orders"),
        if_not_exists=True,
        columns=(
            ast.ColumnDef("id", "uuid", False),
            ast.ColumnDef("line", "int", False),
            ast.ColumnDef("total", "counter", True),
            ast.ColumnDef("Tags", "frozen<set<text>>", False),
            ast.ColumnDef("t", "tuple<int, text>", False),
            ast.ColumnDef("u", "ks.addr", False),
            ast.ColumnDef("v", "vector<float, 3>", False),
        ),
        partition_key=("id", "Tags"),
        clustering_key=("line", "t"),
        clustering_order=(("line", "desc"), ("t", "asc")),
        compact_storage=False,
        options={
            "cdc": {"enabled": "true", "ttl": "3600"},
            "comment": "it's",
            "gc_grace_seconds": "0",
            "crc_check_chance": "1.0",
            "speculative_retry": "none",
            "id": "6f1f8f10-10b9-11f2-ba7e-2b8c92c13c26",
        },
    )


def test_primary_keys():
    def keys(body: str) -> tuple[object, object]:
        table = parse(f"CREATE TABLE t ({body}) WITH COMPACT STORAGE")
        assert isinstance(table, ast.CreateTable)
        assert table.compact_storage
        return table.partition_key, table.clustering_key

    assert keys("a int PRIMARY KEY, b int") == (("a",), ())
    assert keys("a int, b int, PRIMARY KEY (a, b)") == (("a",), ("b",))
    assert keys("a int, b int, PRIMARY KEY ((a), b)") == (("a",), ("b",))
    assert keys("a int") == ((), ())
    with pytest.raises(InvalidRequest, match="Multiple PRIMARY KEYs"):
        keys("a int PRIMARY KEY, b int PRIMARY KEY")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("ADD v int", {"add": (ast.ColumnDef("v", "int", False),)}),
        ("ADD (v int static, w text)", {"add": (ast.ColumnDef("v", "int", True), ast.ColumnDef("w", "text", False))}),
        ("DROP v", {"drop": ("v",)}),
        ("DROP (v, w) USING TIMESTAMP 5", {"drop": ("v", "w"), "drop_timestamp": INT[5]}),
        ("RENAME a TO b AND c TO d", {"rename": (("a", "b"), ("c", "d"))}),
        ("ALTER v TYPE text", {"alter_type": ("v", "text")}),
        ("WITH cdc = {'enabled': 'false'}", {"options": {"cdc": {"enabled": "false"}}}),
        ("WITH compact = 1 AND clustering = 2", {"options": {"compact": "1", "clustering": "2"}}),
    ],
)
def test_alter_table(source, expected):
    assert parse(f"ALTER TABLE ks.t {source}") == ast.AlterTable(ast.TableName("ks", "t"), **expected)


def test_drop_table():
    assert parse("DROP TABLE t") == ast.DropTable(ast.TableName(None, "t"), False)
    assert parse("DROP COLUMNFAMILY IF EXISTS ks.t") == ast.DropTable(ast.TableName("ks", "t"), True)


def test_types():
    name = ast.TableName("ks", "addr")
    assert parse("CREATE TYPE IF NOT EXISTS ks.addr (street text, zip frozen<list<int>>)") == ast.CreateType(
        name, True, (("street", "text"), ("zip", "frozen<list<int>>"))
    )
    assert parse("ALTER TYPE ks.addr ADD town text") == ast.AlterType(name, add=(("town", "text"),))
    assert parse("ALTER TYPE ks.addr RENAME a TO b AND c TO d") == ast.AlterType(name, rename=(("a", "b"), ("c", "d")))
    assert parse("DROP TYPE IF EXISTS ks.addr") == ast.DropType(name, True)
    assert parse("ALTER TYPE ks.addr ALTER a TYPE int") == ast.AlterType(name, retype=("a", "int"))


def test_a_property_given_twice_is_refused():
    with pytest.raises(SyntaxException, match="Multiple definition for property 'comment'"):
        parse("ALTER TABLE t WITH comment = 'a' AND comment = 'b'")


@pytest.mark.parametrize("value", ["?", "{'a': ?}", "{1}", "[1]", "{a: 1}", "{'a': null}", "f()"])
def test_properties_take_constants_only(value):
    with pytest.raises(SyntaxException):
        parse(f"ALTER TABLE t WITH x = {value}")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("CLUSTER", ("cluster", None, None)),
        ("FULL SCHEMA", ("full schema", None, None)),
        ("SCHEMA", ("schema", None, None)),
        ("KEYSPACES", ("keyspaces", None, None)),
        ("KEYSPACE", ("keyspace", None, None)),
        ("KEYSPACE ks", ("keyspace", "ks", None)),
        ("ONLY KEYSPACE ks", ("only keyspace", "ks", None)),
        ("TABLES", ("tables", None, None)),
        ("COLUMNFAMILIES", ("tables", None, None)),
        ("TABLE ks.t", ("table", "ks", "t")),
        ("TABLE t_scylla_cdc_log", ("table", None, "t_scylla_cdc_log")),
        ("TYPES", ("types", None, None)),
        ("TYPE ks.u", ("type", "ks", "u")),
        ("FUNCTIONS", ("functions", None, None)),
        ("FUNCTION f", ("function", None, "f")),
        ("AGGREGATES", ("aggregates", None, None)),
        ("AGGREGATE a", ("aggregate", None, "a")),
        ("INDEX i", ("index", None, "i")),
        ("MATERIALIZED VIEW v", ("materialized view", None, "v")),
        ("ks", ("", None, "ks")),
        ('ks."T"', ("", "ks", "T")),
        ("type", ("", None, "type")),
        ("tables.only", ("", "tables", "only")),
    ],
)
def test_describe(source, expected):
    assert parse(f"DESCRIBE {source}") == ast.Describe(*expected, internals=False)
    assert parse(f"desc {source} WITH INTERNALS;") == ast.Describe(*expected, internals=True)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM t PRIMARY KEY (a)", "CREATE MATERIALIZED VIEW"),
        ("create index on t (a)", "CREATE INDEX"),
        ("CREATE CUSTOM INDEX i ON t (a) USING 'x'", "CREATE CUSTOM INDEX"),
        ("DROP INDEX i", "DROP INDEX"),
        ("CREATE FUNCTION f (a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'x'", "CREATE FUNCTION"),
        ("CREATE OR REPLACE FUNCTION f ()", "CREATE OR REPLACE FUNCTION"),
        ("CREATE AGGREGATE a (int) SFUNC f STYPE int", "CREATE AGGREGATE"),
        ("CREATE ROLE r", "CREATE ROLE"),
        ("GRANT SELECT ON t TO r", "GRANT"),
        ("CREATE SERVICE LEVEL s", "CREATE SERVICE LEVEL"),
        ("PRUNE MATERIALIZED VIEW v", "PRUNE MATERIALIZED VIEW"),
        ("SELECT * FROM MUTATION_FRAGMENTS(ks.t) WHERE a = 1", "SELECT FROM MUTATION_FRAGMENTS"),
        ("SELECT * FROM t ORDER BY v ANN OF [1.0] LIMIT 1", "ORDER BY ... ANN OF"),
    ],
)
def test_statements_out_of_scope_are_known_by_name(source, what):
    statement = parse(source)
    assert isinstance(statement, ast.Unsupported)
    assert statement.what == what
