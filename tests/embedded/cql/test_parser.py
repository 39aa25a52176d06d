"""CQL text becomes the statements it says, and what is not CQL is refused where it goes wrong."""

from __future__ import annotations

import contextlib
import threading

import pytest
from cassandra import cluster, metadata
from hypothesis import given, settings
from hypothesis import strategies as st

from rscylla.embedded.cql import ast, parser
from rscylla.embedded.cql.lexer import CqlLexer
from rscylla.embedded.cql.names import RESERVED_WORDS, quote_name
from rscylla.embedded.cql.parser import parse
from rscylla.embedded.errors import InvalidRequest, SyntaxException

INT = {n: ast.Constant("integer", str(n)) for n in range(-10, 100)}
NULL = ast.Constant("null", "")
NO_USING = ast.Using()


def text(value: str) -> ast.Constant:
    return ast.Constant("string", value)


def marker(index: int, name: str | None = None) -> ast.Marker:
    return ast.Marker(index, name)


def column(name: str, op: str, right: object) -> ast.Relation:
    return ast.Relation(("column", name), op, right)


def term(source: str) -> object:
    """Return the term *source*, read as the value of a column."""
    statement = parse(f"INSERT INTO t (a) VALUES ({source})")
    assert isinstance(statement, ast.Insert)
    return statement.values[0]


def where(source: str) -> tuple[ast.Relation, ...]:
    statement = parse(f"SELECT * FROM t WHERE {source}")
    assert isinstance(statement, ast.Select)
    return statement.where


def selectors(source: str) -> list[object]:
    statement = parse(f"SELECT {source} FROM t")
    assert isinstance(statement, ast.Select)
    assert statement.selectors is not None
    return [selector.item for selector in statement.selectors]


# ---------------------------------------------------------------- what clients send

CLIENT_STATEMENTS = [
    # Source: the facts of the CDC libraries and of gocql, the Java driver and cqlsh.
    "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key='timestamps'",
    (
        "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key='timestamps' AND time <= ? "
        "ORDER BY time DESC LIMIT 1"
    ),
    (
        "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key='timestamps' AND time > ? "
        "ORDER BY time ASC LIMIT 1"
    ),
    "SELECT min(time) FROM system_distributed.cdc_generation_timestamps WHERE key='timestamps' AND time > ?",
    "SELECT streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?",
    (
        "SELECT min(timestamp) FROM system.cdc_timestamps WHERE keyspace_name=? AND table_name=? AND timestamp>? "
        "ORDER BY timestamp ASC LIMIT 1"
    ),
    (
        "SELECT stream_id FROM system.cdc_streams WHERE keyspace_name=? AND table_name=? AND timestamp=? "
        "AND stream_state=0"
    ),
    "SELECT COUNT(*) FROM system.peers",
    'SELECT * FROM ks."t_scylla_cdc_log" WHERE "cdc$stream_id" = ? AND "cdc$time" > ? AND "cdc$time" <= ?',
    (
        'SELECT x, writetime(x) FROM t_scylla_cdc_log WHERE "cdc$stream_id" IN (?, ?) AND "cdc$time" > ? '
        'AND "cdc$time" <= ? BYPASS CACHE'
    ),
    (
        'SELECT * FROM ks.t WHERE "cdc$stream_id" IN ? AND "cdc$time" >= minTimeuuid(?) '
        'AND "cdc$time" < minTimeuuid(?) BYPASS CACHE'
    ),
    (
        'SELECT DISTINCT "cdc$stream_id" FROM ks.t PER PARTITION LIMIT 1 LIMIT 10 ALLOW FILTERING BYPASS CACHE '
        "USING TIMEOUT 500ms"
    ),
    "SELECT keyspace_name, initial_tablets FROM system_schema.scylla_keyspaces WHERE keyspace_name = ?",
    "SELECT * FROM system_schema.views WHERE keyspace_name=? AND base_table_name=? ALLOW FILTERING",
    "select * from system.local where key = 'local'",
    "SELECT * FROM system.versions WHERE key = 'local'",
    "SELECT * FROM system.local WHERE key='local'",
    "SELECT * FROM system.peers_v2",
    "SELECT peer, host_id, rpc_address, schema_version FROM system.peers USING TIMEOUT 2000ms",
    "SELECT * FROM system_schema.tables WHERE keyspace_name = 'ks' AND table_name = 't' USING TIMEOUT 2000ms",
    "UPDATE ks.t SET l[SCYLLA_TIMEUUID_LIST_INDEX(6f1f8f10-10b9-11f2-ba7e-2b8c92c13c26)] = ? WHERE pk = 1",
    "DELETE FROM ks.t WHERE pk = ? AND (c1, c2) > SCYLLA_CLUSTERING_BOUND (?, ?)",
]


@pytest.mark.parametrize("statement", CLIENT_STATEMENTS)
def test_statements_of_known_clients_are_read(statement):
    assert isinstance(parse(statement), (ast.Select, ast.Update, ast.Delete))


def test_every_metadata_query_of_the_driver_is_read():
    classes = [value for value in vars(metadata).values() if isinstance(value, type)]
    classes.append(cluster.ControlConnection)
    queries = {
        value.format(nt_col_name="rpc_address")
        for owner in classes
        for name, value in vars(owner).items()
        if name.startswith("_SELECT") and isinstance(value, str) and value.startswith("SELECT")
    }
    assert len(queries) > 30
    for query in queries:
        assert isinstance(parse(query), ast.Select)
        assert isinstance(parse(metadata.maybe_add_timeout_to_query(query, None)), ast.Select)


# ---------------------------------------------------------------- SELECT


def test_select_with_every_clause_in_its_order():
    statement = parse(
        "SELECT JSON DISTINCT a AS x, b FROM ks.t WHERE a = 1 GROUP BY a, b ORDER BY c DESC, d ASC, e "
        "PER PARTITION LIMIT ? LIMIT :n ALLOW FILTERING BYPASS CACHE USING TIMEOUT 1m30s;"
    )
    assert statement == ast.Select(
        table=ast.TableName("ks", "t"),
        selectors=(ast.Selector(ast.ColumnSelector("a"), "x"), ast.Selector(ast.ColumnSelector("b"), None)),
        distinct=True,
        json=True,
        where=(column("a", "=", INT[1]),),
        group_by=("a", "b"),
        order_by=(("c", "desc"), ("d", "asc"), ("e", "asc")),
        per_partition_limit=marker(0),
        limit=marker(1, "n"),
        allow_filtering=True,
        bypass_cache=True,
        timeout=ast.Constant("duration", "1m30s"),
        markers=2,
    )


@pytest.mark.parametrize(
    "clauses",
    [
        "LIMIT 1 WHERE a = 1",
        "LIMIT 1 PER PARTITION LIMIT 1",
        "ORDER BY a GROUP BY a",
        "BYPASS CACHE ALLOW FILTERING",
        "USING TIMEOUT 1s BYPASS CACHE",
        "ALLOW FILTERING LIMIT 1",
        "USING TTL 1",
        "USING TIMESTAMP 1",
    ],
)
def test_select_clauses_out_of_order_are_refused(clauses):
    with pytest.raises(SyntaxException):
        parse(f"SELECT * FROM t {clauses}")


def test_select_star_has_no_selectors():
    assert parse("select * from T").selectors is None  # type: ignore[union-attr]


def test_select_list_items():
    assert selectors("a.b, m['k'], count(*), COUNT(1), count(a), toTimestamp(now()), ks.f(a, ?)") == [
        ast.FieldSelector(ast.ColumnSelector("a"), "b"),
        ast.ElementSelector(ast.ColumnSelector("m"), text("k")),
        ast.FunctionSelector(None, "count", ()),
        ast.FunctionSelector(None, "count", ()),
        ast.FunctionSelector(None, "count", (ast.ColumnSelector("a"),)),
        ast.FunctionSelector(None, "totimestamp", (ast.FunctionSelector(None, "now", ()),)),
        ast.FunctionSelector("ks", "f", (ast.ColumnSelector("a"), marker(0))),
    ]
    assert selectors("token(a, b), writetime(v), ttl(v), CAST(v AS text), (int)3, 'x'") == [
        ast.FunctionSelector(None, "token", (ast.ColumnSelector("a"), ast.ColumnSelector("b"))),
        ast.FunctionSelector(None, "writetime", (ast.ColumnSelector("v"),)),
        ast.FunctionSelector(None, "ttl", (ast.ColumnSelector("v"),)),
        ast.CastSelector(ast.ColumnSelector("v"), "text"),
        ast.Cast("int", INT[3]),
        text("x"),
    ]


def test_only_count_takes_a_star():
    with pytest.raises(SyntaxException):
        parse("SELECT max(*) FROM t")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = 1", column("a", "=", INT[1])),
        ("a < 1", column("a", "<", INT[1])),
        ("a<=1", column("a", "<=", INT[1])),
        ("a >= ?", column("a", ">=", marker(0))),
        ("a > now()", column("a", ">", ast.Call(None, "now", ()))),
        ("a != 1", column("a", "!=", INT[1])),
        ("a LIKE 'x%'", column("a", "LIKE", text("x%"))),
        ("a IS NOT NULL", column("a", "IS NOT NULL", None)),
        ("a IN (1, 2)", column("a", "IN", (INT[1], INT[2]))),
        ("a IN ()", column("a", "IN", ())),
        ("a IN ?", column("a", "IN", marker(0))),
        ("a NOT IN (1)", column("a", "NOT IN", (INT[1],))),
        ("a CONTAINS 1", column("a", "CONTAINS", INT[1])),
        ("a CONTAINS KEY 1", column("a", "CONTAINS KEY", INT[1])),
        ("m['k'] = 1", ast.Relation(("element", "m", text("k")), "=", INT[1])),
        ("token(a, b) > -9", ast.Relation(("token", ("a", "b")), ">", INT[-9])),
        ("TOKEN(a) <= token(1)", ast.Relation(("token", ("a",)), "<=", ast.Call(None, "token", (INT[1],)))),
        ("(a, b) > (1, 2)", ast.Relation(("tuple", ("a", "b")), ">", ast.TupleTerm((INT[1], INT[2])))),
        ("(a, b) = ?", ast.Relation(("tuple", ("a", "b")), "=", marker(0))),
        (
            "(a) IN ((1), (2))",
            ast.Relation(("tuple", ("a",)), "IN", (ast.TupleTerm((INT[1],)), ast.TupleTerm((INT[2],)))),
        ),
        ("(a, b) IN ?", ast.Relation(("tuple", ("a", "b")), "IN", marker(0))),
        (
            "(a, b) <= SCYLLA_CLUSTERING_BOUND (1, 2)",
            ast.Relation(("clustering_bound", ("a", "b")), "<=", ast.TupleTerm((INT[1], INT[2]))),
        ),
        ("((a = 1))", column("a", "=", INT[1])),
    ],
)
def test_relations(source, expected):
    assert where(source) == (expected,)


def test_relations_joined_by_and():
    assert [relation.left[1] for relation in where("a = 1 AND (b > 2) AND c IN (3)")] == ["a", "b", "c"]


# ---------------------------------------------------------------- terms


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("'it''s'", text("it's")),
        ("''", text("")),
        ("$$it's $5$$", text("it's $5")),
        ("-7", INT[-7]),
        ("1.50", ast.Constant("float", "1.50")),
        ("-1e-3", ast.Constant("float", "-1e-3")),
        ("1.", ast.Constant("float", "1.")),
        ("NaN", ast.Constant("float", "nan")),
        ("-Infinity", ast.Constant("float", "-infinity")),
        ("TRUE", ast.Constant("boolean", "true")),
        ("0xCAFE", ast.Constant("blob", "cafe")),
        ("0x", ast.Constant("blob", "")),
        ("6F1F8F10-10b9-11f2-ba7e-2b8c92c13c26", ast.Constant("uuid", "6f1f8f10-10b9-11f2-ba7e-2b8c92c13c26")),
        ("deadbeef-10b9-11f2-ba7e-2b8c92c13c26", ast.Constant("uuid", "deadbeef-10b9-11f2-ba7e-2b8c92c13c26")),
        ("1h30m", ast.Constant("duration", "1h30m")),
        ("-2mo3d", ast.Constant("duration", "-2mo3d")),
        ("P1DT2H", ast.Constant("duration", "P1DT2H")),
        ("P0001-02-03T04:05:06", ast.Constant("duration", "P0001-02-03T04:05:06")),
        ("null", NULL),
        ("?", marker(0)),
        (":a", marker(0, "a")),
        (':"A b"', marker(0, "A b")),
        ("f()", ast.Call(None, "f", ())),
        ('ks."F"(1, ?)', ast.Call("ks", "F", (INT[1], marker(0)))),
        ("(int)1", ast.Cast("int", INT[1])),
        ("(frozen<map<text,list<INT>>>)?", ast.Cast("frozen<map<text, list<int>>>", marker(0))),
        ("(ks.udt)?", ast.Cast("ks.udt", marker(0))),
        ("(1)", ast.TupleTerm((INT[1],))),
        ("(1, (2, 3))", ast.TupleTerm((INT[1], ast.TupleTerm((INT[2], INT[3]))))),
        ("[]", ast.ListTerm(())),
        ("[1, 2]", ast.ListTerm((INT[1], INT[2]))),
        ("{}", ast.SetTerm(())),
        ("{1, 2}", ast.SetTerm((INT[1], INT[2]))),
        ("{'a': 1, ?: :b}", ast.MapTerm(((text("a"), INT[1]), (marker(0), marker(1, "b"))))),
        (
            '{a: 1, "B": {c: f(2)}}',
            ast.UdtTerm((("a", INT[1]), ("B", ast.UdtTerm((("c", ast.Call(None, "f", (INT[2],))),))))),
        ),
        ("{f(1): 2}", ast.MapTerm(((ast.Call(None, "f", (INT[1],)), INT[2]),))),
    ],
)
def test_terms(source, expected):
    assert expected == term(source)


def cql(value: object) -> str:
    """Write a term as text: the reverse of the parser, for the round trip below."""
    match value:
        case ast.Constant("string", body):
            return "'" + body.replace("'", "''") + "'"
        case ast.Constant("blob", body):
            return "0x" + body
        case ast.Constant("null"):
            return "NULL"
        case ast.Constant(_, body):
            return body
        case ast.Call(None, name, args):
            return f"{quote_name(name)}({', '.join(map(cql, args))})"
        case ast.ListTerm(items):
            return f"[{', '.join(map(cql, items))}]"
        case ast.SetTerm(items):
            return "{" + ", ".join(map(cql, items)) + "}"
        case ast.MapTerm(items):
            return "{" + ", ".join(f"{cql(key)} : {cql(item)}" for key, item in items) + "}"
        case ast.UdtTerm(fields):
            return "{" + ", ".join(f"{quote_name(name)}: {cql(item)}" for name, item in fields) + "}"
        case ast.TupleTerm(items):
            return f"({', '.join(map(cql, items))})"
        case ast.Cast(type_text, inner):
            return f"({type_text}) {cql(inner)}"
    raise AssertionError(value)


names = st.text(min_size=1, max_size=8) | st.sampled_from(
    ["key", "json", "ttl", "type", "list", "set", "token", "exists"]
)
constants = st.one_of(
    st.builds(ast.Constant, st.just("string"), st.text(max_size=12)),
    st.builds(ast.Constant, st.just("integer"), st.integers().map(str)),
    st.builds(ast.Constant, st.just("float"), st.floats(allow_nan=False, allow_infinity=False).map(repr)),
    st.builds(ast.Constant, st.just("blob"), st.binary(max_size=6).map(bytes.hex)),
    st.builds(ast.Constant, st.just("uuid"), st.uuids().map(str)),
    st.sampled_from([NULL, ast.Constant("boolean", "true"), ast.Constant("float", "-nan")]),
)
terms = st.recursive(
    constants,
    lambda inner: st.one_of(
        st.builds(ast.Call, st.none(), names, st.lists(inner, max_size=3).map(tuple)),
        st.builds(ast.ListTerm, st.lists(inner, max_size=3).map(tuple)),
        st.builds(ast.SetTerm, st.lists(inner, max_size=3).map(tuple)),
        st.builds(ast.MapTerm, st.lists(st.tuples(inner, inner), min_size=1, max_size=3).map(tuple)),
        st.builds(ast.UdtTerm, st.lists(st.tuples(names, inner), min_size=1, max_size=3).map(tuple)),
        st.builds(ast.TupleTerm, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(ast.Cast, st.sampled_from(["int", "frozen<set<text>>", "vector<float, 3>", '"A".b']), inner),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(terms)
def test_any_term_reads_back_as_it_was_written(value):
    assert value == term(cql(value))


@settings(max_examples=150, deadline=None)
@given(names, names)
def test_any_quoted_name_reads_back_as_it_was_written(table, key):
    statement = parse(f"SELECT {quote_name(key)} FROM {quote_name(table)} WHERE {quote_name(key)} = 1")
    assert isinstance(statement, ast.Select)
    assert (statement.table.name, statement.where[0].left[1]) == (table, key)


# ---------------------------------------------------------------- writes


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


# ---------------------------------------------------------------- schema


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


# ---------------------------------------------------------------- words


def test_comments_and_space_are_skipped():
    expected = parse("SELECT a FROM t WHERE b = '--x'")
    assert expected == parse("/* one\n two */ SELECT -- a, b\n a//\nFROM/**/t\tWHERE b='--x'--end")


def test_keywords_in_any_case_and_names_folded():
    assert parse('sElEcT A, "A" FrOm KS."T"') == parse('SELECT a, "A" FROM ks."T"')


UNRESERVED = """
    key time timestamp ttl type role list map static json distinct exists filtering count writetime as values user text
    int uuid date frozen tuple vector counter contains clustering cluster tables per partition cache bypass timeout
    group like p1d p desc describe execute function ann_of mutation_fragments
"""
CLAUSE_WORDS = """
    aggregate aggregates as bypass cache clustering cluster compact contains counter desc describe distinct exists
    filtering function functions group internals json key keyspaces large_data_guardrails like only partition passwords
    per roles static storage users list
    tables timeout timestamp ttl type types values
"""


@pytest.mark.parametrize(
    "name",
    UNRESERVED.split(),
)
def test_unreserved_words_are_names_everywhere(name):
    alone = parse(f"SELECT {name} FROM {name}.{name} WHERE {name} = 1 GROUP BY {name} ORDER BY {name} DESC")
    assert isinstance(alone, ast.Select)
    assert (alone.table, alone.where[0].left) == (ast.TableName(name, name), ("column", name))
    assert alone.selectors == (ast.Selector(ast.ColumnSelector(name), None),)
    assert selectors(f"{name}, {name} AS {name}, a.{name}, {name}.a, {name}['k']")[0] == ast.ColumnSelector(name)
    assert parse(f"INSERT INTO {name} (a, {name}) VALUES (1, {{{name}: 1}})").columns == ("a", name)  # type: ignore[union-attr]
    update = parse(f"UPDATE t SET {name}[1] = 1, {name}.{name} = 2 WHERE a = 1 IF {name} = 1")
    assert update.assignments[0].column == name  # type: ignore[union-attr]
    assert parse(f"DELETE {name} FROM t WHERE {name} IN (1)").deletions == (ast.Deletion(name),)  # type: ignore[union-attr]
    assert parse(f"CREATE TABLE {name} ({name} text PRIMARY KEY, b int STATIC)").partition_key == (name,)  # type: ignore[union-attr]
    assert parse(f"ALTER TABLE t RENAME {name} TO {name}").rename == ((name, name),)  # type: ignore[union-attr]
    assert parse(f"CREATE TYPE t ({name} {name})").fields == ((name, name),)  # type: ignore[union-attr]


@pytest.mark.parametrize("word", sorted(RESERVED_WORDS))
def test_reserved_words_are_names_only_in_quotes(word):
    with pytest.raises(SyntaxException):
        parse(f"CREATE TABLE {word} (a int PRIMARY KEY)")
    with pytest.raises(SyntaxException):
        parse(f"UPDATE t SET {word} = 1 WHERE a = 1")
    assert parse(f'USE "{word}"') == ast.Use(word)
    assert quote_name(word) == f'"{word}"'


def test_json_and_distinct_as_modifiers():
    assert parse("SELECT JSON * FROM t").json is True  # type: ignore[union-attr]
    assert parse("SELECT json json FROM t").selectors == (ast.Selector(ast.ColumnSelector("json"), None),)  # type: ignore[union-attr]
    assert parse("SELECT DISTINCT distinct FROM t").distinct is True  # type: ignore[union-attr]


def test_the_grammar_knows_every_reserved_word_it_uses():
    _, lexer, _ = parser._machine()
    assert isinstance(lexer, CqlLexer)
    unreserved = set(lexer.keywords) - RESERVED_WORDS
    # Words that open a clause after a name differ from names only by their position.
    assert unreserved == set(CLAUSE_WORDS.split())


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("SELECT FOO,", "line 1:11 no viable alternative at input '<EOF>'"),
        ("SELECT FROM t", "line 1:7 no viable alternative at input 'FROM'"),
        ("FOO BAR", "line 1:0 no viable alternative at input 'FOO'"),
        ("SELECT *\nFROM t\n WHERE a == 1", "line 3:10 no viable alternative at input '='"),
        ("SELECT * FROM t; SELECT * FROM t", "line 1:17 no viable alternative at input 'SELECT'"),
        ("SELECT * FROM t WHERE a = 'x", "line 1:26 no viable alternative at input '''"),
        ("SELECT * FROM t WHERE a = #", "line 1:26 no viable alternative at input '#'"),
        ("SELECT * FROM t /* x", "line 1:16 no viable alternative at input '/'"),
        ("  ", "line 0:-1 no viable alternative at input '<EOF>'"),
        ("", "line 0:-1 no viable alternative at input '<EOF>'"),
    ],
)
def test_what_is_not_cql_is_refused_where_it_goes_wrong(source, message):
    with pytest.raises(SyntaxException) as refusal:
        parse(source)
    assert refusal.value.message == message


SCRAPS = ("INSERT", "UPDATE", "SET", "{", "}", "[", "(", ")", ",", ":", ";", "a", "1", "'x'", "?", "=", "IF")


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from([*CLIENT_STATEMENTS[10].split(), *SCRAPS]),
        max_size=25,
    )
)
def test_any_order_of_words_is_read_or_refused(words):
    with contextlib.suppress(SyntaxException, InvalidRequest):
        assert isinstance(parse(" ".join(words)), ast.Statement)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_refused_without_harm(source):
    with pytest.raises(SyntaxException, match=r"^line \d+:-?\d+ no viable alternative"):
        parse(source + "#")


@pytest.mark.parametrize("opening", ["(", "[", "{1:"])
def test_deep_nesting_is_refused(opening):
    with pytest.raises(SyntaxException, match="expression nested too deeply"):
        parse(f"INSERT INTO t (a) VALUES ({opening * 5000}")


def test_hostile_text_takes_no_more_than_linear_time():
    # Quadratic work on texts of this length does not end before the time-out of the suite.
    for source in ("'" * 99_999, "$" * 99_999, "/*" * 50_000, "1y" * 50_000 + "_", "P" + "1" * 99_999, "-" * 99_999):
        with pytest.raises(SyntaxException):
            parse(f"SELECT {source} FROM")


# ---------------------------------------------------------------- the cache


def test_parsed_reads_and_writes_are_kept_and_schema_is_not():
    assert parse("SELECT cached FROM t") is parse("SELECT cached FROM t")
    create = "CREATE TABLE t (a int PRIMARY KEY)"
    assert parse(create) is not parse(create)


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(parser, "_CACHED_STATEMENTS", 3)
    monkeypatch.setattr(parser, "_cache", type(parser._cache)())
    for number in range(5):
        parse(f"SELECT a FROM t LIMIT {number}")
    assert len(parser._cache) == 3
    assert parse("SELECT a FROM t LIMIT 4") is parse("SELECT a FROM t LIMIT 4")


def test_threads_do_not_mix_their_markers():
    wrong: list[object] = []

    def work(number: int) -> None:
        for round_ in range(30):
            statement = parse(f"INSERT INTO t (a, b, c{number}) VALUES (?, ?, ?) USING TTL {round_}")
            if statement.values != (marker(0), marker(1), marker(2)):  # type: ignore[union-attr]
                wrong.append(statement)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
