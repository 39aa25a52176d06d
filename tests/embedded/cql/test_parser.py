"""CQL text to statements: what clients send, SELECT, words, refusals, and the cache."""

from __future__ import annotations

import contextlib
import threading

import pytest
from cassandra import cluster, metadata
from cqltrees import INT, column, marker, text
from hypothesis import given, settings
from hypothesis import strategies as st

from rscylla.embedded.cql import ast, parser
from rscylla.embedded.cql.lexer import CqlLexer
from rscylla.embedded.cql.names import RESERVED_WORDS, quote_name
from rscylla.embedded.cql.parser import parse
from rscylla.embedded.errors import InvalidRequest, SyntaxException


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
