"""Terms: each reads as it was written."""

from __future__ import annotations

import pytest
from cqltrees import INT, NULL, marker, text
from hypothesis import given, settings
from hypothesis import strategies as st

from rscylla.embedded.cql import ast
from rscylla.embedded.cql.names import quote_name
from rscylla.embedded.cql.parser import parse


def term(source: str) -> object:
    """Return the term *source*, read as the value of a column."""
    statement = parse(f"INSERT INTO t (a) VALUES ({source})")
    assert isinstance(statement, ast.Insert)
    return statement.values[0]


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
