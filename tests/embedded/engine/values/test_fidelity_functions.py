"""Functions, terms and select lists as a driver sees them: error classes, names and types of columns, nesting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cassandra import FunctionFailure, InvalidRequest
from cassandra.protocol import SyntaxException

from rscylla.embedded import EmbeddedScylla


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with EmbeddedScylla() as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}")
        session.set_keyspace("ks")
        session.execute("CREATE TYPE pair (a int, b text)")
        session.execute(
            "CREATE TABLE t (p int, c int, v int, x text, ts timestamp, m map<int, int>, s set<int>, l list<int>,"
            " u pair, f frozen<pair>, fm frozen<map<int, frozen<pair>>>, tup tuple<int, text>, d double, dec decimal,"
            " b blob, PRIMARY KEY (p, c))"
        )
        yield session


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("v", "dog"),
        ("v", '"dog"'),
        ("v", "1.2"),
        ("v", "2147483648"),
        ("x", "3"),
        ("l", "[1, null]"),
        ("m", "{17: 3}"),
        ("ts", '"2014-01-01 12:15:45.0000000Z"'),
    ],
)
def test_from_json_fails_as_a_function(session: Any, column: str, text: str) -> None:
    prepared = session.prepare(f"INSERT INTO t (p, c, {column}) VALUES (1, 1, fromJson(?))")
    for statement, values in (
        (f"INSERT INTO t (p, c, {column}) VALUES (1, 1, fromJson('{text}'))", None),
        (prepared, [text]),
    ):
        with pytest.raises(FunctionFailure, match="execution of fromJson failed") as failure:
            session.execute(statement, values)
        assert (failure.value.keyspace, failure.value.function) == ("ks", "fromJson")
        assert len(failure.value.arg_types) == 1


def test_a_timestamp_in_json_has_a_space(session: Any) -> None:
    session.execute("INSERT INTO t (p, c, ts) VALUES (2, 1, '2014-01-01 12:15:45+0000')")
    row = session.execute("SELECT toJson(ts) AS one, CAST(ts AS text) AS two FROM t WHERE p = 2").one()
    assert row == ('"2014-01-01 12:15:45.000Z"', "2014-01-01T12:15:45.000Z")
    assert session.execute("SELECT JSON ts FROM t WHERE p = 2").one() == ('{"ts": "2014-01-01 12:15:45.000Z"}',)


# ---------------------------------------------------------------- nesting


def inner(opening: str, depth: int, core: str, closing: str) -> str:
    return opening * depth + core + closing * depth


@pytest.mark.parametrize(
    "term",
    [
        ("(int)", "1", ""),
        ("[", "1", "]"),
        ("{", "1", "}"),
        ("{1: ", "1", "}"),
        ("{a: ", "1", "}"),
        ("(", "1", ")"),
        ("blobAsInt(intAsBlob(", "1", "))"),
    ],
)
def test_expressions_nested_beyond_twelve_levels_are_refused(session: Any, term: tuple[str, str, str]) -> None:
    opening, core, closing = term
    for depth in (12, 50, 2000):
        with pytest.raises(SyntaxException, match="expression nested too deeply"):
            session.execute(f"INSERT INTO t (p, c, v) VALUES (1, 1, {inner(opening, depth, core, closing)})")


def test_expressions_of_twelve_levels_are_read(session: Any) -> None:
    session.execute(f"INSERT INTO t (p, c, v) VALUES (3, 1, {inner('(int)', 11, '5', '')})")
    nested = inner("blobAsInt(intAsBlob(", 5, "v", "))")
    assert session.execute(f"SELECT {nested} FROM t WHERE p = 3").one() == (5,)
    with pytest.raises(SyntaxException, match="expression nested too deeply"):
        session.execute(f"SELECT {inner('blobAsInt(intAsBlob(', 6, 'v', '))')} FROM t WHERE p = 3")
    with pytest.raises(SyntaxException, match="expression nested too deeply"):
        session.execute(f"SELECT v FROM t WHERE {inner('(', 13, 'p = 3', ')')}")


# ---------------------------------------------------------------- bound values


def test_bound_bytes_of_another_type_name_their_column(session: Any) -> None:
    bound = session.prepare("INSERT INTO t (p, c, v) VALUES (1, 1, ?)").bind([1])
    bound.values = [b"123"]
    with pytest.raises(InvalidRequest, match="Exception while binding column v: marshaling error: Validation failed"):
        session.execute(bound)


# ---------------------------------------------------------------- select lists


@pytest.fixture(scope="module")
def filled(session: Any) -> Any:
    session.execute(
        "INSERT INTO t (p, c, v, x, m, s, l, u, f, fm, tup) VALUES (9, 1, 5, 'one', {1: 10, 2: 20}, {10, 20}, [7, 8],"
        " {a: 1, b: 'b'}, {a: 2, b: 'c'}, {1: {a: 3, b: 'd'}}, (1, 'e')) USING TIMESTAMP 1000"
    )
    session.execute(
        "UPDATE t USING TIMESTAMP 2000 AND TTL 3600 SET m[2] = 21, s = s + {30}, u.b = 'z' WHERE p = 9 AND c = 1"
    )
    session.execute("INSERT INTO t (p, c, v, x) VALUES (9, 2, 6, 'two') USING TIMESTAMP 1000")
    return session


@pytest.mark.parametrize(
    ("selected", "name", "kind", "value"),
    [
        ("1", "1", "Int32Type", 1),
        ("30000000000", "30000000000", "LongType", 30000000000),
        ("'hello'", "'hello'", "VarcharType", "hello"),
        ("true", "true", "BooleanType", True),
        ("1.5", "1.5", "DoubleType", 1.5),
        ("0xff", "0xff", "BytesType", b"\xff"),
        ("[1, 2, 3]", "[1, 2, 3]", "ListType", [1, 2, 3]),
        ("{'a': 1, 'b': 2}", "{'a': 1, 'b': 2}", "MapType", {"a": 1, "b": 2}),
        ("(1, 'a', 3.0)", "(1, 'a', 3.0)", "TupleType", (1, "a", 3.0)),
        ("(bigint)1", "(bigint)1", "LongType", 1),
        ("(list<frozen<pair>>)[{a: 1}]", "(list<frozen<pair>>)[{a: 1}]", "ListType", [(1, None)]),
        ("(pair){a: 1}", "(pair){a: 1}", "pair", (1, None)),
        ("CAST(1 AS bigint)", "cast(1 as bigint)", "LongType", 1),
        ("CAST(v AS int)", "v", "Int32Type", 5),
        ("CAST(v AS text)", "cast(v as text)", "VarcharType", "5"),
        ("tinyintAsBlob(4)", "system.tinyintasblob(4)", "BytesType", b"\x04"),
        ("blobAsInt(intAsBlob(v))", "system.blobasint(system.intasblob(v))", "Int32Type", 5),
        ("system.intAsBlob(v)", "system.intasblob(v)", "BytesType", b"\0\0\0\x05"),
        ("token(p)", "system.token(p)", "LongType", ...),
        ("token(c)", "system.token(c)", "LongType", ...),
        ("toJson('x')", "system.tojson('x')", "VarcharType", '"x"'),
        ("toJson(m)", "system.tojson(m)", "VarcharType", '{"1": 10, "2": 21}'),
        ("m[1]", "m[1]", "Int32Type", 10),
        ("m[3]", "m[3]", "Int32Type", None),
        ("m[null]", "m[null]", "Int32Type", None),
        ("s[10]", "s[10]", "Int32Type", 10),
        ("s[11]", "s[11]", "Int32Type", None),
        ("l[1]", "l[1]", "Int32Type", 8),
        ("l[2]", "l[2]", "Int32Type", None),
        ("u.a", "u.a", "Int32Type", 1),
        ("f.b", "f.b", "VarcharType", "c"),
        ("fm[1].b", "fm[1].b", "VarcharType", "d"),
        ("writetime(v)", "writetime(v)", "LongType", 1000),
        ("writetime(f)", "writetime(f)", "LongType", 1000),
        ("writetime(m[1])", "writetime(m[1])", "LongType", 1000),
        ("WRITETIME(m[2])", "writetime(m[2])", "LongType", 2000),
        ("writetime(m[99])", "writetime(m[99])", "LongType", None),
        ("writetime(m[null])", "writetime(m[null])", "LongType", None),
        ("writetime(s[30])", "writetime(s[30])", "LongType", 2000),
        ("writetime(u.a)", "writetime(u.a)", "LongType", 1000),
        ("writetime(u.b)", "writetime(u.b)", "LongType", 2000),
        ("ttl(m[1])", "ttl(m[1])", "Int32Type", None),
        ("ttl(u.a)", "ttl(u.a)", "Int32Type", None),
        ("set_intersection(s, {20, 30, 40})", "system.set_intersection(s, {20, 30, 40})", "SetType", {20, 30}),
    ],
)
def test_a_selected_value_has_its_name_and_type(filled: Any, selected: str, name: str, kind: str, value: Any) -> None:
    result = filled.execute(f"SELECT {selected} FROM t WHERE p = 9 AND c = 1")
    assert kind == result.column_types[0].__name__.partition("(")[0]
    assert value is ... or result.one()[0] == value
    # The driver changes the names in rows; prepared statements have them as sent.
    assert [column[2] for column in filled.prepare(f"SELECT {selected} FROM t").result_metadata] == [name]


def test_the_ttl_of_an_element_is_what_is_left(filled: Any) -> None:
    left = filled.execute("SELECT ttl(m[2]), ttl(s[30]), ttl(u.b) FROM t WHERE p = 9 AND c = 1").one()
    assert all(3500 < seconds <= 3600 for seconds in left)


@pytest.mark.parametrize(
    ("selected", "name", "value"),
    [
        ("count(*)", "count", 2),
        ("count(1)", "count", 2),
        ("count('abc')", "system.count('abc')", 2),
        ("sum(5)", "system.sum(5)", 10),
        ("min('hello')", "system.min('hello')", "hello"),
        ("count(m)", "system.count(m)", 1),
        ("intAsBlob(max(v))", "system.intasblob(system.max(v))", b"\0\0\0\x06"),
        ("CAST(max(v) AS text)", "cast(system.max(v) as text)", "6"),
        ("sum(CAST(v AS double))", "system.sum(cast(v as double))", 11.0),
        ("max(m[2])", "system.max(m[2])", 21),
        ("max(u.a)", "system.max(u.a)", 1),
        ("max(u).a", "system.max(u).a", 1),
        ("toJson(min(v))", "system.tojson(system.min(v))", "5"),
    ],
)
def test_aggregates_nest_with_other_expressions(filled: Any, selected: str, name: str, value: Any) -> None:
    row = filled.execute(f"SELECT {selected}, x, 42 FROM t WHERE p = 9").one()
    assert tuple(row) == (value, "one", 42)
    assert filled.prepare(f"SELECT {selected} FROM t").result_metadata[0][2] == name
    groups = filled.execute(f"SELECT {selected} FROM t WHERE p = 9 GROUP BY p, c").all()
    assert len(groups) == 2


@pytest.mark.parametrize(
    ("selected", "message"),
    [
        ("?", "Could not infer type of"),
        ("null", "Could not infer type of null"),
        ("{}", "Could not infer type of"),
        ("{a: 1}", "Could not infer type of"),
        ("count(?)", "only valid when argument types are known"),
        ("sum(max(v))", "aggregate functions cannot be used as arguments of aggregate functions"),
        ("min(CAST(max(v) AS text))", "aggregate functions cannot be used as arguments of aggregate functions"),
        ("p[2]", "Column p is not a map/set/list, cannot be subscripted"),
        ("token(p)[2]", "not a map/set/list"),
        ("m['x']", "Invalid STRING constant"),
        ("v.a", "Invalid field selection: v of type int is not a user type"),
        ("u.z", "has no field z"),
        ("min(v).min", r"Invalid field selection: system.min\(v\) of type int is not a user type"),
        ("writetime(p)", "WRITETIME is not legal on primary key component p"),
        ("ttl(c)", "TTL is not legal on primary key component c"),
        ("writetime(m)", "WRITETIME expects an atomic column, but m is a non-frozen collection"),
        ("ttl(u)", "TTL expects an atomic column, but u is a non-frozen collection"),
        ("writetime(l[0])", "WRITETIME on a subscript is only valid for non-frozen map or set columns"),
        ("ttl(fm[1])", "TTL on a subscript is only valid for non-frozen map or set columns"),
        ("writetime(v[3])", "Column v is not a map/set/list"),
        ("writetime(v.a)", "v of type int is not a user type"),
        ("writetime(f.a)", "WRITETIME on a field selection is only valid for non-frozen UDT columns"),
        (
            "mintimeuuid(x)",
            "Type error: x cannot be passed as argument 0 of function system.mintimeuuid of type timestamp",
        ),
        ("blobAsBigint(intAsBlob(v))", "In call to function system.blobasbigint, value"),
        ("set_intersection(s)", "accepts 2 arguments"),
        ("set_intersection(s, p)", "both arguments are of set type"),
        ("set_intersection(s, {'a'})", "both arguments are of the same set type"),
        ("fromJson(x)", r"fromJson\(\) can only be called if receiver type is known"),
        ("CAST(v AS boolean)", "int cannot be cast to boolean"),
        ("sum(x)", "Invalid call to function sum"),
        ("similarity_cosine(l, l)", "similarity_cosine is not supported by the embedded server"),
    ],
)
def test_a_select_list_is_refused(filled: Any, selected: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        filled.execute(f"SELECT {selected} FROM t WHERE p = 9")


def test_a_sum_that_overflows_is_refused(session: Any) -> None:
    session.execute("CREATE TABLE sums (p int PRIMARY KEY, a tinyint, b smallint, c int, d bigint)")
    for p in (1, 2):
        session.execute(f"INSERT INTO sums (p, a, b, c, d) VALUES ({p}, 127, 32767, 2147483647, 9223372036854775807)")
    for column in "abcd":
        with pytest.raises(InvalidRequest, match=r"Sum overflow\. Values should be casted to a wider type\."):
            session.execute(f"SELECT sum({column}) FROM sums")
    assert session.execute("SELECT avg(a), avg(b), avg(c), avg(d) FROM sums").one() == (
        127,
        32767,
        2147483647,
        (1 << 63) - 1,
    )


def test_markers_of_elements_are_named_as_in_scylla(filled: Any) -> None:
    prepared = filled.prepare("SELECT m[?], l[?], s[?], intAsBlob(?), m[:key] FROM t WHERE p = 9 AND c = 1")
    names = [column.name for column in prepared.column_metadata]
    assert names == ["key(m)", "index(l)", "value(s)", "arg0(system.intasblob)", "key"]
    assert tuple(filled.execute(prepared, [1, 0, 20, 3, 2]).one()) == (10, 7, 20, b"\0\0\0\x03", 21)


@pytest.mark.parametrize("selected", ["writetime(token(p))", "ttl(v, v)", "writetime()", "sum(*)"])
def test_a_select_list_of_another_form_is_a_syntax_error(session: Any, selected: str) -> None:
    with pytest.raises(SyntaxException):
        session.execute(f"SELECT {selected} FROM t")


# ---------------------------------------------------------------- literals


@pytest.mark.parametrize(
    ("column", "literal", "message"),
    [
        ("l", "['a']", "Invalid list literal for l: value 'a' is not of type int"),
        ("l", "{1}", "Invalid set literal for l of type list<int>"),
        ("s", "{1.5}", "Invalid set literal for s: value 1.5 is not of type int"),
        ("s", "[1]", "Invalid list literal for s of type set<int>"),
        ("m", "{'a': 1}", "Invalid map literal for m: key 'a' is not of type int"),
        ("m", "{1: 'b'}", "Invalid map literal for m: value 'b' is not of type int"),
        ("m", "{1}", "Invalid set literal for m of type map<int, int>"),
        ("u", "{a: 'x'}", "Invalid user type literal for u: field a is not of type int"),
        ("u", "{z: 1}", "Unknown field 'z' in value of user defined type pair"),
        ("u", "[1]", "Invalid list literal for u of type pair"),
        ("v", "{a: 1}", "Invalid user type literal for v of type int"),
        ("v", "(1, 2)", "Invalid tuple type literal for v of type int"),
        ("tup", "(1, 'a', 2)", r"Invalid tuple literal for tup: too many elements. Type .* expects 2 but got 3"),
        ("tup", "('a', 1)", "Invalid tuple literal for tup: component 0 is not of type int"),
        ("tup", "'x:y'", "marshaling error: 'x' is not a value of type int"),
        ("tup", "'1:2:3'", r"Invalid tuple literal: too many elements. Type .* expects 2 but got 3"),
        ("vec", "[1]", "Invalid vector literal for vec"),
        ("vec", "[1, 2, 3]", "Invalid vector literal for vec"),
        ("vec", "['a', 'b']", "Invalid vector literal for vec: value 'a' is not of type int"),
        ("vec", "[(bigint)1, (bigint)2]", "Invalid vector literal for vec"),
        ("vec", "0x", r'Invalid HEX constant \(0x\) for "vec" of type vector<int, 2>'),
        (
            "deep",
            "(1, (1, '1', 1.0, 1))",
            "Invalid tuple literal for deep: component 1 is not of type",
        ),
        ("l", "[null]", "null is not supported inside collections"),
        ("asci", "'\u00e9'", "Invalid ASCII character"),
        ("v", "sum(1)", "Aggregation"),
        ("v", "blobAsInt(0x00)", "value 0x00 is not a valid binary representation for type int"),
    ],
)
def test_a_literal_of_another_type_is_refused(literals: Any, column: str, literal: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        literals.execute(f"INSERT INTO lits (p, {column}) VALUES (1, {literal})")


@pytest.fixture(scope="module")
def literals(session: Any) -> Any:
    session.execute(
        "CREATE TABLE lits (p int PRIMARY KEY, v int, l list<int>, s set<int>, m map<int, int>, u pair, asci ascii,"
        " tup tuple<int, text>, vec vector<int, 2>, deep tuple<int, tuple<int, text, double>>)"
    )
    return session


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0:1", (0, "1")),
        ("1", (1, None)),
        (r"1:1\:1", (1, "1:1")),
        ("@:1", (None, "1")),
    ],
)
def test_a_tuple_is_read_from_text(literals: Any, text: str, value: tuple[Any, ...]) -> None:
    literals.execute(f"INSERT INTO lits (p, tup) VALUES (2, '{text}')")
    assert literals.execute("SELECT tup FROM lits WHERE p = 2").one() == (value,)


def test_an_aggregate_in_where_is_refused(session: Any) -> None:
    with pytest.raises(InvalidRequest, match="Aggregation"):
        session.execute("SELECT * FROM t WHERE p = sum((int)4)")
