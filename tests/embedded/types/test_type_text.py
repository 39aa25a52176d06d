"""The text of types: read, shown, and refused."""

from __future__ import annotations

import pickle

import pytest
from cqlvalues import (
    ADDRESS,
    of,
)

from rscylla.embedded.errors import InvalidRequest
from rscylla.embedded.types import (
    FLOAT,
    INT,
    TEXT,
    ListType,
    MapType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
)
from rscylla.embedded.types.natives import NATIVE_TYPES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INT", INT),
        ("varchar", TEXT),
        ("list<int>", ListType(INT)),
        ("Frozen< Set <text> >", SetType(TEXT, frozen=True)),
        ("map<int,frozen<list<text>>>", MapType(INT, ListType(TEXT, frozen=True))),
        ("frozen<map<int, list<text>>>", MapType(INT, ListType(TEXT, frozen=True), frozen=True)),
        ("tuple<int, list<addr>>", TupleType((INT, ListType(ADDRESS.freeze(), frozen=True)))),
        ("frozen<tuple<int>>", TupleType((INT,))),
        ("addr", ADDRESS),
        ("ks.addr", ADDRESS),
        ("frozen<addr>", ADDRESS.freeze()),
        ("vector<float, 1536>", VectorType(FLOAT, 1536)),
        ("vector<list<int>, 2>", VectorType(ListType(INT, frozen=True), 2)),
        ("list<vector<float, 3>>", ListType(VectorType(FLOAT, 3))),
    ],
)
def test_type_text(text, expected):
    assert expected == of(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("frozen<map<text, list<int>>>", "frozen<map<text, frozen<list<int>>>>"),
        ("tuple<int, text>", "frozen<tuple<int, text>>"),
        ("map<int, vector<float, 3>>", "map<int, vector<float, 3>>"),
        ("frozen<addr>", "frozen<addr>"),
        ("varchar", "text"),
    ],
)
def test_the_name_of_a_type_is_what_system_schema_shows(text, name):
    assert name == of(text).name
    assert name == str(of(name))


def test_the_name_of_a_udt_is_quoted_where_it_must_be():
    assert UdtType("ks", "My Type", ("a",), (INT,)).name == '"My Type"'
    assert UdtType("ks", "table", ("a",), (INT,)).freeze().name == 'frozen<"table">'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("itn", "Unknown type itn"),
        ('"int"', "Unknown type int"),
        ("int<text>", "Unknown type int .* takes no parameters"),
        ("list", "Unknown type list"),
        ("list<>", "Unable to read the type"),
        ("list<int", "Unable to read the type"),
        ("list<int>>", "Unable to read the type"),
        ("map<int>", "Unable to read the type"),
        ("", "Unable to read the type"),
        ("int;", "Unable to read the type"),
        ("list<list<int>>", "Non-frozen user types or collections are not allowed inside collections"),
        ("map<frozen<addr>, addr>", "Non-frozen user types or collections are not allowed inside collections"),
        ("set<duration>", "Durations are not allowed inside sets"),
        ("map<duration, int>", "Durations are not allowed as map keys"),
        ("list<counter>", "Counters are not allowed inside collections"),
        ("tuple<counter>", "Counters are not allowed inside tuples"),
        ("frozen<int>", "frozen<> is only allowed on collections, tuples, and user-defined types"),
        ("vector<float, 0>", "Vectors must have a dimension greater than 0"),
        ("vector<float, 16001>", "Vectors must have a dimension less than or equal to 16000"),
        ("vector<float, x>", "Unable to read the type"),
        ("frozen<" * 50 + "int" + ">" * 50, "nested deeper"),
    ],
)
def test_type_text_that_names_no_type_is_refused(text, message):
    with pytest.raises(InvalidRequest, match=message):
        of(text)


def test_kinds_of_types():
    assert ListType(INT).is_multicell
    assert ADDRESS.is_multicell
    assert not ListType(INT).is_frozen
    for frozen in (INT, ListType(INT, frozen=True), TupleType((INT,)), VectorType(INT, 1), ADDRESS.freeze()):
        assert frozen.is_frozen
        assert not frozen.is_multicell
    assert len({of("list<int>"), ListType(INT), of("frozen<list<int>>")}) == 2
    assert MapType(TEXT, ListType(ADDRESS.freeze(), frozen=True)).references("ks", "addr")
    assert not TupleType((INT, SetType(TEXT))).references("ks", "addr")


@pytest.mark.parametrize("cql_type", [*NATIVE_TYPES.values(), of("map<int, frozen<addr>>"), of("vector<float, 2>")])
def test_types_survive_pickling(cql_type):
    assert cql_type == pickle.loads(pickle.dumps(cql_type))
